# cmake --install: the program, and the package that find_package(troupe) finds: libraries, headers as they lie in the tree,
# the experiment's definition. Headers that are private to their folder stay here.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/troupe)

install(TARGETS troupe)
install(TARGETS troupe_proto troupe_kernels troupe_messages troupe_runtime troupe_actors troupe_apps
        EXPORT troupeTargets)
foreach(folder kernels messages runtime actors apps)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/${folder} DESTINATION include/troupe
          FILES_MATCHING PATTERN "*.hpp" PATTERN "*.proto"
          PATTERN "kernels/cpu" EXCLUDE PATTERN "kernels/cuda" EXCLUDE PATTERN "messages/experiment" EXCLUDE
          PATTERN "schemes/rules" EXCLUDE PATTERN "schemes/policies" EXCLUDE
          PATTERN "schemes/schedules" EXCLUDE PATTERN "schemes/partition" EXCLUDE PATTERN "model/zoo" EXCLUDE
          PATTERN "apps/bench" EXCLUDE PATTERN "cmake" EXCLUDE PATTERN "docs" EXCLUDE PATTERN "presets" EXCLUDE)
endforeach()
install(FILES ${PROJECT_BINARY_DIR}/messages/experiment.pb.h DESTINATION include/troupe)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

install(EXPORT troupeTargets NAMESPACE troupe:: DESTINATION ${package_dir})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/troupeConfig.cmake.in ${PROJECT_BINARY_DIR}/troupeConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/troupeConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/troupeConfig.cmake ${PROJECT_BINARY_DIR}/troupeConfigVersion.cmake
              ${CMAKE_CURRENT_LIST_DIR}/FindCAF.cmake ${CMAKE_CURRENT_LIST_DIR}/FindCUDNN.cmake
              ${CMAKE_CURRENT_LIST_DIR}/FindOneDNN.cmake
        DESTINATION ${package_dir})
