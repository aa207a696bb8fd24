// troupe node: a process that plays its part of other people's runs.
#include "apps/run/processes.hpp"
#include "apps/verbs/verb.hpp"

#include <memory>

namespace troupe {
namespace {

Result<int> play(Console& console, const NodeOptions& options) {
  if (!options.listen.empty() && options.over_ssh) {
    return Error{ErrorKind::usage, "node: --listen and --stdio exclude each other"};
  }
  if (options.listen.empty() && (options.once || options.trusted_network || !options.keys.empty() ||
                                 !options.address.empty() || !options.transport.empty())) {
    return Error{ErrorKind::usage,
                 "node: --keys, --address, --transport, --trusted-network and --once go with "
                 "--listen HOST:PORT"};
  }
  if (options.over_ssh) {
    return play_over_ssh();
  }
  return options.listen.empty() ? play_as_started() : play_for_visitors(console, options);
}

}  // namespace

Command declare_node() {
  auto options = std::make_shared<NodeOptions>();
  return {.options = {{.names = "--listen",
                       .value = &options->listen,
                       .doc = "wait here for leads (`troupe run --hosts`) and play one run after "
                              "another",
                       .type = "HOST:PORT"},
                      {.names = "--keys",
                       .value = &options->keys,
                       .doc = "this host's folder of `troupe keys`; needed where HOST is not an "
                              "address of this machine alone",
                       .type = "DIR",
                       .refuse_empty = kEmptyFolder},
                      {.names = "--address",
                       .value = &options->address,
                       .doc = "where the other hosts reach this one (default: the address that the "
                              "lead has connected to)",
                       .type = "IP"},
                      {.names = "--transport",
                       .value = &options->transport,
                       .doc = "refuse leads whose tensors take another: streams or ucx (default: "
                              "what the lead says)",
                       .type = "NAME",
                       .legal = {kStreams, kUcx}},
                      {.names = "--trusted-network",
                       .value = &options->trusted_network,
                       .doc = "nobody else is on the network, so that leads may use --transport "
                              "ucx, which does not encrypt"},
                      {.names = "--once", .value = &options->once, .doc = "end after one run"},
                      {.names = "--stdio",
                       .value = &options->over_ssh,
                       .doc = "the lead has started this by ssh and is at the other end of stdin "
                              "and stdout"}},
          .action = [options](Console& console) {
            return play(console, *options);
          }};
}

}  // namespace troupe
