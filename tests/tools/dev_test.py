#!/usr/bin/env python3
"""tests/dev and tidy.py: a source's tests are found; the hook before a commit, and clang-tidy where it is installed, refuse what
they are there to refuse, and nothing else."""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# What test.sh is asked for, and the first test that it names; None: it knows none.
TESTS = [
    ("kernels/matmul.hpp", "kernels/matmul_test"),  # its own
    ("kernels/cpu/matmul.cpp", "kernels/matmul_test"),  # of its name
    ("runtime/cluster/lead_start.cpp", "runtime/cluster/lead_test"),  # of what it is a part of
    ("tests/system/oracle_test.cpp", "system/oracle_test"),
    ("system/oracle_test", "system/oracle_test"),
    ("README.md", None),
    ("kernels/none.cpp", None),
]

# A file that is committed, its text, and what the hook says of it; "": nothing.
COMMITS = [
    ("kernels/sum.cpp", "int sum(int a, int b) {\n  return a + b;\n}\n", ""),
    ("kernels/sum.cpp", "int sum(int a,int b) { return a+b; }\n", "clang-format-14 -i would change this"),
    ("kernels/sum.cpp", '#include "actors/pipeline/stage.hpp"\n', "kernels may not include actors"),
    ("runtime/long.cpp", "int f() {\n" + "  g();\n" * 81 + "}\n", "81 lines"),
    ("page.md", "[here](page.md#heading)\n\n# Heading\n", ""),
    ("page.md", "[there](other.md)\n", "page.md:1: the link other.md leads nowhere"),
]


def run(*command, folder=ROOT):
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def wrong_tests():
    for asked, due in TESTS:
        done = run("tests/dev/test.sh", "--which", asked)
        said = done.stdout.split()[0] if done.returncode == 0 else None
        if said != due:
            yield f"test.sh --which {asked}: due is {due}, said {done.stdout}{done.stderr}"


def wrong_commits():
    for file, text, due in COMMITS:
        with tempfile.TemporaryDirectory() as folder:
            for script in ("tests/dev/pre-commit", "tests/tools/check_layers.py", "tests/tools/check_docs.py",
                           "tests/tools/function_lengths.py", ".clang-format"):  # fmt: skip
                Path(folder, script).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / script, Path(folder, script))
            # A function that is as it should be: the checkers of lengths and layers want to see some.
            Path(folder, "runtime").mkdir()
            Path(folder, "runtime/right.cpp").write_text("int right(int a) {\n  return a;\n}\n")
            Path(folder, file).parent.mkdir(parents=True, exist_ok=True)
            Path(folder, file).write_text(text)
            run("git", "init", "-q", folder=folder)
            run("git", "add", "-A", folder=folder)
            done = run("tests/dev/pre-commit", folder=folder)
            if (done.returncode != 0) != bool(due) or due not in done.stderr:
                yield f"{file}: {text[:60]!r}: due is {due!r}, said {done.stdout}{done.stderr}"


def wrong_findings():
    """A file with a mistake, compiled together with one that has none, by a file that includes both; and each by itself."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        for script in ("tests/tools/tidy.py", ".clang-tidy"):
            Path(root, script).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / script, root / script)
        (root / "kernels").mkdir()
        (root / "build").mkdir()
        (root / "kernels/right.cpp").write_text("int right(int a) {\n  return a;\n}\n")
        (root / "kernels/wrong.cpp").write_text("double wrong(int a, int b) {\n  return 1.0 + a / b;\n}\n")
        (root / "kernels/other.cpp").write_text("int other(int a) {\n  return a;\n}\n")
        unity = root / "build/unity_0_cxx.cxx"
        unity.write_text("".join(f'#include "{root}/kernels/{name}.cpp"\n' for name in ("right", "wrong")))
        commands = [{"directory": folder, "file": str(file), "command": f"c++ -Wall -fno-thread-jumps -o a.o -c {file}"}
                    for file in (unity, root / "kernels/other.cpp")]  # fmt: skip
        (root / "build/compile_commands.json").write_text(json.dumps(commands))
        for asked, due, status in [((), "kernels/wrong.cpp:2:16: ", 1), (("kernels/other.cpp",), "0 findings in 1 sources", 0),
                                   (("kernels/wrong.hpp",), "1 findings in 2 sources", 1), (("kernels/none.cpp",), "", 1)]:  # fmt: skip
            done = run(sys.executable, "tests/tools/tidy.py", "build", *asked, folder=root)
            if done.returncode != status or due not in done.stdout:
                yield f"tidy.py {asked}: due is {due!r}, said {done.stdout}{done.stderr}"
        # Of what a commit has changed, without what is wrong beside it already.
        commit = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-qam", "Change"]
        run("git", "init", "-q", folder=root)
        run("git", "add", ".", folder=root)
        run(*commit, folder=root)
        for name, due, status in [("right", "0 findings in 2 sources", 0), ("wrong", "kernels/wrong.cpp:2:16: ", 1)]:
            with open(root / f"kernels/{name}.cpp", "a") as text:
                text.write("// More.\n")
            run(*commit, folder=root)
            done = run(sys.executable, "tests/tools/tidy.py", "build", "--changed", "--at-most", "1", folder=root)
            if done.returncode != status or due not in done.stdout:
                yield f"tidy.py --changed of {name}: due is {due!r}, said {done.stdout}{done.stderr}"


def main():
    if not shutil.which("clang-format-14") or not shutil.which("git"):
        print("skipped: clang-format-14 or git is not installed")
        return 4
    wrong = [*wrong_tests(), *wrong_commits()]
    if shutil.which("clang-tidy-19"):
        wrong += wrong_findings()
    print(*wrong, sep="\n", end="\n" if wrong else "")
    print(f"{len(TESTS)} questions, {len(COMMITS)} commits and clang-tidy: {len(wrong)} misjudged")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
