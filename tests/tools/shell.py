#!/usr/bin/env python3
"""What a shell is told: `troupe completion`, read and asked by the shells themselves, the man page, `troupe runs`, and help that
fits a screen.

    shell.py PROGRAM

bash is always there; zsh, fish, mandoc and groff are asked where they are.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LINES_MAX = 40  # of a verb's help
SHORT = ["--set", "data.glyphs.limit=2000", "--set", "data.glyphs.test_limit=200", "--quiet"]

BASH = """
source <("$1" completion bash)
COMP_LINE=$2 COMP_POINT=${#2}
_troupe 2>/dev/null
printf '%s\\n' "${COMPREPLY[@]}"
"""
ZSH = """
compdef() { :; }
_describe() { compadd -- ${${(P)2}%%:*}; }
compadd() { while [[ $1 != -- ]]; do shift; done; shift; print -l -- ${(M)@:#${PREFIX}*}; }
_files() { print -l -- *; }
source <($1 completion zsh)
words=(${(z)2}); [[ $2 == *' ' ]] && words+=('')
CURRENT=$#words PREFIX=${words[-1]}
_troupe
"""
FISH = """source ($argv[1] completion fish | psub); complete -C "$argv[2]" """


def output(*words, **more):
    done = subprocess.run(words, capture_output=True, text=True, **more)
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout


def offered(shell, program, line, folder):
    """What the shell would offer at the end of the line."""
    script = {"bash": BASH, "zsh": ZSH, "fish": FISH}[shell]
    words = {"bash": ["bash", "--norc", "-c", script, "bash"], "zsh": ["zsh", "-f", "-c", script, "zsh"],
             "fish": ["fish", "-N", "-c", script]}[shell]  # fmt: skip
    text = output(*words, program, line, cwd=folder)
    return {found.split("\t")[0] for found in text.split("\n") if found}


def options(program, verb):
    """Of the help: its options by their long names."""
    return set(re.findall(r"^  (?:-\w, )?(--[\w-]+)", output(program, "help", verb), re.M))


def verbs(program):
    return re.findall(r"^  ([a-z]+) {2,}", output(program, "--help").split("Subcommands:")[1], re.M)


def check_completion(shell, program, folder):
    def at(line, key=""):
        found = offered(shell, program, line, folder)
        # Where = parts words, bash wants what stands behind it.
        return {key + word for word in found} if shell == "bash" and key else found

    all_verbs = set(verbs(program))
    assert len(all_verbs) > 15 and all_verbs <= at("troupe "), all_verbs - at("troupe ")
    assert at("troupe pre") == {"predict"}
    for verb in sorted(all_verbs):
        missing = options(program, verb) - at(f"troupe {verb} --")
        assert not missing, (verb, missing)
    assert {"glyphs-mlp", "glyphs-mlp.txt"} <= at("troupe run glyphs-mlp") | {"glyphs-mlp.txt"}
    assert "glyphs-mlp" in at("troupe sim gly") and "mnist-mlp" not in at("troupe sim gly")
    assert at("troupe compare --clock v") == {"virtual"}
    assert "pipeline.stages=" in at("troupe run --set pipeline.st") and "optimizer.rule=" not in at("troupe run --set pipeline.st")
    assert at("troupe run --set pipeline.weights=stas", "pipeline.weights=") == {"pipeline.weights=stash"}
    assert at("troupe run --set record.tensorboard=", "record.tensorboard=") == {"record.tensorboard=true", "record.tensorboard=false"}
    assert "a_folder" in {word.rstrip("/") for word in at("troupe run --resume a_f")}
    assert at("troupe completion z") == {"zsh"}


def check_man(program):
    page = output(program, "help", "--man")
    for verb in verbs(program):
        assert f'"troupe {verb}' in page, verb
    assert len(re.findall(r"^\.TP$", page, re.M)) > 100
    told = []
    if shutil.which("mandoc"):
        lint = subprocess.run(["mandoc", "-T", "lint", "-W", "warning"], input=page, capture_output=True, text=True)
        wrong = [line for line in lint.stdout.splitlines() if "missing date" not in line]
        assert not wrong, wrong[:9]
        told.append("mandoc")
    if shutil.which("groff"):
        shown = subprocess.run(["groff", "-man", "-ww", "-Tutf8"], input=page, capture_output=True, text=True)
        plain = re.sub(r"\x1b\[[\d;]*m|.\x08", "", shown.stdout)
        assert shown.returncode == 0 and not shown.stderr, shown.stderr
        assert "--resume" in plain and "EXIT STATUS" in plain
        told.append("groff")
    return told


def check_help(program):
    for verb in verbs(program):
        lines = output(program, verb, "--help").count("\n")
        assert lines <= LINES_MAX, f"{verb} --help has {lines} lines"


def listed(program, folder):
    text = output(program, "runs", str(folder), "--json")
    return {run["name"]: run for run in map(json.loads, text.splitlines())}


def await_state(program, folder, name, state):
    end = time.monotonic() + 60
    while (found := listed(program, folder).get(name, {})).get("state") != state or not found.get("updates"):
        assert time.monotonic() < end, (name, state, found)
        time.sleep(0.1)
    return found


def check_runs(program, folder):
    runs = folder / "runs"
    runs.mkdir()
    assert not output(program, "runs", str(runs))
    output(program, "sim", "teacher-mlp", *SHORT[4:], "--set", "stop.updates=20", "--out", str(runs / "over"))
    long = [program, "run", "glyphs-mlp", *SHORT, "--set", "stop.epochs=1000000", "--set", "record.order=false"]
    long += ["--set", "record.every=1", "--set", "replicas.count=2"]
    for name, number, state in (("stopped", signal.SIGINT, "interrupted"), ("dead", signal.SIGKILL, "killed")):
        process = subprocess.Popen([*long, "--out", str(runs / name)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            going = await_state(program, runs, name, "running")
            assert "asgd parameter_server" in going["scheme"], going
        finally:
            process.send_signal(number)
            process.wait()
        assert await_state(program, runs, name, state)["updates"] >= going["updates"]
    found = listed(program, runs)
    assert list(found) == ["over", "stopped", "dead"], list(found)
    summary = json.loads((runs / "over/summary.json").read_text())
    over = found["over"]
    assert (over["state"], over["updates"], over["loss"]) == ("done", 20, summary["test_loss"]), over
    text = output(program, "runs", str(runs))
    assert text.count("\n") == 4 and text.splitlines()[0].split()[0] == "name", text
    assert output(program, "runs", str(runs / "over")).count("\n") == 2
    # Of a copy the times of the files say nothing; one that goes on beyond its summary was resumed and killed.
    copy = Path(shutil.copytree(runs / "over", folder / "copies/copy"))
    os.utime(copy / "summary.json", (0, 0))
    assert listed(program, copy.parent)["copy"]["state"] == "done"
    with open(copy / "metrics.jsonl", "a") as file:
        file.write('{"kind":"train","step":99,"loss":0.5}\n')
    again = listed(program, copy.parent)["copy"]
    assert (again["state"], again["updates"]) == ("killed", 99), again


def main():
    program = str(Path(sys.argv[1]).resolve())
    os.environ.pop("TROUPE_RUNS", None)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "a_folder").mkdir()
        shells = [shell for shell in ("bash", "zsh", "fish") if shutil.which(shell)]
        for shell in shells:
            check_completion(shell, program, folder)
        told = check_man(program)
        check_help(program)
        check_runs(program, folder)
    print("completed by", ", ".join(shells) + "; the page read by", ", ".join(told) or "nobody")
    return 0


if __name__ == "__main__":
    sys.exit(main())
