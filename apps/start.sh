#!/usr/bin/env bash
# From a fresh clone to a trained network: installs what is missing, builds, and trains the default experiment on built-in data.
# Whatever is given is passed on: apps/start.sh sim glyphs-mlp --set pipeline.weights=stash
set -euo pipefail
cd "$(dirname "$0")/.."
. apps/setup.sh
troupe_install "${troupe_packages[@]}"
troupe_install "${troupe_optional_packages[@]}" || echo "apps/start.sh: going on without ${troupe_optional_packages[*]}" >&2
troupe_find_cuda
[ -f build/release/build.ninja ] || cmake --preset release
cmake --build --preset release --target troupe
[ $# -gt 0 ] || set -- run
exec build/release/troupe "$@"
