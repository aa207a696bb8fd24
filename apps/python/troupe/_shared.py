"""What of a run is Python, where other processes play it, too: they import the modules that it is in, and find data and networks
as globals of these."""

from __future__ import annotations

import importlib
import shlex
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Iterator, Sequence

from . import _command, schemes
from ._command import UsageError


def _imported_as(module: str, hosts: bool) -> str | None:
    """How others import it: on other hosts the program itself by the name of its file."""
    main = sys.modules.get("__main__")
    if module != "__main__":
        return module
    file = getattr(main, "__file__", None)
    return Path(file).stem if hosts and file and getattr(main, "__spec__", None) is None else None


def _place(value: Any, what: str, hosts: bool) -> str:
    """"mine:network": the module whose global it is, and the global."""
    for name, module in sorted(sys.modules.items(), key=lambda one: one[0] == "__main__"):
        for attribute, one in list(getattr(module, "__dict__", {}).items()):
            if one is value and name != "__mp_main__" and (others := _imported_as(name, hosts)):
                return f"{others}:{attribute}"
    raise UsageError(f"{'hosts' if hosts else 'processes'}: the {what} is known to this process alone; make it a global of a module, which "
                     "others can import")


def share(experiment: Any, hosts: bool) -> list[str]:
    """The modules that the others have to import. Data and networks get a name by which these find them, on other hosts with what
    they hold theirs beside."""
    text = str(experiment)
    modules = []
    for name, module in sorted(schemes.modules):
        if f'name: "{name}"' in text:
            others = _imported_as(module, hosts)
            if not others:
                raise UsageError(f"processes: {name} is defined in the program or notebook itself, which no other process can import; "
                                 "put it into a module")
            modules.append(others)
    for what, one in (("data", experiment.data), ("network", experiment.network)):
        if one:
            place = _place(one, what, hosts)
            one.known_as(f"{place}@{one.digest()}" if hosts else place)
            modules.append(place.partition(":")[0])
    return list(dict.fromkeys(modules))


def find(id: str, what: str) -> tuple[Any, str]:
    """The global that an experiment of another process names, and, where that is of another host, its digest there."""
    place, _, digest = id.partition("@")
    name, _, attribute = place.partition(":")
    if not attribute:
        raise LookupError(f"this process has no {what} {id!r}; give what the run had, made anew: {what}=...")
    module = sys.modules.get(name) or sys.modules["__main__"] if name == _imported_as("__main__", True) else sys.modules.get(name)
    if module is None:
        raise LookupError(f"the {what} is {attribute} of the module {name}, which this process has not imported; start it with "
                          f"python -m troupe node --import {name} ...")
    if attribute not in vars(module):
        raise LookupError(f"the {what} is {attribute} of the module {name}, which has none here; all hosts need the same {name}.py")
    one = vars(module)[attribute]
    if digest and not hasattr(one, "digest"):
        raise LookupError(f"{place} is no {what}")
    if digest and digest != one.digest():
        raise ValueError(f"the {what}, {place}, is not here what it is where the run was started; all hosts need the same {name}.py and the "
                         "same versions of what it imports, and random numbers by a seed (torch.manual_seed)")
    return one, digest


@contextmanager
def found_as(one: Any, id: str) -> Iterator[None]:
    """A Dataset or a Network is what is found by `id` for as long as this lasts."""
    own, before = one.id, one.known.get(id)
    one.known_as(id)
    try:
        yield
    finally:
        del one.known[id]
        one.known_as(own)
        if before is not None:
            before.known_as(id)


def load(modules: Sequence[str]) -> None:
    """Imports them for the runs of others."""
    _command.importing = True
    try:
        for module in modules:
            importlib.import_module(module)
    finally:
        _command.importing = False
    _command.note_torch_threads()


def program(folder: Path, modules: Sequence[str] = ()) -> str:
    """What another process of this machine is, in `folder`: this one's own program is Python. `modules`: what it imports before."""
    words = "".join(f", '--import', {module!r}" for module in modules)
    code = (f"import sys; sys.path[:] = {sys.path!r}\nsys.argv += [{words[2:]}]\n"
            "import runpy; runpy.run_module('troupe', run_name='__main__')")
    path = folder / "troupe"
    path.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -c {shlex.quote(code)} "$@"\n')
    path.chmod(0o700)
    return str(path)
