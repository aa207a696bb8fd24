#!/usr/bin/env python3
"""What a run writes for TensorBoard: every number of metrics.jsonl, in files that are framed as they should be.

    tensorboard.py PROGRAM             # read by a reader of our own, which needs nothing but Python
    tensorboard.py PROGRAM --real      # read and shown by TensorBoard itself

TensorBoard is taken from a virtual environment in the user's cache, or where TROUPE_TENSORBOARD_VENV says; it is installed there,
from PyPI, where TROUPE_TENSORBOARD=yes asks for it. Exit status 4 with the reason where it is not there.
"""

import argparse
import json
import math
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

WORDS = ["--set", "replicas.count=2", "--set", "record.every=5", "--set", "record.gap_every=10", "--set", "stop.updates=60",
         "--set", "data.glyphs.limit=2000", "--set", "data.glyphs.test_limit=200", "--set", "record.evaluate_every=20"]  # fmt: skip
VARINT, EIGHT, BYTES, FOUR = 0, 1, 2, 5  # kinds of fields

CRC = []
for byte in range(256):
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    CRC.append(byte)


def masked_crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ CRC[(crc ^ byte) & 255]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(path):
    """The payloads of a file's whole records; checksums have to be right."""
    data, at = path.read_bytes(), 0
    while at + 12 <= len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        assert struct.unpack_from("<I", data, at + 8)[0] == masked_crc32c(data[at : at + 8]), f"{path}: length at {at}"
        payload = data[at + 12 : at + 12 + length]
        if at + 16 + length > len(data):
            return  # torn
        assert struct.unpack_from("<I", data, at + 12 + length)[0] == masked_crc32c(payload), f"{path}: record at {at}"
        at += 16 + length
        yield payload


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            return value, at


def fields(data):
    """Of a protobuf message: its (number, value) in order, values as they are on the wire."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == VARINT:
            value, at = varint(data, at)
        else:
            size = {EIGHT: 8, FOUR: 4}.get(key & 7)
            if size is None:
                size, at = varint(data, at)
            value = data[at : at + size]
            at += size
        yield key >> 3, value


def doubles(data):
    return list(struct.unpack(f"<{len(data) // 8}d", data))


class Board:
    """A folder's files one after the other, as TensorBoard puts them together."""

    def __init__(self, folder):
        self.scalars, self.histograms, self.texts, self.starts, self.walls = {}, {}, {}, [], []
        self.files = sorted(Path(folder).glob("*tfevents*"))
        for file in self.files:
            for record in records(file):
                self.take(list(fields(record)))

    def take(self, event):
        named = dict(event)
        step = named.get(2, 0)
        self.walls.append(doubles(named[1])[0])
        if 7 in named:  # a session begins
            self.starts.append(step)
            for found in (self.scalars, self.histograms, self.texts):
                for tag in found:
                    found[tag] = [(at, value) for at, value in found[tag] if at < step]
        for number, summary in event:
            for _, value in fields(summary) if number == 5 else ():
                of = dict(fields(value))
                tag = of[1].decode()
                if 2 in of:
                    self.scalars.setdefault(tag, []).append((step, struct.unpack("<f", of[2])[0]))
                elif 5 in of:
                    self.histograms.setdefault(tag, []).append((step, dict(fields(of[5]))))
                elif 8 in of:
                    self.texts.setdefault(tag, []).append((step, dict(fields(of[8]))[8].decode()))
                else:
                    self.texts.setdefault(tag, []).append((step, of[9]))


def as_float(number):
    return struct.unpack("<f", struct.pack("<f", number))[0]


def expected(run):
    """The scalars that the lines of metrics.jsonl come to."""
    found = {}

    def numbers(object, before=""):
        for name, value in object.items():
            if isinstance(value, dict):
                yield from numbers(value, before + name + "/")
            elif isinstance(value, (int, float)):
                yield before + name, value

    for line in map(json.loads, (run / "metrics.jsonl").read_text().splitlines()):
        kind = line.pop("kind")
        about = [value for value in line.values() if isinstance(value, str)]
        if "step" not in line or not all(re.fullmatch(r"[\w.-]+-[\d.]+", word) for word in about):
            continue
        if "replica" in line:
            about.append(f"replica-{line.pop('replica')}")
        step = line.pop("step")
        for name, value in numbers(line):
            found.setdefault("/".join([kind, *about, name]), []).append((step, as_float(value)))
    return found


def trained(program, folder, *words):
    done = subprocess.run([program, "sim", *words, "--out", str(folder), "--quiet"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def check_numbers(run):
    board = Board(run / "tensorboard")
    wanted = expected(run)
    assert {"train/loss", "train/idle/data", "evaluation/loss", "gap/shard-0/gap"} <= set(wanted), sorted(wanted)
    assert board.scalars == wanted, {tag for tag in {*wanted, *board.scalars} if board.scalars.get(tag) != wanted.get(tag)}
    return board


def check_histograms(board, run):
    """All histograms of a shard together have what the summary has, each value in a bucket of its own."""
    summary = json.loads((run / "summary.json").read_text())
    for shard, staleness in summary["staleness"].items():
        seen = {}
        for _, histogram in board.histograms["staleness/" + shard]:
            limits, buckets = doubles(histogram[6]), doubles(histogram[7])
            assert sum(buckets) == doubles(histogram[3])[0]
            for limit, count in zip(limits, buckets):
                if count:
                    seen[str(math.floor(limit))] = seen.get(str(math.floor(limit)), 0) + count
        assert seen == staleness["histogram"], (shard, seen, staleness)
    gaps = [value for tag, values in board.scalars.items() if tag.startswith("gap/shard-0/") for _, value in values]
    counted = sum(doubles(histogram[3])[0] for _, histogram in board.histograms["gaps/shard-0"])
    assert counted == len(gaps) > 0, (counted, len(gaps))


def check_resumed(program, folder):
    """A run that goes on has a further file, and what the older one has of later steps does not count."""
    run = trained(program, folder / "kept", *WORDS, "--set", "record.checkpoint.every=20", "--set", "record.checkpoint.keep=9")
    step = sorted(path.name for path in run.glob("checkpoints/step-*"))[0]
    done = subprocess.run([program, "sim", "--resume", str(run / "checkpoints" / step), "-q"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    board = check_numbers(run)
    assert len(board.files) == 2 and board.starts == [int(step.split("-")[1])], (board.files, board.starts)


def check_torn(run, folder):
    """What was being written when a run was killed."""
    torn = shutil.copytree(run / "tensorboard", folder / "torn")
    (file,) = torn.glob("*tfevents*")
    whole = len(list(records(file)))
    os.truncate(file, file.stat().st_size - 3)
    assert len(list(records(file))) == whole - 1


def check_comparison(program, folder):
    out = folder / "compared"
    words = ["compare", "--vary", "optimizer.learning_rate=0.01,0.1", "--out", str(out), "-q", *WORDS]
    done = subprocess.run([program, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    names = sorted(path.name for path in (out / "tensorboard").iterdir())
    assert len(names) == 2 and all("seed=1" in name for name in names), names
    for name in names:
        board = Board(out / "tensorboard" / name)
        assert len(board.scalars["evaluation/loss"]) >= 3 and "_hparams_/session_start_info" in board.texts
    return out


def ours(program, folder):
    assert masked_crc32c(b"123456789") == ((0xE3069283 >> 15 | 0xE3069283 << 17) + 0xA282EAD8) & 0xFFFFFFFF
    run = trained(program, folder / "run", *WORDS)
    board = check_numbers(run)
    check_histograms(board, run)
    assert (run / "experiment.textproto").read_text().strip() in board.texts["experiment"][0][1]
    assert max(board.walls) == json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])["seconds"]
    again = trained(program, folder / "again", *WORDS)
    (one,), (other,) = board.files, Board(again / "tensorboard").files
    assert one.name == other.name and one.read_bytes() == other.read_bytes(), "on the virtual clock two runs differ"
    without = trained(program, folder / "without", *WORDS, "--set", "record.tensorboard=false")
    assert not (without / "tensorboard").exists()
    check_torn(run, folder)
    check_resumed(program, folder)
    check_comparison(program, folder)
    return f"{sum(map(len, board.scalars.values()))} numbers in {len(board.scalars)} scalars, {one.stat().st_size} bytes"


# -- TensorBoard itself -----------------------------------------------------------------------------


def python_with_tensorboard():
    """The interpreter that has it, or why there is none."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    version = "%d.%d" % sys.version_info[:2]
    venv = Path(os.environ.get("TROUPE_TENSORBOARD_VENV") or cache / "troupe" / f"tensorboard-{version}")
    python = venv / "bin/python"
    if os.environ.get("TROUPE_TENSORBOARD") == "yes" and not python.exists():
        for words in ([sys.executable, "-m", "venv", venv], [venv / "bin/pip", "install", "-q", "tensorboard", "setuptools<81"]):
            if subprocess.run(words).returncode != 0:
                return None, "PyPI does not answer"
    if not python.exists() or subprocess.run([python, "-c", "import tensorboard"], capture_output=True).returncode != 0:
        return None, f"there is no TensorBoard in {venv} (TROUPE_TENSORBOARD=yes installs it)"
    return python, ""


READ = """
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
board = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0, "histograms": 0, "tensors": 0})
board.Reload()
tags = board.Tags()
print(json.dumps({"scalars": {tag: [[e.step, e.value] for e in board.Scalars(tag)] for tag in tags["scalars"]},
                  "histograms": {tag: sum(e.histogram_value.num for e in board.Histograms(tag)) for tag in tags["histograms"]},
                  "tensors": tags["tensors"]}))
"""


def read_by_it(python, folder):
    done = subprocess.run([python, "-c", READ, str(folder)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    read = json.loads(done.stdout)
    return read | {"scalars": {tag: [tuple(pair) for pair in pairs] for tag, pairs in read["scalars"].items()}}


def asked(url, body=None):
    request = urllib.request.Request(url, data=None if body is None else json.dumps(body).encode(),
                                     headers={"Content-Type": "application/json"})  # fmt: skip
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


def shown(python, folder, run):
    """The page's own questions, to a TensorBoard that serves the folder."""
    words = [python, "-m", "tensorboard.main", "--logdir", str(folder), "--port", "0", "--load_fast", "false"]
    server = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        url = next(found[0] for line in server.stderr if (found := re.search(r"http://\S+:\d+/", line)))
        end = time.monotonic() + 60
        while run not in (runs := asked(url + "data/runs")) and time.monotonic() < end:
            time.sleep(0.2)
        assert run in runs, runs
        named = {"experimentName": ""}
        table = asked(url + "data/plugin/hparams/experiment", named)
        session = asked(url + "data/plugin/hparams/session_groups",
                        named | {"allowedStatuses": ["STATUS_SUCCESS"], "startIndex": 0, "sliceSize": 10,
                                 "colParams": [{"hparam": "optimizer.learning_rate", "includeInResult": True}]})  # fmt: skip
        texts = asked(url + "data/plugin/text/tags")
        return {column["name"] for column in table["hparamInfos"]}, session["sessionGroups"], texts
    finally:
        server.terminate()
        server.wait()
        server.stderr.close()


def real(program, folder, python):
    run = trained(program, folder / "run", *WORDS)
    read = read_by_it(python, run / "tensorboard")
    assert read["scalars"] == expected(run), "TensorBoard reads other numbers than metrics.jsonl has"
    summary = json.loads((run / "summary.json").read_text())
    for shard, staleness in summary["staleness"].items():
        assert read["histograms"]["staleness/" + shard] == sum(staleness["histogram"].values())
    assert "experiment" in read["tensors"], read["tensors"]
    check_torn(run, folder)
    assert set(read_by_it(python, folder / "torn")["scalars"]) == set(read["scalars"])
    check_resumed(program, folder)
    kept = read_by_it(python, folder / "kept/tensorboard")["scalars"]
    assert kept == expected(folder / "kept"), "a run that went on is shown with steps that do not count"
    compared = check_comparison(program, folder)
    names = sorted(path.name for path in (compared / "tensorboard").iterdir())
    columns, groups, texts = shown(python, compared, "tensorboard/" + names[0])
    assert "optimizer.learning_rate" in columns and len(groups) == 2, (columns, groups)
    assert sorted(group["hparams"]["optimizer.learning_rate"] for group in groups) == [0.01, 0.1], groups
    assert "experiment" in texts["tensorboard/" + names[0]], texts
    return f"{len(read['scalars'])} scalars, and {len(columns)} columns of HPARAMS"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--real", action="store_true")
    given = parser.parse_args()
    program = str(Path(given.program).resolve())
    python = None
    if given.real:
        python, why = python_with_tensorboard()
        if not python:
            print(f"skipped: {why}")
            return 4
    with tempfile.TemporaryDirectory() as folder:
        print(real(program, Path(folder), python) if given.real else ours(program, Path(folder)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
