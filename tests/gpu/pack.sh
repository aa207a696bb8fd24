#!/usr/bin/env bash
# Makes a folder for a machine with an NVIDIA GPU and nothing of ours: run.sh and content.tar.xz, with the program, the tests that need
# a GPU and the libraries that they load. Of the machine it takes the driver, glibc, and cuBLAS, cuDNN and NCCL of its PyTorch.
#
#     tests/gpu/pack.sh DIR              # from build/release, which needs kernels for the GPU: -DCMAKE_CUDA_ARCHITECTURES=90
#     tests/gpu/pack.sh --emulated DIR   # the tests on a GPU that the CPU plays, to try run.sh: ctest --preset emulated
set -euo pipefail
cd "$(dirname "$0")/../.."
emulated=
[ "${1:-}" != --emulated ] || { emulated=emulated_; shift; }
[ $# -eq 1 ] || { sed -n '2,/^set/{/^#/p}' "$0" >&2; exit 2; }
to=$1 build=build/release
limit_bytes=$((55 << 20))
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
content=$work/content
mkdir -p "$content/lib" "$to"

strip -o "$content/troupe" $build/troupe
for folder in kernels runtime system; do
  program=$(find $build/tests/$folder -maxdepth 1 -name "${emulated}${folder}_tests")
  [ -n "$program" ] || { echo "tests/gpu/pack.sh: ${emulated}${folder}_tests is not built" >&2; exit 1; }
  strip -o "$content/${folder}_tests" "$program"
done
for program in gpu_bandwidth gpu_decisions; do
  strip -o "$content/$program" $build/tests/gpu/$emulated$program
done
[ -z "$emulated" ] || cp -P $build/tests/kernels/device_on_cpu/lib*.so* "$content/lib"
# What belongs to glibc is the machine's own.
for program in "$content"/troupe "$content"/gpu_* "$content"/*_tests; do
  LD_LIBRARY_PATH=$content/lib ldd "$program"
done | awk '$2 == "=>" { print $3 }' | sort -u |
  grep -vE "/(ld-linux.*|lib(c|m|dl|rt|pthread|resolv|util|anl|nsl))\.so|^$content" |
  while read -r library; do
    strip -o "$content/lib/$(basename "$library")" "$library"
  done
cuda=${CUDA_HOME:-/usr/local/cuda}
if [ -e "$cuda/include/cupti.h" ]; then
  g++ -std=c++20 -O2 -shared -fPIC -I"$cuda/include" tests/tools/gpu_idle.cpp -o "$content/gpu_idle.so" -L"$cuda/lib64" -L"$cuda/lib" -lcupti
fi
XZ_OPT="-T2 ${XZ_OPT:--2}" tar -cJf "$to/content.tar.xz" -C "$work" content
cp tests/gpu/run.sh "$to/run.sh"
bytes=$(du -sb "$to" | cut -f1)
echo "$to: $bytes bytes"
[ "$bytes" -le $limit_bytes ] || { echo "tests/gpu/pack.sh: more than $limit_bytes bytes" >&2; exit 1; }
