# Debian's and Ubuntu's libzmq has a CMake config in some releases only. Defines ZeroMQ::zmq.
find_path(ZeroMQ_INCLUDE_DIR zmq.h)
find_library(ZeroMQ_LIBRARY zmq)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(ZeroMQ REQUIRED_VARS ZeroMQ_LIBRARY ZeroMQ_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "install libzmq3-dev")
if(ZeroMQ_FOUND AND NOT TARGET ZeroMQ::zmq)
  add_library(ZeroMQ::zmq UNKNOWN IMPORTED)
  set_target_properties(ZeroMQ::zmq PROPERTIES IMPORTED_LOCATION "${ZeroMQ_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${ZeroMQ_INCLUDE_DIR}")
endif()
