#include "apps/run/processes.hpp"

#include "apps/cli/status_line.hpp"
#include "apps/cli/version.hpp"
#include "apps/run/metrics_server.hpp"
#include "apps/run/real_clock.hpp"
#include "apps/run/tracing.hpp"
#include "apps/topologies/placement.hpp"
#include "apps/topologies/run_bounds.hpp"
#include "apps/topologies/topology.hpp"
#include "apps/verbs/verb.hpp"
#include "experiment.pb.h"
#include "kernels/wording.hpp"
#include "messages/experiment.hpp"
#include "runtime/cluster/cluster.hpp"
#include "runtime/cluster/door.hpp"
#include "runtime/cluster/meeting.hpp"
#include "runtime/cluster/node.hpp"
#include "runtime/cluster/started_process.hpp"
#include "runtime/cluster/tls.hpp"
#include "runtime/serve/http.hpp"
#include "runtime/system/threads.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <ostream>
#include <sstream>
#include <thread>
#include <utility>

namespace troupe {
namespace {

constexpr std::chrono::minutes kLeadMax{10};  // until it is there and everybody has come
constexpr std::chrono::milliseconds kComeAgain{200};
constexpr std::chrono::seconds kLeadAgainMax{10};  // one that begins again listens all the time

/// Records of a node go to the lead before a sink sees them.
class NoRecords final : public RecordSink {
 public:
  std::optional<Diverged> on(const RecordEntry& /*entry*/, double /*now*/) override {
    return std::nullopt;
  }
};

/// The same blueprint as the lead's.
Result<Blueprint> blueprint_of(const Invitation& invitation) {
  auto experiment = parse_experiment(invitation.experiment, "the lead's experiment");
  TROUPE_TRY(experiment);
  TROUPE_TRY(resolve(*experiment));
  auto made = make_blueprint(*experiment);
  TROUPE_TRY(made);
  if (!invitation.groups.empty() && invitation.groups.size() != made->chunks.size()) {
    return lost_error("the lead names {} groups of GPUs for {} chunks",
                      invitation.groups.size(),
                      made->chunks.size());
  }
  made->groups = invitation.groups;
  return made;
}

/// In the place of a process that was lost: the machines of its replicas wait for Rejoin.
void make_anew(Cast& cast, const std::vector<int>& process_of, int process) {
  cast.starting.clear();
  for (const std::int32_t replica : replicas_of(cast, process_of, process)) {
    for (Cast::Replacement& replacement : cast.make_replacements(replica)) {
      cast.members[replacement.id].machine = std::move(replacement.machine);
    }
  }
}

/// `metrics`: null where there is no server of them.
void play(const Blueprint& blueprint, Cast cast, Node& node, MetricsServer* metrics) {
  const RealClock clock(blueprint);
  ThreadOptions options = clock.options();
  options.others = &node;
  options.tells_order = blueprint.experiment->record().order();
  options.stall_seconds = std::numeric_limits<double>::infinity();  // the lead's to find
  options.mailboxes = metrics ? metrics->count_mailboxes(cast) : nullptr;
  const auto tracing = Tracing::begin(blueprint, cast, false, &node);
  NoRecords records;
  run_on_threads(cast, records, options);
}

/// Error (lost) where the lead's tensors take another way than `transport` (empty: any), or one that this host's `keys` do not
/// protect and that nobody has said is safe.
Result<void> check_transport(const Invitation& invitation,
                             const std::string& transport,
                             bool keys,
                             bool trusted_network) {
  const std::string leads = invitation.ucx.empty() ? kStreams : kUcx;
  if (!transport.empty() && transport != leads) {
    return lost_error(
        "the lead has --transport {}, this process {}; all need the same", leads, transport);
  }
  if (leads == kUcx && keys && !trusted_network) {
    return lost_error(
        "the lead has --transport ucx, which encrypts nothing; this node has --keys and needs "
        "--trusted-network, too");
  }
  return {};
}

struct Played {
  int exit_code = 0;
  bool again = false;    // the lead may begin the run again, with this process
  std::string failed{};  // why it takes no part
};

/// The run of `invitation`, from its answer to its end. `host`: as Node has it.
Played play_part(const Invitation& invitation,
                 std::unique_ptr<ControlStream> lead,
                 const std::string& host) {
  auto blueprint = blueprint_of(invitation);
  const auto placement =
      blueprint ? place(*blueprint, invitation.processes) : Result<Placement>(blueprint.error());
  if (!placement) {
    refuse_invitation(*lead, placement.error());
    return {.exit_code = static_cast<int>(placement.error().kind),
            .failed = placement.error().message};
  }
  const std::string& address = blueprint->experiment->record().prometheus();
  auto metrics = MetricsServer::start(
      address, invitation.process, is_loopback(address) ? nullptr : &std::cerr);
  if (!metrics) {
    refuse_invitation(*lead, metrics.error());
    return {.exit_code = static_cast<int>(metrics.error().kind), .failed = metrics.error().message};
  }
  Node node(invitation,
            placement->process_of,
            std::move(lead),
            host,
            run_bounds(*blueprint, placement->process_of.size()));
  const auto served = *std::move(metrics);  // ends before the node, which it asks
  const bool joined = node.join(version(), placement->digest);
  if (joined) {
    if (served) {
      served->watch(&node);
    }
    Cast cast = make_cast(*blueprint);
    if (invitation.life > 0) {
      make_anew(cast, placement->process_of, invitation.process);
    }
    play(*blueprint, std::move(cast), node, served.get());
  }
  return {.again = node.begins_again().value_or(invitation.again),
          .failed = !joined                ? "the lead has not let it take part, or is gone"
                    : !node.begins_again() ? "the lead is gone, or has given this process up"
                                           : ""};
}

/// Standard input and output, which nobody else reads or writes from now on.
std::unique_ptr<ControlStream> standard_stream() {
  const int in = ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, kInherited);
  const int out = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, kInherited);
  const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  ::dup2(nothing, STDIN_FILENO);
  ::dup2(nothing, STDOUT_FILENO);
  ::close(nothing);
  return std::make_unique<DescriptorStream>(in, out);
}

/// What a node that listens does with a visitor.
class Host {
 public:
  Host(Console& console, const Credentials* credentials, const NodeOptions& options)
      : console_(console), credentials_(credentials), options_(options) {}

  /// In a process of its own.
  int play(const Visit& visit, const Seat& seat) const {
    end_with_the_starter();
    mind_the_lead_alone();
    const Patience patience{.until = visit.until};
    const std::string host = options_.address.empty() ? near_host(visit.socket) : options_.address;
    std::string who = visit.who;
    auto lead = stream_to(visit, patience, who);
    if (!lead) {
      return turn_away(who, lead.error().message);
    }
    const auto invitation = read_invitation(**lead, patience);
    if (!invitation) {
      return turn_away(who, "it has not sent the first message of a lead in time");
    }
    Result<void> fits = check_invitation(*invitation, version());
    if (fits) {
      fits = check_transport(
          *invitation, options_.transport, credentials_ != nullptr, options_.trusted_network);
    }
    if (fits && !seat.take()) {
      fits = Error{ErrorKind::lost, "this node plays another run now"};
    }
    if (!fits) {
      refuse_invitation(**lead, fits.error(), patience);
      return turn_away(who, fits.error().message);
    }
    fits = console_.prepare ? console_.prepare() : fits;
    if (!fits) {
      refuse_invitation(**lead, fits.error());
      return turn_away(who, fits.error().message);
    }
    tell(fill_in("a run of {} has begun, as process {} of {}",
                 who,
                 invitation->process,
                 invitation->processes));
    const Played played = play_part(*invitation, *std::move(lead), host);
    if (!played.failed.empty()) {
      tell(concat("the run of ", who, " has failed here: ", played.failed));
    }
    return played.again ? kMayBeginAgain : played.exit_code;
  }

 private:
  Result<std::unique_ptr<ControlStream>> stream_to(const Visit& visit,
                                                   const Patience& patience,
                                                   std::string& who) const {
    if (!credentials_) {
      return std::unique_ptr<ControlStream>(
          std::make_unique<DescriptorStream>(visit.socket, visit.socket));
    }
    auto stream = credentials_->welcome(visit.socket, patience);
    TROUPE_TRY(stream);
    who += concat(" (", (*stream)->peer(), ")");
    return std::unique_ptr<ControlStream>(*std::move(stream));
  }

  int turn_away(const std::string& who, const std::string& why) const {
    tell(concat("refused ", who, ": ", why));
    return kTurnedAway;
  }

  /// In one piece: others write there, too.
  void tell(const std::string& what) const {
    console_.err << "troupe: " + what + "\n" << std::flush;
  }

  Console& console_;
  const Credentials* credentials_;  // none: who comes is of this machine
  const NodeOptions& options_;
};

/// A lead, and what it wants of this process.
struct Invited {
  std::unique_ptr<ControlStream> lead;
  Invitation invitation;
};

/// Comes to the lead, which may not listen yet and is waited for so long. Where it hangs up before it has begun anything,
/// another process may have been lost at that moment, and all are to come again. Error where it begins no run with this
/// process.
Result<Invited> come_and_be_invited(Console& console,
                                    const Players& players,
                                    std::chrono::steady_clock::duration wait) {
  using Clock = std::chrono::steady_clock;
  const Ranks& ranks = *players.ranks;
  auto until = Clock::now() + wait;
  for (;;) {
    WaitingLine line(console.err, console.terminal);
    auto lead = come_to(ranks.lead,
                        ranks.rank,
                        ranks.processes,
                        players.credentials.get(),
                        {.until = until},
                        [&line](const std::string& why) { line(why); });
    TROUPE_TRY(lead);
    const auto came = Clock::now();
    if (auto invitation = read_invitation(**lead, {.until = came + kLeadMax})) {
      return Invited{*std::move(lead), *std::move(invitation)};
    }
    if (Clock::now() - came > kLeadAgainMax) {  // it may have waited for others
      until = Clock::now() + kLeadAgainMax;
    } else if (Clock::now() >= until) {
      return lost_error(
          "the lead at {} has not begun a run with process {}", ranks.lead.text(), ranks.rank);
    }
    until = std::min<Clock::time_point>(until, Clock::now() + kLeadAgainMax);
    std::this_thread::sleep_for(kComeAgain);
  }
}

/// Plays what a lead begins with this process, which is waited for so long. Error where none begins anything.
Result<Played> come_and_play(Console& console,
                             const Players& players,
                             std::chrono::steady_clock::duration wait) {
  const Ranks& ranks = *players.ranks;
  mind_signals();
  auto invited = come_and_be_invited(console, players, wait);
  TROUPE_TRY(invited);
  auto& [lead, invitation] = *invited;
  if (invitation.refusal) {
    return Error{invitation.refusal->kind,
                 concat("the lead at ", ranks.lead.text(), ": ", invitation.refusal->message)};
  }
  Result<void> fits = check_invitation(invitation, version());
  if (fits) {
    fits = check_transport(
        invitation, players.transport == Transport::ucx ? kUcx : kStreams, false, true);
  }
  if (!fits) {
    refuse_invitation(*lead, fits.error());
    return fits.error();
  }
  mind_the_lead_alone();
  const std::string host = near_host(lead->descriptor());
  return play_part(invitation, std::move(lead), host);
}

}  // namespace

Result<int> play_as_rank(Console& console, const Players& players) {
  auto played = come_and_play(console, players, kLeadMax);
  while (played && played->again) {
    played = come_and_play(console, players, kLeadAgainMax);
  }
  TROUPE_TRY(played);
  return played->exit_code;
}

Result<int> play_as_started() {
  end_with_the_starter();
  mind_the_lead_alone();
  auto lead = std::make_unique<DescriptorStream>(kInherited, kInherited);
  const auto invitation = read_invitation(*lead);
  if (!invitation) {
    return Error{ErrorKind::usage,
                 "node: name --listen HOST:PORT to wait for leads here (`troupe run --processes` "
                 "starts its own)"};
  }
  if (auto fits = check_invitation(*invitation, version()); !fits) {
    refuse_invitation(*lead, fits.error());
    return fits.error();
  }
  return play_part(*invitation, std::move(lead), "").exit_code;
}

Result<int> play_over_ssh() {
  mind_the_lead_alone();
  const char* const connection = std::getenv("SSH_CONNECTION");
  std::istringstream words(connection ? connection : "");
  std::string host;  // of the client, its port, of this end
  words >> host >> host >> host;
  if (!is_ip(host)) {
    return Error{ErrorKind::usage,
                 "node: --stdio is for ssh, whose SSH_CONNECTION tells the address of this host"};
  }
  auto lead = standard_stream();
  const auto invitation = read_invitation(*lead);
  if (!invitation) {
    return Error{ErrorKind::usage, "node: --stdio: stdin does not come from the lead of a run"};
  }
  if (auto fits = check_invitation(*invitation, version()); !fits) {
    refuse_invitation(*lead, fits.error());
    return fits.error();
  }
  return play_part(*invitation, std::move(lead), host).exit_code;
}

Result<int> play_for_visitors(Console& console, const NodeOptions& options) {
  const auto at = parse_address(options.listen);
  if (!at) {
    return Error{ErrorKind::usage, "--listen: " + at.error().message};
  }
  if (!options.address.empty() && !is_ip(options.address)) {
    return usage_error("--address: \"{}\" is no address as numbers", options.address);
  }
  std::optional<Credentials> credentials;
  if (!options.keys.empty()) {
    auto loaded = prefixed("--keys: ", Credentials::load(options.keys));
    TROUPE_TRY(loaded);
    credentials = *std::move(loaded);
  }
  const auto listening = prefixed(
      "--listen: ", listen_at(*at, credentials ? Nearness::anywhere : Nearness::this_machine));
  TROUPE_TRY(listening);
  console.err << "troupe: listening at " << near_address(*listening)
              << (credentials ? " as " + credentials->name() : "") << '\n'
              << std::flush;
  const Host host(console, credentials ? &*credentials : nullptr, options);
  return receive({.listening = *listening,
                  .once = options.once,
                  .play =
                      [&host](const Visit& visit, const Seat& seat) {
                        return host.play(visit, seat);
                      }},
                 console.err);
}

}  // namespace troupe
