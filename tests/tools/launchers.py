#!/usr/bin/env python3
"""The lines of apps/docs/hosts.md that begin a run by Slurm and by MPI's starters, typed where the real ones start them.

    launchers.py PROGRAM [--root FOLDER] [--only NAME]

Two machines as in two_hosts.py, with Slurm's own daemons on both (slurmctld, slurmd, munge), Open MPI's mpirun (its `-x` and `--host`),
MPICH's mpiexec, and torchrun where one is on the PATH or $TROUPE_TORCHRUN names it. The weights must be those of one process; where a
process is killed, the starter must not say that all was well; Slurm's cancelled job must end in order; and nothing may be left behind.
What is not installed, or does not come up here, is skipped with its reason: exit status 4 where nothing is left.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from two_hosts import SHORTER, Machines, Skip, Typed, steps_of, weights

NETWORK = "--set pipeline.stages=2 --set pipeline.schedule=async_one_f_one_b"
ENDLESS = "--set stop.epochs=0 --set stop.updates=1000000000"
START_SECONDS = 30

SLURM = """ClusterName=troupe
SlurmctldHost=alpha(10.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthInfo=socket={root}/munge.socket
StateSaveLocation={root}/slurm-state
SlurmdSpoolDir={root}/slurm-spool-%n
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd-%n.pid
SlurmctldLogFile={root}/slurmctld.log
SlurmdLogFile={root}/slurmd-%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
KillWait=2
NodeName=alpha NodeAddr=10.0.0.1 CPUs=1 State=UNKNOWN
NodeName=beta NodeAddr=10.0.0.2 CPUs=1 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
"""

ENVIRONMENT = {
    # Tests run as root; Open MPI asks whether that is meant.
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_btl_tcp_if_include": "10.0.0.0/24",
    "OMPI_MCA_oob_tcp_if_include": "10.0.0.0/24",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
}


def needed(*programs):
    """The first of them that is here."""
    for program in programs:
        if found := shutil.which(program):
            return found
    raise Skip(f"{' or '.join(programs)} is not installed")


def said(machines, command, code=0, host="alpha"):
    """What a command has said that had to end with this exit code."""
    typed = Typed(machines, host, command)
    got = typed.wait()
    if got != code:
        raise AssertionError(f"{command}: exit code {got}, not {code}\n{typed.text()}")
    return typed.text()


def one_process(machines):
    """The weights that all starters' runs have to end with."""
    return weights(said(machines, f"troupe run glyphs-mlp {NETWORK} --quiet {SHORTER}"))


def check(machines, command, expected):
    text = said(machines, f"{command} {SHORTER}")
    if weights(text) != expected:
        raise AssertionError(f"{command}: other weights than one process has\n{text}")


def when_training(machines, typed, out):
    metrics = machines.root / "alpha" / out / "metrics.jsonl"
    until = time.monotonic() + START_SECONDS
    while not (metrics.exists() and '"train"' in metrics.read_text()):
        if time.monotonic() > until or typed.process.poll() is not None:
            raise AssertionError(f"it does not train:\n{typed.text()}")
        time.sleep(0.05)


def runs_left(out):
    """Processes of a run into that folder."""
    found = subprocess.run(["pgrep", "-f", f"[t]roupe run .*--out {out}( |$)"], capture_output=True, text=True)
    return found.stdout.split()


def none_is_left(out):
    until = time.monotonic() + START_SECONDS
    while runs_left(out):
        if time.monotonic() > until:
            raise AssertionError(f"processes of the run into {out} are left")
        time.sleep(0.1)


def kill_one(machines, command, out, lead_tells):
    """Process 1 is killed. The starter must not say that all was well, and nothing may be left. `lead_tells`: it lets the others live."""
    typed = Typed(machines, "alpha", f"{command} {ENDLESS} --out {out}")
    when_training(machines, typed, out)
    victims = [pid for pid in runs_left(out) if is_rank_one(pid)]
    if len(victims) != 1:
        raise AssertionError(f"process 1 was not found among {runs_left(out)}\n{typed.text()}")
    os.kill(int(victims[0]), 9)
    if typed.wait() == 0:
        raise AssertionError(f"{command}: exit code 0 after a process was killed\n{typed.text()}")
    if lead_tells and "is lost: process 1 on 10.0.0.2" not in typed.text():
        raise AssertionError(f"{command}: nothing was said of process 1\n{typed.text()}")
    none_is_left(out)


def is_rank_one(pid):
    if Path(f"/proc/{pid}/comm").read_text().strip() != "troupe":
        return False  # a starter, which has the same words
    variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return any(name in variables for name in (b"SLURM_PROCID=1", b"OMPI_COMM_WORLD_RANK=1", b"PMI_RANK=1", b"RANK=1"))


def lines_of(page, begins):
    found = [command for _, _, command, _ in steps_of(page) if command.startswith(begins)]
    if not found:
        raise AssertionError(f"hosts.md has no line that begins with {begins}")
    return found


class Daemon(Typed):
    """One of Slurm's on a machine, which has its name here, too. `ip netns exec` would mount a /sys of its own, without the control
    groups that slurmd looks for."""

    def words(self, machines, host, command):
        inside = f"mount --bind {machines.root}/hosts /etc/hosts && hostname {host} && cd {machines.root}/{host} && exec {command}"
        return ["nsenter", f"--net=/run/netns/{machines.names[host]}", "unshare", "--mount", "--uts", "sh", "-c", inside]


class Slurm:
    """Its daemons on both machines."""

    def __init__(self, machines):
        self.machines = machines
        self.daemons = []

    def __enter__(self):
        for program in ("munged", "slurmctld", "slurmd", "srun"):
            needed(program)
        root = self.machines.root
        (root / "slurm.conf").write_text(SLURM.format(root=root))
        (root / "slurm-state").mkdir()
        root.chmod(0o755)  # munge's socket is for everybody
        (root / "munge.key").write_bytes(os.urandom(256))
        (root / "munge.key").chmod(0o600)
        munge = [f"--{what}={root}/munge.{end}" for what, end in (("key-file", "key"), ("socket", "socket"), ("pid-file", "pid"), ("seed-file", "seed"))]
        try:
            # --force: the folder of a test is not one of the system's.
            self.start("alpha", f"munged --foreground --force {' '.join(munge)} --log-file={root}/munge.log")
            self.start("alpha", "slurmctld -D")
            for host in Machines.ADDRESSES:
                (root / f"slurm-spool-{host}").mkdir()
                self.start(host, f"slurmd -D -N {host}")
            self.await_nodes()
        except BaseException:
            self.__exit__()
            raise
        return self

    def start(self, host, command):
        self.daemons.append(Daemon(self.machines, host, command))

    def await_nodes(self):
        until = time.monotonic() + START_SECONDS
        while True:
            typed = Typed(self.machines, "alpha", "sinfo --noheader --Node --format=%t")
            typed.wait()
            if typed.text().split() == ["idle", "idle"]:
                return
            if time.monotonic() > until:
                heard = "\n".join(daemon.text() for daemon in self.daemons)
                raise Skip(f"Slurm's nodes do not come up: {typed.text().strip()}\n{heard}")
            time.sleep(0.2)

    def __exit__(self, *_):
        for daemon in reversed(self.daemons):
            daemon.end()
        subprocess.run(["pkill", "-f", f"slurmstepd.*{self.machines.root}"], check=False)


def by_slurm(machines, page, expected):
    with Slurm(machines):
        for command in lines_of(page, "srun"):
            check(machines, command, expected)
        words = f"troupe run glyphs-mlp {NETWORK} --join env --keys keys/alpha"
        kill_one(machines, f"srun --ntasks=2 {words}", "slurm-killed", True)
        typed = Typed(machines, "alpha", f"srun --job-name=cancelled --ntasks=2 {words} {ENDLESS} --out slurm-cancelled")
        when_training(machines, typed, "slurm-cancelled")
        said(machines, "scancel --name=cancelled")
        typed.wait()
        none_is_left("slurm-cancelled")
        summary = machines.root / "alpha/slurm-cancelled/summary.json"
        if not summary.exists():
            raise AssertionError(f"a cancelled job has left no summary:\n{typed.text()}")


def by_open_mpi(machines, page, expected):
    mpirun = needed("mpirun.openmpi")
    for command in lines_of(page, "mpirun"):
        check(machines, command.replace("mpirun", mpirun, 1), expected)
    words = f"troupe run glyphs-mlp {NETWORK} --join env --keys keys/alpha"
    kill_one(machines, f"{mpirun} -n 2 --host alpha,beta -x MASTER_ADDR=alpha {words}", "open-mpi-killed", False)


def by_mpich(machines, page, expected):
    mpiexec = needed("mpiexec.mpich", "mpiexec.hydra")
    for command in lines_of(page, "mpiexec"):
        check(machines, command.replace("mpiexec", mpiexec, 1), expected)
    words = f"troupe run glyphs-mlp {NETWORK} --join env --keys keys/alpha"
    where = "-n 2 -hosts alpha,beta -genv MASTER_ADDR alpha"
    kill_one(machines, f"{mpiexec} {where} {words}", "mpich-killed", False)
    kill_one(machines, f"{mpiexec} -disable-auto-cleanup {where} {words}", "mpich-went-on", True)


def by_torchrun(machines, page, expected):
    torchrun = os.environ.get("TROUPE_TORCHRUN") or needed("torchrun")
    for command in lines_of(page, "torchrun"):
        check(machines, command.replace("torchrun", torchrun, 1), expected)


STARTERS = {"slurm": by_slurm, "open-mpi": by_open_mpi, "mpich": by_mpich, "torchrun": by_torchrun}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=Path)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[2])
    parser.add_argument("--only", choices=STARTERS)
    arguments = parser.parse_args()
    page = (arguments.root / "apps/docs/hosts.md").read_text(encoding="utf-8")
    started, skipped = [], []
    with tempfile.TemporaryDirectory(prefix="troupe-launchers-") as folder:
        os.environ.update(ENVIRONMENT, SLURM_CONF=f"{folder}/slurm.conf", OMPI_MCA_plm_rsh_agent=f"{folder}/bin/ssh-of-mpi", HYDRA_LAUNCHER_EXEC=f"{folder}/bin/ssh-of-mpi")
        try:
            with Machines(folder, arguments.program.resolve()) as machines:
                # The starters call it with options of ssh's own and a command in several words.
                agent = machines.root / "bin/ssh-of-mpi"
                agent.write_text(f'#!/bin/sh\nwhile [ "${{1#-}}" != "$1" ]; do shift; done\nhost=$1\nshift\nexec {machines.root}/enter "$host" "$*"\n')
                agent.chmod(0o755)
                said(machines, "troupe keys keys --hosts alpha,beta")
                expected = one_process(machines)
                for name, starter in STARTERS.items():
                    if arguments.only in (None, name):
                        try:
                            starter(machines, page, expected)
                            started.append(name)
                        except Skip as why:
                            skipped.append(f"{name}: {why}")
        except Skip as why:
            skipped.append(str(why))
        except (AssertionError, subprocess.TimeoutExpired) as failed:
            print(failed, file=sys.stderr)
            return 1
    for why in skipped:
        print(f"skipped: {why}")
    print(f"started by: {', '.join(started) or 'nothing'}")
    return 0 if started else 4


if __name__ == "__main__":
    sys.exit(main())
