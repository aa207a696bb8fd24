# Sourced by apps/start.sh and tests/run.sh: installs what is missing, for Debian 12 and Ubuntu 24.04. Needs root, or sudo.
# CUDA is used where it is found and never installed here.

troupe_packages=(g++ cmake ninja-build libdnnl-dev libcaf-dev libzmq3-dev libprotobuf-dev protobuf-compiler libspdlog-dev
                 libcli11-dev zlib1g-dev libarchive-dev libpng-dev libjpeg-dev libssl-dev libcurl4-openssl-dev libeigen3-dev)

# What a verb makes use of where it is there, and tells where it is not: gnuplot draws the curves of `troupe compare`.
troupe_optional_packages=(gnuplot-nox)

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
