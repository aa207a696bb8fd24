#!/usr/bin/env python3
"""A recorded run of the real clock is replayed to equal bits: over the experiments of digest_matrix.py, those that choose by arrival
and differ from run to run among them.

    replay_matrix.py --program P               # each eleventh experiment and those of ALWAYS, as ctest does
    replay_matrix.py --program P --each 1      # all of them
    ... --only REGEX                           # experiments by name
    ... --twice                                # how many of them another run does not repeat: what the replays owe to their records

Of each: `run`, then `replay`, which must end with code 0; the digest of weights that it prints is compared here once more.
"""

import argparse
import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import forked
from digest_matrix import CLOCK, SECONDS_MAX, TASKS, Case, cases, outcome, words

ALWAYS = r"unlocked|buffer|freshest|contiguous|untied"  # what an estimate is made at follows from what has arrived
# Of the real clock: seconds are seconds.
REAL = {"stop.seconds=9": "stop.seconds=0.2"}


def has_order(case):
    """Runs of threads that share a buffer record none."""
    return "hogwild" not in case.name


def on_real_clock(case):
    return Case(case.task, [REAL.get(s, s) for s in case.sets], case.run, case.code)


def replayed(program, directory, folder):
    command = [program, "replay", str(directory), "--quiet"]
    try:
        return forked.run(command, cwd=folder, timeout=SECONDS_MAX)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, -1, "", f"no end after {SECONDS_MAX} s")


def check(program, folder, case, number, twice):
    """What is wrong, or "", and whether a second run has come to other weights."""
    made = outcome(program, folder, case, "run", f"{number}-run")
    directory = Path(folder, f"{Path(program).parent.name}-{number}-run")
    if not (directory / "summary.json").is_file():
        return f"{case.name}: no run: {made}", False
    done = replayed(program, directory, folder)
    recorded = json.loads((directory / "summary.json").read_text())["weights_sha256"]
    said = re.search(r"sha256 (\w+)", done.stdout)
    other = twice and outcome(program, folder, case, "run", f"{number}-again").get("weights") != made.get("weights")
    if done.returncode != 0:
        return f"{case.name}: exit code {done.returncode}: {done.stderr.strip()}", other
    if (said.group(1) if said else "") != recorded:
        return f"{case.name}: {recorded} was recorded: {done.stdout}", other
    return "", other


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--each", type=int, default=11)
    parser.add_argument("--only", default="")
    parser.add_argument("--twice", action="store_true")
    given = parser.parse_args()
    program = str(Path(given.program).resolve())
    found = [on_real_clock(c) for c in cases() if re.search(given.only, c.name) and has_order(c)]
    selected = [c for i, c in enumerate(found) if i % given.each == 0 or re.search(ALWAYS, c.name)]
    with forked.folder_of_runs() as folder, ThreadPoolExecutor(2) as pool:
        for task, text in TASKS.items():
            Path(folder, f"{task}.textproto").write_text(text + "\n" + CLOCK)
        Path(folder, "words.txt").write_text(words())
        results = list(pool.map(lambda i: check(program, folder, selected[i], i, given.twice), range(len(selected))))
    for sentence, _ in results:
        if sentence:
            print(sentence)
    wrong = sum(sentence != "" for sentence, _ in results)
    print(f"{len(selected)} runs, {len(selected) - wrong} replayed to equal results")
    if given.twice:
        print(f"{sum(other for _, other in results)} of them come to other weights when they are run again")
    return 1 if wrong or not selected else 0


if __name__ == "__main__":
    sys.exit(main())
