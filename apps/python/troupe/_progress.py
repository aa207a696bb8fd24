"""What is seen of a verb while it is under way: on a terminal as the program shows it, in a notebook as one output that is
rewritten. Whole lines go to the logger `troupe`."""

from __future__ import annotations

import html
import logging
import re
import sys
from typing import Any

log = logging.getLogger("troupe")

SHOWN = 20  # lines in a notebook, which gets all of them anew each time


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


class Progress:
    """`shown`: None: where somebody looks, which is in a terminal and in a notebook."""

    def __init__(self, shown: bool | None) -> None:
        looks = _in_notebook() or sys.stderr.isatty()
        self.shown = looks if shown is None else shown
        self.rewrites = self.shown and looks
        self._lines: list[str] = []
        self._rest = ""
        self._output: Any = None

    def __call__(self, text: str) -> None:
        """What has been said since the last call; a line that begins with \\r takes the place of the one before."""
        *whole, self._rest = (self._rest + text).split("\n")
        lines = [_last(line) for line in whole]
        for line in filter(None, lines):
            log.info("%s", line)
        self._lines += lines
        if self.shown and _in_notebook():
            del self._lines[:-SHOWN]
            self._display([*self._lines, _last(self._rest)])
        elif self.shown:
            print(text, end="", file=sys.stderr, flush=True)

    def _display(self, lines: list[str]) -> None:
        from IPython.display import display

        text = "\n".join(lines).rstrip()
        bar = "".join(f'<progress value="{done}" max="{of}"></progress> '
                      for done, of in re.findall(r"step +(\d+)/(\d+)", text)[-1:])
        shown = {"text/plain": text, "text/html": f"{bar}<pre>{html.escape(text)}</pre>"}
        if self._output is None:
            self._output = display(shown, raw=True, display_id=True)
        else:
            self._output.update(shown, raw=True)


def _last(line: str) -> str:
    """What stays of a line that was rewritten."""
    return line.rpartition("\r")[2].removesuffix("\033[K")
