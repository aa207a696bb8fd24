#!/usr/bin/env python3
"""Who listens is visited thousands of times by those who should not come, and needs no more for it than before.

    visits.py --program P                          # 8 visitors, 1,000 visits each, of a node and of a lead, with keys and without
    visits.py --program P --visits 10 --whom node --keyless

`node`: `troupe node --listen`. `lead`: a run of two processes with `--join env`, which trains meanwhile. Visitors say
nothing, nonsense, half a greeting, a length of 4 GiB; they show certificates of another authority, or the right ones and then
nothing, nonsense, a word of another version or the number of a process that is there; some hang up without a word, some by a reset.
Now and then one plays a real run on the node. Before the last visits and after them, when all have gone, the one that was visited has
as many descriptors, children and threads, and as much memory up to 1.5 % and 2 MiB (--slack: MiB, where there are few visits; a
lead trains, and its heap has not found its size in the first minute). Then the node plays a run, with the weights of one process;
and the lead's other process is killed, and another is let in.
"""

import argparse
import os
import random
import re
import signal
import socket
import ssl
import struct
import subprocess
import sys
import time
from pathlib import Path

import forked
from soak import MIB, family, needs_of

SECONDS_MAX = 60
RUN = [
    "run", "teacher-mlp", "--quiet", "--set", "pipeline.stages=1", "--set", "replicas.count=2", "--set", "replicas.exchange=averaging",
    "--set", "data.teacher.train=1000", "--set", "data.teacher.test=100", "--set", "stop.epochs=0",
]  # fmt: skip
SHORT = ["--set", "stop.updates=20", "--set", "record.order=false"]
ENDLESS = ["--set", "stop.updates=1000000000", "--set", "replicas.exchange=parameter_server"]


def word(message):
    """As it goes over a control stream: its size stands before it."""
    return struct.pack("<I", len(message)) + message


# proto::Join of another version and of process 1 of 2, and proto::Arrival as process 1 of 2, which is there.
OLD_JOIN = word(b"\x0a\x050.0.9\x10\x01\x18\x02\x40\x4d")
ARRIVAL = word(b"\x08\x01\x10\x02")


class Visitor:
    """Visits at a port, drawn by a seed."""

    def __init__(self, port, whom, keys, keyless, number):
        self.port = port
        self.keyless = keyless
        self.random = random.Random(number)
        self.known, self.unknown = context(keys / "keys/lead", "lead"), context(keys / "other/lead", "lead")
        self.kinds = [self.nothing, self.reset, self.silence, self.nonsense, self.half_greeting, self.huge]
        self.kinds += [] if keyless else [self.stranger, self.no_word]
        self.kinds += [self.bad_word, self.old_word] if whom == "node" else [self.bad_word, self.taken]

    def visit(self):
        """Its kind. However it is turned out is right."""
        kind = self.random.choice(self.kinds)
        with socket.create_connection(("127.0.0.1", self.port), timeout=SECONDS_MAX) as one:
            try:
                kind(one)
            except OSError:  # and ssl.SSLError
                pass
        return kind.__name__

    def nothing(self, one):
        pass

    def reset(self, one):
        one.sendall(b"\x16\x03")
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def silence(self, one):
        time.sleep(self.random.uniform(0, 0.2))

    def nonsense(self, one):
        one.sendall(self.random.randbytes(self.random.randrange(1, 5000)))
        one.recv(1)

    def half_greeting(self, one):
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        try:
            self.known.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1").do_handshake()
        except ssl.SSLWantReadError:
            pass
        hello = outgoing.read()
        one.sendall(hello[: self.random.randrange(1, len(hello))])
        time.sleep(self.random.uniform(0, 0.05))

    def huge(self, one):
        one.sendall(b"\xff" * 4 if self.keyless else b"\x16\x03\x01\xff\xff" + b"\xff" * 20)
        one.recv(1)

    def stranger(self, one):
        with self.unknown.wrap_socket(one, server_hostname="127.0.0.1") as tls:
            tls.recv(1)

    def no_word(self, one):
        with self.known.wrap_socket(one, server_hostname="127.0.0.1"):
            pass

    def say(self, one, text):
        with one if self.keyless else self.known.wrap_socket(one, server_hostname="127.0.0.1") as stream:
            stream.sendall(text)
            while stream.recv(1000):
                pass

    def bad_word(self, one):
        self.say(one, self.random.choice([b"\xff\xff\xff\xff", word(self.random.randbytes(100)), word(b"")]))

    def old_word(self, one):
        self.say(one, OLD_JOIN)

    def taken(self, one):
        """It has to wait for seconds: few do."""
        if self.random.random() < 0.1:
            self.say(one, ARRIVAL)


def context(folder, host):
    made = ssl.create_default_context(cafile=folder / "ca.pem")
    made.load_cert_chain(folder / f"{host}.pem", folder / f"{host}.key")
    return made


def visitor(given):
    """What a process of its own does."""
    one = Visitor(given.port, given.whom, given.keys, given.keyless, given.visitor)
    kinds = []
    for number in range(given.visits):
        if given.whom == "node" and (number + 37 * given.visitor) % 250 == 9:
            done = on_node(given, given.keys, SHORT)
            if done.returncode not in (0, 5):  # 5: another visitor's run is there
                raise AssertionError(f"a run on the node ended with exit code {done.returncode}:\n{done.stderr}")
            kinds.append("run")
        else:
            kinds.append(one.visit())
    print(" ".join(kinds))


def with_keys(given, folder):
    return [] if given.keyless else ["--keys", folder]


def on_node(given, folder, more):
    words = [given.program, *RUN, *more, "--hosts", "hosts", *with_keys(given, "keys/lead")]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=SECONDS_MAX)


class Visited:
    """A program that listens."""

    def __init__(self, words, folder, name, **more):
        self.said = open(folder / name, "w+")
        self.process = subprocess.Popen(words, cwd=folder, stdin=subprocess.DEVNULL, stdout=self.said, stderr=self.said, **more)

    def text(self):
        return Path(self.said.name).read_text(errors="replace")

    def wait_for(self, words, times=1):
        until = time.monotonic() + SECONDS_MAX
        while self.text().count(words) < times:
            if time.monotonic() > until or self.process.poll() is not None:
                raise AssertionError(f'"{words}" was not said, but:\n{self.text()[-3000:]}')
            time.sleep(0.05)

    def quiet(self, children):
        """(memory, descriptors, children, threads) when all visitors have gone; the least of some seconds, as a run goes on."""
        until = time.monotonic() + SECONDS_MAX
        while len(family(self.process.pid)) - 1 > children:
            if time.monotonic() > until:
                raise AssertionError(f"visitors have gone, and {len(family(self.process.pid)) - 1} children are there\n{self.text()[-3000:]}")
            time.sleep(0.1)
        found = []
        for _ in range(30):
            memory, descriptors = needs_of(self.process.pid)
            found.append((memory, descriptors, len(family(self.process.pid)) - 1, len(os.listdir(f"/proc/{self.process.pid}/task"))))
            time.sleep(0.1)
        return tuple(min(column) for column in zip(*found))

    def end(self):
        self.process.kill()
        self.process.wait()


def swarm(given, folder, whom, port, visited, visits):
    """Eight at once; (visits made by kind, the most children that were there)."""
    words = [sys.executable, __file__, "--program", given.program, "--whom", whom, "--visits", str(visits), "--port", str(port), "--keys", folder]
    words += ["--keyless"] if given.keyless else []
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    all = [subprocess.Popen([*words, "--visitor", str(number)], **pipes) for number in range(given.processes)]
    most = 0
    while any(one.poll() is None for one in all):
        most = max(most, len(family(visited.process.pid)) - 1)
        if visited.process.poll() is not None:
            break
        time.sleep(0.05)
    kinds = {}
    for one in all:
        out, err = one.communicate()
        if one.returncode != 0:
            raise AssertionError(f"a visitor failed:\n{err}\n{visited.text()[-3000:]}")
        for kind in out.split():
            kinds[kind] = kinds.get(kind, 0) + 1
    if visited.process.poll() is not None:
        raise AssertionError(f"it has ended:\n{visited.text()[-3000:]}")
    return kinds, most


def name_of(given, whom):
    return f"{whom} without keys" if given.keyless else whom


def compare(whom, before, after, visits, most, slack):
    names = ("memory", "descriptors", "children", "threads")
    limits = (before[0] * 1.015 + slack * MIB, *before[1:])
    wrong = [f"{name} {was:,} to {now:,}" for name, was, now, limit in zip(names, before, after, limits) if now > limit]
    parts = ", ".join(f"{count} {kind}" for kind, count in sorted(visits.items()))
    print(f"{whom}: {sum(visits.values()):,} visits ({parts}); at most {most} children; before and after: "
          f"{before[0] / MIB:.1f} {after[0] / MIB:.1f} MiB, {before[1]} {after[1]} descriptors, {before[3]} {after[3]} threads")  # fmt: skip
    if wrong:
        raise AssertionError(f"{whom} has risen: {', '.join(wrong)}")


def both(given, folder, whom, port, visited, children):
    """Some visits first, after which everything is there that is made once."""
    swarm(given, folder, whom, port, visited, max(5, given.visits // 20))
    before = visited.quiet(children)
    visits, most = swarm(given, folder, whom, port, visited, given.visits)
    compare(name_of(given, whom), before, visited.quiet(children), visits, most, given.slack)
    return most


def digest(text):
    found = re.search(r"sha256 ([0-9a-f]{64})", text)
    return found[1] if found else text


def visit_node(given, folder):
    node = Visited([given.program, "node", "--listen", "127.0.0.1:0", *with_keys(given, "keys/127.0.0.1")], folder, "node")
    try:
        node.wait_for("\n")  # the whole line, which is not written at once
        port = int(re.search(r"listening at \S+:(\d+)", node.text())[1])
        (folder / "hosts").write_text(f"127.0.0.1:{port}\n")
        most = both(given, folder, "node", port, node, 0)
        if most > 8 + 1 + 1:  # strangers, the one who has the seat, and one who is just leaving
            raise AssertionError(f"the node had {most} children at once")
        done = on_node(given, folder, SHORT)
        one = subprocess.run([given.program, *RUN, *SHORT], cwd=folder, capture_output=True, text=True, timeout=SECONDS_MAX)
        if done.returncode != 0 or digest(done.stdout) != digest(one.stdout):
            raise AssertionError(f"the node's last run: exit code {done.returncode}\n{done.stdout}{done.stderr}\n{node.text()[-3000:]}")
    finally:
        node.end()


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def visit_lead(given, folder):
    port = free_port()

    def come(rank, name):
        variables = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        words = [given.program, *RUN, *ENDLESS, "--join", "env", *with_keys(given, "keys/127.0.0.1"), "--back", "3"]
        return Visited(words + (["--out", led.name] if rank == 0 else []), folder, name, env=os.environ | variables)

    led = folder / ("led-keyless" if given.keyless else "led")
    lead, other = come(0, "lead"), come(1, "process-1")
    again = None
    try:
        metrics = led / "metrics.jsonl"
        until = time.monotonic() + SECONDS_MAX
        while not (metrics.exists() and '"train"' in metrics.read_text()):
            if time.monotonic() > until or lead.process.poll() is not None:
                raise AssertionError(f"it does not train:\n{lead.text()}\n{other.text()}")
            time.sleep(0.1)
        both(given, folder, "lead", port, lead, 0)
        other.end()
        again = come(1, "process-1-again")
        until = time.monotonic() + SECONDS_MAX
        while '"returned"' not in metrics.read_text():
            if time.monotonic() > until or lead.process.poll() is not None:
                raise AssertionError(f"nobody is let in any more:\n{lead.text()[-3000:]}\n{again.text()}")
            time.sleep(0.1)
        lead.process.send_signal(signal.SIGINT)
        codes = lead.process.wait(SECONDS_MAX), again.process.wait(SECONDS_MAX)
        if codes[0] != 130:
            raise AssertionError(f"the lead ended with exit code {codes}\n{lead.text()[-3000:]}\n{again.text()}")
    finally:
        for one in (lead, other, again):
            if one:
                one.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--visits", type=int, default=1000, help="of each process")
    parser.add_argument("--whom", choices=["node", "lead"])
    parser.add_argument("--slack", type=float, default=2, help="MiB")
    parser.add_argument("--keyless", action="store_true", help="only those without keys")
    for name, kind in (("--visitor", int), ("--port", int), ("--keys", Path)):  # for the visitors that this program starts
        parser.add_argument(name, type=kind, help=argparse.SUPPRESS)
    given = parser.parse_args()
    given.program = str(Path(given.program).resolve())
    if given.visitor is not None:
        return visitor(given)
    with forked.folder_of_runs() as name:
        folder = Path(name)
        for keys, hosts in (("keys", "127.0.0.1,lead"), ("other", "lead")):
            subprocess.run([given.program, "keys", keys, "--hosts", hosts], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        try:
            for keyless in (True,) if given.keyless else (False, True):
                given.keyless = keyless
                for whom, visit in (("node", visit_node), ("lead", visit_lead)):
                    if given.whom in (None, whom):
                        visit(given, folder)
        except (AssertionError, subprocess.TimeoutExpired) as failed:
            print(failed, file=sys.stderr)
            return 1
    print("as before")
    return 0


if __name__ == "__main__":
    sys.exit(main())
