#!/usr/bin/env python3
"""The checker of pages finds commands that fail, output that differs and settings that are illegal, and nothing else."""

import subprocess
import sys
import tempfile
from pathlib import Path

CHECKER = Path(__file__).with_name("check_docs.py")

# Instead of troupe: says what it is asked to, fails where it is asked to.
PROGRAM = """#!/bin/sh
case "$1 $*" in
*nonsense*) echo "no such key"; exit 2;;
config*) echo "model {"; echo "stop {";;
say*) shift; printf '%s\\n' "$@";;
make*) touch "$2";;
need*) [ -f "$2" ];;
esac
"""

# A page, and what is said of it; "": nothing.
CASES = [
    ("    troupe say first\n", ""),
    ("    troupe nonsense\n", "p.md:1: troupe nonsense: exit code 2: no such key"),
    ("a\n\n    troupe make a  # a comment\n    troupe need a\n", ""),
    ("a\n\n    troupe need a\n", "p.md:3: troupe need a: exit code 1"),
    ("```\n$ troupe say \\\n    'in 3.5 s' b\nin 7 ms\nb\n```\n", ""),
    ("```\n$ troupe say b a\na\nb\n```\n", 'p.md:2: troupe say b a: does not say "b"'),
    ("    troupe say '5 updates in 2 s'\n\n    4 updates in 2 s\n", 'does not say "4 updates in 2 s"'),
    ("    troupe say '5 updates in 2 s'\n\n    5 updates in 9 s\n", ""),
    ("    troupe say a\n\nText between.\n\n    b\n", ""),
    ("```\n# a.textproto\nmodel {}\n```\n\n    troupe need a.textproto\n", ""),
    ("```\n# a.py\nprint(2)\n```\n\n    python3 a.py\n\n    3 updates\n", "does not say \"3 updates\""),
    ("It is `troupe nonsense a\nb` that\n", "p.md:1: troupe nonsense a b: exit code 2"),
    ("It is `troupe say FILE nonsense` here.\n", ""),
    ("`--set stop.nonsense=2` here.\n", "exit code 2"),
    ("`stop.nonsense=2` here.\n", "exit code 2"),
    ("`stop.updates=2`, `other.nonsense=2`\n", ""),
    ("# On it\n\n[a](p.md), [b](#on-it), [c](p.md#on-it), [d](https://nowhere), `[e](code)`\n", ""),
    ("[a](q.md)\n", "p.md:1: the link q.md leads nowhere"),
    ("# On it\n\n[a](p.md#off)\n", "p.md:3: the link p.md#off leads nowhere"),
]


def main():
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "program")
        program.write_text(PROGRAM)
        program.chmod(0o755)
        for number, (page, due) in enumerate(CASES):
            root = Path(folder, str(number))
            root.mkdir()
            Path(root, "p.md").write_text(page)
            done = subprocess.run([sys.executable, str(CHECKER), str(program), "--root", str(root)], capture_output=True, text=True)
            right = done.returncode == (1 if due else 0) and due in done.stdout
            if not right:
                failures += 1
                print(f"{page!r}: due is {due!r}, said {done.stdout}{done.stderr}")
    print(f"{len(CASES)} pages, {failures} misjudged")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
