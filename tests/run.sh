#!/usr/bin/env bash
# From a fresh clone to passed tests: installs what is missing, builds with warnings as errors and runs the tests of the release
# build. Last line: "N passed, N failed". Exit status 1 where anything failed.
#
#     tests/run.sh         # all but those that are labelled slow: some ten minutes on two cores, and the build before it
#     tests/run.sh --all   # what decides whether a change lands: also the slow ones, CUDA where nvcc is found, every header alone,
#                          # and the builds with sanitizers
#
# --require-cuda: fail without nvcc.
set -uo pipefail
cd "$(dirname "$0")/.."
. apps/setup.sh
all= require_cuda=
for argument in "$@"; do
  case "$argument" in
  --all) all=yes ;;
  --require-cuda) require_cuda=yes ;;
  *)
    echo "tests/run.sh: $argument is neither --all nor --require-cuda" >&2
    exit 2
    ;;
  esac
done
troupe_install "${troupe_packages[@]}" "${troupe_test_packages[@]}" || exit 2
optional=(lld "${troupe_optional_packages[@]}")
sanitizer_compiler=
if [ -n "$all" ]; then
  optional=("${troupe_optional_test_packages[@]}" "${troupe_optional_packages[@]}")
fi
troupe_install "${optional[@]}" || echo "tests/run.sh: going on without some of ${optional[*]}" >&2
if command -v clang++-19 >/dev/null; then
  sanitizer_compiler=clang++-19
elif [ -n "$all" ]; then
  echo "tests/run.sh: going on without clang-19: the sanitizer builds are made by the default compiler" >&2
fi
troupe_find_cuda
if [ -n "$require_cuda" ] && ! command -v nvcc >/dev/null; then
  echo "tests/run.sh: nvcc is not on PATH and was required" >&2
  exit 1
fi
cuda=$(troupe_cuda ${all:+--cuda} ${require_cuda:+--cuda})

passed=0 failed=0 skipped=0 failures=()

# step NAME COMMAND...: a step that is no ctest counts as one test.
step() {
  local name=$1
  shift
  echo "== $name"
  if "$@"; then
    passed=$((passed + 1))
    return 0
  fi
  failed=$((failed + 1)) failures+=("$name")
  echo "== $name FAILED" >&2
  return 1
}

# run_tests PRESET CTEST-ARGUMENTS...: adds ctest's own counts.
run_tests() {
  local preset=$1
  shift
  echo "== tests of $preset"
  # One more than there are cores: some tests wait, for servers, files or clocks.
  ctest --preset "$preset" --parallel "$(($(nproc) + 1))" --output-junit results.xml "$@"
  local counts
  if ! counts=$(python3 - "build/$preset/results.xml" <<'PY'
import sys, xml.etree.ElementTree as tree
cases = tree.parse(sys.argv[1]).getroot().findall("testcase")
count = lambda status: sum(case.get("status") == status for case in cases)
skipped = count("notrun") + count("disabled")
print(count("run"), len(cases) - count("run") - skipped, skipped)
print(*[case.get("name") for case in cases if case.get("status") not in ("run", "notrun", "disabled")])
PY
  ); then
    failed=$((failed + 1)) failures+=("tests of $preset")
    return
  fi
  set -- $counts
  passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3))
  shift 3
  failures+=("${@/#/$preset: }")
}

# configure_and_build PRESET [COMPILER] -- BUILD-ARGUMENTS...
configure_and_build() {
  local preset=$1 settings=("-DCMAKE_CUDA_ARCHITECTURES=90")
  # With the tests of a GPU that the CPU plays, as in the preset emulated.
  [ "$preset" != release ] || settings+=("-DTROUPE_CUDA=$cuda" -DTROUPE_EMULATED=ON)
  shift
  [ "$1" = -- ] || { settings+=("-DCMAKE_CXX_COMPILER=$1"); shift; }
  shift
  cmake --preset "$preset" "${settings[@]}" >"build-$preset.log" 2>&1 || { cat "build-$preset.log"; rm -f "build-$preset.log"; return 1; }
  rm -f "build-$preset.log"
  cmake --build --preset "$preset" "$@"
}

if step "build release" configure_and_build release --; then
  if [ -n "$all" ]; then
    run_tests release
  else
    run_tests release --label-exclude slow
  fi
fi
if [ -n "$all" ]; then
  if command -v clang-tidy-19 >/dev/null; then
    # Ten seconds a compilation; the whole tree takes 12 minutes on two cores.
    step "clang-tidy of what the last commit has changed" python3 tests/tools/tidy.py build/release --changed --at-most 20
  fi
  step "headers alone" cmake --build --preset release --target headers
  if step "build asan" configure_and_build asan $sanitizer_compiler --; then
    run_tests asan
  fi
  # CAF is not instrumented, so only what shares memory without it is looked at for races.
  if step "build tsan" configure_and_build tsan $sanitizer_compiler -- --target tsan_tests; then
    run_tests tsan
  fi
  echo "== kernels for aarch64"
  tests/dev/aarch64.sh
  case $? in
  0) passed=$((passed + 1)) ;;
  4) skipped=$((skipped + 1)) ;;
  *) failed=$((failed + 1)) failures+=("kernels for aarch64") ;;
  esac
fi

[ "$skipped" -eq 0 ] || echo "$skipped skipped (each says what it lacks)"
[ "$failed" -eq 0 ] || printf 'failed: %s\n' "${failures[@]}"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
