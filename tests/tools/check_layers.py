#!/usr/bin/env python3
"""Who may include whom, and no type defined twice: exit status 1 lists each offence as file:line with the reason.

The tables are the architecture. To change the architecture, change a table in the commit that adds the include, and say
why in its message.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[2]

# Folder -> what it may include besides itself. The longest prefix of a path decides.
MAY_INCLUDE = {
    "kernels": {"kernels/functors", "kernels/cpu", "kernels/cuda"},  # dispatch; .hpp files see neither backend
    "kernels/functors": {"kernels"},
    "kernels/cpu": {"kernels", "kernels/functors"},
    "kernels/cuda": {"kernels", "kernels/functors"},
    "messages": {"kernels"},
    "runtime": {"messages", "kernels"},
    # Decisions know papers, the experiment, the stamp and a server's update, but no other message.
    "runtime/schemes": {"messages", "kernels"},
    "actors": {"runtime", "runtime/schemes", "messages", "kernels"},
    "apps": {"actors", "runtime", "runtime/schemes", "messages", "kernels"},
    "tests": None,  # anything
}

# Third-party headers and the only places that may see them; nothing else has third-party headers at all.
ROOMS = [
    (r"caf/", {"runtime/system", "runtime/cluster", "apps", "tests"}),
    (r"(google/protobuf/|.*\.pb\.h$)", {"messages", "runtime", "runtime/schemes", "apps", "tests"}),
    (r"(cuda|cublas|cudnn|nccl|cooperative_groups|nvtx)", {"kernels/cuda", "tests/kernels/device_on_cpu"}),
    (r"(oneapi/|dnnl|omp\.h)", {"kernels/cpu"}),
    (r"curl/", {"runtime/data"}),
    (r"zlib\.h", {"runtime/data", "tests"}),
    (r"archive(_entry)?\.h$", {"runtime/data"}),
    (r"((png|jpeglib|jerror|tiffio)\.h|webp/|stb/)", {"runtime/data", "tests"}),
    (r"openssl/", {"runtime/record", "runtime/cluster", "runtime/serve", "tests"}),
    (r"httplib\.h", {"runtime/serve"}),
    (r"uc[pst]/", {"runtime/cluster"}),
    (r"spdlog/|fmt/", {"runtime/system"}),
    (r"CLI/", {"apps"}),
    (r"prometheus/", {"apps/run"}),
    (r"catch2/", {"tests"}),
    (r"(nanobind/|Python\.h)", {"apps/python"}),
]

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')

# A type at the left edge, and what opens and closes a namespace; the formatter sees to it that they look so.
TYPE = re.compile(r"^(?:template <.*> )?(?:struct|class|union|enum class) (\w+)(?: final)?(?: :.*)?(?: \{.*|)$")
OPENS = re.compile(r"^(?:inline )?namespace(?: ([\w:]+))? \{")
CLOSES = re.compile(r"^\}  // namespace")

SUFFIXES = {".hpp", ".cpp", ".cu", ".cuh"}


def folder_of(path):
    matches = [name for name in MAY_INCLUDE if path.startswith(name + "/")]
    return max(matches, key=len, default=None)


def offence(file, target):
    """Why `file` must not include `target`, or None."""
    source = folder_of(file)
    if source is None:
        return None
    for pattern, rooms in ROOMS:
        if re.match(pattern, target):
            inside = any(file.startswith(room + "/") for room in rooms)
            return None if inside else f"belongs to {', '.join(sorted(rooms))}"
    into = folder_of(target)
    if into is None:
        return None
    allowed = MAY_INCLUDE[source]
    if allowed is None:
        return None
    same = into == source or (source, into) in {("runtime", "runtime/schemes"), ("runtime/schemes", "runtime")}
    if not same and into not in allowed:
        return f"{source} may not include {into}"
    if source == "kernels" and into in {"kernels/cpu", "kernels/cuda"} and file.endswith(".hpp"):
        return "public headers see no backend"
    if source == "runtime/schemes" and into == "messages" and target not in {
        "messages/archive.hpp",
        "messages/stamp.hpp",
        "messages/update.hpp",
        "messages/experiment.hpp",
        "messages/proto.hpp",
        "messages/sections.hpp",
    }:
        return "a scheme sees of the messages only the stamp, the update, the experiment and the archive"
    if source == "runtime/schemes" and into == "runtime":
        return "a scheme stands on no other part of the runtime"
    if target.endswith(".cuh") and not file.endswith((".cu", ".cuh")):
        return "device headers are for device code"
    if not (ROOT / target).exists():
        return "no such file; includes are written from the repository root"
    return None


def files():
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard"], capture_output=True, text=True
    )
    names = listed.stdout.split() if listed.returncode == 0 else [p.relative_to(ROOT).as_posix() for p in ROOT.rglob("*")]
    return sorted(n for n in names if Path(n).suffix in SUFFIXES and not n.startswith("build") and (ROOT / n).exists())


def types(text):
    """(line number, full name) of each type that `text` defines for other files to see: outside of unnamed namespaces."""
    inside = []
    for number, line in enumerate(text.splitlines(), start=1):
        if opened := OPENS.match(line):
            inside.append(opened[1])
        elif CLOSES.match(line):
            inside.pop()
        elif (found := TYPE.match(line)) and None not in inside:
            yield number, "::".join([*inside, found[1]])


def main():
    offences = 0
    defined = {}  # where; of two types of one name the linker takes any one's members, and says nothing
    names = files()
    for name in names:
        for number, line in enumerate((ROOT / name).read_text(encoding="utf-8").splitlines(), start=1):
            match = INCLUDE.match(line)
            reason = match and offence(name, match[2])
            if reason:
                print(f"{name}:{number}: {reason}: {line.strip()}", file=sys.stderr)
                offences += 1
        for number, full in types((ROOT / name).read_text(encoding="utf-8")):
            if full in defined and not name.startswith("tests/package/"):
                print(f"{name}:{number}: {full} is defined in {defined[full]}, too", file=sys.stderr)
                offences += 1
            defined[full] = f"{name}:{number}"
    if not names:
        print("no source files found", file=sys.stderr)
        return 1
    print(f"{len(names)} files, {offences} offences")
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main())
