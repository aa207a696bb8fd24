"""Data of one's own."""

from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest
from conftest import FLUSHED

import troupe

random = np.random.default_rng(0)
X = random.normal(size=(400, 6)).astype(np.float32)
Y = (X.sum(1) > 0).astype(np.int32)
HOW = {**FLUSHED, "model.mlp.hidden": [8], "data.batch_size": 20, "stop.updates": 40, "optimizer.learning_rate": 0.1}


def test_arrays_are_learnt_and_any_integer_or_float_type_does():
    first = troupe.sim("glyphs-mlp", HOW, data=(X, Y))
    assert first.summary["test_accuracy"] > 0.8
    assert first.sha256 == troupe.sim("glyphs-mlp", HOW, data=(X.astype(np.float64), Y.astype(np.int64))).sha256


def test_objects_that_are_asked_for_samples_are_the_same_as_arrays(fails):
    class Rows:
        def __init__(self, x, y):
            self.x, self.y = x, y

        def __len__(self):
            return len(self.x)

        def __getitem__(self, i):
            return self.x[i], int(self.y[i])

    whole = troupe.sim("glyphs-mlp", HOW, data=(X, Y, X[:40], Y[:40]))
    rows = troupe.samples(Rows(X, Y), Rows(X[:40], Y[:40]), classes=2)
    for train in (troupe.sim, troupe.run):
        assert train("glyphs-mlp", HOW, data=rows).sha256 == whole.sha256
    with ThreadPoolExecutor(2) as two:
        assert troupe.sim("glyphs-mlp", HOW, data=troupe.samples(Rows(X, Y), Rows(X[:40], Y[:40]), classes=2, executor=two)).sha256 \
            == whole.sha256
    wrong = troupe.samples(Rows(X, Y + 5), Rows(X[:40], Y[:40]), classes=2)
    assert "not in 0 to 1" in fails(troupe.Error, lambda: troupe.sim("glyphs-mlp", HOW, data=wrong), troupe.DataError)


class Images:
    """As data sets of Hugging Face are: samples are dictionaries, and several come at a time."""

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return {"id": i, "image": self.x[i].tolist(), "label": int(self.y[i])}

    def __getitems__(self, indices):
        return [self[i] for i in indices]


def test_samples_with_fields_come_by_threads_and_processes():
    whole = troupe.sim("glyphs-mlp", HOW, data=(X, Y, X[:40], Y[:40]))
    with ProcessPoolExecutor(2, get_context("spawn")) as two:
        for executor in (None, two):
            rows = troupe.samples(Images(X, Y), Images(X[:40], Y[:40]), classes=2, fields=("image", "label"), executor=executor)
            assert troupe.sim("glyphs-mlp", HOW, data=rows).sha256 == whole.sha256
    with pytest.raises(troupe.DataError, match="a dict, has no 0 and 1"):
        troupe.samples(Images(X, Y), Images(X, Y), classes=2)

    class Elsewhere:
        def __array__(self, *_, **__):
            raise TypeError("it is on another device")

    with pytest.raises(TypeError, match="on another device"):
        troupe.samples([(Elsewhere(), 0)], [(Elsewhere(), 0)], classes=2)


def test_values_are_targets_where_they_are_no_integers():
    run = troupe.sim("glyphs-mlp", {**HOW, "optimizer.learning_rate": 0.01}, data=(X, X[:, :2] * 2))
    assert run.summary["test_accuracy"] is None and run.summary["test_loss"] < 4


@pytest.mark.parametrize("x, y, classes", [(X, Y - 1, None), (X, Y[:-1], None), (np.full_like(X, np.nan), Y, None),
                                           (X, Y + 1, 2), (X[:0], Y[:0], None)])
def test_what_is_wrong_with_data_is_told(x, y, classes):
    with pytest.raises(troupe.DataError):
        troupe.arrays(x, y, X, Y, classes=classes)


def test_what_is_wrong_with_arrays_is_told_in_a_sentence(fails):
    assert "x comes first, then y" in fails(troupe.DataError, lambda: troupe.arrays(Y, X))
    assert "one sample is too few" in fails(troupe.DataError, lambda: troupe.arrays(X[:1], Y[:1]))
