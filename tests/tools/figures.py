#!/usr/bin/env python3
"""What the code is like in numbers: figures.py [--keys] [ROOT ...]. Each ROOT is a tree; two are printed beside each other.

Lines of the product by folder, functions, long files, classes with many members, flags in actors, kinds of messages, and
how many sources are compiled again by a change. The last are counted along the includes, source by source: a build with
unity files compiles their neighbours, too. A key of the experiment changes the header of its section, which
experiment.pb.h includes; the row tells the median and the largest of the sections. With --keys each section is told by itself,
and exit status 1 says that a key of one compiles more sources of the program than MOST_FOR_A_KEY.
"""

import re
import statistics
import sys
from functools import lru_cache
from pathlib import Path

from function_lengths import blanked, closing, functions

PRODUCT = ["messages", "kernels", "runtime", "actors", "apps"]
ENDINGS = {".cpp", ".hpp", ".cu", ".cuh", ".proto"}
SOURCES = {".cpp", ".cu"}
LONG_FILE = 300
MANY_MEMBERS = 15
MOST_FOR_A_KEY = 99
PARTS_OF_SECTIONS = ("custom", "options")  # they have no keys of their own
CLASS = re.compile(r"\b(?:class|struct)\s+(\w+)[^;(){}]*\{")
MEMBER = re.compile(r"\b[a-z]\w*_(?:\s*=[^;]*|\{[^;]*\})?;")
FLAG = re.compile(r"^\s*bool\s+\w+(?:\s*=[^;(]*|\{[^;(]*\})?;", re.M)
INCLUDE = re.compile(r'^#include "([^"]+)"', re.M)


def own_text(body):
    """The text of a class without what stands in braces within it."""
    text, i = [], 0
    while i < len(body):
        if body[i] == "{":
            i = closing(body, i)
        else:
            text.append(body[i])
        i += 1
    return "".join(text)


class Tree:
    def __init__(self, root):
        self.root = Path(root).resolve()
        self.texts = {}
        for folder in [*PRODUCT, "tests"]:
            for path in sorted((self.root / folder).rglob("*")):
                if path.suffix in ENDINGS and path.is_file():
                    self.texts[path.relative_to(self.root).as_posix()] = path.read_text()

    def product(self, *endings):
        return {f: t for f, t in self.texts.items() if not f.startswith("tests/") and (not endings or f.endswith(endings))}

    @lru_cache(maxsize=None)
    def includes(self, file):
        """What `file` includes by name. A generated header stands for the one of its .proto, and includes those of its imports."""
        if file.endswith(".pb.h"):
            text = self.texts.get("messages/" + file.replace(".pb.h", ".proto"), "")
            return [name.replace(".proto", ".pb.h") for name in re.findall(r'^import "([^"]+)"', text, re.M)]
        return INCLUDE.findall(self.texts.get(file, ""))

    @lru_cache(maxsize=None)
    def reached(self, file):
        found, open_ = set(), [file]
        while open_:
            for name in self.includes(open_.pop()):
                if name not in found:
                    found.add(name)
                    open_.append(name)
        return found

    def compiled_for(self, changed, tests=False):
        return sum(changed in self.reached(f) for f in self.texts if Path(f).suffix in SOURCES and f.startswith("tests/") == tests)

    def sections(self):
        names = (Path(f).stem for f in self.texts if f.startswith("messages/experiment/") and f.endswith(".proto"))
        return [f"experiment/{name}.pb.h" for name in names if name not in PARTS_OF_SECTIONS]

    def rows(self):
        counted = {folder: sum(t.count("\n") for f, t in self.texts.items() if f.startswith(folder + "/")) for folder in PRODUCT}
        yield from ((f"lines of {folder}", n) for folder, n in counted.items())
        yield "lines of the product", sum(counted.values())
        lengths = sorted(entry[2] for t in self.product(".cpp", ".hpp").values() for entry in functions(t))
        yield "functions: median, 90th in 100, longest", f"{statistics.median(lengths):g} {lengths[len(lengths) * 9 // 10]} {lengths[-1]}"
        yield f"files of more than {LONG_FILE} lines", sum(t.count("\n") > LONG_FILE for t in self.product().values())
        bodies = []
        for text in map(blanked, self.product(".cpp", ".hpp").values()):
            bodies += [text[found.end() : closing(text, found.end() - 1)] for found in CLASS.finditer(text)]
        yield f"classes of more than {MANY_MEMBERS} members", sum(len(MEMBER.findall(own_text(b))) > MANY_MEMBERS for b in bodies)
        actors = {f: t for f, t in self.texts.items() if f.startswith("actors/") and f.endswith(".hpp")}
        yield "flags that actors have", sum(len(FLAG.findall(t)) for t in actors.values())
        kinds = re.search(r"Kinds = List<(.*?)>;", self.texts["messages/message.hpp"], re.S)
        yield "kinds of messages", kinds.group(1).count(",") + 1
        keys = sorted(self.compiled_for(section) for section in self.sections())
        yield "sources compiled for a key: median, most", f"{statistics.median(keys):g} {keys[-1]}" if keys else self.compiled_for("experiment.pb.h")
        keys = sorted(self.compiled_for(section, tests=True) for section in self.sections())
        yield "... and tests", f"{statistics.median(keys):g} {keys[-1]}" if keys else self.compiled_for("experiment.pb.h", tests=True)


def tell_keys(tree):
    most = 0
    for section in tree.sections():
        counted = tree.compiled_for(section)
        most = max(most, counted)
        print(f"{section:30} {counted:4} sources {tree.compiled_for(section, tests=True):4} tests")
    if most > MOST_FOR_A_KEY:
        print(f"{MOST_FOR_A_KEY} sources are the most: who reads one section includes that alone (messages/sections.hpp)")
    return most > MOST_FOR_A_KEY


def main():
    if sys.argv[1:2] == ["--keys"]:
        return any([tell_keys(Tree(root)) for root in sys.argv[2:] or [Path(__file__).parents[2]]])
    columns = [list(Tree(root).rows()) for root in sys.argv[1:] or [Path(__file__).parents[2]]]
    for row in zip(*columns):
        print(f"{row[0][0]:45}", *(f"{str(value):>12}" for _, value in row))
    return 0


if __name__ == "__main__":
    sys.exit(main())
