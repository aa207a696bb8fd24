"""run, sim, compare and the other verbs."""

from __future__ import annotations

import json
import tempfile
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Iterable, Iterator, Mapping, Sequence

from . import _troupe
from ._command import Text, UsageError, assignments, command, set_words, text_of, torch_threads_kept
from ._progress import Progress
from ._shared import found_as, program, share
from .data import dataset
from .results import Comparison, Run

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._keys import Keys, Sets


class Experiment:
    """An experiment: a preset or a file (.textproto, .json), and what is changed of it.

    Experiment("teacher-mlp", {"stop.updates": 100}, pipeline={"stages": 4, "weights": "stash"}, seed=3)

    `data`: arrays (x, y) or (x, y, x_test, y_test), an object of data.arrays() or data.samples(), or none or keys: the
    experiment's own. `network`: a troupe.torch.Network, or none.
    """

    def __init__(self, base: "str | Path | Experiment" = "glyphs-mlp", sets: Sets | Mapping[str, Any] | Sequence[str] = (), *,
                 data: Any = None, network: Any = None, **keys: Unpack[Keys]) -> None:
        if isinstance(data, Mapping):  # keys, too
            keys, data = {**keys, "data": data}, None  # type: ignore[assignment]
        more = assignments(sets) + assignments(keys)
        if isinstance(base, Experiment):
            more = base.sets + more
            data, network = base.data if data is None else data, base.network if network is None else network
            base = base.base
        self.base, self.sets = str(base), more
        self.data = None if data is None else dataset(data)
        self.network = _network(network)

    def words(self) -> list[str]:
        """As the command line takes it."""
        own = [*(self.data.assignments() if self.data else []), *(self.network.assignments() if self.network else [])]
        return [self.base, *set_words(own + self.sets)]

    def __str__(self) -> str:
        """As textproto, with every default."""
        return command("config", "print", *self.words())

    def __repr__(self) -> str:
        return f"<Experiment: {' '.join([self.base, *self.sets])}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Experiment) and str(self) == str(other)

    __hash__ = None  # type: ignore[assignment]

    def save(self, path: str | Path) -> None:
        """As textproto, for `troupe run` and Experiment(path)."""
        Path(path).write_text(str(self))


def _network(one: Any) -> Any:
    if one is not None and not hasattr(one, "layers"):
        raise UsageError(f"network: a {type(one).__name__} is no troupe.torch.Network; Network(*modules) makes one, and "
                         "from_torch(module, example)")
    return one


def _folder(out: str | Path | None) -> tuple[Path, tempfile.TemporaryDirectory | None]:
    if out is not None:
        return Path(out), None
    kept = tempfile.TemporaryDirectory(prefix="troupe-")
    return Path(kept.name) / "run", kept


def _command(words: Sequence[str], progress: bool | None, **how: Any) -> Text:
    shown = Progress(progress)
    return command(*words, *([] if shown.shown else ["--quiet"]), progress=shown, **how)


def _train(verb: str, chosen: Experiment, out: Any, progress: bool | None, on_metric: Any, players: Sequence[str] = ()) -> Run:
    folder, kept = _folder(out)
    return _run_in(folder, kept, [verb, *chosen.words(), "--out", str(folder), *players], progress, on_metric)


def _run_in(folder: Path, kept: Any, words: Sequence[str], progress: bool | None, on_metric: Any) -> Run:
    def trained() -> Run | None:
        return Run(folder, kept) if (folder / "summary.json").exists() else None

    _command(words, progress, on_metric=on_metric, trained=trained)
    return Run(folder, kept)


def run(experiment: Any = "glyphs-mlp", sets: Sets | Mapping[str, Any] | Sequence[str] = (), *, out: str | Path | None = None,
        progress: bool | None = None, on_metric: Callable[[dict[str, Any]], Any] | None = None, data: Any = None,
        network: Any = None, processes: int = 1, hosts: str | Path | None = None, players: Mapping[str, Any] | None = None,
        **keys: Unpack[Keys]) -> Run:
    """Trains on the real clock. `experiment`, `sets` and all else (data, network, keys) are those of Experiment; `out`:
    folder of the run's files, else they are kept as long as the Run is. `progress`: whether it is shown how the run goes on;
    None: in terminals and notebooks.

    `on_metric`: called with each line of metrics.jsonl as a dictionary, whose "kind" is "train", "evaluation" and so on,
    while the run goes on, by a thread of it. Where it returns False the run ends in order and is returned; where it raises,
    the run ends in order and raises the same. Ctrl-C once ends in order, and raises Interrupted, whose `trained` is the Run
    until then; a second time ends at once.

    `processes`: of this machine that play the run; `hosts`: a file with those of others, as `troupe run --hosts`; `players`:
    {"restarts": 1}, {"back": 0}, {"restart_wait": 5}, {"keys": folder}. Processes know schemes in Python that are in modules,
    and data and networks that are globals of modules; what else is Python only this process knows. On other hosts
    `python -m troupe node --import MODULE` has them; a program that is a file is a module there."""
    chosen = Experiment(experiment, sets, data=data, network=network, **keys)
    words = [word for key, value in (players or {}).items() for word in (f"--{key.replace('_', '-')}", str(value))]
    words += ["--hosts", str(hosts)] if hosts else []
    modules = share(chosen, bool(hosts)) if hosts or processes > 1 else []
    with tempfile.TemporaryDirectory(prefix="troupe-") as folder:
        if processes > 1:
            words += ["--processes", str(processes), "--program", program(Path(folder), modules)]
        return _train("run", chosen, out, progress, on_metric, words)


def sim(experiment: Any = "glyphs-mlp", sets: Sets | Mapping[str, Any] | Sequence[str] = (), *, out: str | Path | None = None,
        progress: bool | None = None, on_metric: Callable[[dict[str, Any]], Any] | None = None, data: Any = None,
        network: Any = None, **keys: Unpack[Keys]) -> Run:
    """run() on the virtual clock: exactly repeatable, times are modelled."""
    return _train("sim", Experiment(experiment, sets, data=data, network=network, **keys), out, progress, on_metric)


def load(folder: str | Path) -> Run:
    """The results of a run that has ended, here or elsewhere."""
    return Run(folder)


@contextmanager
def _again(home: Path, data: Any, network: Any) -> Iterator[Path]:
    """A folder that is the run's, and whose experiment has this data and network for those that it had."""
    network = _network(network)
    if data is None and network is None:
        yield home
        return
    was = json.loads(command("config", "print", str(home / "experiment.textproto"), "--json"))
    with ExitStack() as stack, tempfile.TemporaryDirectory(prefix="troupe-") as made:
        for what, where, one in (("data", "data", data if data is None else dataset(data)), ("network", "model", network)):
            custom = was.get(where, {}).get("custom", {})
            if one is not None and custom.get("name") != "python":
                raise UsageError(f"{what}: that of the run in {home} is not of Python")
            if one is not None:
                stack.enter_context(found_as(one, custom["values"][0]["text"]))
        for path in home.iterdir():
            (Path(made) / path.name).symlink_to(path)
        if network is not None:  # where its weights begin: that file lasts as long as the network of the run did
            text = Path(made) / "experiment.textproto"
            text.unlink()
            begins = next(one for one in network.assignments() if one.startswith("start_from="))
            text.write_text(command("config", "print", str(home / text.name), "--set", begins))
        yield Path(made)


def resume(folder: str | Path, sets: Sets | Mapping[str, Any] | Sequence[str] = (), *, out: str | Path | None = None,
           progress: bool | None = None, on_metric: Callable[[dict[str, Any]], Any] | None = None, data: Any = None,
           network: Any = None, **keys: Unpack[Keys]) -> Run:
    """Goes on with a run from its newest checkpoint, in its own folder; or `folder` is a checkpoint of it. With other keys it
    goes on in a new folder, `out` or one that lasts as long as the Run. `data`, `network`: what it had of Python, made anew by another program."""
    home = Path(folder).resolve()
    if home.parent.name == "checkpoints":
        home = home.parent.parent
    if not (home / "metrics.jsonl").exists():
        raise FileNotFoundError(f"{home} has no metrics.jsonl: it is not the folder of a run")
    with open(home / "metrics.jsonl") as lines:
        first = lines.readline()
    if not first.endswith("\n"):
        raise UsageError(f"{home}/metrics.jsonl is empty: the run has not begun")
    verb = "sim" if json.loads(first)["clock"] == "virtual" else "run"
    more = assignments(sets) + assignments(keys)
    if out is not None and not more:
        raise UsageError("resume: a run goes on as it was begun, in its own folder; another one (out=) goes with keys that are changed")
    to, kept = (home, None) if out is None and not more else _folder(out)
    with _again(home, data, network):
        words = [verb, "--resume", str(folder), *set_words(more), *([] if to == home else ["--out", str(to)])]
        return _run_in(to, kept, words, progress, on_metric)


def replay(folder: str | Path, *, progress: bool | None = None, data: Any = None, network: Any = None) -> Text:
    """A recorded run of the real clock once more. Departed where it has not come to the same. `data`, `network`: what it had of
    Python, made anew by another program, with the weights that it began with."""
    with _again(Path(folder).resolve(), data, network) as home:
        return _command(["replay", str(home if network is not None else folder)], progress)


def _named(experiments: Iterable[Any], files: Path) -> list[str]:
    """As `troupe compare` takes them: Experiments are files for as long as it runs."""
    named: list[tuple[str | None, Any]] = []
    for given in experiments:
        named += given.items() if isinstance(given, Mapping) else ((None, one) for one in
                                                                   (given if isinstance(given, (list, tuple)) else [given]))
    for label, one in named:
        if not isinstance(one, (str, Path, Experiment)):
            raise UsageError(f"compare: {label or 'an experiment'} is a {type(one).__name__}, and no Experiment, preset or file; keys are "
                             "varied by vary={key: values} and set by sets={key: value}")
    made = [one for _, one in named if isinstance(one, Experiment)]
    words: dict[str, str] = {}
    for number, (label, one) in enumerate(named):
        if isinstance(one, Experiment):
            own = [key for key in one.sets if any(key not in other.sets for other in made)]
            label = label or " ".join([Path(one.base).stem, *own])
            one.save(files / f"{number}.textproto")
            one = files / f"{number}.textproto"
        label = str(one) if label is None else label
        while label in words:
            label += "'"
        words[label] = str(one) if label == str(one) else f"{label}={one}"
    return list(words.values())


def compare(*experiments: Any, vary: Mapping[str, Iterable[Any]] | None = None, sets: Any = (), seeds: int = 1,
            target: float | None = None, clock: str = "virtual", jobs: int | None = None,
            out: str | Path | None = None, progress: bool | None = None, data: Any = None, network: Any = None,
            **keys: Unpack[Keys]) -> Comparison:
    """Several schemes on equal terms: each of `experiments` (presets, files, Experiments, lists of them, and dictionaries of
    them by what each is to be called) with each combination of `vary` ({"pipeline.weights": ["stash", "spectrain"]}),
    `seeds` times. What is set by `sets` and keywords holds for all."""
    held = Experiment("", assignments(sets) + assignments(keys), data=data, network=network)  # and what is Python in it
    common = held.words()[1:]
    folder, kept = _folder(out)
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty; a comparison begins anew, as what is Python in it may have changed")
    with tempfile.TemporaryDirectory(prefix="troupe-") as files:
        words = ["compare", *_named(experiments, Path(files)), *common, "--seeds", str(seeds), "--clock", clock, "--out",
                 str(folder)]
        for key, values in (vary or {}).items():
            words += ["--vary", f"{key}={','.join(text_of(value) for value in ([values] if isinstance(values, (str, int, float)) else values))}"]
        words += [*(["--target", str(target)] if target is not None else []), *(["--jobs", str(jobs)] if jobs else [])]
        return Comparison(folder, _command(words, progress), kept)


def plan(experiment: Any = "glyphs-mlp", sets: Sets | Mapping[str, Any] | Sequence[str] = (), *, data: Any = None,
         network: Any = None, **keys: Unpack[Keys]) -> Text:
    """Stages, memory, idle time and staleness of an experiment, without running it."""
    held = Experiment(experiment, sets, data=data, network=network, **keys)  # and what is Python in it
    return command("plan", *held.words())


def explain(name: str = "") -> Text:
    """What a scheme, a key of an experiment, a preset or a term is; without a name all schemes."""
    return command("explain", *([name] if name else []))


@dataclass
class Finding:
    check: str     # "crash"
    holds: bool
    applies: bool  # False: such a scheme does not make this promise
    what: str      # one sentence, with the figures


def conformance(name: str, values: Mapping[str, float] | None = None, bound: int | None = None) -> list[Finding]:
    """Whether a rule, exchange, schedule, weight policy, optimizer, codec or layer keeps what the runtime promises of every one
    of its kind.
    `bound`: no gradient may be applied that is more updates late."""
    try:
        with torch_threads_kept():
            found: Sequence[Any] = _troupe.conformance(name, assignments(values or {}), bound)
    except ValueError as error:
        raise UsageError(str(error)) from None
    return [Finding(*one) for one in found]
