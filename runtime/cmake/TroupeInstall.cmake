# cmake --install: the program, and the package that find_package(troupe) finds: libtroupe, public headers as they lie in the
# tree, the experiment's definition.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/troupe)

install(TARGETS troupe)
install(TARGETS troupe_shared EXPORT troupeTargets)

# The public headers: what schemes, machines and programs of one's own include (apps/docs/tutorial.md), and what these
# include in their turn. All others are private. tests/tools/check_package.sh compiles them as they are installed.
set(public_headers
    # A program: the command line, or training from within.
    apps/cli/program.hpp apps/run/train.hpp
    # Exchanges without servers.
    actors/exchange/exchange.hpp actors/exchange/peers.hpp actors/exchange/seat.hpp
    # Schemes.
    runtime/schemes/optimizers/chunk_optimizer.hpp runtime/schemes/codecs/codec.hpp runtime/schemes/decoupled/decoupled.hpp runtime/schemes/evaluation.hpp
    runtime/schemes/exchanges/exchange.hpp runtime/schemes/rules/ledger.hpp runtime/schemes/exchanges/link.hpp
    runtime/schemes/optimizers/optimizer_scheme.hpp runtime/schemes/policies/policy.hpp runtime/schemes/optimizers/rate.hpp runtime/schemes/optimizers/rate_factor.hpp
    runtime/schemes/registry.hpp runtime/schemes/rules/rule.hpp runtime/schemes/schedules/schedule.hpp
    runtime/schemes/schedules/schedule_scheme.hpp runtime/schemes/schedules/sequence_builder.hpp runtime/schemes/policies/view.hpp
    # Layers, networks, data.
    runtime/data/batch_sizes.hpp runtime/data/dataset.hpp runtime/data/memory.hpp runtime/data/registry.hpp
    runtime/model/layer.hpp runtime/model/layers.hpp runtime/model/network.hpp runtime/model/registry.hpp
    # Machines, and what the end of a run tells.
    runtime/record/json.hpp runtime/record/summary.hpp runtime/system/extension.hpp runtime/system/machine.hpp
    # What machines say, and the experiment as text.
    messages/archive.hpp messages/copies.hpp messages/ending.hpp messages/evaluation.hpp messages/experiment.hpp
    messages/facts.hpp messages/for_each_field.hpp messages/message.hpp messages/messages.hpp messages/optimizer.hpp
    messages/peers.hpp messages/pipeline.hpp messages/proto.hpp messages/protocol.hpp messages/ran.hpp messages/record.hpp
    messages/results.hpp messages/returns.hpp messages/roles.hpp messages/sandblaster.hpp messages/sections.hpp messages/servers.hpp
    messages/sparse.hpp messages/stamp.hpp messages/update.hpp messages/weights.hpp
    # Tensors and their arithmetic.
    kernels/activation.hpp kernels/attention.hpp kernels/buffer.hpp kernels/check.hpp kernels/combine.hpp kernels/convert.hpp
    kernels/convolution.hpp kernels/device.hpp kernels/dot.hpp kernels/dropout.hpp kernels/elementwise.hpp
    kernels/embedding.hpp kernels/event.hpp kernels/foreign.hpp kernels/functors/bfloat16.hpp kernels/hd.hpp kernels/late_gradient.hpp
    kernels/loss.hpp kernels/lstm.hpp kernels/matmul.hpp kernels/normalization.hpp kernels/orthogonalize.hpp
    kernels/coding.hpp kernels/random.hpp kernels/result.hpp kernels/shape.hpp kernels/stream.hpp kernels/tensor.hpp kernels/wording.hpp
    kernels/functors/update.hpp kernels/update.hpp)
foreach(header ${public_headers})
  get_filename_component(folder ${header} DIRECTORY)
  install(FILES ${PROJECT_SOURCE_DIR}/${header} DESTINATION include/troupe/${folder})
endforeach()
get_directory_property(protos DIRECTORY ${PROJECT_SOURCE_DIR}/messages DEFINITION troupe_experiment_protos)
foreach(name ${protos})
  get_filename_component(folder ${name} DIRECTORY)
  install(FILES ${PROJECT_SOURCE_DIR}/messages/${name}.proto DESTINATION include/troupe/messages/${folder})
  install(FILES ${PROJECT_BINARY_DIR}/messages/${name}.pb.h DESTINATION include/troupe/${folder})
endforeach()
# What the program says of itself: its manual's page, and what shells complete.
foreach(made "man/man1/troupe.1|help --man" "bash-completion/completions/troupe|completion bash"
             "zsh/site-functions/_troupe|completion zsh" "fish/vendor_completions.d/troupe.fish|completion fish")
  string(REPLACE "|" ";" made ${made})
  list(GET made 0 file)
  list(GET made 1 words)
  install(CODE "
    set(file \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATAROOTDIR}/${file}\")
    message(STATUS \"Making: \${file}\")
    cmake_path(GET file PARENT_PATH folder)
    file(MAKE_DIRECTORY \${folder})
    separate_arguments(words UNIX_COMMAND \"${words}\")
    execute_process(COMMAND $<TARGET_FILE:troupe> \${words} OUTPUT_FILE \${file} COMMAND_ERROR_IS_FATAL ANY)")
endforeach()
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

install(EXPORT troupeTargets NAMESPACE troupe:: DESTINATION ${package_dir})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/troupeConfig.cmake.in ${PROJECT_BINARY_DIR}/troupeConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/troupeConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/troupeConfig.cmake ${PROJECT_BINARY_DIR}/troupeConfigVersion.cmake
        DESTINATION ${package_dir})
