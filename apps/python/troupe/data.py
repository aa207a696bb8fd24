"""Data of one's own: arrays that are read where they lie, and data sets of objects with __getitem__."""

from __future__ import annotations

import itertools
import weakref
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Callable

import numpy as np

from . import _troupe
from ._command import DataError

_known: "weakref.WeakValueDictionary[str, Dataset]" = weakref.WeakValueDictionary()
_numbers = itertools.count()


@dataclass
class _Facts:
    sample: tuple[int, ...]
    tokens: bool
    classes: int
    labels: int
    values: int
    train: int
    test: int


class Dataset:
    """What arrays() and samples() make. An experiment finds it by its `id` in this process."""

    def __init__(self, made: Any) -> None:
        self._made = made
        self.known_as(f"data-{next(_numbers)}")

    def known_as(self, id: str) -> None:
        """How experiments find it in this process; where another has begun the run, by that one's id."""
        self.id = id
        _known[id] = self

    def assignments(self) -> list[str]:
        return ["data.custom.name=python", f"data.custom.values.id={self.id}"]


def _open(id: str) -> Any:
    if id not in _known:
        raise LookupError(f"this process has no data set {id!r}")
    return _known[id]._made


_troupe.register_datasets(_open)


def _facts(x: np.ndarray, y: np.ndarray, train: int, test: int, classes: int) -> _Facts:
    """Of one sample each."""
    width = int(np.prod(y.shape, dtype=int))
    return _Facts(tuple(x.shape), x.dtype == np.int32, classes, labels=width if classes else 1,
                  values=0 if classes else width, train=train, test=test)


def _prepared(x: Any) -> np.ndarray:
    x = np.asarray(x)
    return np.ascontiguousarray(x, np.int32 if np.issubdtype(x.dtype, np.integer) else np.float32)


def _check(x: np.ndarray, y: np.ndarray, classes: int, of: str) -> None:
    if len(x) == 0 or len(x) != len(y):
        raise DataError(f"{of}: {len(x)} samples and {len(y)} targets")
    for name, array in ((f"x of the {of} samples", x), (f"y of the {of} samples", y)):
        if array.dtype == np.float32 and not np.isfinite(array).all():
            raise DataError(f"{name} has a number that is not finite")
    for name, array in (("label", y if classes else None), ("token", x if x.dtype == np.int32 else None)):
        if array is not None and (array.min() < 0 or array.max() >= classes):
            raise DataError(f"a {name} of the {of} samples is not in 0 to {classes - 1}")


def arrays(x: Any, y: Any, x_test: Any = None, y_test: Any = None, *, classes: int | None = None) -> Dataset:
    """A data set of arrays, numpy's or torch's: x (N, sample shape), y (N) or (N, ...). float32 and int32 ones are read
    where they lie and may not be written to meanwhile. Integer targets are labels, each in [0, classes); integer samples
    are tokens. Without a test set the last tenth is one."""
    x, y = _prepared(x), _prepared(y)
    if x_test is None:
        n = len(x) - max(1, len(x) // 10)
        x, x_test, y, y_test = x[:n], x[n:], y[:n], y[n:]
    else:
        x_test, y_test = _prepared(x_test), _prepared(y_test)
    if classes is None:
        classes = int(max(y.max(), y_test.max())) + 1 if y.dtype == np.int32 and len(y) and len(y_test) else 0
    if y_test.dtype != y.dtype or x_test.dtype != x.dtype or x_test.shape[1:] != x.shape[1:] or y_test.shape[1:] != y.shape[1:]:
        raise DataError("training and test samples are of different shapes or types")
    if classes and y.dtype != np.int32:
        raise DataError("labels have to be integers")
    _check(x, y, classes, "training")
    _check(x_test, y_test, classes, "test")
    return Dataset(_troupe.arrays(_facts(x[0], y[0], len(x), len(x_test), classes), x, y, x_test, y_test))


def samples(train: Any, test: Any, *, classes: int = 0, stack: Callable = np.stack, fields: tuple[Any, Any] = (0, 1),
            executor: Executor | None = None) -> Dataset:
    """A data set of objects with len() and [i] -> (x, y), such as torch.utils.data.Dataset, or, by `fields` ("image", "label"),
    Hugging Face's, whose set_transform() makes x an array. `classes`: of labels; 0: targets are values. The runtime decides which
    samples a mini-batch has, so that a DataLoader's order has no say. `executor`: of concurrent.futures, whose threads or
    processes get the samples of a mini-batch; None: they come one after the other."""
    def pair(sample: Any) -> tuple[np.ndarray, np.ndarray]:
        try:
            found = sample[fields[0]], sample[fields[1]]
        except (LookupError, TypeError) as error:
            raise DataError(f"samples: a sample, a {type(sample).__name__}, has no {fields[0]!r} and {fields[1]!r}") from error
        return np.asarray(found[0]), np.asarray(found[1])

    x, y = map(_prepared, pair(train[0]))

    class Gather:
        def gather(self, split: str, indices: np.ndarray, epoch: int) -> tuple[np.ndarray, np.ndarray]:
            of = train if split == "train" else test
            if executor:
                found = executor.map(of.__getitem__, indices.tolist(), chunksize=max(1, len(indices) // 8))
            elif hasattr(of, "__getitems__"):
                found = of.__getitems__(indices.tolist())
            else:
                found = (of[i] for i in indices.tolist())
            pairs = [pair(one) for one in found]
            xs = _prepared(stack([p[0] for p in pairs]))
            ys = _prepared([p[1] for p in pairs])
            _check(xs, ys, classes, "training" if split == "train" else "test")
            return xs, ys if classes else ys.astype(np.float32)

    return Dataset(_troupe.gatherer(_facts(x, y, len(train), len(test), classes), Gather(), type(train).__name__))


def dataset(given: Any) -> Dataset:
    """What `data=` of an experiment takes."""
    return given if isinstance(given, Dataset) else arrays(*given)
