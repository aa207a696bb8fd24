#include "apps/topologies/placement.hpp"

#include "apps/topologies/checks.hpp"
#include "apps/topologies/copies.hpp"
#include "apps/topologies/exchange.hpp"
#include "apps/topologies/hogwild.hpp"
#include "apps/topologies/partners.hpp"
#include "apps/topologies/placement_names.hpp"
#include "apps/topologies/roster.hpp"
#include "apps/topologies/seats.hpp"
#include "experiment/pipeline.pb.h"
#include "experiment/run.pb.h"
#include "kernels/sequences.hpp"
#include "kernels/wording.hpp"
#include "messages/sections.hpp"
#include "runtime/record/sha256.hpp"
#include "runtime/schemes/exchanges/all_reduce.hpp"

#include <algorithm>
#include <map>

namespace troupe {
namespace {

Error refused(const std::string& why) {
  return {ErrorKind::usage, "--processes: " + why};
}

/// Where the households of a run play, which all others follow.
class Seating {
 public:
  Seating(const Blueprint& b, const Roster& who, int processes, PlacementNames& named)
      : b_(b), who_(who), processes_(processes) {
    const Seats seats(replicas(), stages(), processes);
    for (const Roster::Household& household : who.households()) {
      const auto number = static_cast<std::int32_t>(seats_.size());
      const bool of_stage = number < replicas() * stages();
      if (household.seats.size() > 1 && processes > 1) {
        add_copies(household, named);
      } else {
        const int otherwise = of_stage ? seats.of(number / stages(), number % stages()) : 0;
        seats_.push_back({named.of(household.name).value_or(otherwise)});
      }
    }
  }

  int of(std::int32_t r, std::int32_t k) const {
    return seats_[static_cast<std::size_t>(r * stages() + k)].front();
  }

  /// By household and copy; one process has all copies.
  const std::vector<std::vector<int>>& seats() const { return seats_; }

  /// What is wrong with where copies play, or "".
  std::string wrong_copies() const;

  /// The process that plays all of replica `r`; -1: several do.
  int whole(std::int32_t r) const {
    const int first = of(r, 0);
    for (std::int32_t k = 1; k < stages(); ++k) {
      if (of(r, k) != first) {
        return -1;
      }
    }
    return first;
  }

  /// The process that plays all replicas of group `g`; `otherwise`: several do.
  int of_group(std::int32_t g, int otherwise) const {
    int process = -1;
    for (std::int32_t r = 0; r < replicas(); ++r) {
      if (group_of(b_.experiment, r) == g) {
        process = process < 0 || process == whole(r) ? whole(r) : -1;
        if (process < 0) {
          return otherwise;
        }
      }
    }
    return process;
  }

  /// No replica has several processes, and all servers are the lead's.
  bool whole_replicas() const {
    for (std::int32_t r = 0; r < replicas(); ++r) {
      if (whole(r) < 0) {
        return false;
      }
    }
    return std::all_of(seats_.begin() + replicas() * stages(),
                       seats_.end(),
                       [](const auto& copies) { return copies.front() == 0; });
  }

  /// A process other than the lead that has nothing to play; -1: none.
  int idle() const {
    for (int p = 1; p < processes_; ++p) {
      if (std::ranges::none_of(
              seats_, [p](const auto& copies) { return std::ranges::count(copies, p) > 0; })) {
        return p;
      }
    }
    return -1;
  }

  /// "process 0 plays replica 0 and the servers, 1 replicas 1-2"
  std::string words() const;

 private:
  std::int32_t replicas() const {
    return static_cast<std::int32_t>(sections::replica_count(b_.experiment));
  }

  std::int32_t stages() const { return b_.schedule->options.stages; }

  const std::string& name(ActorId id) const { return who_.entries()[id].name; }

  /// Of household `h`, in words.
  std::string copy_name(std::size_t h, std::size_t copy) const {
    return name(who_.households()[h].seats[copy].front());
  }

  std::string part_of(int process) const;
  void add_copies(const Roster::Household& household, PlacementNames& named);
  std::vector<std::string> servers_of(int process) const;

  const Blueprint& b_;
  const Roster& who_;
  int processes_;
  std::vector<std::vector<int>> seats_;  // by household and copy
  std::size_t dealt_ = 0;                // households that have copies
};

/// Dealt over the processes but the lead, each to one that has none of the others.
void Seating::add_copies(const Roster::Household& household, PlacementNames& named) {
  std::vector<int>& of = seats_.emplace_back();
  for (const std::vector<ActorId>& seat : household.seats) {
    of.push_back(named.of(name(seat.front())).value_or(-1));
  }
  const auto others = static_cast<std::size_t>(processes_ - 1);
  for (std::size_t copy = 0; copy < of.size(); ++copy) {
    for (std::size_t i = 0; i < others && of[copy] < 0; ++i) {
      const int process = 1 + static_cast<int>((dealt_ + copy + i) % others);
      of[copy] = std::count(of.begin(), of.end(), process) == 0 ? process : -1;
    }
  }
  ++dealt_;
}

std::string Seating::wrong_copies() const {
  for (std::size_t h = 0; h < seats_.size(); ++h) {
    std::map<int, std::string> taken;
    for (std::size_t copy = 0; seats_[h].size() > 1 && copy < seats_[h].size(); ++copy) {
      const int process = seats_[h][copy];
      const std::string what = copy_name(h, copy);
      if (process < 0) {
        return fill_in(
            "placement.copies: {} copies of {} need {} processes besides the first, with "
            "which the run is lost anyhow; there are fewer",
            seats_[h].size(),
            who_.households()[h].name,
            seats_[h].size());
      }
      if (process == 0) {
        return "placement.on: " + what +
               " is one of several copies (placement.copies), and process 0, with which the run is "
               "lost anyhow, needs none; name another process";
      }
      if (const auto [other, first] = taken.emplace(process, what); !first) {
        return fill_in(
            "placement.on: {} and {} would both be lost with process {}; copies of one stage or "
            "server (placement.copies) play in different processes",
            other->second,
            what,
            process);
      }
    }
  }
  return "";
}

/// "replicas 0-1, 3" of numbers that ascend.
std::string spans(const std::string& what, const std::vector<std::int32_t>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) {
      ++last;
    }
    text += i > 0 ? concat(", ", numbers[i]) : concat(numbers[i]);
    text += last > i ? concat('-', numbers[last]) : "";
    i = last + 1;
  }
  return concat(what, numbers.size() > 1 ? "s " : " ", text);
}

/// What `process` plays.
std::string Seating::part_of(int process) const {
  std::vector<std::string> parts;
  std::vector<std::int32_t> wholes;
  for (std::int32_t r = 0; r < replicas(); ++r) {
    if (replicas() > 1 && whole(r) == process) {
      wholes.push_back(r);
    }
  }
  if (!wholes.empty()) {
    parts.push_back(spans("replica", wholes));
  }
  for (std::int32_t r = 0; r < replicas(); ++r) {
    std::vector<std::int32_t> some;
    for (std::int32_t k = 0; k < stages(); ++k) {
      if (of(r, k) == process && (replicas() == 1 || whole(r) < 0)) {
        some.push_back(k);
      }
    }
    if (!some.empty()) {
      parts.push_back(spans("stage", some) + (replicas() > 1 ? concat(" of replica ", r) : ""));
    }
  }
  const std::vector<std::string> servers = servers_of(process);
  parts.insert(parts.end(), servers.begin(), servers.end());
  return parts.empty() ? "no more than the director" : listed(parts, " and ");
}

/// And of further copies.
std::vector<std::string> Seating::servers_of(int process) const {
  const auto stages = static_cast<std::size_t>(replicas() * this->stages());
  const auto of_copy = [&](std::size_t from, std::size_t to, std::size_t copy) {
    std::vector<std::string> names;
    for (std::size_t h = from; h < to; ++h) {
      if (copy < seats_[h].size() && seats_[h][copy] == process) {
        names.push_back(copy_name(h, copy));
      }
    }
    return names;
  };
  const std::size_t servers = seats_.size() - stages;
  std::size_t most = 0;
  for (const std::vector<int>& copies : seats_) {
    most = std::max(most, copies.size());
  }
  std::vector<std::string> all;
  for (std::size_t copy = 0; copy < most; ++copy) {
    std::vector<std::string> names = of_copy(stages, seats_.size(), copy);
    if (names.size() == servers && servers > 0) {
      names = {copy == 0 ? "the servers" : concat("copy ", copy, " of the servers")};
    }
    if (copy > 0) {
      const std::vector<std::string> further = of_copy(0, stages, copy);
      all.insert(all.end(), further.begin(), further.end());
    }
    all.insert(all.end(), names.begin(), names.end());
  }
  return all;
}

std::string Seating::words() const {
  std::string words;
  for (int p = 0; p < processes_; ++p) {
    words += concat(p == 0 ? "process " : ", ", p, p == 0 ? " plays " : " ", part_of(p));
  }
  return words;
}

/// Puts every machine where its stage or server is.
void seat_all(const Blueprint& b, const Roster& who, const Seating& seating, Placement& placement) {
  auto& process_of = placement.process_of;
  for (std::size_t h = 0; h < who.households().size(); ++h) {
    const auto& copies = who.households()[h].seats;
    const std::vector<int>& seats = seating.seats()[h];
    for (std::size_t copy = 0; copy < copies.size(); ++copy) {
      for (const ActorId id : copies[copy]) {
        process_of[id] = copy < seats.size() ? seats[copy] : seats.front();
      }
    }
  }
  for (std::int32_t c = 0; b.link && c < b.schedule->chunks; ++c) {
    for (std::size_t s = 0; s < who.servers(c).size(); ++s) {
      for (std::size_t g = 0; g < who.groups(c, s).size(); ++g) {
        const Roster::GroupSeat& seat = who.groups(c, s)[g];
        const ActorId server = who.servers(c)[s].id;
        // Of several copies none is where the run is lost anyhow: what has no copy would make it lost there, too.
        const int otherwise = who.copies_of(server).size() > 1 ? 0 : process_of[server];
        const int process = seating.of_group(static_cast<std::int32_t>(g), otherwise);
        process_of[seat.server.id] = process;
        process_of[seat.optimizer.id] = process;
      }
    }
  }
}

std::string digest_of(const Roster& who, const std::vector<int>& process_of) {
  Sha256 digest;
  for (std::size_t id = 0; id < who.entries().size(); ++id) {
    const Roster::Entry& entry = who.entries()[id];
    const std::string line = concat(entry.name, ' ', entry.thread, ' ', process_of[id], '\n');
    digest.update(line.data(), line.size());
  }
  return digest.finish();
}

}  // namespace

InOneProcess plays_in_one_process(const proto::Experiment& e) {
  if (is_sparse_hogwild(e) || shared_by(e) == Shared::buffer) {
    return {"the replicas of hogwild share a buffer in the memory of one process",
            "choose another replicas.exchange"};
  }
  if (shared_by(e) == Shared::own) {
    return {exchange_of(e).info.name + " plays in one process", "choose another replicas.exchange"};
  }
  if (sections::extension(e).has_custom()) {
    return {"the machines of an extension share memory with those that they overhear",
            "leave the extension out"};
  }
  if (sections::record(e).angle_every() > 0) {
    return {"what measures angles is shown weights in the memory of one process",
            "set record.angle_every=0"};
  }
  return {};
}

Result<Placement> place(const Blueprint& b, int processes) {
  const proto::Experiment& e = b.experiment;
  if (const InOneProcess alone = plays_in_one_process(e); !alone.why.empty()) {
    return refused(alone.why + "; leave --processes out, or " + alone.instead);
  }
  const auto replicas = static_cast<std::int32_t>(sections::replica_count(e));
  const std::int32_t stages = b.schedule->options.stages;
  auto named = PlacementNames::on(e);
  TROUPE_TRY(named);
  if (named->empty() && copies_words(e).empty() && !Seats(replicas, stages, processes).fit()) {
    return refused(fill_in(
        "{} are more than this run has places for: {} x {} (replicas x stages); name at most {}",
        processes,
        replicas,
        stages,
        replicas * stages));
  }
  const Roster who(b);
  const Seating seating(b, who, processes, *named);
  if (const std::string why = seating.wrong_copies(); !why.empty()) {
    return Error{ErrorKind::usage, why};
  }
  Placement placement{.process_of = std::vector<int>(who.entries().size(), 0),
                      .words = seating.words(),
                      .whole_replicas = seating.whole_replicas()};
  seat_all(b, who, seating, placement);
  TROUPE_TRY(check_gpus_apart(b, who, placement.process_of));
  std::vector<PlacementNames::Other> all;
  for (std::size_t id = 0; id < who.entries().size(); ++id) {
    all.push_back({who.entries()[id].name, placement.process_of[id]});
  }
  TROUPE_TRY(named->check(processes, all));
  if (const int idle = seating.idle(); idle >= 0) {
    return Error{ErrorKind::usage,
                 fill_in("placement.on: process {} of {} has no stage and no server; name fewer "
                         "processes, or what it plays",
                         idle,
                         processes)};
  }
  for (const Roster::Household& household : who.households()) {
    if (household.seats.size() > 1) {
      std::set<int>& having = placement.alike.emplace_back();
      for (const std::vector<ActorId>& seats : household.seats) {
        having.insert(placement.process_of[seats.front()]);
      }
    }
  }
  if (sections::pipeline(e).width() > 1 && has_mixture(e)) {
    // Each part routes by itself: near a tie another rounding would choose another expert.
    placement.alike.emplace_back(placement.process_of.begin(), placement.process_of.end());
  }
  placement.partners = partners(b, who, placement.process_of, processes);
  placement.digest = digest_of(who, placement.process_of);
  return placement;
}

}  // namespace troupe
