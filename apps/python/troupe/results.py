"""What a run has left in its folder, as arrays."""

from __future__ import annotations

import csv
import html
import json
import math
import tempfile
from functools import cached_property
from pathlib import Path
from typing import Any, Iterable, Mapping

import numpy as np


class Table(dict):
    """Columns by name, arrays of one length; what was not measured is NaN."""

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, Any]]) -> "Table":
        rows = [_flat(row) for row in rows]
        names = list(dict.fromkeys(name for row in rows for name in row))
        return cls((name, _column([row.get(name) for row in rows])) for name in names)

    def __len__(self) -> int:
        """Of rows."""
        return len(next(iter(self.values()))) if self.keys() else 0

    def __bool__(self) -> bool:
        return len(self) > 0

    def frame(self) -> Any:
        """A pandas DataFrame, where pandas is installed."""
        import pandas

        return pandas.DataFrame(dict(self))

    def rows(self) -> list[dict[str, Any]]:
        return [dict(zip(self.keys(), row)) for row in zip(*self.values())]

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self.keys())
        body = "".join("<tr>" + "".join(f"<td>{html.escape(_shown(x))}</td>" for x in row) + "</tr>"
                       for row in zip(*self.values()))
        return f"<table><tr>{head}</tr>{body}</table>"

    def __repr__(self) -> str:
        lines = [list(self.keys()), *([_shown(x) for x in row] for row in zip(*self.values()))]
        widths = [max(map(len, column)) for column in zip(*lines)]
        return "\n".join("  ".join(x.rjust(w) for x, w in zip(line, widths)) for line in lines)


def _flat(row: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, Mapping):
            flat.update(_flat(value, f"{before}{key}."))
        else:
            flat[before + key] = value
    return flat


def _column(values: list[Any]) -> np.ndarray:
    if all(isinstance(v, int) and not isinstance(v, bool) for v in values):
        return np.array(values, np.int64)
    if all(v is None or isinstance(v, (int, float)) for v in values):
        return np.array([math.nan if v is None else v for v in values], np.float64)
    return np.array(["" if v is None else v for v in values], dtype=object)


def _shown(x: Any) -> str:
    return f"{x:.5g}" if isinstance(x, float) else str(x)


def read_weights(path: Path) -> dict[str, np.ndarray]:
    """Of a safetensors file, float32; the arrays are read from the file as they are used."""
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
    header.pop("__metadata__", None)
    data = np.memmap(path, np.uint8, "c", 8 + size) if header else np.zeros(0, np.uint8)
    return {name: data[slice(*entry["data_offsets"])].view(np.float32).reshape(entry["shape"])
            for name, entry in header.items()}


def write_weights(path: Path, tensors: Mapping[str, np.ndarray]) -> None:
    """A safetensors file, as F32."""
    header: dict[str, Any] = {}
    at = 0
    for name, tensor in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [at, at + tensor.nbytes]}
        at += tensor.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors.values():
            file.write(np.ascontiguousarray(tensor, np.float32).tobytes())


class Run:
    """A run that has ended: the files of its folder, which lies in `folder`. One that was not given a folder has its files
    for as long as the object is there."""

    def __init__(self, folder: str | Path, kept: tempfile.TemporaryDirectory | None = None) -> None:
        self.folder = Path(folder)
        self._kept = kept
        if not (self.folder / "summary.json").exists():
            raise FileNotFoundError(f"{self.folder} has no summary.json: it is not the folder of a run that has ended")

    @cached_property
    def summary(self) -> dict[str, Any]:
        """summary.json: outcome, updates, losses, accuracy, staleness, digests, and the whole experiment."""
        return json.loads((self.folder / "summary.json").read_text())

    def metrics(self, kind: str = "train") -> Table:
        """The lines of metrics.jsonl of one kind ("train", "evaluation", "gap", ...), a row each."""
        with open(self.folder / "metrics.jsonl") as lines:
            return Table.of({key: value for key, value in line.items() if key != "kind"}
                            for line in map(json.loads, lines) if line["kind"] == kind)

    @property
    def losses(self) -> np.ndarray:
        """Of the training data, a mean over every record.every updates."""
        return self.metrics("train").get("loss", np.zeros(0))

    @property
    def evaluations(self) -> Table:
        """On the test data: step, epoch, loss, accuracy (0 to 1), seconds of the run's clock."""
        return self.metrics("evaluation")

    @property
    def staleness(self) -> Table:
        """A row a shard and a staleness in versions: how many gradients were so late."""
        return Table.of({"shard": shard, "staleness": int(late), "gradients": count}
                        for shard, of in self.summary["staleness"].items() for late, count in of["histogram"].items())

    @cached_property
    def weights(self) -> dict[str, np.ndarray]:
        """Of the end, by name, in PyTorch's order of elements; buffers among them."""
        path = self.folder / "weights.safetensors"
        return read_weights(path) if path.exists() else {}

    @property
    def experiment(self) -> str:
        """As it was run, with every default, as textproto."""
        return (self.folder / "experiment.textproto").read_text()

    @property
    def sha256(self) -> str:
        """Of the weights: equal for runs that have learnt the same to the bit."""
        return self.summary["weights_sha256"]

    def plot(self, x: str = "step", ax: Any = None) -> Any:
        """The losses of training and test data by matplotlib, on `ax` or new axes, which are returned. `x`: "step", "epoch" or
        "seconds"."""
        x = {"updates": "step", "epochs": "epoch"}.get(x, x)  # a comparison's words
        if x not in ("step", "epoch", "seconds"):
            raise ValueError(f'plot: {x!r} is none of "step", "epoch" and "seconds"')
        ax = ax or _axes()
        for kind, style in (("train", "-"), ("evaluation", "o-")):
            table = self.metrics(kind)
            if table:
                ax.plot(table[x], table["loss"], style, label="test" if kind == "evaluation" else kind)
        return _labelled(ax, x, "loss")

    def _facts(self) -> dict[str, Any]:
        s = self.summary
        late = [(of["mean"], of["max"]) for of in s["staleness"].values()]
        return {"name": s["experiment"].get("name", ""), "outcome": s["outcome"], "clock": s["clock"],
                "updates": s["updates"], "seconds": s["seconds"], "train_loss": s["train_loss"], "test_loss": s["test_loss"],
                "test_accuracy": s["test_accuracy"], "samples_per_second": s["samples_per_second"],
                "staleness": max(late)[0] if late else None, "staleness_max": max(m for _, m in late) if late else None}

    def __repr__(self) -> str:
        facts = ", ".join(f"{key} {_shown(value)}" for key, value in self._facts().items() if value not in (None, ""))
        return f"<Run: {facts}>"

    def _repr_html_(self) -> str:
        return Table.of([self._facts()])._repr_html_()


class Comparison:
    """Schemes side by side: the files of a comparison's folder."""

    def __init__(self, folder: str | Path, text: str = "", kept: tempfile.TemporaryDirectory | None = None) -> None:
        self.folder, self.text, self._kept = Path(folder), text, kept

    @cached_property
    def results(self) -> dict[str, Any]:
        """compare.json."""
        return json.loads((self.folder / "compare.json").read_text())

    @property
    def schemes(self) -> Table:
        """A row a scheme: means over the seeds, each with its deviation (`.sd`)."""
        return Table.of(_without(scheme, ("set", "trials")) for scheme in self.results["schemes"])

    @property
    def curves(self) -> Table:
        """A row an evaluation: scheme, seed, updates, epochs, seconds, train_loss, test_loss, accuracy."""
        return _csv(self.folder / "curves.csv")

    def runs(self) -> Table:
        """A row a trial: scheme, the varied keys, seed, outcome, updates, losses, accuracy, staleness_mean, bytes_sent, ..."""
        return _csv(self.folder / "runs.csv", without=("experiment",))

    def plot(self, x: str = "epochs", y: str | None = None, ax: Any = None) -> Any:
        """By matplotlib, on `ax` or new axes, which are returned. `x` of the curves (updates, epochs, seconds): a line a trial,
        a colour a scheme. `x` of runs() alone (staleness_mean, ...): a point a trial. `y`: None: what schemes are judged by,
        accuracy or test_loss."""
        curves = self.curves
        table = curves if x in curves else self.runs()
        y = y or self.results["measure"]
        for name in (x, y):
            if name not in table:
                raise ValueError(f"plot: {name!r} is no column of {'curves' if table is curves else 'runs()'}: {', '.join(table)}")
        ax = ax or _axes()
        for number, scheme in enumerate(dict.fromkeys(table["scheme"])):
            of = table["scheme"] == scheme
            for label, seed in zip([scheme, *[None] * len(table)], dict.fromkeys(table["seed"][of])):
                here = of & (table["seed"] == seed)
                ax.plot(table[x][here], table[y][here], "-" if table is curves else "osv^D<>Pp"[number % 9], color=f"C{number}", label=label,
                        **({} if table is curves else {"alpha": 0.6, "markersize": 9}))  # points may lie on one another
        return _labelled(ax, x, y)

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return self.schemes._repr_html_()


def _csv(path: Path, without: Iterable[str] = ()) -> Table:
    with open(path, newline="") as file:
        return Table.of(_without({key: _number(value) for key, value in row.items()}, without) for row in csv.DictReader(file))


def _axes() -> Any:
    from matplotlib import pyplot

    return pyplot.subplots()[1]


def _labelled(ax: Any, x: str, y: str) -> Any:
    ax.set(xlabel=x.replace("_", " "), ylabel=y.replace("_", " "))
    ax.legend()
    return ax


def _without(row: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in keys}


def _number(text: str) -> Any:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text) if text else None
    except ValueError:
        return text
