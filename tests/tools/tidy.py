#!/usr/bin/env python3
"""clang-tidy 19, with the checks of .clang-tidy, on the program's sources: tidy.py BUILD [--changed [--at-most N]] [FILE...].

BUILD is a configured folder of CMake, whose compile commands are used. With FILEs (sources, or headers beside a source): these
alone. With --changed those that the last commit has changed, in at most N compilations, and what is found elsewhere is not told.
Without either: all. Files that are compiled eight at a time are looked at eight at a time, which takes a quarter of the work. Exit
status 1: something was found; it is printed. 4: clang-tidy-19 is not installed.
"""

import argparse
import json
import re
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from os import cpu_count
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TIDY = "clang-tidy-19"
PRODUCT = ("actors", "apps", "kernels", "messages", "runtime")
FINDING = re.compile(r"^(\S+?:\d+:\d+: (?:warning|error): .*)$", re.M)


def git(*arguments):
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True)
    return done.stdout.split() if done.returncode == 0 else []


def inside(path):
    """A path as git names it, where it is one of the program's sources; else None."""
    path = Path(path)
    name = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else ""
    return name if name.startswith(tuple(folder + "/" for folder in PRODUCT)) and path.suffix in (".cpp", ".hpp") else None


class Compilation:
    """One compiler call of the build, and which of the program's sources it compiles."""

    def __init__(self, entry):
        self.folder, self.file = entry["directory"], entry["file"]
        self.arguments = clang_arguments(entry)
        path = Path(self.file)
        included = re.findall(r'#include "([^"]+\.cpp)"', path.read_text()) if "unity" in path.name and path.exists() else []
        self.sources = {name for source in included or [self.file] if (name := inside(source))}

    def findings(self):
        command = [TIDY, "--quiet", self.file, "--", *self.arguments]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True)
        if done.returncode and not FINDING.search(done.stdout):
            return [f"{self.file}: {TIDY} ended with {done.returncode}: {done.stderr.strip()[-600:]}"]
        return [line.replace(f"{ROOT}/", "") for line in FINDING.findall(done.stdout)]


def clang_arguments(entry):
    """GCC's arguments without its warnings and what it leaves out, which Clang does not know, and without what is compiled."""
    arguments = shlex.split(entry["command"])[1:] if "command" in entry else entry["arguments"][1:]
    kept = []
    skip = False
    for argument in arguments:
        if skip or argument == entry["file"] or argument.startswith(("-W", "-fno-")):
            skip = False
        elif argument in ("-o", "-c"):
            skip = argument == "-o"
        else:
            kept.append(argument)
    return [*kept, "-w"]


def compilations(build):
    """Those that compile a source of the program."""
    commands = json.loads((build / "compile_commands.json").read_text())
    found = (Compilation(entry) for entry in commands if not entry["file"].endswith(".cu"))
    return [one for one in found if one.sources]


def of_files(every, files):
    """The compilations of these sources, or of the sources that have a header's name."""
    wanted = {str(Path(inside(file.resolve()) or file).with_suffix(".cpp")) for file in files}
    return [one for one in every if one.sources & wanted]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--changed", action="store_true", help="what the last commit has changed")
    parser.add_argument("--at-most", type=int, metavar="N", help="compilations")
    given = parser.parse_args()
    if not shutil.which(TIDY):
        print(f"skipped: {TIDY} is not installed")
        return 4
    every = compilations(given.build)
    changed = git("diff", "--name-only", "--diff-filter=d", "HEAD~1") if given.changed else []
    files = given.files or [ROOT / name for name in changed if inside(ROOT / name)]
    chosen = of_files(every, files) if files or given.changed else every
    if given.files and not chosen:
        print("no source of the program is compiled from these files", file=sys.stderr)
        return 1
    left_out = chosen[given.at_most :] if given.at_most else []
    chosen = chosen[: given.at_most or None]
    with ThreadPoolExecutor(cpu_count()) as threads:
        found = sorted({line for lines in threads.map(Compilation.findings, chosen) for line in lines})
    if given.changed:
        found = [line for line in found if line.split(":")[0] in changed]
    print(*found, sep="\n", end="\n" if found else "")
    print(f"{len(found)} findings in {len({name for one in chosen for name in one.sources})} sources"
          + (f"; {len(left_out)} more compilations are left out" if left_out else ""))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
