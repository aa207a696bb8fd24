#!/usr/bin/env bash
# From a fresh clone to a trained network: installs what is missing, builds, and trains the default experiment on built-in data.
# Whatever is given is passed on: apps/start.sh sim glyphs-mlp --set pipeline.weights=stash
# --cuda, in front of it: compile the CUDA kernels, too, which is done by itself only on a machine with a GPU; needs nvcc.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "${1:-}" = --help ]; then
  sed -n '2,4s/^# //p' apps/start.sh
  exit
fi
cuda=OFF
if [ "${1:-}" = --cuda ]; then
  cuda=ON
  shift
elif [ -e /dev/nvidia0 ] || nvidia-smi >/dev/null 2>&1; then
  cuda=AUTO
fi
. apps/setup.sh
troupe_install "${troupe_packages[@]}"
troupe_install "${troupe_optional_packages[@]}" || echo "apps/start.sh: going on without ${troupe_optional_packages[*]}" >&2
troupe_find_cuda
if [ ! -f build/release/build.ninja ] || { [ $cuda = ON ] && grep -q '^TROUPE_CUDA:.*=OFF$' build/release/CMakeCache.txt; }; then
  cmake --preset release -DTROUPE_CUDA=$cuda
fi
cmake --build --preset release --target troupe
[ $# -gt 0 ] || set -- run
exec build/release/troupe "$@"
