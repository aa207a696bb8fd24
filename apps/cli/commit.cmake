# cmake -DSOURCE=DIR -DOUTPUT=commit.cpp -P commit.cmake: the commit of the source as C++, written where it is another than
# before. "+" behind it: files have been changed since. "unknown": no git, or no repository.
cmake_minimum_required(VERSION 3.25)  # a script has the policies of the oldest CMake otherwise
find_package(Git QUIET)
set(commit unknown)
if(GIT_FOUND)
  execute_process(
    COMMAND ${GIT_EXECUTABLE} -C ${SOURCE} rev-parse --short=12 HEAD
    OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed ERROR_QUIET)
  execute_process(
    COMMAND ${GIT_EXECUTABLE} -C ${SOURCE} status --porcelain --untracked-files=no OUTPUT_VARIABLE changed ERROR_QUIET)
  if(NOT failed)
    set(commit "${found}")
    if(changed)
      string(APPEND commit "+")
    endif()
  endif()
endif()
file(CONFIGURE OUTPUT "${OUTPUT}" CONTENT "// Made by apps/cli/commit.cmake.
#include \"apps/cli/version.hpp\"

namespace troupe {

const char* commit() {
  return \"@commit@\";
}

}  // namespace troupe
" @ONLY)
