#!/usr/bin/env python3
"""The page of `troupe watch` and the file of `troupe report` in a real browser: watch_browser.py TROUPE [CHROMIUM].

Chromium is told what to do over a pipe. Exit status 4, which the build takes for skipped, where there is no Chromium.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SKIPPED = 4
PATIENCE = 60  # seconds, of a machine that has much else to do


class Browser:
    def __init__(self, program, folder):
        to_read, self.write_end = os.pipe()
        self.read_end, to_write = os.pipe()
        # The browser speaks at its descriptors 3 and 4.
        self.process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{to_read} 4>&{to_write}', "browser", program, "--headless=new", "--no-sandbox",
             "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions", "--remote-debugging-pipe",
             f"--user-data-dir={folder}"],
            pass_fds=(to_read, to_write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        self.buffer = b""
        self.count = 0
        self.complaints = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = None
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(domain + ".enable")

    def message(self):
        while b"\0" not in self.buffer:
            piece = os.read(self.read_end, 1 << 16)
            if not piece:
                raise RuntimeError("the browser has ended")
            self.buffer += piece
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, **params):
        self.count += 1
        asked = {"id": self.count, "method": method, "params": params}
        if getattr(self, "session", None):
            asked["sessionId"] = self.session
        os.write(self.write_end, json.dumps(asked).encode() + b"\0")
        while True:
            told = self.message()
            if told.get("id") == self.count:
                if "error" in told:
                    raise RuntimeError(f"{method}: {told['error']}")
                return told["result"]
            kind = told.get("method")
            if kind == "Runtime.exceptionThrown":
                self.complaints.append(told["params"]["exceptionDetails"])
            elif kind == "Runtime.consoleAPICalled" and told["params"]["type"] in ("error", "warning", "assert"):
                self.complaints.append(told["params"]["args"])
            elif kind == "Log.entryAdded" and told["params"]["entry"]["level"] in ("error", "warning"):
                self.complaints.append(told["params"]["entry"])

    def value(self, expression):
        told = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in told:
            raise RuntimeError(f"{expression}: {told['exceptionDetails']}")
        return told["result"].get("value")

    def wait_for(self, expression):
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if self.value(expression):
                return
            time.sleep(0.2)
        raise AssertionError(f"{expression} has not come true; the page says: {self.value('document.body.innerText')}")

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.wait_for("document.readyState == 'complete' && !!document.querySelector('main table')")

    def screenshot(self, path):
        import base64
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        image = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True,
                          clip={"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 1400), "scale": 1})
        Path(path).write_bytes(base64.b64decode(image["data"]))

    def window(self, width, height, dark=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        time.sleep(0.5)  # the page draws again a fifth of a second after its width has changed

    def close(self):
        os.close(self.write_end)
        self.process.wait(timeout=PATIENCE)


MEMBERS = {"updates": "updates", "epochs": "epochs", "samples": "samples", "seconds of the run's clock": "seconds",
           "samples a second": "samples_per_second", "training loss": "train_loss", "test loss": "test_loss",
           "test accuracy": "test_accuracy", "bytes sent": "bytes_sent"}


def check_numbers(browser, runs):
    """What the table says, and shows, is what summary.json says."""
    cells = browser.value("[...document.querySelectorAll('[data-of]')].map(c => [c.dataset.run, c.dataset.of, c.dataset.exactly, c.innerText])")
    seen = 0
    for run, name, exactly, shown in cells:
        told = json.loads((runs[int(run)] / "summary.json").read_text())[MEMBERS[name]]
        assert float(exactly) == told, (run, name, exactly, told)
        assert abs(float(shown.replace(",", "")) - told) <= 1e-4 * abs(told), (name, shown, told)
        seen += 1
    assert seen == len(MEMBERS) * len(runs), seen


def check_names(browser):
    """Every figure has a name with numbers for a screen reader, and a table beside it; every control has a name."""
    figures = browser.value("[...document.querySelectorAll('svg')].map(s => [s.getAttribute('role'), s.getAttribute('aria-label')])")
    assert len(figures) >= 6, figures
    assert all(role == "img" and any(c.isdigit() for c in label) for role, label in figures), figures
    tree = browser.call("Accessibility.getFullAXTree")["nodes"]
    nameless = [n["role"]["value"] for n in tree if not n.get("ignored") and n["role"]["value"] in ("button", "checkbox", "combobox", "image", "img")
                and not n.get("name", {}).get("value")]
    assert not nameless, nameless
    assert browser.value("[...document.querySelectorAll('svg')].every(s => s.closest('section').querySelector('table'))")


def check_keyboard(browser):
    """The tabulator comes to every control that is shown."""
    controls = browser.value("window.all = [...document.querySelectorAll('input,select,button,summary')].filter(e => e.offsetParent); all.length")
    assert controls >= 10, controls
    browser.value("document.activeElement.blur(); window.met = new Set(); 0")
    for _ in range(2 * controls):
        for kind in ("rawKeyDown", "keyUp"):
            browser.call("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9)
        browser.value("met.add(document.activeElement); 0")
    assert browser.value("all.filter(e => !met.has(e)).map(e => e.outerHTML)") == []


def check_look(browser, pictures):
    browser.window(1280, 900)
    light = browser.value("getComputedStyle(document.body).backgroundColor")
    if pictures:
        browser.screenshot(pictures)
    browser.window(1280, 900, dark=True)
    assert browser.value("getComputedStyle(document.body).backgroundColor") != light
    browser.window(360, 740)
    assert browser.value("document.scrollingElement.scrollWidth") <= 360
    browser.window(1280, 900)


def check_live(browser, url, folder, lines):
    """A run that goes on: half of a line does not count, what comes is drawn without a reload, and so is the end."""
    browser.open(url)
    browser.value("window.stays = true")
    half = "document.querySelector('[data-of=updates]').dataset.exactly"
    browser.wait_for(f"{half} == '1'")
    with open(folder / "metrics.jsonl", "a") as file:
        file.write(lines)
    step = max(json.loads(line).get("step", 0) for line in lines.splitlines()[1:] if '"kind":"train"' in line)
    browser.wait_for(f"{half} == '{step}'")
    assert browser.value("window.stays")


MEAN = "<img src=x onerror='window.obeyed = true'></script><script>window.obeyed = true</script>"


def hostile(folder):
    """A run and a comparison whose every text, and what should be none, is markup."""
    run, comparison = folder / "hostile-run", folder / "hostile-comparison"
    run.mkdir()
    (comparison / "trials").mkdir(parents=True)
    markup = {"html": MEAN}
    train = {"kind": "train", "step": 1, "epoch": MEAN, "seconds": 1, "loss": 0.5, "busy": 0.5, "idle": {MEAN: 0.5}, "samples_per_second": markup}
    lines = [{"kind": "header", "clock": markup}, train, {**train, "step": 2, "loss": 0.4}, {"kind": "__proto__", "step": 1}, {"kind": MEAN},
             {"kind": "gap", "shard": MEAN, "step": 1, "gap": 1}, {"kind": "gap", "shard": "__proto__", "step": 2, "gap": 1},
             {"kind": "evaluation", "step": 2, "loss": 0.5, "accuracy": MEAN},
             *({"kind": "versions", "stage": s, "batch": b, "forward": 0, "backward": 0, "applied_to": 1} for s, b in ((0, 1), (MEAN, MEAN), (markup, 2))),
             {"kind": "lost", "replica": MEAN, "seconds": MEAN, "cause": markup}, {"kind": "lost", "server": markup, "missed": MEAN},
             {"kind": "state", "trials": MEAN, "silent": MEAN, "next": 7, "more": True, "over": True}, {"kind": "run", "name": MEAN, "folder": MEAN}]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    shard = {"histogram": {"0": 3, MEAN: MEAN}, "mean": MEAN, "max": MEAN}
    (run / "summary.json").write_text(json.dumps(
        {"updates": 2, "outcome": markup, "clock": markup, "train_loss": MEAN, "staleness": {MEAN: shard, "shard-0": shard},
         "busy": {"stage-0": MEAN, MEAN: 1}, "idle": {"stage-0": {MEAN: 0.5}}, "origin": {"host": markup, "cpu": MEAN, "gpu": MEAN, "command": MEAN}}))
    figure = {"mean": 0.5, "sd": 0.1, "count": 2}
    schemes = [{"scheme": name, "accuracy_end": figure, "train_loss": figure, "staleness_mean": {"mean": MEAN}, "staleness_max": MEAN, "bytes_sent": figure,
                "trials": MEAN, "diverged": 0, "failed": 0} for name in (MEAN, markup)]
    (comparison / "compare.json").write_text(json.dumps(
        {"clock": MEAN, "seeds": MEAN, "schemes": schemes, "refused": [{"scheme": MEAN, "reason": markup}], "notes": [MEAN, markup]}))
    (comparison / "curves.csv").write_text(f'scheme,seed,updates,epochs,accuracy,train_loss\n"{MEAN}","{MEAN}",1,1,0.5,0.5\n')
    return [run, comparison]


def check_shards(browser, troupe, folder):
    """A shard that the last line leaves out, as it has applied nothing, stays in the figure; a tenth follows the ninth."""
    folder.mkdir()
    lines = [{"kind": "train", "step": step, "seconds": step, "loss": 1, "shards": {name: {"mean": mean, "max": 3} for name, mean in means.items()}}
             for step, means in enumerate([{"shard-10": 1, "shard-2": 2}, {"shard-10": 3, "shard-2": 1}, {"shard-10": 2}], 1)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in [{"kind": "header", "clock": "real"}, *lines]))
    report = folder / "report.html"
    subprocess.run([troupe, "report", folder, "--out", report], check=True, capture_output=True)
    browser.open(report.as_uri())
    browser.wait_for("!!document.querySelector('#shards-0 svg')")
    cells = browser.value("[...document.querySelectorAll('#shards-0 th, #shards-0 td')].map(cell => cell.textContent)")
    assert [cell for cell in cells if cell.startswith("shard-")] == ["shard-2", "shard-10"], cells
    assert "shard-2" in browser.value("document.querySelector('#shards-0 svg').textContent")


def check_hostile(browser, url):
    browser.open(url)
    browser.wait_for("document.querySelectorAll('svg').length >= 6")
    assert browser.value("document.querySelectorAll('img, main script').length") == 0
    assert browser.value("window.obeyed === undefined")
    assert browser.value("document.body.innerText").count("onerror") > 10
    # And what came in all the same would not be obeyed.
    before = len(browser.complaints)
    browser.value(f"document.getElementById('status').innerHTML = {json.dumps(MEAN)}; new Promise(done => setTimeout(done, 200))")
    assert browser.value("window.obeyed === undefined")
    refused = browser.complaints[before:]
    assert refused and all("Content Security Policy" in str(c) or "net::ERR" in str(c) for c in refused), refused
    del browser.complaints[before:]


def main():
    troupe = Path(sys.argv[1]).resolve()
    chromium = sys.argv[2] if len(sys.argv) > 2 else shutil.which("chromium") or shutil.which("chromium-browser")
    if not chromium:
        print("skipped: there is no Chromium here (Debian's package is chromium)")
        return SKIPPED
    with tempfile.TemporaryDirectory(prefix="troupe-watch") as name:
        folder = Path(name)
        mean = "<img src=x onerror=console.error(1)></script>"
        runs = [folder / "one<b>", folder / "two"]
        small = ["--set", "data.teacher.train=4000", "--set", "record.gap_every=20", "--set", f"name={json.dumps(mean)}", "-q"]
        subprocess.run([troupe, "sim", "teacher-mlp", "--epochs", "3", *small, "--set", "record.versions=true", "--out", runs[0]], check=True,
                       capture_output=True)
        subprocess.run([troupe, "sim", "teacher-mlp", "--epochs", "2", *small, "--set", "replicas.count=2", "--out", runs[1]], check=True,
                       capture_output=True)
        going = folder / "going"
        going.mkdir()
        shutil.copy(runs[1] / "experiment.textproto", going)
        text = (runs[1] / "metrics.jsonl").read_text()
        cut = text.index('"kind":"train"', text.index('"kind":"train"') + 1) + 40
        (going / "metrics.jsonl").write_text(text[:cut])
        server = subprocess.Popen([troupe, "watch", *runs, "--address", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True)
        live = subprocess.Popen([troupe, "watch", going, "--address", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True)
        servers = [server, live]
        browser = Browser(chromium, folder / "browser")
        try:
            url = server.stdout.readline().split()[1]
            browser.open(url)
            browser.wait_for("document.getElementById('status').innerText == 'All of it is over.'")
            check_numbers(browser, runs)
            check_names(browser)
            check_keyboard(browser)
            check_look(browser, sys.argv[3] if len(sys.argv) > 3 else "")
            report = folder / "report.html"
            subprocess.run([troupe, "report", *runs, "--out", report], check=True, capture_output=True)
            browser.open(report.as_uri())
            check_numbers(browser, runs)
            check_names(browser)
            check_shards(browser, troupe, folder / "shards")
            bad = hostile(folder)
            report = folder / "hostile.html"
            subprocess.run([troupe, "report", *bad, "--out", report], check=True, capture_output=True)
            check_hostile(browser, report.as_uri())
            bad_server = subprocess.Popen([troupe, "watch", *bad, "--address", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True)
            servers.append(bad_server)
            check_hostile(browser, bad_server.stdout.readline().split()[1])
            check_live(browser, live.stdout.readline().split()[1], going, text[cut:])
            assert not browser.complaints, browser.complaints
        finally:
            browser.close()
            for process in servers:
                process.send_signal(signal.SIGINT)
        assert all(process.wait(PATIENCE) == 0 for process in servers)
    print("the page and the report are as they should be")
    return 0


if __name__ == "__main__":
    sys.exit(main())
