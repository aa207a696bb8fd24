"""Schemes of one's own: a class each, known by its `name` as soon as it is defined. To define it again takes its place."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Callable, Mapping, Sequence

import numpy as np

from . import _troupe


@dataclass
class Option:
    """A number that an experiment may give a scheme, `....custom.values.NAME=value`."""

    name: str
    default: float = 0.0
    doc: str = ""  # one sentence, with the unit
    at_least: float = -math.inf
    at_most: float = math.inf


class _Scheme:
    name = ""
    summary = ""
    paper = ""
    equations = ""
    memory = ""
    options: Sequence[Option] = ()


class Rule(_Scheme):
    """What a parameter server does with a late gradient; one object a server. Chosen by replicas.rule.custom.name. Methods,
    each as needed:

    weight(self, of, update) -> float       a factor on the gradient
    rate_share(self, of, update) -> float   a factor on the learning rate
    correct(self, g, w, of, update) -> g    another gradient, (n) float32; g and w are not to be written to
    accepts(self, push, ledger) -> bool     False: the push is dropped
    choose(self, waiting, ledger, now) -> (take, drop)   which of the waiting pushes make the next update

    `of`: replica, mini_batches, steps, lag (versions), rate. `update`: version, rate, next_rate, contributions. `push`:
    replica, batch, mini_batches, read_version, time. `ledger`: version, living, slowest. accepts() and choose() decide by
    their arguments alone.
    """

    bears_delay = False  # what is a good learning rate for one replica is one for many
    gives_up = False     # it drops pushes

    def __init__(self, options: Mapping[str, float], replicas: int) -> None:
        self.options, self.replicas = options, replicas

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.name:
            _troupe.register_rule(cls)


class Policy(_Scheme):
    """Which weights a forward reads; its backward reads the same. Chosen by pipeline.weights.custom.name.

    forward(self, action) -> (step, reach, horizon)   reach: "none", "linear", "geometric" or "displacement"
    length(self, horizon) -> float                    updates that a linear reach of this horizon moves by; else horizon

    `action`: chunk, batch, micro_batch, natural (the step that is newest without a pipeline's delay), distance.
    """

    reads = ""
    predicts = False

    def __init__(self, options: Mapping[str, float]) -> None:
        self.options = options

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.name:
            _troupe.register_policy(cls)


class Exchange(_Scheme):
    """How replicas share what they learn, without servers; one object a chunk of a replica. Chosen by
    replicas.exchange.custom.name. Arrays are slices of the chunk's weights, (n) float32, and not to be written to.

    heard(self, what, numbers, arrays)       a peer has told something
    mix(self, own) -> None or job            job() -> the next weights, new arrays, on the optimizer's thread
    settled(self, step, weights, tell)       tell(replica, what, numbers) -> bool sends these weights; False: it is gone
    state(self) -> (numbers, arrays)         for checkpoints, with
    restore(self, numbers, arrays)           which takes them back

    `random`: uniform(index) in [0, 1) and below(index, n), a function of the seed, the replica and the index.
    """

    memory = "no server"

    def __init__(self, options: Mapping[str, float], replica: int, replicas: int, seed: int) -> None:
        self.options, self.replica, self.replicas = options, replica, replicas
        self.random = _troupe.RandomStream(seed, replica)

    def heard(self, what: str, numbers: list[float], arrays: list[np.ndarray]) -> None:
        pass

    def mix(self, own: list[np.ndarray]) -> Callable[[], list[np.ndarray]] | None:
        return None

    def settled(self, step: int, weights: list[np.ndarray], tell: Callable[[int, str, list[float]], bool]) -> None:
        pass

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.name:
            _troupe.register_exchange(cls)
