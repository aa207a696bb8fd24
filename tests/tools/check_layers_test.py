#!/usr/bin/env python3
"""The layer checker finds what is planted and nothing else."""

import subprocess
import sys
import tempfile
from pathlib import Path

CHECKER = Path(__file__).with_name("check_layers.py")

CASES = [
    ("kernels/a.hpp", '#include "actors/pipeline/stage.hpp"', "kernels may not include actors"),
    ("kernels/a.hpp", '#include "kernels/cpu/backend.hpp"', "public headers see no backend"),
    ("kernels/cpu/a.cpp", '#include "kernels/cuda/check.hpp"', "kernels/cpu may not include kernels/cuda"),
    ("messages/a.hpp", '#include "runtime/system/machine.hpp"', "messages may not include runtime"),
    ("runtime/schemes/a.hpp", '#include "messages/messages.hpp"', "only the stamp, the update, the experiment and the archive"),
    ("runtime/model/a.hpp", "#include <caf/all.hpp>", "belongs to"),
    ("actors/a.cpp", "#include <spdlog/spdlog.h>", "belongs to"),
    ("actors/a.cpp", '#include "actors/no_such_file.hpp"', "no such file"),
    ("kernels/a.cpp", "#include <cuda_runtime.h>", "belongs to"),
]


def run(root):
    return subprocess.run([sys.executable, str(CHECKER), str(root)], capture_output=True, text=True)


def main():
    failures = 0
    for name, line, reason in CASES:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            for existing in ("kernels/cpu/backend.hpp", "kernels/cuda/check.hpp", "runtime/system/machine.hpp",
                             "messages/messages.hpp", "actors/pipeline/stage.hpp", name):
                path = root / existing
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(line + "\n" if existing == name else "#include <vector>\n")
            result = run(root)
            if result.returncode != 1 or reason not in result.stderr or f"{name}:1" not in result.stderr:
                print(f"planted {line} in {name}: not found:\n{result.stderr}", file=sys.stderr)
                failures += 1
            (root / name).write_text("#include <vector>\n")
            if run(root).returncode != 0:
                print(f"a clean tree is refused:\n{run(root).stderr}", file=sys.stderr)
                failures += 1
    return 1 if failures + twice() else 0


def twice():
    """Two types of one name are found, not those that only their own file sees."""
    failures = 0
    for text, refused in [
        ("namespace troupe {\nstruct Same {\n}  // namespace troupe\n", True),
        ("namespace troupe {\nclass Same final : public Other {\n}  // namespace troupe\n", True),
        ("namespace troupe {\nclass Same;\n}  // namespace troupe\n", False),
        ("namespace troupe {\nnamespace {\nstruct Same {\n}  // namespace\n}  // namespace troupe\n", False),
        ("namespace troupe::other {\nstruct Same {\n}  // namespace troupe::other\n", False),
    ]:
        with tempfile.TemporaryDirectory() as folder:
            for name in ("actors/a.hpp", "apps/b.hpp"):
                (Path(folder) / name).parent.mkdir()
                (Path(folder) / name).write_text(text if name.startswith("apps") else "namespace troupe {\nstruct Same {\n}  // namespace troupe\n")
            result = run(Path(folder))
            if (result.returncode != 0) != refused or ("apps/b.hpp:2: troupe::Same is defined in actors/a.hpp:2, too" in result.stderr) != refused:
                print(f"two types of one name, {text!r}: {result.stderr or 'not found'}", file=sys.stderr)
                failures += 1
    return failures


if __name__ == "__main__":
    sys.exit(main())
