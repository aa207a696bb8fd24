"""Optimizers, codecs, schedules and layers in Python; schemes of all kinds beside the same ones in C++."""

import ctypes
import math
from pathlib import Path

import numpy as np
import pytest
from conftest import FLUSHED
from schemes_test import FOUR, GOSSIP, LIMITED, RULE, TRUST

import troupe

SHORT = {"stop.updates": 60}
F = np.float32


class Momentum(troupe.Optimizer):
    name, summary = "my_momentum", "v = gamma v + g; w -= eta v"
    moments, heavy_ball, plain, decays_gradient = 1, True, True, True

    def update(self, n, w, g, w_new, moments):
        (v,) = moments
        v[:] = F(n.momentum) * v + (F(n.gradient_scale) * g + F(n.weight_decay) * w)
        w_new[:] = w - F(n.rate) * v
        return v


class AggMo(troupe.Optimizer):
    name, summary = "aggmo", "the mean of three velocities, of momenta 0, 1 - a and 1 - a^2"
    options = [troupe.Option("a", 0.1, "how much faster each velocity fades than the next", 0.001, 1)]
    moments = 2

    def update(self, n, w, g, w_new, moments):
        a, third = self.options["a"], F(1 / 3)
        g = F(n.gradient_scale) * g + F(n.weight_decay) * w
        for v, kept in zip(moments, (1 - a, 1 - a * a)):
            v[:] = F(kept) * v + g
        direction = third * g + third * moments[0] + third * moments[1]
        w_new[:] = w + F(-n.rate) * direction
        return direction


class TopK(troupe.Codec):
    name, summary = "my_top_k", "the greatest numbers with their places"
    options = [troupe.Option("density", 0.1, "share of the numbers", 0, 1)]

    def encode(self, x, random, number):
        k = min(len(x), math.ceil(self.options["density"] * len(x)))
        places = np.sort(np.argsort(-np.abs(x), kind="stable")[:k]).astype(np.uint32)
        return np.concatenate([x[places].view(np.uint32), places])

    def decode(self, words, n):
        values, places = np.split(words, 2)
        x = np.zeros(n, F)
        x[places] = values.view(F)
        return x


class Sign(troupe.Codec):
    name, summary = "my_sign", "the sign of each number, times the mean of their sizes"

    def encode(self, x, random, number):
        bits = np.packbits(x < 0)
        return np.concatenate([np.array([np.abs(x).mean(dtype=F)], F).view(np.uint32),
                               np.resize(bits, -(-len(bits) // 4) * 4).view(np.uint32)])

    def decode(self, words, n):
        if len(words) != 1 + -(-n // 32):
            raise ValueError("it is too short or too long")
        return np.where(np.unpackbits(words[1:].view(np.uint8))[:n] == 1, -words[:1].view(F), words[:1].view(F))


class Eager(troupe.Schedule):
    name, summary = "eager_one_f_one_b", "d + n forwards, then one forward and one backward in turn for ever"
    options = [troupe.Option("more", 1, "n: forwards that wait in the pipe", 0, 64)]
    staleness = "d + n updates at M=1, 0 on the last stage"

    def write(self, s):
        ahead = s.to_loss + int(self.options["more"]) * (s.to_loss > 0)
        for n in range(ahead):
            s.forward(n)
        s.begin_period()
        for j in range(s.M):
            s.forward(ahead + j)
            s.backward(j)
        s.update(0)


class GPipe(troupe.Schedule):
    name, summary, flushed = "my_gpipe", "all forwards, all backwards, the update", True

    def fits(self, stages, micro_batches):
        return "" if micro_batches < 64 else "64 micro-batches are too many"

    def write(self, s):
        s.begin_period()
        for act in (s.forward, s.backward):
            for j in range(s.M):
                act(j)
        s.update(0)


expf = ctypes.CDLL("libm.so.6").expf
expf.restype, expf.argtypes = ctypes.c_float, [ctypes.c_float]
exp = np.vectorize(expf, otypes=[F])


class Swish(troupe.Layer):
    name, summary = "swish", "y = x sigmoid(beta x), beta learnt"

    def __init__(self, options, input):
        super().__init__(options, input)
        self.parameters = [("beta", (1,), "one")]

    def forward(self, w, x, how):
        return x * (1 / (1 + exp(-(w[0] * x)))), x

    def backward(self, w, x, dy):
        beta = w[0][0]
        s = 1 / (1 + exp(-(beta * x)))
        slope = x * s * (1 - s)
        of_beta = np.add.accumulate((dy * x * slope).astype(np.float64).ravel())[-1]
        return dy * (s + beta * slope), [np.array([of_beta], F)]


# -- rules, policies and exchanges beside those that the program has


class StalenessAware(troupe.Rule):
    name, summary, bears_delay = "my_staleness_aware", "a gradient's rate is divided by its staleness", True

    def rate_share(self, of, update):
        return 1 / max(1, of.lag)


class Ringmaster(troupe.Rule):
    name, summary, gives_up = "my_ringmaster", "what is `bound` updates late is dropped", True
    options = [troupe.Option("bound", 3, "updates", 1)]

    def accepts(self, push, ledger):
        return ledger.version - push.read_version < self.options["bound"]

    def choose(self, waiting, ledger, now):
        late = [i for i, push in enumerate(waiting) if not self.accepts(push, ledger)]
        return [i for i in range(len(waiting)) if i not in late][:1], late


class Cyclic(troupe.Rule):
    name, summary = "my_cyclic", "the replicas push in turn"

    def choose(self, waiting, ledger, now):
        return [i for i, push in enumerate(waiting) if push.replica == ledger.version % self.replicas][:1], []


class Softsync(troupe.Rule):
    name, summary = "my_softsync", "an update is the mean of the first two gradients that arrive"

    def choose(self, waiting, ledger, now):
        return ([0, 1] if len(waiting) >= 2 else []), []

    def pushes(self):
        return 2


class VerticalSync(troupe.Policy):
    name, summary = "my_vertical_sync", "every stage reads the version that the first stage read"
    options = [troupe.Option("delay", 3, "updates", 0)]

    def forward(self, action):
        return max(0, action.batch - int(self.options["delay"])), "none", 0


class Latest(troupe.Policy):
    name, summary, newest_only = "my_latest", "the newest weights, whenever", True

    def forward(self, action):
        return action.natural, "none", 0

    backward = forward


class Ring(troupe.Exchange):
    """D-PSGD on a ring."""

    name, summary = "my_ring", "each step ends with the mean of a replica and its neighbours"

    def __init__(self, *args):
        super().__init__(*args)
        self.told, self.step = {}, 0

    @property
    def neighbours(self):
        return sorted({(self.replica + hop) % self.replicas for hop in (-1, 1)} - {self.replica})

    def stepped(self, step, before, own, tell):
        self.step = step
        for r in self.neighbours:
            tell(r, "weights", [step, self.replica])

    def heard(self, what, numbers, arrays):
        self.told[tuple(map(int, numbers))] = arrays

    def complete(self, step, living):
        return all((step, r) in self.told for r in self.neighbours if r in living)

    def terms(self, own):
        came = [self.told.pop((self.step, r)) for r in self.neighbours if (self.step, r) in self.told]
        share = 1 / (len(self.neighbours) + 1)
        kept = 1.0 - sum(share for _ in came)
        return [(kept, own), *((share, x) for x in came)]

    def mix(self, own):
        terms = self.terms(own)

        def job():
            mixed = []
            for slices in zip(*(x for _, x in terms)):
                total = F(terms[0][0]) * slices[0]
                for (share, _), x in zip(terms[1:], slices[1:]):
                    total = total + F(share) * x
                mixed.append(total)
            return mixed

        return job if len(terms) > 1 else None

    def state(self):
        keys = [number for key in self.told for number in key]
        return [self.step, *keys], [x for arrays in self.told.values() for x in arrays]

    def restore(self, numbers, arrays):
        self.step, *rest = map(int, numbers)
        keys = list(zip(rest[::2], rest[1::2]))
        each = len(arrays) // len(keys) if keys else 0
        self.told = {key: arrays[i * each:(i + 1) * each] for i, key in enumerate(keys)}


class OnePeer(Ring):
    """Stochastic gradient push on the graph one_peer, where shares are halves and push-sum's numbers stay 1."""

    name, summary = "my_one_peer", "a half to one other, in turn 1, 2, 4, ... places further"

    def hop(self):
        return 2 ** (self.step % (self.replicas - 1).bit_length())

    @property
    def neighbours(self):
        return [(self.replica - self.hop()) % self.replicas]

    def stepped(self, step, before, own, tell):
        self.step = step
        tell((self.replica + self.hop()) % self.replicas, "share", [step, self.replica])


def named(key, name, **values):
    return {f"{key}.custom.name": name, **{f"{key}.custom.values.{k}": v for k, v in values.items()}}


FULL_RATE = {**FOUR, "replicas.rate_factor": 1}
LATE = {**SHORT, "pipeline.stages": 4, "pipeline.schedule": "async_one_f_one_b"}
UP = "replicas.codec.up"
SWISH = str(Path(__file__).parents[3] / "tests" / "package" / "swish.textproto")

# What is written in Python, and the program and keys of the same in C++ (no program: it is built in).
TWINS = {
    "half_life": (RULE, "my_troupe", RULE),
    "half_life_limited": (LIMITED, "my_troupe", LIMITED),
    "staleness_aware": ({**FULL_RATE, **named("replicas.rule", "my_staleness_aware")}, None,
                        {**FULL_RATE, "replicas.rule": "staleness_aware"}),
    "ringmaster": ({**FULL_RATE, **named("replicas.rule", "my_ringmaster")}, None,
                   {**FULL_RATE, "replicas.rule.ringmaster.bound": 3}),
    "delayed": ({**FULL_RATE, **named("replicas.rule", "my_cyclic")}, None, {**FULL_RATE, "replicas.rule": "delayed"}),
    "softsync": ({**FULL_RATE, **named("replicas.rule", "my_softsync")}, None,
                 {**FULL_RATE, "replicas.rule.softsync.n": 2, "replicas.rule.softsync.wait": True}),
    "fading_trust": (TRUST, "my_policy", TRUST),
    "vertical_sync": ({**LATE, **named("pipeline.weights", "my_vertical_sync")}, None,
                      {**LATE, "pipeline.weights": "vertical_sync"}),
    "latest": ({**LATE, **named("pipeline.weights", "my_latest")}, None, {**LATE, "pipeline.weights": "latest"}),
    "gosgd": (GOSSIP, "my_exchange", GOSSIP),
    "ring": ({**FOUR, **named("replicas.exchange", "my_ring")}, None, {**FOUR, "replicas.exchange.gossip.order": "sequential"}),
    "one_peer": ({**FOUR, **named("replicas.exchange", "my_one_peer")}, None,
                 {**FOUR, "replicas.exchange.sgp.graph": "one_peer"}),
    "momentum": ({**LATE, **named("optimizer", "my_momentum")}, None, {**LATE, "optimizer.rule": "momentum"}),
    "momentum_ahead": ({**LATE, **named("optimizer", "my_momentum"), "pipeline.weights": "spectrain"}, None,
                       {**LATE, "optimizer.rule": "momentum", "pipeline.weights": "spectrain"}),
    "aggmo": ({**SHORT, **named("optimizer", "aggmo", a=0.2)}, "my_optimizer", {**SHORT, **named("optimizer", "aggmo", a=0.2)}),
    "top_k": ({**FOUR, **named(UP, "my_top_k")}, None, {**FOUR, f"{UP}.top_k.density": 0.1}),
    "eager": ({**SHORT, **named("pipeline.schedule", "eager_one_f_one_b")}, "my_schedule",
              {**SHORT, **named("pipeline.schedule", "eager_one_f_one_b")}),
    "gpipe": ({**SHORT, "pipeline.weights": "latest", **named("pipeline.schedule", "my_gpipe")}, None,
              {**SHORT, "pipeline.weights": "latest", "pipeline.schedule": "gpipe"}),
}


@pytest.mark.parametrize("twin", TWINS)
def test_the_same_scheme_in_cpp_has_the_same_bits(cpp, twin):
    mine, program, theirs = TWINS[twin]
    made = troupe.sim("teacher-mlp", mine).sha256
    assert made == (cpp(program, "teacher-mlp", theirs) if program else troupe.sim("teacher-mlp", theirs).sha256)
    assert made != troupe.sim("teacher-mlp", {**FLUSHED, "stop.updates": 59}).sha256


def test_a_layer_in_cpp_has_the_same_bits(cpp):
    few = {"stop.updates": 30}
    assert troupe.sim(SWISH, few).sha256 == troupe.run(SWISH, few).sha256 == cpp("my_layer", SWISH, few)


@pytest.mark.parametrize("name", ["my_momentum", "aggmo", "my_top_k", "my_sign", "eager_one_f_one_b", "my_gpipe", "swish",
                                  "my_ring", "my_one_peer", "my_vertical_sync", "my_latest"])
def test_conformance(name):
    found = troupe.conformance(name)
    assert found and not [one for one in found if not one.holds], found


def test_conformance_names_what_is_broken():
    class Late(Swish):
        name, summary = "wrong_swish", "its gradient lacks a part"

        def backward(self, w, x, dy):
            dx, gradients = super().backward(w, x, dy)
            return 0.9 * dx, gradients

    class Open(Sign):
        name, summary = "open_sign", "believes every message"

        def decode(self, words, n):
            return np.zeros(n, F)

    class Forgets(Momentum):
        name, summary = "keeps_apart", "keeps its velocity where no checkpoint looks"
        own = {}

        def update(self, n, w, g, w_new, moments):
            v = self.own[len(w)] = F(0.9) * self.own.get(len(w), 0) + g
            w_new[:] = w - F(n.rate) * v
            return v

    broken = {name: [one.check for one in troupe.conformance(name) if not one.holds]
              for name in ("wrong_swish", "open_sign", "keeps_apart", "my_cyclic")}
    assert broken["my_cyclic"] == ["crash"]  # it waits for the dead
    assert broken["wrong_swish"] == ["gradient"] and broken["open_sign"] == ["strangers"]
    assert {"in place", "replay", "resume"} <= set(broken["keeps_apart"])


@pytest.mark.parametrize("name, sets, where", [
    ("bad_codec", named(UP, "bad_codec"), "bad_codec.encode: OSError"),
    ("bad_optimizer", named("optimizer", "bad_optimizer"), "bad_optimizer.update: OSError"),
    ("bad_schedule", {"replicas.count": 1, **named("pipeline.schedule", "bad_schedule")}, "bad_schedule.write: OSError")])
def test_an_exception_in_one_is_the_cause(fails, name, sets, where):
    def raises(self, *_):
        raise OSError("as it was to")

    of = {"bad_codec": (TopK, "encode"), "bad_optimizer": (Momentum, "update"), "bad_schedule": (GPipe, "write")}[name]
    type("Bad", of[:1], {"name": name, "summary": "fails", of[1]: raises})
    for train in (troupe.sim, troupe.run):
        assert where in fails(troupe.Error, lambda: train("teacher-mlp", {**FOUR, **sets}), OSError)
    type("Good", of[:1], {"name": name, "summary": "does not"})  # conformance tries policies with every schedule


def test_what_does_not_fit_is_refused(fails):
    many = {"pipeline.micro_batches": 64, "data.batch_size": 64, **named("pipeline.schedule", "my_gpipe")}
    assert "64 micro-batches are too many" in fails(troupe.UsageError, lambda: troupe.sim("teacher-mlp", many))
    wrong = {**FOUR, **named("optimizer", "aggmo", a=3)}
    assert "optimizer.custom.values.a" in fails(troupe.UsageError, lambda: troupe.sim("teacher-mlp", wrong))


def test_both_clocks_and_a_resumed_run_have_the_same_bits(tmp_path):
    how = {**LATE, **named("optimizer", "my_momentum"), **named("pipeline.schedule", "eager_one_f_one_b"),
           "pipeline.weights": "stash"}
    whole = troupe.sim("teacher-mlp", how)
    assert whole.sha256 == troupe.run("teacher-mlp", how).sha256
    coded = {**FOUR, **named(UP, "my_sign")}
    whole = troupe.sim("teacher-mlp", coded)
    troupe.sim("teacher-mlp", coded, record={"checkpoint": {"every": 20, "keep": 9}}, out=tmp_path / "run")
    assert troupe.resume(tmp_path / "run" / "checkpoints" / "step-20").sha256 == whole.sha256


def test_other_processes_import_the_modules_of_schemes(fails):
    how = {**SHORT, "pipeline.stages": 2, **named("optimizer", "my_momentum"), "pipeline.weights": "stash"}
    assert troupe.run("teacher-mlp", how, processes=2).sha256 == troupe.sim("teacher-mlp", how).sha256
    type("Here", (Momentum,), {"name": "defined_here", "__module__": "__main__"})
    assert "put it into a module" in fails(
        troupe.UsageError, lambda: troupe.run("teacher-mlp", {**how, **named("optimizer", "defined_here")}, processes=2))
