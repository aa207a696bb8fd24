"""Copies of a module's structure, into which parameters are put for as long as a call takes, and random numbers keyed by sample."""

from __future__ import annotations

import itertools
from typing import Any, Callable, Sequence

import torch
from torch import nn
from torch.nn.modules.dropout import _DropoutNd
from torch.utils._python_dispatch import TorchDispatchMode


class Keyed(TorchDispatchMode):
    """What operations would draw from torch's generator comes from one generator; those that are given another keep it. Modes
    are a thread's own, which torch's generator is not."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.generator = torch.Generator(device)
        self.drawing: dict[Any, Any] = {}  # an operation -> the same that takes a generator; None: it draws nothing

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func not in self.drawing:
            self.drawing[func] = _with_generator(func) if torch.Tag.nondeterministic_seeded in func.tags else None
        draws, kwargs = self.drawing[func], kwargs or {}
        if draws is None or kwargs.get("generator") is not None:
            return func(*args, **kwargs)
        return draws(*args, **{**kwargs, "generator": self.generator})

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def keyed(*args: Any, **kwargs: Any) -> Any:
            with self:
                return call(*args, **kwargs)

        return keyed


def _with_generator(func: Any) -> Any:
    """None where torch has none: then its own generator moves on, by which that is found."""
    packet, name = func._overloadpacket, func._overloadname
    more = "generator" if name == "default" else f"{name}_generator"
    has = any(argument.name == "generator" for argument in func._schema.arguments)
    return func if has else getattr(packet, more) if more in packet.overloads() else None


class Copy:
    """What torch.func.functional_call does, without its 40 us a call, for a module that nobody else uses."""

    def __init__(self, module: nn.Module, keys: Sequence[str], draws: bool, device: torch.device) -> None:
        self.keyed = Keyed(device)
        for owner in [module] if draws else module.modules():  # a mode costs each operation within it some 7 us
            if draws or isinstance(owner, _DropoutNd):
                owner.forward = self.keyed.around(owner.forward)  # type: ignore[method-assign]
        self.module = module
        everything = [(slots, name) for owner in module.modules()
                      for slots in (owner._parameters, owner._buffers) for name in slots]
        state = dict(itertools.chain(module.named_parameters(), module.named_buffers()))
        self.slots = [[(s, n) for s, n in everything if s[n] is state[key]] for key in keys]  # tied ones, too
        self._empty()
        for slots, name in everything:
            if slots[name] is not None:  # the runtime does not keep it
                slots[name] = slots[name].to(device)

    def __call__(self, tensors: Any, x: torch.Tensor, key: int) -> torch.Tensor:
        self.keyed.generator.manual_seed(key)
        try:
            for places, tensor in zip(self.slots, tensors):
                for slots, name in places:
                    slots[name] = tensor
            return self.module(x)
        finally:
            self._empty()

    def _empty(self) -> None:
        for slots, name in itertools.chain(*self.slots):
            slots[name] = None
