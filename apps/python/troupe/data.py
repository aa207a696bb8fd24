"""Data of one's own: arrays that are read where they lie, and data sets of objects with __getitem__."""

from __future__ import annotations

import functools
import itertools
import weakref
import zlib
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Callable, Mapping

import numpy as np

from . import _troupe
from ._command import DataError
from ._shared import find

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

    known = _known

    def __init__(self, made: Any, held: Any) -> None:
        self._made, self._held = made, held
        self.known_as(f"data-{next(_numbers)}")

    def known_as(self, id: str) -> None:
        """How experiments find it in this process; where another has begun the run, by that one's id."""
        self.id = id
        _known[id] = self

    def digest(self) -> str:
        """Of the arrays, or of the first sample and how many there are."""
        facts, *arrays = self._held
        return f"{functools.reduce(lambda crc, array: zlib.crc32(array, crc), arrays, zlib.crc32(repr(facts).encode())):08x}"

    def assignments(self) -> list[str]:
        return ["data.custom.name=python", f"data.custom.values.id={self.id}"]


def _open(id: str) -> Any:
    return (_known.get(id) or find(id, "data")[0])._made


_troupe.register_datasets(_open)


def _facts(x: np.ndarray, y: np.ndarray, train: int, test: int, classes: int) -> _Facts:
    """Of one sample each."""
    width = int(np.prod(y.shape, dtype=int))
    return _Facts(tuple(x.shape), x.dtype == np.int32, classes, labels=width if classes else 1,
                  values=0 if classes else width, train=train, test=test)


def _image(image: Any, what: str) -> np.ndarray:
    """Of PIL's, as torchvision's ToTensor has it: channels first, from 0 to 1."""
    if image.mode not in ("L", "RGB"):
        raise DataError(f"{what} is an image of mode {image.mode}; convert all images by a transform: image.convert('RGB'), or 'L'")
    pixels = np.asarray(image, np.float32) / 255
    return np.ascontiguousarray(pixels.reshape(*pixels.shape[:2], -1).transpose(2, 0, 1))


def _prepared(given: Any, what: str) -> np.ndarray:
    """int32 or float32."""
    try:
        x = np.asarray(given.detach().cpu() if hasattr(given, "detach") else given)
    except ValueError as error:
        raise DataError(f"{what}: its parts are of different lengths or shapes; pad, cut, resize or convert them to one") from error
    if x.dtype.kind in "US":
        raise DataError(f"{what} is text; make numbers of it before, as a tokenizer does, all of one length, and name those")
    if x.dtype.kind not in "biuf":
        raise DataError(f"{what} is no array of numbers, but of {type(x.flat[0]).__name__ if x.size else x.dtype}; samples(train, test, "
                        "fields=...) takes objects with samples, those of Hugging Face with_format('numpy'), 'torch' or none")
    return np.ascontiguousarray(x, np.int32 if x.dtype.kind in "iu" or x.dtype == bool and what.startswith("y") else np.float32)


def _inputs(x: Any, what: str, dimensions: int) -> np.ndarray:
    """`dimensions`: as many as bytes that are tokens have."""
    if str(getattr(x, "dtype", "")) in ("uint8", "torch.uint8") and len(x.shape) > dimensions:
        raise DataError(f"{what} is bytes of an image, {tuple(x.shape)}; give numbers, channels first, as x.astype('float32') / 255 (images of "
                        "PIL, which those of Hugging Face are without a format, are taken as they are)")
    return _prepared(x, what)


def _in_order(of: Any, split: str) -> None:
    """DataError where it cannot be asked for any sample at any time."""
    if isinstance(of, Mapping):
        raise DataError(f"samples: the {split} data has parts ({', '.join(map(str, of))}); name one of them: data[...]")
    if not hasattr(of, "__getitem__") or not hasattr(of, "__len__"):
        raise DataError(f"samples: {type(of).__name__} comes as a stream, and the runtime asks for samples by their number, in each epoch in "
                        "another order; keep as many as are wanted, as by Hugging Face's Dataset.from_list(list(stream.take(10_000)))")
    if len(of) == 0:
        raise DataError(f"samples: the {split} data has no samples")


def _check(x: np.ndarray, y: np.ndarray, classes: int, of: str) -> None:
    if len(x) == 0 or len(x) != len(y):
        raise DataError(f"{of}: {len(x)} samples and {len(y)} targets")
    for name, array in ((f"x of the {of} samples", x), (f"y of the {of} samples", y)):
        if array.dtype == np.float32 and not np.isfinite(array).all():
            raise DataError(f"{name} has a number that is not finite")
    if x.dtype == np.int32 and not classes:
        raise DataError(f"x of the {of} samples is whole numbers, which are tokens, and its targets are no labels; x comes first, then y; "
                        "x.astype('float32') makes numbers of tokens")
    for name, array in (("label", y if classes else None), ("token", x if x.dtype == np.int32 else None)):
        if array is not None and (array.min() < 0 or array.max() >= classes):
            more = "; classes counts labels and tokens alike" if name == "token" else ""
            raise DataError(f"a {name} of the {of} samples is not in 0 to {classes - 1}{more}")


def arrays(x: Any, y: Any, x_test: Any = None, y_test: Any = None, *, classes: int | None = None) -> Dataset:
    """A data set of arrays, numpy's or torch's: x (N, sample shape), y (N) or (N, ...). float32 and int32 ones are read
    where they lie and may not be written to meanwhile. Integer targets are labels, each in [0, classes); integer samples
    are tokens, in [0, classes) as well. Without a test set the last tenth is one."""
    x, y = _inputs(x, "x", 2), _prepared(y, "y")
    if x_test is None:
        if len(x) == 1:
            raise DataError("one sample is too few: without x_test and y_test the last tenth is test data")
        n = len(x) - max(1, len(x) // 10)
        x, x_test, y, y_test = x[:n], x[n:], y[:n], y[n:]
    else:
        x_test, y_test = _inputs(x_test, "x_test", 2), _prepared(y_test, "y_test")
    if classes is None:
        classes = int(max(y.max(), y_test.max())) + 1 if y.dtype == np.int32 and len(y) and len(y_test) else 0
    if y_test.dtype != y.dtype or x_test.dtype != x.dtype or x_test.shape[1:] != x.shape[1:] or y_test.shape[1:] != y.shape[1:]:
        raise DataError("training and test samples are of different shapes or types")
    if classes and y.dtype != np.int32:
        raise DataError("labels have to be integers")
    _check(x, y, classes, "training")
    _check(x_test, y_test, classes, "test")
    facts = _facts(x[0], y[0], len(x), len(x_test), classes)
    return Dataset(_troupe.arrays(facts, x, y, x_test, y_test), (facts, x, y, x_test, y_test))


def samples(train: Any, test: Any, *, classes: int | None = None, stack: Callable = np.stack, fields: tuple[Any, Any] = (0, 1),
            executor: Executor | None = None) -> Dataset:
    """A data set of objects with len() and [i] -> (x, y), such as torch.utils.data.Dataset, or, by `fields` ("image", "label"),
    Hugging Face's: in memory or mapped from disk, not streams; without a format, or as "numpy" or "torch", or with a transform.
    Images of PIL become float32 from 0 to 1, channels first. `classes`: of labels, and of tokens where x is whole numbers; 0:
    targets are values; None: as a ClassLabel says, and values where targets are floats. The runtime decides which samples a
    mini-batch has, so that a DataLoader's order has no say. `executor`: of concurrent.futures, whose threads or processes get
    the samples of a mini-batch; None: they come one after the other."""
    def pair(sample: Any) -> tuple[np.ndarray, np.ndarray]:
        try:
            x, y = sample[fields[0]], sample[fields[1]]
        except (LookupError, TypeError) as error:
            raise DataError(f"samples: a sample, a {type(sample).__name__}, has no {fields[0]!r} and {fields[1]!r}") from error
        return _image(x, "x") if hasattr(x, "getbands") else _inputs(x, "x", 1), _prepared(y, "y")

    _in_order(train, "training")
    _in_order(test, "test")
    x, y = pair(train[0])
    if classes is None:
        features = getattr(train, "features", None)
        classes = getattr(features[fields[1]] if isinstance(features, Mapping) else None, "num_classes", 0 if y.dtype == np.float32 else None)
    if classes is None:
        raise DataError("samples: targets are whole numbers; classes=N takes them as labels, 0 to N - 1, and classes=0 as values")
    known: int = classes

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
            shapes = sorted({one.shape for one, _ in pairs})
            if stack is np.stack and len(shapes) > 1:
                raise DataError(f"samples of a mini-batch are of different shapes, {shapes[0]} and {shapes[-1]}; pad, cut, resize or convert "
                                "all to one")
            xs = _prepared(stack([p[0] for p in pairs]), "x")
            ys = _prepared([p[1] for p in pairs], "y")
            _check(xs, ys, known, "training" if split == "train" else "test")
            return xs, ys if known else ys.astype(np.float32)

    facts = _facts(x, y, len(train), len(test), known)
    return Dataset(_troupe.gatherer(facts, Gather(), type(train).__name__), (facts, x, y))


def dataset(given: Any) -> Dataset:
    """What `data=` of an experiment takes."""
    if isinstance(given, Dataset):
        return given
    if not isinstance(given, (tuple, list)) or len(given) not in (2, 4):
        raise DataError(f"data: a {type(given).__name__} is neither (x, y) nor (x, y, x_test, y_test); samples(train, test, fields=...) takes "
                        "objects with samples")
    return arrays(*given)
