#!/usr/bin/env python3
"""How well `troupe plan --search` foresees which grid is faster: Spearman's rank correlation with measured runs.

    search_ranks.py --program P                    # twelve grids of a dense network, on the real clock
    search_ranks.py --program P --repeats 9 --updates 60 --workers 4
    search_ranks.py --program P --copies --grids 6 # all with copies of stages, and six without

Of all grids that the search finds twelve are taken at equal distances in its order, each trained several times in turn, so that
whatever else the machine does meets all of them alike, and the median seconds of a mini-batch are ranked. Printed is a table and
rho. Seconds on the wall are no measure where other programs take the cores, and neither where the grids have more workers than
there are cores. So the processor time of the busiest thread, which mostly does one stage's work, is ranked, too.

What was planned is also told as a share of what was measured: of the seconds on the wall, and of those that the run would need
were the cores its own, which are the processor time of the busiest thread, or that of all threads divided by the cores, where
that is more. The last line has the least and the greatest of each. Exit status 1 where rho, of the wall or with --busiest of the
busiest thread, is below --least.
"""

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

NETWORK = """
name: "ranks"
model { mlp { hidden: [512, 512, 512, 512, 512] activation: relu } }
data { teacher { inputs: 256 outputs: 10 hidden: 16 train: 5000 test: 64 } batch_size: 128 }
optimizer { rule: momentum learning_rate: 0.01 }
pipeline { schedule { async_one_f_one_b {} } weights { stash {} } }
stop { updates: 100 }
record { evaluate: false gap_every: 0 weights: false tensorboard: false }
"""


def ranks(values):
    """From 1; what is equal shares the mean of its ranks."""
    order = sorted(range(len(values)), key=values.__getitem__)
    of = [0.0] * len(values)
    first = 0
    while first < len(order):
        last = first
        while last + 1 < len(order) and values[order[last + 1]] == values[order[first]]:
            last += 1
        for i in range(first, last + 1):
            of[order[i]] = (first + last) / 2 + 1
        first = last + 1
    return of


def spearman(a, b):
    return statistics.correlation(ranks(a), ranks(b))


def chosen(grids, count):
    """At equal distances in the search's order, the first and the last among them."""
    if len(grids) <= count:
        return grids
    return [grids[round(i * (len(grids) - 1) / (count - 1))] for i in range(count)]


def searched(program, experiment, workers, folder):
    table = Path(folder) / "grids.csv"
    command = [program, "plan", experiment, "--search", "--workers", str(workers), "--csv", table]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"search_ranks: plan --search ended with {done.returncode}: {done.stderr}")
    with table.open(newline="") as rows:
        return [(float(row["seconds"]), row["settings"].split(" ")) for row in csv.DictReader(rows)]


def thread_seconds(pid):
    """Processor time of each thread, as far as they are there still."""
    times = {}
    for thread in Path(f"/proc/{pid}/task").glob("*"):
        try:
            times[thread.name] = int((thread / "schedstat").read_text().split()[0]) / 1e9
        except (OSError, IndexError):
            pass
    return times


def trained(program, experiment, settings, updates, folder):
    """Seconds of a mini-batch: on the wall, from the end of the first one on, as the plan has a full pipeline; of the busiest
    thread; and that the processor time of all threads takes of all cores."""
    out = Path(tempfile.mkdtemp(dir=folder)) / "run"
    sets = [word for setting in [*settings, f"stop.updates={updates}"] for word in ("--set", setting)]
    times = {}
    with subprocess.Popen([program, "run", experiment, "--quiet", "--out", out, *sets], stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, text=True) as run:  # fmt: skip
        while run.poll() is None:
            times |= thread_seconds(run.pid)
            time.sleep(0.005)
        if run.returncode != 0:
            sys.exit(f"search_ranks: {' '.join(settings)} ended with {run.returncode}: {run.stderr.read()}")
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    first, *_, last = (line for line in lines if line["kind"] == "train")
    wall = (last["seconds"] - first["seconds"]) / (last["step"] - first["step"])
    return wall, max(times.values()) / updates, sum(times.values()) / updates / len(os.sched_getaffinity(0))


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--program", required=True)
    arguments.add_argument("--experiment", help="in place of the dense network")
    arguments.add_argument("--workers", type=int, default=2)
    arguments.add_argument("--grids", type=int, default=12)
    arguments.add_argument("--copies", action="store_true", help="all grids with copies of stages, and --grids others")
    arguments.add_argument("--updates", type=int, default=40)
    arguments.add_argument("--repeats", type=int, default=5)
    arguments.add_argument("--least", type=float, default=0.9)
    arguments.add_argument("--busiest", action="store_true", help="hold the processor time of the busiest thread to --least")
    asked = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        experiment = asked.experiment
        if experiment is None:
            experiment = Path(folder) / "ranks.textproto"
            experiment.write_text(NETWORK)
        found = searched(asked.program, experiment, asked.workers, folder)
        copied = [grid for grid in found if any(word.startswith("pipeline.copies=") for word in grid[1])]
        grids = chosen(found, asked.grids)
        if asked.copies:
            grids = sorted(copied + chosen([grid for grid in found if grid not in copied], asked.grids))
        times = [[] for _ in grids]
        for _ in range(asked.repeats):
            for (_, settings), of in zip(grids, times):
                of.append(trained(asked.program, experiment, settings, asked.updates, folder))
    planned = [seconds for seconds, _ in grids]
    measured = [statistics.median(wall for wall, _, _ in of) for of in times]
    busiest = [statistics.median(busy for _, busy, _ in of) for of in times]
    needed = [max(busy, statistics.median(on_cores for _, _, on_cores in of)) for busy, of in zip(busiest, times)]
    print(f"{len(found)} grids of at most {asked.workers} workers; medians of {asked.repeats} runs of {asked.updates} updates")
    print("   planned  measured   busiest    needed  (ms a mini-batch)  planned / measured, / needed")
    for (_, settings), plan, *row in zip(grids, planned, measured, busiest, needed):
        cells = "".join(f"{1000 * value:10.3f}" for value in (plan, *row))
        print(f"{cells}   {plan / row[0]:6.2f} {plan / row[2]:6.2f}  ", " ".join(settings))
    on_wall, of_busiest = spearman(planned, measured), spearman(planned, busiest)
    for what, seconds in ("measured", measured), ("needed", needed):
        shares = [plan / taken for plan, taken in zip(planned, seconds)]
        print(f"planned / {what}: {min(shares):.2f} to {max(shares):.2f}")
    print(f"Spearman's rho: {on_wall:.3f} with seconds on the wall, {of_busiest:.3f} with those of the busiest thread")
    return 0 if (of_busiest if asked.busiest else on_wall) >= asked.least else 1


if __name__ == "__main__":
    sys.exit(main())
