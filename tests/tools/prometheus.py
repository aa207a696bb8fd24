#!/usr/bin/env python3
"""What the processes of a run tell Prometheus (record.prometheus): the page of each, what the dashboard and the alerts ask for, and
Debian's own Prometheus, which scrapes a run of two processes.

    prometheus.py PROGRAM

Without `prometheus` and `promtool` (Debian: prometheus) the pages are read all the same, and what was left out is said.
"""

import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from pathlib import Path

DEPLOY = Path(__file__).resolve().parents[2] / "apps/deploy"
WORDS = ["glyphs-mlp", "--quiet", "--set", "data.glyphs.limit=2000", "--set", "data.glyphs.test_limit=200", "--set", "replicas.count=2",
         "--set", "replicas.rule=asgd", "--set", "stop.epochs=1000000", "--set", "record.order=false", "--set", "record.gap_every=10",
         "--set", "record.evaluate_every=50"]  # fmt: skip
SECONDS_MAX = 60
# That no other source of metrics in Prometheus has to do with.
ON_ITS_OWN = {"instance", "job", "le", "shard", "actor", "reason", "kind", "direction", "peer", "by", "sum", "rate", "increase",
              "histogram_quantile", "min_over_time", "label_values", "troupe"}  # fmt: skip


def free_ports():
    """Two in a row."""
    while True:
        with socket.socket() as one, socket.socket() as two:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
            try:
                two.bind(("127.0.0.1", port + 1))
                return port
            except OSError:
                continue


def got(url):
    with urllib.request.urlopen(url, timeout=5) as answer:
        return answer.read().decode()


def await_true(what, ask):
    end = time.monotonic() + SECONDS_MAX
    last = None
    while time.monotonic() < end:
        try:
            if last := ask():
                return last
        except OSError as error:
            last = error
        time.sleep(0.1)
    raise AssertionError(f"{what}: {last}")


def numbers(page):
    """By name and labels."""
    return {name: float(value) for name, value in re.findall(r"^([^#\s]\S*(?:\{[^}]*\})?) (\S+)$", page, re.M)}


def sums(page):
    """By name alone."""
    found = {}
    for name, value in numbers(page).items():
        name = name.split("{")[0]
        found[name] = found.get(name, 0) + value
    return found


def check_lead(page):
    """What belongs together agrees."""
    all_numbers, of = numbers(page), sums(page)
    updates = of["troupe_updates_total"]
    assert updates > 0 and of["troupe_samples_total"] > 0 and 0 < of["troupe_loss"] < 10, of
    assert of["troupe_test_loss"] > 0 and 0 <= of["troupe_test_accuracy_ratio"] <= 1
    for shard in ("shard-0", "shard-1"):
        counts = [value for name, value in all_numbers.items()
                  if name.startswith("troupe_staleness_versions_bucket") and shard in name]  # fmt: skip
        (count,) = [value for name, value in all_numbers.items() if name.startswith("troupe_staleness_versions_count") and shard in name]
        assert counts == sorted(counts) and counts[-1] == count > 0, (counts, count)
        assert any(name.startswith("troupe_gap{") and shard in name for name in all_numbers)
    assert {re.search(r'reason="(\w+)"', name)[1] for name in all_numbers if name.startswith("troupe_idle_seconds_total")} == {
        "data", "activation", "error", "weights"}  # fmt: skip
    assert of["troupe_losses_total"] == 0 and any('kind="replica"' in name for name in all_numbers)


def check_process(page, number):
    of = sums(page)
    assert re.search(rf'troupe_build_info{{[^}}]*process="{number}"[^}}]*}} 1\n', page), page
    assert of["process_cpu_seconds_total"] > 0 and of["process_resident_memory_bytes"] > 1e6 and of["process_open_fds"] > 3
    sent, received = (value for name, value in sorted(numbers(page).items(), key=lambda pair: "received" in pair[0])
                      if name.startswith("troupe_link_bytes_total"))  # fmt: skip
    assert sent > 0 and received > 0
    waiting = [value for name, value in numbers(page).items() if name.startswith("troupe_mailbox_messages{")]
    assert waiting and all(0 <= value < 100 for value in waiting), waiting
    for name in of:  # Prometheus' conventions: base units, and _total of what only grows
        assert re.fullmatch(r"(troupe|process)_[a-z_]+", name), name
    for name, kind in re.findall(r"^# TYPE (\S+) (\w+)$", page, re.M):
        assert (kind == "counter") == name.endswith("_total"), (name, kind)
    if shutil.which("promtool"):
        checked = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, text=True)
        assert checked.returncode == 0 and not checked.stderr, checked.stderr + checked.stdout


def check_asked_for(pages):
    """Every metric that the dashboard or an alert names is one of a page."""
    there = {name for page in pages for name in sums(page)}
    board = json.loads((DEPLOY / "grafana-dashboard.json").read_text())
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    asked += [variable["query"] for variable in board["templating"]["list"] if variable["type"] == "query"]
    asked += re.findall(r"^ +expr: (.*)$", (DEPLOY / "prometheus-alerts.yaml").read_text(), re.M)
    assert len(asked) > 15
    for expression in asked:
        plain = re.sub(r'"[^"]*"|\[[^]]*\]', "", expression)
        names = set(re.findall(r"[a-z_]+", plain)) - ON_ITS_OWN
        assert names and names <= there, (expression, names - there)
    if shutil.which("promtool"):
        done = subprocess.run(["promtool", "check", "rules", str(DEPLOY / "prometheus-alerts.yaml")], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    return asked


def check_scraped(folder, port, asked):
    """By Prometheus itself, which is asked what the dashboard asks."""
    own = free_ports()
    targets = [f"127.0.0.1:{port}", f"127.0.0.1:{port + 1}"]
    (folder / "prometheus.yml").write_text(
        f"global: {{scrape_interval: 1s}}\nrule_files: [{DEPLOY / 'prometheus-alerts.yaml'}]\n"
        f"scrape_configs:\n  - job_name: troupe\n    static_configs: [{{targets: {json.dumps(targets)}}}]\n")  # fmt: skip
    words = ["prometheus", f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'tsdb'}",
             f"--web.listen-address=127.0.0.1:{own}"]  # fmt: skip
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def query(expression):
        answer = json.loads(got(f"http://127.0.0.1:{own}/api/v1/query?query=" + urllib.parse.quote(expression)))
        return answer["data"]["result"]

    try:
        await_true("both processes are up", lambda: len(query('up{job="troupe"} == 1')) == 2)
        await_true("updates grow", lambda: query("rate(troupe_updates_total[10s]) > 0"))
        for expression in asked:
            if "label_values" not in expression:
                query(expression.replace("$instance", ".*"))  # an error's status is an exception
        return len(query('{job="troupe"}'))
    finally:
        process.terminate()
        process.wait()


def check_virtual(program, port):
    """Messages have no mailboxes on the virtual clock."""
    words = [program, "sim", *WORDS, "--out", "none", "--set", f"record.prometheus=127.0.0.1:{port}"]
    run = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        page = await_true("the virtual run is told of", lambda: "troupe_updates_total " in (it := got(f"http://127.0.0.1:{port}/metrics")) and it)
        assert "troupe_mailbox_messages" not in page, page
    finally:
        run.send_signal(signal.SIGINT)
        says = run.communicate(timeout=SECONDS_MAX)[1]
    assert run.returncode == 130, (run.returncode, says)


def check_refused(program, port):
    """Before anything is trained: a sentence, exit code 2."""
    for address, word in ((f"127.0.0.1:{port}", str(port)), ("nowhere", "nowhere"), ("127.0.0.1:99999", "99999")):
        done = subprocess.run([program, "run", *WORDS, "--out", "none", "--set", "record.prometheus=" + address], capture_output=True, text=True)
        assert done.returncode == 2 and "record.prometheus" in done.stderr and word in done.stderr, (done.returncode, done.stderr)
        assert done.stderr.count("\n") == 1 and not done.stdout, done.stderr


def main():
    program = str(Path(sys.argv[1]).resolve())
    port = free_ports()
    scraped = "no prometheus is here (Debian: prometheus), so that none has scraped"
    words = [program, "run", *WORDS, "--processes", "2", "--set", f"record.prometheus=127.0.0.1:{port}"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = subprocess.Popen([*words, "--out", str(folder / "run")], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            urls = [f"http://127.0.0.1:{port + number}/metrics" for number in (0, 1)]
            await_true("the run is evaluated", lambda: "troupe_test_loss " in got(urls[0]) and "troupe_gap{" in got(urls[0]))
            pages = [got(url) for url in urls]
            check_lead(pages[0])
            for number, page in enumerate(pages):
                check_process(page, number)
            assert "troupe_updates_total" not in pages[1]  # the lead alone tells of the run
            later = await_true("updates grow", lambda: sums(got(urls[0]))["troupe_updates_total"] > sums(pages[0])["troupe_updates_total"])
            assert later
            asked = check_asked_for(pages)
            check_refused(program, port)
            if shutil.which("prometheus") and shutil.which("promtool"):
                scraped = f"prometheus has {check_scraped(folder, port, asked)} series"
        finally:
            run.send_signal(signal.SIGINT)
            says = run.communicate(timeout=SECONDS_MAX)[1]
        assert run.returncode == 130, (run.returncode, says)
    check_virtual(program, port)
    print(f"{len(numbers(pages[0]))} numbers of the lead, {len(numbers(pages[1]))} of the other; {scraped}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
