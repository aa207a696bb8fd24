#!/usr/bin/env python3
"""A long run needs no more memory and no more descriptors at its end than in its middle.

    soak.py --program P --minutes 20 --processes 4          # on the real clock
    soak.py --program P --virtual-hours 24                  # troupe sim, with simulated faults
    ... --kill 30 --back 100                                # the last process is killed every 30 seconds, and comes back
    ... --experiment E --set KEY=VALUE                      # another experiment than the small one that stands below

Resident memory and open descriptors of the program and of all that it starts are read from /proc, --samples times a second. Of each
process that lives for at least half of the time, the time is parted into quarters; the first is its warm-up. It fails where in the
last quarter

    the median of its memory is more than 1.5 % and 2 MiB above that of the second quarter (--slack: MiB, for runs of less than a
    minute, in which the heap has not found its size yet),
    so is the largest of its memory, by more than 5 % and four times as much,
    or the median or the largest number of descriptors is above that of the second quarter by more than 2.

A process that takes the place of another lives too short for that. So these are compared by their largest memory: the median of the
last half of them with that of the first half. The run must end as it should, with updates, and leave no process behind.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import forked

MIB = 1 << 20
PAGE = os.sysconf("SC_PAGE_SIZE")
STARTING = 20  # seconds that a run may take to begin and to end, beside what it was asked for

SMALL = [
    "replicas.count=4", "replicas.exchange=parameter_server", "pipeline.stages=2", "optimizer.rule=sgd", "optimizer.learning_rate=0.005",
    "data.teacher.train=1000", "data.teacher.test=200", "stop.epochs=0", "record.every=50", "record.evaluate_every=500",
]  # fmt: skip
# Steps of some seconds, as on hosts that are small and far from each other.
VIRTUAL = [
    "clock.forward.seconds=[1]", "clock.forward=gamma", "clock.weight_gradient.seconds=[1]", "clock.link.seconds=[0.1]",
    "clock.faults.crashes.every=1200", "clock.faults.crashes.back=60", "clock.faults.freezes.every=900", "clock.faults.freezes.seconds=1",
    "clock.faults.cuts.every=1200", "clock.faults.cuts.seconds=1", "clock.faults.wire.loss=0.02", "clock.faults.wire.duplicates=0.02",
    "clock.faults.wire.delay=0.05",
]  # fmt: skip


def needs_of(pid):
    """(resident bytes, descriptors) of a process, or None where it is gone."""
    try:
        resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
        return (resident, len(os.listdir(f"/proc/{pid}/fd"))) if resident > 0 else None
    except (OSError, IndexError):
        return None


def began(pid):
    """When a process did, which tells it from another with its number; None where it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return None if fields[0] == "Z" else fields[19]
    except OSError:
        return None


def send(pid, then, number):
    """A signal to the process that began then. False where it is gone, also where it goes between the look and the signal."""
    try:
        if then is None or began(pid) != then:
            return False
        os.kill(pid, number)
        return True
    except ProcessLookupError:
        return False


def family(pid):
    """A process and all that it has started, and those."""
    found = [pid]
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            for child in Path(f"/proc/{pid}/task/{task}/children").read_text().split():
                found += family(int(child))
    except OSError:
        pass  # it ends just now
    return found


def quarter(samples, which):
    """Of a list of (resident, descriptors)."""
    length = len(samples) / 4
    return samples[int(which * length) : int((which + 1) * length)]


def rises(samples, slack):
    """What is wrong with one process, in words."""
    before, after = quarter(samples, 1), quarter(samples, 3)
    memory = [[resident for resident, _ in part] for part in (before, after)]
    descriptors = [[count for _, count in part] for part in (before, after)]
    wrong = []
    for name, of, share, more in (("median", statistics.median, 1.015, slack), ("largest", max, 1.05, 4 * slack)):
        first, last = (of(part) for part in memory)
        if last > first * share + more:
            wrong.append(f"the {name} memory has risen from {first / MIB:.1f} to {last / MIB:.1f} MiB")
        first, last = (of(part) for part in descriptors)
        if last > first + 2:
            wrong.append(f"the {name} number of descriptors has risen from {first:.0f} to {last:.0f}")
    return wrong


def successors_rise(series):
    """The same of processes that lived one after the other, in the order of their beginnings."""
    if len(series) < 8:
        return []
    largest = [max(resident for resident, _ in samples) for samples in series]
    half = len(largest) // 2
    first, last = statistics.median(largest[:half]), statistics.median(largest[-half:])
    return [f"those that came back have risen from {first / MIB:.1f} to {last / MIB:.1f} MiB"] if last > first * 1.05 + 4 * MIB else []


class Watch:
    """Samples of a process and of all that it starts, until it has ended."""

    def __init__(self, process, each):
        self.process = process
        self.each = each
        self.series = {}  # by process of the system, in the order in which they were seen first
        self.began = {}

    def look(self):
        for pid in family(self.process.pid):
            if (sample := needs_of(pid)) is not None:
                self.series.setdefault(pid, []).append(sample)
                self.began.setdefault(pid, began(pid))
        time.sleep(self.each)

    def left(self):
        """Those that it has started and that are still there, which end now."""
        return [pid for pid, then in self.began.items() if pid != self.process.pid and send(pid, then, signal.SIGKILL)]

    def last(self):
        """The youngest that lives and is not the program itself, or None."""
        others = [pid for pid in family(self.process.pid) if pid != self.process.pid]
        return max(others, key=lambda pid: list(self.series).index(pid) if pid in self.series else -1, default=None)

    def judged(self, slack):
        """[(what it is, samples, what is wrong)] of those that have lived long, and the samples of each that has not."""
        first = next(iter(self.series))
        half = len(self.series[first]) / 2
        long = {pid: samples for pid, samples in self.series.items() if len(samples) >= half and len(samples) >= 8}
        short = [samples for pid, samples in self.series.items() if pid not in long]
        rows = []
        for index, (pid, samples) in enumerate(long.items()):
            rows.append(("the program" if pid == first else f"process {index} of it", samples, rises(samples, slack)))
        return rows, short


def table(rows, short):
    print(f"{'':16} {'samples':>8}   {'MiB: q2':>8} {'q3':>8} {'q4':>8} {'largest':>8}   {'descriptors: q2':>15} {'q3':>5} {'q4':>5}")
    for name, samples, _ in rows:
        parts = [quarter(samples, which) for which in (1, 2, 3)]
        memory = [statistics.median(resident for resident, _ in part) / MIB for part in parts]
        descriptors = [statistics.median(count for _, count in part) for part in parts]
        largest = max(resident for resident, _ in samples) / MIB
        line = f"{name:16} {len(samples):8}   " + " ".join(f"{x:8.1f}" for x in [*memory, largest])
        print(f"{line}   {descriptors[0]:15.0f} {descriptors[1]:5.0f} {descriptors[2]:5.0f}")
    if short:
        largest = [max(resident for resident, _ in samples) / MIB for samples in short]
        print(f"{len(short)} lived shorter; their largest memory was {min(largest):.1f} to {max(largest):.1f} MiB")


def command_of(given, out):
    virtual = given.virtual_hours is not None
    words = [given.program, "sim" if virtual else "run", given.experiment or "teacher-mlp", "--quiet", "--out", str(out)]
    settings = [] if given.experiment else SMALL + (VIRTUAL if virtual else [])
    settings = [*settings, "stop.updates=0", f"record.checkpoint.seconds={given.checkpoint}"]
    settings += [f"stop.seconds={given.virtual_hours * 3600}"] if virtual else ["stop.seconds=1e9"]
    if not virtual and given.processes > 1:
        words += ["--processes", str(given.processes)] + (["--back", str(given.back)] if given.back else [])
    for setting in settings + given.set:
        words += ["--set", setting]
    return words


def play(given, out):
    """The watch over a whole run; asserts that it went as it should."""
    started = time.monotonic()
    end = started + 60 * given.minutes if given.virtual_hours is None else None
    with open(out.parent / "said", "w+") as said:
        process = subprocess.Popen(command_of(given, out), stdin=subprocess.DEVNULL, stdout=said, stderr=said)
        watch = Watch(process, 1 / given.samples)
        kill_at = started + given.kill if given.kill else None
        kills = 0
        interrupted = None
        try:
            while process.poll() is None:
                watch.look()
                now = time.monotonic()
                if end and now > end and not interrupted:
                    process.send_signal(signal.SIGINT)
                    interrupted = now
                if interrupted and now > interrupted + STARTING:
                    raise AssertionError(f"it has not ended {STARTING} s after it was interrupted")
                if kill_at and now > kill_at and not interrupted and (victim := watch.last()):
                    kills += send(victim, began(victim), signal.SIGKILL)
                    kill_at = now + given.kill
        finally:
            left = watch.left()
            process.kill()
            process.wait()
        said.seek(0)
        expected = 130 if end else 0
        assert process.returncode == expected, f"exit code {process.returncode}, not {expected}\n{said.read()}"
    assert not left, f"it has left processes behind: {left}"
    summary = json.loads((out / "summary.json").read_text())
    assert summary["updates"] > 0, "it has made no update"
    print(f"{summary['updates']:,} updates in {time.monotonic() - started:.0f} s, {len(summary.get('lost', []))} replicas lost "
          f"({kills} processes killed), {len(summary.get('returned', []))} returned")  # fmt: skip
    assert given.kill is None or kills == 0 or summary.get("returned"), "nothing that was killed has come back"
    return watch


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--experiment")
    parser.add_argument("--set", action="append", default=[])
    length = parser.add_mutually_exclusive_group(required=True)
    length.add_argument("--minutes", type=float)
    length.add_argument("--virtual-hours", type=float)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--kill", type=float, help="seconds between two deaths")
    parser.add_argument("--back", type=int)
    parser.add_argument("--checkpoint", type=float, default=5, help="seconds between two checkpoints")
    parser.add_argument("--samples", type=float, default=1, help="a second")
    parser.add_argument("--slack", type=float, default=2, help="MiB")
    parser.add_argument("--write", type=Path, help="a file for all samples: process, resident bytes, descriptors a line")
    given = parser.parse_args()
    given.program = str(Path(given.program).resolve())
    with forked.folder_of_runs() as folder:
        try:
            watch = play(given, Path(folder, "run"))
        except AssertionError as why:
            print(why)
            return 1
    rows, short = watch.judged(given.slack * MIB)
    table(rows, short)
    if given.write:
        lines = [f"{pid} {resident} {count}\n" for pid, samples in watch.series.items() for resident, count in samples]
        given.write.write_text("".join(lines))
    wrong = [f"{name}: {sentence}" for name, _, sentences in rows for sentence in sentences] + successors_rise(short)
    for sentence in wrong:
        print(sentence)
    if not rows:
        print("no process has lived long enough to be judged")
    print("it rises" if wrong else "flat")
    return 1 if wrong or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
