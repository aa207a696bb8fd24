# Flags that every target of ours gets and nobody who links us inherits.
add_library(troupe_build_flags INTERFACE)
target_compile_features(troupe_build_flags INTERFACE cxx_std_20)
target_compile_options(
  troupe_build_flags
  INTERFACE
    # Contraction is off so that an element's rounding does not depend on whether it falls into the
    # vector body or the tail of a loop: weights must be bit-equal whatever the cut.
    $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wnon-virtual-dtor -ffp-contract=off>
    # -Wpedantic is left out: nvcc's generated host code trips it on every line.
    $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra --expt-relaxed-constexpr>)
# A hundred tests are linked against everything: a fifth of the time by LLVM's linker.
find_program(TROUPE_LLD ld.lld)
mark_as_advanced(TROUPE_LLD)
if(TROUPE_LLD)
  target_link_options(troupe_build_flags INTERFACE -fuse-ld=lld)
endif()
if(TROUPE_WERROR)
  target_compile_options(
    troupe_build_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>
                                 $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings -Xcompiler=-Werror>)
endif()
if(TROUPE_SANITIZERS)
  target_compile_options(troupe_build_flags INTERFACE
    # Warnings are the plain builds' task: GCC 12 takes the sanitizers' own code for faulty.
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${TROUPE_SANITIZERS} -fno-omit-frame-pointer -w>)
  if(TROUPE_SANITIZERS MATCHES "undefined")
    # Halt on a finding, but not on `null`: CAF 0.17.6's own headers bind null references.
    target_compile_options(troupe_build_flags INTERFACE
      $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize-recover=undefined -fno-sanitize=null>)
  endif()
  target_link_options(troupe_build_flags INTERFACE -fsanitize=${TROUPE_SANITIZERS})
endif()

# -- precompiled headers ---------------------------------------------------------

# What most files include and no change of ours touches: half of a compiler's work on a file. A launcher is a cache as a
# rule, and a cache keeps little of what was compiled with a precompiled header. That our own headers stand alone without
# it is checked in tests/tools. Not <filesystem>: it brings std::quoted, which hides ours.
if(CMAKE_CXX_COMPILER_LAUNCHER AND NOT DEFINED CMAKE_DISABLE_PRECOMPILE_HEADERS)
  set(CMAKE_DISABLE_PRECOMPILE_HEADERS ON)
endif()
set(troupe_precompiled <algorithm> <array> <cmath> <cstdint> <functional> <map> <memory> <optional> <ostream>
                       <span> <sstream> <string> <utility> <variant> <vector>)

# troupe_compile_quickly(<target>): for tests, which wait for the libraries that they test and not for their own code. With
# optimisation a test takes twice as long to compile, and with a precompiled header GCC 12 then takes copies of short
# strings for out of bounds. Not for libraries, even under sanitizers: tests of sharpness would take thirty times as long.
# Line numbers are for what the sanitizers find, and for debuggers in a debug build: Catch knows those of its checks.
function(troupe_compile_quickly target)
  target_compile_options(${target} PRIVATE -O0)
  if(NOT TROUPE_SANITIZERS)
    target_compile_options(${target} PRIVATE $<$<CONFIG:RelWithDebInfo>:-g0>)
  endif()
endfunction()

# TROUPE_UNITY compiles eight files at a time, which takes half of the work where everything is compiled; who changes a file then
# waits for its eight. Names that only one file knows (in an unnamed namespace) must then not be another's among
# the eight; files that are meant to look alike are APART. What each file includes is checked where it is OFF. LIBRARIES: the
# libraries alone are compiled so, and each test is a program of its own.
set(TROUPE_UNITY OFF CACHE STRING "Compile eight files at a time: ON, LIBRARIES or OFF")
set(TROUPE_UNITY_LIBRARIES OFF)
if(TROUPE_UNITY)
  set(TROUPE_UNITY_LIBRARIES ON)
endif()

# The tests that share memory outside CAF, which are all that the race detector is asked about.
add_custom_target(tsan_tests)

# troupe_add_library(<name> SOURCES <files> [APART <patterns>] [RACES <pattern>] [PUBLIC <targets>] [PRIVATE <targets>])
# Defines troupe_<name> with the alias troupe::<name>. APART: regular expressions; files that match one are always compiled
# one at a time. RACES: a regular expression of the files that tests labelled tsan need; with the thread sanitizer no other is
# compiled.
function(troupe_add_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "RACES" "SOURCES;APART;PUBLIC;PRIVATE")
  if(arg_RACES AND TROUPE_SANITIZERS STREQUAL "thread")
    list(FILTER arg_SOURCES INCLUDE REGEX "${arg_RACES}")
  endif()
  add_library(troupe_${name} STATIC ${arg_SOURCES})
  set_target_properties(troupe_${name} PROPERTIES UNITY_BUILD ${TROUPE_UNITY_LIBRARIES} UNITY_BUILD_BATCH_SIZE 8)
  foreach(pattern ${arg_APART})
    set(apart ${arg_SOURCES})
    list(FILTER apart INCLUDE REGEX "${pattern}")
    set_source_files_properties(${apart} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endforeach()
  add_library(troupe::${name} ALIAS troupe_${name})
  set_target_properties(troupe_${name} PROPERTIES EXPORT_NAME ${name} POSITION_INDEPENDENT_CODE ON)
  target_compile_features(troupe_${name} PUBLIC cxx_std_20)
  # cxx_std_20 does not reach nvcc, and CMake 3.25.1 knows no cuda_std_20.
  target_compile_options(troupe_${name} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20>)
  target_include_directories(troupe_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                                                   $<INSTALL_INTERFACE:include/troupe>)
  target_link_libraries(troupe_${name} PUBLIC ${arg_PUBLIC}
                                       PRIVATE ${arg_PRIVATE} $<BUILD_INTERFACE:troupe_build_flags>)
endfunction()

# troupe_add_test(<name> [SERIAL] [ALONE] [LOWER] [LABELS <labels>] [LINK <targets>] [TIMEOUT <s>])
# Makes a ctest of <name>.cpp, called after its path below tests/: in tests/kernels, activation_test is kernels/activation_test.
# With TROUPE_UNITY=ON, whose builds make everything, the files of a folder share one program, <folder>_tests, which runs the
# cases of one file for each ctest (Catch's -#): a program a file links the libraries two hundred times and fills 15 GB. They
# are compiled eight at a time, in a third of the time, as each has its names in a namespace of its own. Else
# it is a program of its own, kernels_activation_test, so that who changes something builds only the tests that he runs.
# ALONE: always a program of its own, for a file that registers what others of its folder must not find, or replaces new (which
# no namespace may do).
# LOWER: <path>_v3 runs it once more, with the CPU kernels of the lower instruction set.
# Exit status 4 means skipped (Catch2 v2 has no SKIP; tests/support/main.cpp). SERIAL: it fills all cores with threads or
# stops by the real clock, so no other test runs beside it. What the sanitizers' presets leave out is not built for them
# either. The longer a test may take, the earlier it starts, so that no core is idle at the end.
function(troupe_add_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "SERIAL;ALONE;LOWER" "TIMEOUT" "LABELS;LINK")
  if(TROUPE_SANITIZERS AND arg_LABELS MATCHES "gpu|slow|numbers")
    return()
  endif()
  if(TROUPE_SANITIZERS STREQUAL "thread" AND NOT "tsan" IN_LIST arg_LABELS)
    return()
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  if(TROUPE_SANITIZERS)
    math(EXPR arg_TIMEOUT "3 * ${arg_TIMEOUT}")  # several times slower, but not for ever
  endif()
  file(RELATIVE_PATH path "${PROJECT_SOURCE_DIR}/tests" "${CMAKE_CURRENT_SOURCE_DIR}/${name}")
  unset(folder)
  if(TROUPE_UNITY AND NOT TROUPE_UNITY STREQUAL "LIBRARIES" AND NOT arg_ALONE)
    string(REGEX REPLACE "/.*" "" folder ${path})
    if("slow" IN_LIST arg_LABELS)
      set(target ${folder}_slow_tests)
    else()
      set(target ${folder}_tests)
    endif()
    if(folder STREQUAL "system")
      list(APPEND arg_LINK troupe_test_harness)
    endif()
  else()
    string(REPLACE "/" "_" target ${path})
  endif()
  if(NOT TARGET ${target})
    add_executable(${target})
    if(folder)  # of whichever of the folder's directories has the first file
      set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8
                                                 RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/${folder})
    endif()
    target_link_libraries(${target} PRIVATE troupe_test_main troupe_build_flags)
    # Of a function that is inline the linker takes the test's copy for the libraries, too. With copies that are not optimised
    # a test that runs for minutes (slow) takes twice as long.
    if(NOT "slow" IN_LIST arg_LABELS)
      troupe_compile_quickly(${target})
      if("troupe_test_harness" IN_LIST arg_LINK)
        target_precompile_headers(${target} REUSE_FROM troupe_test_harness)
      else()
        target_precompile_headers(${target} REUSE_FROM troupe_test_main)
      endif()
    endif()
  endif()
  target_sources(${target} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/${name}.cpp)
  target_link_libraries(${target} PRIVATE ${arg_LINK})
  get_filename_component(file ${name} NAME)
  get_property(files GLOBAL PROPERTY "troupe files of ${target}")
  if(file IN_LIST files)
    message(FATAL_ERROR "two tests of ${target} are called ${file}: Catch could not tell them apart")
  endif()
  set_property(GLOBAL APPEND PROPERTY "troupe files of ${target}" ${file})
  # Without -w, no case at all would pass.
  add_test(NAME ${path} COMMAND ${target} "-#" "[#${file}]" -w NoTests)
  set_tests_properties(${path} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS}" SKIP_RETURN_CODE 4
                                        RUN_SERIAL ${arg_SERIAL} COST ${arg_TIMEOUT})
  if(arg_LOWER AND TARGET troupe_kernels_v3)
    add_test(NAME ${path}_v3 COMMAND ${target} "-#" "[#${file}]" -w NoTests)
    set_tests_properties(${path}_v3 PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS}" SKIP_RETURN_CODE 4
                                               ENVIRONMENT TROUPE_ISA=v3)
  endif()
  if("tsan" IN_LIST arg_LABELS)
    add_dependencies(tsan_tests ${target})
  endif()
  if(TROUPE_EMULATED AND "gpu" IN_LIST arg_LABELS)
    troupe_add_emulated_test(${name} ${arg_LINK})  # tests/kernels/device_on_cpu
  endif()
endfunction()
