#!/usr/bin/env python3
"""Makes the pictures of watching.md, monitoring.md and traces.md from real runs of presets whose data is built in.

    PYTHON apps/docs/pictures.py [PROGRAM]      # PROGRAM: build/release/troupe, unless another is given

PYTHON is of an environment that has tensorboard and pillow; chromium is Debian's package of this name. It writes
apps/docs/tensorboard.png, watch.png, report.png and trace.svg, which are committed. Perfetto's own page comes from the network:
trace.svg is drawn here, from the slices that the file has for it.
"""

import io
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parents[1] / "tests/tools"))
from traces import Trace  # noqa: E402
from watch_browser import Browser  # noqa: E402

BYTES_MAX = 60_000
RUN = "teacher-mlp --set pipeline.stages=4 --set data.teacher.train=2000 --set stop.epochs=10 --set record.gap_every=20".split()
TRACED = "teacher-mlp --set pipeline.stages=4 --set pipeline.micro_batches=4 --set stop.updates=100 --set record.trace=true".split()
COLOURS = {"forward": "#0072b2", "backward": "#d55e00", "update": "#009e73", "waiting": "#d0d0d0"}
SHOWN = 40e-6  # seconds of the traced run, a full pipeline


def small(path, png):
    """As few colours as a picture of a page needs."""
    from PIL import Image

    for colours in (128, 64, 32, 16):
        out = io.BytesIO()
        Image.open(io.BytesIO(png)).convert("RGB").quantize(colours, dither=Image.Dither.NONE).save(out, "PNG", optimize=True)
        if out.tell() <= BYTES_MAX:
            break
    path.write_bytes(out.getvalue())
    assert path.stat().st_size <= BYTES_MAX, f"{path}: {path.stat().st_size} bytes"
    print(f"{path}: {path.stat().st_size} bytes")


def shot(browser, path, width, height):
    import base64

    image = browser.call("Page.captureScreenshot", format="png", captureBeyondViewport=True,
                         clip={"x": 0, "y": 0, "width": width, "height": height, "scale": 900 / width})  # fmt: skip
    small(path, base64.b64decode(image["data"]))


def tensorboard(browser, runs):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [sys.executable, "-m", "tensorboard.main", "--logdir", runs, "--port", str(port), "--load_fast=false"]
    server = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 120
        while True:
            try:
                if "train/loss" in urllib.request.urlopen(f"http://127.0.0.1:{port}/data/plugin/scalars/tags", timeout=10).read().decode():
                    break
            except OSError:
                pass
            assert time.monotonic() < end, "tensorboard does not answer"
            time.sleep(1)
        browser.window(1400, 800)
        browser.call("Page.navigate", url=f"http://127.0.0.1:{port}/?tagFilter=train%2F(loss|accuracy)|gap%2Fshard-0&smoothing=0#timeseries")
        browser.wait_for("document.querySelectorAll('line-chart').length >= 2 || document.querySelectorAll('scalar-card').length >= 2")
        browser.value("[...document.querySelectorAll('button')].find(b => b.innerText.includes('Settings')).click()")  # it is open at first
        time.sleep(8)  # it draws when its numbers have come
        shot(browser, DOCS / "tensorboard.png", 1400, 800)
    finally:
        server.terminate()
        server.wait()


def traced(folder):
    """A row an actor, as Perfetto stands them; a box a slice."""
    trace = Trace(folder / "trace.pftrace")
    begin = trace.run() / 1e9 / 2  # the pipeline is full
    rows, out, left, right, high = [], [], 110, 960, 22
    for track, slices in sorted(trace.slices.items()):
        path = trace.path(track)
        if path[-1] in ("work", "waiting") and path[-2].startswith(("stage-", "shard-")):
            shown = [(start / 1e9, end / 1e9, what) for start, end, what, *_ in slices if end / 1e9 > begin and start / 1e9 < begin + SHOWN and start < end]
            if shown and (path[-1] == "work" or path[-2].startswith("stage-")):
                rows.append((f"{path[-2]}, {path[-1]}", path[-1], shown))
    x = lambda t: left + (right - left) * min(max((t - begin) / SHOWN, 0), 1)  # noqa: E731
    y = 30
    for name, kind, shown in rows:
        out.append(f'<text x="{left - 6}" y="{y + 14}" text-anchor="end">{name}</text>')
        for start, end, what in shown:
            colour = COLOURS["waiting"] if kind == "waiting" else COLOURS.get(what, "#cc79a7")
            wide = x(end) - x(start)
            out.append(f'<rect x="{x(start):.1f}" y="{y}" width="{wide:.1f}" height="{high - 4}" fill="{colour}"><title>{what}</title></rect>')
            if wide > 8 * len(what):
                ink = "#333" if kind == "waiting" else "#fff"
                out.append(f'<text x="{x(start) + wide / 2:.1f}" y="{y + 13}" text-anchor="middle" style="fill:{ink}">{what}</text>')
        y += high
    for i in range(5):
        at = begin + SHOWN * i / 4
        out.append(f'<text x="{x(at):.1f}" y="20" text-anchor="middle">{at * 1e6:.0f} µs</text>')
    style = "<style>text{font:11px sans-serif;fill:#333}svg{background:#fff}</style>"
    text = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {right + 30} {y + 8}"><title>A trace: what four stages did</title>{style}'
            f'<rect width="100%" height="100%" fill="#fff"/>{"".join(out)}</svg>\n')  # fmt: skip
    path = DOCS / "trace.svg"
    path.write_text(text, encoding="utf-8")
    assert path.stat().st_size <= BYTES_MAX, f"{path}: {path.stat().st_size} bytes"
    print(f"{path}: {path.stat().st_size} bytes")


def main():
    program = str(Path(sys.argv[1] if len(sys.argv) > 1 else "build/release/troupe").resolve())
    with tempfile.TemporaryDirectory(prefix="troupe-pictures-") as name:
        folder = Path(name)

        def troupe(*words):
            subprocess.run([program, *words], cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        for weights in ("stash", "latest"):
            troupe("sim", *RUN, "--set", f"pipeline.weights={weights}", "--out", f"runs/{weights}")
        troupe("sim", *TRACED, "--out", "traced")
        troupe("compare", "teacher-mlp", "--set", "stop.epochs=3", "--vary", "pipeline.weights=stash,latest,spectrain", "--seeds", "2", "--quiet", "--out", "compared")
        troupe("report", "compared", "--out", "report.html")
        traced(folder / "traced")
        browser = Browser("chromium", folder / "browser")
        tensorboard(browser, folder / "runs")
        browser.window(1200, 1500)
        server = subprocess.Popen([program, "watch", "runs/stash", "runs/latest", "--address", "127.0.0.1:0"], cwd=folder, stdout=subprocess.PIPE, text=True)
        try:
            url = next(word for line in server.stdout for word in line.split() if word.startswith("http://"))
            browser.open(url)
            time.sleep(2)
            shot(browser, DOCS / "watch.png", 1200, 1500)
        finally:
            server.terminate()
            server.wait()
        browser.open((folder / "report.html").as_uri())
        time.sleep(2)
        shot(browser, DOCS / "report.png", 1200, 1500)
        browser.close()


if __name__ == "__main__":
    main()
