#!/usr/bin/env bash
# From a fresh clone to a trained network: installs what is missing, builds, and trains the default experiment on built-in data.
# Whatever is given is passed on: apps/start.sh sim glyphs-mlp --set pipeline.weights=stash
# The CUDA code is compiled where nvcc and a GPU are found. apps/start.sh --cuda ...: also without a GPU.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "${1:-}" = --help ]; then
  sed -n '2,4s/^# //p' apps/start.sh
  exit
fi
cuda=
if [ "${1:-}" = --cuda ]; then
  cuda=ON
  shift
fi
. apps/setup.sh
troupe_install "${troupe_packages[@]}"
troupe_install "${troupe_optional_packages[@]}" || echo "apps/start.sh: going on without ${troupe_optional_packages[*]}" >&2
troupe_find_cuda
# A build that is there stays as it was configured, unless somebody asks for CUDA that it does not have.
if [ ! -f build/release/build.ninja ] || { [ -n "$cuda" ] && grep -q '^TROUPE_CUDA:.*=OFF$' build/release/CMakeCache.txt; }; then
  cmake --preset release "-DTROUPE_CUDA=${cuda:-$(troupe_cuda)}"
fi
cmake --build --preset release --target troupe
[ $# -gt 0 ] || set -- run
exec build/release/troupe "$@"
