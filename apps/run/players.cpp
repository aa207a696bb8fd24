#include "apps/cli/version.hpp"
#include "apps/run/hosts_file.hpp"
#include "apps/run/processes.hpp"
#include "apps/topologies/hosts.hpp"
#include "apps/topologies/placement.hpp"
#include "apps/topologies/topology.hpp"
#include "apps/verbs/verb.hpp"
#include "experiment.pb.h"
#include "messages/experiment.hpp"
#include "runtime/cluster/meeting.hpp"
#include "runtime/cluster/tls.hpp"
#include "runtime/cluster/ucx_plane.hpp"

#include <algorithm>
#include <ostream>
#include <utility>

namespace troupe {
namespace {

constexpr std::int64_t kBackMax = 1'000'000;
constexpr std::int64_t kRestartWaitMax = 1'000'000;  // seconds

/// With this process there is one more than the file has lines.
Result<void> add_hosts(Players& players, const std::string& file) {
  auto hosts = read_hosts_file(file);
  TROUPE_TRY(hosts);
  players.hosts = *std::move(hosts);
  players.processes = static_cast<int>(players.hosts.size()) + 1;
  return {};
}

/// Where something lies between the processes that others may read, UCX needs a word of the user.
Result<void> add_transport(Players& players, const PlayerArguments& arguments) {
  const bool over_ssh = std::ranges::any_of(
      players.hosts, [](const HostPlace& place) { return place.address.port == 0; });
  if (arguments.transport == kStreams) {
    return {};
  }
  if ((players.credentials || over_ssh) && !arguments.trusted_network) {
    return Error{ErrorKind::usage,
                 "--transport ucx encrypts no tensor that goes between hosts; if nobody else is on "
                 "their network, say so by --trusted-network"};
  }
  players.transport = Transport::ucx;
  return prefixed("--transport ucx: ", check_ucx());
}

Result<void> add_ranks(Players& players, bool with_keys) {
  auto ranks = ranks_of_environment();
  TROUPE_TRY(ranks);
  if (ranks->one_machine && !with_keys) {
    // torchrun gives the machine's name, which others can reach; nobody else has to.
    ranks->lead.host = kThisMachine;
  }
  players.processes = ranks->processes;
  players.ranks = *std::move(ranks);
  return {};
}

}  // namespace

Result<void> check_processes(const proto::Experiment& experiment, std::int64_t processes) {
  if (processes > 1 && !experiment.phases().empty()) {
    return Error{ErrorKind::usage,
                 "--processes: an experiment with phases runs in one process; leave out "
                 "--processes, or the phases by --set phases=[]"};
  }
  return {};
}

std::vector<CommandOption> player_options(PlayerArguments& arguments) {
  return {
      {.names = "--processes",
       .value = &arguments.processes,
       .doc = "play the run in so many processes of this machine; what does not choose by "
              "arrival ends with the same weights",
       .type = "N",
       .range = OptionRange{1, kProcessesMax}},
      {.names = "--hosts",
       .value = &arguments.hosts,
       .doc = "play the run on several hosts; FILE has a line for each other process, "
              "HOST:PORT of a `troupe node` or a HOST for ssh",
       .type = "FILE",
       .refuse_empty = "the name of the file is empty"},
      {.names = "--join",
       .value = &arguments.join,
       .doc = "one of the processes that Slurm or another started alike; the environment says "
              "which (torchrun, Slurm, mpirun, Kubernetes); rank 0 leads",
       .type = "env",
       .legal = {"env"}},
      {.names = "--back",
       .value = &arguments.back,
       .doc = "how often a lost process is started or reached again; it takes up its replicas, "
              "without which the run goes on meanwhile; 0: never (default: 3)",
       .type = "N",
       .range = OptionRange{0, kBackMax}},
      {.names = "--restarts",
       .value = &arguments.restarts,
       .doc = "how often the run begins again after losing a process; one without which it cannot "
              "go on; from its newest checkpoint (default: 0)",
       .type = "N",
       .range = OptionRange{0, kBackMax}},
      {.names = "--restart-wait",
       .value = &arguments.restart_wait,
       .doc = "seconds that --restarts waits for a lost host; then it goes on without that host "
              "(default: 60)",
       .type = "S",
       .range = OptionRange{0, kRestartWaitMax}},
      {.names = "--keys",
       .value = &arguments.keys,
       .doc = "this host's folder of `troupe keys`; for hosts that are reached over a network",
       .type = "DIR",
       .refuse_empty = kEmptyFolder},
      {.names = "--transport",
       .value = &arguments.transport,
       .doc =
           "what carries tensors: streams or ucx (default: streams); with ucx all processes need "
           "UCX (`troupe doctor`), and nothing of them is encrypted",
       .type = "NAME",
       .legal = {kStreams, kUcx}},
      {.names = "--trusted-network",
       .value = &arguments.trusted_network,
       .doc = "--transport ucx may go between hosts; nobody else is on their network"},
      {.names = "--program",
       .value = &arguments.program,
       .doc = "what is started as the others here (default: this program)",
       .type = "FILE",
       .refuse_empty = "the name of the program is empty"}};
}

Result<Players> players_of(const PlayerArguments& arguments) {
  Players players{.processes = static_cast<int>(arguments.processes), .program = arguments.program};
  if (arguments.back >= 0) {
    players.back = static_cast<int>(arguments.back);
  }
  if (players.back && players.processes == 1 && arguments.hosts.empty() && arguments.join.empty()) {
    return Error{ErrorKind::usage, "--back goes with --processes N, --hosts FILE or --join env"};
  }
  if (players.processes == 1 && players.program != Players{}.program) {
    return Error{ErrorKind::usage, "--program goes with --processes N"};
  }
  players.restarts = static_cast<int>(arguments.restarts);
  players.restart_wait = std::chrono::seconds(arguments.restart_wait);
  if (players.restarts > 0 && players.processes == 1 && arguments.hosts.empty() &&
      arguments.join.empty()) {
    return Error{ErrorKind::usage,
                 "--restarts goes with --processes N, --hosts FILE or --join env"};
  }
  if (arguments.hosts.empty() && arguments.join.empty()) {
    if (!arguments.keys.empty()) {
      return Error{ErrorKind::usage, "--keys goes with --hosts FILE or --join env"};
    }
    if (arguments.transport == kUcx && players.processes == 1) {
      return Error{ErrorKind::usage,
                   "--transport goes with --processes N, --hosts FILE or --join env"};
    }
    TROUPE_TRY(add_transport(players, arguments));
    return players;
  }
  if (arguments.processes > 1 || (!arguments.hosts.empty() && !arguments.join.empty())) {
    return Error{ErrorKind::usage,
                 "--processes, --hosts and --join each say how many processes a run has; name one"};
  }
  TROUPE_TRY(arguments.join.empty() ? add_hosts(players, arguments.hosts)
                                    : add_ranks(players, !arguments.keys.empty()));
  if (!arguments.keys.empty()) {
    auto credentials = Credentials::load(arguments.keys);
    if (!credentials) {
      return Error{ErrorKind::usage, "--keys: " + credentials.error().message};
    }
    players.credentials = std::make_shared<const Credentials>(*std::move(credentials));
  }
  TROUPE_TRY(add_transport(players, arguments));
  return players;
}

}  // namespace troupe
