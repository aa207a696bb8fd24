"""Schemes in Python, beside the programs of tests/package that have the same ones in C++."""

import math
import time

import numpy as np
import pytest
from conftest import FLUSHED

import troupe

FOUR = {**FLUSHED, "replicas.count": 4, "stop.updates": 60}


class HalfLife(troupe.Rule):
    name = "half_life"
    summary = "a gradient's weight halves with each half-life it is late"
    options = [troupe.Option("half_life", doc="updates; 0: R", at_least=0)]
    bears_delay = True

    def half_life(self):
        return self.options["half_life"] or self.replicas

    def weight(self, of, update):
        return math.exp2(-of.lag / self.half_life())


class Limited(HalfLife):
    name = "half_life_limited"
    summary = "half_life; what is `limit` half-lives late is dropped"
    options = [*HalfLife.options, troupe.Option("limit", 3, "half-lives", at_least=0)]

    def accepts(self, push, ledger):
        return ledger.version - push.read_version < self.half_life() * self.options["limit"]

    def choose(self, waiting, ledger, now):
        kept = [i for i, push in enumerate(waiting) if self.accepts(push, ledger)]
        return kept[:1], [i for i in range(len(waiting)) if i not in kept]


class FadingTrust(troupe.Policy):
    name = "fading_trust"
    summary = "spectrain that believes less of each further update"
    options = [troupe.Option("trust", 0.8, "of the next update", 0, 1)]
    predicts = True

    def forward(self, action):
        return action.natural, "linear", action.distance

    def length(self, horizon):
        total = 0.0
        for _ in range(horizon):
            total = self.options["trust"] * (1 + total)
        return total


class GoSgd(troupe.Exchange):
    name = "gosgd"
    summary = "gossip: now and then a replica sends its weights to another one"
    options = [troupe.Option("probability", 0.2, "of telling somebody after a step", 0, 1)]

    def __init__(self, *args):
        super().__init__(*args)
        self.share, self.letters = 1 / self.replicas, []

    def heard(self, what, numbers, arrays):
        self.letters.append((numbers[0], arrays))

    def mix(self, own):
        if not self.letters:
            return None
        letters, self.letters = self.letters, []
        share = self.share
        self.share += sum(theirs for theirs, _ in letters)

        def job():
            total, mixed = share, own
            for theirs, arrays in letters:
                kept = total / (total + theirs)
                mixed = [np.float32(kept) * x + np.float32(1 - kept) * y for x, y in zip(mixed, arrays)]
                total += theirs
            return mixed

        return job

    def settled(self, step, weights, tell):
        others = self.replicas - 1
        other = (self.replica + 1 + self.random.below(2 * step, others)) % (others + 1)
        if self.random.uniform(2 * step + 1) < self.options["probability"] and tell(other, "gossip", [self.share / 2]):
            self.share /= 2

    def state(self):
        return [self.share, *(share for share, _ in self.letters)], [x for _, arrays in self.letters for x in arrays]

    def restore(self, numbers, arrays):
        self.share, *shares = numbers
        each = len(arrays) // len(shares) if shares else 0
        self.letters = [(share, arrays[i * each:(i + 1) * each]) for i, share in enumerate(shares)]


RULE = {**FOUR, "replicas.rule.custom.name": "half_life"}
LIMITED = {**FOUR, "replicas.rule.custom.name": "half_life_limited", "replicas.rule.custom.values.half_life": 1}
TRUST = {"stop.updates": 60, "pipeline.weights.custom.name": "fading_trust"}
GOSSIP = {**FOUR, "replicas.exchange.custom.name": "gosgd"}


def test_a_policy_that_says_what_spectrain_does_is_spectrain():
    full = {**TRUST, "pipeline.weights.custom.values.trust": 1}
    assert troupe.sim("teacher-mlp", full).sha256 == \
        troupe.sim("teacher-mlp", {"stop.updates": 60, "pipeline.weights": "spectrain"}).sha256


@pytest.mark.parametrize("name", ["half_life", "half_life_limited", "fading_trust", "gosgd"])
def test_conformance(name):
    found = troupe.conformance(name)
    assert found and not [one for one in found if not one.holds], found


def test_conformance_names_what_is_broken():
    class Random(troupe.Rule):
        name, summary, bears_delay = "by_the_dice", "differs from run to run", True

        def weight(self, of, update):
            return float(np.random.default_rng().random())

    assert any(not one.holds for one in troupe.conformance("by_the_dice"))


def test_a_cell_may_be_run_again():
    def define(factor):
        class Again(troupe.Rule):
            name, summary, options = "again", "times a number", [troupe.Option(f"option_{factor}")]

            def weight(self, of, update):
                return factor

        return troupe.sim(
            "teacher-mlp", {**FOUR, "replicas.rule.custom.name": "again",
                            f"replicas.rule.custom.values.option_{factor}": 1}).sha256

    one, half = define(1), define(0)
    assert one != half and define(1) == one


def test_options_of_a_function_come_by_keyword_alone_and_have_defaults():
    with pytest.raises(TypeError, match=r"slips: half_life is no option.*write \*, before it"):
        troupe.rule("slips")(lambda of, update, half_life=4.0: 1)
    with pytest.raises(TypeError, match="slips: the option half_life has no default"):
        troupe.rule("slips")(lambda of, update, *, half_life: 1)


def test_an_exception_in_a_scheme_is_the_cause(fails):
    class Bad(troupe.Rule):
        name, summary, bears_delay = "bad", "fails", True

        def weight(self, of, update):
            raise OSError("as it was to")

    for train in (troupe.sim, troupe.run, lambda *how: troupe.compare(how[0], sets=how[1])):
        assert "bad.weight: OSError: as it was to" in fails(
            troupe.Lost, lambda: train("teacher-mlp", {**FOUR, "replicas.rule.custom.name": "bad"}), OSError)


def test_half_a_million_callbacks_take_less_than_a_second():
    """Of processor time, beside the same run without them."""
    class Calls(troupe.Rule):
        name, summary, bears_delay = "calls", "three for each gradient", True

        def weight(self, of, update):
            return 1.0

        def rate_share(self, of, update):
            return 1.0

        def accepts(self, push, ledger):
            return True

    updates = 30_000
    small = {**FOUR, "model.mlp.hidden": [2], "data.batch_size": 2, "stop.epochs": 0, "stop.updates": updates, "replicas.rate_factor": 1,
             "record.every": updates, "record.evaluate": False, "record.gap_every": 0}

    def seconds(sets):
        began = time.process_time()
        assert troupe.sim("teacher-mlp", {**small, **sets}).summary["updates"] == updates
        return time.process_time() - began

    ours, plain = zip(*((seconds({"replicas.rule.custom.name": "calls"}), seconds({})) for _ in range(2)))
    assert (min(ours) - min(plain)) / (3 * updates) < 1 / 500_000


def test_an_exchange_goes_on_from_a_checkpoint(tmp_path):
    whole = troupe.sim("teacher-mlp", GOSSIP)
    troupe.sim("teacher-mlp", GOSSIP, record={"checkpoint": {"every": 20, "keep": 9}}, out=tmp_path)
    first = min((tmp_path / "checkpoints").glob("step-*"), key=lambda path: int(path.name.split("-")[1]))
    assert troupe.resume(first).sha256 == whole.sha256
