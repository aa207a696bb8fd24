// troupe run --processes, --hosts: one experiment played by several processes of this machine, or of several.
#pragma once

#include "apps/cli/options.hpp"
#include "apps/run/ranks.hpp"
#include "apps/run/run.hpp"
#include "runtime/cluster/lead.hpp"

#include <chrono>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

struct Console;

/// Error (usage) where a run cannot be played by so many processes, whatever its network; place() of
/// topologies/placement.hpp has the rest.
Result<void> check_processes(const proto::Experiment& experiment, std::int64_t processes);

/// Values of --transport.
inline constexpr const char* kStreams = "streams";
inline constexpr const char* kUcx = "ucx";

/// --processes, --hosts, --join, --keys, --transport, --trusted-network, --back, --restarts, --restart-wait and --program.
struct PlayerArguments {
  std::int64_t processes = 1;
  std::string hosts{};
  std::string keys{};
  std::string join{};
  std::string transport = kStreams;
  bool trusted_network = false;
  std::int64_t back = -1;  // not given
  std::int64_t restarts = 0;
  std::int64_t restart_wait = 60;  // seconds
  std::string program = Lead::Config{}.program;
};

std::vector<CommandOption> player_options(PlayerArguments& arguments);

/// Who plays a run besides this process.
struct Players {
  int processes = 1;                                 // with this one
  std::vector<HostPlace> hosts{};                    // of the others; none: they are started here
  std::shared_ptr<const Credentials> credentials{};  // for hosts that are not this machine
  Transport transport = Transport::streams;          // of tensors
  std::optional<Ranks> ranks{};                      // where something else has started all of them
  std::optional<int> back{};  // how often the place of each that is lost is to be taken again
  int restarts = 0;           // how often the run begins again that cannot go on without one
  std::chrono::seconds restart_wait{60};  // until it goes on without a host that was lost
  std::string program =
      Lead::Config{}.program;  // that is started with the word "node" as the others
};

/// Error (usage): a sentence.
Result<Players> players_of(const PlayerArguments& arguments);

/// As run_experiment on the real clock, in several processes: this one is the lead, and the others are its own
/// program or run on other hosts. Where one is lost without which it cannot go on, it begins again from its newest
/// checkpoint, as often as `players` says. `notes`: where who plays what is told; null: nowhere. Error, besides
/// run_experiment's, (usage) where the experiment cannot be played so, and whatever keeps another process from
/// taking part.
Result<RunResult> run_in_processes(const Blueprint& blueprint,
                                   Players players,
                                   const RunOptions& options,
                                   std::ostream* notes);

/// What a process does that has come to play its part, `players.ranks` being of another than the lead; the exit code.
Result<int> play_as_rank(Console& console, const Players& players);

// -- `troupe node`: each returns the exit code -----------------------------------------------------

struct NodeOptions {
  std::string listen{};
  std::string keys{};
  std::string address{};
  std::string transport{};  // that a lead must have; empty: any
  bool trusted_network = false;
  bool once = false;
  bool over_ssh = false;
};

/// One that a lead has started on its own machine.
Result<int> play_as_started();
/// One that a lead has started through ssh: its standard input and output are the stream to the lead.
Result<int> play_over_ssh();
/// One that waits for leads.
Result<int> play_for_visitors(Console& console, const NodeOptions& options);

}  // namespace troupe
