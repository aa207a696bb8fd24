#!/usr/bin/env python3
"""Runs on two machines whose cable is cut at random: each goes on by itself and loses nothing.

    cuts.py --program P                          # one run of each kind, as ctest does
    cuts.py --program P --runs 100 --first 1000  # 100 of each, drawn from these seeds; also --kind NAME

alpha leads, and beta has a node; both are network namespaces (two_hosts.py). Kinds of runs:
  pipeline  two stages with stashes, one on each machine (--restarts)
  replicas  asynchronous replicas on both, the servers on alpha (--back)
One to three times a run the cable is cut for up to 5 s. A silence of more than 2.5 s is a loss. TCP sends a lost packet again after 0.2,
0.6, 1.4 and 3 s, so that a cut of 1.4 s may already be one.

Laws: each run ends with 0, in time, with all its updates. A pipeline's weights are, bit for bit, those of a run on one machine. Of
replicas no mini-batch is applied twice. Where all cuts were shorter than a second, nobody was given up. Needs root: exit status 4, with the
reason, where namespaces cannot be made; 1 if a law was broken.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from pathlib import Path

from kills import Broken, applied_twice, law, run
from two_hosts import Machines, Skip, Typed

SECONDS_MAX = 180  # of one run with all its restarts
CUT_MAX = 5  # seconds
NO_LOSS = 1  # seconds: a longer cut may be a loss
TASK = "data.teacher.train=1000 data.teacher.test=500 stop.epochs=0 record.evaluate=true record.checkpoint.every=20"
KINDS = {
    # kind: settings, words of the run alone
    "pipeline": ("pipeline.stages=2 pipeline.schedule=async_one_f_one_b pipeline.weights=stash stop.updates=3000", "--restarts 20"),
    "replicas": ("pipeline.stages=1 replicas.count=4 stop.updates=6000 record.order=true", "--back 20"),
}


def asked(kind):
    return " ".join(f"--set {setting}" for setting in f"{TASK} {KINDS[kind][0]}".split())


def trains(machines, out):
    metrics = machines.root / "alpha" / out / "metrics.jsonl"
    return metrics.exists() and b'"kind":"train"' in metrics.read_bytes()


def await_node(node):
    """A node that was given up at the end of a run needs half a minute to notice that its lead has gone."""
    until = time.monotonic() + 60
    while node.text().count(" has begun") > node.text().count(" ended with exit code"):
        law(time.monotonic() < until, "the node plays on for a minute after the end of a run")
        time.sleep(0.1)


def play(machines, kind, seed, undisturbed):
    """The cuts that were made, in seconds, and how often somebody was given up."""
    drawn = random.Random(f"{kind} {seed}")
    out, until = f"{kind}-{seed}", time.monotonic() + SECONDS_MAX
    words = f"troupe run teacher-mlp --quiet {asked(kind)} --out {out} --hosts hosts --keys keys/alpha {KINDS[kind][1]}"
    typed, cuts = Typed(machines, "alpha", words), []

    def wait(holds):
        while not holds() and typed.process.poll() is None:
            law(time.monotonic() < until, f"it has not ended after {SECONDS_MAX} s")
            time.sleep(0.01)
        return typed.process.returncode is None

    try:
        for _ in range(drawn.choice([1, 1, 2, 3])):
            after, seconds = drawn.uniform(0, 1), drawn.choice([drawn.uniform(0.05, NO_LOSS), drawn.uniform(NO_LOSS, CUT_MAX)])
            if not wait(lambda: trains(machines, out)):
                break
            begin = time.monotonic() + after
            if not wait(lambda begin=begin: time.monotonic() >= begin):
                break
            machines.cable("down")
            cuts.append(round(seconds, 2))
            time.sleep(seconds)
            machines.cable("up")
        wait(lambda: False)
        code = typed.process.returncode
        law(code == 0, f"it ended with {code}")
        folder = machines.root / "alpha" / out
        ended = json.loads((folder / "summary.json").read_text())
        wanted = int(KINDS[kind][0].split("stop.updates=")[1].split()[0])
        law(ended["updates"] == wanted, f"it made {ended['updates']} updates")
        given_up = len(ended.get("restarts", [])) + len(ended.get("lost", []))
        law(given_up == 0 or max(cuts, default=0) >= NO_LOSS, f"after cuts of {cuts} s somebody was given up")
        if kind == "pipeline":
            law(ended["weights_sha256"] == undisturbed["weights_sha256"], "the weights are other ones")
        else:
            twice, senders = applied_twice(folder)
            law(not twice and senders == 4, f"applied twice or not in order: {twice}; of {senders} replicas")
        return cuts, given_up
    except Broken as broken:
        raise Broken(f"{kind}, seed {seed}, cuts of {cuts} s: {broken}\n{typed.text()[-800:]}") from None
    finally:
        machines.cable("up")
        typed.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--runs", type=int, default=1, help="of each kind")
    parser.add_argument("--first", type=int, default=0, help="seed")
    parser.add_argument("--kind", choices=list(KINDS), action="append", help="these alone")
    given = parser.parse_args()
    broken = 0
    with tempfile.TemporaryDirectory(prefix="troupe-cuts-") as folder:
        try:
            with Machines(folder, Path(given.program).resolve()) as machines:
                whole = [word for setting in f"{TASK} {KINDS['pipeline'][0]}".split() for word in ("--set", setting)]
                said = run(given.program, ["run", "teacher-mlp", "--quiet", *whole, "--out", folder + "/whole"])
                law(said.returncode == 0, said.stderr[-300:])
                undisturbed = json.loads(Path(folder, "whole/summary.json").read_text())
                node = machines.start_node()
                try:
                    for kind in given.kind or list(KINDS):
                        right, all_cuts, lost = 0, 0, 0
                        for seed in range(given.first, given.first + given.runs):
                            try:
                                await_node(node)
                                cuts, given_up = play(machines, kind, seed, undisturbed)
                            except Broken as sentence:
                                broken += 1
                                print(sentence, flush=True)
                                continue
                            right, all_cuts, lost = right + 1, all_cuts + len(cuts), lost + given_up
                        print(f"{kind}: {right} of {given.runs} runs as they should be, {all_cuts} cuts, {lost} losses", flush=True)
                    if broken:
                        print(f"the node has said:\n{node.text()[-2000:]}")
                finally:
                    node.end()
        except Skip as why:
            print(f"skipped: {why}")
            return 4
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
