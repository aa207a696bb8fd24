"""What is seen of a run while it goes on."""

import json
import logging

import pytest
from conftest import SHORT

import troupe

LONG = {"stop.epochs": 10**6, "record.every": 5}
TRAINS = pytest.mark.parametrize("train", [troupe.run, troupe.sim])


@TRAINS
def test_each_line_is_told_as_it_is_written(train):
    lines = []
    run = train("teacher-mlp", SHORT, on_metric=lines.append)
    assert lines == [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    assert {line["kind"] for line in lines} >= {"header", "train", "evaluation"}


@TRAINS
def test_a_run_ends_in_order_where_who_watches_says_so(train):
    run = train("teacher-mlp", LONG, on_metric=lambda line: line.get("step", 0) < 20)
    assert run.summary["outcome"] == "interrupted" and run.summary["updates"] >= 20 and run.weights
    if train is troupe.sim:
        assert run.sha256 == train("teacher-mlp", LONG, on_metric=lambda line: line.get("step", 0) < 20).sha256


@TRAINS
def test_what_who_watches_raises_ends_the_run_and_comes_back(train, tmp_path):
    class Pruned(Exception):
        pass

    def prune(line):
        if line["kind"] == "train":
            raise Pruned(line["step"])

    with pytest.raises(Pruned, match="1"):
        train("teacher-mlp", LONG, on_metric=prune, out=tmp_path / "run")
    assert troupe.load(tmp_path / "run").summary["outcome"] == "interrupted"
    assert train("teacher-mlp", SHORT).summary["outcome"] == "done"


@TRAINS
def test_no_other_run_is_under_way_within_the_callback(train):
    with pytest.raises(troupe.UsageError, match="under way"):
        train("teacher-mlp", LONG, on_metric=lambda line: troupe.sim("teacher-mlp", SHORT))


@TRAINS
def test_what_disturbs_no_run_may_be_asked_within_the_callback(train):
    said = []
    train("teacher-mlp", SHORT, on_metric=lambda line: said.append(
        ("stage" in troupe.plan("teacher-mlp"), "staleness" in troupe.explain("staleness"))))
    assert said and all(plan and term for plan, term in said)


def test_a_notebook_gets_the_last_lines_alone(monkeypatch):
    from troupe import _progress

    shown = []
    monkeypatch.setattr(_progress, "_in_notebook", lambda: True)
    progress = _progress.Progress(True)
    monkeypatch.setattr(progress, "_display", shown.append)
    for i in range(1000):
        progress(f"line {i}\n")
    assert shown[-1][-2:] == ["line 999", ""] and max(map(len, shown)) == _progress.SHOWN + 1


def test_progress_is_shown_when_asked_and_logged(capsys, caplog):
    with caplog.at_level(logging.INFO, "troupe"):
        troupe.sim("teacher-mlp", SHORT, progress=True)
    err = capsys.readouterr().err
    assert "step" in err and "\r" not in err
    assert any(message.startswith("evaluation at step 40") for message in caplog.messages)
    troupe.sim("teacher-mlp", SHORT)
    assert capsys.readouterr().err == ""


def test_a_notebook_has_one_output_that_is_rewritten():
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    cells = ["import troupe", "seen = []", "for train in (troupe.run, troupe.sim):\n"
             "    train('teacher-mlp', {'stop.updates': 400}, on_metric=seen.append)\nprint(len(seen) > 4)"]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbclient.NotebookClient(book, timeout=120).execute()
    shown = [output["data"]["text/html"] for output in book.cells[-1].outputs if "data" in output]
    assert len(shown) == 2 and all('<progress value="400" max="400">' in one for one in shown)
    assert all(one.count("step") < 12 and "\r" not in one and "\033" not in one for one in shown)
    assert book.cells[-1].outputs[-1]["text"] == "True\n"
