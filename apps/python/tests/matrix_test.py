"""A torch network in the experiments of tests/tools/digest_matrix.py: every scheme that promises it has the same weights on both
clocks, and again. Some of the experiments; TROUPE_MATRIX=1 takes all."""

import os
import sys
from pathlib import Path

import pytest

import troupe

torch = pytest.importorskip("torch")
sys.path.append(str(Path(__file__).parents[3] / "tests" / "tools"))
import digest_matrix  # noqa: E402

from troupe.torch import Network  # noqa: E402

SKIPPED = ("pipeline.cut", "pipeline.stage_of", "phases", "clock.hosts")  # they count the layers of the network that is given
CASES = [case for case in digest_matrix.cases()
         if case.task == "mlp" and case.code == 0 and not any(s.startswith(SKIPPED + ("model.",)) for s in case.sets)]


def network():
    torch.manual_seed(0)
    widths = [12, 10, 9, 8, 8, 8]
    blocks = [torch.nn.Sequential(torch.nn.Linear(i, o), torch.nn.LayerNorm(o), torch.nn.Tanh()) for i, o in zip(widths, widths[1:])]
    return Network(*blocks, torch.nn.Linear(8, 5))


@pytest.mark.parametrize("case", CASES if os.environ.get("TROUPE_MATRIX") else CASES[::12], ids=lambda case: case.name)
def test_both_clocks_have_the_same_bits(case, tmp_path):
    path = tmp_path / "mlp.textproto"
    path.write_text(digest_matrix.TASKS["mlp"] + "\n" + digest_matrix.CLOCK)
    sha256 = troupe.sim(path, case.sets, network=network()).sha256
    assert troupe.sim(path, case.sets, network=network()).sha256 == sha256
    if case.run:
        assert troupe.run(path, case.sets, network=network()).sha256 == sha256
