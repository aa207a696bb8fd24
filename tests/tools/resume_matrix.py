#!/usr/bin/env python3
"""A run that goes on from a checkpoint ends as if it had not been stopped: over the experiments of digest_matrix.py.

    resume_matrix.py --program P               # each 13th experiment and those of ALWAYS, as ctest does
    resume_matrix.py --program P --each 1      # all of them
    ... --only REGEX                           # experiments by name
    ... --processes                            # `run` in several processes, gone on with in others; by default of few of them

Of each: one run without checkpoints, one that makes some, and the rest of the run from up to three of these. On the virtual
clock all of them have equal weights, updates, staleness and order of deliveries; on the real one, where `run` is promised to have
the weights of `sim`, equal weights and updates. With --processes a run in two to four processes makes the checkpoints, and one in
one to four goes on from them.
"""

import argparse
import random
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import forked
from digest_matrix import CLOCK, SECONDS_MAX, TASKS, Case, cases, found_in, jobs, outcome, words
from processes_matrix import ALONE, fits, in_processes, places

EVERY = ["record.checkpoint.every=2", "record.checkpoint.keep=100"]
RESUMED_MAX = 3
CANNOT = ("phases",)  # each phase is a run of its own
ALWAYS = r"unlocked|buffer|freshest|contiguous|untied"  # what a module has taken in and not yet used, states of texts


def resumed(program, clock, original, copy, step, processes=1):
    """The outcome of the run in `original`, gone on with from its checkpoint `step` in a copy of the folder."""
    shutil.copytree(original, copy)
    command = [program, clock, "--resume", str(copy / "checkpoints" / step)]
    command += ["--processes", str(processes)] if processes > 1 else []
    try:
        done = forked.run(command, timeout=SECONDS_MAX)
    except subprocess.TimeoutExpired:
        return {"code": -1, "says": f"no end after {SECONDS_MAX} s"}
    return found_in(copy, done)


def compared(clock, result):
    keys = ["code", "weights", "updates"] + (["staleness", "order"] if clock == "sim" else [])
    return {key: result.get(key) for key in keys}


def check(program, folder, case, clock, number):
    """What is wrong, and how many checkpoints were gone on from."""
    wrong = []
    plain = outcome(program, folder, case, clock, f"{number}-plain")
    with_them = outcome(program, folder, Case(case.task, case.sets + EVERY), clock, f"{number}-kept")
    if compared(clock, with_them) != compared(clock, plain):
        wrong.append(f"{clock} {case.name}: with checkpoints {with_them}, without {plain}")
    original = Path(folder, f"{Path(program).parent.name}-{number}-kept")
    steps = sorted(path.name for path in original.glob("checkpoints/step-*"))
    if not steps and clock == "sim" and case.code == 0:
        wrong.append(f"{clock} {case.name}: no checkpoint was made")
    chosen = random.Random(number).sample(steps, min(RESUMED_MAX, len(steps)))
    for step in chosen:
        again = resumed(program, clock, original, Path(folder, f"{number}-{step}"), step)
        if compared(clock, again) != compared(clock, plain):
            wrong.append(f"{clock} {case.name}: from {step} {again}, in one piece {plain}")
    return wrong, len(chosen)


def check_processes(program, folder, case, clock, number):
    """The same of a run in several processes, which records no order."""
    draw = random.Random(number)
    counts = [n for n in (2, 3, 4) if n <= places(case) and fits(case, n)]
    kept = Case(case.task, case.sets + EVERY + ["record.order=false"])
    plain = outcome(program, folder, case, clock, f"{number}-plain")
    first = in_processes(program, folder, kept, draw.choice(counts), number)
    wrong = []
    if compared(clock, first) != compared(clock, plain):
        wrong.append(f"processes {case.name}: with checkpoints {first}, in one process without {plain}")
    original = next(Path(folder).glob(f"processes-{number}-*"))
    steps = sorted(path.name for path in original.glob("checkpoints/step-*"))
    chosen = draw.sample(steps, min(RESUMED_MAX, len(steps)))
    for step in chosen:
        count = draw.choice([1] + counts)
        again = resumed(program, clock, original, Path(folder, f"{number}-{step}"), step, count)
        if compared(clock, again) != compared(clock, plain):
            wrong.append(f"processes {case.name}: from {step} in {count} {again}, in one piece {plain}")
    return wrong, len(chosen)


def of_processes(selected):
    return [(case, clock) for case, clock in jobs(selected)
            if clock == "run" and case.code == 0 and not re.search(ALONE, case.name) and places(case) > 1]  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--each", type=int, default=13)
    parser.add_argument("--only", default="")
    parser.add_argument("--processes", action="store_true")
    given = parser.parse_args()
    program = str(Path(given.program).resolve())
    found = [case for case in cases() if re.search(given.only, case.name) and case.task not in CANNOT]
    selected = [case for i, case in enumerate(found) if i % given.each == 0 or re.search(ALWAYS, case.name)]
    with forked.folder_of_runs() as folder, ThreadPoolExecutor(2) as pool:
        for task, text in TASKS.items():
            Path(folder, f"{task}.textproto").write_text(text + "\n" + CLOCK)
        Path(folder, "words.txt").write_text(words())
        all_jobs = of_processes(selected) if given.processes else jobs(selected)
        judge = check_processes if given.processes else check
        results = list(pool.map(lambda i: judge(program, folder, *all_jobs[i], i), range(len(all_jobs))))
    wrong = [sentence for sentences, _ in results for sentence in sentences]
    for sentence in wrong:
        print(sentence)
    count = sum(made for _, made in results)
    print(f"{len(all_jobs)} runs, {count} times gone on from a checkpoint, {len(wrong)} differences")
    if count < len(all_jobs) / 2:
        print("too few checkpoints were made for this to say anything")
        return 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
