"""The verbs of the command line, called in this process: what every function of the package stands on."""

from __future__ import annotations

import json
import os
import sys
import threading
from contextlib import contextmanager, nullcontext
from typing import Any, Callable, Iterator, Mapping, Sequence

from . import _troupe
from ._progress import Progress

# The verbs count Ctrl-C for themselves, one at a time.
_alone = threading.RLock()
importing = False  # modules, for runs of other processes
_here = threading.local()  # whether this thread is within on_metric
torch_threads = 0  # as torch.set_num_threads() has it where a run is begun; 0: torch has not been imported


class Error(Exception):
    """What went wrong, in one sentence. `trained`: the Run so far, where there is one."""

    trained: Any = None


class UsageError(Error, ValueError):
    """The experiment, or what a function was given, is wrong."""


class DataError(Error, ValueError):
    """The data is wrong or missing."""


class Diverged(Error, ArithmeticError):
    """A loss is not finite."""


class Lost(Error, RuntimeError):
    """Something was lost for good, or could not be written; an exception in a scheme of one's own is the cause."""


class Departed(Error, RuntimeError):
    """A replay has not come to the same as the run that it repeats."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C: the run has ended in order. `trained`: the Run until then."""

    trained: Any = None


_KINDS = {1: Departed, 2: UsageError, 3: DataError, 4: Diverged, 5: Lost, 130: Interrupted}


class Text(str):
    """What a verb has said, shown as it is."""

    def __repr__(self) -> str:
        return str(self)


def note_torch_threads() -> int:
    global torch_threads
    torch = sys.modules.get("torch")
    torch_threads = torch.get_num_threads() if torch else 0
    return torch_threads


@contextmanager
def torch_threads_kept() -> Iterator[None]:
    """The runtime's oneDNN has OpenMP, which torch has, too, compute in one thread from then on, in each thread that it is called by. So
    the number is noted before, for the threads of a run, and is the same again after it."""
    before = note_torch_threads()
    try:
        yield
    finally:
        if before and sys.modules["torch"].get_num_threads() != before:
            sys.modules["torch"].set_num_threads(before)


def text_of(value: Any) -> str:
    """A value of an experiment as --set takes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(text_of(v) for v in value) + "]"
    return str(value)


def assignments(sets: Any) -> list[str]:
    """["seed=3", "pipeline.stages=4"] of that list, of {"seed": 3, "pipeline.stages": 4} or of
    {"seed": 3, "pipeline": {"stages": 4}}."""
    if not isinstance(sets, Mapping):
        return [str(one) for one in sets]
    flat = []
    for key, value in sets.items():
        if isinstance(value, Mapping):
            flat += [f"{key}.{rest}" for rest in assignments(value)]
        else:
            flat.append(f"{key}={text_of(value)}")
    return flat


def set_words(sets: Sequence[str]) -> list[str]:
    return [word for one in sets for word in ("--set", one)]


def sentence_of(said: str) -> str:
    """The last thing that the program has said on its own behalf."""
    found = [line for line in said.splitlines() if line.startswith(("troupe: ", "failed "))]  # the latter of a comparison
    return found[-1].removeprefix("troupe: ") if found else said.strip()


class _Watcher:
    """Calls on_metric with each line of metrics.jsonl, until it wants the run to end."""

    def __init__(self, on_metric: Callable[[dict[str, Any]], Any]) -> None:
        self.on_metric, self.ends, self.raised = on_metric, False, None

    def __call__(self, line: str) -> bool:
        if not self.ends:
            _here.watches = True
            try:
                self.ends = self.on_metric(json.loads(line)) is False
            except BaseException as error:
                self.ends, self.raised = True, error
            finally:
                _here.watches = False
        return not self.ends


def command(*words: str, progress: Progress | None = None, on_metric: Any = None, trained: Any = None) -> Text:
    """Calls a verb; what it writes on standard output. Raises what its exit code stands for: `trained()` makes the
    exception's Run. `progress`: sees what it says meanwhile."""
    looks = words[0] in ("plan", "explain", "config")  # which disturb no run
    if getattr(_here, "watches", False) and not looks:
        raise UsageError("on_metric: the run that calls it is under way, and no other can be until it has ended")
    if importing:
        raise UsageError("this program is imported for a run of another process; what trains in it belongs below if __name__ == '__main__':")
    progress = progress or Progress(False)
    watcher = on_metric and _Watcher(on_metric)
    folder = os.getcwd()
    with nullcontext() if looks else _alone, nullcontext() if looks else torch_threads_kept():
        try:
            code, out, said, cause, ended = _troupe.command(
                ["troupe", *words], progress, progress.rewrites, watcher)
        finally:
            looks or os.chdir(folder)  # a run that goes on does so in the folder that it was begun in
    if watcher and watcher.raised is not None:
        raise watcher.raised
    if code != 0 and not (code == 130 and ended):
        error = _KINDS[code](sentence_of(said + out))
        if trained is not None and code != 2:
            error.trained = trained()
        raise error from cause
    return Text(out)
