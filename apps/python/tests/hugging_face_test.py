"""Data sets of Hugging Face's package, as it is in the registry."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from data_test import HOW, X, Y

import troupe

datasets = pytest.importorskip("datasets", reason="Hugging Face's package datasets is not installed")
Dataset = datasets.Dataset
WHOLE = (X, Y, X[:40], Y[:40])


def tables():
    return Dataset.from_dict({"x": X, "label": Y}), Dataset.from_dict({"x": X[:40], "label": Y[:40]})


def rows(train, test, fields=("x", "label"), classes=2, **how):
    return troupe.sim("glyphs-mlp", HOW, data=troupe.samples(train, test, classes=classes, fields=fields, **how))


def pictures(mode="RGB", last=None):
    images = pytest.importorskip("PIL.Image", reason="images need Pillow")
    drawn = [images.fromarray(np.uint8(np.random.default_rng(i).integers(0, 256, (8, 8, 3)))).convert(mode) for i in range(40)]
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["no", "yes"])})
    return drawn, Dataset.from_dict({"image": drawn[:-1] + [last or drawn[-1]], "label": [0, 1] * 20}, features=features)


@pytest.mark.parametrize("kind", [None, "numpy", "torch", "transform", "disk", "picked", "threads", "columns"])
def test_they_are_the_same_as_arrays(kind, tmp_path):
    whole, both = troupe.sim("glyphs-mlp", HOW, data=WHOLE), tables()
    if kind == "torch":
        pytest.importorskip("torch", reason="PyTorch is not installed")
    if kind in ("numpy", "torch"):
        both = [one.with_format(kind) for one in both]
    elif kind == "transform":
        both = [one.with_transform(lambda batch: {**batch, "x": [np.float64(x) for x in batch["x"]]}) for one in both]
    elif kind == "disk":
        for name, one in zip("ab", both):
            one.save_to_disk(tmp_path / name)
        both = [datasets.load_from_disk(tmp_path / name) for name in "ab"]
    elif kind == "picked":
        both = [one.add_column("n", list(range(len(one)))).shuffle(seed=1).sort("n") for one in both]
    if kind == "columns":
        assert troupe.sim("glyphs-mlp", HOW, data=tuple(one[name] for one in both for name in ("x", "label"))).sha256 == whole.sha256
    elif kind == "threads":
        with ThreadPoolExecutor(2) as executor:
            assert rows(*both, executor=executor).sha256 == whole.sha256
    else:
        assert rows(*both).sha256 == whole.sha256


@pytest.mark.parametrize("mode, channels", [("RGB", 3), ("L", 1)])
def test_images_are_numbers_from_0_to_1_and_their_labels_are_counted(mode, channels):
    drawn, table = pictures(mode)
    x = np.float32([np.asarray(one).reshape(8, 8, channels) for one in drawn]).transpose(0, 3, 1, 2) / 255
    y = np.array([0, 1] * 20)
    data = troupe.samples(table, table, fields=("image", "label"))  # how many labels there are a ClassLabel says
    assert troupe.sim("glyphs-mlp", HOW, data=data).sha256 == troupe.sim("glyphs-mlp", HOW, data=(x, y, x, y)).sha256


def test_text_is_read_as_the_tokens_that_a_column_has():
    text = ["".join("abc"[(i * 7 + j * j) % 3] for j in range(9)) for i in range(60)]
    table = Dataset.from_dict({"text": text}).map(lambda one: {"x": [ord(c) - 97 for c in one["text"][:-1]],
                                                               "y": [ord(c) - 97 for c in one["text"][1:]]})
    how = {"model.gpt.layers": 1, "model.gpt.heads": 2, "model.gpt.width": 8, "data.batch_size": 20, "stop.updates": 20}
    x, y = (np.array(table[name]) for name in "xy")
    data = troupe.samples(table, table, classes=3, fields=("x", "y"))
    assert troupe.sim("glyphs-mlp", how, data=data).sha256 == troupe.sim("glyphs-mlp", how, data=(x, y, x, y)).sha256


@pytest.mark.parametrize("make, sentence", [
    (lambda: rows(*[one.to_iterable_dataset() for one in tables()]), "IterableDataset comes as a stream"),
    (lambda: rows(datasets.DatasetDict(train=tables()[0]), tables()[1]), r"has parts \(train\)"),
    (lambda: rows(*tables(), fields=("x", "y")), "a dict, has no 'x' and 'y'"),
    (lambda: rows(*tables(), classes=None), "classes=N takes them as labels"),
    (lambda: rows(tables()[0].select([]), tables()[1]), "the training data has no samples"),
    (lambda: rows(*[one.with_format("pandas") for one in tables()]), "with_format"),
    (lambda: troupe.sim("glyphs-mlp", HOW, data=tables()[0]), r"samples\(train, test, fields=...\)"),
    (lambda: troupe.sim("glyphs-mlp", HOW, data=tables()), r"of dict; samples\(train, test, fields=...\)"),
    (lambda: rows(*[Dataset.from_dict({"x": ["a b"] * 9, "label": [0] * 9})] * 2), "x is text"),
    (lambda: rows(*[Dataset.from_dict({"x": [[0.5]] * 9, "label": ["a"] * 9})] * 2), "y is text"),
    (lambda: rows(*[Dataset.from_dict({"x": [None] * 9, "label": [0] * 9})] * 2), "of NoneType"),
    (lambda: rows(*[pictures()[1].with_format("numpy")] * 2, fields=("image", "label")), r"bytes of an image, \(8, 8, 3\)"),
    (lambda: rows(*[pictures("CMYK")[1]] * 2, fields=("image", "label")), "of mode CMYK")])
def test_what_cannot_be_read_is_told(make, sentence):
    with pytest.raises(troupe.DataError, match=sentence):
        make()


@pytest.mark.parametrize("table", [lambda: pictures(last=pictures("L")[0][0])[1],
                                   lambda: pictures(last=pictures()[0][0].resize((9, 9)))[1]])
def test_samples_of_other_shapes_are_told(table):
    with pytest.raises(troupe.Error, match="of different shapes"):
        rows(*[table()] * 2, fields=("image", "label"))
