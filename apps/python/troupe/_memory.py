"""The runtime's memory as torch's, and the streams that it is used on."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import torch


def on(stream: tuple[int, int] | None) -> Any:
    """Within it torch puts its work on a stream of the runtime's, (index of the GPU, cudaStream_t), in one order with the
    runtime's own; None: of the CPU."""
    if stream is None:
        return contextlib.nullcontext()
    index, handle = stream
    return torch.cuda.stream(torch.cuda.ExternalStream(handle, device=index))


def as_tensor(array: Any) -> torch.Tensor:
    """The same memory: numpy's, or a GPU's by DLPack."""
    return torch.from_numpy(array) if isinstance(array, np.ndarray) else torch.from_dlpack(array)


def given_back(tensor: torch.Tensor) -> Any:
    """As the runtime takes it: the CPU's from numpy, as one of torch's costs it 4 us; a GPU's is copied on the stream that is set,
    and must be there until then, wherever torch has made it."""
    made = tensor.contiguous()
    if made.device.type == "cpu":
        return made.numpy()
    made.record_stream(torch.cuda.current_stream(made.device))
    return made


def place_of(tensor: torch.Tensor) -> Any:
    """What may use a thing next without a wait: a GPU's stream, or the CPU."""
    return None if tensor.device.type == "cpu" else torch.cuda.current_stream(tensor.device)
