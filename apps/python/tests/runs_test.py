"""Experiments, runs and what they leave."""

import os
import signal
import subprocess
import sys
import tempfile
import threading

import numpy as np
import pytest
from conftest import SHORT

import troupe


def test_one_experiment_has_the_same_bits_on_both_clocks_again_and_in_a_folder(tmp_path):
    flushed = {**SHORT, "pipeline.schedule": "one_f_one_b", "pipeline.weights": "latest"}
    first = troupe.sim("teacher-mlp", flushed, out=tmp_path / "run")
    assert first.sha256 == troupe.run("teacher-mlp", flushed).sha256 == troupe.sim("teacher-mlp", flushed).sha256
    loaded = troupe.load(tmp_path / "run")
    assert loaded.summary == first.summary
    assert first.sha256 != troupe.sim("teacher-mlp", flushed, seed=2).sha256


def test_results_are_arrays():
    run = troupe.sim("teacher-mlp", SHORT, record={"every": 1})
    assert run.losses.shape == (40,) and run.losses.dtype == np.float64
    assert run.metrics("train")["step"].tolist() == list(range(1, 41))
    assert run.evaluations["accuracy"][-1] == run.summary["test_accuracy"]
    assert run.staleness["gradients"].sum() == sum(
        count for of in run.summary["staleness"].values() for count in of["histogram"].values())
    weight = run.weights["dense1.weight"]
    assert weight.dtype == np.float32 and weight.ndim == 2 and np.isfinite(weight).all()
    assert "updates 40" in repr(run)
    assert "<td>40</td>" in run._repr_html_()
    pandas = pytest.importorskip("pandas")
    assert isinstance(run.metrics().frame(), pandas.DataFrame)


def test_an_experiment_is_printed_saved_and_compared(tmp_path):
    made = troupe.Experiment("teacher-mlp", {"stop.updates": 40}, pipeline={"stages": 4, "weights": "stash"}, seed=3)
    assert "stages: 4" in str(made) and "seed: 3" in str(made)
    made.save(tmp_path / "mine.textproto")
    assert troupe.Experiment(tmp_path / "mine.textproto") == made
    assert made != troupe.Experiment(made, seed=4)
    assert troupe.sim(tmp_path / "mine.textproto").sha256 == troupe.sim(made).sha256


def test_schemes_side_by_side():
    made = troupe.compare("teacher-mlp", vary={"pipeline.weights": ["latest", "stash", "spectrain"]}, seeds=2, sets=SHORT)
    assert made.schemes["scheme"].tolist() == ["weights=latest", "weights=stash", "weights=spectrain"]
    runs = made.runs()
    assert len(runs) == 6 and (runs["updates"] == 40).all() and set(runs["seed"]) == {1, 2}
    mine = troupe.sim("teacher-mlp", SHORT, pipeline={"weights": "stash"}, seed=2)
    assert mine.summary["test_loss"] == runs["test_loss"][(runs["scheme"] == "weights=stash") & (runs["seed"] == 2)][0]
    assert "stash" in repr(made) and "<table>" in made._repr_html_()


def test_experiments_side_by_side_by_name_and_as_they_are(fails, tmp_path):
    stash, latest = (troupe.Experiment("teacher-mlp", SHORT, pipeline={"weights": way}) for way in ("stash", "latest"))
    as_they_are = troupe.compare([stash, latest, "glyphs-mlp"], stop={"updates": 40})
    assert as_they_are.schemes["scheme"].tolist() == ["teacher-mlp pipeline.weights=stash",
                                                      "teacher-mlp pipeline.weights=latest", "glyphs-mlp"]
    named = troupe.compare({"mine": stash, "theirs": latest}, out=tmp_path / "out", vary={"optimizer.learning_rate": [0.1, 0.2]},
                           seeds=2)
    runs = named.runs()
    assert set(runs["scheme"]) == {f"{name} learning_rate={rate}" for name in ("mine", "theirs") for rate in (0.1, 0.2)}
    assert len(runs) == 8 and runs["optimizer.learning_rate"].tolist() == 2 * [0.1, 0.1, 0.2, 0.2]
    mine = troupe.sim(stash, optimizer={"learning_rate": 0.2}, seed=2)
    assert mine.sha256 in set(runs["weights_sha256"])
    assert "begins anew" in fails(troupe.UsageError, lambda: troupe.compare(stash, out=tmp_path / "out"))
    assert "varied by vary=" in fails(troupe.UsageError, lambda: troupe.compare(stash, {"optimizer.learning_rate": [0.1, 0.2]}))
    assert len(troupe.compare(stash, vary={"pipeline.weights": "latest"}).runs()) == 1


def test_names_are_kept_where_a_folder_has_an_equals_sign(monkeypatch, tmp_path):
    (tmp_path / "a=b").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "a=b"))
    one = troupe.Experiment("teacher-mlp", SHORT)
    made = troupe.compare({"mine": one, "rate=0.1": troupe.Experiment(one, optimizer={"learning_rate": 0.1})})
    assert made.schemes["scheme"].tolist() == ["mine", "rate=0.1"]
    lines = str(made).splitlines()
    assert lines[1].startswith("mine ") and lines[2].startswith("rate=0.1 ")


def test_figures():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    made = troupe.compare("teacher-mlp", vary={"pipeline.weights": ["latest", "stash"]}, seeds=2, sets=SHORT)
    run = troupe.sim("teacher-mlp", SHORT, record={"every": 10})
    curves, points, losses = made.plot(), made.plot("staleness_mean"), run.plot("epoch")
    assert [line.get_color() for line in curves.lines] == ["C0", "C0", "C1", "C1"]
    assert [text.get_text() for text in curves.get_legend().get_texts()] == ["weights=latest", "weights=stash"]
    assert curves.get_ylabel() == "accuracy" and curves.lines[0].get_ydata()[-1] == made.runs()["accuracy"][0]
    assert [len(line.get_xdata()) for line in points.lines] == [1] * 4 and points.get_xlabel() == "staleness mean"
    assert losses.lines[0].get_ydata().tolist() == run.losses.tolist() and losses.lines[1].get_label() == "test"
    assert made.plot("seconds", "train_loss", ax=losses) is losses
    assert run.plot("epochs", ax=losses) is losses  # as a comparison calls it
    for plot in (made.plot, run.plot):
        with pytest.raises(ValueError, match="plot: 'staleness' is no"):
            plot("staleness")


def test_what_is_told_before_a_run():
    assert "stage" in troupe.plan("teacher-mlp", pipeline={"stages": 4})
    assert "staleness" in troupe.explain("staleness")


def test_a_run_goes_on_from_its_checkpoint_and_is_replayed(tmp_path):
    whole = troupe.sim("teacher-mlp", SHORT)
    here = os.getcwd()
    troupe.sim("teacher-mlp", SHORT, out=tmp_path / "sim", record={"checkpoint": {"every": 10, "keep": 9}})
    assert troupe.resume(tmp_path / "sim" / "checkpoints" / "step-20").sha256 == whole.sha256
    assert os.getcwd() == here
    assert troupe.run("teacher-mlp", SHORT, out=tmp_path / "real").sha256 == whole.sha256
    assert "equal" in troupe.replay(tmp_path / "real")
    summary = tmp_path / "real" / "summary.json"
    summary.write_text(summary.read_text().replace(whole.sha256, "0" * 64))
    with pytest.raises(troupe.Departed, match=f'weights_sha256: "{"0" * 64}" then, "{whole.sha256}" now'):
        troupe.replay(tmp_path / "real")


def test_errors_have_a_kind_and_a_sentence(fails, tmp_path):
    assert "did you mean" in fails(troupe.UsageError, lambda: troupe.sim("teacher-mlp", ["optimizer.learning_rat=1"]))
    assert "nothing is called" in fails(troupe.UsageError, lambda: troupe.explain("stalenes"))
    assert str(tmp_path) in fails(troupe.DataError, lambda: troupe.sim("mnist-mlp", {"data.mnist.path": tmp_path}))
    with pytest.raises(troupe.Diverged, match="diverged") as caught:
        troupe.sim("glyphs-mlp", optimizer={"learning_rate": 1e9})
    assert caught.value.trained.summary["outcome"] == "diverged"
    with pytest.raises(FileNotFoundError, match="summary.json"):
        troupe.load(tmp_path)


def test_an_interrupt_ends_a_run_in_order_and_the_next_one_is_whole():
    before = signal.getsignal(signal.SIGINT)
    for train in (troupe.run, troupe.sim):
        timer = threading.Timer(1.5, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(troupe.Interrupted) as caught:
            train("teacher-mlp", {"stop.epochs": 10**6})
        timer.join()
        assert caught.value.trained.summary["outcome"] == "interrupted" and caught.value.trained.weights
        assert train("teacher-mlp", SHORT).summary["outcome"] == "done"
    assert signal.getsignal(signal.SIGINT) is before


def test_processes_end_with_the_bits_of_one(fails, tmp_path):
    whole = troupe.sim("teacher-mlp", SHORT, pipeline={"stages": 2})
    seen = []
    run = troupe.run("teacher-mlp", SHORT, pipeline={"stages": 2}, processes=2, players={"restarts": 1}, on_metric=seen.append)
    assert run.sha256 == whole.sha256 and seen[-1]["step"] == 40
    assert "--restarts" in fails(troupe.UsageError, lambda: troupe.run("teacher-mlp", SHORT, players={"restarts": 1}))
    x = np.zeros((20, 4), np.float32)
    assert "this process alone" in fails(troupe.UsageError, lambda: troupe.run("glyphs-mlp", data=(x, x), processes=2))
    hosts = tmp_path / "hosts"
    hosts.write_text("nobody.invalid:1\n")
    assert "nobody.invalid" in fails(troupe.Lost, lambda: troupe.run("teacher-mlp", SHORT, hosts=hosts))


def test_the_program_is_in_the_package(tmp_path):
    said = subprocess.run([sys.executable, "-m", "troupe", "explain", "stash"], capture_output=True, text=True, check=True)
    assert "stash" in said.stdout
    subprocess.run([sys.executable, "-m", "troupe", "plan", "downpour", "--processes", "3"], capture_output=True, check=True)
    for processes, more in (("1", []), ("2", ["--set", "pipeline.stages=2"])):
        words = ["run", "teacher-mlp", "--processes", processes, "--set", "stop.updates=20", *more, "--out", str(tmp_path / processes)]
        subprocess.run([sys.executable, "-m", "troupe", *words], capture_output=True, check=True)
    assert troupe.load(tmp_path / "2").sha256 == troupe.sim("teacher-mlp", {"stop.updates": 20, "pipeline.stages": 2}).sha256


def test_what_is_given_as_arrays_lasts_as_long_as_it_is_read():
    x = np.random.default_rng(3).normal(size=(600, 8)).astype(np.float32)
    data = lambda: (x, (x[:, 0] > 0).astype(np.int32))  # noqa: E731
    assert "stage" in troupe.plan("teacher-mlp", data=data())
    runs = troupe.compare("teacher-mlp", vary={"optimizer.learning_rate": 0.01}, sets={"stop.updates": 3}, data=data()).runs()
    assert len(runs) == 1
