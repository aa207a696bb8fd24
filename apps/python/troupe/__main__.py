"""The program, as `python -m troupe` and as the script `troupe`. It takes `--import MODULE`, for schemes, data and networks in Python."""

import signal
import sys
import tempfile
from pathlib import Path

from . import _shared, _troupe


def main() -> int:
    split = [part for word in sys.argv[1:]
             for part in (word.split("=", 1) if word.startswith(("--processes=", "--program=", "--import=", "--listen=")) else [word])]
    modules = []
    while "--import" in split:
        at = split.index("--import")
        if at + 1 == len(split):
            print("troupe: --import: name a module", file=sys.stderr)
            return 2
        modules.append(split[at + 1])
        del split[at:at + 2]
    if modules:
        sys.path.insert(0, "")
    prepare = None
    if split[:1] == ["node"] and "--listen" in split:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        # In the process of each run, anew: what a module does as it is imported may not bear that a process becomes two.
        prepare = modules and (lambda: _shared.load(modules))
    else:
        try:
            _shared.load(modules)
        except Exception as error:
            print(f"troupe: --import: {type(error).__name__}: {error}", file=sys.stderr)
            return 2
    processes = split[split.index("--processes") + 1:][:1] if split[:1] == ["run"] and "--processes" in split else []
    if processes in ([], ["1"]) or "--program" in split:
        return _troupe.main(["troupe", *split], prepare or None)
    with tempfile.TemporaryDirectory(prefix="troupe-") as folder:  # of this one the others would be a Python without a script
        return _troupe.main(["troupe", *split, "--program", _shared.program(Path(folder), modules)], None)


if __name__ == "__main__":
    sys.exit(main())
