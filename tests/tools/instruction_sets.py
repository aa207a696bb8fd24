#!/usr/bin/env python3
"""That what is compiled for more than x86-64 stays in the CPU kernels: instruction_sets.py PROGRAM SET OBJECT... [SET OBJECT...]

The kernels are compiled once for each instruction set SET, `v3` and `v4`, into the namespace troupe::cpu::SET. Of a function that
is inline in a header the linker keeps one copy for the whole program; had it come from those objects, the program would die on a
processor that lacks the instructions. So their objects define nothing outside of their namespace that a linker may share, and
nothing that runs before main(). And in PROGRAM no other function has an instruction that x86-64 has not. Exit status 4: binutils
is not installed.
"""

import re
import shutil
import subprocess
import sys

SHARED = re.compile(r"^(\S+) ([TDBRWVu]) ")  # of nm: a symbol that is defined, and that other objects see
HARMLESS = re.compile(r"^DW\.ref\.")  # an address
MINE = re.compile(r"\btroupe::(cpu::v[34]|codes)::")
FUNCTION = re.compile(r"^[0-9a-f]+ <(.*)>:$")
BEYOND = re.compile(r"^\s*[0-9a-f]+:\s+(v(?!err|erw)[a-z0-9]+|[a-z]+x(?<=shlx|sarx|shrx|rorx|mulx)|andn|bzhi|bextr|pdep|pext|bls(?:r|i|msk)|"
                    r"lzcnt|movbe)\b")


def output(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True, errors="replace").stdout


def leaks(instruction_set, file):
    """What `file` would share with objects that are not for `instruction_set`."""
    own = f"troupe::cpu::{instruction_set}::"
    for line in output("nm", "--format=posix", file).splitlines():
        found = SHARED.match(line)
        name = output("c++filt", found[1]).strip() if found else ""
        if found and own not in name and not HARMLESS.match(name):
            yield f"{file} shares {name}"
    if re.search(r"\.(init_array|ctors)", output("objdump", "-h", file)):
        yield f"{file} runs something before main()"


def strays(program):
    """Functions of `program` with instructions that not every x86-64 has."""
    function, found = "", {}
    for line in output("objdump", "-d", "-C", "--no-show-raw-insn", program).splitlines():
        head = FUNCTION.match(line)
        if head:
            function = head[1]
        elif not MINE.search(function) and (beyond := BEYOND.match(line)):
            found.setdefault(function, beyond[1])
    return [f"{program}: {name} has the instruction {word}" for name, word in found.items()]


def main():
    if not all(map(shutil.which, ("nm", "objdump", "c++filt"))):
        sys.exit(4)
    program, *words = sys.argv[1:]
    found, instruction_set, objects = strays(program), "", 0
    for word in words:
        if word in ("v3", "v4"):
            instruction_set = word
        else:
            objects += 1
            found += leaks(instruction_set, word)
    if objects == 0:
        found.append("no objects were named")
    print("\n".join(found) if found else f"{objects} objects share nothing but their own")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
