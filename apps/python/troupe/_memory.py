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
    """As the runtime takes it: the CPU's from numpy, as one of torch's costs it 4 us."""
    made = tensor.contiguous()
    return made.numpy() if made.device.type == "cpu" else made
