"""What the tests of the package share: small experiments, and the programs of tests/package beside which schemes in Python are
held (TROUPE_PACKAGE_PROGRAMS; without them those tests are skipped)."""

import os
import subprocess
from pathlib import Path

import pytest

import troupe

FLUSHED = {"pipeline.stages": 1, "pipeline.schedule": "one_f_one_b", "pipeline.weights": "latest"}
SHORT = {"stop.updates": 40}


@pytest.fixture
def fails():
    """The exception of a kind that a call raises; its cause is of another."""

    def check(kind, call, cause=type(None)):
        with pytest.raises(kind) as caught:
            call()
        assert isinstance(caught.value.__cause__, cause), repr(caught.value.__cause__)
        return str(caught.value)

    return check


@pytest.fixture
def cpp(tmp_path):
    """The digest of the weights of an experiment by a program of tests/package."""
    folder = os.environ.get("TROUPE_PACKAGE_PROGRAMS")
    if not folder:
        pytest.skip("TROUPE_PACKAGE_PROGRAMS names no folder with the programs of tests/package")

    def sha256(program, experiment, sets):
        words = [str(Path(folder) / program), "sim", experiment, "--quiet", "--out", str(tmp_path / program)]
        subprocess.run([*words, *(w for s in sets.items() for w in ("--set", "=".join(map(str, s))))], check=True,
                       capture_output=True)
        return troupe.load(tmp_path / program).sha256

    return sha256
