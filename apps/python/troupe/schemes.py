"""Schemes of one's own: a class each, known by its `name` as soon as it is defined. To define it again takes its place."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Callable, Mapping, Sequence

import numpy as np

from . import _troupe
from ._command import UsageError


@dataclass
class Option:
    """A number that an experiment may give a scheme, `....custom.values.NAME=value`."""

    name: str
    default: float = 0.0
    doc: str = ""  # one sentence, with the unit
    at_least: float = -math.inf
    at_most: float = math.inf


modules: set[tuple[str, str]] = set()  # a scheme's name, and the module that it is of


class _Scheme:
    name = ""
    summary = ""
    paper = ""
    equations = ""
    memory = ""
    options: Sequence[Option] = ()
    _register: Callable[[type], None]

    def __init__(self, options: Mapping[str, float]) -> None:
        self.options = options  # type: ignore[assignment]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.name:
            cls._register(cls)
            modules.add((cls.name, cls.__module__))


class Rule(_Scheme):
    """What a parameter server does with a late gradient; one object a server. Chosen by replicas.rule.custom.name. Methods,
    each as needed:

    weight(self, of, update) -> float       a factor on the gradient
    rate_share(self, of, update) -> float   a factor on the learning rate
    correct(self, g, w, of, update) -> g    another gradient, (n) float32; g and w are not to be written to
    accepts(self, push, ledger) -> bool     False: the push is dropped
    choose(self, waiting, ledger, now) -> (take, drop)   which of the waiting pushes make the next update
    pushes(self) -> int                     how many make an update, in the mean; else one

    `of`: replica, mini_batches, steps, lag (versions), rate. `update`: version, rate, next_rate, contributions. `push`:
    replica, batch, mini_batches, read_version, time. `ledger`: version, living, slowest. accepts() and choose() decide by
    their arguments alone.
    """

    _register = staticmethod(_troupe.register_rule)
    bears_delay = False  # what is a good learning rate for one replica is one for many
    gives_up = False     # it drops pushes

    def __init__(self, options: Mapping[str, float], replicas: int) -> None:
        super().__init__(options)
        self.replicas = replicas


class Policy(_Scheme):
    """Which weights a forward reads. Chosen by pipeline.weights.custom.name.

    forward(self, action) -> (step, reach, horizon)   reach: "none", "linear", "geometric" or "displacement"
    backward(self, action) -> (step, reach, horizon)  without it a backward reads what its forward did
    length(self, horizon) -> float                    updates that a linear reach of this horizon moves by; else horizon

    `action`: chunk, batch, micro_batch, natural (the step that is newest without a pipeline's delay), distance.
    """

    _register = staticmethod(_troupe.register_policy)
    reads = ""
    predicts = False
    newest_only = False  # forward and backward read what is newest


class Exchange(_Scheme):
    """How replicas share what they learn, without servers; one object a chunk of a replica. Chosen by
    replicas.exchange.custom.name. Arrays are slices of the chunk's weights, (n) float32, and not to be written to.

    heard(self, what, numbers, arrays)       a peer has told something
    stepped(self, step, before, own, tell)   the replica's own step is made: its weights before and behind it
    complete(self, step, living) -> bool     whether all has come that the step waits for; `living`: who makes it, too
    mix(self, own) -> None or job            job() -> the next weights, new arrays, on the optimizer's thread
    settled(self, step, weights, tell)       the next weights are decided
    state(self) -> (numbers, arrays)         for checkpoints, with
    restore(self, numbers, arrays)           which takes them back

    tell(replica, what, numbers, arrays=None) -> bool sends arrays, or these weights; False: who is told is gone. It is for that
    call alone.
    `random`: uniform(index) in [0, 1) and below(index, n), a function of the seed, the replica and the index.
    """

    _register = staticmethod(_troupe.register_exchange)
    memory = "no server"

    def __init__(self, options: Mapping[str, float], replica: int, replicas: int, seed: int) -> None:
        super().__init__(options)
        self.replica, self.replicas = replica, replicas
        self.random = _troupe.RandomStream(seed, replica)

    def heard(self, what: str, numbers: list[float], arrays: list[np.ndarray]) -> None:
        pass

    def mix(self, own: list[np.ndarray]) -> Callable[[], list[np.ndarray]] | None:
        return None

    def settled(self, step: int, weights: list[np.ndarray], tell: Callable[[int, str, list[float]], bool]) -> None:
        pass


class Optimizer(_Scheme):
    """How weights are moved; all of a slice at once. Chosen by optimizer.custom.name. There is a new object for each update:
    only the moments are kept.

    update(self, numbers, w, g, w_new, moments) -> direction

    w, g, w_new and each of the `moments`: (n) float32. It writes w_new, which may be w, and the moments, which are zero at
    first, and returns what predictions reach along: w_new minus rate times their horizon times it. g is to be multiplied by
    numbers.gradient_scale. `numbers`: update (1, 2, ...), rate, gradient_scale, delay (updates), and momentum, beta2, epsilon,
    weight_decay of the experiment's optimizer. Where w, g and the moments are 0 it leaves 0.
    """

    _register = staticmethod(_troupe.register_optimizer)
    moments = 0                 # arrays that are kept
    heavy_ball = False          # v = momentum v + g; w -= rate v
    plain = False               # it moves along g or g's velocity and does nothing else
    decays_gradient = False     # weight decay is added to the gradient
    discounts_gradient = False  # the share of a new gradient in the step is 1 - momentum


class Codec(_Scheme):
    """How what travels between replicas and servers is compressed; one object a slice and direction. Chosen by
    replicas.codec.up.custom.name, or down.

    encode(self, x, random, number) -> words   x: (n) float32; the message, an array of uint32; `number`: of messages before;
                                               random.uniform(i), random.below(i, n): each i once a message
    decode(self, words, n) -> x                (n) float32; raises ValueError where it is no message for n numbers
    prepare(self, x, kept) -> x                where it `keeps`: what is encoded in place of x
    sent(self, decoded, kept)                  where it `keeps`: after each message; `kept`: (n), written in place, 0 at first

    `parts`: (name, offset, shape) of each tensor of the slice.
    """

    _register = staticmethod(_troupe.register_codec)
    bytes = ""        # of a message
    forgets = ""      # what a message leaves out
    feedback = True   # what a message leaves out goes with the next, unless replicas.codec.feedback says otherwise
    keeps = False     # it has numbers of its own at the sender
    whole = False     # it makes sense of whole weights, not of differences alone
    velocity = False  # it is a momentum of the gradients, so that the servers' step has none

    def __init__(self, options: Mapping[str, float], elements: int, replicas: int,
                 parts: Sequence[tuple[str, int, tuple[int, ...]]]) -> None:
        super().__init__(options)
        self.elements, self.replicas, self.parts = elements, replicas, parts


class Schedule(_Scheme):
    """In which order a stage works. Chosen by pipeline.schedule.custom.name.

    write(self, s)                                  says what stage s.stage of s.K does, with s.M micro-batches a mini-batch
                                                    and s.to_loss stages behind it, by s.forward(n), s.backward(n) (or
                                                    input_gradient and weight_gradient) and s.update(batch), micro-batches
                                                    counted through; after s.begin_period(): what comes once a mini-batch
    fits(self, stages, micro_batches) -> sentence   why it is not for these; "": it is

    Of several chunks a stage, one of:
    chunks(self) -> v                               stage k has the chunks k, K+k, 2K+k, ..., v (s.v) in all
    place(self, stages) -> list                     the stage of each chunk, 0 first
    and write() says which chunk it means: s.forward(n, chunk), s.update(batch, chunk), ...
    """

    _register = staticmethod(_troupe.register_schedule)
    flushed = False  # no mini-batch starts before the last one's update: there is nothing before begin_period()
    fills = True     # micro-batches are in several stages at once
    staleness = ""   # formula
    bubble = ""      # idle time of a mini-batch and stage


class Decoupled(_Scheme):
    """Where modules, the parts of a network that was cut, get their error signals. Chosen by decoupled.custom.name.
    `signal_from` says whom a module waits for:

    "nobody"     error() makes its signal of its own output and the labels
    "head"       error() makes it of dL/d(output of the network), and with `influence` of what the next module sends, too
    "next"       as in backpropagation; backward() says by which weights errors go back
    "predictor"  an estimate, or a head of the module's own: predictor()

    error(self, inputs) -> array          the mean loss's gradient by the module's output, float32 in that one's shape.
                                          `inputs`: output (rows, ...), and where they are sent labels (rows), sent (rows, ...)
                                          and influence (rows, ...), else None. Of texts a row is a position
    backward(self, read) -> arrays        in place of the slices of weights, (n) each, that it reads; not to be written to
    predictor(self) -> dictionary         hidden=[widths], kernel, conditioned, head, pool, similarity, buffer, each as needed

    One object a module, which does not change: no checkpoint holds it. `module` (None where there is predictor()): seed, chunk,
    width (numbers of its output, of a row), outputs (of the network), classes, weights ((slice, offset, elements) of what its
    layers multiply by), matrix(name, rows, columns), of U(-1, 1) / sqrt(columns) and the same for the same seed and name, and
    in __init__ initial(seed), the slices as another seed would start them.
    """

    _register = staticmethod(_troupe.register_decoupled)
    signal_from = "nobody"
    influence = False  # with "head"
    locks = ""         # which remain

    def __init__(self, options: Mapping[str, float], module: Any) -> None:
        super().__init__(options)
        self.module = module


class Extension(_Scheme):
    """An actor more: it hears what the others do, and may change the learning rate while a run goes on. One object a run.
    Chosen by extension.custom.name. Methods, each as needed:

    loss(self, of, now) -> factor or None      of each micro-batch: replica, batch, micro_batch, rows, loss (mean of the rows),
                                               correct (rows that are predicted right)
    applied(self, of, now) -> factor or None   of each update: replica, chunk, batch, version, lag (versions), rate
    state(self) -> (numbers, arrays)           for checkpoints, with
    restore(self, numbers, arrays)             which takes them back

    `now`: seconds of the run's clock. `factor`: what all learning rates are multiplied by from now on, instead of the last one.
    One that returns None only changes no bit of the weights. It needs all actors in one process.
    """

    _register = staticmethod(_troupe.register_extension)

    def __init__(self, options: Mapping[str, float], replicas: int) -> None:
        super().__init__(options)
        self.replicas = replicas


class Layer(_Scheme):
    """A layer of a network: `layer { custom { name: "..." } }` in model.layers. One object serves all threads; `input`: the
    shape of a sample. Its __init__ sets `parameters`, of ("weight", shape, "zero", "one" or "uniform") each, and `output`,
    the shape of a sample behind it, if that is another one.

    forward(self, w, x, how) -> (y, kept)             x: (rows, *input) float32, w: an array a parameter; `how`: training, seed,
                                                      first_sample, which say all that it may draw at random
    backward(self, w, kept, dy) -> (dx, gradients)    the latter one a parameter; w may be other weights than the forward's

    conformance() holds its gradients beside differences.
    """

    _register = staticmethod(lambda cls: _troupe.register_layer(cls, lambda *how: _Bound(cls, *how)))
    tokens = False  # x may be int32 tokens

    def __init__(self, options: Mapping[str, float], input: tuple[int, ...]) -> None:
        super().__init__(options)
        self.input = self.output = input
        self.parameters: Sequence[tuple[str, tuple[int, ...], str]] = ()
        self.flops = 0.0  # of a sample's forward


@dataclass
class How:
    training: bool
    seed: int
    first_sample: int


class _Bound:
    """A Layer in a network, as layer.cpp has layers."""

    buffers = ()
    reads = True

    def __init__(self, of: type[Layer], options: Mapping[str, float], name: str, input: tuple[int, ...]) -> None:
        self.layer = of(options, input)
        self.name, self.output, self.flops = name, tuple(self.layer.output), self.layer.flops
        self.parameters = [(f"{name}.{key}", shape, {initial} | ({"matrix"} if len(shape) > 1 else set()))
                           for key, shape, initial in self.layer.parameters]
        self.saved_bytes = 4 * math.prod(input)

    def forward(self, w: Any, buffers: Any, x: np.ndarray, training: bool, seed: int, first_sample: int, stream: Any) -> Any:
        if stream is not None:
            raise UsageError("layers in Python work on numpy's arrays, for CPUs; choose placement.devices=cpu, or a torch module")
        y, kept = self.layer.forward(w, x, How(training, seed, first_sample))
        return np.ascontiguousarray(y, np.float32), kept, ()

    def backward(self, kept: Any, w: Any, dy: np.ndarray, want_dx: bool, same_weights: bool, stream: Any) -> Any:
        dx, gradients = self.layer.backward(w, kept, dy)
        return np.ascontiguousarray(dx, np.float32), [np.ascontiguousarray(g, np.float32) for g in gradients]

    def gradients(self, kept: Any) -> Any:
        return kept
