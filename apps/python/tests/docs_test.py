"""The blocks of apps/docs/python.md, one after the other."""

import re
from pathlib import Path

import pytest


def test_the_page_runs(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    pytest.importorskip("pandas")
    pytest.importorskip("matplotlib").use("agg")
    monkeypatch.chdir(tmp_path)
    page = Path(__file__).parents[2] / "docs" / "python.md"
    text = page.read_text()
    blocks = list(re.finditer(r"^```python\n(.*?)^```$", text, re.M | re.S))
    assert len(blocks) > 5
    names = {}
    for block in blocks:
        line = text[: block.start(1)].count("\n")
        exec(compile("\n" * line + block[1], str(page), "exec"), names)  # so that a traceback has the page's lines
