#!/usr/bin/env python3
"""Two machines with a network between them: what apps/docs/hosts.md tells works there, word by word, and a cut cable is noticed.

    two_hosts.py PROGRAM [--root FOLDER] [-v]

Lines of the page's code blocks that begin with `alpha$` or `beta$` are typed on that machine, one after the other; of the lines
behind each the words must be said, in that order (of a run's summary those before a line's first number count). A machine is a
network namespace with a name, a folder and an /etc/hosts of its own, and beta's clock was started some months before alpha's; ssh
and scp are stand-ins. What Slurm, mpirun and their like start is launchers.py's. Runs are made short. Where the kernel has netem, the
cable takes 10 ms each way and carries 100 Mbit/s. Needs root: exit status 4, with the reason, where namespaces cannot be made.
"""

import argparse
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SECONDS_MAX = 120
SHORTER = "--set data.glyphs.limit=2000 --set data.glyphs.test_limit=200 --set stop.updates=12 --set record.evaluate_every=6"
LONGER = "updates=250 --set stop.epochs=0"  # instead of updates=12, of a run that is to be killed
NETEM = "netem delay 10ms rate 100mbit"

STAND_INS = {
    # Runs the words on the other machine, as sshd would: at home there, and with the addresses of both ends.
    "ssh": """#!/bin/sh
while [ "$1" != -- ]; do shift; done
exec {enter_any} "$2" "$3"
""",
    "scp": """#!/bin/sh
[ "$1" = -r ] && exec cp -r --preserve=mode "$2" "{root}/${{3%%:*}}/${{3#*:}}"
""",
}


STARTERS = ("srun ", "mpirun ", "mpiexec ", "torchrun ")


class Skip(Exception):
    pass


def sh(*words, check=True):
    done = subprocess.run(words, capture_output=True, text=True)
    if check and done.returncode != 0:
        raise Skip(f"{' '.join(words)}: {done.stderr.strip()}")
    return done


class Machines:
    """alpha and beta, and a cable."""

    ADDRESSES = {"alpha": "10.0.0.1", "beta": "10.0.0.2"}
    AHEAD = {"alpha": 0, "beta": 10_000_000}  # seconds of CLOCK_MONOTONIC

    def __init__(self, root, program):
        self.root = Path(root)
        self.names = {host: f"troupe-{host}-{os.getpid()}" for host in self.ADDRESSES}
        self.program = program

    def __enter__(self):
        if os.geteuid() != 0:
            raise Skip("network namespaces need root")
        try:
            self.make()
        except FileNotFoundError as missing:
            self.__exit__()
            raise Skip(f"{missing.filename} is not installed") from None
        except Skip:
            self.__exit__()
            raise
        return self

    def make(self):
        for name in self.names.values():
            sh("ip", "netns", "add", name)
        a, b = (f"tr{host[0]}{os.getpid()}" for host in self.ADDRESSES)
        sh("ip", "link", "add", a, "netns", self.names["alpha"], "type", "veth", "peer", "name", b, "netns", self.names["beta"])
        self.cards = {"alpha": a, "beta": b}
        slow = True
        for host, address in self.ADDRESSES.items():
            ip = ["ip", "-n", self.names[host]]
            sh(*ip, "addr", "add", address + "/24", "dev", self.cards[host])
            sh(*ip, "link", "set", "lo", "up")
            sh(*ip, "link", "set", self.cards[host], "up")
            tc = ["ip", "netns", "exec", self.names[host], "tc", "qdisc", "add", "dev", self.cards[host], "root"]
            slow = sh(*tc, *NETEM.split(), check=False).returncode == 0 and slow
        print(f"cable: {NETEM if slow else 'as fast as the kernel; it has no netem'}")
        hosts = "127.0.0.1 localhost\n" + "".join(f"{address} {host}\n" for host, address in self.ADDRESSES.items())
        (self.root / "hosts").write_text(hosts)
        tools = self.root / "bin"
        tools.mkdir()
        os.symlink(self.program, tools / "troupe")
        for name, text in STAND_INS.items():
            (tools / name).write_text(text.format(root=self.root, enter_any=self.root / "enter"))
            (tools / name).chmod(0o755)
        enter = "#!/bin/sh\ncase $1 in\n"
        for host in self.ADDRESSES:
            (self.root / host).mkdir()
            enter += f"{host}) export SSH_CONNECTION='{self.ADDRESSES['alpha']} 50000 {self.ADDRESSES[host]} 22'\n"
            enter += f"  exec {shlex.join(self.on(host, ''))}\"$2\";;\n"
        enter = enter.replace("''\"$2\"", '"$2"')
        (self.root / "enter").write_text(enter + "esac\necho \"ssh: $1 is not known\" >&2\nexit 255\n")
        (self.root / "enter").chmod(0o755)

    def __exit__(self, *_):
        for name in self.names.values():
            sh("ip", "netns", "del", name, check=False)

    def on(self, host, command):
        """Words that run a shell's command on that machine."""
        inside = f"hostname {host} && mount --bind {self.root}/hosts /etc/hosts && cd {self.root}/{host} && export PATH={self.root}/bin:$PATH && eval \"$0\""
        return ["ip", "netns", "exec", self.names[host], "unshare", "-m", "-u", "-T", f"--monotonic={self.AHEAD[host]}", "--fork", "sh", "-c", inside, command]

    def start_node(self):
        """Keys for both, and a node on beta, which is what alpha's file `hosts` names."""
        for command in ("troupe keys keys --hosts alpha,beta", "scp -r keys/beta beta:keys", "echo beta:7000 > hosts"):
            typed = Typed(self, "alpha", command)
            if typed.wait() != 0:
                raise AssertionError(f"{command}: {typed.text()}")
        node = Typed(self, "beta", "troupe node --listen beta:7000 --keys keys")
        node.wait_for("listening")
        return node

    def cable(self, state):
        sh("ip", "-n", self.names["alpha"], "link", "set", self.cards["alpha"], state)


class Typed:
    """A command that was typed on a machine, and what it has said."""

    def __init__(self, machines, host, command):
        self.file = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(self.words(machines, host, command), stdin=subprocess.DEVNULL, stdout=self.file, stderr=self.file, start_new_session=True)

    def words(self, machines, host, command):
        return machines.on(host, command)

    def text(self):
        at = os.pread(self.file.fileno(), 1 << 20, 0)
        return at.decode(errors="replace")

    def wait(self):
        return self.process.wait(timeout=SECONDS_MAX)

    def wait_for(self, words):
        until = time.monotonic() + SECONDS_MAX
        while words not in self.text():
            if time.monotonic() > until or self.process.poll() is not None:
                raise AssertionError(f"\"{words}\" was not said, but:\n{self.text()}")
            time.sleep(0.02)

    def end(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


def steps_of(page):
    """(line, host, command, what it says) of each typed line."""
    steps = []
    fenced = False
    for number, line in enumerate(page.split("\n"), start=1):
        if line.startswith("```"):
            fenced = not fenced
        elif fenced and (typed := re.match(r"(alpha|beta)\$ (.*)", line)):
            steps.append((number, typed[1], typed[2], []))
        elif fenced and steps and line.strip():
            steps[-1][3].append(line)
    return steps


def missing(said, expected):
    """The first expected line that is not said behind those before it, or None."""
    spoken = iter(line.split() for line in said.split("\n"))
    for line in expected:
        words = (line if "process" in line else re.split(r"(?<!\w)\d", line)[0]).split()
        if not any(one[: len(words)] == words for one in spoken):
            return line
    return None


def kill(machines, typed, out):
    """What `kill -9 $!` does to a run, as soon as it has a checkpoint."""
    until = time.monotonic() + SECONDS_MAX
    while not list((machines.root / "alpha" / out / "checkpoints").glob("step-*")):
        if time.monotonic() > until or typed.process.poll() is not None:
            raise AssertionError(f"it has no checkpoint to go on from:\n{typed.text()}")
        time.sleep(0.01)
    typed.end()


def type_page(machines, page, verbose, nodes):
    """Types everything; notes the nodes that go on running in `nodes`."""
    last = None
    for number, host, command, expected in steps_of(page):
        if verbose:
            print(f"{host}$ {command}")
        background = command.endswith("&")
        if command.startswith(STARTERS):
            continue
        run = re.match(r"troupe .*run", command) and "--resume" not in command
        if command.startswith("kill"):
            kill(machines, last, "run-1")
            continue
        shorter = (SHORTER.replace("updates=12", LONGER) if background else SHORTER) if run else ""
        last = typed = Typed(machines, host, f"{command.removesuffix('&')} {shorter}")
        if background:
            nodes += [] if run else [typed]
            typed.wait_for("\n")
        elif typed.wait() != 0:
            raise AssertionError(f"hosts.md:{number}: {command}: exit code {typed.process.returncode}\n{typed.text()}")
        if (line := missing(typed.text(), expected)) is not None:
            raise AssertionError(f"hosts.md:{number}: {command}: \"{line}\" was not said, but:\n{typed.text()}")
    if not nodes or len(steps_of(page)) < 6:
        raise AssertionError("hosts.md: its commands were not found")


def weights(text):
    found = re.search(r"sha256 ([0-9a-f]{64})", text)
    return found[1] if found else text


def digest(machines, words):
    typed = Typed(machines, "alpha", words)
    typed.wait()
    return weights(typed.text())


def compare(what, one, other):
    if one != other or len(one) != 64:
        raise AssertionError(f"{what}: other weights:\n{one}\n{other}")


def run_here_and_there(machines):
    words = "troupe run glyphs-mlp --quiet --set pipeline.stages=2 --set pipeline.schedule=async_one_f_one_b " + SHORTER
    compare("one machine and two", digest(machines, words), digest(machines, words + " --hosts hosts --keys keys/alpha"))


def undisturbed(machines):
    """The run that was killed and resumed has ended with the weights of one that was not."""
    words = "troupe run glyphs-mlp --quiet --set pipeline.stages=2 --set pipeline.schedule=async_one_f_one_b " + SHORTER
    summary = (machines.root / "alpha/run-1/summary.json").read_text()
    resumed = json.loads(summary)["weights_sha256"]
    compare("resumed and undisturbed", resumed, digest(machines, words.replace("updates=12", LONGER)))


def compare_clocks(machines):
    """What beta records is told by the run's clock, though beta's own shows something else."""
    words = "troupe run teacher-mlp --quiet --set pipeline.stages=2 --set stop.epochs=0 --set stop.updates=40 --out timed"
    typed = Typed(machines, "alpha", f"{words} --set record.every=1 --hosts hosts --keys keys/alpha")
    if typed.wait() != 0:
        raise AssertionError(typed.text())
    records = [json.loads(line) for line in (machines.root / "alpha/timed/metrics.jsonl").read_text().splitlines()]
    times = [record["seconds"] for record in records if record["kind"] == "train"]
    if not times or min(times) < 0 or max(times) > SECONDS_MAX:
        raise AssertionError(f"times of records: {times}")


def cut_the_cable(machines, node):
    """The lead tells within the time that the page names, and the node is there for the next run."""
    endless = "troupe run teacher-mlp --set pipeline.stages=2 --set stop.epochs=0 --set stop.updates=1000000000 --out cut --hosts hosts --keys keys/alpha"
    typed = Typed(machines, "alpha", endless)
    metrics = machines.root / "alpha/cut/metrics.jsonl"
    until = time.monotonic() + SECONDS_MAX
    while not (metrics.exists() and '"train"' in metrics.read_text()):
        if time.monotonic() > until or typed.process.poll() is not None:
            raise AssertionError(f"it does not train:\n{typed.text()}")
        time.sleep(0.05)
    machines.cable("down")
    cut = time.monotonic()
    code = typed.wait()
    took = time.monotonic() - cut
    if code != 5 or "process 1 on beta:7000 was silent for too long" not in typed.text() or took > 10:
        raise AssertionError(f"a cut cable: exit code {code} after {took:.1f} s\n{typed.text()}")
    machines.cable("up")
    node.wait_for("ended with exit code 5")
    run_here_and_there(machines)
    print(f"a cut cable was told of after {took:.1f} s")


def refuse_without_keys(machines):
    for host, command, words in (
        ("alpha", "troupe run teacher-mlp --set pipeline.stages=2 --hosts hosts", "name --keys DIR"),
        ("beta", "troupe node --listen beta:7001", "name --keys DIR"),
        ("alpha", "echo quit | timeout 5 openssl s_client -connect beta:7000; true", ""),
    ):
        typed = Typed(machines, host, command)
        code = typed.wait()
        if words and (code != 2 or words not in typed.text()):
            raise AssertionError(f"{command}: exit code {code}\n{typed.text()}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=Path)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[2])
    parser.add_argument("-v", action="store_true")
    arguments = parser.parse_args()
    page = (arguments.root / "apps/docs/hosts.md").read_text(encoding="utf-8")
    nodes = []
    with tempfile.TemporaryDirectory(prefix="troupe-hosts-") as folder:
        try:
            with Machines(folder, arguments.program.resolve()) as machines:
                try:
                    type_page(machines, page, arguments.v, nodes)
                    run_here_and_there(machines)
                    undisturbed(machines)
                    compare_clocks(machines)
                    refuse_without_keys(machines)
                    cut_the_cable(machines, nodes[0])
                finally:
                    for node in nodes:
                        node.end()
        except Skip as why:
            print(f"skipped: {why}")
            return 4
        except (AssertionError, subprocess.TimeoutExpired) as failed:
            said = "".join(f"\na node has said:\n{node.text()}" for node in nodes)
            print(f"{failed}{said}", file=sys.stderr)
            return 1
    print("the page is true")
    return 0


if __name__ == "__main__":
    sys.exit(main())
