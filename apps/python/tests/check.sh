#!/usr/bin/env bash
# check.sh BUILD PYTHON [SANITIZERS]: builds the extension against what a build installs, and runs the tests of the package. What they need of
# PyPI is in a virtual environment in the user's cache, which other builds find again (5 GB with PyTorch), or where TROUPE_PYTHON_VENV
# says; exit status 4 (skipped) where it cannot be had. PyTorch is installed there where TROUPE_PYTHON_TORCH=yes asks for it.
# SANITIZERS (address,undefined): the extension is compiled with them, by GCC, and the interpreter loads their runtime before all else.
set -euo pipefail
build=$(realpath "$1")
python=$2
sanitizers=${3:-}
here=$(cd "$(dirname "$0")/.." && pwd)
work=$build/python
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
venv=${TROUPE_PYTHON_VENV:-${XDG_CACHE_HOME:-$HOME/.cache}/troupe/python-$version}
mkdir -p "$work" "$(dirname "$venv")"

skip() {
  echo "skipped: $1"
  exit 4
}

# have PACKAGE...
have() { [ -x "$venv/bin/pip" ] && "$venv/bin/pip" show --quiet "$@" >/dev/null 2>&1; }

"$python" -c 'import sysconfig, pathlib; exit(not (pathlib.Path(sysconfig.get_paths()["include"]) / "Python.h").exists())' ||
  skip "$python has no headers (python3-dev)"
exec 9>"$venv.lock"
flock 9  # one installs, others wait
if ! have nanobind numpy pandas pytest; then
  "$python" -m venv "$venv" || skip "$python makes no virtual environment (python3-venv)"
  "$venv/bin/pip" install --quiet "nanobind>=2.5" numpy pandas pytest || skip "PyPI does not answer"
fi
more=(matplotlib ipykernel nbclient mypy datasets)
have "${more[@]}" || "$venv/bin/pip" install --quiet "${more[@]}" || echo "PyPI does not answer: what needs ${more[*]} is not tested"
if ! have torch torchvision; then
  { [ "${TROUPE_PYTHON_TORCH:-}" = yes ] && "$venv/bin/pip" install --quiet torch torchvision; } || have torch ||
    echo "there is no PyTorch (TROUPE_PYTHON_TORCH=yes installs it); networks are not tested"
fi
flock -u 9

cmake --install "$build" --prefix "$work/prefix" >/dev/null
common=(-G Ninja -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_BUILD_TYPE=Release)
extension=$work/extension${sanitizers:+-sanitized}
first=()  # what is set for the interpreter
sanitized=()
if [ -n "$sanitizers" ]; then
  sanitized=(-DCMAKE_CXX_COMPILER=g++ "-DCMAKE_CXX_FLAGS=-fsanitize=$sanitizers -fno-sanitize-recover=all -fno-sanitize=vptr -g1 -w")
  # libstdc++ besides, whose throwing the runtime looks up as it starts. What the interpreter leaks itself is no matter.
  first=(env "LD_PRELOAD=$(g++ -print-file-name=libasan.so) $(g++ -print-file-name=libubsan.so) $(g++ -print-file-name=libstdc++.so)"
         ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1)
fi
cmake -S "$here" -B "$extension" "${common[@]}" "${sanitized[@]}" -DPython_EXECUTABLE="$venv/bin/python" >/dev/null
"${first[@]}" cmake --build "$extension" -j2 | tail -n1
cmake -S "$here/../../tests/package" -B "$work/programs" "${common[@]}" >/dev/null
cmake --build "$work/programs" -j2 --target my_troupe my_policy my_exchange my_optimizer my_schedule my_layer my_module my_extension | tail -n1

rm -rf "$work/package"
mkdir "$work/package"
cp -r "$here/troupe" "$work/package/"
cp "$extension"/{_troupe*.so,_keys.pyi} "$work/package/troupe/"
TROUPE_PACKAGE_PROGRAMS=$work/programs PYTHONPATH=$work/package PYTHONDONTWRITEBYTECODE=1 \
  "${first[@]}" "$venv/bin/python" -m pytest -q -p no:cacheprovider "$here/tests"
