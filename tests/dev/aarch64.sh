#!/usr/bin/env bash
# Compiles the CPU kernels for aarch64 (NEON) on another machine and lets QEMU run their tests, in build/aarch64:
#
#     tests/dev/aarch64.sh                # all that are there
#     tests/dev/aarch64.sh -R matmul      # whatever else ctest takes
#
# oneDNN and what it needs are Debian's packages for arm64, unpacked into build/aarch64/packages; nothing of them is installed, and
# apt's own state is not touched. Exit status 4, with the reason, where the compiler, QEMU or these packages cannot be had.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$PWD/build/aarch64

skip() {
  echo "tests/dev/aarch64.sh: skipped: $1" >&2
  exit 4
}

for program in aarch64-linux-gnu-g++ qemu-aarch64; do
  command -v $program >/dev/null || skip "there is no $program; install g++-aarch64-linux-gnu and qemu-user"
done

# apt_of_arm64 WORDS...: apt-get as on an empty machine of that kind.
apt_of_arm64() {
  apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o APT::Sandbox::User=root -o Dir::State="$build/apt" \
    -o Dir::State::status="$build/apt/status" -o Dir::Cache="$build/apt/cache" "$@"
}

if [ ! -e "$build/packages/unpacked" ]; then
  mkdir -p "$build"/apt/{lists,cache/archives}/partial "$build/packages"
  touch "$build/apt/status"
  { apt_of_arm64 update && apt_of_arm64 install -y --no-install-recommends --download-only libdnnl-dev; } >"$build/apt/log" 2>&1 ||
    skip "Debian's packages for arm64 cannot be had: $(tail -n 1 "$build/apt/log")"
  for package in "$build"/apt/cache/archives/*.deb; do
    dpkg -x "$package" "$build/packages"
  done
  rm -r "$build/apt"
  touch "$build/packages/unpacked"
fi

cmake --preset aarch64 >"$build/configured" || { cat "$build/configured"; exit 1; }
cmake --build --preset aarch64
ctest --preset aarch64 --parallel "$(nproc)" "$@"
