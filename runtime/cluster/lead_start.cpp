// How a lead's run begins.
#include "runtime/cluster/answer.hpp"
#include "runtime/cluster/lead.hpp"
#include "runtime/cluster/meeting.hpp"
#include "runtime/cluster/tcp.hpp"
#include "runtime/cluster/tls.hpp"
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

Patience Lead::patience() const {
  return {.until = Clock::now() + c_.limits.join, .given_up = [this, since = Clock::now()] {
            if (c_.waiting && missing_ > 0 && Clock::now() - since >= kWaitsUntold) {
              c_.waiting("waiting for " + name_of(missing_));
            }
            return closed_ || asked_to_stop() > 0;
          }};
}

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

Result<StartedProcess> Lead::summon(int number) {
  if (c_.meeting) {
    auto arrived = c_.meeting->await(number, patience());
    TROUPE_TRY(arrived);
    const std::lock_guard lock(names_mutex_);
    come_from_[number] = arrived->where;
    return StartedProcess{.stream = std::move(arrived->stream)};
  }
  if (c_.hosts.empty()) {
    return start_process(c_.program);
  }
  const HostPlace& place = c_.hosts.at(static_cast<std::size_t>(number - 1));
  return place.address.port > 0 ? reach(place) : start_over_ssh(place.address.host, place.program);
}

/// A node that listens.
Result<StartedProcess> Lead::reach(const HostPlace& place) const {
  Patience patience = this->patience();
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
Error Lead::not_joined(Member& member, int number, Talk how) {
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
                           end(member, kToSayWhy),
                           member.newcomer ? " before it took part" : " before the run began",
                           bare ? "; where that node has --keys, name --keys here, too" : ""));
}

Result<void> Lead::start() {
  for (int number = 1; number < c_.processes; ++number) {
    missing_ = number;
    auto started = summon(number);
    if (!started) {
      return asked_to_stop() > 0 ? start_lost("interrupted before the run began") : started.error();
    }
    members_[number].process = *std::move(started);
  }
  if (c_.meeting) {
    c_.meeting->begin();
  }
  for (auto& [number, member] : members_) {
    missing_ = number;
    member.patience = patience();
    TROUPE_TRY(invite(member, number, 0));
  }
  std::vector<proto::Connect> where(static_cast<std::size_t>(c_.processes));
  for (auto& [number, member] : members_) {
    missing_ = number;
    TROUPE_TRY(join(member, number, number, where));
  }
  for (auto& [number, member] : members_) {
    missing_ = number;
    TROUPE_TRY(tell_where(member, number, where));
  }
  for (const auto& [number, endpoint] : where[kLead].endpoints()) {
    const auto key = where[kLead].keys().find(number);
    channel_.connect(
        static_cast<int>(number), endpoint, key == where[kLead].keys().end() ? "" : key->second);
  }
  missing_ = 0;
  return {};
}

/// Where process `number` finds the others.
Result<void> Lead::tell_where(Member& member,
                              int number,
                              const std::vector<proto::Connect>& where) {
  proto::Connect connect = where[static_cast<std::size_t>(number)];
  *connect.mutable_keys() = where[kLead].keys();
  if (on_hosts()) {
    (*connect.mutable_keys())[kLead] = channel_.public_key();
  }
  const Talk said = write_message(*member.process.stream, connect, member.patience);
  return said == Talk::done ? Result<void>() : not_joined(member, number, said);
}

/// `life`: more than 0 where it takes the place of one that was lost, and speaks with the lead alone.
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
  join.set_again(c_.again || c_.was_lost);
  if (!on_hosts()) {
    join.add_pids(static_cast<std::uint32_t>(::getpid()));
    for (const auto& [other, started] : members_) {
      join.add_pids(life == 0 ? static_cast<std::uint32_t>(started.process.pid) : 0);
    }
  }
  const Talk said = write_message(*member.process.stream, join, member.patience);
  return said == Talk::done ? Result<void>() : not_joined(member, number, said);
}

/// The answer of process `number`, which speaks with those below `peers`; notes where the others find it, in where[kLead] its key.
Result<void> Lead::join(Member& member, int number, int peers, std::vector<proto::Connect>& where) {
  proto::Joined joined;
  if (const Talk said = read_message(*member.process.stream, joined, member.patience);
      said != Talk::done) {
    return not_joined(member, number, said);
  }
  const Result<void> believed = check_answer(joined,
                                             {.number = number,
                                              .peers = peers,
                                              .name = name_of(number),
                                              .version = c_.version,
                                              .cast = c_.cast,
                                              .on_hosts = on_hosts()});
  if (!believed) {
    return believed;
  }
  for (const auto& [other, endpoint] : joined.endpoints()) {
    if (other < static_cast<std::uint32_t>(number)) {
      (*where[other].mutable_endpoints())[static_cast<std::uint32_t>(number)] = endpoint;
    }
  }
  if (on_hosts()) {
    (*where[kLead].mutable_keys())[static_cast<std::uint32_t>(number)] = joined.key();
  }
  return {};
}

/// What its clock shows when this one's shows zero: between hosts CLOCK_MONOTONIC is not shared. Of many round
/// trips the shortest tells best: it is wrong by half of it at most (Cristian 1989).
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
      return not_joined(member, number, said);
    }
    if (told.now_ns() < 0 || told.now_ns() > std::numeric_limits<std::int64_t>::max() / 2) {
      return start_lost(concat(name_of(number), " tells a time that no clock shows"));
    }
    const nanoseconds took = Clock::now() - asked;
    if (took < shortest) {
      shortest = took;
      ahead = nanoseconds(told.now_ns()) - asked.time_since_epoch() - took / 2;
    }
  }
  return ahead;
}

/// Until the machines of process `number` stand; how far its clock is ahead.
Result<std::chrono::nanoseconds> Lead::await_stand(Member& member, int number) {
  proto::Connect stands;
  const Talk said = read_message(*member.process.stream, stands, member.patience);
  return said == Talk::done ? clock_of(member, number)
                            : Result<std::chrono::nanoseconds>(not_joined(member, number, said));
}

Result<void> Lead::begin(Member& member, int number, std::chrono::nanoseconds ahead) {
  proto::Begin begin;
  begin.set_at(theatre_->before + theatre_->put_forward);
  begin.set_start_ns(std::chrono::nanoseconds(theatre_->start.time_since_epoch() + ahead).count());
  const Talk said = write_message(*member.process.stream, begin, member.patience);
  return said == Talk::done ? Result<void>() : not_joined(member, number, said);
}

Result<void> Lead::open(Theatre& theatre) {
  theatre_ = &theatre;
  std::map<int, std::chrono::nanoseconds> ahead;
  for (auto& [number, member] : members_) {
    missing_ = number;
    member.patience = patience();
    const auto clock = await_stand(member, number);
    if (!clock && asked_to_stop() > 0) {
      theatre.end({.exit_code = 130, .cause = "interrupted", .weights = {}});
    }
    TROUPE_TRY(clock);
    ahead[number] = *clock;
  }
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
  for (auto& [number, member] : members_) {
    missing_ = number;
    TROUPE_TRY(begin(member, number, ahead[number]));
    events.watched.push_back(member.process.stream->descriptor());
  }
  missing_ = 0;
  vigil_.emplace(c_.limits.silence, Clock::now());
  standing_ =
      resumes();  // until go_on(): all wait for what they begin with, and nobody else is let in
  standing_since_ = Clock::now();
  channel_.open(std::move(events));
  const auto ready = resumes() ? hand_out_states() : Result<void>();
  if (!ready) {
    theatre.end({.exit_code = 130, .cause = "interrupted", .weights = {}});
  }
  return ready;
}

}  // namespace troupe
