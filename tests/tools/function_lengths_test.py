#!/usr/bin/env python3
"""The counter of lines finds what is too long, and lets pass what is not."""

import subprocess
import sys
import tempfile
from pathlib import Path

CHECKER = Path(__file__).with_name("function_lengths.py")


def function(lines, head="int counted(int x)"):
    return head + " {\n" + "  x += 1;\n" * lines + "}\n"


def table(rows):
    return "std::vector<int> listed() {\n  return {\n" + "      1,\n" * rows + "  };\n}\n"


def class_of(lines):
    """Short methods in one class: the class is no function."""
    return "class Many {\n" + "  int one() {\n    return 1;\n  }\n" * (lines // 3) + "};\n"


# What stands in which file, and what is said of it; None: nothing.
CASES = [
    ("actors/a.cpp", function(81), "actors/a.cpp:1: counted: 81 lines"),
    ("actors/a.cpp", function(80), None),
    ("messages/a.cpp", function(81), "messages/a.cpp:1: counted: 81 lines"),
    ("runtime/a.cpp", "class A {\n" + function(90, "  void method() const override") + "};\n", "method: 90 lines"),
    ("runtime/a.cpp", function(90, "A::A(int x) : x_(x), y_{2}"), "90 lines"),
    ("runtime/a.cpp", "// {\nconst char* text = \"{\";\n" + function(81), "runtime/a.cpp:3: counted: 81 lines"),
    ("apps/a.cpp", class_of(120), None),
    ("apps/a.cpp", table(200), None),
    ("apps/a.cpp", function(30) + "// a line\n" * 369, "apps/a.cpp: 401 lines"),
    ("apps/a.hpp", function(30) + "// a line\n" * 368, None),
    ("apps/a.cpp", function(30) + "// a line\n" * 360 + table(200), None),
    ("messages/a.hpp", function(30) + "// a line\n" * 500, None),
]


def run(root):
    return subprocess.run([sys.executable, str(CHECKER), str(root)], capture_output=True, text=True)


def main():
    failures = 0
    for name, text, reason in CASES:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / name
            path.parent.mkdir(parents=True)
            path.write_text(text)
            result = run(folder)
            right = result.returncode == 0 if reason is None else result.returncode == 1 and reason in result.stdout
            if not right:
                print(f"{name}, {reason or 'nothing to say'}: {result.returncode}\n{result.stdout}", file=sys.stderr)
                failures += 1
    with tempfile.TemporaryDirectory() as folder:
        if run(folder).returncode != 1:
            print("a tree without functions passes", file=sys.stderr)
            failures += 1
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
