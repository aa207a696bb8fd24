#!/usr/bin/env python3
"""Runs under limits that are too tight: of memory, descriptors, threads and the size of files. Whatever is missing, the program
says so in a sentence, ends soon with a documented exit code, and leaves no process behind.

    limits.py --program P                       # a few values of each limit, as ctest does
    limits.py --program P --steps 40            # a finer sweep of each; also --only memory, --only "memory 3"

A limit that is wide enough lets the run end with 0. Of one that is not, these are broken laws:
  hangs      the program has not ended after --seconds
  signal     it, or a process that it has started, has been ended by a signal (an abort in a library, say)
  code       its exit code is none that apps/docs/experiments.md has for this
  sentence   it says nothing on stderr, or what a library says when it gives up
  left       a process that it has started is there 5 seconds after its end
Exit status 1 if one was broken.
"""

import argparse
import ctypes
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

KIB = 1 << 10
MIB = 1 << 20
NOBODY = 65534  # processes of root are not counted by RLIMIT_NPROC
PR_SET_CHILD_SUBREAPER = 36
CODES = {0, 2, 3, 5}
OF_LIBRARIES = re.compile(r"terminate called|Assertion|Aborted|core dumped|\(src/|\*\*\*|what\(\):")

SMALL = ["--set", "data.glyphs.limit=512", "--set", "data.glyphs.test_limit=64", "--set", "stop.updates=20"]
RUNS = {
    "sim": ["sim", "glyphs-mlp", *SMALL],
    "1": ["run", "glyphs-mlp", *SMALL, "--set", "pipeline.stages=2", "--set", "record.checkpoint.every=5"],
    "3": ["run", "glyphs-mlp", *SMALL, "--set", "pipeline.stages=1", "--set", "replicas.count=3", "--processes", "3",
          "--set", "record.checkpoint.every=5"],
}  # fmt: skip
# By kind: the resource, the least value, the greatest. With less memory the libraries alone cannot be mapped, before main().
KINDS = {
    "memory": (resource.RLIMIT_AS, 160 * MIB, 1400 * MIB),
    "descriptors": (resource.RLIMIT_NOFILE, 4, 70),
    "threads": (resource.RLIMIT_NPROC, 1, 40),
    "file": (resource.RLIMIT_FSIZE, 0, 400 * KIB),
    "data": (resource.RLIMIT_DATA, 4 * MIB, 400 * MIB),
}


def values_of(kind, steps):
    """From the least to the greatest, closer together below."""
    _, least, most = KINDS[kind]
    found = {int(least + (most - least) * (i / (steps - 1)) ** 1.5) for i in range(steps)} if steps > 1 else {most}
    return sorted(found)


def children():
    """Of this process, those that it has become the parent of among them."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, rest = path.read_text().split(" ", 1)
        except OSError:
            continue
        fields = rest.rsplit(")", 1)[1].split()
        if int(fields[1]) == os.getpid() and fields[0] != "Z":
            found.append(int(pid))
    return found


def reap():
    """The ends of processes that were left to this one, by signal number; 0: by themselves."""
    ends = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ends
        if pid == 0:
            return ends
        ends.append(os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0)


def broken_by(program, run, kind, value, folder, seconds):
    """What is wrong with `run` under the limit, or None; and what it said."""
    what = KINDS[kind][0]

    def limit():
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if kind == "threads":
            resource.setrlimit(what, (value, value))
            os.setresuid(NOBODY, NOBODY, NOBODY)
        else:
            resource.setrlimit(what, (value, value))

    out = Path(folder, "run")
    reader, writer = os.pipe()  # no file, whose size is limited
    process = subprocess.Popen([program, *RUNS[run], "--out", str(out)], stdin=subprocess.DEVNULL, stdout=writer, stderr=writer,
                               preexec_fn=limit, cwd=folder)  # fmt: skip
    os.close(writer)
    said = []
    listener = threading.Thread(target=lambda: said.extend(iter(lambda: os.read(reader, 65536), b"")))
    listener.start()
    try:
        code = process.wait(seconds)
    except subprocess.TimeoutExpired:
        code = None
    end = time.time() + (5 if code is not None else 0)
    while children() and time.time() < end:
        time.sleep(0.02)
    left = children()
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    process.wait()
    listener.join()
    os.close(reader)
    ends = reap()
    text = b"".join(said).decode(errors="replace")
    subprocess.run(["rm", "-rf", str(out)], check=True)
    if code is None:
        return f"hangs: not over after {seconds} s", text, code
    if left:
        return f"left: {len(left)} processes", text, code
    if code < 0:
        return f"signal: {signal.Signals(-code).name}", text, code
    if any(end in (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL) for end in ends):
        return "signal: of a process that it has started", text, code
    if code not in CODES:
        return f"code: {code}", text, code
    if OF_LIBRARIES.search(text):
        return "sentence: a library's", text, code
    if code != 0 and not re.search(r"^(troupe: |node: ).{15,}", text, re.MULTILINE):
        return "sentence: none", text, code
    return None, text, code


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--steps", type=int, default=4, help="values of each limit")
    parser.add_argument("--only", default="", help="a kind (memory, descriptors, threads, file, data), or a kind and a run (sim, 1, 3)")
    parser.add_argument("--seconds", type=float, default=30, help="how long a run may take")
    parser.add_argument("--verbose", action="store_true", help="print what each run says last")
    options = parser.parse_args()
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    program = str(Path(options.program).resolve())
    tried = broken = well = 0
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        for kind in KINDS:
            if kind == "threads" and os.getuid() != 0:
                continue  # whoever is no user of his own has other processes, too
            for run in RUNS:
                if options.only not in ("", kind, f"{kind} {run}"):
                    continue
                for value in values_of(kind, options.steps):
                    wrong, text, code = broken_by(program, run, kind, value, folder, options.seconds)
                    tried, broken, well = tried + 1, broken + (wrong is not None), well + (code == 0)
                    if wrong or options.verbose:
                        lines = [line for line in text.splitlines() if line.strip()]
                        print(f"{kind} {value}, {run}: {wrong or code}: {' / '.join(lines[-3:])[-400:]}", flush=True)
    print(f"{tried} runs under limits, {well} of which were wide enough; {broken} break a law")
    sys.exit(1 if broken or tried == 0 else 0)


if __name__ == "__main__":
    main()
