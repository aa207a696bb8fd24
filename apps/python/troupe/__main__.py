"""The program, as `python -m troupe` and as the script `troupe`."""

import sys

from . import _troupe


def main() -> int:
    return _troupe.main(["troupe", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
