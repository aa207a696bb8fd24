"""Runs the program, many times: a `forked_troupe` is loaded once and forks for each run, any other is started each time."""

import os
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path

_here = threading.local()  # each thread asks servers of its own: `servers`, by program


def folder_of_runs():
    """A temporary folder, in memory where there is room: what a disk has to keep at once takes most of a short run."""
    in_memory = Path("/dev/shm")
    roomy = in_memory.is_dir() and shutil.disk_usage(in_memory).free >= 4 << 30
    return tempfile.TemporaryDirectory(dir=in_memory if roomy else None)


class Server:
    """A `forked_troupe --serve`; it ends when this process does, which closes its standard input."""

    def __init__(self, program):
        once = dict(os.environ, LD_BIND_NOW="1")  # and not each fork anew
        self.process = subprocess.Popen([program, "--serve"], env=once, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.folder = folder_of_runs()
        self.output, self.error = (Path(self.folder.name, name) for name in ("output", "error"))

    def run(self, command, cwd, timeout):
        words = [str(Path(cwd or ".").resolve()), str(timeout), str(self.output), str(self.error), *command]
        request = b"".join(word.encode() + b"\0" for word in words)
        self.process.stdin.write(b"%d\n%s" % (len(request), request))
        self.process.stdin.flush()
        answer = self.process.stdout.readline().decode().strip()
        if answer == "late":
            raise subprocess.TimeoutExpired(command, timeout)
        if not answer:
            raise RuntimeError(f"{command[0]} --serve has ended")
        return subprocess.CompletedProcess(command, int(answer), self.output.read_text(), self.error.read_text())


def run(command, cwd=None, timeout=None):
    """What subprocess.run(command, cwd=..., capture_output=True, text=True, timeout=...) returns or raises."""
    program = str(command[0])
    if Path(program).name != "forked_troupe":
        return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=timeout)
    servers = _here.__dict__.setdefault("servers", {})
    if program not in servers:
        servers[program] = Server(program)
    return servers[program].run([str(word) for word in command], cwd, timeout)
