#include "apps/topologies/placement.hpp"

#include "apps/topologies/hogwild.hpp"
#include "apps/topologies/placement_names.hpp"
#include "apps/topologies/roster.hpp"
#include "apps/topologies/seats.hpp"
#include "experiment.pb.h"
#include "kernels/wording.hpp"
#include "runtime/record/sha256.hpp"
#include "runtime/schemes/exchanges/all_reduce.hpp"

#include <algorithm>
#include <map>

namespace troupe {
namespace {

Error refused(const std::string& why) {
  return {ErrorKind::usage, "--processes: " + why};
}

/// Why an experiment cannot be played by several processes, or "".
std::string obstacle(const proto::Experiment& e) {
  if (is_sparse_hogwild(e) || shared_by(e) == Shared::buffer) {
    return "the replicas of hogwild share a buffer in the memory of one process; leave --processes "
           "out, or choose another replicas.exchange";
  }
  if (shared_by(e) == Shared::own) {
    return exchange_of(e).info.name +
           " plays in one process; leave --processes out, or choose another replicas.exchange";
  }
  if (sums_in_group(e)) {
    return "replicas.exchange.synchronous.reduction nccl adds up between the GPUs of one process; "
           "leave --processes out, or choose ring or tree";
  }
  if (e.extension().has_custom()) {
    return "the machines of an extension share memory with those that they overhear; leave "
           "--processes or the extension out";
  }
  if (e.record().angle_every() > 0) {
    return "what measures angles is shown weights in the memory of one process; leave --processes "
           "out, or set record.angle_every=0";
  }
  return "";
}

/// Where the stages and servers of a run play, which all others follow.
class Seating {
 public:
  Seating(const Blueprint& b, const Roster& who, int processes, PlacementNames& named)
      : b_(b), who_(who), processes_(processes) {
    const Seats seats(replicas(), stages(), processes);
    for (std::int32_t r = 0; r < replicas(); ++r) {
      for (std::int32_t k = 0; k < stages(); ++k) {
        stages_.push_back(
            named.of(name(who.stages(r)[static_cast<std::size_t>(k)].id)).value_or(seats.of(r, k)));
      }
    }
    for (std::int32_t c = 0; b.link && c < b.schedule->chunks; ++c) {
      for (std::size_t s = 0; s < who.servers(c).size(); ++s) {
        add_server(c, s, named);
      }
    }
  }

  int of(std::int32_t r, std::int32_t k) const {
    return stages_[static_cast<std::size_t>(r * stages() + k)];
  }

  const std::vector<int>& servers() const { return servers_; }

  /// By server and copy, the first of which is the server itself; empty where it has no other.
  const std::vector<std::vector<int>>& copies() const { return copies_; }

  /// What is wrong with where copies play, or "".
  std::string wrong_copies() const;

  /// The process that plays all of replica `r`; -1: several do.
  int whole(std::int32_t r) const {
    const auto first = stages_.begin() + r * stages();
    const bool one = std::all_of(first, first + stages(), [&](int p) { return p == *first; });
    return one ? *first : -1;
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
    return std::all_of(servers_.begin(), servers_.end(), [](int p) { return p == 0; });
  }

  /// A process other than the lead that has nothing to play; -1: none.
  int idle() const {
    for (int p = 1; p < processes_; ++p) {
      if (std::count(stages_.begin(), stages_.end(), p) == 0 && servers_of(p).empty()) {
        return p;
      }
    }
    return -1;
  }

  /// "process 0 plays replica 0 and the servers, 1 replicas 1-2"
  std::string words() const;

 private:
  std::int32_t replicas() const {
    return static_cast<std::int32_t>(b_.experiment.replicas().count());
  }

  std::int32_t stages() const { return b_.schedule->options.stages; }

  const std::string& name(ActorId id) const { return who_.entries()[id].name; }

  std::string part_of(int process) const;
  void add_server(std::int32_t c, std::size_t s, PlacementNames& named);
  void add_copies(const std::vector<Roster::CopySeat>& seats, PlacementNames& named);
  std::vector<std::string> servers_of(int process) const;

  const Blueprint& b_;
  const Roster& who_;
  int processes_;
  std::vector<int> stages_;                     // by replica and stage
  std::vector<int> servers_;                    // in the order of the roster
  std::vector<std::vector<int>> copies_;        // by server
  std::vector<std::vector<ActorId>> copy_ids_;  // the same
};

/// In the lead, where nobody says something else, unless it has copies.
void Seating::add_server(std::int32_t c, std::size_t s, PlacementNames& named) {
  add_copies(processes_ > 1 ? who_.copies(c, s) : std::vector<Roster::CopySeat>{}, named);
  servers_.push_back(copies_.back().empty() ? named.of(name(who_.servers(c)[s].id)).value_or(0)
                                            : copies_.back().front());
}

/// Dealt over the processes but the lead, each to one that has none of the others.
void Seating::add_copies(const std::vector<Roster::CopySeat>& seats, PlacementNames& named) {
  std::vector<ActorId> ids;
  std::vector<int> of;
  for (const Roster::CopySeat& seat : seats) {
    ids.push_back(seat.server.id);
    of.push_back(named.of(name(seat.server.id)).value_or(-1));
  }
  const auto others = static_cast<std::size_t>(std::max(1, processes_ - 1));
  for (std::size_t copy = 0; copy < of.size(); ++copy) {
    for (std::size_t i = 0; i < others && of[copy] < 0; ++i) {
      const int process = 1 + static_cast<int>((copies_.size() + copy + i) % others);
      of[copy] = std::count(of.begin(), of.end(), process) == 0 ? process : -1;
    }
  }
  copies_.push_back(std::move(of));
  copy_ids_.push_back(std::move(ids));
}

std::string Seating::wrong_copies() const {
  for (std::size_t server = 0; server < copies_.size(); ++server) {
    std::map<int, std::string> taken;
    for (std::size_t copy = 0; copy < copies_[server].size(); ++copy) {
      const int process = copies_[server][copy];
      const std::string& what = name(copy_ids_[server][copy]);
      if (process < 0) {
        const std::string count = concat(copies_[server].size());
        return "replicas.copies: " + count + " copies of each server need " + count +
               " processes besides the first, with which the run is lost anyhow; there are fewer";
      }
      if (process == 0) {
        return "placement.on: " + what +
               " is one of several copies (replicas.copies), and process 0, with which the run is "
               "lost anyhow, needs none; name another process";
      }
      if (const auto [other, first] = taken.emplace(process, what); !first) {
        return fill_in(
            "placement.on: {} and {} would both be lost with process {}; copies of one server "
            "(replicas.copies) play in different processes",
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
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    text += i == 0 ? "" : i + 1 == parts.size() ? " and " : ", ";
    text += parts[i];
  }
  return text.empty() ? "no more than the director" : text;
}

std::vector<std::string> Seating::servers_of(int process) const {
  std::vector<std::string> servers;
  for (std::size_t i = 0; i < servers_.size(); ++i) {
    if (servers_[i] == process) {
      servers.push_back(name(who_.all_servers()[i].id));
    }
  }
  if (servers.size() == servers_.size() && !servers.empty()) {
    servers = {"the servers"};
  }
  for (std::size_t copy = 1; !copies_.empty() && copy < copies_.front().size(); ++copy) {
    std::vector<std::string> further;
    for (std::size_t i = 0; i < copies_.size(); ++i) {
      if (copies_[i][copy] == process) {
        further.push_back(name(copy_ids_[i][copy]));
      }
    }
    if (further.size() == copies_.size()) {
      further = {concat("copy ", copy, " of the servers")};
    }
    servers.insert(servers.end(), further.begin(), further.end());
  }
  return servers;
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
  for (std::int32_t r = 0; r < b.experiment.replicas().count(); ++r) {
    process_of[who.source(r).id] = seating.of(r, 0);
    for (std::int32_t k = 0; k < b.schedule->options.stages; ++k) {
      process_of[who.stages(r)[static_cast<std::size_t>(k)].id] = seating.of(r, k);
    }
    for (std::int32_t c = 0; c < b.schedule->chunks; ++c) {
      const auto at = static_cast<std::size_t>(c);
      const int process = seating.of(r, b.schedule->stage_of(c));
      process_of[who.shards(r)[at].id] = process;
      process_of[who.optimizers(r)[at].id] = process;
    }
    for (const Roster::PredictorSeat& predictor : who.predictors(r)) {
      const int process = seating.of(r, b.schedule->stage_of(predictor.chunk));
      process_of[predictor.self.id] = process;
      process_of[predictor.shard.id] = process;
      process_of[predictor.optimizer.id] = process;
    }
  }
  std::size_t server = 0;
  for (std::int32_t c = 0; b.link && c < b.schedule->chunks; ++c) {
    for (std::size_t s = 0; s < who.servers(c).size(); ++s, ++server) {
      process_of[who.servers(c)[s].id] = seating.servers()[server];
      process_of[who.server_optimizer(c, s).id] = seating.servers()[server];
      for (std::size_t g = 0; g < who.groups(c, s).size(); ++g) {
        const Roster::GroupSeat& seat = who.groups(c, s)[g];
        const int process =
            seating.of_group(static_cast<std::int32_t>(g), seating.servers()[server]);
        process_of[seat.server.id] = process;
        process_of[seat.optimizer.id] = process;
      }
      const std::vector<int>& copies = seating.copies()[server];
      for (std::size_t copy = 0; copy < copies.size(); ++copy) {
        process_of[who.copies(c, s)[copy].server.id] = copies[copy];
        process_of[who.copies(c, s)[copy].optimizer.id] = copies[copy];
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

Result<Placement> place(const Blueprint& b, int processes) {
  const proto::Experiment& e = b.experiment;
  if (const std::string why = obstacle(e); !why.empty()) {
    return refused(why);
  }
  const auto replicas = static_cast<std::int32_t>(e.replicas().count());
  const std::int32_t stages = b.schedule->options.stages;
  auto named = PlacementNames::parse(e);
  TROUPE_TRY(named);
  if (named->empty() && !Seats(replicas, stages, processes).fit()) {
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
  placement.digest = digest_of(who, placement.process_of);
  return placement;
}

}  // namespace troupe
