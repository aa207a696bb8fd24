// How a lead's run begins.
#include "runtime/cluster/lead.hpp"
#include "runtime/system/theatre.hpp"
#include "wire.pb.h"

#include <unistd.h>

namespace troupe {
namespace {

using Clock = std::chrono::steady_clock;

Error lost(const std::string& what) {
  return {ErrorKind::lost, what};
}

}  // namespace

Patience Lead::patience() const {
  return {.until = Clock::now() + c_.limits.join, .given_up = [this] {
            return asked_to_stop() > 0;
          }};
}

/// Why process `number` does not take part.
Error Lead::not_joined(Member& member, int number, Talk how) {
  if (how == Talk::given_up) {
    return lost("interrupted before the run began");
  }
  if (how == Talk::late) {
    const std::chrono::duration<double> limit = c_.limits.join;
    return lost(concat("process ", number, " has not answered within ", limit.count(), " s"));
  }
  const std::string end = end_process(member.process);
  member.process.pid = -1;
  return lost(concat("process ", number, " ", end, " before the run began"));
}

Result<void> Lead::start() {
  for (int number = 1; number < c_.processes; ++number) {
    auto started = start_process(c_.program);
    if (!started) {
      return started.error();
    }
    members_[number].process = *started;
  }
  std::vector<std::map<int, std::string>> where(static_cast<std::size_t>(c_.processes));
  for (auto& [number, member] : members_) {
    if (auto invited = invite(member, number); !invited) {
      return invited.error();
    }
    where[static_cast<std::size_t>(number)][kLead] = channel_.listen(number, member.process.pid);
  }
  for (auto& [number, member] : members_) {
    if (auto joined = join(member, number, where); !joined) {
      return joined.error();
    }
  }
  for (auto& [number, member] : members_) {
    proto::Connect connect;
    for (const auto& [other, endpoint] : where[static_cast<std::size_t>(number)]) {
      (*connect.mutable_endpoints())[static_cast<std::uint32_t>(other)] = endpoint;
    }
    if (const Talk said = write_message(member.process.descriptor, connect, patience());
        said != Talk::done) {
      return not_joined(member, number, said);
    }
  }
  return {};
}

Result<void> Lead::invite(Member& member, int number) {
  proto::Join join;
  join.set_version(c_.version);
  join.set_process(static_cast<std::uint32_t>(number));
  join.set_processes(static_cast<std::uint32_t>(c_.processes));
  join.set_token(channel_.token());
  join.set_experiment(c_.experiment);
  join.set_resumes(c_.resumes);
  join.add_pids(static_cast<std::uint32_t>(::getpid()));
  for (const auto& [other, started] : members_) {
    join.add_pids(static_cast<std::uint32_t>(started.process.pid));
  }
  const Talk said = write_message(member.process.descriptor, join, patience());
  return said == Talk::done ? Result<void>() : not_joined(member, number, said);
}

/// The answer of process `number`; notes where the others find it.
Result<void> Lead::join(Member& member,
                        int number,
                        std::vector<std::map<int, std::string>>& where) {
  proto::Joined joined;
  if (const Talk said = read_message(member.process.descriptor, joined, patience());
      said != Talk::done) {
    return not_joined(member, number, said);
  }
  if (joined.exit_code() != 0) {
    return Error{static_cast<ErrorKind>(joined.exit_code()),
                 concat("process ", number, ": ", joined.refusal())};
  }
  if (joined.version() != c_.version || joined.cast() != c_.cast) {
    return lost(concat("process ",
                       number,
                       " is of version ",
                       joined.version(),
                       " and makes another cast of the experiment; this one is of version ",
                       c_.version));
  }
  for (const auto& [other, endpoint] : joined.endpoints()) {
    if (static_cast<int>(other) > number && static_cast<int>(other) < c_.processes) {
      where[other][number] = endpoint;
    }
  }
  return {};
}

Result<void> Lead::open(Theatre& theatre) {
  theatre_ = &theatre;
  for (auto& [number, member] : members_) {
    proto::Connect stands;
    if (const Talk said = read_message(member.process.descriptor, stands, patience());
        said != Talk::done) {
      if (said == Talk::given_up) {
        theatre.end({.exit_code = 130, .cause = "interrupted", .weights = {}});
      }
      return not_joined(member, number, said);
    }
  }
  theatre.start = Clock::now();
  proto::Begin begin;
  begin.set_at(theatre.before);
  begin.set_start_ns(
      std::chrono::duration_cast<std::chrono::nanoseconds>(theatre.start.time_since_epoch())
          .count());
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
    if (const Talk said = write_message(member.process.descriptor, begin, patience());
        said != Talk::done) {
      return not_joined(member, number, said);
    }
    events.watched.push_back(member.process.descriptor);
  }
  vigil_.emplace(c_.limits.silence, Clock::now());
  channel_.open(std::move(events));
  const auto ready = resumes() ? hand_out_states() : Result<void>();
  if (!ready) {
    theatre.end({.exit_code = 130, .cause = "interrupted", .weights = {}});
  }
  return ready;
}

}  // namespace troupe
