"""Torch networks, data and schemes in Python on several hosts: two nodes and a lead, which is a program of its own, on this machine."""

import os
import re
import subprocess
import sys
from contextlib import contextmanager

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

MINE = """
import sys
import torch
from torch import nn
import numpy as np
import troupe
from troupe.torch import Network

torch.manual_seed(SEED)
random = np.random.default_rng(0)
x = random.normal(size=(200, 3, 6, 6)).astype(np.float32)
data = troupe.arrays(x, (x.mean((1, 2, 3)) > 0).astype(np.int32))
network = Network(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.2)), nn.Flatten(), nn.Linear(128, 32), nn.Linear(32, 2))

class Damped(troupe.Optimizer):
    name, summary, moments = "damped", "the half of a step", 0

    def update(self, n, w, g, w_new, moments):
        direction = np.float32(n.gradient_scale) * g
        w_new[:] = w - np.float32(n.rate / 2) * direction
        return direction

HOW = {"pipeline.stages": 3, "pipeline.schedule": "async_one_f_one_b", "pipeline.weights": "stash", "data.batch_size": 20,
       "stop.epochs": 0, "stop.updates": 30, "optimizer.custom.name": "damped"}

if __name__ == "__main__":
    try:
        there = troupe.run("teacher-mlp", HOW, data=data, network=network, hosts="hosts", progress=False)
        print(there.sha256, troupe.sim("teacher-mlp", HOW, data=data, network=network, progress=False).sha256)
    except troupe.Error as error:
        sys.exit(str(error))
"""


@contextmanager
def nodes(folder, *more, count=2):
    """Their ports, and what they have said."""
    words = [sys.executable, "-m", "troupe", "node", "--listen", "127.0.0.1:0", *more]
    all = [subprocess.Popen(words, cwd=folder, stderr=subprocess.PIPE, text=True) for _ in range(count)]
    try:
        yield [re.search(r":(\d+)", node.stderr.readline())[1] for node in all]
    finally:
        for node in all:
            node.send_signal(2)  # Ctrl-C
        assert [node.wait(20) for node in all] == [-2] * count
        for node in all:
            node.stderr.close()


def folders(tmp_path, program=MINE, seeds=(1, 1)):
    """Of the lead and of the nodes, with the same program."""
    for name, seed in zip(("alpha", "beta"), seeds):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine.py").write_text(program.replace("SEED", str(seed)))
    return tmp_path / "alpha", tmp_path / "beta"


def lead(folder, ports):
    (folder / "hosts").write_text("".join(f"127.0.0.1:{port}\n" for port in ports))
    return subprocess.run([sys.executable, "mine.py"], cwd=folder, capture_output=True, text=True, timeout=200)


def test_two_other_hosts_play_a_network_of_the_same_program(tmp_path):
    alpha, beta = folders(tmp_path)
    started = tmp_path / "temporary"
    started.mkdir()
    os.environ["TMPDIR"] = str(started)
    try:
        with nodes(beta, "--import", "mine") as ports:
            for _ in range(2):  # a node imports it anew for each run
                done = lead(alpha, ports)
                there, here = (done.stdout.split() + ["", ""])[:2]
                assert done.returncode == 0 and there == here, done.stderr
    finally:
        del os.environ["TMPDIR"]
    assert not list(started.glob("troupe-*"))


@pytest.mark.parametrize("program, seeds, more, sentence", [
    (MINE, (1, 2), ["--import", "mine"], "the network, mine:network, is not here what it is where the run was started"),
    (MINE.replace("default_rng(0)", "default_rng(SEED)"), (1, 2), ["--import", "mine"], "the data, mine:data, is not here what it is"),
    (MINE, (1, 1), [], "damped"), (MINE.replace(', "optimizer.custom.name": "damped"', ""), (1, 1), [], '"python" has not been registered'),
    (MINE, (1, 1), ["--import", "yours"], "No module named 'yours'"),
    (MINE.replace('__name__ == "__main__"', "True"), (1, 1), ["--import", "mine"], "belongs below if __name__ == '__main__':")])
def test_what_is_not_the_same_there_is_told(tmp_path, program, seeds, more, sentence):
    alpha, beta = folders(tmp_path, program, seeds)
    with nodes(beta, *more, count=2) as ports:
        done = lead(alpha, ports)
    assert done.returncode == 1 and sentence in done.stderr, done.stderr + done.stdout


def test_what_has_no_module_is_refused(tmp_path):
    import troupe

    with pytest.raises(troupe.UsageError, match="hosts: the data is known to this process alone"):
        troupe.run("glyphs-mlp", data=([[0.0]] * 20, [0, 1] * 10), hosts="none")
