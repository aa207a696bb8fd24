#!/usr/bin/env python3
"""Runs in several processes end as in one: over the experiments of digest_matrix.py; and what a lost process costs.

    processes_matrix.py --program P               # each eleventh experiment, as ctest does, and all losses
    processes_matrix.py --program P --each 1      # all of them
    ... --only REGEX                              # experiments by name; no losses

Of each experiment that promises the weights of `sim` on the real clock: `run --processes N` has equal weights, updates and exit
code, N from 2 to 4 as far as there are places. Of the others: the run ends with the exit code that it should.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from digest_matrix import CLOCK, SECONDS_MAX, TASKS, cases, found_in, outcome, words

# What plays in one process alone, and is refused otherwise.
ALONE = r"hogwild|^sparse|^batch|^phases"
PATIENCE = 60  # seconds


def value(case, key, otherwise):
    found = [s.split("=")[1] for s in case.sets if s.startswith(key + "=")]
    return int(found[0]) if found else otherwise


def places(case):
    return value(case, "replicas.count", 1) * value(case, "pipeline.stages", 1)


def in_processes(program, folder, case, count, number):
    """The outcome of a run in `count` processes."""
    out = f"processes-{number}-{count}"
    command = [program, "run", f"{case.task}.textproto", "--out", out, "--processes", str(count)]
    for setting in case.sets + (["record.order=false"] if re.search(ALONE, case.name) else []):
        command += ["--set", setting]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS_MAX)
    except subprocess.TimeoutExpired:
        return {"code": -1, "says": f"no end after {SECONDS_MAX} s"}
    return found_in(Path(folder, out), done)


def check(program, folder, case, number):
    """What is wrong, and how many runs were made."""
    if re.search(ALONE, case.name):
        found = in_processes(program, folder, case, 2, number)
        right = found["code"] == 2 and "--processes" in found.get("says", "")
        return [] if right else [f"{case.name}: not refused: {found}"], 1
    wrong = []
    counts = [n for n in (2, 3, 4) if n <= places(case) and fits(case, n)]
    virtual = outcome(program, folder, case, "sim", number) if counts else {}
    for count in counts:
        found = in_processes(program, folder, case, count, number)
        keys = ["code", "weights", "updates"] if case.run and case.code == 0 else ["code"]
        if any(found.get(key) != virtual.get(key) for key in keys):
            wrong.append(f"{count} processes, {case.name}: {found}; sim {virtual}")
    return wrong, len(counts)


def fits(case, count):
    """No replica has more processes than stages."""
    replicas = value(case, "replicas.count", 1)
    return -(-count // replicas) <= value(case, "pipeline.stages", 1)


# -- losses --------------------------------------------------------------------------------------------------------------------

ENDLESS = ["--set", "stop.updates=100000000", "--set", "stop.seconds=300"]
PIPELINE = ["mlp.textproto", "--set", "pipeline.stages=2", "--set", "pipeline.schedule=async_one_f_one_b"]
REPLICAS = ["mlp.textproto", "--set", "replicas.count=3"]


def children(pid):
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def until(condition, seconds=PATIENCE):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False


class Training:
    """A run that goes on until it is stopped; `count` processes."""

    def __init__(self, program, folder, words_of_it, count, out):
        self.out = Path(folder, out)
        command = [program, "run", "--quiet", *words_of_it, *ENDLESS, "--processes", str(count), "--out", out]
        command += ["--set", "record.every=1", "--set", "clock.modelled=false"]
        self.lead = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.trains = until(self.has_trained)
        self.others = children(self.lead.pid)

    def has_trained(self):
        metrics = self.out / "metrics.jsonl"
        return metrics.is_file() and metrics.read_text().count('"train"') >= 3

    def ended(self):
        try:
            out, err = self.lead.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self.lead.kill()
            out, err = self.lead.communicate()
            return -1, out, err + f"[no end after {PATIENCE} s]"
        return self.lead.returncode, out, err

    def left(self):
        """Processes that are still there after a while."""
        until(lambda: not any(alive(pid) for pid in self.others), 10)
        return [pid for pid in self.others if alive(pid)]


def summary_of(training):
    return json.loads((training.out / "summary.json").read_text())


def killed_stage(program, folder):
    run = Training(program, folder, PIPELINE, 2, "killed-stage")
    os.kill(run.others[0], signal.SIGKILL)
    begin = time.monotonic()
    code, _, err = run.ended()
    if code != 5 or "process 1 was killed by signal 9" not in err or run.left():
        yield f"a stage's process was killed: exit code {code}, {err}"
    if time.monotonic() - begin > 3:
        yield f"... and that was noticed after {time.monotonic() - begin:.1f} s"


def frozen_stage(program, folder):
    run = Training(program, folder, PIPELINE, 2, "frozen-stage")
    os.kill(run.others[0], signal.SIGSTOP)
    code, _, err = run.ended()
    if code != 5 or "process 1 was silent for too long" not in err or run.left():
        yield f"a stage's process was frozen: exit code {code}, {err}"


def frozen_for_a_while(program, folder):
    run = Training(program, folder, PIPELINE, 2, "frozen-for-a-while")
    os.kill(run.others[0], signal.SIGSTOP)
    time.sleep(1)
    os.kill(run.others[0], signal.SIGCONT)
    time.sleep(3)
    if not alive(run.lead.pid):
        yield f"a process that went on after a second was given up: {run.ended()}"
        return
    run.lead.send_signal(signal.SIGINT)
    code, _, err = run.ended()
    if code != 130 or run.left():
        yield f"interrupted after a short freeze: exit code {code}, {err}"


def killed_replica(program, folder):
    run = Training(program, folder, REPLICAS, 3, "killed-replica")
    os.kill(run.others[1], signal.SIGKILL)
    time.sleep(1)
    if not alive(run.lead.pid):
        yield f"the run did not survive the loss of a replica's process: {run.ended()}"
        return
    run.lead.send_signal(signal.SIGINT)
    code, out, err = run.ended()
    lost = list(summary_of(run).get("lost", {}).values())
    if code != 130 or len(lost) != 1 or "process 2 was killed by signal 9" not in lost[0] or run.left():
        yield f"a replica's process was killed: exit code {code}, lost {lost}, {err}"


def interrupted(program, folder):
    run = Training(program, folder, REPLICAS, 2, "interrupted")
    run.lead.send_signal(signal.SIGINT)
    code, _, err = run.ended()
    summary = summary_of(run)
    if code != 130 or not summary["weights_sha256"] or run.left():
        yield f"interrupted: exit code {code}, {err}"


def killed_lead(program, folder):
    run = Training(program, folder, REPLICAS, 3, "killed-lead")
    others = run.others
    run.lead.kill()
    run.ended()
    if len(others) != 2 or run.left():
        yield f"the lead was killed: {len(others)} other processes, left {run.left()}"


def refused(program, folder):
    for more, says in [
        (["--processes", "3"], "name at most 2"),
        (["--processes", "0"], "--processes"),
        (["--processes", "2", "--set", 'phases=[{name:"a"}]'], "phases"),
    ]:
        done = subprocess.run([program, "run", *PIPELINE, *more], cwd=folder, capture_output=True, text=True, timeout=PATIENCE)
        if done.returncode != 2 or says not in done.stderr:
            yield f"{more}: exit code {done.returncode}, {done.stderr}"
    done = subprocess.run([program, "node"], cwd=folder, capture_output=True, text=True, timeout=PATIENCE)
    if done.returncode != 2 or "not by hand" not in done.stderr:
        yield f"troupe node: exit code {done.returncode}, {done.stderr}"


LOSSES = [refused, killed_stage, frozen_stage, frozen_for_a_while, killed_replica, interrupted, killed_lead]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--each", type=int, default=11)
    parser.add_argument("--only")
    given = parser.parse_args()
    program = str(Path(given.program).resolve())
    selected = [case for case in cases() if re.search(given.only or "", case.name)]
    selected = [case for case in selected if places(case) > 1 or re.search(ALONE, case.name)][:: given.each]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        for task, text in TASKS.items():
            Path(folder, f"{task}.textproto").write_text(text + "\n" + CLOCK.replace("clock {", "clock { modelled: false"))
        Path(folder, "words.txt").write_text(words())
        results = list(pool.map(lambda i: check(program, folder, selected[i], i), range(len(selected))))
        wrong = [sentence for sentences, _ in results for sentence in sentences]
        for loss in LOSSES if given.only is None else []:
            wrong += loss(program, folder)
    for sentence in wrong:
        print(sentence)
    print(f"{len(selected)} experiments, {sum(count for _, count in results)} runs in several processes, {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
