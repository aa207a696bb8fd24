#!/usr/bin/env python3
"""Promises in combination: scheme x processes x what is killed, and when x rounds of --resume x replay, drawn by seed.

    combinations.py --program P                            # each scheme once, as ctest does
    combinations.py --program P --count 2000 --first 0     # so many combinations, from this seed on
    combinations.py --program P --seed 17 --scheme gossip  # one of them again
    ... --jobs N                                           # so many at a time (2)

A combination is a scheme, a number of processes from 1 to 4 with or without servers in one of their own, with --back, --restarts or
neither, and up to three disturbances. Each names a process (the lead, a node, the one with the servers) and a moment: at random, as
soon as a checkpoint is there, as soon as a replica has come back, just before the end. The process is killed; the lead may
also be interrupted once, which it obeys with a checkpoint, or twice, which ends it. A run that has ended by that goes on with --resume in
another number of processes, at last sometimes on another topology.

Laws: a run ends with the exit code that its end has, leaves no process behind, and goes on from its newest checkpoint. The last round ends
with 0 and all updates. Where arrival decides nothing and no replica was lost, its weights are those of a run that nobody disturbed, to the
bit. No server applies a mini-batch of a replica twice. `replay` repeats the whole to the bit, but for what the page of replays excepts: a
killed process that had told a third one what its record lacks. Exit status 1 if a law was broken.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import forked
from kills import Broken, Watched, applied_twice, began, law, run, summary_of
from soak import family, send

SECONDS_MAX = 90  # in which a round has told nothing new
HURRIED_MAX = 10  # seconds from a second interrupt to the end
LEFT_MAX = 8  # seconds that the processes of a killed lead may take to notice
FROZEN = 3  # seconds
UPDATES = 240
# Modelled times, so that a run lasts a second and needs little of the cores.
TASK = [
    "data.teacher.train=1000", "data.teacher.test=100", "data.batch_size=20", "model.mlp.hidden=[24,16,12]", "stop.epochs=0",
    f"stop.updates={UPDATES}", "record.every=10", "record.evaluate_every=80", "clock.modelled=true",
    "clock.forward.seconds=[0.001]", "clock.input_gradient.seconds=[0.0005]", "clock.weight_gradient.seconds=[0.0005]",
]  # fmt: skip
R, K, EX = "replicas.count=", "pipeline.stages=", "replicas.exchange="
E, ASYNC = "replicas.exchange.", ["pipeline.schedule=async_one_f_one_b", "pipeline.weights=stash"]


def is_pending(pid, number):
    """Whether a signal waits to be taken: until it is, the kernel makes one of it and of a second of its kind."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return False
    masks = [int(line.split()[1], 16) for line in lines if line.startswith(("SigPnd:", "ShdPnd:"))]
    return any(mask >> (number - 1) & 1 for mask in masks)


class Scheme:
    """`settled`: arrival decides nothing. `back`: a replica (or none) may be lost, and another process take its place. `peers`: replicas
    speak with one another, so that what a killed one has told a third process may be in no record."""

    def __init__(self, sets, settled=False, survives=True, back=True, servers=True, peers=False):
        self.sets, self.settled, self.survives, self.back = sets, settled, survives, survives and back
        self.servers, self.peers = servers, peers


SCHEMES = {
    "asgd": Scheme([R + "4", K + "1"]),
    "asgd_pipelines": Scheme([R + "3", K + "2", *ASYNC]),
    "softsync": Scheme([R + "4", K + "1", "replicas.rule=softsync"]),
    "ssp": Scheme([R + "3", K + "1", "replicas.rule=ssp"]),
    "dana_slim": Scheme([R + "4", K + "1", "replicas.rule=dana_slim"]),
    "int8": Scheme([R + "4", K + "1", "replicas.codec.up=int8_block", "replicas.codec.down=int8_block"]),
    "n_push": Scheme([R + "3", K + "1", E + "parameter_server.n_push=2", E + "parameter_server.n_fetch=3"]),
    "synchronous": Scheme([R + "3", K + "1", EX + "synchronous"], settled=True),
    "averaging": Scheme([R + "3", K + "1", E + "averaging.period=4"], settled=True, back=False),
    "bmuf": Scheme([R + "3", K + "1", E + "bmuf.period=5"], settled=True, back=False),
    "easgd": Scheme([R + "3", K + "1", E + "easgd.period=3"], back=False),
    "wsp": Scheme([R + "3", K + "2", *ASYNC, EX + "wsp"], back=False),
    "diloco": Scheme([R + "3", K + "1", E + "diloco.period=6"], settled=True, back=False),
    "diloco_asynchronous": Scheme([R + "3", K + "1", E + "diloco.period=6", E + "diloco.mode=asynchronous"], back=False),
    "diloco_streaming": Scheme([R + "3", K + "1", E + "diloco.period=8", E + "diloco.mode=streaming"], settled=True, back=False),
    "diloco_decoupled": Scheme([R + "3", K + "1", E + "diloco.period=8", E + "diloco.mode=decoupled"]),
    "halos": Scheme([R + "4", K + "1", E + "halos.period=3", E + "halos.accumulate=4"], back=False, servers=False),
    "ring": Scheme([R + "3", K + "1", E + "synchronous.reduction=ring"], settled=True, survives=False, servers=False, peers=True),
    "tree": Scheme([R + "4", K + "1", E + "synchronous.reduction=tree"], settled=True, survives=False, servers=False, peers=True),
    "gossip": Scheme([R + "4", K + "1", EX + "gossip"], settled=True, back=False, servers=False, peers=True),
    "sgp": Scheme([R + "4", K + "1", EX + "sgp"], settled=True, back=False, servers=False, peers=True),
    "ad_psgd": Scheme([R + "4", K + "1", EX + "ad_psgd"], back=False, servers=False, peers=True),
    "strom": Scheme([R + "4", K + "1", EX + "strom", "replicas.codec.up.strom.threshold=0.001"], back=False, servers=False, peers=True),
    "pipeline": Scheme([K + "4", *ASYNC], settled=True, survives=False, servers=False, peers=True),
    "zb_h1": Scheme([K + "3", "pipeline.micro_batches=2", "pipeline.schedule=zb_h1"], settled=True, survives=False, servers=False, peers=True),
    "width": Scheme([K + "2", "pipeline.width=2", "pipeline.micro_batches=2"], settled=True, survives=False, servers=False, peers=True),
    "width_stale": Scheme([K + "2", "pipeline.width=2", *ASYNC], settled=True, survives=False, servers=False, peers=True),
    "width_clipped": Scheme([K + "2", "pipeline.width=2", *ASYNC, "optimizer.clip_norm=0.05"], settled=True, survives=False, servers=False,
                            peers=True),
    "width_pipelines": Scheme([R + "3", K + "2", "pipeline.width=2", *ASYNC, "optimizer.clip_norm=0.05"]),
    "width_asgd": Scheme([R + "3", K + "1", "pipeline.width=2"]),
    "width_diloco": Scheme([R + "3", K + "1", "pipeline.width=2", E + "diloco.period=6"], settled=True, back=False),
    "zb_v": Scheme([K + "2", "pipeline.micro_batches=4", "pipeline.schedule=zb_v"], settled=True, survives=False, servers=False, peers=True),
    "dual_pipe": Scheme([K + "2", "pipeline.micro_batches=4", "pipeline.schedule=dual_pipe"], settled=True, survives=False, servers=False, peers=True),
    "copies_of_stages": Scheme([K + "4", "pipeline.copies=[2,1,1]", *ASYNC], settled=True, survives=False, servers=False, peers=True),
    "dana_zero": Scheme([R + "3", K + "1", "replicas.rule=dana_zero", "placement.optimizer=own"]),
    "essp": Scheme([R + "3", K + "1", "replicas.rule=essp"]),
    "delayed": Scheme([R + "3", K + "1", "replicas.rule=delayed"], settled=True, back=False),
    "shards": Scheme([R + "3", K + "2", *ASYNC, "replicas.shards=2", "replicas.rule=gap_aware"]),
    "top_k": Scheme([R + "3", K + "1", EX + "synchronous", "replicas.codec.up.top_k.density=0.1", "replicas.codec.down.top_k.density=0.1"],
                    settled=True, back=False),
    "diloco_quorum": Scheme([R + "3", K + "1", E + "diloco.period=6", E + "diloco.mode=quorum"], back=False),
    "gossip_coded": Scheme([R + "4", K + "1", EX + "gossip", "replicas.codec.up=one_bit"], settled=True, back=False,
                           servers=False, peers=True),
    "gossip_rotating": Scheme([R + "4", K + "1", E + "gossip.graph=rotating"], settled=True, back=False, servers=False, peers=True),
    "sgp_random": Scheme([R + "4", K + "1", E + "sgp.graph=random"], settled=True, back=False, servers=False, peers=True),
    "sgp_overlap": Scheme([R + "4", K + "1", E + "sgp.overlap=2"], back=False, servers=False, peers=True),
    "gossip_pipelines": Scheme([R + "2", K + "2", *ASYNC, E + "gossip.order=sequential"], settled=True, back=False, servers=False, peers=True),
    "spectrain": Scheme([K + "3", "pipeline.schedule=async_full_duplex", "pipeline.weights=spectrain", "optimizer.rule=adamw",
                         "optimizer.learning_rate=0.002"], settled=True, survives=False, servers=False, peers=True),
    "synthetic": Scheme([K + "3", *ASYNC, "decoupled=synthetic"], survives=False, servers=False, peers=True),
    "unlocked": Scheme([K + "3", *ASYNC, "decoupled.synthetic.unlocked=true"], survives=False, servers=False, peers=True),
    "local_loss": Scheme([K + "3", *ASYNC, "decoupled=local_loss"], settled=True, survives=False, servers=False, peers=True),
}  # fmt: skip
ONE_REPLICA = ("pipeline", "zb_h1", "zb_v", "dual_pipe", "copies_of_stages", "width", "width_stale", "width_clipped", "spectrain", "synthetic", "unlocked", "local_loss")
MOMENTS = ["random", "checkpoint", "return", "end"]


def number(scheme, key):
    return next((int(s.split("=")[1]) for s in scheme.sets if s.startswith(key)), 1)


def replicas(scheme):
    return number(scheme, R)


def places(scheme):
    return replicas(scheme) * number(scheme, K) * number(scheme, "pipeline.width=")


class Drawn:
    """What a seed stands for."""

    def __init__(self, name, seed):
        draw = random.Random(f"{name} {seed}")
        self.name, self.scheme, self.seed = name, SCHEMES[name], seed
        self.counts = [n for n in (1, 2, 3, 4) if n <= places(self.scheme)]
        self.processes = draw.choice(self.counts[1:] + self.counts)
        self.apart = self.scheme.servers and self.processes > 1 and draw.random() < 0.25
        whole = self.scheme.back and not self.apart and self.processes <= 3  # replicas, of which --back brings one again
        self.how = draw.choice([["--back", "5"]] * whole + [["--restarts", "5"], []]) if self.processes > 1 else []
        self.every = draw.choice([7, 20, 45])
        self.sets = TASK + self.scheme.sets + ["record.order=true", f"record.checkpoint.every={self.every}"]
        if self.apart:
            self.sets.append(f'placement.on=["server-*={self.processes - 1}","stage-*=0"]' if self.processes == 2
                             else f'placement.on=["server-*={self.processes - 1}"]')  # fmt: skip
        self.rounds = []
        for _ in range(draw.choice([1, 1, 2, 3])):
            nodes = self.processes > 1 and draw.random() < 0.6
            hits = [(draw.choice(["lead"] if not nodes else ["node", "node", "server"] if self.apart else ["node"]),
                     draw.choice(MOMENTS), draw.uniform(0, 0.7))]  # fmt: skip
            if nodes and draw.random() < 0.7:
                hits.append(("lead", draw.choice(MOMENTS), draw.uniform(0, 0.3)))
            self.rounds.append(hits)
        self.end = draw.choice(["kill", "kill", "kill", "interrupt", "interrupt twice"])
        self.frozen = draw.random() < 0.1  # a node is stopped for longer than a silence may be, in place of being killed
        self.next_processes = [draw.choice(self.counts) for _ in range(6)]
        self.other_topology = draw.random() < 0.15
        self.traced = draw.random() < 0.1
        self.sets += ["record.trace=true", "record.trace_events=5000"] * self.traced

    def __str__(self):
        return (f"{self.name}, seed {self.seed}: {self.processes} processes{', servers apart' if self.apart else ''} {' '.join(self.how)}; "
                f"{self.rounds}, the lead by {self.end}; then {self.next_processes[: len(self.rounds)]}")  # fmt: skip


class Round(Watched):
    """One run of the program, from its start or a checkpoint to its end."""

    def __init__(self, program, words, out, said):
        super().__init__(SECONDS_MAX)
        self.out = out
        self.killed_nodes = self.killed_lead = self.interrupts = 0
        self.started = time.time_ns()
        self.process = subprocess.Popen([program, *words, "--quiet"], stdin=subprocess.DEVNULL, stdout=said, stderr=said)

    def metrics(self):
        try:
            return (self.out / "metrics.jsonl").read_bytes()
        except OSError:
            return b""

    def checkpoints(self):
        return sorted(path.name for path in self.out.glob("checkpoints/step-*"))

    def await_moment(self, moment, after):
        before = self.checkpoints()
        if not self.wait_until(self.trains):
            return False
        if moment == "checkpoint":
            return self.wait_until(lambda: self.checkpoints() not in ([], before))
        if moment == "return" and b'"kind":"lost"' in self.metrics():
            return self.wait_until(lambda: b'"kind":"returned"' in self.metrics() or self.near_end())
        if moment == "end":
            return self.wait_until(self.near_end)
        end = time.monotonic() + after
        return self.wait_until(lambda: time.monotonic() >= end)

    def trains(self):
        """In this round: its first act is to cut the metrics where the checkpoint was."""
        try:
            return (self.out / "metrics.jsonl").stat().st_mtime_ns > self.started and b'"kind":"train"' in self.metrics()
        except OSError:
            return False

    def near_end(self):
        return f'"kind":"train","step":{UPDATES - 10},'.encode() in self.metrics()

    def hit(self, who, how, which, frozen):
        nodes = sorted(pid for pid in family(self.process.pid) if pid != self.process.pid)
        if who == "lead":
            if self.process.poll() is not None:
                return
            if how == "kill":
                self.killed_lead += 1
                os.kill(self.process.pid, signal.SIGKILL)
                return
            self.interrupts = 1
            os.kill(self.process.pid, signal.SIGINT)
            if how == "interrupt twice":
                time.sleep(0.03)
                taken = self.wait_until(lambda: not is_pending(self.process.pid, signal.SIGINT))
                if taken and self.process.poll() is None:
                    self.interrupts = 2
                    os.kill(self.process.pid, signal.SIGINT)
                    self.hurried, self.until = True, min(self.until, time.monotonic() + HURRIED_MAX)
        elif nodes:
            victim = nodes[-1] if who == "server" else nodes[which % len(nodes)]
            then = began(victim)
            if not send(victim, then, signal.SIGSTOP if frozen else signal.SIGKILL):
                return
            self.killed_nodes += 1
            if frozen:
                end = time.monotonic() + FROZEN
                self.wait_until(lambda: time.monotonic() >= end)
                send(victim, then, signal.SIGCONT)

    def finish(self):
        while self.look():
            time.sleep(0.005)
        return self.process.returncode

    def left(self):
        end, alive = time.monotonic() + LEFT_MAX, [0]
        while alive and time.monotonic() < end:
            alive = [pid for pid, then in self.seen.items() if then and began(pid) == then]
            time.sleep(0.01)
        return alive

    def clear(self):
        for pid, then in self.seen.items():
            send(pid, then, signal.SIGKILL)


class Undisturbed:
    """The summary of a run without disturbances, by scheme."""

    def __init__(self, program):
        self.program, self.ends, self.lock = program, {}, threading.Lock()

    def __call__(self, name):
        with self.lock:
            if name not in self.ends:
                with tempfile.TemporaryDirectory() as folder:
                    words = [w for s in TASK + SCHEMES[name].sets for w in ("--set", s)]
                    done = run(self.program, ["run", "teacher-mlp", "-q", *words, "--out", folder + "/run"])
                    law(done.returncode == 0, f"{name}, undisturbed: {done.returncode}: {done.stderr[-300:]}")
                    self.ends[name] = summary_of(Path(folder) / "run")
            return self.ends[name]


def allowed(drawn, this):
    """Exit codes that the round may have had."""
    if this.killed_lead:
        return {-signal.SIGKILL, 0, 5}
    if this.interrupts:
        # One may come when the run is over and the signal has its own meaning again.
        return {130, 0, -signal.SIGINT} | ({5} if this.killed_nodes else set())
    return {0, 5} if this.killed_nodes else {0}


def words_of(drawn):
    return [w for s in drawn.sets for w in ("--set", s)]


def play(program, name, seed, undisturbed, keep):
    """Tells how many rounds there were, and whether the whole was replayed."""
    drawn = Drawn(name, seed)
    with forked.folder_of_runs() as folder:
        out = Path(folder) / "run"
        with open(Path(folder) / "said", "w+") as said:
            try:
                return judge(program, drawn, out, said, undisturbed)
            except Broken as broken:
                if keep and out.exists():
                    shutil.copytree(out, Path(keep) / f"{name}-{seed}", dirs_exist_ok=True)
                said.seek(0)
                raise Broken(f"{drawn}\n  {broken}\n  {said.read()[-900:]}") from None


def judge(program, drawn, out, said, undisturbed):
    rounds, told_third, kept = 0, False, ["--processes", str(drawn.processes)] if drawn.processes > 1 else []
    words = ["run", "teacher-mlp", *words_of(drawn), "--out", str(out), *kept, *drawn.how]
    code, processes = None, drawn.processes
    for hits in [*drawn.rounds, [], [], [], []]:
        this = Round(program, words, out, said)
        try:
            for at, (who, moment, after) in enumerate(hits):
                if not this.await_moment(moment, after):
                    break
                this.hit(who, drawn.end, at + drawn.seed, drawn.frozen)
            code = this.finish()
            left = this.left()
            law(not left, f"{len(left)} processes were left")
        finally:
            this.process.kill()
            this.process.wait()
            this.clear()
        rounds += 1
        law(code in allowed(drawn, this), f"round {rounds} ended with {code} after {this.killed_nodes} nodes, {this.interrupts} interrupts")
        third = processes > 2 and (drawn.scheme.peers or drawn.apart)
        told_third = told_third or (this.killed_nodes > 0 and third and drawn.scheme.survives)
        if code == 0:
            break
        if not this.checkpoints():
            return rounds, False  # there is nothing to go on from
        processes = drawn.next_processes[rounds - 1]
        if drawn.apart:
            processes = drawn.processes  # placement.on names them
        words = ["run", "--resume", str(out), *(["--processes", str(processes)] if processes > 1 else [])]
        words += drawn.how if processes > 1 and ("--back" not in drawn.how or processes <= replicas(drawn.scheme)) else []
    law(code == 0, f"it has not ended after {rounds} rounds")
    ended = summary_of(out)
    law(ended["updates"] == UPDATES, f"it made {ended['updates']} updates")
    law((out / "trace.pftrace").exists() == drawn.traced, f"there is {'no' if drawn.traced else 'a'} trace")
    lost = b'"kind":"lost"' in (out / "metrics.jsonl").read_bytes()
    if drawn.scheme.settled and not lost:
        law(ended["weights_sha256"] == undisturbed(drawn.name)["weights_sha256"], "the weights are other ones")
    if drawn.scheme.servers:
        twice, _ = applied_twice(out)
        law(not twice, f"applied twice or not in order: {twice[:3]}")
    if told_third:
        return rounds, False
    again = run(program, ["replay", str(out), "-q"])
    law(again.returncode == 0, f"the replay ended with {again.returncode}: {again.stderr[-400:]}")
    if drawn.other_topology:
        go_on_elsewhere(program, drawn, out)
    return rounds, True


def go_on_elsewhere(program, drawn, out):
    """From the newest checkpoint on fewer replicas, or another cut, for more updates."""
    sets = [K + "2"] if drawn.name in ONE_REPLICA else [R + "2"]
    sets.append(f"stop.updates={3 * UPDATES}")  # what fewer replicas count for the mini-batches so far may be twice as many
    elsewhere = out.parent / "elsewhere"
    done = run(program, ["run", "-q", "--resume", str(out), *[w for s in sets for w in ("--set", s)], "--out", str(elsewhere)])
    law(done.returncode == 0, f"on another topology it ended with {done.returncode}: {done.stderr[-400:]}")
    loss = summary_of(elsewhere)["test_loss"]
    before = summary_of(out)["test_loss"]
    law(loss is not None and loss == loss and loss < max(10, 3 * before), f"on another topology its loss is {loss}, after {before}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--count", type=int, help="of combinations, over all schemes in turn (default: one of each)")
    parser.add_argument("--first", type=int, default=0, help="seed")
    parser.add_argument("--seed", type=int, help="this one alone")
    parser.add_argument("--scheme", choices=list(SCHEMES), action="append", help="these alone")
    parser.add_argument("--keep", help="a folder for those of runs that broke a law")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    program, undisturbed = str(Path(given.program).resolve()), Undisturbed(given.program)
    names = given.scheme or list(SCHEMES)
    if given.seed is not None:
        todo = [(name, given.seed) for name in names]
    else:
        count = given.count or len(names)
        todo = [(names[i % len(names)], given.first + i // len(names)) for i in range(count)]

    def one(task):
        try:
            return play(program, *task, undisturbed, given.keep)
        except Broken as broken:
            print(broken, flush=True)
            return None

    results = []
    with ThreadPoolExecutor(given.jobs) as pool:
        for result in pool.map(one, todo):
            results.append(result)
            if len(results) % 100 == 0 and len(results) < len(todo):
                print(f"{len(results)} so far, {results.count(None)} broke a law", flush=True)
    made = [result for result in results if result]
    print(f"{len(todo)} combinations, {sum(rounds for rounds, _ in made)} rounds, {sum(replayed for _, replayed in made)} replayed, "
          f"{len(todo) - len(made)} broke a law")  # fmt: skip
    sys.exit(0 if len(made) == len(todo) else 1)


if __name__ == "__main__":
    main()
