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
            check_live(browser, live.stdout.readline().split()[1], going, text[cut:])
            assert not browser.complaints, browser.complaints
        finally:
            browser.close()
            for process in (server, live):
                process.send_signal(signal.SIGINT)
        assert (server.wait(PATIENCE), live.wait(PATIENCE)) == (0, 0)
    print("the page and the report are as they should be")
    return 0


if __name__ == "__main__":
    sys.exit(main())
