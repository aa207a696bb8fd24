"""Decoupled schemes, extensions, schedules of several chunks, and schemes that are one function each."""

import math
from collections import Counter

import numpy as np
import pytest
from conftest import FLUSHED
from parts_test import LATE, named
from schemes_test import FOUR

import troupe

SHORT = {"stop.updates": 60, "pipeline.stages": 3}
F = np.float32


@troupe.decoupled("target_projection", options=[troupe.Option("strength", 1, at_least=0, at_most=1000)])
def target_projection(module, inputs, *, strength=1.0):
    """the label alone, through a fixed random matrix of each module"""
    b = module.matrix(f"projection{module.chunk}", module.classes, module.width)
    return F(-F(strength) / F(len(inputs.labels))) * b[inputs.labels]


class Feedback(troupe.Decoupled):
    name, summary, signal_from = "my_direct_feedback", "the error at the output through a fixed matrix", "head"

    def __init__(self, *args):
        super().__init__(*args)
        self.b = self.module.matrix(f"feedback{self.module.chunk}", self.module.outputs, self.module.width)

    def error(self, inputs):
        assert inputs.labels is None and inputs.influence is None
        return inputs.sent @ self.b


class Backpropagation(troupe.Decoupled):
    name, summary, signal_from = "my_backpropagation", "by the weights that the forward read", "next"

    def __init__(self, *args):
        super().__init__(*args)
        self.initial = self.module.initial(self.module.seed)

    def backward(self, read):
        assert [x.shape for x in read] == [x.shape for x in self.initial]
        with pytest.raises(ValueError, match="for __init__ alone"):
            self.module.initial(1)
        return [x.copy() for x in read]


class FixedFeedback(Backpropagation):
    name, summary = "my_feedback_alignment", "errors go back through the weights at the start"

    def backward(self, read):
        for slice, offset, elements in self.module.weights:
            read[slice] = read[slice].copy()
            read[slice][offset:offset + elements] = self.initial[slice][offset:offset + elements]
        return read


class Greedy(troupe.Decoupled):
    name, summary, signal_from = "my_greedy", "a head of the module's own", "predictor"
    options = [troupe.Option("width", 16, "of the head's hidden layer", 1)]

    def predictor(self):
        return {"hidden": [int(self.options["width"])], "head": True}


class Plateau(troupe.Extension):
    name, summary = "plateau", "halves the learning rate whenever the training loss no longer falls"
    options = [troupe.Option("window", 100, "micro-batches", 1), troupe.Option("least", 0.02, "share", 0, 1)]

    def __init__(self, *args):
        super().__init__(*args)
        self.sum, self.heard, self.best, self.factor = 0.0, 0, math.inf, 1.0

    def loss(self, of, now):
        self.sum += of.loss
        self.heard += 1
        if self.heard < self.options["window"]:
            return None
        mean, self.sum, self.heard = self.sum / self.heard, 0.0, 0
        if math.isinf(self.best) or mean < self.best * (1 - self.options["least"]):
            self.best = mean
            return None
        self.factor /= 2
        return self.factor

    def state(self):
        return [self.sum, self.heard, self.best, self.factor], []

    def restore(self, numbers, arrays):
        self.sum, self.heard, self.best, self.factor = numbers


class Interleaved(troupe.Schedule):
    name, summary, flushed = "my_interleaved", "1F1B with v chunks for each stage", True
    options = [troupe.Option("v", 2, "chunks a stage", 1)]

    def chunks(self):
        return int(self.options["v"])

    def fits(self, stages, micro_batches):
        return "" if micro_batches % stages == 0 else "it works in groups of K micro-batches"

    def write(self, s):
        def place(act, i, back=False):
            group, turn = i // (s.v * s.K), i // s.K % s.v
            act(group * s.K + i % s.K, (s.v - 1 - turn if back else turn) * s.K + s.stage)

        every = s.v * s.M
        ahead = every if s.M == s.K else min(every, 2 * s.to_loss + (s.v - 1) * s.K)
        s.begin_period()
        for i in range(ahead):
            place(s.forward, i)
        for i in range(every):
            if ahead + i < every:
                place(s.forward, ahead + i)
            place(s.backward, i, back=True)
        for turn in reversed(range(s.v)):
            s.update(0, turn * s.K + s.stage)


class InV(troupe.Schedule):
    """Down through the stages and up again, so that stage 0 has the loss."""

    name, summary, flushed = "gpipe_in_v", "all forwards, all backwards, of two chunks a stage", True

    def place(self, stages):
        return [*range(stages), *reversed(range(stages))]

    def write(self, s):
        down, up = s.stage, 2 * s.K - 1 - s.stage
        s.begin_period()
        for act, chunks in ((s.forward, (down, up)), (s.backward, (up, down))):
            for chunk in chunks:
                for j in range(s.M):
                    act(j, chunk)
        s.update(0, up)
        s.update(0, down)


@troupe.rule("faded", bears_delay=True)
def faded(of, update, *, half_life=4.0):
    """a gradient's weight halves with each half-life it is late

    More is not in the summary."""
    return math.exp2(-of.lag / half_life)


@troupe.rule("shared", method="rate_share", bears_delay=True)
def shared(of, update):
    return 1 / max(1, of.lag)


@troupe.policy("by_reach", predicts=True)
def by_reach(action):
    """what spectrain reads"""
    return action.natural, "linear", action.distance


@troupe.optimizer("descent", plain=True)
def descent(n, w, g, w_new, moments):
    direction = F(n.gradient_scale) * g
    w_new[:] = w - F(n.rate) * direction
    return direction


@troupe.schedule("one_by_one", flushed=True)
def one_by_one(s):
    s.begin_period()
    for j in range(s.M):
        s.forward(j)
    for j in range(s.M):
        s.backward(j)
    s.update(0)


@troupe.extension("listens")
def listens(of, now):
    assert of.rows > 0 and 0 <= of.correct <= of.rows and now >= 0


UNLOCKED = {**SHORT, "pipeline.schedule": "sequential"}
PLATEAU = {**FOUR, "pipeline.schedule": "one_f_one_b", **named("extension", "plateau", window=9, least=0.2)}
DEEP = {"stop.updates": 30, "pipeline.stages": 2, "pipeline.micro_batches": 4, "pipeline.weights": "latest"}

# As in parts_test: what is written in Python, and the program and keys of the same in C++.
TWINS = {
    "target_projection": ({**UNLOCKED, **named("decoupled", "target_projection", strength=0.5)}, "my_module",
                          {**UNLOCKED, **named("decoupled", "target_projection", strength=0.5)}),
    "backpropagation": ({**SHORT, **named("decoupled", "my_backpropagation")}, None, SHORT),
    "greedy": ({**UNLOCKED, **named("decoupled", "my_greedy", width=8)}, None,
               {**UNLOCKED, "decoupled.greedy.width": 8, "decoupled.greedy.depth": 1}),
    "plateau": (PLATEAU, "my_extension", PLATEAU),
    "interleaved": ({**DEEP, **named("pipeline.schedule", "my_interleaved")}, None,
                    {**DEEP, "pipeline.schedule.interleaved.chunks": 2}),
    "rule": ({**FOUR, **named("replicas.rule", "faded", half_life=2)}, "my_troupe",
             {**FOUR, **named("replicas.rule", "half_life", half_life=2)}),
    "rate_share": ({**FOUR, "replicas.rate_factor": 1, **named("replicas.rule", "shared")}, None,
                   {**FOUR, "replicas.rate_factor": 1, "replicas.rule": "staleness_aware"}),
    "policy": ({**LATE, **named("pipeline.weights", "by_reach")}, None, {**LATE, "pipeline.weights": "spectrain"}),
    "schedule": ({**SHORT, "pipeline.weights": "latest", **named("pipeline.schedule", "one_by_one")}, None,
                 {**SHORT, "pipeline.weights": "latest", "pipeline.schedule": "gpipe"}),
    "optimizer": ({**LATE, **named("optimizer", "descent")}, None, {**LATE, "optimizer.rule": "sgd"}),
    "extension": ({**FOUR, **named("extension", "listens")}, None, FOUR),
}


@pytest.mark.parametrize("twin", TWINS)
def test_the_same_scheme_in_cpp_has_the_same_bits(cpp, twin):
    mine, program, theirs = TWINS[twin]
    made = troupe.sim("teacher-mlp", mine).sha256
    assert made == (cpp(program, "teacher-mlp", theirs) if program else troupe.sim("teacher-mlp", theirs).sha256)


def test_the_error_at_the_output_and_fixed_weights_train_as_those_built_in():
    head = troupe.sim("teacher-mlp", {**SHORT, **named("decoupled", "my_direct_feedback")})
    built_in = troupe.sim("teacher-mlp", {**SHORT, "decoupled": "direct_feedback_alignment"})
    assert np.allclose(head.losses, built_in.losses, rtol=1e-5)  # numpy adds up products in another order
    fixed = {**SHORT, **named("decoupled", "my_feedback_alignment")}
    assert troupe.sim("teacher-mlp", fixed).sha256 != troupe.sim("teacher-mlp", SHORT).sha256
    losses = troupe.sim("teacher-mlp", fixed).losses
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("sets", [
    {**UNLOCKED, **named("decoupled", "target_projection")}, {**SHORT, **named("decoupled", "my_direct_feedback")},
    {**DEEP, **named("pipeline.schedule", "my_interleaved")}, {**DEEP, **named("pipeline.schedule", "gpipe_in_v")}])
def test_both_clocks_and_a_resumed_run_have_the_same_bits(tmp_path, sets):
    whole = troupe.sim("teacher-mlp", sets)
    assert troupe.run("teacher-mlp", sets).sha256 == whole.sha256
    troupe.sim("teacher-mlp", sets, record={"checkpoint": {"every": 10, "keep": 9}}, out=tmp_path)
    assert troupe.resume(tmp_path / "checkpoints" / "step-10").sha256 == whole.sha256


def test_an_extension_goes_on_from_a_checkpoint(tmp_path):
    whole = troupe.sim("teacher-mlp", PLATEAU)
    assert whole.sha256 != troupe.sim("teacher-mlp", FOUR).sha256  # it has lowered the rate
    troupe.sim("teacher-mlp", PLATEAU, record={"checkpoint": {"every": 20, "keep": 9}}, out=tmp_path)
    assert troupe.resume(tmp_path / "checkpoints" / "step-20").sha256 == whole.sha256


@pytest.mark.parametrize("pipe", [FOUR, {**LATE, "stop.updates": 30}])
def test_an_extension_hears_of_every_update(pipe):
    seen, losses = [], []

    class Hears(troupe.Extension):
        name, summary = "hears", "keeps what it hears"

        def applied(self, of, now):
            assert of.rate > 0 and of.lag >= 0
            seen.append((of.replica, of.chunk, of.batch, of.version, of.lag))

        def loss(self, of, now):
            losses.append(of.loss)

    run = troupe.sim("teacher-mlp", pipe, extension={"custom": {"name": "hears"}}, record={"every": 1})
    assert run.sha256 == troupe.sim("teacher-mlp", pipe).sha256
    chunks = max(chunk for _, chunk, *_ in seen) + 1
    assert len(seen) == chunks * run.summary["updates"]
    assert sorted(v for _, chunk, _, v, _ in seen if chunk == 0) == list(range(1, run.summary["updates"] + 1))
    told = {(int(shard.split("-")[1]), late): count for shard, late, count in
            zip(run.staleness["shard"], run.staleness["staleness"], run.staleness["gradients"])}
    assert Counter((chunk, lag) for _, chunk, _, _, lag in seen) == told
    assert len(losses) >= run.summary["updates"]


@pytest.mark.parametrize("name", ["target_projection", "my_direct_feedback", "my_backpropagation", "my_feedback_alignment",
                                  "my_greedy", "plateau", "listens", "my_interleaved", "gpipe_in_v", "faded", "by_reach", "descent",
                                  "one_by_one"])
def test_conformance(name):
    found = troupe.conformance(name)
    assert found and not [one for one in found if not one.holds], found


def test_conformance_names_what_is_broken():
    class Forgets(Plateau):
        name, summary = "forgets", "begins anew after a checkpoint"

        def state(self):
            return [0.0, 0, math.inf, 1.0], []

    class Dice(troupe.Decoupled):
        name, summary = "dice", "an error at random"

        def error(self, inputs):
            return np.random.default_rng().normal(size=inputs.output.shape).astype(F) / F(100)

    class First(troupe.Decoupled):
        name, summary = "first_row", "the first row learns twice as fast"

        def error(self, inputs):
            error = inputs.output / F(len(inputs.output))
            error[0] *= 2
            return error

    @troupe.schedule("too_early", flushed=True)
    def too_early(s):
        s.begin_period()
        s.backward(0)
        s.forward(0)
        s.update(0)

    how = {"forgets": {"window": 5, "least": 0.5}}
    broken = {name: [one.check for one in troupe.conformance(name, how.get(name)) if not one.holds]
              for name in ("forgets", "dice", "first_row", "too_early")}
    assert broken == {"forgets": ["resume"], "dice": ["pure", "rows", "replay", "resume"], "first_row": ["rows"],
                      "too_early": ["order"]}


@pytest.mark.parametrize("make, sentence", [
    (lambda: type("Far", (InV,), {"name": "far_away", "summary": "", "place": lambda self, stages: [0, stages]}),
     "there is no stage 2 of 2"),
    (lambda: type("None", (Interleaved,), {"name": "no_chunks", "summary": "", "chunks": lambda self: 0}), "0 chunks a stage"),
    (lambda: type("Other", (InV,), {"name": "others_chunk", "summary": "", "write": lambda self, s: s.forward(0, 77)}),
     "has no chunk 77")])
def test_a_schedule_of_chunks_that_are_not_there_is_refused(fails, make, sentence):
    with pytest.raises(troupe.Error, match=sentence):
        troupe.sim("teacher-mlp", {**DEEP, **named("pipeline.schedule", make().name)})
    type("Good", (InV,), {"name": make().name, "summary": "is not broken"})  # conformance tries policies with every schedule


@pytest.mark.parametrize("name, facts, sets, sentence", [
    ("bad_shape", {"error": lambda self, inputs: np.zeros(3, F)}, UNLOCKED, "bad_shape.error returned an array of 3 numbers"),
    ("bad_slices", {"signal_from": "next", "backward": lambda self, read: read[:-1]}, SHORT, "bad_slices.backward returned 0 slices"),
    ("bad_plan", {"signal_from": "predictor", "predictor": lambda self: {"hiden": [8]}}, UNLOCKED, "a predictor has no hiden")])
def test_what_a_decoupled_scheme_returns_is_checked(name, facts, sets, sentence):
    type("Bad", (troupe.Decoupled,), {"name": name, "summary": "fails", **facts})
    for train in (troupe.sim, troupe.run):
        with pytest.raises(troupe.Error, match=sentence):
            train("teacher-mlp", {**sets, **named("decoupled", name)})


def test_an_exception_in_one_is_the_cause(fails):
    def raises(self, *_):
        raise OSError("as it was to")

    type("Bad", (troupe.Decoupled,), {"name": "bad_module", "summary": "fails", "error": raises})
    type("Bad", (troupe.Extension,), {"name": "bad_extension", "summary": "fails", "loss": raises})
    for train in (troupe.sim, troupe.run):
        assert "bad_module.error: OSError" in fails(
            troupe.Error, lambda: train("teacher-mlp", {**UNLOCKED, **named("decoupled", "bad_module")}), OSError)
        assert "bad_extension.loss: OSError" in fails(
            troupe.Error, lambda: train("teacher-mlp", {**FOUR, **named("extension", "bad_extension")}), OSError)
    with pytest.raises(ValueError, match="signal_from is next, head, nobody or predictor"):
        type("Bad", (troupe.Decoupled,), {"name": "bad_source", "summary": "", "signal_from": "everybody"})


def test_a_function_can_be_called_as_before_and_says_what_it_is():
    class Of:
        lag = 4

    assert faded(Of, None) == 0.5 and faded(Of, None, half_life=2) == 0.25
    said = troupe.explain("faded")
    assert "a gradient's weight halves" in said and "More is not" not in said and "half_life" in said
