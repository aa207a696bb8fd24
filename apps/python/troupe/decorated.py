"""Schemes that are one function each."""

from __future__ import annotations

import inspect
from typing import Any, Callable, TypeVar

from . import schemes

F = TypeVar("F", bound=Callable[..., Any])


def _decorator(base: type[schemes._Scheme], method: str, doc: str) -> Callable[..., Callable[[F], F]]:
    def decorate(name: str, *, method: str = method, **facts: Any) -> Callable[[F], F]:
        def made(function: F) -> F:
            def call(self: Any, *arguments: Any) -> Any:
                return function(*lead(self), *arguments, **self.options)

            takes = inspect.signature(function).parameters.values()
            for one in takes:
                if one.kind is one.POSITIONAL_OR_KEYWORD and one.default is not one.empty:
                    raise TypeError(f"{name}: {one.name} is no option, as it is no argument by keyword alone; write *, before it")
                if one.kind is one.KEYWORD_ONLY and one.default is one.empty:
                    raise TypeError(f"{name}: the option {one.name} has no default")
            options = [schemes.Option(one.name, one.default) for one in takes if one.kind is one.KEYWORD_ONLY]
            summary = (inspect.getdoc(function) or function.__name__).splitlines()[0]
            type(function.__name__, (base,), {"summary": summary, "options": options, "__doc__": function.__doc__, **of_base, **facts,
                                              "name": name, method: call, "__module__": function.__module__})
            return function

        return made

    # A module's constants come with its inputs; a function of one loss or one update has no state.
    lead = (lambda self: (self.module,)) if base is schemes.Decoupled else lambda self: ()
    no_state: dict[str, Any] = {"state": lambda self: ([], []), "restore": lambda self, numbers, arrays: None}
    of_base = no_state if base is schemes.Extension else {}
    decorate.__doc__ = doc + f"""

    Arguments by keyword alone are options, with their defaults; the first line of its docstring is the summary. `method`:
    which of {base.__name__}'s methods the function is, if not {method}(). `facts`: attributes of the class, such as
    `options=[Option(...)]` with bounds. The function can be called as before."""
    return decorate


rule = _decorator(schemes.Rule, "weight", """A Rule that is one function, (of, update) -> the factor on a late gradient:

    @troupe.rule("half_life", bears_delay=True)
    def half_life(of, update, *, half_life=4.0):
        \"\"\"a gradient's weight halves with each half-life it is late\"\"\"
        return 2 ** (-of.lag / half_life)""")
policy = _decorator(schemes.Policy, "forward", "A Policy that is one function, (action) -> (step, reach, horizon).")
optimizer = _decorator(schemes.Optimizer, "update", "An Optimizer that is one function, (numbers, w, g, w_new, moments) -> direction.")
schedule = _decorator(schemes.Schedule, "write", "A Schedule that is one function, (s), which says what a stage does.")
decoupled = _decorator(schemes.Decoupled, "error", "A Decoupled that is one function, (module, inputs) -> the module's error signal.")
extension = _decorator(schemes.Extension, "loss", "An Extension that is one function without a state, (of, now) -> a factor on the "
                       "learning rate, or None.")
