#include "apps/topologies/placement.hpp"

#include "apps/topologies/hogwild.hpp"
#include "apps/topologies/placement_names.hpp"
#include "apps/topologies/roster.hpp"
#include "runtime/record/sha256.hpp"
#include "runtime/schemes/all_reduce.hpp"

#include <algorithm>

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
  if (e.replicas().exchange().has_sandblaster()) {
    return "sandblaster plays in one process; leave --processes out, or choose another "
           "replicas.exchange";
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

/// The process of each stage of each replica.
class Seats {
 public:
  Seats(std::int32_t replicas, std::int32_t stages, std::int32_t processes)
      : replicas_(replicas), stages_(stages), processes_(processes) {}

  int of(std::int32_t replica, std::int32_t stage) const {
    if (processes_ <= replicas_) {
      return replica * processes_ / replicas_;
    }
    const std::int32_t first = replica * processes_ / replicas_;
    const std::int32_t own = (replica + 1) * processes_ / replicas_ - first;
    return first + stage * own / stages_;
  }

  /// No replica has more processes than stages.
  bool fit() const { return (processes_ + replicas_ - 1) / replicas_ <= stages_; }

 private:
  std::int32_t replicas_;
  std::int32_t stages_;
  std::int32_t processes_;
};

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
    for (const auto& server : who.all_servers()) {
      servers_.push_back(named.of(name(server.id)).value_or(0));
    }
  }

  int of(std::int32_t r, std::int32_t k) const {
    return stages_[static_cast<std::size_t>(r * stages() + k)];
  }

  const std::vector<int>& servers() const { return servers_; }

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
      if (std::count(stages_.begin(), stages_.end(), p) +
              std::count(servers_.begin(), servers_.end(), p) ==
          0) {
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

  const Blueprint& b_;
  const Roster& who_;
  int processes_;
  std::vector<int> stages_;   // by replica and stage
  std::vector<int> servers_;  // in the order of the roster
};

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
  std::vector<std::string> servers;
  for (std::size_t i = 0; i < servers_.size(); ++i) {
    if (servers_[i] == process) {
      servers.push_back(name(who_.all_servers()[i].id));
    }
  }
  if (servers.size() == servers_.size() && !servers.empty()) {
    servers = {"the servers"};
  }
  parts.insert(parts.end(), servers.begin(), servers.end());
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    text += i == 0 ? "" : i + 1 == parts.size() ? " and " : ", ";
    text += parts[i];
  }
  return text.empty() ? "no more than the director" : text;
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
  if (!named) {
    return named.error();
  }
  if (named->empty() && !Seats(replicas, stages, processes).fit()) {
    return refused(concat(processes,
                          " are more than this run has places for: ",
                          replicas,
                          " x ",
                          stages,
                          " (replicas x stages); name at most ",
                          replicas * stages));
  }
  const Roster who(b);
  const Seating seating(b, who, processes, *named);
  Placement placement{.process_of = std::vector<int>(who.entries().size(), 0),
                      .words = seating.words(),
                      .whole_replicas = seating.whole_replicas()};
  seat_all(b, who, seating, placement);
  std::vector<PlacementNames::Other> all;
  for (std::size_t id = 0; id < who.entries().size(); ++id) {
    all.push_back({who.entries()[id].name, placement.process_of[id]});
  }
  if (auto sound = named->check(processes, all); !sound) {
    return sound.error();
  }
  if (const int idle = seating.idle(); idle >= 0) {
    return Error{ErrorKind::usage,
                 concat("placement.on: process ",
                        idle,
                        " of ",
                        processes,
                        " has no stage and no server; name fewer processes, or what it plays")};
  }
  placement.digest = digest_of(who, placement.process_of);
  return placement;
}

}  // namespace troupe
