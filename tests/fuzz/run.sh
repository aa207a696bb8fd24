#!/usr/bin/env bash
# tests/fuzz/run.sh [SECONDS [NAME...]]: builds the fuzzers with libFuzzer and the sanitizers (Clang), and runs each for so long
# (default 600). What they learn stays in build/fuzz/corpus; what they find is printed, and is a file in build/fuzz/found.
set -euo pipefail
cd "$(dirname "$0")/../.."
seconds=${1:-600}
shift || true
names=("$@")
[ ${#names[@]} -gt 0 ] || names=(wire control answer meeting greeting codec safetensors experiment order images pictures byte_pairs checkpoint tables keys hosts)
targets=("${names[@]/#/fuzz_}")
cmake --preset fuzz >/dev/null
cmake --build --preset fuzz --target "${targets[@]}"
mkdir -p build/fuzz/found
found=0
for name in "${names[@]}"; do
  corpus=build/fuzz/corpus/$name
  mkdir -p "$corpus"
  echo "== $name"
  # Allocations are bounded where sizes are read: 4 GiB is what a tensor may have, and more than anything here needs.
  if ! TROUPE_CORPUS=$corpus "build/fuzz/tests/fuzz/fuzz_$name" -max_total_time="$seconds" -rss_limit_mb=4096 -malloc_limit_mb=2048 -timeout=20 \
    -print_final_stats=1 -artifact_prefix="build/fuzz/found/$name-" "$corpus" 2>&1 | tail -n 40 | grep -v '^#'; then
    found=$((found + 1))
  fi
done
echo "$((${#names[@]} - found)) passed, $found failed"
[ "$found" -eq 0 ]
