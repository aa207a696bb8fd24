// How a lead's run begins.
#include "runtime/cluster/answer.hpp"
#include "runtime/cluster/lead.hpp"
#include "runtime/cluster/meeting.hpp"
#include "runtime/cluster/tcp.hpp"
#include "runtime/cluster/tls.hpp"
#include "runtime/cluster/ucx_plane.hpp"
#include "runtime/system/theatre.hpp"
#include "wire.pb.h"

#include <unistd.h>

#include <limits>

namespace troupe {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRoundTrips = 16;  // to read the clock of another host
constexpr double kToSayWhy = 1;  // seconds, of a process that has hung up

Error start_lost(const std::string& what) {
  return {ErrorKind::lost, what};
}

}  // namespace

/// "process 1", "process 1 on beta:7000"
std::string Lead::name_of(int number) const {
  const auto at = static_cast<std::size_t>(number - 1);
  const std::lock_guard lock(names_mutex_);
  const auto come = come_from_.find(number);
  const std::string where = at < c_.hosts.size()       ? c_.hosts[at].text()
                            : come != come_from_.end() ? come->second
                                                       : "";
  return concat("process ", number, where.empty() ? "" : " on ", where);
}

/// Whether the lead connects to the node of process `number`.
bool Lead::listens(int number) const {
  return !c_.meeting && !c_.hosts.empty() &&
         c_.hosts.at(static_cast<std::size_t>(number - 1)).address.port > 0;
}

/// Starts process `number`, connects to its node, or waits until it comes by itself.
Result<StartedProcess> Lead::obtain_process(int number, const Patience& patience) {
  if (c_.meeting) {
    auto arrived = c_.meeting->await(number, patience);
    TROUPE_TRY(arrived);
    const std::lock_guard lock(names_mutex_);
    come_from_[number] = arrived->where;
    return StartedProcess{.stream = std::move(arrived->stream)};
  }
  if (c_.hosts.empty()) {
    return start_process(c_.program);
  }
  const HostPlace& place = c_.hosts.at(static_cast<std::size_t>(number - 1));
  return listens(number) ? connect_to_node(place, patience)
                         : start_over_ssh(place.address.host, place.program);
}

/// Connects to a node that listens.
Result<StartedProcess> Lead::connect_to_node(const HostPlace& place, Patience patience) const {
  patience.until = Clock::now() + c_.limits.reach;
  const Nearness within_reach = c_.credentials ? Nearness::anywhere : Nearness::this_machine;
  const auto socket = connect_to(place.address, within_reach, patience);
  TROUPE_TRY(socket);
  StartedProcess reached;
  if (!c_.credentials) {
    reached.stream = std::make_unique<DescriptorStream>(*socket, *socket);
    return reached;
  }
  auto stream = c_.credentials->greet(*socket, place.address.host, patience);
  if (!stream) {
    return start_lost(concat(place.text(), " is not believed: ", stream.error().message));
  }
  reached.stream = *std::move(stream);
  return reached;
}

/// Why process `number` does not take part.
Error Lead::why_not_joined(Member& member, int number, Talk how) {
  if (how == Talk::given_up) {
    return start_lost("interrupted before the run began");
  }
  if (how == Talk::late) {
    const std::chrono::duration<double> limit = c_.limits.join;
    return start_lost(concat(name_of(number), " has not answered within ", limit.count(), " s"));
  }
  const bool bare = on_hosts() && !c_.credentials && member.process.pid < 0;
  return start_lost(concat(name_of(number),
                           " ",
                           end_process_of(member, kToSayWhy),
                           member.newcomer ? " before it took part" : " before the run began",
                           bare ? "; where that node has --keys, name --keys here, too" : ""));
}

Result<void> Lead::start() {
  for (int number = 1; number < c_.processes; ++number) {
    members_.try_emplace(number);
  }
  const auto obtain = [this](int number, Member& member) -> Result<void> {
    auto started = obtain_process(number, member.patience);
    TROUPE_TRY(started);
    member.process = *std::move(started);
    return {};
  };
  be_patient();
  // What is started here ends with the thread that has started it.
  TROUPE_TRY(for_all(1, false, [&](int number, Member& member) {
    return listens(number) ? Result<void>() : obtain(number, member);
  }));
  TROUPE_TRY(for_all(at_once(), true, [&](int number, Member& member) {
    return listens(number) ? obtain(number, member) : Result<void>();
  }));
  if (c_.meeting) {
    c_.meeting->begin();
  }
  be_patient();
  std::vector<proto::Connect> where(static_cast<std::size_t>(c_.processes));
  TROUPE_TRY(
      for_all(1, false, [&](int number, Member& member) { return invite(member, number, 0); }));
  TROUPE_TRY(
      for_all(1, false, [&](int number, Member& member) { return join(member, number, where); }));
  TROUPE_TRY(for_all(
      1, false, [&](int number, Member& member) { return tell_endpoints(member, number, where); }));
  channel_.make_room(c_.processes - 1);
  for (const auto& [number, endpoint] : where[kLead].endpoints()) {
    const auto key = where[kLead].keys().find(number);
    channel_.connect(static_cast<int>(number),
                     endpoint,
                     key == where[kLead].keys().end() ? "" : key->second,
                     members_.at(static_cast<int>(number)).process.pid);
  }
  return {};
}

/// Tells process `number` where it finds the others.
Result<void> Lead::tell_endpoints(Member& member,
                                  int number,
                                  const std::vector<proto::Connect>& where) {
  proto::Connect connect = where[static_cast<std::size_t>(number)];
  for (const auto& [other, key] : where[kLead].keys()) {
    if (are_partners(number, static_cast<int>(other))) {
      (*connect.mutable_keys())[other] = key;
    }
  }
  if (on_hosts()) {
    (*connect.mutable_keys())[kLead] = channel_.public_key();
  }
  const Talk said = write_message(*member.process.stream, connect, member.patience);
  return said == Talk::done ? Result<void>() : why_not_joined(member, number, said);
}

bool Lead::are_partners(int one, int other) const {
  return c_.partners.empty() ||
         c_.partners.at(static_cast<std::size_t>(one)).at(static_cast<std::size_t>(other));
}

/// Asks a process to take part. `life`: 0 when the run begins; more for a newcomer, which speaks with the lead alone.
Result<void> Lead::invite(Member& member, int number, std::uint32_t life) {
  proto::Join join;
  join.set_version(c_.version);
  join.set_protocol(kWireProtocol);
  join.set_process(static_cast<std::uint32_t>(number));
  join.set_processes(static_cast<std::uint32_t>(c_.processes));
  join.set_token(channel_.token());
  join.set_experiment(c_.experiment);
  join.set_resumes(c_.resumes && life == 0);
  join.set_life(life);
  join.set_ucx(c_.transport == Transport::ucx ? ucx_version() : "");
  member.listens_for = {kLead};
  for (int other = 1; life == 0 && other < number; ++other) {
    if (are_partners(number, other)) {
      member.listens_for.push_back(other);
    }
  }
  join.mutable_partners()->Assign(member.listens_for.begin(), member.listens_for.end());
  join.set_again(c_.may_restart || c_.is_restart);
  join.mutable_groups()->Assign(c_.groups.begin(), c_.groups.end());
  if (!on_hosts()) {
    join.add_pids(static_cast<std::uint32_t>(::getpid()));
    for (const auto& [other, started] : members_) {
      join.add_pids(life == 0 ? static_cast<std::uint32_t>(started.process.pid) : 0);
    }
  }
  const Talk said = write_message(*member.process.stream, join, member.patience);
  return said == Talk::done ? Result<void>() : why_not_joined(member, number, said);
}

/// Of those that must compute as process `number` does; empty: none of them is known yet.
std::string Lead::instructions_like(int number) const {
  for (const std::set<int>& alike : c_.alike) {
    for (const auto& [other, instructions] : instructions_) {
      if (other != number && alike.contains(number) && alike.contains(other)) {
        return instructions;
      }
    }
  }
  return "";
}

/// Reads the answer to invite(). Notes in `where` the endpoints of process `number`, and its key in where[kLead].
Result<void> Lead::join(Member& member, int number, std::vector<proto::Connect>& where) {
  proto::Joined joined;
  if (const Talk said = read_message(*member.process.stream, joined, member.patience);
      said != Talk::done) {
    return why_not_joined(member, number, said);
  }
  const Result<void> believed = check_answer(joined,
                                             {.partners = member.listens_for,
                                              .name = name_of(number),
                                              .version = c_.version,
                                              .cast = c_.cast,
                                              .on_hosts = on_hosts(),
                                              .instructions = instructions_like(number)});
  if (!believed) {
    return believed;
  }
  instructions_[number] = joined.instructions();
  for (const int other : member.listens_for) {
    (*where[static_cast<std::size_t>(other)]
          .mutable_endpoints())[static_cast<std::uint32_t>(number)] =
        joined.endpoints().at(static_cast<std::uint32_t>(other));
  }
  if (on_hosts()) {
    (*where[kLead].mutable_keys())[static_cast<std::uint32_t>(number)] = joined.key();
  }
  return {};
}

/// How far its clock is ahead of this one's: hosts do not share CLOCK_MONOTONIC. The shortest of several round trips gives
/// the best estimate, which is wrong by at most half of that trip (Cristian 1989).
Result<std::chrono::nanoseconds> Lead::clock_of(Member& member, int number) {
  using std::chrono::nanoseconds;
  nanoseconds ahead{0};
  if (!on_hosts()) {
    return ahead;
  }
  nanoseconds shortest = nanoseconds::max();
  proto::Begin ask;
  ask.set_tell_clock(true);
  for (int i = 0; i < kRoundTrips; ++i) {
    proto::ClockTold told;
    const auto asked = Clock::now();
    Talk said = write_message(*member.process.stream, ask, member.patience);
    if (said == Talk::done) {
      said = read_message(*member.process.stream, told, member.patience);
    }
    if (said != Talk::done) {
      return why_not_joined(member, number, said);
    }
    if (told.now_ns() < 0 || told.now_ns() > std::numeric_limits<std::int64_t>::max() / 2) {
      return start_lost(concat(name_of(number), " reports an impossible time of its clock"));
    }
    const nanoseconds took = Clock::now() - asked;
    if (took < shortest) {
      shortest = took;
      ahead = nanoseconds(told.now_ns()) - asked.time_since_epoch() - took / 2;
    }
  }
  return ahead;
}

/// Waits until process `number` has made its machines. Returns how far its clock is ahead.
Result<std::chrono::nanoseconds> Lead::await_machines(Member& member, int number) {
  proto::Connect stands;
  const Talk said = read_message(*member.process.stream, stands, member.patience);
  return said == Talk::done
             ? clock_of(member, number)
             : Result<std::chrono::nanoseconds>(why_not_joined(member, number, said));
}

Result<void> Lead::begin(Member& member, int number, std::chrono::nanoseconds ahead) {
  proto::Begin begin;
  begin.set_at(theatre_->before + theatre_->put_forward);
  begin.set_start_ns(std::chrono::nanoseconds(theatre_->start.time_since_epoch() + ahead).count());
  const Talk said = write_message(*member.process.stream, begin, member.patience);
  return said == Talk::done ? Result<void>() : why_not_joined(member, number, said);
}

Result<void> Lead::open(Theatre& theatre) {
  theatre_ = &theatre;
  std::vector<std::chrono::nanoseconds> ahead(static_cast<std::size_t>(c_.processes));
  be_patient();
  const auto stand = for_all(at_once(), false, [&](int number, Member& member) -> Result<void> {
    const auto clock = await_machines(member, number);
    TROUPE_TRY(clock);
    ahead[static_cast<std::size_t>(number)] = *clock;
    return {};
  });
  if (!stand && asked_to_stop() > 0) {
    theatre.end({.exit_code = 130, .cause = "interrupted", .weights = {}});
  }
  TROUPE_TRY(stand);
  theatre.start = Clock::now();
  Channel::Events events{.parcel = [this](int from, Parcel parcel) { on(from, std::move(parcel)); },
                         .broken =
                             [this](int from, const std::string& why) {
                               lose(from, "said what cannot be believed: " + why);
                             },
                         .failed = [this](const std::string& why) { fail(why); },
                         .tick = [this] { tick(); },
                         .readable =
                             [this](int descriptor) {
                               readable(descriptor);
                             }};
  TROUPE_TRY(for_all(1, false, [&](int number, Member& member) {
    events.watched.push_back(member.process.stream->descriptor());
    return begin(member, number, ahead[static_cast<std::size_t>(number)]);
  }));
  vigil_.emplace(c_.limits.silence, Clock::now());
  halted_ = resumes();  // then all machines wait for their state first
  halted_since_ = Clock::now();
  channel_.open(std::move(events));
  const auto ready = resumes() ? hand_out_states() : Result<void>();
  if (!ready) {
    theatre.end({.exit_code = 130, .cause = "interrupted", .weights = {}});
  }
  return ready;
}

}  // namespace troupe
