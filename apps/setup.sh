#!/usr/bin/env bash
# Installs what a build needs, for Debian 12 and Ubuntu 24.04; with --tests also what the tests need. Needs root, or sudo.
# apps/start.sh and the scripts of tests/ source it for its functions and lists. CUDA is used where it is found and never
# installed here.

troupe_packages=(g++ cmake ninja-build libdnnl-dev libcaf-dev libprotobuf-dev protobuf-compiler libspdlog-dev
                 libcli11-dev zlib1g-dev libarchive-dev libpng-dev libjpeg-dev libtiff-dev libwebp-dev libstb-dev
                 libssl-dev libcpp-httplib-dev prometheus-cpp-dev libcurl4-openssl-dev libeigen3-dev)

# What is made use of where it is there, and told where it is not: gnuplot draws the curves of `troupe compare`, UCX carries tensors
# between processes (`troupe run --transport ucx`).
troupe_optional_packages=(gnuplot-nox libucx-dev pkg-config)

# Boost.Context: threads of a GPU that the CPU plays.
troupe_test_packages=(catch2 clang-format-14 python3 git libboost-context-dev)

# What tests can do without: lld links them in a fifth of the time. Clang compiles sanitized code in half of GCC's time, and is
# the second compiler that everything must pass; its clang-tidy looks for mistakes. Slurm, Open MPI and MPICH start runs in
# tests/tools/launchers.py. A cross compiler and QEMU are for tests/dev/aarch64.sh. (tests/tools/prometheus.py and shell.py also make use of
# prometheus, zsh, fish and mandoc where they are; these are not installed here.)
troupe_optional_test_packages=(lld clang-19 libclang-rt-19-dev llvm-19 clang-tidy-19
                               munge slurm-client slurmctld slurmd openmpi-bin mpich iproute2
                               g++-aarch64-linux-gnu qemu-user)

# troupe_install PACKAGE...: installs those that are not there yet.
troupe_install() {
  local missing=() package
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  if ! command -v apt-get >/dev/null; then
    echo "troupe: these packages are missing, and there is no apt-get here to install them: ${missing[*]}" >&2
    return 2
  fi
  local root=()
  if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
      echo "troupe: installing ${missing[*]} needs root, and sudo is not here; ask an administrator to install them" >&2
      return 2
    fi
    root=(sudo)
  fi
  echo "troupe: installing ${missing[*]}" >&2
  "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -qq &&
    "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# troupe_find_cuda: puts the usual place of the CUDA toolkit on PATH, where it is there and nvcc is not.
troupe_find_cuda() {
  if ! command -v nvcc >/dev/null && [ -x /usr/local/cuda/bin/nvcc ]; then
    PATH=$PATH:/usr/local/cuda/bin
    export PATH
  fi
}

# troupe_cuda [--cuda]: what TROUPE_CUDA is to be. Compiling the CUDA code takes minutes, so nvcc alone is no reason to: there has
# to be a GPU, or somebody who asks for it.
troupe_cuda() {
  if [ "${1:-}" = --cuda ] || [ -e /dev/nvidia0 ] || nvidia-smi >/dev/null 2>&1; then
    echo AUTO
  else
    echo OFF
  fi
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
  all=("${troupe_packages[@]}")
  [ "${1:-}" != --tests ] || all+=("${troupe_test_packages[@]}" "${troupe_optional_test_packages[@]}")
  troupe_install "${all[@]}" "${troupe_optional_packages[@]}"
fi
