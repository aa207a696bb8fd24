"""Networks of torch modules, trained by the runtime's pipelines: the parameters are the runtime's, and the graph of a
forward waits for its backward."""

from __future__ import annotations

import copy
import hashlib
import itertools
import math
import tempfile
import weakref
import zlib
from collections import OrderedDict, defaultdict
from pathlib import Path
from typing import Any, Callable, Mapping, Sequence

import numpy as np
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from . import _command, _troupe
from ._command import UsageError
from ._copies import Copy
from ._memory import as_tensor, given_back, on, place_of
from ._shared import find
from ._tracing import traced
from .results import write_weights

__all__ = ["Network", "from_torch"]

_networks: "weakref.WeakValueDictionary[str, Network]" = weakref.WeakValueDictionary()
_numbers = itertools.count()
DIMENSIONS = 5  # of a tensor of the runtime
_NUMPYS = {torch.float32: np.float32, torch.float64: np.float64, torch.float16: np.float16, torch.bool: np.bool_, torch.uint8: np.uint8,
           torch.int8: np.int8, torch.int16: np.int16, torch.int32: np.int32, torch.int64: np.int64}


class Network:
    """Modules one after another, each a layer behind which a pipeline may be cut. A run begins with the parameters that the
    modules have when it is made; trained ones are in Run.weights, by the names of state_dict(), and load() puts them back
    into the modules. A parameter of several modules is one parameter; a frozen one is there by each module's name for it.

    Every module takes and gives one tensor, the batch first. The random numbers that its operations draw from torch's own
    generator are keyed by sample, so that a run can be repeated; operations that draw from it and take no other are refused.
    What a forward draws elsewhere (numpy, random, a generator of its own) is left as it is: nobody watches it.

    `loss`: of (outputs, targets) a mean over the samples, as torch.nn's losses: outputs (B, ...) float32, targets (B, ...) the
    data's, int64 labels or float32 values. None: cross-entropy of labels, half the squared distance of values. It has no
    parameters to train, and what it draws is neither keyed nor watched.
    """

    known = _networks

    def __init__(self, *modules: nn.Module, names: Sequence[str] | None = None,
                 loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] | None = None) -> None:
        for module in modules:
            if not isinstance(module, nn.Module):
                a_class = isinstance(module, type) and issubclass(module, nn.Module)
                raise UsageError(f"Network: {module!r} {'has not been made; call it' if a_class else 'is no module of torch'}")
            for key, t in itertools.chain(module.named_parameters(), module.named_buffers()):
                if t.device.type != "cpu":
                    raise UsageError(f"Network: {key} is on {t.device}; a network is made on the CPU (module.cpu()), and placement.devices "
                                     "says where it computes")
                if t.requires_grad and t.dtype != torch.float32:
                    raise UsageError(f"Network: {key} is {t.dtype}, and what is trained is float32: module.float()")
        self.modules, self.loss = modules, loss
        self.losses: dict[Any, Any] = {}  # copies of one with tensors of its own, by place_of
        if isinstance(loss, nn.Module) and any(p.requires_grad for p in loss.parameters()):
            raise UsageError("loss: it has parameters of its own, which nobody would train; put them into a module, or freeze them "
                             "(requires_grad_(False))")
        if any(nn.parameter.is_lazy(t) for m in modules for t in itertools.chain(m.parameters(), m.buffers())):
            raise UsageError("a lazy module has no parameters before it has been called once")
        self.names = list(names or (str(i) for i in range(len(modules))))
        if len(self.names) != len(modules) or len(set(self.names)) != len(modules):
            raise UsageError("names: each module needs a name of its own")
        self.prefixes = [f"{name}." for name in self.names]
        self._folder: tempfile.TemporaryDirectory | None = None  # of the file that runs start from
        self.known_as(f"network-{next(_numbers)}")

    def known_as(self, id: str) -> None:
        """How experiments find it in this process; where another has begun the run, by that one's id."""
        self.id = id
        _networks[id] = self

    def assignments(self) -> list[str]:
        """How an experiment finds it, and its initial weights."""
        self._folder = self._folder or tempfile.TemporaryDirectory(prefix="troupe-network-")
        path = self._start(Path(self._folder.name))
        return ["model.custom.name=python", f"model.custom.values.id={self.id}", f"start_from={path}"]

    def digest(self) -> str:
        """Of what the modules hold now."""
        held = hashlib.sha256(repr(self.names).encode())
        for name, tensor in self._tensors().items():
            held.update(name.encode() + _array(tensor).tobytes())
        return held.hexdigest()[:16]

    def _start(self, folder: Path) -> Path:
        """A file in `folder` with what the modules hold now, which has the same name wherever they hold the same."""
        path = folder / f"start-{self.digest()}.safetensors"
        write_weights(path, {name: _array(tensor) for name, tensor in self._tensors().items()})
        return path

    def load(self, weights: Mapping[str, np.ndarray]) -> None:
        """Puts trained weights, of Run.weights, into the modules."""
        given = {name: np.array(weights[name]) for name in self._tensors() if name in weights}
        for name, tensor in self._tensors().items():
            if name not in given or (given[name].shape or (1,)) != _shape(tensor):
                raise UsageError(f"load: these weights have no {name} of {tuple(tensor.shape)}")
        with torch.no_grad():
            for name, tensor in self._tensors().items():
                tensor.copy_(torch.from_numpy(given[name]).view(tensor.shape))  # in its own type

    def _tensors(self) -> dict[str, torch.Tensor]:
        """All that the runtime keeps, by name."""
        return {name: tensor for names, module in zip(self._names(), self.modules) for name, (_, tensor) in zip(names, _kept(module))}

    def _names(self) -> list[list[str]]:
        """Of what the runtime keeps of each module, the name where it comes first; but every layer has a frozen parameter to
        itself, as it has its buffers, and by the module's own name: it stays the same everywhere."""
        seen: dict[int, str] = {}
        return [[prefix + key if _frozen(tensor) else seen.setdefault(id(tensor), prefix + key) for key, tensor in _kept(module)]
                for prefix, module in zip(self.prefixes, self.modules)]

    def layers(self, shape: Sequence[int], outputs: int) -> list["Layer"]:
        uses = [id(p) for module in self.modules for p in module.parameters() if p.requires_grad]
        shared = {p for p in uses if uses.count(p) > 1}
        made: list[Layer] = []
        buffers: set[str] = set()
        x = torch.zeros(2, *shape)
        for name, module, names in zip(self.names, self.modules, self._names()):
            if not made and any(isinstance(m, nn.Embedding) for m in module.modules()):
                x = x.int()
            try:
                made.append(Layer(name, module, x, names, shared))
            except UsageError:
                raise
            except Exception as error:
                raise UsageError(f"module {name} does not take samples of {tuple(x.shape[1:])}: {type(error).__name__}: {error}") from error
            for buffer, *_ in made[-1].buffers:
                if buffer in buffers:
                    raise UsageError(f"module {name} has the buffer {buffer!r} of another one, and each layer keeps its own; put what "
                                     "they share into one module")
                buffers.add(buffer)
            x = torch.zeros(2, *made[-1].output)
        if made and not uses:
            raise UsageError("none of the network's modules has a parameter to train")
        if made and self.loss is None and outputs not in (math.prod(made[-1].output), *made[-1].output[-1:]):
            raise UsageError(f"the network gives {made[-1].output} for a sample, and the data's targets want {outputs}: whole-number targets are "
                             "labels from 0 on, which want an output each (troupe.arrays(..., classes=N) says how many there are); others are "
                             "values (y.astype('int32') makes labels); loss= takes outputs of any shape")
        return made

    def judge(self, outputs: Any, targets: Any, gradient: Any, stream: Any) -> tuple[float, int]:
        """By its own loss: the mean, and how many labels are where the largest output is. Called by the runtime."""
        _threads_as_set()
        with on(stream):
            return self._judge(as_tensor(outputs), as_tensor(targets), None if gradient is None else as_tensor(gradient))

    def _judge(self, y: torch.Tensor, of: torch.Tensor, gradient: torch.Tensor | None) -> tuple[float, int]:
        labels = not of.is_floating_point()
        of = of.long() if labels else of.view(y.shape) if of.numel() == y.numel() else of
        with torch.set_grad_enabled(gradient is not None):
            assert self.loss is not None
            loss = self.loss
            if isinstance(loss, nn.Module) and y.device.type != "cpu":
                loss = self.losses[place_of(y)] = self.losses.get(place_of(y)) or copy.deepcopy(loss).to(y.device)
            mean = loss(y.requires_grad_(gradient is not None), of)
        if not isinstance(mean, torch.Tensor) or mean.dim():
            raise TypeError("it returned no tensor of one number, the mean over the samples")
        if gradient is not None:
            gradient.copy_(*torch.autograd.grad(mean, y))
        right = labels and y.dim() > 1 and y.numel() == of.numel() * y.shape[-1]
        return mean.item(), int((y.flatten(0, -2).argmax(1) == of.flatten()).sum()) if right else 0


def _threads_as_set() -> None:
    """In a thread of the runtime torch computes with as many threads as where the run was begun: other numbers give other bits. What the
    thread has is another one before torch is first asked, and where oneDNN has computed in it."""
    here = torch.get_num_threads()
    if _command.torch_threads not in (0, here):
        torch.set_num_threads(_command.torch_threads)


def _kept(module: nn.Module) -> list[tuple[str, torch.Tensor]]:
    """Parameters, frozen ones, which the runtime has as buffers, and the buffers that are saved and whose values float32 holds:
    others stay in each thread's copy as they are."""
    saved = set(module.state_dict(keep_vars=True))
    return [*sorted(module.named_parameters(), key=lambda one: not one[1].requires_grad),
            *((n, b) for n, b in module.named_buffers() if n in saved and _fits(b))]


def _frozen(tensor: torch.Tensor) -> bool:
    return isinstance(tensor, nn.Parameter) and not tensor.requires_grad


def _fits(buffer: torch.Tensor) -> bool:
    return buffer.dtype == torch.float32 or not buffer.is_complex() and torch.equal(buffer.float().to(buffer.dtype), buffer)


def _shape(tensor: torch.Tensor) -> tuple[int, ...]:
    return tuple(tensor.shape) or (1,)


def _numbers_of(buffer: torch.Tensor) -> Any:
    """A buffer in the runtime's type."""
    if buffer.device.type != "cpu":
        return buffer.float().contiguous().view(_shape(buffer))
    return (buffer.numpy() if buffer.dtype in _NUMPYS else buffer.float().numpy()).astype(np.float32, copy=False).reshape(_shape(buffer))


def _flags(parameter: torch.Tensor, table: bool, tied: bool) -> set[str]:
    matrix = parameter.dim() > 1 and not table and not tied
    return {flag for flag, is_set in (("table", table), ("tied", tied), ("matrix", matrix)) if is_set}


def _array(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().float().contiguous().numpy().reshape(_shape(tensor))


class _Flops(TorchDispatchMode):
    """What FlopCounterMode counts. That one has hooks on the modules of all threads, and disturbs runs that are under way."""

    total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        count = flop_registry.get(func._overloadpacket)
        self.total += count(*args, **(kwargs or {}), out_val=made) if count else 0
        return made


class Layer:
    """One module, as runtime/model/layer.hpp has layers. Each thread has a copy of its own of the module's structure, into
    which parameters are put for as long as a call takes."""

    reads = False  # in a backward the weights of its forward: the graph has them

    def __init__(self, name: str, module: nn.Module, x: torch.Tensor, names: Sequence[str], shared: set[int]) -> None:
        self.name, self.module = name, module
        everything = _kept(module)
        self.count = sum(p.requires_grad for p in module.parameters())
        self.keys = [key for key, _ in everything]
        self.shapes = [tuple(tensor.shape) for _, tensor in everything]
        # Of its buffers, which the runtime has as float32, and whether forwards may write into them.
        self.types = [(tensor.dtype, not isinstance(tensor, nn.Parameter)) for _, tensor in everything[self.count:]]
        tables = {id(m.weight) for m in module.modules() if isinstance(m, nn.Embedding)}
        self.parameters = [(name, _shape(p), _flags(p, id(p) in tables, id(p) in shared))
                           for name, (_, p) in zip(names, everything[:self.count])]
        self.buffers = [(name, _shape(b), {"one"} if k.endswith("running_var") else set())
                        for name, (k, b) in zip(names[self.count:], everything[self.count:])]
        self.copies: dict[Any, list[Copy]] = defaultdict(list)  # those that nobody uses, by (training, place_of)
        self.writes = False  # into its input, which is not its own: it gets a copy
        self.draws = False  # random numbers outside of nn.Dropout and its like
        state = torch.get_rng_state()
        try:
            for self.draws in (False, True):
                self._try(x)
                if torch.equal(state, torch.get_rng_state()):
                    return
                torch.set_rng_state(state)
                self.copies.clear()
        finally:
            torch.set_rng_state(state)
        raise UsageError(f"module {self.name} draws random numbers that cannot be keyed by sample, so that no run could be repeated; "
                         "use operations that take a generator")

    def _try(self, x: torch.Tensor) -> None:
        """Its output's shape, floating-point operations and what it keeps, of a sample."""
        saved: list[int] = []
        tensors = [t.detach().clone() for _, t in _kept(self.module)]
        probe = x.clone()
        with torch.no_grad(), _Flops() as flops:
            y = self._call(tensors, x.clone(), 0, training=False)
        if len(y) != len(x):
            raise UsageError(f"module {self.name} gives {len(y)} rows for {len(x)} samples; it gives one tensor, the batch first")
        self.output = tuple(y.shape[1:])
        self.flops = flops.total / len(x)
        with torch.no_grad():
            self._call(tensors, probe, 0)
        self.writes = probe._version > 0
        with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t.nbytes) or t, lambda t: t):
            y = self._call([t.requires_grad_() if i < self.count else t for i, t in enumerate(tensors)],
                           x.clone().requires_grad_(x.is_floating_point()), 0)
        if self.count and not y.requires_grad:
            raise UsageError(f"module {self.name} gives what its parameters have no gradients of; its forward has no_grad() or detach()")
        self.saved_bytes = sum(saved) // len(x)

    def _call(self, tensors: Any, x: torch.Tensor, key: int, training: bool = True) -> torch.Tensor:
        free = self.copies[training, place_of(x)]
        try:
            one = free.pop()  # the newest: several are there only where several threads have called at once
        except IndexError:
            own = {id(t): t for t in itertools.chain(self.module.parameters(), self.module.buffers())}
            one = Copy(copy.deepcopy(self.module, own).train(training), self.keys, self.draws, x.device)
        try:
            y = one(tensors, x.clone() if self.writes else x, key)
        finally:
            free.append(one)
        if not isinstance(y, torch.Tensor) or not 1 <= y.dim() <= DIMENSIONS:
            raise UsageError(f"module {self.name} gives a {type(y).__name__}{f' of {y.dim()} dimensions' if hasattr(y, 'dim') else ''}; "
                             f"a layer gives one tensor of at most {DIMENSIONS} dimensions, the batch first")
        return y if y.dtype == torch.float32 else y.float()  # what torch.autocast has left

    @staticmethod
    def _tensors(arrays: Sequence[Any], shapes: Sequence[tuple[int, ...]]) -> list[torch.Tensor]:
        return [as_tensor(a) if s else as_tensor(a).view(s) for a, s in zip(arrays, shapes)]

    def _own(self, buffers: Any, training: bool) -> list[torch.Tensor]:
        """In their own types; what a forward may write into is a copy. By numpy where it can: a copy of torch's takes 4 us."""
        return [torch.from_numpy(array.reshape(shape).astype(_NUMPYS[dtype], copy=training and written))
                if dtype in _NUMPYS and isinstance(array, np.ndarray)
                else as_tensor(array).view(shape).to(dtype, copy=training and written)
                for array, shape, (dtype, written) in zip(buffers, self.shapes[self.count:], self.types)]

    def _graph(self, w: Any, buffers: Any, x: torch.Tensor, key: int) -> tuple[Any, torch.Tensor, torch.Tensor]:
        w = [t.requires_grad_() for t in self._tensors(w, self.shapes)]
        if x.is_floating_point():
            x = x.detach().requires_grad_()
        with torch.enable_grad():
            return w, x, self._call(itertools.chain(w, buffers), x, key)

    # -- called by the runtime

    def forward(self, w: Any, buffers: Any, x: Any, training: bool, seed: int, first_sample: int, stream: Any) -> Any:
        _threads_as_set()
        with on(stream):
            return self._forward(w, buffers, as_tensor(x), training, seed, first_sample)

    def _forward(self, w: Any, buffers: Any, x: torch.Tensor, training: bool, seed: int, first_sample: int) -> Any:
        own = self._own(buffers, training)
        if not training:
            with torch.no_grad():
                tensors = [*self._tensors(w, self.shapes), *own]
                return given_back(self._call(tensors, x, 0, training=False)), None, []
        key = zlib.crc32(f"{seed} {self.name} {first_sample}".encode())
        w, x, y = self._graph(w, own, x, key)
        return given_back(y.detach()), (w, x, y, key, buffers), [_numbers_of(b) for b in own]

    def backward(self, kept: Any, w: Any, dy: Any, want_dx: bool, same_weights: bool, stream: Any) -> Any:
        _threads_as_set()
        with on(stream):
            return self._backward(kept, w, as_tensor(dy), want_dx, same_weights)

    def _backward(self, kept: Any, w: Any, dy: torch.Tensor, want_dx: bool, same_weights: bool) -> Any:
        of, x, y, key, buffers = kept
        if not same_weights:  # at other weights than the forward's: it is done again there, from the buffers that it had
            of, x, y = self._graph(w, self._own(buffers, training=True), x, key)
        inputs = [x, *of] if want_dx else of
        grads = torch.autograd.grad(y, inputs, dy.view(y.shape), materialize_grads=True) if inputs and y.requires_grad else []
        grads = [given_back(g) for g in grads]
        return (grads[0], grads[1:]) if want_dx else (None, grads)

    def gradients(self, kept: Any) -> Any:
        return kept


def from_torch(module: nn.Module, example: torch.Tensor, cut: Sequence[str] | None = None) -> Network:
    """A Network of one module, whose parameters keep the names of its state_dict().

    `cut`: the children, or modules within them ("layer1.0"), or nodes of torch.fx's graph, behind each of which a layer ends;
    none: all children behind which one tensor goes on. nn.Sequential is cut between its children; any other module is
    traced by torch.fx. `example`: inputs (rows, ...) by which the parts are held beside the whole.
    """
    pairs = [(name, child) for name, child in module._modules.items() if child is not None]  # one that stands twice, twice
    children = [name for name, _ in pairs]
    behind = children if cut is None else cut
    if isinstance(module, nn.Sequential) and set(behind) <= set(children):
        ends = sorted({children.index(name) for name in behind} | {len(children) - 1})
        parts = [nn.Sequential(OrderedDict(pairs[begin:end + 1])) for begin, end in zip([0, *(e + 1 for e in ends)], ends)]
        names = [children[end] for end in ends]
    else:
        parts, names = traced(module, cut)
    network = Network(*parts, names=names)
    network.prefixes = [""] * len(parts)
    whole = copy.deepcopy(module).eval()
    with torch.no_grad():
        x = example
        for part in parts:
            x = copy.deepcopy(part).eval()(x)
        if not torch.allclose(x, whole(example), equal_nan=True):
            raise UsageError("from_torch: its parts do not give what the module gives: it does more than its graph shows")
    return network


def _build(id: str, shape: Sequence[int], outputs: int) -> tuple[list[Layer], Any, str]:
    """Besides its layers and loss, where on this host its weights are for once; "": where the experiment says."""
    network, digest = (_networks[id], "") if id in _networks else find(id, "network")
    start = str(network._start(Path(tempfile.mkdtemp(prefix="troupe-start-")))) if digest else ""
    return network.layers(shape, outputs), network.judge if network.loss else None, start


_troupe.register_networks(_build)
