#!/usr/bin/env bash
# Builds and runs the tests of a source file, for the time between an edit and the next:
#
#     tests/dev/test.sh actors/pipeline/stage.cpp              # the tests of a source or of a header
#     tests/dev/test.sh runtime/cluster/channel_test  # a test by its name or its file
#     tests/dev/test.sh --which actors/pipeline/stage.cpp      # only says which these are
#
# The tests of FOLDER/NAME.cpp are tests/FOLDER/NAME_test.cpp; where that is not there, the tests that include its header; where
# there are none, the test of the file that it is a part of (runtime/cluster/lead_start.cpp: runtime/cluster/lead_test), or those
# of its folder that name it. They are built in build/dev (the preset dev; TROUPE_PRESET names another), of which a first build
# takes minutes.
set -euo pipefail
cd "$(dirname "$0")/../.."

# tests_of FILE|TEST: the names of its tests, a line each.
tests_of() {
  python3 - "$1" <<'PY'
import re, sys
from pathlib import Path

wanted = Path(sys.argv[1].removeprefix("./"))
if wanted.is_absolute():
    wanted = wanted.relative_to(Path.cwd())
tests = {path.relative_to("tests").with_suffix("") for path in Path("tests").rglob("*_test.cpp")}

def parts_of(path):
    """stage_return, stage; then the folder that it lies in."""
    words = path.stem.split("_")
    return [path.with_name("_".join(words[:count])) for count in range(len(words) - 1, 0, -1)] + [path.parent]

def of_source(path):
    bare = path.with_suffix("")
    own = bare.with_name(bare.name + "_test")
    if own in tests:
        return [own]
    include = f'#include "{bare}.hpp"'
    including = sorted(test for test in tests if include in (Path("tests") / test).with_suffix(".cpp").read_text())
    if including:
        return including
    near = [test for part in parts_of(bare) if (test := part.with_name(part.name + "_test")) in tests]
    named = sorted(test for test in tests if test.name == bare.name + "_test" and test.parts[0] == bare.parts[0])
    if near or named:
        return near[:1] or named
    folder = Path("tests", *bare.parts[:-1])
    while folder.name not in ("tests", "") and not (folder.is_dir() and list(folder.glob("*_test.cpp"))):
        folder = folder.parent
    word = re.compile(rf"\b{bare.name}\b")
    return sorted(test for test in tests if Path("tests") / test.parent == folder and word.search((Path("tests") / test).with_suffix(".cpp").read_text()))

bare = wanted.with_suffix("") if wanted.suffix == ".cpp" else wanted
if bare.parts[0] == "tests":
    bare = bare.relative_to("tests")
is_source = wanted.exists() and wanted.suffix in (".cpp", ".hpp")
found = [bare] if bare in tests else of_source(wanted) if is_source else []
if not found:
    sys.exit(f"tests/dev/test.sh: no test is known of {wanted}; say which: tests/dev/test.sh FOLDER/NAME_test")
if len(found) > 4:
    print("tests/dev/test.sh: four of", *found, file=sys.stderr)
print(*found[:4], sep="\n")
PY
}

which=
if [ "${1:-}" = --which ]; then
  which=yes
  shift
fi
[ $# -gt 0 ] || { sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 2; }
names=()
for file in "$@"; do
  found=$(tests_of "$file")
  mapfile -t more <<<"$found"
  names+=("${more[@]}")
done
if [ -n "$which" ]; then
  printf '%s\n' "${names[@]}"
  exit
fi

preset=${TROUPE_PRESET:-dev}
[ -f "build/$preset/build.ninja" ] || cmake --preset "$preset"
pattern="^($(IFS='|'; echo "${names[*]}"))\$"
# The program of a test is called after its file, or after its folder where tests share one.
found=$(ctest --preset "$preset" -R "$pattern" --show-only=json-v1 | python3 -c '
import json, subprocess, sys
listed = subprocess.run(["ninja", "-C", sys.argv[1], "-t", "targets", "all"], capture_output=True, text=True, check=True).stdout
targets = {line.split(":")[0] for line in listed.splitlines()}
for test in json.load(sys.stdin)["tests"]:
    labels = next((p["value"] for p in test.get("properties", []) if p["name"] == "LABELS"), [])
    own = test["name"].replace("/", "_")
    shared = test["name"].split("/")[0] + ("_slow_tests" if "slow" in labels else "_tests")
    print(own if own in targets else shared)' "build/$preset" | sort -u)
mapfile -t programs <<<"$found"
cmake --build --preset "$preset" --target "${programs[@]}"
ctest --preset "$preset" -R "$pattern"
