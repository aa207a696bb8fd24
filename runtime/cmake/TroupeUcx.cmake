# UCX, for tensors between processes over RDMA (troupe run --transport ucx). TROUPE_UCX becomes ON or OFF; with ON there are
# UCX_INCLUDE_DIRS. Its library is loaded when it is first needed (runtime/cluster/ucx_worker.cpp), so that nothing is linked.
if(TROUPE_SANITIZERS AND TROUPE_UCX STREQUAL "AUTO")
  set(TROUPE_UCX OFF)  # a program with sanitizers does not survive the loading of UCX, which patches malloc's
endif()
if(NOT TROUPE_UCX STREQUAL "OFF")
  find_package(PkgConfig QUIET)
  if(PKG_CONFIG_FOUND)
    pkg_check_modules(UCX QUIET ucx>=1.13)
  endif()
  if(UCX_FOUND)
    set(TROUPE_UCX ON)
    message(STATUS "UCX ${UCX_VERSION}: troupe run --transport ucx (-DTROUPE_UCX=OFF builds without it)")
  elseif(TROUPE_UCX STREQUAL "AUTO")
    set(TROUPE_UCX OFF)
    message(STATUS "UCX 1.13 not found: --transport ucx is refused (install libucx-dev and pkg-config, or name its folder in "
                   "PKG_CONFIG_PATH)")
  else()
    message(FATAL_ERROR "pkg-config finds no UCX 1.13 (ucx.pc); install libucx-dev, or name its folder in PKG_CONFIG_PATH")
  endif()
endif()
