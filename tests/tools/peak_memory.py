#!/usr/bin/env python3
"""The most memory that runs have at once, beside what `troupe plan` says of them.

    peak_memory.py --program P [--only REGEX]

A line for each network, scheme and clock: the bytes of the line "host" of the plan, and the peak of the process's resident set
(wait4) less that of a run of the smallest experiment, which is the program itself. The plan counts no evaluations, no scratch
of kernels and no actors; so runs evaluate nothing here.
"""

import argparse
import os
import re
import subprocess
import sys

QUIET = ["record.evaluate=false", "record.gap_every=0", "record.weights=false"]
TEACHER = ["model.mlp.hidden=[1024,1024,1024]", "data.teacher.inputs=512", "data.teacher.outputs=10", "data.teacher.train=4096",
           "data.teacher.test=16", "data.batch_size=128", "stop.updates=40"]
IMAGES = ["data.glyphs.limit=512", "data.glyphs.test_limit=16", "data.batch_size=64", "stop.updates=8"]

NETWORKS = {
    "mlp": TEACHER,
    "lenet5": ["model=lenet5", *IMAGES],
    "resnet": ["model=resnet", *IMAGES],
}
SCHEMES = {
    "one stage": [],
    "recompute": ["pipeline.activations=recompute"],
    "4 stages stash": ["pipeline.stages=4", "pipeline.schedule=async_one_f_one_b", "pipeline.weights=stash"],
    "gpipe": ["pipeline.stages=4", "pipeline.schedule=gpipe", "pipeline.micro_batches=4"],
    "2 replicas": ["replicas.count=2"],
    "averaging": ["replicas.count=2", "replicas.exchange=averaging"],
    "8 replicas": ["replicas.count=8"],
}
UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def command(program, verb, settings):
    words = [program, verb, "glyphs-mlp"]
    for setting in settings:
        words += ["--set", setting]
    return words


def planned(program, settings):
    told = subprocess.run(command(program, "plan", settings), capture_output=True, text=True)
    text = " ".join(told.stdout.split())
    found = re.search(r"host of its memory the run takes at least ([\d.,]+) (\w+)", text)
    if not found:
        return None, told.stderr.strip()
    return float(found[1].replace(",", "")) * UNITS[found[2]], ""


def peak(program, verb, settings):
    """Bytes, or the error."""
    words = command(program, verb, settings) + ["--out", "none"]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    error = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    return (usage.ru_maxrss * 1024, "") if status == 0 else (None, error.strip())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="troupe")
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    least = ["model.mlp.hidden=[2]", "data.glyphs.limit=2", "data.glyphs.test_limit=2", "data.batch_size=1", "stop.updates=1", *QUIET]
    base = {verb: peak(given.program, verb, least)[0] for verb in ("sim", "run")}
    print(f"{'network, scheme':32} {'clock':8} {'planned MiB':>12} {'peak MiB':>10} {'ratio':>7}")
    for network, of_network in NETWORKS.items():
        for scheme, of_scheme in SCHEMES.items():
            name = f"{network}, {scheme}"
            if not re.search(given.only, name):
                continue
            settings = [*of_network, *of_scheme, *QUIET]
            plan, wrong = planned(given.program, settings)
            if plan is None:
                print(f"{name:32} {wrong[:100]}")
                continue
            for verb, clock in (("sim", "virtual"), ("run", "real")):
                most, wrong = peak(given.program, verb, settings)
                if most is None:
                    print(f"{name:32} {clock:8} {wrong[:100]}")
                    continue
                more = most - base[verb]
                print(f"{name:32} {clock:8} {plan / (1 << 20):12.1f} {more / (1 << 20):10.1f} {more / plan:7.2f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
