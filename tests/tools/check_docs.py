#!/usr/bin/env python3
"""Every command that a page prints runs, and says what the page says it says.

    check_docs.py PROGRAM [--root FOLDER] [--only REGEX] [--mine PROGRAM] [-v]
    check_docs.py --links PAGE...

A page is a session: its commands run one after the other in an empty folder, as in a shell, each with what the tables below
add to make it short. Data sets are small made-up files in the right formats. --mine is the program of apps/docs/tutorial.md
(built by check_package.sh). Exit status 1 lists what failed as page:line.

  command   a line of a code block that begins with a word of SHELL_WORDS, with its continuations; in running text `troupe ...`
            in full. Where a word of it is a placeholder (FILE, [--json], ...), only its verb is tried.
  output    what follows a command in its block, or the next block where nothing stands between. Each of its lines must be said, in
            that order; numbers may differ but for counts ("1,404 updates"). Of a shortened command only the words before a line's
            first number count.
  file      a block that begins with "# NAME.textproto" or "# NAME.py"
  setting   in running text `--set key=value` or `key=value` with a whole key: must be legal
  link      to a file of the tree, or to a heading of a page: must be there; with --links nothing else is checked
"""

import argparse
import gzip
import hashlib
import io
import os
import random
import re
import struct
import subprocess
import sys
import tarfile
import tempfile
import threading
import zipfile
import zlib
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

SECONDS_MAX = 300  # of a command, which takes a second: only a hang takes as long

SHELL_WORDS = r"(troupe|build/my_troupe|python3|cmp|grep|cmake|mkdir|ctest|apps/start\.sh|apps/docs/figures\.sh|tests/run\.sh|tests/dev/\w+\.sh|tests/\w+/\w+\.py|git|clang-format-14|build/release/\S+|OMP_\w+=\S+)"

# What is added to a command that matches. A page may count on what is not shortened here.
SHORTER = [
    (r"^troupe (run|sim|compare) (?!--list|--help|--resume|batch-growth|warm-start|.* runs/traced|$)", "--set stop.updates=12 --set record.evaluate_every=6"),
    (r"^troupe (run|sim) .*(snn|glyphs-mlp)", "--set data.glyphs.limit=2000 --set data.glyphs.test_limit=200"),
    (r"^troupe (run|sim|compare) (?!.* runs/traced).*teacher-mlp", "--set data.teacher.train=1000 --set data.teacher.test=200"),
    (r"^build/my_troupe (sim|compare) ", "--set stop.updates=24"),
    (r"^build/my_troupe sim ", "--set data.glyphs.limit=2000"),
    (r"cifar10-resnet20", "--set data.batch_size=2"),
    (r"shakespeare-(gpt|llama)|gpt-basis-rotation", "--set data.batch_size=2"),
    (r"mine\.textproto", "--set data.mnist.path=$TROUPE_DATA/mnist"),
    (r" data\.mnist\.limit=20000 ", "--set data.mnist.limit=500"),
    (r"record\.checkpoint\.every=200", "--set record.checkpoint.every=4 --set record.checkpoint.keep=9"),
    (r"^troupe run .*record\.checkpoint\.every=200", "--set stop.updates=100"),  # it looks for them every 5 ms
    (r"^troupe data fetch mnist ", "$FROM_MNIST"),  # from a server on this machine: see serve()
    (r"^troupe data fetch cifar10 ", "$FROM_CIFAR10"),
    (r"^troupe data fetch shakespeare ", "$FROM_SHAKESPEARE"),
    (r"^troupe sample", "--tokens 20"),
]

# What is not run.
NOT_RUN = [
    (r"^(apps/start|tests/run)\.sh", "installs packages, builds and tests"),
    (r"^tests/dev/coverage\.sh|^apps/docs/figures\.sh", "takes minutes"),
    (r"^(tests/(dev/test\.sh|tools/tidy\.py)|git|clang-format-14) ", "belongs to a clone; tests/tools/dev_test.py has test.sh and the hook"),
    (r"^(cmake|mkdir|ctest|build/release/tests/)", "builds and tests; check_package.sh has the tutorial's steps"),
    (r"^OMP_\w+=|bench (peers|gpu)|reduction=nccl|devices=\[cuda", "needs PyTorch or GPUs"),
    (r"^troupe watch (?!--help)", "serves until it is interrupted; watch_browser.py has it"),
    (r"-m venv ", "installs what comes from the Python package index"),
    (r"^python3 apps/site/", "belongs to a clone; tests/tools/site_test.py makes and builds the site"),
    (r"^troupe bench(?! --help)", "tests/apps/bench_test runs all rows"),
]

# What a page takes for granted: files that a reader has, runs of another page.
BEFORE = {
    "apps/docs/experiments.md": ["troupe run --out runs/a"],
    "apps/docs/weights.md": ["troupe ckpt init mnist-lenet5 theirs.safetensors"],
}

# Commands that end with another code than 0, and why that is right: (page, beginning of the command): (code, reason).
FAILS = {}

# Output that does not stand beside its command: (page, beginning of its first line): the command.
SAID_BY = {("README.md", "done "): "troupe run"}


# -- pages -------------------------------------------------------------------------------------------------------------------------


class Block:
    def __init__(self, line, lines):
        self.line, self.lines = line, lines


def blocks_of(text):
    """Code blocks with the numbers of their first lines, and the rest as one text of as many lines."""
    blocks, prose = [], []
    fenced = indented = None
    blank = True
    for number, line in enumerate(text.split("\n"), start=1):
        if line.startswith("```"):
            if fenced is None:
                fenced = Block(number + 1, [])
            else:
                blocks.append(fenced)
                fenced = None
            prose.append("")
        elif fenced is not None:
            fenced.lines.append(line)
            prose.append("")
        elif line.startswith("    ") and (blank or indented):
            if indented is None:
                indented = Block(number, [])
                blocks.append(indented)
            indented.lines.append(line[4:])
            prose.append("")
        else:
            if line.strip():
                indented = None
            elif indented is not None:
                indented.lines.append("")
            prose.append(line)
        blank = not line.strip()
    return sorted(blocks, key=lambda b: b.line), "\n".join(prose)


class Step:
    """A command of a page, with the output that the page prints of it."""

    def __init__(self, line, command):
        self.line, self.command, self.output = line, command, []


def steps_of(block):
    """Commands of a block, and whether it begins with one."""
    steps = []
    lines = iter(enumerate(block.lines, start=block.line))
    for number, line in lines:
        text = line.strip()
        begins = re.match(rf"(\$ )?{SHELL_WORDS}(?![\w/.:(])", text)
        if begins:
            while text.endswith("\\"):
                text = text[:-1] + next(lines)[1].strip()
            command = re.sub(r"\s+#.*", "", text)
            steps.append(Step(number, command[2:] if command.startswith("$ ") else command))
        elif steps:
            steps[-1].output.append(line)
    return steps


def gap(text_lines, before, after):
    """Whether nothing but blank lines and fences stands between two blocks."""
    between = text_lines[before.line - 1 + len(before.lines) : after.line - 1]
    return all(not line.strip() or line.startswith("```") for line in between)


def read_page(name, text):
    """The steps of a page, its files by name, and its in-line code as (line, code)."""
    blocks, prose = blocks_of(text)
    steps, files = [], {}
    before = None
    for block in blocks:
        found = steps_of(block)
        first = block.lines[0] if block.lines else ""
        said = next((c for (page, begin), c in SAID_BY.items() if page == name and first.startswith(begin)), None)
        if made := re.match(r"# (\S+\.(?:textproto|py))$", first):
            files[made[1]] = "\n".join(block.lines) + "\n"
        elif said:
            found = [Step(block.line, said)]
            found[0].output = block.lines
        elif not found and steps and before is not None and gap(text.split("\n"), before, block):
            steps[-1].output += block.lines
        steps += found
        before = block if found else None
    inline = []
    for code in re.finditer(r"`([^`]+)`", prose):
        inline.append((prose.count("\n", 0, code.start()) + 1, " ".join(code[1].split())))
    return steps, files, inline


def inline_steps(inline, top_keys):
    """Commands in running text, and settings, which any experiment has to accept."""
    steps = []
    for line, code in inline:
        setting = re.fullmatch(r"(?:--set )?([a-z_]+)((?:\.[a-z0-9_]+)*)=(\S+)((?: --set \S+)*)", code)
        placeholder = re.search(r"\b[A-Z]{3,}\b|\.\.\.|\[-|\{|path=", code)
        if code.startswith("troupe "):
            words = code.split()
            if placeholder or len(words) == 2:
                words = words[:2] + ["--help"]
            steps.append(Step(line, " ".join(words)))
        elif setting and not placeholder and setting[1] in top_keys and (setting[2] or code.startswith("--")):
            steps.append(Step(line, "troupe config print quadratic " + (code if code.startswith("--") else "--set " + code)))
    return steps


def anchors(text):
    """What GitHub calls the headings of a page."""
    headings = re.findall(r"^#+ +(.*)$", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


def broken_links(root, name, text):
    """page:line of each link of a page to a file or a heading that is not there."""
    _, prose = blocks_of(text)
    broken = []
    for link in re.finditer(r"\]\(([^)\s#]*)(?:#([^)\s]+))?\)", re.sub(r"`[^`\n]*`", lambda code: " " * len(code[0]), prose)):
        if re.match(r"[a-z]+:", link[1]):
            continue
        target = (root / name).parent / link[1] if link[1] else root / name
        heading = link[2] if target.suffix == ".md" else None
        if not target.exists() or heading and heading not in anchors(target.read_text(encoding="utf-8")):
            broken.append(f"{name}:{prose.count(chr(10), 0, link.start()) + 1}: the link {link[0][2:-1]} leads nowhere")
    return broken


# -- data --------------------------------------------------------------------------------------------------------------------------


def idx(magic, sizes, body):
    return magic.to_bytes(4, "big") + b"".join(size.to_bytes(4, "big") for size in sizes) + body


def image(label, size, of):
    """Stripes by label, and some noise."""
    return bytes((90 * ((i // 4 + i * label) % 3) + of * (i % 7)) % 256 for i in range(size))


def make_data(folder):
    """MNIST, Fashion-MNIST, CIFAR and text in small: as many samples as the presets ask for."""
    images = [image(i % 10, 784, i // 10) for i in range(50)]
    for name in ["mnist", "fashion_mnist"]:
        to = folder / name
        to.mkdir(parents=True)
        for part, count in [("train", 10000), ("t10k", 200)]:
            (to / f"{part}-images-idx3-ubyte").write_bytes(
                idx(0x803, (count, 28, 28), b"".join(images[i % 50] for i in range(count))))  # fmt: skip
            (to / f"{part}-labels-idx1-ubyte").write_bytes(idx(0x801, (count,), bytes(i % 10 for i in range(count))))
    records = b"".join(bytes([i % 10]) + image(i % 10, 3072, i) for i in range(10))
    (folder / "cifar10").mkdir()
    for name in [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]:
        (folder / "cifar10" / name).write_bytes(records)
    (folder / "shakespeare").mkdir()
    (folder / "shakespeare" / "input.txt").write_text("To be, or not to be, that is the question:\n" * 400)


def npy(kind, shape, elements):
    """A .npy file of NumPy's version 1."""
    text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + elements


def striped_png(lying, light):
    """A grey PNG of 24 x 24 pixels: stripes across or down."""

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    rows = [bytes(light + 100 * ((y if lying else x) // 4 % 2) for x in range(24)) for y in range(24)]
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 24, 24, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(b"".join(b"\0" + row for row in rows))) + chunk(b"IEND", b"")


def make_own_data(folder, root):
    """The files of apps/docs/data.md, whose readers have their own: the guide's table, and tables, arrays, images and tokens."""
    draw = random.Random(1)
    guide = (Path(root) / "apps/docs/guide.md").read_text()
    with open(folder / "flowers.csv", "w") as table:
        subprocess.run([sys.executable, "-c", read_page("apps/docs/guide.md", guide)[1]["flowers.py"]], stdout=table, check=True)
    with open(folder / "houses.csv", "w") as table:
        print("number;rooms;area;district;price", file=table)
        for i in range(200):
            rooms, district = draw.randrange(1, 7), draw.choice(["north", "old town", "south"])
            area = round(18 * rooms + draw.gauss(10, 6), 1)
            print(i, rooms, area, district, round(2000 * area + 20000 * len(district)), sep=";", file=table)
    with zipfile.ZipFile(folder / "digits.npz", "w", zipfile.ZIP_DEFLATED) as archive_of:
        for part, count in (("train", 600), ("test", 100)):
            lit = [[180 if at // 56 in (digit, digit + 3) else 0 for at in range(784)] for digit in range(10)]  # two bars
            pixels = b"".join(bytes(light + draw.randrange(60) for light in lit[i % 10]) for i in range(count))
            archive_of.writestr(f"x_{part}.npy", npy("|u1", (count, 28, 28), pixels))
            archive_of.writestr(f"y_{part}.npy", npy("<i8", (count,), struct.pack(f"<{count}q", *(i % 10 for i in range(count)))))
    (folder / "points").mkdir()
    points = [[draw.gauss(0, 1) for _ in range(8)] for _ in range(400)]
    (folder / "points/x.npy").write_bytes(npy("<f4", (400, 8), b"".join(struct.pack("<8f", *point) for point in points)))
    (folder / "points/y.npy").write_bytes(npy("<f8", (400,), b"".join(struct.pack("<d", point[0] - point[1]) for point in points)))
    with open(folder / "new.csv", "w") as table:
        print("stem,petal,width", "20.1,4.2,1.1", "24.2,0.1,3.2", sep="\n", file=table)
    for kind in ("lying", "standing"):
        (folder / "photos" / kind).mkdir(parents=True)
        for i in range(100):
            (folder / "photos" / kind / f"{i}.png").write_bytes(striped_png(kind == "lying", 40 + draw.randrange(80)))
    (folder / "story.txt").write_text("".join(f"The {i}. day was like the one before.\n" for i in range(400)))
    for name, count in (("train.bin", 20000), ("val.bin", 3000)):
        (folder / name).write_bytes(struct.pack(f"<{count}H", *(i * i % 509 for i in range(count))))


def archive(folder):
    """CIFAR-10 as it is downloaded."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for path in sorted(folder.iterdir()):
            tar.add(path, f"cifar-10-batches-bin/{path.name}")
    return gzip.compress(packed.getvalue())


def downloads(data):
    """Files by name, as servers have them, by data set."""
    return {
        "mnist": {path.name + ".gz": gzip.compress(path.read_bytes()) for path in (data / "mnist").iterdir()},
        "cifar10": {"cifar-10-binary.tar.gz": archive(data / "cifar10")},
        "shakespeare": {"input.txt": (data / "shakespeare/input.txt").read_bytes()},
    }


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


def serve(data, folder):
    """Serves the downloads out of `folder` on a free port of this machine: how to ask for them, by variable."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    variables = {}
    for name, files in downloads(data).items():
        options = f"--from http://127.0.0.1:{server.server_port}/{name}"
        (folder / name).mkdir(parents=True)
        for file, content in files.items():
            (folder / name / file).write_bytes(content)
            options += f" --sha256 {file}={hashlib.sha256(content).hexdigest()}"
        variables["FROM_" + name.upper()] = options
    return variables


# -- running -----------------------------------------------------------------------------------------------------------------------


def shortened(command):
    added = [what for pattern, what in SHORTER if re.search(pattern, command + " ")]
    return " ".join([command, *added])


def normal(line):
    """A line without what may differ: numbers but counts, and units of time."""
    counts = r"(?= (?:updates|epochs|samples[, ]|parameters|training samples))"
    line = re.sub(r"(?<![\w#])[-+]?\d[\d.,]*(?:e[-+]?\d+)?", lambda m: m[0] if re.match(counts, line[m.end() :]) else "#", line)
    return " ".join(re.sub(r"# ?(?:[kMG]|ns|us|ms|s|minutes)?\b", "# ", line).split())


def unsaid(page_lines, said, whole):
    """The first line of the page that is not said after those before it, or None."""
    lines = iter(said.split("\n"))
    for line in page_lines:
        if line.strip() in ("", "..."):
            continue
        if whole:
            due = normal(line)
            found = any(normal(other) == due for other in lines)
        else:
            due = " ".join(re.split(r"\d", line)[0].split())
            found = any(" ".join(other.split()).startswith(due) for other in lines)
        if not found:
            return line
    return None


class Session:
    """An empty folder, and what has been found wrong with one page."""

    def __init__(self, page, folder, environment, verbose):
        self.page, self.folder, self.environment, self.verbose = page, folder, environment, verbose
        self.wrong, self.ran = [], 0

    def run(self, command):
        return subprocess.run(["bash", "-c", command], cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SECONDS_MAX)  # fmt: skip

    def step(self, step):
        if why := next((why for pattern, why in NOT_RUN if re.search(pattern, step.command)), None):
            return self.tell(f"not run ({why})", step)
        command = shortened(step.command)
        self.ran += 1
        try:
            done = self.run(command)
        except subprocess.TimeoutExpired:
            return self.fail(step, f"does not end in {SECONDS_MAX} s")
        right, _ = next((f for (page, begin), f in FAILS.items() if page == self.page and step.command.startswith(begin)), (0, ""))
        if done.returncode != right:
            return self.fail(step, f"exit code {done.returncode}: {done.stdout.strip()[-600:]}")
        line = unsaid(step.output, done.stdout, whole=command == step.command)
        if line is not None:
            return self.fail(step, f"does not say \"{line}\", but:\n{done.stdout}")
        return self.tell("ok", step)

    def tell(self, what, step):
        if self.verbose:
            print(f"{self.page}:{step.line}: {what}: {step.command}", flush=True)

    def fail(self, step, what):
        self.wrong.append(f"{self.page}:{step.line}: {step.command}: {what}")
        print(self.wrong[-1], flush=True)


def check_page(name, text, environment, given, top_keys):
    steps, files, inline = read_page(name, text)
    mine = [s for s in steps if s.command.startswith("build/my_troupe")]
    if given.mine:
        steps, inline = mine, []
    else:
        steps = [s for s in steps if s not in mine]
    with tempfile.TemporaryDirectory() as folder:
        session = Session(name, folder, environment, given.verbose)
        session.wrong += broken_links(given.root, name, text)
        print(*session.wrong, sep="\n", end="\n" if session.wrong else "", flush=True)
        for file, content in files.items():
            Path(folder, file).write_text(content)
        if given.mine:
            Path(folder, "build").mkdir()
            Path(folder, "build", "my_troupe").symlink_to(Path(given.mine).resolve())
            Path(folder, "half_life.textproto").write_text(Path(given.root, "tests/package/half_life.textproto").read_text())
        if name == "apps/docs/data.md":
            make_own_data(Path(folder), given.root)
        for command in BEFORE.get(name, []) if steps else []:
            session.step(Step(0, command))
        for step in steps + inline_steps(inline, top_keys):
            session.step(step)
        return session


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="?")
    parser.add_argument("--links", nargs="+", metavar="PAGE", help="pages whose links alone are checked")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[2])
    parser.add_argument("--only", default="", help="pages")
    parser.add_argument("--mine", help="the tutorial's program, whose commands alone are run")
    parser.add_argument("-v", "--verbose", action="store_true")
    given = parser.parse_args()
    if given.links:
        read = {name: Path(given.root, name).read_text(encoding="utf-8") for name in given.links}
        wrong = [line for name, text in read.items() for line in broken_links(given.root, name, text)]
        print(*wrong, sep="\n", end="\n" if wrong else "")
        return 1 if wrong else 0
    if not given.program:
        parser.error("which program?")
    pages = sorted(p for p in given.root.rglob("*.md") if p.relative_to(given.root).parts[0] not in ("build", "shared"))
    with tempfile.TemporaryDirectory() as work:
        work = Path(work)
        make_data(work / "data")
        (work / "bin").mkdir()
        (work / "bin/troupe").symlink_to(Path(given.program).resolve())
        environment = dict(
            os.environ, PATH=f"{work}/bin:{os.environ['PATH']}", TROUPE_DATA=f"{work}/data", XDG_CACHE_HOME=f"{work}/cache",
            NO_PROXY="*", **serve(work / "data", work / "served"))  # fmt: skip
        printed = subprocess.run([given.program, "config", "print", "glyphs-mlp"], capture_output=True, text=True, check=True)
        top_keys = set(re.findall(r"^([a-z_]+)", printed.stdout, re.MULTILINE))
        sessions = []
        for page in pages:
            name = page.relative_to(given.root).as_posix()
            if re.search(given.only, name):
                sessions.append(check_page(name, page.read_text(encoding="utf-8"), environment, given, top_keys))
    wrong = sum(len(session.wrong) for session in sessions)
    print(f"{sum(session.ran for session in sessions)} commands of {len(sessions)} pages, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
