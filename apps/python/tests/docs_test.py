"""The blocks of the pages for Python, one after the other."""

import re
from pathlib import Path

import pytest


@pytest.mark.parametrize("name", ["notebook.md", "python.md", "coming-from.md"])
def test_the_page_runs(tmp_path, monkeypatch, name):
    if name != "coming-from.md":
        pytest.importorskip("torchvision" if name == "python.md" else "torch")
    pytest.importorskip("pandas")
    pytest.importorskip("matplotlib").use("agg")
    if name == "python.md":
        pytest.importorskip("datasets", reason="Hugging Face's package datasets is not installed")
    monkeypatch.chdir(tmp_path)
    page = Path(__file__).parents[2] / "docs" / name
    text = page.read_text()
    blocks = list(re.finditer(r"^```python\n(.*?)^```$", text, re.M | re.S))
    assert len(blocks) > 5
    names = {}
    for block in blocks:
        line = text[: block.start(1)].count("\n")
        if name == "coming-from.md":
            assert block[1].count("\n") <= 30, f"line {line}: what is said to take 30 lines takes more"
        exec(compile("\n" * line + block[1], str(page), "exec"), names)  # so that a traceback has the page's lines
