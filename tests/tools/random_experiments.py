#!/usr/bin/env python3
"""Random experiments, legal and nearly so, from the schema: whatever is asked of the program, it answers soundly.

    random_experiments.py --program P                              # seeds 0 to 119, as ctest does
    random_experiments.py --program P --first 1000 --count 50000   # others; also --minutes, --failures FILE
    random_experiments.py --program P --first 77 --count 1 --list  # what seed 77 asks

Keys, bounds and alternatives are read from the experiment's .proto files, so a new key is drawn from the day it is there. Laws, of each:
  sound      `config validate`, `plan`, `sim` and `run` end with 0, 2, 3 or 4, in time and memory, and say why where it is not 0
  foreseen   what `validate` refuses everybody refuses with the same code; what it accepts ends well, or diverges
  repeated   `sim` twice: equal weights, order, updates and staleness
  clocks     `run` has the weights of `sim` where apps/docs/determinism.md promises it
  end        a run that is to end with stop.updates ends there
  observed   with a trace, or without the one that was drawn, `sim` makes the same
  resumed    from a checkpoint it ends as in one piece
  replayed   what `run` has recorded, `replay` repeats
What is refused is asked once more without the setting that the sentence names. What breaks a law is shrunk: layers, phases and
settings are left out as long as the same law is broken. Exit status 1 if one was broken.
"""

import argparse
import copy
import json
import random
import re
import resource
import shutil
import struct
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import forked
from digest_matrix import outcome, words
from replay_matrix import replayed
from resume_matrix import EVERY, compared, resumed

MESSAGES = Path(__file__).resolve().parents[2] / "messages"
PROTOS = [MESSAGES / "experiment.proto", *sorted(MESSAGES.glob("experiment/*.proto"))]
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


def schema():
    """Messages by name (fields; whether they are choices) and enums by path (values), as which fields name them."""
    messages, enums, stack = {}, {}, []
    for line in "".join(proto.read_text() for proto in PROTOS).splitlines():
        line = line.strip()
        if found := re.match(r"(message|enum|oneof|extend) (\S+) \{(\})?", line):
            what, name = found.group(1), found.group(2)
            if what == "message":
                messages[name] = {"fields": [], "choice": False}
            elif what == "enum":
                name = ".".join([inner for _, inner in stack] + [name])
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
                messages[owner]["fields"].append(Field((label or "").strip(), kind, name, options))
    for owner, message in messages.items():
        for field in message["fields"]:
            field.kind = f"{owner}.{field.kind}" if f"{owner}.{field.kind}" in enums else field.kind
    return messages, enums


# -- what is asked -------------------------------------------------------------------------------

TEACHER = "data {{ teacher {{ inputs: {0} outputs: {1} hidden: 3 train: {2} test: 7 values: {3} }} batch_size: {4} }}"
LAYERS = {
    "vectors": ["dense { outputs: 4 }", "dense { outputs: 3 activation: gelu }", "activation {}", "activation { kind: tanh }",
                "layer_norm {}", "dropout { rate: 0.5 }"],
    "images": ["convolution { outputs: 2 stride: 9 kernel: 3 }", "convolution { outputs: 1 kernel: 1 padding: 0 stride: 7 }",
               "convolution { outputs: 3 }", "max_pool { kernel: 5 }", "average_pool { kernel: 0 }", "batch_norm {}",
               "group_norm { groups: 1 }", "activation {}", "upsample {}"],
    "tokens": ["lstm { width: 4 }", "attention { heads: 1 }", "dense { outputs: 4 }", "layer_norm {}", "activation {}", "rms_norm {}",
               "attention { heads: 2 kv_heads: 1 rotary: 100 causal: false }", "swiglu { hidden: 3 }", "mixture { experts: 3 hidden: 2 }",
               "mixture { experts: 4 chosen: 1 hidden: 2 }"],
}  # fmt: skip
SKIPS = [["fork { name: 'a' }", "join { name: 'a' }"], ["fork { name: 'b' }", "activation {}", "join { name: 'b' activation: relu }"],
         ["fork { name: 'c' }", "activation {}", "concatenate { name: 'c' }"],
         ["fork { name: 'd' }", "swap { name: 'd' }", "activation {}", "concatenate { name: 'd' }"],
         ["fork { name: 'a' }"], ["join { name: 'b' }"]]  # fmt: skip
LEFT_OUT = {
    "placement.devices",  # of this machine
    "record.prometheus",  # ports of this machine, where many run at once
    "placement.on",  # processes_matrix.py draws it
    "placement.copies",  # names of actors: drawn below
    "resumed",  # --resume writes it
    "clock.modelled",  # real seconds
    "clock.faults",  # fault_schedules.py draws them
    "pipeline.cut", "pipeline.stage_of", "pipeline.partition", "pipeline.width", "pipeline.copies",  # drawn below, so that some fit and nothing is measured
    "name", "start_from", "phases", "model", "data", "stop",  # drawn below
}  # fmt: skip
# What goes with these exchanges alone.
TRAVELS = ["parameter_server", "synchronous", "averaging", "bmuf", "easgd", "diloco", "halos", "wsp", "gossip", "sgp", "ad_psgd", "strom"]
OF_EXCHANGE = {
    "replicas.rule": ["parameter_server"], "replicas.admit": ["parameter_server"], "replicas.scale": ["parameter_server"],
    "replicas.step": ["parameter_server"], "replicas.horizon": ["parameter_server"],
    "replicas.codec": ["parameter_server", "synchronous", "averaging", "bmuf", "diloco", "halos", "wsp", "strom", "gossip"],
    "replicas.copies": ["parameter_server", "synchronous", "averaging", "bmuf", "easgd", "diloco", "wsp"],
    "clock.exchange": TRAVELS, "clock.bandwidth": TRAVELS, # Refused but with halos, where they make a run too long (for_ever).
    "clock.between_servers": [], "clock.bandwidth_between_servers": [],
    "record.each_replica": ["gossip", "sgp", "ad_psgd", "strom"],
}  # fmt: skip
TIMES = ("clock.between_servers", "clock.bandwidth", "clock.exchange", "clock.workers")  # of links and of workers


class Draw:
    """One experiment: `base`, a file without its layers and phases; `layers`; `sets`, what --set is given; `phases`, what each sets.

    What goes with what is drawn together mostly, not always: what is refused has to be refused by everybody.
    """

    def __init__(self, seed, messages, enums):
        self.random = random.Random(seed)
        self.messages, self.enums = messages, enums
        self.layers, self.sets, self.phases = [], [], []
        self.stages = self.count = 1
        self.base = self.draw_task()
        self.draw_shape()
        for key in ("optimizer", "pipeline", "replicas", "clock", "record", "placement"):
            if self.chance(0.6) and not (key in self.alone and self.mostly()):
                self.draw_message("Experiment", "", only=key)
        self.draw_growth()
        self.draw_stop()
        self.draw_phases()

    def chance(self, share):
        return self.random.random() < share

    def mostly(self):
        return self.chance(0.95)

    def draw_task(self):
        """Also `batch`, `depth`: layers at least; `alone`: sections that the task leaves nothing to say in."""
        pick = self.random.choice
        self.batch, self.depth, self.alone, self.classes = pick([1, 2, 3, 4, 6, 8]), 5, (), True
        kind = pick(["mlp", "small", "layers", "images", "colours", "text", "tokens", "own", "numbers", "quadratic", "sparse",
                     "whole"])
        return getattr(self, "draw_" + kind)(pick) + f" batch_size: {self.batch} }}"

    def draw_mlp(self, pick):
        self.draw_message("Mlp", "model.mlp")
        return "model { mlp { hidden: [5, 4, 3, 4] } } " + self.draw_teacher(pick)

    def draw_small(self, pick):
        name, self.depth = pick([("linear {}", 1), ("snn { hidden: [4, 3] }", 3), ("mlp { hidden: [3] } label_smoothing: 0.1", 2)])
        return f"model {{ {name} }} " + self.draw_teacher(pick, values=False)

    def draw_layers(self, pick):
        self.layers = self.some_layers("vectors", 6) + ["dense {}"]
        return self.draw_teacher(pick)

    def draw_teacher(self, pick, values=None):
        values = self.chance(0.5) if values is None else values
        self.classes = not values
        asked = {"inputs": pick([1, 3]), "outputs": pick([1, 2, 5]), "hidden": 3, "train": pick([16, 48]), "test": 7,
                 "values": str(values).lower()}  # fmt: skip
        return "data { teacher { " + " ".join(f"{key}: {value}" for key, value in asked.items()) + " }"

    def draw_images(self, pick):
        data = pick(["glyphs { limit: 24 test_limit: 6 }", "mnist { path: '.' }", "fashion_mnist { path: '.' pool: 2 limit: 12 }"])
        if "pool" not in data and self.chance(0.1):
            return f"model {{ lenet5 {{}} }} data {{ {data}"
        self.layers = self.some_layers("images", 4) + self.some_layers("vectors", 3) + ["dense {}"]
        return f"data {{ {data}"

    def draw_colours(self, pick):
        self.layers = self.some_layers("images", 5) + ["dense {}"]
        return f"data {{ cifar10 {{ path: '.' augment: {pick(['true', 'false'])} }}"

    def draw_text(self, pick):
        name, message = pick([("gpt", "Gpt"), ("llama", "Llama"), ("lstm", "Lstm")])
        model = {"gpt": pick(["layers: 2 width: 4 heads: 2", "layers: 1 width: 4 heads: 1 tied: false"]),
                 "llama": pick(["layers: 2 width: 4 heads: 2 kv_heads: 1 hidden: 5", "layers: 1 width: 4 heads: 1 hidden: 6 tied: true",
                                "layers: 1 width: 4 heads: 2 hidden: 3 experts: 3", "layers: 1 width: 4 heads: 2 experts: 2 chosen: 1 capacity: 1"]),
                 "lstm": "layers: 2 width: 3 residual: true"}[name]  # fmt: skip
        if self.chance(0.3):
            self.draw_message(message, "model." + name)
        return f"model {{ {name} {{ {model} }} }} {self.draw_words(pick)}"

    def draw_tokens(self, pick):
        self.layers = ["embedding { width: 4 }"] + self.some_layers("tokens", 5) + ["dense {}"]
        return self.draw_words(pick)

    def draw_words(self, pick):
        vocabulary = pick(["", "", "vocabulary { bytes {} }"])
        return f"data {{ text {{ path: 'words.txt' context: {pick([2, 5])} stride: {pick([40, 23])} {vocabulary} }}"

    def draw_own(self, pick):
        """A table or arrays of one's own, whose options fit them mostly."""
        values = self.chance(0.5)
        self.classes = not values
        asked = {"values": str(values).lower(), "normalize": pick(["true", "false"]), "test_share": pick([0.1, 0.3])}
        if self.chance(0.5):
            name = "csv"
            asked.update(path="'table.csv'", target=pick(["'number'", "4"]) if values or not self.mostly() else "'word'",
                         categories=pick(["['colour']", "'2'"]) if self.mostly() else "[]",
                         leave_out="'word'" if values else pick(["[]", "'number'"]))  # fmt: skip
        else:
            name = "arrays"
            asked.update(path=pick(["'.'", "'all.npz'"]), x="'x'", y=("'numbers'" if values else "'labels'") if self.mostly() else "'x'")
        self.layers = self.some_layers("vectors", 4) + ["dense {}"]
        return f"data {{ {name} {{ " + " ".join(f"{key}: {value}" for key, value in asked.items()) + " }"

    def draw_numbers(self, pick):
        """Tokens of one's own."""
        self.layers = ["embedding { width: 4 }"] + self.some_layers("tokens", 4) + ["dense {}"]
        asked = {"path": "'tokens.bin'", "context": pick([2, 5]), "stride": pick([0, 23]), "test_limit": pick([0, 3]),
                 "vocabulary": 40 if self.mostly() else 30}  # fmt: skip
        if self.chance(0.5):
            asked["test_path"] = "'llm_c.bin'"
        return "data { tokens { " + " ".join(f"{key}: {value}" for key, value in asked.items()) + " }"

    def draw_quadratic(self, pick):
        self.depth, self.classes = pick([1, 3, 6]), False
        return f"model {{ quadratic {{ layers: {self.depth} dimensions: 3 condition: {pick([5, 0.1])} }} }} data {{ none {{}}"

    def draw_sparse(self, pick):
        self.sets.append("replicas.exchange=hogwild")
        self.depth, self.alone, self.classes = 1, ("pipeline", "optimizer"), False
        return ("optimizer { rule: sgd } model { logistic {} } "
                f"data {{ sparse {{ rows: {pick([60, 20])} features: {pick([20, 5])} nonzeros: {pick([3, 1])} test: 9 }}")  # fmt: skip

    def draw_whole(self, pick):
        self.sets.append("replicas.exchange=sandblaster")
        self.draw_message("Sandblaster", "replicas.exchange.sandblaster")
        self.sets.append(f"replicas.exchange.sandblaster.portions={pick([1, 3, 8, 24])}")
        self.depth, self.alone, self.batch = 1, ("pipeline", "optimizer", "placement"), 24
        return "model { mlp { hidden: [4, 3] } } data { teacher { inputs: 3 outputs: 2 hidden: 3 train: 24 test: 7 }"

    def some_layers(self, kind, below):
        pick = self.random.choice
        layers = [pick(LAYERS[kind if self.mostly() else pick(list(LAYERS))]) for _ in range(self.random.randrange(below))]
        if self.chance(0.3):
            at = self.random.randrange(len(layers) + 1)
            layers[at:at] = pick(SKIPS[:4]) if self.mostly() else pick(SKIPS)
        return layers

    def draw_shape(self):
        """Stages and replicas, which most of the rest depends on."""
        pick = self.random.choice
        depth = len(self.layers) or self.depth
        self.stages, self.count = pick([1, 1, 2, 3, 4]), pick([1, 1, 1, 2, 3, 4])
        self.stages = min(self.stages, depth) if self.mostly() else self.stages
        self.sets += [f"pipeline.stages={self.stages}", f"replicas.count={self.count}"]
        schedule = ""
        if self.chance(0.5) and "pipeline" not in self.alone:
            schedule = pick([field.name for field in self.messages["Schedule"]["fields"] if field.name not in ("custom", "file")])
            self.sets.append("pipeline.schedule=" + schedule)
        if self.chance(0.3) or schedule in ("interleaved", "dual_pipe"):
            fits = {"interleaved": lambda m: m % self.stages == 0,  # it works in groups of a micro-batch for each stage
                    "dual_pipe": lambda m: m % 2 == 0 and m >= 2 * self.stages}.get(schedule, lambda m: m < 5)  # fmt: skip
            divisors = [m for m in (1, 2, 3, 4, 6, 8) if self.batch % m == 0 and fits(m)]
            self.sets.append(f"pipeline.micro_batches={pick(divisors if divisors and self.mostly() else [1, 2, 3, 4])}")
        if 1 < self.stages <= depth and schedule not in ("interleaved", "zb_v", "dual_pipe_v", "dual_pipe"):
            self.draw_cut(depth)
        if self.chance(0.08) and "pipeline" not in self.alone:
            self.sets.append(f"pipeline.width={pick([2, 2, 3])}")
        elif self.stages > 2 and self.count == 1 and self.chance(0.1) and not any(s.startswith("pipeline.s") for s in self.sets[2:]):
            self.sets += [f"pipeline.copies=[2{',1' * (self.stages - 2)}]", "pipeline.schedule=async_one_f_one_b", "pipeline.weights=stash"]
        if self.chance(0.05) and "placement" not in self.alone:
            copied = pick(["stage-*=2", "stage-0=3", "server-*=2"])
            self.sets.append(f'placement.copies=["{copied}"]')

    def draw_cut(self, depth):
        chunks = list(range(self.stages))
        if self.chance(0.2):
            chunks += [self.random.randrange(self.stages) for _ in range(min(self.random.randrange(3), depth - self.stages))]
            self.random.shuffle(chunks)
            self.sets.append(f"pipeline.stage_of=[{','.join(map(str, chunks))}]")
        if self.chance(0.2) and depth > 1:
            cut = sorted(self.random.sample(range(1, depth), len(chunks) - 1))
            self.sets.append(f"pipeline.cut=[{','.join(map(str, cut))}]")
            if self.chance(0.3):  # which has nothing left to measure
                self.sets.append(f"pipeline.partition={self.random.choice(self.enums['Pipeline.Partition'])}")

    def draw_growth(self):
        if self.chance(0.1) and (self.count == 1 or not self.mostly()) and not self.endless():
            self.sets += ["data.growth.at=[0.5]", f"data.growth.factor={self.random.choice([1.5, 2, 3])}", "stop.epochs=2"]

    def endless(self):
        return "data { none" in self.base  # whose epoch is a million samples

    def draw_stop(self):
        pick = self.random.choice
        self.updates = pick([1, 2, 5, 9, 20])
        if self.chance(0.25) and not self.endless():
            self.sets.append(f"stop.epochs={pick([0.3, 1, 2])}")
        if not any(s.startswith("stop.epochs") for s in self.sets) or self.chance(0.3):
            self.sets.append(f"stop.updates={self.updates}")
            if self.chance(0.15):
                self.sets.append(f"stop.seconds={pick([1e-6, 0.01, 0.1])}")
        if self.chance(0.1) and (self.classes or not self.mostly()):
            self.sets += [f"stop.target_accuracy={pick([0.01, 0.3, 1])}", f"record.evaluate_every={pick([1, 3])}", "record.evaluate=true"]
        if self.chance(0.1):
            self.sets.append("stop.allow_divergence=true")

    def draw_phases(self):
        if self.chance(0.1):
            whole = self.sets
            for _ in range(self.random.choice([1, 2])):
                self.sets = []
                self.draw_message("Experiment", "", only=self.random.choice(["optimizer", "pipeline", "replicas", "record"]))
                if not (self.never_waits(self.sets[:2]) and any(s.startswith(TIMES) for s in whole)):
                    self.phases.append(self.sets[:2])
            self.sets = whole

    def draw_message(self, message, path, only=None, depth=0):
        fields = [f for f in self.messages[message]["fields"] if not only or f.name == only]
        for field in fields:
            here = f"{path}.{field.name}".lstrip(".")
            if here in LEFT_OUT or field.kind == "CustomScheme" or (self.out_of_place(here) and self.mostly()) or self.for_ever(here):
                continue
            if field.kind in self.messages:
                self.draw_inner(field.kind, here, depth)
            elif not any(s.startswith(here + "=") for s in self.sets) and self.chance(0.2):
                self.sets.append(f"{here}={self.value(field, here)}")

    def for_ever(self, here):
        """Where nobody waits for a link, the run's updates are counted behind it. Mini-batches here take nanoseconds: with a link that
        takes time, or workers of very different speed, millions of them would be made before the first update."""
        return self.never_waits(self.sets) and here.startswith(TIMES)

    @staticmethod
    def never_waits(sets):
        return any(re.search("replicas.exchange.*(halos|mode[.=]decoupled)", s) for s in sets)

    def out_of_place(self, here):
        """What is drawn beside it leaves it nothing to say."""
        exchange = next((s.split("=")[1] for s in self.sets if s.startswith("replicas.exchange=")), "parameter_server")
        alone = (here in ("replicas.split", "replicas.shards", "replicas.copies", "replicas.codec", "clock.workers", "record.each_replica")
                 and self.count == 1)  # fmt: skip
        return alone or exchange not in OF_EXCHANGE.get(here, [exchange]) or self.needs_another(here)

    def needs_another(self, here):
        """It is read only beside another key, or but for another one."""
        among = lambda pattern: any(re.fullmatch(pattern, s) for s in self.sets)  # noqa: E731
        tied = re.search("gpt|llama", getattr(self, "base", "")) and "tied" not in self.base and not among(r"model\.(gpt|llama)\.tied=false")
        moving = among(r"replicas\.exchange\.gossip\.graph=(one_peer|rotating|groups)")
        return {
            "replicas.codec.feedback": not among(r"replicas\.codec\.up=(?!none).*"),
            "replicas.codec.down": among(r"replicas\.exchange=(gossip|strom)"),
            "replicas.codec": moving,
            "record.angle_every": tied or among(r"pipeline\.schedule=dual_pipe"),
            "pipeline.error_feedback": self.count > 1 or self.stages == 1 or not among(r"pipeline\.schedule=async_.*"),
            "replicas.exchange.gossip.group": not among(r"replicas\.exchange\.gossip\.graph=groups"),
            "replicas.exchange.diloco.mode.asynchronous.activation": among(r".*\.outer=(nesterov|sgd)"),
        }.get(here, False)  # fmt: skip

    def draw_inner(self, message, here, depth):
        inner = self.messages[message]
        if not inner["choice"]:
            self.draw_message(message, here, depth=depth + 1)
            return
        kinds = [f for f in inner["fields"] if not f.repeated and f.kind in self.messages and f.kind != "CustomScheme"]
        for field in inner["fields"]:
            if field not in kinds and field.kind not in self.messages and self.chance(0.1):  # beside the choice
                key = here if field.name == "kind" else f"{here}.{field.name}"
                self.sets.append(f"{key}={self.value(field, key)}")
        if kinds and self.chance(0.4) and not any(s.startswith(here + "=") for s in self.sets):
            chosen = self.random.choice(kinds)
            self.sets.append(f"{here}={chosen.name}")
            self.draw_message(chosen.kind, f"{here}.{chosen.name}", depth=depth + 1)

    def value(self, field, here):
        if field.repeated:
            each = self.count if "workers" in here or "exchange" in here else self.stages
            length = self.random.choice([1, 1, each]) if self.mostly() else 2
            return "[" + ",".join(self.one(field) for _ in range(length)) + "]"
        return self.one(field)

    def one(self, field):
        pick = self.random.choice
        if self.chance(0.005):
            return pick(["-1", "0", "1e300", "nan", "", "none", "9999999999999999999", "[]", "0.1.2"])
        if field.name == "precision" and self.mostly():
            return pick(["fp32", "bf16"])  # tf32 is for GPUs
        if field.kind == "bool":
            return pick(["true", "false"])
        if field.kind == "string":
            return "text"
        if field.kind in self.enums:
            values = self.enums[field.kind]
            return pick([v for v in values if v != "custom"] if self.mostly() else values)
        least = field.bounds.get("at_least", field.bounds.get("above", 0))
        most = field.bounds.get("at_most", 1e9)
        if field.kind in ("double", "float"):
            drawn = pick([least, 1e-6, 0.01, 0.3, 0.9, 1, 2.5, min(most, 10)])
            return f"{drawn if self.chance(0.01) else min(max(drawn, least + (1e-9 if 'above' in field.bounds else 0)), most):g}"
        drawn = pick([least, least + 1, 1, 2, 3, 5, 8])
        return str(int(drawn if self.chance(0.01) else min(max(drawn, least), most)))


# -- the laws ------------------------------------------------------------------------------------


class Asked:
    """What digest_matrix.outcome runs: `task` is the name of its file."""

    def __init__(self, base, layers, sets, phases):
        self.base, self.layers, self.sets, self.phases, self.task = base, list(layers), list(sets), list(phases), "asked"

    def text(self):
        layers = " ".join(f"layer {{ {layer} }}" for layer in self.layers)
        phases = [" ".join(f'set: "{s}"' for s in sets) for sets in self.phases]
        return (self.base + (f" model {{ layers {{ {layers} }} }}" if self.layers else "") +
                "".join(f' phases {{ name: "{i}" {sets} }}' for i, sets in enumerate(phases)) + "\n")  # fmt: skip

    def without(self, part, i):
        less = Asked(self.base, self.layers, self.sets, self.phases)
        del getattr(less, part)[i]
        return less

    def mended(self, says):
        """Without what the sentence of a refusal names; None where that is nothing that was drawn."""
        named = says.removeprefix("troupe: ").split(": ")[0].split("[")[0]
        keys = [s.split("=", 1)[0] for s in self.sets]
        for fits in (str.startswith, lambda key, name: name.startswith(key)):
            if found := [i for i, key in enumerate(keys) if fits(key, named)]:
                return self.without("sets", found[-1])
        return self.without("phases", -1) if named == "phases" and self.phases else None

    def setting(self, key):
        """The last value that is set, or None."""
        values = [s.split("=", 1)[1] for s in self.sets if s.split("=", 1)[0] == key]
        return values[-1] if values else None

    def promised(self):
        """Whether `run` has the weights of `sim` (apps/docs/determinism.md)."""
        if any(s.startswith(("stop.seconds", "stop.target_accuracy")) for s in self.sets):
            return False
        sets = self.sets + [s for phase in self.phases for s in phase]
        if any(s.startswith(("decoupled.synthetic", "decoupled.greedy.buffer")) or s == "decoupled=synthetic" for s in sets):
            return False
        if any(s.startswith("replicas.exchange") and re.search("hogwild|overlaps|halos|mode[.=]decoupled", s) for s in sets):
            return False
        if any(s.startswith("replicas.rule") and "essp" in s for s in sets):
            return False
        return all(s == "replicas.count=1" for s in sets if s.startswith("replicas.count"))


def verb_ends(program, folder, asked, verb):
    """Exit code and last words of a verb that runs nothing."""
    command = [program] + verb + ["asked.textproto"] + [part for s in asked.sets for part in ("--set", s)]
    try:
        done = forked.run(command, cwd=folder, timeout=SECONDS_MAX)
    except subprocess.TimeoutExpired:
        return {"code": -1, "says": f"no end after {SECONDS_MAX} s"}
    return {"code": done.returncode, "says": (done.stderr.strip().splitlines() or [""])[-1]}


def write_data(folder):
    """A text, and a few images as MNIST and CIFAR-10 have them."""
    Path(folder, "words.txt").write_text(words()[:4000])
    for part, count in (("train", 24), ("t10k", 6)):
        head = b"".join(n.to_bytes(4, "big") for n in (0x803, count, 28, 28))
        Path(folder, f"{part}-images-idx3-ubyte").write_bytes(head + bytes(i * 37 % 256 for i in range(count * 28 * 28)))
        head = b"".join(n.to_bytes(4, "big") for n in (0x801, count))
        Path(folder, f"{part}-labels-idx1-ubyte").write_bytes(head + bytes(i % 10 for i in range(count)))
    for name in [f"data_batch_{i}.bin" for i in (1, 2, 3, 4, 5)] + ["test_batch.bin"]:
        pixels = bytes(i * 41 % 256 for i in range(3 * 32 * 32))
        Path(folder, name).write_bytes(b"".join(bytes([label]) + pixels[label:] + pixels[:label] for label in (1, 2, 5, 9)))


def npy(kind, shape, elements):
    text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + elements


def write_own_data(folder):
    """A table of 40 rows, arrays of as many samples, and tokens below 40."""
    rows = [f"{i % 7 / 4},{('red', 'blue', 'green')[i * i % 3]},{('yes', 'no')[i % 3 % 2]},{i % 5}" for i in range(40)]
    Path(folder, "table.csv").write_text("\n".join(["length,colour,word,number", *rows]) + "\n")
    arrays = {"x": npy("<f4", (40, 3), struct.pack("<120f", *(i * 29 % 17 - 8 for i in range(120)))),
              "labels": npy("|u1", (40,), bytes(i % 3 for i in range(40))),
              "numbers": npy("<f8", (40, 2), struct.pack("<80d", *(i * 31 % 13 / 4 for i in range(80))))}  # fmt: skip
    with zipfile.ZipFile(Path(folder, "all.npz"), "w", zipfile.ZIP_DEFLATED) as together:
        for name, content in arrays.items():
            Path(folder, name + ".npy").write_bytes(content)
            together.writestr(name + ".npy", content)
    tokens = struct.pack("<600H", *(i * i % 37 for i in range(600)))
    Path(folder, "tokens.bin").write_bytes(tokens)
    Path(folder, "llm_c.bin").write_bytes(struct.pack("<256i", 20240520, 1, 600, *([0] * 253)) + tokens)


class Judge:
    def __init__(self, program, folder):
        self.program, self.folder, self.number = program, folder, 0
        self.ends = {}  # of sim: how often
        self.refusal = ""  # of the last that was asked; "": it was legal

    def forget(self):
        """The folders of runs go; the data stays."""
        for path in Path(self.folder).iterdir():
            if path.is_dir():
                shutil.rmtree(path)

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
        self.refusal = valid["says"] if valid["code"] != 0 else ""
        first = self.ask(asked, "sim")
        if count:
            self.ends[first["code"]] = self.ends.get(first["code"], 0) + 1
        seen = {"validate": valid, "plan": plan, "sim": first}
        if first["code"] in (0, 4):
            seen["sim again"] = self.ask(asked, "sim")
        if valid["code"] == 0:
            seen["run"] = self.ask(asked, "run")
        broken = self.unsound(seen) or self.unforeseen(seen) or self.unequal(asked, seen)
        return broken or self.not_replayed(seen.get("run")) or self.changed_by_trace(asked, first) or self.not_resumed(asked, first)

    def not_replayed(self, run):
        """Whether the run that was asked for last is replayed to what it was."""
        directory = Path(self.folder, f"{Path(self.program).parent.name}-{self.number}")
        if not run or run["code"] not in (0, 4) or not list(directory.glob("**/order-0.log")):
            return None
        done = replayed(self.program, directory, self.folder)
        if done.returncode == 0 or "has not recorded its order" in done.stderr:  # one of its phases
            return None
        return "replayed", f"exit code {done.returncode}: {done.stderr.strip()}"

    def changed_by_trace(self, asked, first):
        """Of each sixth that ends well: whether a trace has changed it."""
        if first["code"] != 0 or self.number % 6:
            return None
        other = copy.copy(asked)
        other.sets = [s for s in asked.sets if not s.startswith("record.trace=")]
        if "record.trace=true" not in asked.sets:
            other.sets = [*other.sets, "record.trace=true"]
        found = self.ask(other, "sim")
        if compared("sim", found) != compared("sim", first):
            return "observed", f"with {other.sets[-1:]} {found}, else {first}"
        return None

    def not_resumed(self, asked, first):
        """Of each third that ends well: whether it ends so with checkpoints, and from one of them."""
        if first["code"] != 0 or asked.phases or self.number % 3:
            return None
        kept = copy.copy(asked)
        kept.sets = asked.sets + EVERY
        with_them = self.ask(kept, "sim")
        if compared("sim", with_them) != compared("sim", first):
            return "resumed", f"with checkpoints {with_them}, without {first}"
        original = Path(self.folder, f"{Path(self.program).parent.name}-{self.number}")
        steps = sorted(path.name for path in original.glob("checkpoints/step-*"))
        if not steps:  # too few updates
            return None
        step = steps[self.number % len(steps)]
        again = resumed(self.program, "sim", original, Path(self.folder, f"again-{self.number}"), step)
        if compared("sim", again) != compared("sim", first):
            return "resumed", f"from {step} {again}, in one piece {first}"
        return None

    @staticmethod
    def unsound(seen):
        for who, found in seen.items():
            if found["code"] not in ENDS:
                return "sound", f"{who}: exit code {found['code']}: {found['says']}"
            if found["code"] in (2, 3) and not found["says"].startswith("troupe: "):
                return "sound", f"{who}: exit code {found['code']} without a sentence: {found['says']}"
        return None

    @staticmethod
    def of_clock(found):
        """It is refused on this clock; `validate` refuses what goes on neither."""
        return re.match(r"troupe: (phases\[\d\]: )?(stop\.seconds|record\.order|clock\.)", found["says"])

    @staticmethod
    def unforeseen(seen):
        valid = seen["validate"]["code"]
        if seen["plan"]["code"] != valid and not Judge.of_clock(seen["validate"]):  # `plan` asks for no clock
            return "foreseen", f"validate {valid}, plan {seen['plan']['code']}: {seen['plan']['says']}"
        for who in ("sim", "run"):
            found = seen.get(who, seen["sim"])
            if Judge.of_clock(found):
                continue  # of this verb's clock, which is said before the data are read
            if (valid != 0 and found["code"] != valid) or (valid == 0 and found["code"] in (2, 3)):
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
        if updates not in (None, "0") and first["code"] == 0 and not asked.phases:  # each of which ends there
            made, whole = first.get("updates"), "replicas.exchange=sandblaster" in asked.sets  # which ends where it can go no lower
            if made > int(updates) or (made < int(updates) and not whole and not any(asked.setting(key) for key in others)):
                return "end", f"{made} updates, where stop.updates is {updates}"
        return None


def shrunk(judge, asked, law):
    """As few layers and settings as still break `law`."""
    smaller = True
    while smaller:
        smaller = False
        for part in ("layers", "phases", "sets"):
            for i in reversed(range(len(getattr(asked, part)))):
                less = asked.without(part, i)
                found = judge.broken(less)
                if found and found[0] == law:
                    asked, smaller = less, True
    return asked, judge.broken(asked)


def report(seed, asked, law, seen):
    return {"seed": seed, "law": law, "saw": seen, "experiment": asked.text().strip(), "set": asked.sets}


def campaign(options, messages, enums):
    failures, begin, done, legal, mendable = [], time.time(), 0, 0, 0
    with forked.folder_of_runs() as folder:
        write_data(folder)
        write_own_data(folder)
        judge = Judge(str(Path(options.program).resolve()), folder)
        for seed in range(options.first, options.first + options.count):
            draw = Draw(seed, messages, enums)
            asked = Asked(draw.base, draw.layers, draw.sets, draw.phases)
            if options.list:
                print(seed, asked.text().strip(), *(f"--set '{s}'" for s in asked.sets))
                continue
            found = judge.broken(asked, count=True)
            legal += judge.refusal == ""
            done += 1
            mended = asked.mended(judge.refusal) if judge.refusal and not found else None
            if mended:  # once, so that most seeds come to train something
                asked, found = mended, judge.broken(mended, count=True)
                mendable += judge.refusal == ""
            if found:
                failures.append(report(seed, *((asked,) + found if options.whole else of_shrunk(judge, asked, found))))
                print(json.dumps(failures[-1]), flush=True)
                if options.failures:
                    with open(options.failures, "a") as file:
                        file.write(json.dumps(failures[-1]) + "\n")
            judge.forget()
            if options.minutes and time.time() - begin > 60 * options.minutes:
                break
            if done % 100 == 0:
                print(f"{done} experiments, {len(failures)} failures, {time.time() - begin:.0f} s", file=sys.stderr, flush=True)
        if not options.list:
            ends = ", ".join(f"{n} with {code}" for code, n in sorted(judge.ends.items()))
            print(f"{done} experiments from seed {options.first} on, {len(failures)} break a law; "
                  f"{legal} were legal, {mendable} without what a refusal named; sim ends: {ends}")  # fmt: skip
            if done >= 100 and legal < 0.4 * done:
                failures.append(f"only {legal} of {done} were legal: what is drawn no longer fits the schema")
                print(failures[-1])
    return failures


def of_shrunk(judge, asked, found):
    small, seen = shrunk(judge, asked, found[0])
    return (small,) + (seen or found)  # one that comes and goes is told as it was


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=120)
    parser.add_argument("--minutes", type=float, default=0, help="stop after these; 0: never")
    parser.add_argument("--failures", help="a file that gets a line of JSON for each failure")
    parser.add_argument("--whole", action="store_true", help="do not shrink")
    parser.add_argument("--memory", type=int, default=MEMORY_MAX, help="bytes of address space; 0: no limit, as sanitizers need it")
    parser.add_argument("--list", action="store_true", help="print what would be asked")
    options = parser.parse_args()
    if options.memory:
        resource.setrlimit(resource.RLIMIT_AS, (options.memory, options.memory))
    sys.exit(1 if campaign(options, *schema()) else 0)


if __name__ == "__main__":
    main()
