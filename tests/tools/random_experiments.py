#!/usr/bin/env python3
"""Random experiments, legal and nearly so, from the schema: whatever is asked of the program, it answers soundly.

    random_experiments.py --program P                              # seeds 0 to 199, as ctest does
    random_experiments.py --program P --first 1000 --count 50000   # others; also --minutes, --failures FILE
    random_experiments.py --program P --first 77 --count 1 --list  # what seed 77 asks

Keys, bounds and alternatives are read from messages/experiment.proto, so a new key is drawn from the day it is there. Laws, of each:
  sound      `config validate`, `plan`, `sim` and `run` end with 0, 2, 3 or 4, in time and memory, and say why where it is not 0
  foreseen   what `validate` refuses everybody refuses with the same code; what it accepts ends well, or diverges
  repeated   `sim` twice: equal weights, order, updates and staleness
  clocks     `run` has the weights of `sim` where apps/docs/determinism.md promises it
  end        a run that is to end with stop.updates ends there
What breaks a law is shrunk: layers and settings are left out as long as the same law is broken. Exit status 1 if one was broken.
"""

import argparse
import json
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from digest_matrix import outcome, words

PROTO = Path(__file__).resolve().parents[2] / "messages" / "experiment.proto"
SECONDS_MAX = 60  # of one command, which takes a fraction of one
MEMORY_MAX = 8 << 30  # bytes of address space
ENDS = {0, 2, 3, 4}  # well, a mistake of the user's, data, divergence

# -- the schema ----------------------------------------------------------------------------------


class Field:
    def __init__(self, label, kind, name, options):
        self.repeated, self.kind, self.name = label == "repeated", kind, name
        self.default = re.search(r"default = ([^,\]]+)", options)
        self.default = self.default and self.default.group(1)
        number = r"(-?[\d.e+-]+)"
        bounds = {key: re.search(rf"\({key}\) = {number}", options) for key in ("at_least", "above", "at_most")}
        self.bounds = {key: float(found.group(1)) for key, found in bounds.items() if found}


def schema(text):
    """Messages by name (fields; whether they are choices) and enums by name (values)."""
    messages, enums, stack = {}, {}, []
    for line in text.splitlines():
        line = line.strip()
        if found := re.match(r"(message|enum|oneof|extend) (\S+) \{(\})?", line):
            what, name = found.group(1), found.group(2)
            if what == "message":
                messages[name] = {"fields": [], "choice": False}
            elif what == "enum":
                enums[name] = []
            elif what == "oneof" and stack and name == "kind":
                messages[stack[-1][1]]["choice"] = True
            if not found.group(3):
                stack.append((what, name))
        elif line.startswith("}"):
            stack.pop()
        elif stack and stack[-1][0] == "enum":
            if value := re.match(r"(\w+) = \d+", line):
                enums[stack[-1][1]].append(value.group(1))
        elif stack and stack[-1][0] in ("message", "oneof"):
            owner = next(name for what, name in reversed(stack) if what == "message")
            if field := re.match(r"(optional |repeated )?([\w.]+) (\w+) = \d+\s*(.*)", line):
                label, kind, name, options = field.groups()
                messages[owner]["fields"].append(Field((label or "").strip(), kind.split(".")[-1], name, options))
    return messages, enums


# -- what is asked -------------------------------------------------------------------------------

TEACHER = "data {{ teacher {{ inputs: {0} outputs: {1} hidden: 3 train: {2} test: 7 values: {3} }} batch_size: {4} }}"
LAYERS = [
    "dense { outputs: 4 }", "dense { outputs: 3 activation: gelu }", "activation {}", "activation { kind: tanh }", "layer_norm {}",
    "batch_norm {}", "dropout { rate: 0.5 }", "fork { name: 'a' }", "join { name: 'a' }", "join { name: 'a' activation: relu }",
    "fork { name: 'b' }", "join { name: 'b' }", "group_norm { groups: 1 }", "lstm { width: 4 }", "attention { heads: 1 }",
    "convolution { outputs: 2 stride: 9 kernel: 3 }", "convolution { outputs: 1 kernel: 1 padding: 0 stride: 7 }",
    "max_pool { kernel: 5 }", "average_pool { kernel: 0 }",
]  # fmt: skip
LEFT_OUT = {
    "placement.devices", "placement.precision",  # of this machine
    "clock.modelled", "clock.workers.hold_back",  # real seconds
    "pipeline.cut", "pipeline.stage_of",  # drawn below, so that some fit
    "pipeline.partition",  # measures this machine
    "name", "start_from", "phases", "model", "data", "stop",
}  # fmt: skip


class Draw:
    """One experiment: `base`, a file without its layers; `layers`; `sets`, what --set is given."""

    def __init__(self, seed, messages, enums):
        self.random = random.Random(seed)
        self.messages, self.enums = messages, enums
        self.layers, self.sets = [], []
        self.base = self.draw_task()
        self.draw_shape()
        for key in ("optimizer", "pipeline", "replicas", "clock", "record", "placement"):
            if self.random.random() < 0.6:
                self.draw_message("Experiment", "", only=key)
        self.draw_growth()
        self.draw_stop()

    def chance(self, share):
        return self.random.random() < share

    def draw_task(self):
        pick = self.random.choice
        batch = pick([1, 2, 3, 4, 6, 8])
        kind = pick(["mlp", "layers", "images", "text", "tokens", "quadratic", "sparse", "whole"])
        if kind == "quadratic":
            return f"model {{ quadratic {{ layers: {pick([1, 3, 6])} dimensions: 3 condition: 5 }} }} data {{ none {{}} batch_size: {batch} }}"
        if kind == "sparse":
            self.sets.append("replicas.exchange=hogwild")
            return (f"model {{ logistic {{}} }} data {{ sparse {{ rows: 60 features: 20 nonzeros: 3 test: 9 }} batch_size: {batch} }} "
                    "optimizer { rule: sgd }")  # fmt: skip
        if kind == "whole":
            self.sets.append("replicas.exchange=sandblaster")
            return f"model {{ mlp {{ hidden: [4, 3] }} }} {TEACHER.format(3, 2, 24, 'false', 24)}"
        data = TEACHER.format(pick([1, 3]), pick([1, 2, 5]), pick([16, 48]), pick(["true", "false"]), batch)
        model = "model { mlp { hidden: [5, 4, 3, 4] } }"
        if kind in ("images", "layers", "tokens"):
            self.layers = [pick(LAYERS) for _ in range(self.random.randrange(6))] + ["dense {}"]
            model = ""
        if kind == "images":
            data = f"data {{ glyphs {{ limit: 24 test_limit: 6 }} batch_size: {batch} }}"
            model = "model { lenet5 {} }" if self.chance(0.1) else model
            self.layers = [] if model else self.layers
        if kind in ("text", "tokens"):
            data = f"data {{ text {{ path: 'words.txt' context: {pick([2, 5])} stride: 40 }} batch_size: {batch} }}"
            if kind == "tokens":
                self.layers.insert(0, "embedding { width: 4 }")
            else:
                model = "model { %s }" % pick(["gpt { layers: 2 width: 4 heads: 2 }", "gpt { layers: 1 width: 4 heads: 1 tied: false }",
                                               "lstm { layers: 2 width: 3 residual: true }"])  # fmt: skip
        return model + " " + data

    def draw_shape(self):
        """Stages and replicas, which most of the rest depends on."""
        pick = self.random.choice
        self.stages, self.count = pick([1, 1, 2, 3, 4]), pick([1, 1, 1, 2, 3, 4])
        self.sets += [f"pipeline.stages={self.stages}", f"replicas.count={self.count}"]
        if self.chance(0.5):
            schedules = [field.name for field in self.messages["Schedule"]["fields"] if field.name != "custom"]
            self.sets.append("pipeline.schedule=" + pick(schedules))
        if self.stages > 1 and self.chance(0.15):
            chunks = [str(self.random.randrange(self.stages)) for _ in range(self.stages + 1)]
            self.sets.append(f"pipeline.stage_of=[{','.join(chunks)}]")
        if self.chance(0.3):
            self.sets.append(f"pipeline.micro_batches={pick([1, 2, 3, 4])}")

    def draw_growth(self):
        if self.chance(0.1):
            self.sets += ["data.growth.at=[0.5]", f"data.growth.factor={self.random.choice([1.5, 2, 3])}"]

    def draw_stop(self):
        pick = self.random.choice
        self.updates = pick([1, 2, 5, 9, 20])
        if "data { none" not in self.base and self.chance(0.25):  # whose epoch is a million samples
            self.sets.append(f"stop.epochs={pick([0.3, 1, 2])}")
        if not self.sets[-1].startswith("stop") or self.chance(0.3):
            self.sets.append(f"stop.updates={self.updates}")
            if self.chance(0.15):
                self.sets.append(f"stop.seconds={pick([1e-6, 0.01, 0.1])}")
        if self.chance(0.1):
            self.sets += [f"stop.target_accuracy={pick([0.01, 0.3, 1])}", f"record.evaluate_every={pick([1, 3])}"]
        if self.chance(0.1):
            self.sets.append("stop.allow_divergence=true")

    def draw_message(self, message, path, only=None, depth=0):
        fields = [f for f in self.messages[message]["fields"] if not only or f.name == only]
        for field in fields:
            here = f"{path}.{field.name}".lstrip(".")
            if here in LEFT_OUT or field.kind == "CustomScheme":
                continue
            if field.kind in self.messages:
                self.draw_inner(field.kind, here, depth)
            elif here not in ("pipeline.stages", "replicas.count", "pipeline.micro_batches") and self.chance(0.12):
                self.sets.append(f"{here}={self.value(field)}")

    def draw_inner(self, message, here, depth):
        inner = self.messages[message]
        if not inner["choice"]:
            self.draw_message(message, here, depth=depth + 1)
            return
        kinds = [f for f in inner["fields"] if not f.repeated and f.kind in self.messages and f.kind != "CustomScheme"]
        for field in inner["fields"]:
            if field not in kinds and field.kind not in self.messages and self.chance(0.1):  # beside the choice
                self.sets.append(f"{here}={self.value(field)}" if field.name == "kind" else f"{here}.{field.name}={self.value(field)}")
        if kinds and self.chance(0.25) and not any(s.startswith(here + "=") for s in self.sets):
            chosen = self.random.choice(kinds)
            self.sets.append(f"{here}={chosen.name}")
            self.draw_message(chosen.kind, f"{here}.{chosen.name}", depth=depth + 1)

    def value(self, field):
        if field.repeated:
            length = self.random.choice([1, 1, self.count, self.stages, 2])
            return "[" + ",".join(self.one(field) for _ in range(length)) + "]"
        return self.one(field)

    def one(self, field):
        pick = self.random.choice
        if self.chance(0.01):
            return pick(["-1", "0", "1e300", "nan", "", "none", "9999999999999999999", "[]", "0.1.2"])
        if field.kind == "bool":
            return pick(["true", "false"])
        if field.kind == "string":
            return "text"
        if field.kind in self.enums:
            return pick(self.enums[field.kind])
        if field.kind == "Kind":  # of an enum in a message of its own
            return pick(self.enums["Kind"])
        least = field.bounds.get("at_least", field.bounds.get("above", 0))
        most = field.bounds.get("at_most", 1e9)
        if field.kind in ("double", "float"):
            drawn = pick([least, 1e-6, 0.01, 0.3, 0.9, 1, 2.5, min(most, 10)])
            return f"{drawn if self.chance(0.02) else min(max(drawn, least + (1e-9 if 'above' in field.bounds else 0)), most):g}"
        drawn = pick([least, least + 1, 1, 2, 3, 5, 8])
        return str(int(drawn if self.chance(0.02) else min(max(drawn, least), most)))


# -- the laws ------------------------------------------------------------------------------------


class Asked:
    """What digest_matrix.outcome runs: `task` is the name of a file that `write` has made."""

    def __init__(self, base, layers, sets):
        self.base, self.layers, self.sets, self.task = base, layers, sets, "asked"

    def text(self):
        layers = " ".join(f"layer {{ {layer} }}" for layer in self.layers)
        return self.base + (f" model {{ layers {{ {layers} }} }}" if self.layers else "") + "\n"

    def setting(self, key):
        """The last value that is set, or None."""
        values = [s.split("=", 1)[1] for s in self.sets if s.split("=", 1)[0] == key]
        return values[-1] if values else None

    def promised(self):
        """Whether `run` has the weights of `sim` (apps/docs/determinism.md)."""
        if any(s.startswith(("stop.seconds", "stop.target_accuracy")) for s in self.sets):
            return False
        if any(s.startswith("replicas.exchange") and "hogwild" in s for s in self.sets):
            return False
        return self.setting("replicas.count") in (None, "1")


def verb_ends(program, folder, asked, verb):
    """Exit code and last words of a verb that runs nothing."""
    command = [program] + verb + ["asked.textproto"] + [part for s in asked.sets for part in ("--set", s)]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS_MAX)
    except subprocess.TimeoutExpired:
        return {"code": -1, "says": f"no end after {SECONDS_MAX} s"}
    return {"code": done.returncode, "says": (done.stderr.strip().splitlines() or [""])[-1]}


class Judge:
    def __init__(self, program, folder):
        self.program, self.folder, self.number = program, folder, 0
        self.ends = {}  # of sim: how often

    def ask(self, asked, clock):
        self.number += 1
        found = outcome(self.program, self.folder, asked, clock, self.number, SECONDS_MAX)
        found.setdefault("says", "")
        return found

    def broken(self, asked, count=False):
        """The law that is broken and what was seen, or None."""
        Path(self.folder, "asked.textproto").write_text(asked.text())
        valid = verb_ends(self.program, self.folder, asked, ["config", "validate"])
        plan = verb_ends(self.program, self.folder, asked, ["plan"])
        first = self.ask(asked, "sim")
        if count:
            self.ends[first["code"]] = self.ends.get(first["code"], 0) + 1
        seen = {"validate": valid, "plan": plan, "sim": first}
        if first["code"] in (0, 4):
            seen["sim again"] = self.ask(asked, "sim")
        if valid["code"] == 0:
            seen["run"] = self.ask(asked, "run")
        return self.unsound(seen) or self.unforeseen(seen) or self.unequal(asked, seen)

    @staticmethod
    def unsound(seen):
        for who, found in seen.items():
            if found["code"] not in ENDS:
                return "sound", f"{who}: exit code {found['code']}: {found['says']}"
            if found["code"] in (2, 3) and not found["says"].startswith("troupe: "):
                return "sound", f"{who}: exit code {found['code']} without a sentence: {found['says']}"
        return None

    @staticmethod
    def unforeseen(seen):
        valid = seen["validate"]["code"]
        if seen["plan"]["code"] != valid:
            return "foreseen", f"validate {valid}, plan {seen['plan']['code']}: {seen['plan']['says']}"
        for who in ("sim", "run"):
            found = seen.get(who, seen["sim"])
            of_clock = re.match(r"troupe: (stop\.seconds|record\.order|clock\.)", found["says"])  # which `validate` does not know
            if (valid != 0 and found["code"] != valid) or (valid == 0 and found["code"] in (2, 3) and not of_clock):
                return "foreseen", f"validate {valid}, {who} {found['code']}: {found['says']}"
        return None

    @staticmethod
    def unequal(asked, seen):
        first, again, run = seen["sim"], seen.get("sim again"), seen.get("run")
        if again and first != again:
            what = [key for key in first.keys() | again.keys() if first.get(key) != again.get(key)]
            return "repeated", f"sim twice differs in {', '.join(sorted(what))}"
        if again and run and asked.promised() and run["code"] != 2:
            if (first["code"], first.get("weights")) != (run["code"], run.get("weights")):
                return "clocks", f"sim {first['code']} {first.get('weights')}, run {run['code']} {run.get('weights')} {run['says']}"
        updates, others = asked.setting("stop.updates"), ("stop.epochs", "stop.seconds", "stop.target_accuracy", "stop.allow_divergence")
        if updates not in (None, "0") and first["code"] == 0:
            made, whole = first.get("updates"), "replicas.exchange=sandblaster" in asked.sets  # which ends where it can go no lower
            if made > int(updates) or (made < int(updates) and not whole and not any(asked.setting(key) for key in others)):
                return "end", f"{made} updates, where stop.updates is {updates}"
        return None


def shrunk(judge, asked, law):
    """As few layers and settings as still break `law`."""
    smaller = True
    while smaller:
        smaller = False
        for part in ("layers", "sets"):
            for i in reversed(range(len(getattr(asked, part)))):
                less = Asked(asked.base, list(asked.layers), list(asked.sets))
                del getattr(less, part)[i]
                found = judge.broken(less)
                if found and found[0] == law:
                    asked, smaller = less, True
    return asked, judge.broken(asked)


def report(seed, asked, law, seen):
    return {"seed": seed, "law": law, "saw": seen, "experiment": asked.text().strip(), "set": asked.sets}


def campaign(options, messages, enums):
    failures, begin, done = [], time.time(), 0
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "words.txt").write_text(words())
        judge = Judge(str(Path(options.program).resolve()), folder)
        for seed in range(options.first, options.first + options.count):
            draw = Draw(seed, messages, enums)
            asked = Asked(draw.base, draw.layers, draw.sets)
            if options.list:
                print(seed, asked.text().strip(), *(f"--set '{s}'" for s in asked.sets))
                continue
            found = judge.broken(asked, count=True)
            done += 1
            if found:
                failures.append(report(seed, *((asked,) + found if options.whole else of_shrunk(judge, asked, found))))
                print(json.dumps(failures[-1]), flush=True)
                if options.failures:
                    with open(options.failures, "a") as file:
                        file.write(json.dumps(failures[-1]) + "\n")
            if options.minutes and time.time() - begin > 60 * options.minutes:
                break
            if done % 100 == 0:
                print(f"{done} experiments, {len(failures)} failures, {time.time() - begin:.0f} s", file=sys.stderr, flush=True)
        if not options.list:
            ends = ", ".join(f"{n} with {code}" for code, n in sorted(judge.ends.items()))
            print(f"{done} experiments from seed {options.first} on, {len(failures)} break a law; sim ends: {ends}")
            if done >= 100 and judge.ends.get(0, 0) < done / 8:
                failures.append(f"only {judge.ends.get(0, 0)} of {done} were legal: what is drawn no longer fits the schema")
                print(failures[-1])
    return failures


def of_shrunk(judge, asked, found):
    small, seen = shrunk(judge, asked, found[0])
    return (small,) + (seen or found)  # one that comes and goes is told as it was


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=0, help="stop after these; 0: never")
    parser.add_argument("--failures", help="a file that gets a line of JSON for each failure")
    parser.add_argument("--whole", action="store_true", help="do not shrink")
    parser.add_argument("--memory", type=int, default=MEMORY_MAX, help="bytes of address space; 0: no limit, as sanitizers need it")
    parser.add_argument("--list", action="store_true", help="print what would be asked")
    options = parser.parse_args()
    if options.memory:
        resource.setrlimit(resource.RLIMIT_AS, (options.memory, options.memory))
    sys.exit(1 if campaign(options, *schema(PROTO.read_text())) else 0)


if __name__ == "__main__":
    main()
