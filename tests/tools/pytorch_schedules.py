#!/usr/bin/env python3
"""The schedules of PyTorch's pipelining as its CSV files: pytorch_schedules.py --program TROUPE [--write FOLDER]

Each is made here from its definition for some numbers of stages and micro-batches, read by pipeline.schedule.file, drawn by `plan`, and
simulated. Laws: the weights are, bit for bit, those of the flushed loop (`sequential`); `plan --csv` writes the same actions. A looped
BFS whose backwards go from the last micro-batch to the first, as PyTorch's do, adds gradients in another order and is refused in
one sentence. --write keeps the files.
"""

import argparse
import csv
import sys
import tempfile
from pathlib import Path

import forked

TASK = ("model.mlp.hidden=[12,11,10,9,8,9,10] data.teacher.inputs=6 data.teacher.outputs=3 data.teacher.train=96 data.teacher.test=8 "
        "data.batch_size=24 stop.updates=4 stop.epochs=0 optimizer.rule=momentum record.evaluate=false")  # fmt: skip


def gpipe(K, M, k):
    return [(k, "F", m) for m in range(M)] + [(k, "B", m) for m in range(M)]


def interleaved(K, M, k, V, split, distance):
    """Rounds of K micro-batches on each of V chunks (Narayanan et al. 2021); a stage is `distance` forwards further than the next.
    With `split`, the weight gradients come k backwards later than the gradients by the inputs."""

    def chunk(i, back=False):
        v = i // K % V
        return (V - 1 - v if back else v) * K + k, i // (K * V) * K + i % K

    ahead = min((V - 1) * K + distance * (K - 1 - k), V * M) if V > 1 else min(K - 1 - k, M)
    row = [(chunk(i)[0], "F", chunk(i)[1]) for i in range(ahead)]
    late = k if split else 0
    for i in range(V * M + late):
        if ahead + i < V * M:
            c, m = chunk(ahead + i)
            row.append((c, "F", m))
        if i < V * M:
            c, m = chunk(i, back=True)
            row.append((c, "I" if split else "B", m))
        if split and i >= late:
            c, m = chunk(i - late, back=True)
            row.append((c, "W", m))
    return row


def looped_bfs(K, M, k, V=2, reverse=False):
    """All micro-batches on a chunk before the next chunk (Lamy-Poirier 2023)."""
    back = range(M - 1, -1, -1) if reverse else range(M)
    return [(v * K + k, "F", m) for v in range(V) for m in range(M)] + [(v * K + k, "B", m) for v in reversed(range(V)) for m in back]


class Counted:
    """A row whose actions on a chunk count their micro-batches by themselves."""

    def __init__(self):
        self.row, self.next, self.owed = [], {}, []

    def one(self, chunk, act):
        """A B is an I and its W. A W is of the chunk's earliest I that has none yet, or, without a chunk, of the earliest there is."""
        if act == "W":
            owed = next((each for each in self.owed if chunk in (None, each[0])), None)
            if owed:
                self.owed.remove(owed)
            return owed and (owed[0], "W", owed[1])
        key = chunk, act.replace("B", "I")
        number = self.next[key] = self.next.get(key, -1) + 1
        if act == "I":
            self.owed.append((chunk, number))
        return chunk, act, number

    def add(self, *actions):
        """Two in one tuple share a cell."""
        for action in actions:
            made = tuple(self.one(*each) for each in action) if isinstance(action[0], tuple) else self.one(*action)
            self.row += [made] if made else []


def zb_v(K, M, k):
    """Chunks k and 2K-1-k (Qi et al. 2024), made for at least 2K-1 micro-batches; what is beyond M is left out."""
    a, b, s, n = k, 2 * K - 1 - k, Counted(), max(M, 2 * K - 1)
    back_a, back_b = [(a, "I"), (a, "W")], [(b, "I"), (b, "W")]
    s.add(*[(a, "F")] * (2 * (K - k) - 1), *[(b, "F"), (a, "F")] * k, *[(b, "F"), *back_b] * (K - k))
    while s.next[b, "F"] + 1 < n:
        s.add(*[(a, "F")] * (s.next[a, "F"] + 1 < n), *back_a, (b, "F"), *back_b)
    s.add(*[(a, "I"), (b, "I")] * k, *back_a * (K - k), *[(b, "W")] * k, *[(a, "W")] * k)
    return [action for action in s.row if action[2] < M]


def dual_pipe_v(K, M, k):
    """Chunks k and 2K-1-k; forwards and backwards of two micro-batches share a cell (DeepSeek-V3, DualPipeV's eight steps)."""
    a, b, s, after = k, 2 * K - 1 - k, Counted(), K - 1 - k
    s.add(*[(a, "F")] * (2 * after), *[(a, "F"), (b, "F")] * (k + 1), *[(b, "I"), (None, "W"), (b, "F")] * after)
    for i in range(M - 2 * K + k + 1):
        apart = i == 0 and after == 0
        s.add(*([(a, "F"), (b, "B")] if apart else [((a, "F"), (b, "B"))]), ((b, "F"), (a, "B")))
    s.add(*[(b, "B"), ((b, "F"), (a, "B"))] * after)
    for i in range(2 * (k + 1)):  # the later half is split
        split = i >= 2 * ((k + 1) // 2) + (k % 2 == 0)
        s.add((a if i % 2 else b, "I" if split else "B"))
    s.add(*[(None, "W"), (a, "I")] * after, *[(None, "W")] * (k + 1))
    return s.row


SCHEDULES = {
    # name: a stage's row, chunks of a stage
    "gpipe": (gpipe, 1),
    "1f1b": (lambda K, M, k: interleaved(K, M, k, 1, False, 1), 1),
    "interleaved_1f1b": (lambda K, M, k: interleaved(K, M, k, 2, False, 2), 2),
    "interleaved_zero_bubble": (lambda K, M, k: interleaved(K, M, k, 2, True, 1), 2),
    "looped_bfs": (looped_bfs, 2),
    "looped_bfs_of_pytorch": (lambda K, M, k: looped_bfs(K, M, k, reverse=True), 2),
    "zb_v": (zb_v, 2),
    "dual_pipe_v": (dual_pipe_v, 2),
}


def cells(row):
    """With k empty cells in front, as PyTorch pads a row, and a cell of two as it writes it."""
    text = lambda action: "{}{}{}".format(*action)
    return [f"({text(c[0])};{text(c[1])})OVERLAP_F_B" if isinstance(c[0], tuple) else text(c) for c in row]


def write(path, name, K, M):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([""] * k + cells(SCHEDULES[name][0](K, M, k)) for k in range(K))


def actions(text):
    """By row, whatever shares a cell."""
    plain = text.replace("(", "").replace(")OVERLAP_F_B", "").replace(";", ",")
    return [[cell for cell in line.split(",") if cell] for line in plain.split()]


class Broken(Exception):
    pass


def law(holds, what):
    if not holds:
        raise Broken(what)


def troupe(program, words, folder):
    done = forked.run([program, *words], cwd=folder, timeout=120)
    return done.returncode, done.stdout, done.stderr.strip()


def settings(K, M, *more):
    return [word for s in [*TASK.split(), f"pipeline.stages={K}", f"pipeline.micro_batches={M}", *more] for word in ("--set", s)]


def weights(program, K, M, schedule, folder):
    with tempfile.TemporaryDirectory(dir=folder) as out:
        code, _, error = troupe(program, ["sim", "teacher-mlp", *settings(K, M, schedule), "--out", f"{out}/run"], folder)
        law(code == 0, f"exit code {code}: {error}")
        return Path(out, "run", "weights.safetensors").read_bytes()


def check(program, name, K, M, folder):
    path = folder / f"{name}-{K}-{M}.csv"
    write(path, name, K, M)
    file = f"pipeline.schedule.file.path={path}"
    if name == "looped_bfs_of_pytorch":
        code, _, error = troupe(program, ["sim", "teacher-mlp", *settings(K, M, file)], folder)
        law(code == 2 and "the micro-batches of a chunk go in order" in error, f"is not refused, or not so: {code} {error}")
        return
    # A chunk has its own layers whatever the schedule, so that sums are of the same terms.
    depth = K * SCHEDULES[name][1]
    code, drawn, error = troupe(program, ["plan", "teacher-mlp", *settings(K, M, file), "--csv", "written.csv"], folder)
    law(code == 0 and drawn, f"plan: exit code {code}: {error}")
    written = (folder / "written.csv").read_text()
    law(actions(written) == actions(path.read_text()), f"plan --csv writes {written}")
    law(weights(program, K, M, file, folder) == weights(program, depth, M, "pipeline.schedule=sequential", folder),
        "the weights are not the flushed loop's")  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=lambda text: Path(text).resolve(), required=True)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    broken = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(options.write or temporary).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        for name in SCHEDULES:
            for K, M in [(2, 4), (4, 8)]:
                try:
                    check(options.program, name, K, M, folder)
                except Broken as law_broken:
                    broken += 1
                    print(f"{name}, {K} stages, {M} micro-batches: {law_broken}")
    print(f"{len(SCHEDULES)} schedules, {broken} laws broken")
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
