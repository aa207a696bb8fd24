#!/usr/bin/env python3
"""soak.py finds what rises: on programs that stand for troupe and leak memory or descriptors, by themselves or in a process that
they start, or do not end as they should. So does visits.py, told of before and after."""

import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import visits

SECONDS = 6

STAND_IN = """#!{python}
import json, os, signal, subprocess, sys, time

leaks = os.environ["LEAKS"]
kept = []
if sys.argv[1:] == ["child"]:
    leaks = leaks.removeprefix("child's ")
else:
    out = sys.argv[sys.argv.index("--out") + 1]
    child = subprocess.Popen([sys.argv[0], "child"])
    def end(*_):
        if leaks != "child":
            child.kill()
            child.wait()
        os.mkdir(out)
        with open(out + "/summary.json", "w") as file:
            json.dump({{"updates": 0 if leaks == "nothing done" else 7}}, file)
        sys.exit(5 if leaks == "code" else 130)
    signal.signal(signal.SIGINT, end)
while True:
    time.sleep(0.05)
    if leaks == "memory":
        kept.append(b"x" * (1 << 18))
    elif leaks == "descriptors":
        kept.append(os.open("/dev/null", os.O_RDONLY))
"""

# What it does, and what soak.py says then; "": that all is well.
CASES = [
    ("none", ""),
    ("memory", "the program: the median memory has risen"),
    ("descriptors", "the program: the median number of descriptors has risen"),
    ("child's memory", "process 1 of it: the median memory has risen"),
    ("child's descriptors", "process 1 of it: the median number of descriptors has risen"),
    ("child", "it has left processes behind"),
    ("code", "exit code 5, not 130"),
    ("nothing done", "it has made no update"),
]


def check(program, leaks, words):
    """What is wrong, or ""."""
    tool = [sys.executable, Path(__file__).parent / "soak.py", "--program", program, "--minutes", str(SECONDS / 60), "--samples", "10"]
    done = subprocess.run(tool, env=os.environ | {"LEAKS": leaks}, capture_output=True, text=True)
    right = done.returncode == (1 if words else 0) and words in done.stdout
    return "" if right else f"{leaks}: exit code {done.returncode}\n{done.stdout}{done.stderr}"


def check_visits():
    """What it does not find."""
    before = (40 << 20, 5, 0, 1)  # memory, descriptors, children, threads
    wrong = []
    for index, more in enumerate((4 << 20, 1, 1, 1)):
        after = tuple(number + more * (i == index) for i, number in enumerate(before))
        for now, rises in ((before, False), (after, True)):
            try:
                visits.compare("a node", before, now, {}, 0, 2)
                found = False
            except AssertionError:
                found = True
            if found != rises:
                wrong.append(f"visits.py: {before} to {now}: {found}")
    return wrong


def main():
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(len(CASES)) as pool:
        program = Path(folder, "stand-in")
        program.write_text(STAND_IN.format(python=sys.executable))
        program.chmod(0o755)
        wrong = [text for text in pool.map(lambda case: check(program, *case), CASES) if text]
    wrong += check_visits()
    for text in wrong:
        print(text)
    print(f"{len(CASES)} cases, {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
