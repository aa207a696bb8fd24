# Toolchain for aarch64 on another machine: Debian's cross compiler, libraries of Debian's arm64 packages below
# TROUPE_AARCH64_ROOT, and QEMU to run the tests. tests/dev/aarch64.sh makes all three.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(TROUPE_LLD "" CACHE STRING "GCC as a cross compiler does not find it")
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES TROUPE_AARCH64_ROOT)
set(CMAKE_FIND_ROOT_PATH ${TROUPE_AARCH64_ROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_CROSSCOMPILING_EMULATOR
    qemu-aarch64 -L ${TROUPE_AARCH64_ROOT})
