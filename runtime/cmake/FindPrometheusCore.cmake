# prometheus-cpp::core, the part of prometheus-cpp that writes Prometheus' text format. (Its own package file asks for the HTTP server
# of another part, too.)
find_path(PrometheusCore_INCLUDE_DIR prometheus/text_serializer.h)
find_library(PrometheusCore_LIBRARY prometheus-cpp-core)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(PrometheusCore REQUIRED_VARS PrometheusCore_LIBRARY PrometheusCore_INCLUDE_DIR)
if(PrometheusCore_FOUND AND NOT TARGET prometheus-cpp::core)
  add_library(prometheus-cpp::core UNKNOWN IMPORTED)
  set_target_properties(prometheus-cpp::core PROPERTIES IMPORTED_LOCATION ${PrometheusCore_LIBRARY}
                                                        INTERFACE_INCLUDE_DIRECTORIES ${PrometheusCore_INCLUDE_DIR})
endif()
mark_as_advanced(PrometheusCore_INCLUDE_DIR PrometheusCore_LIBRARY)
