#!/usr/bin/env bash
# Which share of each folder's lines the tests run: builds the preset `coverage` with Clang, runs the tests, and prints a table.
#
#     tests/dev/coverage.sh                    # all but the slow tests: an hour on two cores
#     tests/dev/coverage.sh kernels messages   # the tests of these folders of tests/ alone
#
# build/coverage/lines then has each line with how often it was run. A process that is killed counts nothing.
set -euo pipefail
cd "$(dirname "$0")/../.."
. apps/setup.sh
troupe_install "${troupe_packages[@]}" "${troupe_test_packages[@]}" clang-19 libclang-rt-19-dev llvm-19
[ -f build/coverage/build.ninja ] || cmake --preset coverage
profiles=build/coverage/profiles
rm -rf "$profiles"
# Processes of a program add to one file.
export LLVM_PROFILE_FILE=$PWD/$profiles/%4m.profraw
if [ $# -gt 0 ]; then
  cmake --build --preset coverage --target "${@/%/_tests}"
  ctest --preset coverage --parallel "$(nproc)" -R "^($(IFS='|'; echo "$*"))/" || echo "tests/dev/coverage.sh: some tests failed" >&2
else
  cmake --build --preset coverage
  ctest --preset coverage --parallel "$(nproc)" || echo "tests/dev/coverage.sh: some tests failed" >&2
fi

llvm-profdata-19 merge -o build/coverage/all.profdata "$profiles"/*.profraw
objects=()
for program in build/coverage/troupe build/coverage/tests/*/*_tests; do
  [ ! -x "$program" ] || objects+=(-object "$program")
done
shown=(-instr-profile build/coverage/all.profdata "${objects[@]}" -ignore-filename-regex '(/build/|/tests/|^/usr/)')
llvm-cov-19 show "${shown[@]}" -format=text -output-dir build/coverage/lines >/dev/null
llvm-cov-19 export "${shown[@]}" -summary-only | python3 -c '
import collections, json, os, sys
lines = collections.defaultdict(lambda: [0, 0])
for file in json.load(sys.stdin)["data"][0]["files"]:
    folder = os.path.dirname(os.path.relpath(file["filename"]))
    parts = folder.split("/")
    for name in {parts[0] + "/", folder + "/"}:
        lines[name][0] += file["summary"]["lines"]["covered"]
        lines[name][1] += file["summary"]["lines"]["count"]
print(f"{'"'"'folder'"'"':36}{'"'"'lines'"'"':>8}{'"'"'run'"'"':>9}")
for name, (covered, count) in sorted(lines.items()):
    print(f"{name:36}{count:8}{100 * covered / max(count, 1):7.1f} %")'
