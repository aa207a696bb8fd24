#!/usr/bin/env bash
# From a fresh clone to passed tests: installs what is missing, builds with warnings as errors (CPU, and CUDA where nvcc is
# found), runs every test, then those of the sanitizer builds. Last line: "N passed, N failed". Exit status 1 where
# anything failed. --require-cuda: fail without nvcc.
set -uo pipefail
cd "$(dirname "$0")/.."
. apps/setup.sh
troupe_install "${troupe_packages[@]}" catch2 clang-format-14 python3 || exit 2
optional=(lld "${troupe_optional_packages[@]}")  # lld: links the tests in a fifth of the time
troupe_install "${optional[@]}" || echo "tests/run.sh: going on without ${optional[*]}" >&2
# Clang compiles sanitized code in half of GCC's time, and is the second compiler that everything must pass.
clang=19
if troupe_install "clang-$clang" "libclang-rt-$clang-dev" "llvm-$clang"; then
  sanitizer_compiler=clang++-$clang
else
  echo "tests/run.sh: going on without clang-$clang: the sanitizer builds are made by the default compiler" >&2
  sanitizer_compiler=
fi
troupe_find_cuda
if [ "${1:-}" = --require-cuda ] && ! command -v nvcc >/dev/null; then
  echo "tests/run.sh: nvcc is not on PATH and was required" >&2
  exit 1
fi

passed=0 failed=0 skipped=0

# step NAME COMMAND...: a step that is no ctest counts as one test.
step() {
  local name=$1
  shift
  echo "== $name"
  if "$@"; then
    passed=$((passed + 1))
    return 0
  fi
  failed=$((failed + 1))
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
PY
  ); then
    failed=$((failed + 1))
    return
  fi
  set -- $counts
  passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3))
}

# configure_and_build PRESET [COMPILER] -- BUILD-ARGUMENTS...
configure_and_build() {
  local preset=$1 settings=("-DCMAKE_CUDA_ARCHITECTURES=80;90")
  shift
  [ "$preset" != release ] || settings+=(-DTROUPE_CUDA=AUTO)  # apps/start.sh may have left it OFF
  [ "$1" = -- ] || { settings+=("-DCMAKE_CXX_COMPILER=$1"); shift; }
  shift
  cmake --preset "$preset" "${settings[@]}" >"build-$preset.log" 2>&1 || { cat "build-$preset.log"; rm -f "build-$preset.log"; return 1; }
  rm -f "build-$preset.log"
  cmake --build --preset "$preset" "$@"
}

if step "build release" configure_and_build release --; then
  run_tests release
fi
if step "build asan" configure_and_build asan $sanitizer_compiler --; then
  run_tests asan
fi
# CAF is not instrumented, so only what shares memory without it is looked at for races.
if step "build tsan" configure_and_build tsan $sanitizer_compiler -- --target tsan_tests; then
  run_tests tsan
fi

[ "$skipped" -eq 0 ] || echo "$skipped skipped (each says what it lacks)"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
