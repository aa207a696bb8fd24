#!/usr/bin/env python3
"""Some 430 small experiments over schedules, policies, exchanges, rules, networks and endings, and the digests of what they train.

    digest_matrix.py --program P --write FILE           # before a change that must not change a bit
    digest_matrix.py --program P --check FILE           # after it: what differs, exit status 1 if something does
    digest_matrix.py --program P --against OLD_PROGRAM  # the same without a file
    digest_matrix.py --program P --laws                 # each seventh: sim twice the same, and run like sim where that is promised
    ... --only REGEX, --list                            # experiments by name; their settings

Weights, exit codes and updates must be equal, on the virtual clock staleness too. Order digests are noted, and differences in
them reported, but allowed (`--strict`: they are not). Digests depend on the type of machine and on the build: a file of them is never kept.
"""

import argparse
import hashlib
import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import forked

SECONDS_MAX = 120  # of one run, which takes a fraction of one: only a hang takes as long

CLOCK = """clock { forward { seconds: 1 gamma { shape: 4 } } input_gradient { seconds: 0.5 log_normal { sigma: 0.5 } }
  weight_gradient { seconds: 0.5 } update { seconds: 0.05 } }
record { evaluate: false gap_every: 0 weights: false } stop { updates: 12 }
"""
TEACHER = "data { teacher { inputs: 12 outputs: 5 hidden: 8 train: 480 test: 24 } batch_size: 12 }"
GLYPHS = "data { glyphs { limit: 96 test_limit: 12 } batch_size: 12 }"
TEXT = 'data { text { path: "words.txt" context: 8 } batch_size: 6 }'
RATE = "optimizer { learning_rate: 0.02 }"

TASKS = {
    "mlp": f"model {{ mlp {{ hidden: [10, 9, 8, 8, 8] activation: tanh }} }} {TEACHER} {RATE}",
    "values": f"model {{ linear {{}} }} {TEACHER.replace('train:', 'values: true train:')} {RATE}",
    "conv": "model { layers { layer { convolution { outputs: 4 stride: 2 } } layer { batch_norm {} } "
    "layer { activation { kind: relu } } layer { fork { name: 'skip' } } layer { convolution { outputs: 4 } } "
    "layer { batch_norm {} } layer { join { name: 'skip' activation: relu } } layer { max_pool {} } "
    f"layer {{ group_norm {{ groups: 2 }} }} layer {{ average_pool {{ kernel: 0 }} }} layer {{ dense {{}} }} }} }} {GLYPHS} {RATE}",
    "lenet": f"model {{ lenet5 {{}} label_smoothing: 0.1 }} {GLYPHS} {RATE}",
    "dropout": "model { layers { layer { dense { outputs: 9 activation: gelu } } layer { dropout { rate: 0.3 } } "
    "layer { layer_norm {} } layer { dense { outputs: 8 activation: selu } } layer { dropout { rate: 0.2 } } "
    f"layer {{ dense {{}} }} }} }} {TEACHER} {RATE}",
    "gpt": f"model {{ gpt {{ layers: 2 width: 8 heads: 2 }} }} {TEXT} {RATE}",
    "untied": f"model {{ gpt {{ layers: 1 width: 8 heads: 2 tied: false dropout: 0.1 }} }} {TEXT} {RATE}",
    "llama": f"model {{ llama {{ layers: 2 width: 8 heads: 4 kv_heads: 2 hidden: 12 tied: true }} }} {TEXT} {RATE}",
    "mixture": f"model {{ llama {{ layers: 1 width: 8 heads: 2 experts: 4 hidden: 8 capacity: 1 }} }} {TEXT} {RATE}",
    "joined": "model { layers { layer { convolution { outputs: 4 stride: 3 activation: silu } } layer { fork {} } "
    "layer { convolution { outputs: 3 kernel: 1 padding: 0 activation: gelu_erf } } layer { swap {} } layer { convolution { outputs: 2 } } "
    f"layer {{ concatenate {{}} }} layer {{ rms_norm {{}} }} layer {{ average_pool {{ kernel: 0 }} }} layer {{ dense {{}} }} }} }} {GLYPHS} {RATE}",
    "lstm": f"model {{ lstm {{ layers: 2 width: 8 residual: true }} }} {TEXT} {RATE}",
    "quadratic": "model { quadratic { layers: 4 dimensions: 5 condition: 0.1 } } data { none {} batch_size: 4 } "
    "optimizer { rule: sgd learning_rate: 0.05 }",
    "sparse": "model { logistic {} } data { sparse { rows: 600 features: 400 nonzeros: 6 test: 50 } batch_size: 50 } "
    "optimizer { rule: sgd learning_rate: 0.5 } replicas { exchange { hogwild {} } }",
    "phases": f'model {{ mlp {{ hidden: [6] }} }} {TEACHER} {RATE} phases {{ name: "a" set: "replicas.count=1" }} phases {{ name: "b" }}',
    "batch": "model { mlp { hidden: [6] activation: tanh } } "
    "data { teacher { inputs: 12 outputs: 5 hidden: 8 train: 96 test: 24 } batch_size: 96 } "
    "replicas { exchange { sandblaster { portions: 7 history: 3 } } }",
}

K = "pipeline.stages="
M = "pipeline.micro_batches="
S = "pipeline.schedule="
W = "pipeline.weights="
R = "replicas.count="
RULE = "replicas.rule="
EX = "replicas.exchange="
ASYNC = S + "async_one_f_one_b"
FLUSHED = ["sequential", "gpipe", "one_f_one_b", "interleaved", "zb_h1", "zb_2p", "zb_v"]
POLICIES = ["latest", "stash", "vertical_sync", "double_buffered", "accumulate", "spectrain", "spectrain_paper", "nwpt",
            "geometric", "spike_compensation", "xpipe", "pipeoptim", "pipemare", "nesterov"]
OPTIMIZERS = ["sgd", "momentum", "nesterov", "adam", "adamw", "nadam", "nadamw", "adagrad", "rmsprop", "muon",
              "lion", "lars", "lamb", "soap", "basis_rotation"]
RULES = ["asgd", "heavy_ball", "nag", "multi", "adagrad", "softsync", "ssp", "essp", "staleness_aware", "gap_aware",
         "dc_asgd", "fasgd", "dana_zero", "dana_slim", "dana_dc", "lwp", "smega2", "ormo", "ringmaster", "delayed"]


class Case:
    """`run`: the real clock promises the weights of the virtual one. `code`: the exit code that is right."""

    def __init__(self, task, sets, run=True, code=0):
        self.task, self.sets, self.run, self.code = task, list(sets), run, code
        short = [re.sub(r"^(pipeline|replicas|optimizer|exchange|schedule|weights|rule)\.", "", s) for s in self.sets]
        self.name = " ".join([task] + [re.sub(r"^exchange[.=]", "", s) for s in short])


def policy_sets(policy):
    return [W + policy] + (["optimizer.rule=nadamw"] if policy == "nesterov" else [])


def pipelines():
    for schedule in ["async_one_f_one_b", "async_full_duplex"]:
        for policy in POLICIES:
            m = "1" if policy == "vertical_sync" else "4" if policy == "double_buffered" else "3"
            yield Case("mlp", [K + "3", S + schedule, M + m] + policy_sets(policy))
            if m == "3":
                yield Case("mlp", [K + "4", S + schedule] + policy_sets(policy))
    for schedule in FLUSHED:
        for policy in ["latest", "stash", "spectrain_paper", "nwpt", "pipemare", "nesterov"]:
            yield Case("mlp", [K + "3", S + schedule, M + "3"] + policy_sets(policy))
        yield Case("mlp", [K + "2", S + schedule, M + "4", "optimizer.clip_norm=0.1"])
    yield Case("mlp", [K + "2", S + "dual_pipe_v", M + "4"])
    yield Case("mlp", [K + "2", S + "dual_pipe", M + "4"])
    yield Case("mlp", [K + "2", "pipeline.schedule.file.rows=[0F0 0F1 . 0I0 0I1 0W0 0W1,1F0 1B0 1F1 1B1]", M + "2"])
    for key in ["rescale=false", "correct=false", "synchronous_epochs=1", "anneal=5"]:
        yield Case("mlp", [K + "3", ASYNC, "stop.updates=50", W + "pipemare", "pipeline.weights.pipemare." + key])
    for policy in ["latest", "stash", "spectrain", "xpipe"]:
        yield Case("mlp", [K + "3", ASYNC, "pipeline.activations=recompute"] + policy_sets(policy))
    for policy in ["latest", "stash", "spectrain", "vertical_sync", "accumulate", "pipemare", "geometric"]:
        yield Case("mlp", [K + "2", "pipeline.stage_of=[0,1,0]", ASYNC] + policy_sets(policy))
    yield Case("mlp", [K + "2", "pipeline.stage_of=[1,0,1,0]", M + "2", S + "zb_h1"])
    yield Case("mlp", [K + "2", "pipeline.stage_of=[0,1,1,0]", M + "2", S + "async_full_duplex", W + "stash"])
    for copies in ["4 [2,1,1]", "4 [1,1,2]", "6 [3,2,1]"]:
        stages, dealt = copies.split()
        yield Case("mlp", [K + stages, "pipeline.copies=" + dealt, ASYNC, W + "stash"])
    yield Case("mlp", [K + "3", "pipeline.cut=[1,2]", ASYNC, W + "spectrain"])


def optimizers():
    for rule in OPTIMIZERS:
        for policy in ["stash", "spectrain"]:
            yield Case("mlp", [K + "3", ASYNC, W + policy, "optimizer.rule=" + rule, "optimizer.weight_decay=0.1"])
        yield Case("conv", [K + "2", M + "2", "optimizer.rule=" + rule, "optimizer.clip_norm=0.5"])
    for source in ["first", "first_gram"]:
        yield Case("mlp", [K + "3", ASYNC, "optimizer.rule=basis_rotation", "optimizer.rotation.every=2", "optimizer.rotation.source=" + source])
    for schedule in ["step.every=4", "cosine.end=0.1", "polynomial.power=2", "milestones.at=[0.3,0.6]"]:
        yield Case("mlp", [K + "3", ASYNC, W + "spectrain", "optimizer.warm_up=3", "optimizer.schedule." + schedule])
    yield Case("mlp", [K + "3", ASYNC, W + "stash", "placement.optimizer=own", "optimizer.clip_norm=0.1"])
    yield Case("mlp", [K + "3", ASYNC, W + "spectrain", M + "2", "placement.optimizer=own"])


def networks():
    for task in ["values", "conv", "lenet", "dropout", "gpt", "untied", "llama", "mixture", "joined", "lstm", "quadratic"]:
        yield Case(task, [])
        if task == "values":
            continue  # one layer
        yield Case(task, [K + "2", M + "2", S + "zb_h1"])
        yield Case(task, [K + "3", ASYNC, W + "stash"])
        yield Case(task, [K + "3", ASYNC, W + "spectrain", M + "2"])
        yield Case(task, [K + "2", M + "2", ASYNC, W + "double_buffered", "pipeline.activations=recompute"])
        yield Case(task, [K + "2", "pipeline.stage_of=[0,1,0]", ASYNC])
        if task not in ("lstm", "quadratic"):  # whose layers are not cut in width
            yield Case(task, ["pipeline.width=2", M + "2"])
            yield Case(task, [K + "2", "pipeline.width=2", ASYNC, W + "spectrain"])
    for policy in ["latest", "vertical_sync", "xpipe", "pipeoptim", "pipemare", "accumulate"]:
        yield Case("gpt", [K + "3", ASYNC, "optimizer.rule=adamw", "optimizer.clip_norm=1"] + policy_sets(policy))


def rules():
    for rule in RULES:
        settled = rule == "delayed"
        yield Case("mlp", [R + "3", RULE + rule], run=settled)
        yield Case("mlp", [R + "4", RULE + rule, K + "2", ASYNC, W + "stash", "replicas.shards=2"], run=settled)
        yield Case("mlp", [R + "1", RULE + rule, K + "2", ASYNC, W + "latest"])
    parts = [
        ("asgd", ["admit.softsync.n=2"]), ("asgd", ["admit=ringmaster", "admit.ringmaster.bound=2"]),
        ("asgd", ["admit=delayed", "scale=staleness_aware"]), ("dana_zero", ["scale=gap_aware"]),
        ("dana_zero", ["admit=delayed"]), ("dana_slim", ["admit=delayed"]), ("softsync", ["scale=staleness_aware"]),
        ("softsync", ["rule.softsync.wait=true"]), ("softsync", ["rule.softsync.n=3", "step=nag"]),
        ("asgd", ["scale.gap_aware.per=layer"]), ("asgd", ["scale.gap_aware.per=all", "step=nag"]),
        ("asgd", ["scale.dc_asgd.variant=adaptive"]), ("asgd", ["scale.dc_asgd.variant=absolute", "step=smega2"]),
        ("asgd", ["scale=fasgd", "step=nag"]), ("fasgd", ["rule.fasgd.relative=false", "rate_factor=0.01"]),
        ("asgd", ["step=ormo", "scale=dc_asgd"]), ("nag", ["step=lwp", "admit=ringmaster"]),
        ("dana_zero", ["rule.dana_zero.rate=sender"]), ("ssp", ["rule.ssp.bound=0"]), ("essp", ["rule.essp.bound=1"]),
    ]  # fmt: skip
    for rule, sets in parts:
        settled = any(s in ("admit=delayed", "rule.softsync.wait=true") for s in sets)
        yield Case("mlp", [R + "3", RULE + rule] + ["replicas." + s for s in sets], run=settled)
    server = "replicas.exchange.parameter_server."
    for n_push, n_fetch in [(2, 1), (1, 3), (2, 2), (3, 2)]:
        for more in [[], [K + "2", ASYNC, W + "stash"]]:
            yield Case("mlp", [R + "2", f"{server}n_push={n_push}", f"{server}n_fetch={n_fetch}"] + more, run=False)
    for optimizer in ["adamw", "muon", "rmsprop"]:
        yield Case("mlp", [R + "3", "optimizer.rule=" + optimizer, "optimizer.clip_norm=0.1", K + "2", ASYNC], run=False)
    for policy in ["latest", "vertical_sync", "spectrain", "xpipe", "geometric"]:
        yield Case("mlp", [R + "2", K + "3", ASYNC] + policy_sets(policy), run=False)
    for task in ["conv", "gpt", "mixture", "lstm", "dropout", "quadratic"]:
        yield Case(task, [R + "2", K + "2", ASYNC, W + "stash", "replicas.shards=2", "optimizer.clip_norm=0.5"], run=False)
    workers = ["clock.workers.spread=0.6", "clock.exchange.seconds=0.1", "clock.bandwidth=10000"]
    for rule in ["asgd", "dana_slim", "essp", "softsync"]:
        yield Case("mlp", [R + "4", RULE + rule] + workers, run=False)


def exchanges():
    e = "replicas.exchange."
    settled = [
        [e + "synchronous.reduction=server"], [e + "synchronous.reduction=ring"], [e + "synchronous.reduction=tree"],
        [EX + "averaging", e + "averaging.period=3", e + "averaging.state=kept"],
        [e + "averaging.period=3", e + "averaging.state=averaged"], [e + "averaging.period=3", e + "averaging.state=reset"],
        [e + "bmuf.period=3"], [e + "bmuf.period=3", e + "bmuf.nesterov=false", e + "bmuf.reset=false"],
        [e + "easgd.period=3", e + "easgd.synchronous=true"], [e + "diloco.period=3"],
        [e + "diloco.period=4", e + "diloco.mode=streaming"],
        [e + "diloco.period=6", e + "diloco.mode.streaming.overlap=2", e + "diloco.mode.streaming.mix=0.3"],
        [EX + "gossip"], [e + "gossip.graph=groups", e + "gossip.group=2", e + "gossip.order=sequential", e + "gossip.period=2"],
        [EX + "gossip", "replicas.codec.up.top_k.density=0.1"], [e + "gossip.order=sequential", "replicas.codec.up=one_bit"],
        [e + "sgp.graph=random"],
    ]  # fmt: skip
    loose = [
        [e + "easgd.period=3"], [e + "diloco.period=3", e + "diloco.mode=asynchronous"],
        [e + "diloco.period=3", e + "diloco.mode.asynchronous.outer=nesterov"],
        [e + "diloco.period=3", e + "diloco.mode.asynchronous.outer=sgd", e + "diloco.mode.asynchronous.dynamic_steps=false"],
        [e + "diloco.period=3", e + "diloco.mode=quorum"], [e + "diloco.period=4", e + "diloco.mode=decoupled"],
        [e + "diloco.period=6", e + "diloco.mode.decoupled.quorum=2", e + "diloco.mode.decoupled.fragments=2"], [EX + "wsp"], [e + "wsp.wave=2", e + "wsp.distance=0"],
        [e + "halos.period=2", e + "halos.accumulate=3"], [e + "halos.period=3", e + "halos.accumulate=1", e + "halos.merge=1", e + "halos.local.momentum=0", "clock.between_servers.seconds=[0.3]"],
        [EX + "hogwild"], [e + "sgp.overlap=1"], [EX + "ad_psgd"], [EX + "strom"], [EX + "strom", "replicas.codec.up.top_k.density=0.1"],
    ]  # fmt: skip
    for sets, run in [(s, True) for s in settled] + [(s, False) for s in loose]:
        reduced = any("ring" in s or "tree" in s for s in sets)
        whole = reduced or any(peer in s for s in sets for peer in ("hogwild", "gossip", "sgp", "ad_psgd", "strom", "mode.decoupled", "mode=decoupled"))
        shards = [] if whole else ["replicas.shards=2"]
        late = [K + "2", ASYNC, W + ("latest" if EX + "hogwild" in sets else "stash")]
        yield Case("mlp", sets + [R + "3"], run)
        yield Case("mlp", sets + [R + "2", "optimizer.rule=adam", "optimizer.clip_norm=0.1"] + late + shards, run)
        yield Case("gpt", sets + [R + "2", K + "2", M + "2"], run)
        yield Case("conv", sets + [R + "4"] + shards, run)
    for sets, run in [([EX + "synchronous"], True), ([e + "averaging.period=3"], True), ([RULE + "dana_zero"], False), ([RULE + "asgd"], False)]:
        yield Case("mlp", sets + [R + "4", "replicas.copies=2", "replicas.shards=2"], run)
        yield Case("gpt", sets + [R + "2", K + "2", ASYNC, W + "stash", "replicas.copies=3"], run)
    for policy in ["pipemare", "spike_compensation", "spectrain"]:
        yield Case("mlp", [e + "synchronous.reduction=ring", R + "3", K + "2", ASYNC] + policy_sets(policy))
        yield Case("mlp", [e + "averaging.period=3", R + "2", K + "3", ASYNC] + policy_sets(policy))
    yield Case("mlp", [e + "synchronous.backup=1", R + "4"], run=False)
    yield Case("mlp", [e + "synchronous.backup=2", R + "4", K + "2", M + "2", "replicas.shards=2"], run=False)
    yield Case("mlp", [e + "diloco.mode.quorum.quorum=3", e + "diloco.mode.quorum.grace=1", R + "4"], run=False)
    yield Case("mlp", [EX + "averaging", e + "averaging.period=3", R + "3", "replicas.split=by_label"])
    yield Case("mlp", [EX + "wsp", R + "2", K + "2", "pipeline.stage_of=[0,1,0]", ASYNC, W + "stash"], run=False)
    yield Case("mlp", [EX + "synchronous", R + "2", K + "2", "pipeline.stage_of=[0,1,0]", ASYNC, W + "stash"])
    for count, add in [(1, "atomic"), (3, "atomic"), (2, "racy")]:
        yield Case("sparse", [R + str(count), e + f"hogwild.add={add}", "record.order=false"], run=count == 1)
        yield Case("mlp", [R + str(count), e + f"hogwild.add={add}", "record.order=false"], run=count == 1)
    for sets in [[], [R + "3"], [R + "3", e + "sandblaster.backup=0"], [R + "2", "replicas.shards=3"],
                 [R + "2", e + "sandblaster.history=0", "clock.workers.slowness=[1,5]"]]:  # fmt: skip
        yield Case("batch", sets)


def endings():
    evaluated = ["record.evaluate=true", "record.evaluate_every=5", "record.gap_every=2", "record.versions=true"]
    for sets, run in [([K + "3", ASYNC, W + "spectrain"], True), ([R + "3", RULE + "dana_zero"], False),
                      ([R + "3", "replicas.exchange.averaging.period=3"], True), ([R + "2", EX + "hogwild"], False),
                      ([R + "3", "replicas.exchange.synchronous.reduction=tree", K + "2", ASYNC, W + "stash"], True),
                      ([R + "2", "replicas.exchange.easgd.period=2"], False)]:  # fmt: skip
        yield Case("mlp", sets + evaluated, run)
        yield Case("conv", sets + evaluated, run)
        yield Case("mlp", sets + ["stop.seconds=9"], run=False)
        yield Case("mlp", sets + ["stop.updates=0", "stop.epochs=1.5"], run)
        yield Case("mlp", sets + evaluated + ["stop.target_accuracy=0.15", "stop.updates=40"], run)
    yield Case("quadratic", [K + "3", ASYNC, "optimizer.learning_rate=1e6"], code=4)
    yield Case("mlp", [R + "3", "optimizer.learning_rate=1e30", "stop.allow_divergence=true"], run=False)
    yield Case("mlp", [K + "2", ASYNC, "stop.updates=0", "stop.epochs=2", "data.growth.at=[0.5]", "data.growth.factor=2"])
    yield Case("phases", [R + "2", EX + "synchronous", "optimizer.rule=adam"])
    yield Case("mlp", ["clock.workers.straggler.rotating.factor=4", R + "3", RULE + "essp"], run=False)
    yield Case("mlp", ["seed=7", K + "3", ASYNC, W + "stash"])


def decoupled():
    """Modules that take their error signals elsewhere. A predictor estimates by what it has been taught when it is asked."""
    d, synthetic = "decoupled=", "decoupled.synthetic."
    for method in ["feedback_alignment", "direct_feedback_alignment", "local_loss"]:
        for pipeline in [[S + "sequential"], [S + "zb_h1", M + "4"], [ASYNC, W + "stash"], [ASYNC, W + "spectrain", M + "2"]]:
            yield Case("mlp", [K + "3", d + method] + pipeline)
        yield Case("mlp", [K + "2", d + method, R + "2", EX + "synchronous"])
        yield Case("mlp", [K + "2", d + method, R + "3", RULE + "asgd"], run=False)
    yield Case("mlp", [K + "3", "decoupled.feedback_alignment.replaces=parameters"])
    for more in [[S + "sequential"], [S + "zb_h1", M + "4", "decoupled.greedy.depth=1", "decoupled.greedy.width=8"], [ASYNC, W + "stash"],
                 [S + "sequential", M + "2", "decoupled.greedy.similarity=0.99"]]:
        yield Case("mlp", [K + "3", d + "greedy"] + more)
    slow = "clock.forward.seconds=[4,1,4]"
    for more in [[S + "sequential", slow], [ASYNC, W + "stash", slow, "decoupled.ahead=0"], [S + "sequential", "stop.updates=0", "stop.seconds=9", slow]]:
        yield Case("mlp", [K + "3", "decoupled.greedy.buffer=2"] + more, run=False)
    yield Case("mlp", [K + "4", d + "local_loss", "decoupled.ahead=2"])
    yield Case("mlp", [K + "4", d + "local_loss", "decoupled.ahead=0", "pipeline.stage_of=[0,1,2,3]"])
    for more in [[], ["predictor=mlp", "predictor.mlp.width=16", "conditioned=true"], ["lambda=0.5"], ["update_probability=0.4"]]:
        yield Case("mlp", [K + "3", d + "synthetic"] + [synthetic + s for s in more], run=False)
    yield Case("mlp", [K + "3", d + "synthetic", M + "4", S + "zb_h1"], run=False)
    yield Case("mlp", [K + "3", synthetic + "freshest=true", S + "sequential", "clock.teach.seconds=5"], run=False)
    yield Case("mlp", [K + "2", d + "synthetic", R + "2", EX + "averaging"], run=False)
    yield Case("mlp", [K + "2", synthetic + "lambda=1"])
    for more in [[S + "sequential"], [S + "sequential", M + "2", "decoupled.ahead=2"], [ASYNC, W + "latest"]]:
        yield Case("mlp", [K + "3", synthetic + "unlocked=true"] + more, run=False)
    yield Case("mlp", [K + "3", S + "sequential", M + "2", synthetic + "unlocked=true", synthetic + "trains_on=estimate"], run=False)
    labelled = [synthetic + "conditioned=true", synthetic + "predictor.mlp.width=16", "record.angle_every=3"]
    yield Case("mlp", [K + "3", S + "sequential", synthetic + "unlocked=true"] + labelled, run=False)
    for more in [[S + "sequential"], [S + "zb_h1", M + "4"], [ASYNC, W + "stash"]]:
        yield Case("mlp", [K + "3", d + "kickback", "model.mlp.activation=relu", "data.teacher.values=true", "data.teacher.outputs=1"] + more)
    streams = ["data.text.contiguous=true", "model.lstm.carry=true", "model.lstm.future=0.5"]
    yield Case("untied", [K + "2", "pipeline.cut=[2]", "decoupled.greedy.buffer=2", "clock.forward.seconds=[4,1]"], run=False)
    for more in [["conditioned=true"], ["unlocked=true", "predictor.mlp.width=6"]]:
        yield Case("untied", [K + "2", "pipeline.cut=[2]", S + "sequential"] + [synthetic + s for s in more], run=False)
    for method in ["direct_feedback_alignment", "local_loss", "greedy"]:
        yield Case("untied", [K + "2", "pipeline.cut=[2]", d + method, S + "sequential"])
        yield Case("mixture", [K + "2", "pipeline.cut=[7]", d + method, S + "sequential"])
    for more in [["conditioned=true"], ["unlocked=true", "predictor.mlp.width=6"]]:
        yield Case("lstm", [K + "2", "pipeline.cut=[4]", S + "sequential"] + [synthetic + s for s in more], run=False)
    yield Case("lstm", streams)
    yield Case("lstm", streams + [K + "2", ASYNC, W + "stash"])


def codecs():
    """What travels between replicas and servers is compressed: up, down, and both."""
    up, down = "replicas.codec.up", "replicas.codec.down"
    together = [EX + "synchronous", R + "3"]
    for codec in ["fp16", "bf16", "int8_block", "int4_block", "e3m0", "one_bit", "strom", "top_k", "random_k", "qsgd", "terngrad", "powersgd"]:
        yield Case("mlp", together + [f"{up}={codec}"])
        yield Case("mlp", [R + "2", f"{up}={codec}", K + "2", ASYNC, W + "stash", "replicas.shards=2"], run=False)
        if codec not in ("qsgd", "terngrad"):
            yield Case("mlp", together + [f"{up}={codec}", f"{down}={codec}"])
            yield Case("mlp", [R + "3", "replicas.exchange.diloco.period=3", f"{up}={codec}", f"{down}={codec}"])
    for reduction in ["ring", "tree"]:
        summed = [f"replicas.exchange.synchronous.reduction={reduction}"]
        for codec in ["fp16", "bf16", "random_k", "powersgd"]:
            yield Case("mlp", summed + [R + "3", f"{up}={codec}"])
            yield Case("gpt", summed + [R + "2", f"{up}={codec}", K + "2", M + "2"], run=False)
    between = ["replicas.exchange.halos.period=2", "replicas.exchange.halos.accumulate=2", R + "4"]
    for codecs_of in [[f"{up}=int8_block", f"{down}=int8_block"], [f"{up}=top_k", f"{down}=one_bit"], [f"{up}.strom.density=0.05", f"{down}=powersgd"]]:
        yield Case("mlp", between + codecs_of, run=False)
        yield Case("mlp", between + codecs_of + [K + "2", ASYNC, W + "stash", "replicas.shards=2"], run=False)
    yield Case("mlp", together + [f"{up}=sign_vote", "optimizer.rule=sgd", f"{down}=sign_vote"])
    yield Case("mlp", together + [f"{up}=sign_vote", "replicas.codec.feedback=on", f"{down}=sign_vote"])
    yield Case("mlp", together + [f"{up}.dgc.warm_up=20", f"{up}.dgc.density=0.05", "optimizer.rule=sgd"])
    decayed = [f"{up}.dgc.nesterov=true", f"{up}.dgc.clip_norm=0.1", "optimizer.weight_decay=0.01", "optimizer.rule=sgd"]
    yield Case("mlp", together + decayed + [K + "2", S + "gpipe"])
    yield Case("mlp", together + [f"{up}.qsgd.coding=recursive", f"{up}.qsgd.levels=2"])
    yield Case("mlp", [R + "3", f"{up}.dgc.clip_norm=0.1", "optimizer.rule=sgd", RULE + "staleness_aware"], run=False)
    yield Case("mlp", together + [f"{up}.strom.density=0.05", f"{up}.strom.coding=golomb", f"{down}.top_k.density=0.1"])
    yield Case("mlp", together + [f"{up}.int4_block.rounding=stochastic", f"{down}.int4_block.rounding=stochastic"])
    yield Case("conv", together + [f"{up}.powersgd.rank=2", f"{down}=int8_block", "optimizer.clip_norm=0.1"])
    yield Case("gpt", together + [f"{up}.top_k.per=tensor", f"{down}.top_k.per=tensor", K + "2", M + "2"])
    for sets in [["averaging.period=3"], ["bmuf.period=3"]]:
        yield Case("mlp", ["replicas.exchange." + sets[0], R + "3", f"{up}=int8_block"])
    yield Case("mlp", ["replicas.exchange.diloco.mode=streaming", "replicas.exchange.diloco.period=4", R + "3", f"{up}=int8_block", f"{down}=fp16"])
    for rule in ["essp", "ssp", "dana_slim", "dana_zero", "softsync"]:
        yield Case("mlp", [R + "3", RULE + rule, f"{up}.top_k.density=0.1", f"{down}=bf16"], run=False)
    yield Case("mlp", [R + "3", RULE + "ringmaster", f"{up}=terngrad", f"{down}.top_k.density=0.1"], run=False)
    yield Case("mlp", [R + "3", EX + "wsp", f"{up}=one_bit", f"{down}=one_bit"], run=False)


def cases():
    families = (pipelines, optimizers, networks, rules, exchanges, endings, decoupled, codecs)
    return [case for family in families for case in family()]


def words():
    """Some kilobytes of text without a generator of random numbers."""
    syllables = "ta ko mi re su na lo vi de ha".split()
    digits = "".join(hashlib.sha256(str(i).encode()).hexdigest() for i in range(120))
    return "".join(syllables[int(d, 16) % 10] + (" " if int(d, 16) > 9 else "") for d in digits)


def outcome(program, folder, case, clock, number, seconds_max=SECONDS_MAX):
    """What a run leaves. `folder` has the tasks; the directory of the run is `number`."""
    out = f"{Path(program).parent.name}-{number}"
    command = [program, clock, f"{case.task}.textproto", "--out", out]
    for setting in case.sets:
        command += ["--set", setting]
    try:
        done = forked.run(command, cwd=folder, timeout=seconds_max)
    except subprocess.TimeoutExpired:
        return {"code": -1, "says": f"no end after {seconds_max} s"}
    return found_in(Path(folder, out), done)


def found_in(directory, done):
    """What the run in `directory` has left, whose program has ended as `done`."""
    found = {"code": done.returncode}
    if done.returncode != 0:
        found["says"] = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else ""
    path = directory / "summary.json"
    if path.is_file():
        summary = json.loads(path.read_text())
        found["weights"] = summary["weights_sha256"]
        found["order"] = summary["order_sha256"]
        found["updates"] = summary["updates"]
        found["staleness"] = {shard: s["histogram"] for shard, s in summary["staleness"].items()}
    return found


def jobs(selected):
    return [(case, clock) for case in selected for clock in (["sim", "run"] if case.run else ["sim"])]


def outcomes(program, selected):
    """By clock and name."""
    program = str(Path(program).resolve())
    with forked.folder_of_runs() as folder, ThreadPoolExecutor(2) as pool:
        for task, text in TASKS.items():
            Path(folder, f"{task}.textproto").write_text(text + "\n" + CLOCK)
        Path(folder, "words.txt").write_text(words())
        all_jobs = jobs(selected)
        found = pool.map(lambda i: outcome(program, folder, *all_jobs[i], i), range(len(all_jobs)))
        return {f"{clock} {case.name}": result for (case, clock), result in zip(all_jobs, found)}


def settled(name, result):
    """What must be equal. On the real clock the last records of a run that is over may be missing from its staleness, and a run that
    diverges is met by others on their way."""
    keys = ["code", "weights"]
    if result.get("code") == 0:
        keys += ["updates"] + (["staleness"] if name.startswith("sim ") else [])
    return {key: result.get(key) for key in keys}


def differences(before, after, strict):
    count = 0
    order = 0
    for name in sorted(before.keys() | after.keys()):
        if name not in before or name not in after:
            print(f"only {'before' if name in before else 'after'}: {name}")
            count += 1
            continue
        b, a = before[name], after[name]
        was, now = settled(name, b), settled(name, a)
        what = [key for key in was if was[key] != now.get(key)]
        if what:
            count += 1
            print(f"{', '.join(what)}: {name}")
            for key in what:
                print(f"    {b.get(key)} -> {a.get(key)} {a.get('says', '')}")
        elif name.startswith("sim ") and b.get("order") != a.get("order"):
            order += 1
    print(f"{len(before)} runs, {count} differ; the order of deliveries of {order} more")
    return count + (order if strict else 0)


def broken(selected, found):
    """Runs that do not end as they should, or not on the real clock as on the virtual one."""
    count = 0
    for case, clock in jobs(selected):
        result = found[f"{clock} {case.name}"]
        virtual = found["sim " + case.name]
        if result["code"] != case.code:
            print(f"exit code {result['code']}, not {case.code}: {clock} {case.name}: {result.get('says', '')}")
            count += 1
        elif result.get("weights") != virtual.get("weights"):
            print(f"other weights than sim: {clock} {case.name}")
            count += 1
    return count


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="troupe")
    parser.add_argument("--write")
    parser.add_argument("--check")
    parser.add_argument("--against")
    parser.add_argument("--laws", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--strict", action="store_true")
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    selected = [case for case in cases() if re.search(given.only, case.name)]
    assert len({case.name for case in selected}) == len(selected), "two experiments of one name"
    if given.list:
        for case in selected:
            print(case.task, *case.sets)
        return 0
    if given.laws:
        selected = selected[::7]
    found = outcomes(given.program, selected)
    if given.write:
        Path(given.write).write_text(json.dumps(found, indent=1) + "\n")
    bad = broken(selected, found)
    if given.laws:
        again = outcomes(given.program, [Case(c.task, c.sets, run=False) for c in selected])
        bad += differences({n: r for n, r in found.items() if n.startswith("sim ")}, again, strict=True)
    before = json.loads(Path(given.check).read_text()) if given.check else None
    if given.against:
        before = outcomes(given.against, selected)
    if before is not None:
        chosen = {n: r for n, r in before.items() if n in found} if given.only else before
        bad += differences(chosen, found, given.strict)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
