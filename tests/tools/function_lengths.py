#!/usr/bin/env python3
"""How long functions and files are: function_lengths.py [ROOT].

A function's lines are those between its braces, in actors, runtime, apps and messages; lambdas count to the function that
they stand in. Prints the median, the share of those with at most 28 lines, and each that has more than 80. A table is a body
whose first word is `return` or `static` and that has a list in braces right there. Exit status 1: a function of more than 80
lines is no table, or a file of actors, runtime or apps has more than 400 lines, those of its tables not counted; each is
named. A crude matcher of braces, not a parser: it takes a body to be what follows a list of arguments.
"""

import re
import statistics
import sys
from pathlib import Path

ROOT = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[2]
FOLDERS = ["actors", "runtime", "apps", "messages"]
SHORT = 28
LONG = 80
FOLDERS_OF_SHORT_FILES = ["actors", "runtime", "apps"]
LONG_FILE = 400

RAW = re.compile(r'R"(\w*)\((.*?)\)\1"', re.S)
NOISE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'', re.S)
DIRECTIVE = re.compile(r"^[ \t]*#[^\n]*(?:\\\n[^\n]*)*", re.M)
QUALIFIERS = ("const", "noexcept", "override", "final", "mutable", "&")
SCOPE = re.compile(r"\b(namespace|class|struct|union|enum|extern)\b")
TABLE = re.compile(r"\s*(return|static)\b[^;({]*\{")


def blanked(text):
    """The same number of lines, without what could have a brace in it that opens nothing."""
    for pattern in (RAW, NOISE, DIRECTIVE):
        text = pattern.sub(lambda found: re.sub(r"[^\n]", " ", found.group()), text)
    return text


def closing(text, at):
    """Where the brace at `at` is closed."""
    depth = 0
    for i in range(at, len(text)):
        depth += {"{": 1, "}": -1}.get(text[i], 0)
        if depth == 0:
            return i
    return len(text) - 1


def without_templates(head):
    return re.sub(r"^\s*template\s*<[^{};]*>\s*(?=\w)", "", head)


def without_qualifiers(head):
    head = re.sub(r"\)\s*->[^(){};]*$", ")", head).rstrip()
    ending = next((word for word in QUALIFIERS if head.endswith(word)), None)
    return without_qualifiers(head[: -len(ending)]) if ending else head


def opens_function(head):
    bare = without_qualifiers(head)
    if "(" not in bare or re.search(r"[^=!<>]=\s*$|\bdefault\b", head):
        return False
    return bare.endswith(")") or (bare.endswith("}") and re.search(r"\)\s*(noexcept\s*)?:", bare) is not None)


def functions(text):
    """(name, line of its brace, lines, whether it is a table) of each function in the text of a file."""
    text = blanked(text)
    found = []
    start = 0
    i = 0
    while i < len(text):
        c = text[i]
        if c in ";}":
            start = i + 1
        elif c == "{":
            head = without_templates(text[start:i])
            if opens_function(head):
                end = closing(text, i)
                body = text[i + 1 : end]
                name = re.search(r"([\w:~]+|operator\s*\S+)\s*\(", head)
                line = text.count("\n", 0, i) + 1
                found.append((name.group(1) if name else "?", line, max(1, body.count("\n") - 1), bool(TABLE.match(body))))
                i = end
                start = i + 1
            elif SCOPE.search(head) and "(" not in head:
                start = i + 1
            else:  # a list of values: what follows belongs to the same head
                end = closing(text, i)
                text = text[:i] + re.sub(r"[^\n]", " ", text[i:end]) + text[end:]
                text = text[:end] + ")" + text[end + 1 :] if re.search(r"\)\s*:", head) else text
                i = end
        i += 1
    return found


def main():
    every = []
    long_files = []
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.[ch]pp")):
            file = path.relative_to(ROOT).as_posix()
            text = path.read_text()
            here = functions(text)
            every += [(lines, file, line, name, table) for name, line, lines, table in here]
            lines = text.count("\n") - sum(lines for _, _, lines, table in here if table)
            if folder in FOLDERS_OF_SHORT_FILES and lines > LONG_FILE:
                long_files.append((lines, file))
    if not every:
        print("no functions found", file=sys.stderr)
        return 1
    lengths = [entry[0] for entry in every]
    share = sum(n <= SHORT for n in lengths) / len(lengths)
    print(f"{len(lengths)} functions; median {statistics.median(lengths):g} lines; {100 * share:.1f} % have at most {SHORT}")
    broken = bool(long_files)
    for lines, file, line, name, table in sorted(every, reverse=True):
        if lines > LONG:
            print(f"{file}:{line}: {name}: {lines} lines" + (" (a table)" if table else ""))
            broken |= not table
    for lines, file in sorted(long_files, reverse=True):
        print(f"{file}: {lines} lines; at most {LONG_FILE} are allowed")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
