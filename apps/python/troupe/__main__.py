"""The program, as `python -m troupe` and as the script `troupe`."""

import sys
import tempfile
from pathlib import Path

from . import _troupe
from .runs import program


def main() -> int:
    words = sys.argv[1:]
    split = [part for word in words for part in (word.split("=", 1) if word.startswith(("--processes=", "--program=")) else [word])]
    processes = split[split.index("--processes") + 1:][:1] if words[:1] == ["run"] and "--processes" in split else []
    with tempfile.TemporaryDirectory(prefix="troupe-") as folder:
        if processes not in ([], ["1"]) and "--program" not in split:  # of this one the others would be a Python without a script
            words += ["--program", program(Path(folder))]
        return _troupe.main(["troupe", *words])


if __name__ == "__main__":
    sys.exit(main())
