#!/usr/bin/env python3
"""Runs in several processes end as in one: over the experiments of digest_matrix.py.

    processes_matrix.py --program P               # each eleventh experiment, as ctest does
    processes_matrix.py --program P --each 1      # all of them
    ... --only REGEX                              # experiments by name
    ... --hosts                                   # on nodes of this machine that listen, with keys, instead of --processes

Each experiment plays once as the automatic placement has it and once as one drawn by its number (placement.on).

Of each experiment that promises the weights of `sim` on the real clock: `run --processes N` has equal weights, updates and exit
code, N from 2 to 4 as far as there are places. Of the others: the run ends with the exit code that it should. Of all: `replay`
repeats it in one process.
"""

import argparse
import random
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import forked
from digest_matrix import CLOCK, SECONDS_MAX, TASKS, Case, cases, found_in, outcome, words
from replay_matrix import REAL, replayed

# What plays in one process alone, and is refused otherwise.
ALONE = r"hogwild|^sparse|^batch|^phases|angle_every"


def value(case, key, otherwise):
    found = [s.split("=")[1] for s in case.sets if s.startswith(key + "=")]
    return int(found[0]) if found else otherwise


def places(case):
    return value(case, "replicas.count", 1) * value(case, "pipeline.stages", 1)


def drawn_placement(case, count, number):
    """A setting that puts each stage into one of `count` processes, and some stage into each."""
    draw = random.Random(number)
    replicas, stages = value(case, "replicas.count", 1), value(case, "pipeline.stages", 1)
    names = [f"stage-{k}" if replicas == 1 else f"stage-{r}.{k}" for r in range(replicas) for k in range(stages)]
    draw.shuffle(names)
    seats = list(range(count)) + [draw.randrange(count) for _ in names[count:]]
    return "placement.on=[" + ",".join(f'"{name}={seat}"' for name, seat in zip(names, seats)) + "]"


class Nodes:
    """So many that listen, each for one run. `words`: what a run takes to play on them."""

    def __init__(self, program, folder, count, name):
        command = [program, "node", "--listen", "127.0.0.1:0", "--once", "--keys", "keys/127.0.0.1"]
        self.all = [subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) for _ in range(count)]
        lines = [node.stderr.readline() for node in self.all]  # "troupe: listening at 127.0.0.1:40001 as 127.0.0.1"
        Path(folder, name).write_text("".join(line.split()[3] + "\n" for line in lines))
        self.words = ["--hosts", name, "--keys", "keys/lead"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for node in self.all:
            node.kill()
            node.communicate()


def in_processes(program, folder, case, count, number, hosts=False):
    """The outcome of a run in `count` processes."""
    if not hosts:
        return run(program, folder, case, f"processes-{number}-{count}", ["--processes", str(count)])
    with Nodes(program, folder, count - 1, f"hosts-{number}-{count}") as nodes:
        return run(program, folder, case, f"processes-{number}-{count}", nodes.words)


def run(program, folder, case, out, company):
    command = [program, "run", f"{case.task}.textproto", "--out", out, *company]
    for setting in [REAL.get(one, one) for one in case.sets] + (["record.order=false"] if re.search(ALONE, case.name) else []):
        command += ["--set", setting]
    try:
        done = forked.run(command, cwd=folder, timeout=SECONDS_MAX)
    except subprocess.TimeoutExpired:
        return {"code": -1, "says": f"no end after {SECONDS_MAX} s"}
    return found_in(Path(folder, out), done)


def check(program, folder, case, number, hosts):
    """What is wrong, and how many runs were made."""
    if re.search(ALONE, case.name):
        found = in_processes(program, folder, case, 2, number, hosts)
        right = found["code"] == 2 and "--processes" in found.get("says", "")
        return [] if right else [f"{case.name}: not refused: {found}"], 1
    wrong = []
    counts = [n for n in (2, 3, 4) if n <= places(case) and fits(case, n)]
    virtual = outcome(program, folder, case, "sim", number) if counts else {}
    for count in counts:
        found = in_processes(program, folder, case, count, number, hosts)
        keys = ["code", "weights", "updates"] if case.run and case.code == 0 else ["code"]
        if any(found.get(key) != virtual.get(key) for key in keys):
            wrong.append(f"{count} processes, {case.name}: {found}; sim {virtual}")
        if not hosts and count == counts[-1]:
            placed = Case(case.task, case.sets + [drawn_placement(case, count, number)])
            elsewhere = run(program, folder, placed, f"placed-{number}-{count}", ["--processes", str(count)])
            if any(elsewhere.get(key) != virtual.get(key) for key in keys):
                wrong.append(f"{count} processes, {case.name} with {placed.sets[-1]}: {elsewhere}; sim {virtual}")
        again = replayed(program, Path(folder, f"processes-{number}-{count}"), folder)
        if again.returncode != 0:
            wrong.append(f"{count} processes, {case.name}: replayed with {again.returncode}: {again.stderr.strip()}")
    return wrong, len(counts)


def fits(case, count):
    """No replica has more processes than stages, and copies of servers have one each beside the first."""
    replicas, copies = value(case, "replicas.count", 1), value(case, "replicas.copies", 1)
    return (copies == 1 or copies < count) and -(-count // replicas) <= value(case, "pipeline.stages", 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--each", type=int, default=11)
    parser.add_argument("--only")
    parser.add_argument("--hosts", action="store_true")
    given = parser.parse_args()
    program = str(Path(given.program).resolve())
    selected = [case for case in cases() if re.search(given.only or "", case.name)]
    selected = [case for case in selected if places(case) > 1 or re.search(ALONE, case.name)][:: given.each]
    with forked.folder_of_runs() as folder, ThreadPoolExecutor(2) as pool:
        for task, text in TASKS.items():
            Path(folder, f"{task}.textproto").write_text(text + "\n" + CLOCK.replace("clock {", "clock { modelled: false"))
        Path(folder, "words.txt").write_text(words())
        if given.hosts:
            subprocess.run([program, "keys", "keys", "--hosts", "127.0.0.1,lead"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        results = list(pool.map(lambda i: check(program, folder, selected[i], i, given.hosts), range(len(selected))))
        wrong = [sentence for sentences, _ in results for sentence in sentences]
    for sentence in wrong:
        print(sentence)
    print(f"{len(selected)} experiments, {sum(count for _, count in results)} runs in several processes, {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
