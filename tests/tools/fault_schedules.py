#!/usr/bin/env python3
"""Random experiments under random faults, in virtual time: whatever befalls hosts, links and packets, a run ends soundly.

    fault_schedules.py --program P                              # seeds 0 to 59, as ctest does
    fault_schedules.py --program P --first 1000 --count 10000   # others; also --minutes, --failures FILE
    fault_schedules.py --program P --first 77 --count 1 --list  # what seed 77 asks
    fault_schedules.py --program P --broken-link                # that a link without its numbers is noticed

Experiments are drawn as random_experiments.py draws them, mostly with several replicas; each serves four seeds, whose faults
(clock.faults) are in the scale of the seconds that it takes undisturbed. Laws, of each:
  laws       the run breaks none of its Witness's laws (runtime/system/witness.hpp)
  end        it ends: well and where it was to end, or because of a host that is lost, in a sentence that names it; nothing stalls
  repeated   twice the same: weights, order, updates, staleness, faults
  late       where no host is lost and nothing is chosen by arrival it has the weights of the undisturbed run
  resumed    from a checkpoint it ends as in one piece
What breaks a law is shrunk: single faults are left out first, then settings of the experiment, as long as the same law is broken.
Exit status 1 if one was broken.

A schedule that could take for ever is left out and counted, by what the experiment and its faults ask for (`turns_of`), not by a
look at a watch: how long the undisturbed run is says how frequent its faults are, and where one replica can be a billion times as
fast as another, or nobody waits for a host that stands still, the run with them is not bounded by that.
"""

import argparse
import json
import math
import random
import re
import resource
import sys
import time
from pathlib import Path

import forked
from random_experiments import MEMORY_MAX, Asked, Draw, Judge, schema, verb_ends, write_data
from resume_matrix import EVERY, compared, resumed

FAULTS = "clock.faults."
EACH = 4  # seeds that have the same experiment
SENTENCES = [  # of runs that a host's death has ended
    r"\S+ is lost: host \d+ (has crashed|was silent for too long)(; it is of replica \d+, and an all-reduce needs all of them)?$",
    r"host 0 has crashed, and the Director with it: the run is lost$",
    r"the last worker is lost",
    r"the run ends with phase \d+ of \d+$",  # below the sentence that names the host
]


class FaultSchedule:
    """Single faults, which can be left out one by one: `crashes`, `freezes` and `cuts` as (at, host[, other]); `sets`, the rest."""

    def __init__(self, crashes=(), freezes=(), cuts=(), sets=()):
        self.crashes, self.freezes, self.cuts, self.sets = list(crashes), list(freezes), list(cuts), list(sets)

    def settings(self):
        found = list(self.sets)
        for kind, keys in (("crashes", ["at", "host"]), ("freezes", ["at", "host"]), ("cuts", ["at", "host", "other"])):
            each = getattr(self, kind)
            if each:
                found += [f"{FAULTS}{kind}.{key}=[{','.join(f'{fault[i]:g}' for fault in each)}]" for i, key in enumerate(keys)]
        return found

    def without(self, part, i):
        less = FaultSchedule(self.crashes, self.freezes, self.cuts, self.sets)
        del getattr(less, part)[i]
        return less


PARTS = ("crashes", "freezes", "cuts", "sets")
SEED_MAX = 2**31 - 1
TURNS_MAX = 3e6  # deliveries and faults of a run, as turns_of bounds them: some seconds
RARE = 1e-3  # draws of a duration that are less likely are not reckoned with


def numbers_of(asked, key):
    """Those that a setting of the experiment gives, [] where it is not set."""
    text = asked.setting(key) or ""
    return [float(number) for number in re.findall(r"[-+]?[0-9.]+(?:e[-+]?[0-9]+)?", text)]


def gamma_range(shape):
    """How many times as long as the shortest of durations with this shape the mean is, but for rare ones."""
    if shape >= 100:  # nearly normal
        return 1 + 10 / math.sqrt(shape)
    exponent = -(math.log(RARE) + math.lgamma(shape + 1)) / shape + math.log(shape) if shape > 0 else math.inf
    return max(1, math.exp(min(69, exponent)))


def pace_of(asked):
    """How many times as fast as the slowest replica the fastest one can be, and a piece of work as the mean."""
    slowness = [x for x in numbers_of(asked, "clock.workers.slowness") if x > 0]
    pace = max(slowness) / min(slowness) if slowness else 1
    for spread in numbers_of(asked, "clock.workers.spread"):
        pace *= gamma_range(1 / spread**2) if spread > 0 else 1
    for setting in asked.sets:
        key, _, value = setting.partition("=")
        number = numbers_of(asked, key)
        if key.startswith("clock.workers.straggler") and key.endswith(".factor"):
            pace *= max(1, *number) if number else 1
        elif key.startswith("clock.") and key.endswith(".gamma.shape"):
            pace *= gamma_range(number[0]) if number else 1
        elif key.startswith("clock.") and (key.endswith(".log_normal.sigma") or value == "log_normal"):
            pace *= math.exp(min(60, 4 * (number[0] if number else 0.2)))
    return pace


def turns_of(asked, faults, seconds, busy, updates, hosts):
    """A bound of what has to be played: deliveries of the experiment and faults of the schedule. `seconds`, `updates` and `busy`
    (the share of the time in which stages work) are those of the undisturbed run."""
    replicas, stages = int(asked.setting("replicas.count") or 1), int(asked.setting("pipeline.stages") or 1)
    each = 20 * stages * int(asked.setting("pipeline.micro_batches") or 1)  # deliveries of a mini-batch
    pace = pace_of(asked)
    # Those who wait for nobody, those whose server stands on a host beside them, and after a loss those whose pushes a server that is
    # done drops for the sake of other servers, go round as fast as they can while others wait.
    loses = faults.crashes or faults.cuts or any(re.search(r"(crashes|cuts)\.every=", one) for one in faults.sets)
    waits = not (Draw.never_waits(asked.sets) or any("placement.on" in one for one in faults.sets) or (loses and stages > 1))
    rounds = 1 if waits else 1 / max(busy, 1e-12)
    deliveries = max(1, updates) * replicas * each * pace * rounds
    length = max(seconds, 1e-12) * pace
    # A mini-batch that a crash ends is begun anew, until a host lives as long as the mini-batch and its messages take.
    crash, delay = (max([0.0] + [float(one.partition("=")[2]) for one in faults.sets if key in one]) for key in ("crashes.every=", "wire.delay="))
    if crash > 0:
        deliveries *= math.exp(min(60, (length / max(1, updates) + 6 * delay) / (crash * max(1, hosts - 1))))
    periods = [float(one.partition("=")[2]) for one in faults.sets if re.match(r".*\.(every|again)=", one)]
    return deliveries + sum(hosts * length / period for period in periods if period > 0)


def draw_faults(dice, hosts, placed, seconds):
    """For a run of `seconds` with machines on `hosts`; `placed`: clock.faults.hosts."""
    scale = min(seconds, 1e6) if seconds > 0 else 1

    def times(most):
        return [round(dice.uniform(0, 1.1) * scale, 9) for _ in range(dice.choice(range(most + 1)))]

    def host():
        return dice.randrange(hosts) if dice.random() < 0.1 else dice.randrange(min(1, hosts - 1), hosts)

    def other(a):
        return dice.choice([-1] + [b for b in range(hosts) if b != a]) if hosts > 1 else -1

    def some():
        return f"{dice.choice([0.001, 0.02, 0.1, 0.4]) * scale:g}"

    faults = FaultSchedule()
    if placed:
        faults.sets.append(f"{FAULTS}hosts={placed}")
    faults.sets.append(f"{FAULTS}detection={dice.choice([0.01, 0.1, 0.3, 2]) * scale:g}")
    faults.sets.append(f"{FAULTS}seed={dice.randrange(1, 1000)}")
    if dice.random() < 0.5:
        faults.crashes = [(at, host()) for at in times(3)]
    if dice.random() < 0.5:
        faults.freezes = [(at, dice.randrange(hosts)) for at in times(4)]
    if dice.random() < 0.5:
        faults.cuts = [(at, a, other(a)) for at in times(4) for a in [dice.randrange(hosts)]]
    faults.sets += [f"{FAULTS}freezes.seconds={some()}", f"{FAULTS}cuts.seconds={some()}"]
    for kind in ("crashes", "freezes", "cuts"):
        if dice.random() < 0.15:
            faults.sets.append(f"{FAULTS}{kind}.every={dice.choice([0.1, 0.5, 3]) * scale:g}")
    for share in ("loss", "duplicates"):
        if dice.random() < 0.5:
            faults.sets.append(f"{FAULTS}wire.{share}={dice.choice([0.01, 0.1, 0.5])}")
    if dice.random() < 0.5:
        faults.sets.append(f"{FAULTS}wire.delay={some()}")
    faults.sets.append(f"{FAULTS}wire.again={dice.choice([0.001, 0.02, 0.1]) * scale:g}")
    if dice.random() < 0.5:  # where replicas cannot come back the settings are refused, and tried without
        faults.sets.append(f"{FAULTS}crashes.back={dice.choice([0.001, 0.03, 0.1, 0.3]) * scale:g}")
    return faults


class ReplicasDraw(Draw):
    """Mostly with several replicas: one cannot be spared. Often with copies of servers."""

    def draw_shape(self):
        super().draw_shape()
        if self.count == 1 and self.chance(0.8):
            self.count = self.random.choice([2, 3, 4])
            self.sets = [f"replicas.count={self.count}" if s.startswith("replicas.count=") else s for s in self.sets]
        if self.count > 1 and self.chance(0.3) and not any(s.startswith("replicas.copies=") for s in self.sets):
            self.sets.append(f"replicas.copies={self.random.choice([2, 3])}")


class FaultJudge(Judge):
    def __init__(self, program, folder):
        super().__init__(program, folder)
        self.returned = 0  # replicas that have come back
        self.told = {}  # what becomes of experiments undisturbed, the last few
        self.drawn = (-1, None)  # the last experiment, by its own seed
        self.too_long = 0  # schedules that were left out

    def summary(self):
        """Of what was asked last."""
        path = Path(self.folder, f"{Path(self.program).parent.name}-{self.number}", "summary.json")
        return json.loads(path.read_text()) if path.is_file() else {}

    def undisturbed(self, asked):
        """What becomes of it, and its seconds; None where there is nothing to disturb. Its file is written."""
        Path(self.folder, "asked.textproto").write_text(asked.text())
        name = (asked.text(), *asked.sets)
        if name not in self.told:
            self.told = dict(list(self.told.items())[-EACH:])
            found = self.ask(asked, "sim")
            summary = self.summary()
            busy = [share for share in summary.get("busy", {}).values() if isinstance(share, (int, float))]
            self.told[name] = ((found, summary.get("seconds", 0), min(busy, default=1), summary.get("updates", 0))
                               if found["code"] == 0 else None)  # fmt: skip
        return self.told[name]

    def hurt(self, asked, faults, extra=()):
        both = Asked(asked.base, asked.layers, asked.sets + faults.settings() + list(extra), asked.phases)
        found = self.ask(both, "sim")
        found["faults"] = self.summary().get("faults", {})
        return found

    def broken_by(self, asked, faults):
        """The law that is broken and what was seen, or None."""
        told = self.undisturbed(asked)
        if not told:
            return None
        plain = told[0]
        first = self.hurt(asked, faults)
        if first["code"] == 2 and "crashes.back" in first["says"]:
            faults.sets = [one for one in faults.sets if "crashes.back" not in one]
            first = self.hurt(asked, faults)
        self.returned += len(self.summary().get("returned", {}))
        if first["code"] == 2:
            return None  # these settings have no such host
        self.ends[first["code"]] = self.ends.get(first["code"], 0) + 1
        kept = self.number
        if "law of runs with faults" in first["says"]:
            return "laws", first["says"]
        return (self.bad_end(asked, plain, first) or self.differs(asked, faults, first) or self.changed(asked, plain, first)
                or self.not_resumed_from(asked, faults, first, kept))  # fmt: skip

    @staticmethod
    def bad_end(asked, plain, found):
        died = found["faults"].get("crashes", 0) + found["faults"].get("given_up", 0)
        says = found["says"].removeprefix("troupe: ")
        if found["code"] == 5 and died and any(re.match(sentence, says) for sentence in SENTENCES):
            return None
        if found["code"] not in (0, 4):
            return "end", f"exit code {found['code']}: {says}"
        updates = asked.setting("stop.updates")
        others = ("stop.epochs", "stop.seconds", "stop.target_accuracy", "stop.allow_divergence")
        if found["code"] == 0 and updates not in (None, "0") and not any(asked.setting(key) for key in others):
            fewer = died and "replicas.exchange=hogwild" in asked.sets and found.get("updates", 0) < plain.get("updates", 0)
            if found.get("updates") != plain.get("updates") and not fewer:  # a dead replica's share is not made up for
                return "end", f"{found.get('updates')} updates, undisturbed {plain.get('updates')}"
        return None

    def differs(self, asked, faults, first):
        again = self.hurt(asked, faults)
        what = [key for key in first.keys() | again.keys() if first.get(key) != again.get(key)]
        return ("repeated", f"twice differs in {', '.join(sorted(what))}") if what else None

    @staticmethod
    def changed(asked, plain, found):
        died = found["faults"].get("crashes", 0) + found["faults"].get("given_up", 0)
        if found["code"] != 0 or died or not asked.promised() or found.get("weights") == plain.get("weights"):
            return None
        return "late", f"{found.get('weights')}, undisturbed {plain.get('weights')}"

    def not_resumed_from(self, asked, faults, first, kept):
        if asked.phases or kept % 3 or first["code"] not in (0, 5):
            return None
        with_them = self.hurt(asked, faults, EVERY)
        if compared("sim", with_them) != compared("sim", first):
            return "resumed", f"with checkpoints {with_them}, without {first}"
        original = Path(self.folder, f"{Path(self.program).parent.name}-{self.number}")
        steps = sorted(path.name for path in original.glob("checkpoints/step-*"))
        if not steps:
            return None
        step = steps[kept % len(steps)]
        again = resumed(self.program, "sim", original, Path(self.folder, f"again-{self.number}"), step)
        if compared("sim", again) != compared("sim", first):
            return "resumed", f"from {step} {again}, in one piece {first}"
        return None


def shrunk(judge, asked, faults, law):
    """As few faults, then as few layers and settings, as still break `law`."""
    smaller = True
    while smaller:
        smaller = False
        for part in PARTS:
            for i in reversed(range(len(getattr(faults, part)))):
                less = faults.without(part, i)
                found = judge.broken_by(asked, less)
                if found and found[0] == law:
                    faults, smaller = less, True
        for part in ("layers", "phases", "sets"):
            for i in reversed(range(len(getattr(asked, part)))):
                less = asked.without(part, i)
                found = judge.broken_by(less, faults)
                if found and found[0] == law:
                    asked, smaller = less, True
    return asked, faults


def places_of(asked):
    """clock.faults.hosts = 0 gives so many hosts; and the most that it may be set to."""
    sets = " ".join(asked.sets)
    if "hogwild" in sets or "sandblaster" in sets:
        return int(asked.setting("replicas.count") or 1) + 1, 0
    replicas, stages = int(asked.setting("replicas.count") or 1), int(asked.setting("pipeline.stages") or 1)
    return replicas + 1, replicas * stages


def legal(judge, drawn):
    """What was drawn, without what refusals name; None where it is refused all the same, or does not end well."""
    asked = Asked(drawn.base, drawn.layers, drawn.sets, drawn.phases)
    for _ in range(3):
        if judge.undisturbed(asked):
            return asked
        refused = verb_ends(judge.program, judge.folder, asked, ["config", "validate"])
        asked = asked.mended(refused["says"]) if refused["code"] == 2 else None
        if not asked:
            return None
    return None


def place_copies(dice, asked, copies):
    """A host for each copy of the servers, and a replica on some of them or none."""
    count = int(asked.setting("replicas.count") or 1)
    dealt = [f'"stage-{r}.*={dice.randrange(copies + 1)}"' for r in range(count)] if count > 1 and dice.random() < 0.6 else []
    names = ",".join(dealt or ['"stage-*=0"'])
    return f"placement.on=[{names}]"


def draw(judge, seed, tables):
    """An experiment and its faults, or None where it comes to nothing undisturbed."""
    if judge.drawn[0] != seed // EACH:
        judge.drawn = (seed // EACH, legal(judge, ReplicasDraw(seed // EACH, *tables)))
    asked = judge.drawn[1]
    if not asked:
        return None
    dice = random.Random(-seed - 1)
    hosts, most = places_of(asked)
    placed = dice.randrange(1, most + 1) if most and dice.random() < 0.3 else 0
    copies = int(asked.setting("replicas.copies") or 1)
    apart = copies > 1 and dice.random() < 0.8
    # A server whose updates are done answers at once. Where only updates take time, a replica on its host would go round
    # millions of times before the director, on another host, has ended the run.
    apart = apart and not asked.setting("clock.update.seconds")
    placed = copies + 1 if apart else placed
    _, seconds, busy, updates = judge.undisturbed(asked)
    faults = draw_faults(dice, placed or hosts, placed, seconds)
    faults.sets += [place_copies(dice, asked, copies)] if apart else []
    if turns_of(asked, faults, seconds, busy, updates, placed or hosts) > TURNS_MAX:
        judge.too_long += 1
        return None
    return asked, faults


def report(seed, asked, faults, found):
    return {"seed": seed, "law": found[0], "saw": found[1], "experiment": asked.text().strip(), "set": asked.sets,
            "faults": faults.settings()}  # fmt: skip


def campaign(options, tables):
    failures, begin, done, drawn = [], time.time(), 0, 0
    with forked.folder_of_runs() as folder:
        write_data(folder)
        judge = FaultJudge(str(Path(options.program).resolve()), folder)
        for seed in range(options.first, options.first + options.count):
            drawn += 1
            made = draw(judge, seed, tables)
            if not made:
                continue
            asked, faults = made
            if options.broken_link:
                broken = asked.base + " clock { faults { wire { numbered: false } } }"  # no key of a user's
                asked = Asked(broken, asked.layers, asked.sets, asked.phases)
                faults.sets += [FAULTS + "wire.loss=0.2", FAULTS + "wire.duplicates=0.2"]
            if options.list:
                print(seed, asked.text().strip(), *(f"--set '{s}'" for s in asked.sets + faults.settings()))
                continue
            done += 1
            found = judge.broken_by(asked, faults)
            if found:
                small = (asked, faults) if options.whole else shrunk(judge, asked, faults, found[0])
                failures.append(report(seed, *small, judge.broken_by(*small) or found))
                print(json.dumps(failures[-1]), flush=True)
                if options.failures:
                    with open(options.failures, "a") as file:
                        file.write(json.dumps(failures[-1]) + "\n")
            judge.forget()
            if options.minutes and time.time() - begin > 60 * options.minutes:
                break
            if done % 100 == 0:
                print(f"{done} schedules, {len(failures)} failures, {time.time() - begin:.0f} s", file=sys.stderr, flush=True)
        ends = ", ".join(f"{n} with {code}" for code, n in sorted(judge.ends.items()))
        print(f"{done} schedules of {drawn} seeds from {options.first} on, {len(failures)} break a law; runs end: {ends}; "
              f"{judge.returned} replicas came back; {judge.too_long} schedules that could take for ever were left out")  # fmt: skip
    return failures, done, drawn


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--minutes", type=float, default=0, help="stop after these; 0: never")
    parser.add_argument("--failures", help="a file that gets a line of JSON for each failure")
    parser.add_argument("--whole", action="store_true", help="do not shrink")
    parser.add_argument("--memory", type=int, default=MEMORY_MAX, help="bytes of address space; 0: no limit, as sanitizers need it")
    parser.add_argument("--list", action="store_true", help="print what would be asked")
    parser.add_argument("--broken-link", action="store_true", help="links without numbers: most runs must break a law")
    options = parser.parse_args()
    if options.first < 0 or options.count < 1 or options.first + options.count - 1 > SEED_MAX:
        parser.error(f"--first, --count: seeds are from 0 to {SEED_MAX}, and there is at least one; "
                     f"{options.first} to {options.first + options.count - 1} are asked for")  # fmt: skip
    if options.memory:
        resource.setrlimit(resource.RLIMIT_AS, (options.memory, options.memory))
    failures, done, drawn = campaign(options, schema())
    if options.broken_link:
        sys.exit(0 if len(failures) > done / 2 else 1)
    sys.exit(1 if failures or (drawn >= 60 and done < 0.3 * drawn) else 0)


if __name__ == "__main__":
    main()
