#!/usr/bin/env python3
"""Runs in several processes whose processes are killed or frozen at random: each goes on by itself, or with --resume, and loses nothing.

    kills.py --program P                          # one run of each role, as ctest does
    kills.py --program P --runs 200 --first 1000  # 200 of each, drawn from these seeds; also --role NAME
    kills.py --program P --transport ucx          # tensors take UCX

By role, the process that is disturbed, one to three times a run:
  stage     one of the three behind the lead in a pipeline of four with stashes (--restarts)
  server    that of all servers, of synchronous replicas (--restarts)
  reducer   one of those that reduce by ring or tree (--restarts)
  director  the lead of the pipeline, whose run is then gone on with by --resume
  worker    one that plays a replica of asynchronous servers; another takes its place while the run goes on (--back)
  copy      one or two of the three that have a copy of each server each, of synchronous replicas; the run goes on with the third
  module    the same, of each stage of a pipeline with stashes, of decoupled modules, or of two replicas with servers
Four of five are killed with SIGKILL. The others are stopped (SIGSTOP) and go on (SIGCONT) after up to 5 s, which is longer than a
silence may be: they may be given up or not.

Laws: each run ends with 0 (or with 5 and a sentence that says so, where a process was lost when the run was over), in time, with all its
updates, and leaves no process behind. Weights are, bit for bit, those of a run that was not disturbed; with workers, whose servers choose
by arrival, no mini-batch of a replica is applied twice, and the loss at the end is within the noise of runs that were not disturbed (more
than 20 runs: the means differ by at most four of their standard errors). Some of the runs are recorded, and `replay` repeats these. Exit
status 1 if a law was broken.
"""

import argparse
import json
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from soak import began, family, send

SECONDS_MAX = 180  # in which a run has told nothing new; of one that is not watched
FROZEN = 0.2  # of those that are disturbed
FROZEN_MAX = 5  # seconds
TASK = ["data.teacher.train=1000", "data.teacher.test=500", "stop.epochs=0", "clock.modelled=false", "record.evaluate=true",
        "record.checkpoint.every=20"]  # fmt: skip
PIPELINE = ["pipeline.stages=4", "pipeline.schedule=async_one_f_one_b", "pipeline.weights=stash", "stop.updates=1500"]
SYNCHRONOUS = ["pipeline.stages=1", "replicas.count=3", "replicas.exchange=synchronous", "stop.updates=400"]
COPIED = ["pipeline.stages=2", "pipeline.schedule=async_one_f_one_b", "stop.updates=300", 'placement.copies=["*=3"]']
REPLICAS = ["pipeline.schedule=one_f_one_b", "replicas.count=2", "replicas.exchange=synchronous"]
NOBODY_COMES = ("copy", "module")  # to take the place of a copy: one of them is left
ROLES = {
    # role: [settings of which one is drawn], processes, those that may be disturbed
    "stage": ([PIPELINE], 4, [1, 2, 3]),
    "server": ([[*SYNCHRONOUS, 'placement.on=["server-*=2","stage-*=1"]']], 3, [2]),
    "reducer": ([[*SYNCHRONOUS, f"replicas.exchange.synchronous.reduction={how}"] for how in ("ring", "tree")], 3, [1, 2]),
    "director": ([PIPELINE], 4, [0]),
    "copy": ([[*SYNCHRONOUS, "replicas.copies=3", 'placement.on=["stage-*=0"]']], 4, [1, 2, 3]),
    "module": ([[*COPIED, *how] for how in (["pipeline.weights=stash"], ["decoupled=local_loss"], REPLICAS)], 4, [1, 2, 3]),
    "worker": ([["pipeline.stages=1", "replicas.count=4", "stop.updates=2500", "record.order=true"]], 4, [1, 2, 3]),
}


# A run that goes on without a process may be over before it has noticed the loss. Then only the last records are missing.
LOST, LOST_AT_THE_END = 5, "when the run was over; what it had recorded last is missing"


class Broken(Exception):
    pass


def law(holds, sentence):
    if not holds:
        raise Broken(sentence)


def run(program, words):
    try:
        return subprocess.run([program, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS_MAX)
    except subprocess.TimeoutExpired:
        raise Broken(f"{words[0]} has not ended after {SECONDS_MAX} s") from None


def asked(settings):
    return [word for setting in TASK + settings for word in ("--set", setting)]


class Undisturbed:
    """What runs without deaths end with, by their settings."""

    def __init__(self, program):
        self.program, self.ends = program, {}

    def __call__(self, settings, count=1):
        ends = self.ends.setdefault(tuple(settings), [])
        while len(ends) < count:
            with tempfile.TemporaryDirectory() as folder:
                said = run(self.program, ["run", "teacher-mlp", "--quiet", *asked(settings), "--out", folder + "/run"])
                law(said.returncode == 0, f"the undisturbed run ended with {said.returncode}: {said.stderr[-300:]}")
                ends.append(summary_of(Path(folder) / "run"))
        return ends


def summary_of(folder):
    return json.loads((folder / "summary.json").read_text())


def nodes_of(lead):
    """The processes that a lead has started, by their number."""
    return sorted(pid for pid in family(lead) if pid != lead)


def deaths_of(drawn, role):
    """[(seconds after the run, or what goes on with it, began to train; process; how long it is frozen, or None)]"""
    _, _, who = ROLES[role]
    victims = (drawn.sample(who, drawn.choice([1, 2])) if role in NOBODY_COMES
               else [drawn.choice(who) for _ in range(drawn.choice([1, 1, 2, 3]))])  # fmt: skip
    return [(drawn.uniform(0, 1.2), victim, drawn.uniform(0.1, FROZEN_MAX) if drawn.random() < FROZEN else None) for victim in victims]


class Watched:
    """A program that trains into `out` (`process`), and all that it has started (`seen`: when each began, by its number). It may be as
    slow as the machine is, and goes on as long as its metrics do: a run has so many lines of them and no more."""

    def __init__(self, seconds_max):
        self.seconds_max, self.until, self.seen = seconds_max, time.monotonic() + seconds_max, {}
        self.told, self.hurried = 0, False

    def look(self):
        if not self.hurried and (told := self.bytes_told()) != self.told:
            self.told, self.until = told, time.monotonic() + self.seconds_max
        law(time.monotonic() < self.until,
            "it has not ended in a hurry" if self.hurried else f"it stands still, and has told nothing for {self.seconds_max} s")  # fmt: skip
        if self.process.returncode is not None:
            return False  # its number may be another's by now
        for pid in family(self.process.pid):
            self.seen.setdefault(pid, began(pid))
        return self.process.poll() is None

    def bytes_told(self):
        try:
            return (self.out / "metrics.jsonl").stat().st_size
        except OSError:
            return 0

    def wait_until(self, holds):
        """False where the run has ended before."""
        while not holds():
            if not self.look():
                return False
            time.sleep(0.01)
        return True


class Disturbed(Watched):
    """One run and all that goes on with it."""

    transport = "streams"

    def __init__(self, program, role, settings, out):
        self.program, self.role, self.out = program, role, out
        _, self.processes, _ = ROLES[role]
        self.players = ["--processes", str(self.processes), "--transport", self.transport]
        super().__init__(SECONDS_MAX)
        self.nodes = []
        self.said = open(out.parent / "said", "w+")  # noqa: SIM115 (as long as this)
        more = ["--restarts", "20"] if role in ("stage", "server", "reducer") else ["--back", "20"] if role == "worker" else []
        self.start(["run", "teacher-mlp", *asked(settings), "--out", str(out), *self.players, *more])

    def start(self, words):
        self.process = subprocess.Popen(
            [self.program, *words, "--quiet"], stdin=subprocess.DEVNULL, stdout=self.said, stderr=self.said)  # fmt: skip

    def trains(self):
        """A run whose lead dies needs a checkpoint; others begin from their beginning where there is none."""
        metrics = self.out / "metrics.jsonl"
        return (any(self.out.glob("checkpoints/step-*")) if self.role == "director"
                else metrics.exists() and b'"kind":"train"' in metrics.read_bytes())  # fmt: skip

    def disturb(self, after, who, frozen):
        """False where it has ended before."""
        end = time.monotonic() + after
        some = 1 if self.role in NOBODY_COMES and self.nodes else self.processes - 1  # there were all, and those that die stay dead
        whole = lambda: time.monotonic() >= end and len(nodes_of(self.process.pid)) >= some  # noqa: E731
        if not self.wait_until(whole):
            return False
        if some > 1:
            self.nodes = nodes_of(self.process.pid)
        victim = ([self.process.pid] + self.nodes)[who]
        then = began(victim)
        if not send(victim, then, signal.SIGKILL if frozen is None else signal.SIGSTOP):
            return False
        if frozen is not None:
            end = time.monotonic() + frozen
            self.wait_until(lambda: time.monotonic() >= end)
            send(victim, then, signal.SIGCONT)
        return True

    def go_on(self):
        """After the lead was killed."""
        if self.process.wait(SECONDS_MAX) == -signal.SIGKILL:
            self.start(["run", "--resume", str(self.out), *self.players])

    def end(self):
        while self.look():
            time.sleep(0.01)
        return self.process.returncode

    def left(self):
        """Those that are there two seconds after the end, which end now."""
        end = time.monotonic() + 2
        alive = []
        while time.monotonic() < end:
            alive = [pid for pid, then in self.seen.items() if then and began(pid) == then]
            if not alive:
                break
            time.sleep(0.02)
        for pid in alive:
            send(pid, self.seen[pid], signal.SIGKILL)
        return alive

    def words(self):
        self.said.seek(0)
        return self.said.read()[-1200:]


def applied_twice(out):
    """[(server, replica, mini-batch)] that a server got after a later one, or again, and the number of replicas that it heard. Who comes
    back asks once for weights with the number of the last mini-batch that was applied, and sends no gradient then."""
    last, returns, asked_anew, wrong = {}, {}, {}, []
    for order in sorted(out.glob("order-*.log")):
        for line in order.read_text().splitlines():
            if found := re.match(r"\S+ director Returned (\d+) ", line):
                returns[found.group(1)] = returns.get(found.group(1), 0) + 1
            if found := re.match(r"\S+ (server-\S+) Upload (\d+) \d+ (\d+) \d+ shard", line):
                where, batch = found.group(1, 2), int(found.group(3))
                if batch < last.get(where, -1):
                    wrong.append((*where, batch))
                elif batch == last.get(where, -1):
                    asked_anew.setdefault(where, []).append(batch)
                last[where] = batch
    for where, batches in asked_anew.items():
        if len(batches) > returns.get(where[1], 0) or len(set(batches)) < len(batches):
            wrong += [(*where, batch) for batch in batches]
    return wrong, len(last)


def play(program, role, seed, undisturbed):
    """(kills and freezes that were made, the loss at the end)"""
    drawn = random.Random(f"{role} {seed}")
    settings = drawn.choice(ROLES[role][0])
    # What a copy had told another may be in the record where its own last deliveries are not.
    recorded = role not in ("director", *NOBODY_COMES) and drawn.random() < 1 / 3
    settings = settings + (["record.order=true"] if recorded and role != "worker" else [])
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        disturbed = Disturbed(program, role, settings, out)
        made = []
        try:
            for death in deaths_of(drawn, role):
                if not disturbed.wait_until(disturbed.trains) or not disturbed.disturb(*death):
                    break
                made.append(death)
                if role == "director" and death[2] is None:
                    disturbed.go_on()
            code = disturbed.end()
            left = disturbed.left()
            law(code == 0 or (code == LOST and LOST_AT_THE_END in disturbed.words()), f"it ended with {code}")
            law(not left, f"{len(left)} processes were left")
            ended = summary_of(out)
            law(ended["updates"] == int(next(s for s in settings if s.startswith("stop.updates=")).split("=")[1]),
                f"it made {ended['updates']} updates")  # fmt: skip
            if role == "worker":
                twice, senders = applied_twice(out)
                law(not twice and senders == 4, f"applied twice or not in order: {twice}; of {senders} replicas")
            else:
                plain = [s for s in settings if s != "record.order=true"]
                law(ended["weights_sha256"] == undisturbed(plain)[0]["weights_sha256"], "the weights are other ones")
            if recorded and code == 0:  # else the record lacks the last deliveries
                again = run(program, ["replay", str(out)])
                law(again.returncode == 0, f"the replay ended with {again.returncode}: {again.stderr[-300:]}")
        except Broken as broken:
            disturbed.process.kill()
            disturbed.left()
            raise Broken(f"{role}, seed {seed}, {made}: {broken}\n{disturbed.words()}") from None
        return made, ended["test_loss"]


def noise(role, settings, losses, undisturbed):
    """In words, how the losses differ from those of runs that were not disturbed."""
    plain = [end["test_loss"] for end in undisturbed(settings, max(5, min(len(losses), 20)))]
    error = sum(statistics.variance(x) / len(x) for x in (plain, losses)) ** 0.5 if len(losses) > 1 else float("inf")
    apart = statistics.mean(losses) - statistics.mean(plain)
    law(len(losses) <= 20 or abs(apart) <= 4 * error, f"{role}: the loss is {apart:.4f} +- {error:.4f} off")
    return f"; test loss {statistics.mean(losses):.4f}, undisturbed {statistics.mean(plain):.4f}, {apart:+.4f} +- {error:.4f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--runs", type=int, default=1, help="of each role")
    parser.add_argument("--first", type=int, default=0, help="seed")
    parser.add_argument("--role", choices=list(ROLES), action="append", help="these alone")
    parser.add_argument("--transport", default="streams", help="as of troupe run")
    given = parser.parse_args()
    Disturbed.transport = given.transport
    undisturbed, broken = Undisturbed(given.program), 0
    for role in given.role or list(ROLES):
        killed, frozen, losses = 0, 0, []
        for seed in range(given.first, given.first + given.runs):
            try:
                made, loss = play(given.program, role, seed, undisturbed)
            except Broken as sentence:
                broken += 1
                print(sentence, flush=True)
                continue
            killed += sum(pause is None for _, _, pause in made)
            frozen += sum(pause is not None for _, _, pause in made)
            losses.append(loss)
        try:
            more = noise(role, ROLES[role][0][0], losses, undisturbed) if role == "worker" and losses else ""
        except Broken as sentence:
            broken, more = broken + 1, f"; {sentence}"
        print(f"{role}: {len(losses)} of {given.runs} runs as they should be, {killed} kills, {frozen} freezes{more}", flush=True)
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
