#include "apps/topologies/placement.hpp"

#include "apps/topologies/hogwild.hpp"
#include "apps/topologies/roster.hpp"
#include "runtime/record/sha256.hpp"

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
  if (e.extension().has_custom()) {
    return "the machines of an extension share memory with those that they overhear; leave "
           "--processes or the extension out";
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

std::string span_of(const char* what, std::int32_t first, std::int32_t last) {
  return first == last ? concat(what, " ", first) : concat(what, "s ", first, "-", last);
}

std::string describe(const Seats& seats, std::int32_t replicas, std::int32_t stages, bool servers) {
  const bool whole = seats.of(0, 0) == seats.of(0, stages - 1) &&
                     seats.of(replicas - 1, 0) == seats.of(replicas - 1, stages - 1);
  const std::int32_t processes = seats.of(replicas - 1, stages - 1) + 1;
  std::string words;
  for (std::int32_t p = 0; p < processes; ++p) {
    std::vector<std::int32_t> played;  // replica * stages + stage
    for (std::int32_t i = 0; i < replicas * stages; ++i) {
      if (seats.of(i / stages, i % stages) == p) {
        played.push_back(i);
      }
    }
    const std::int32_t first = played.front();
    const std::int32_t last = played.back();
    words += concat(p == 0 ? "process " : ", ", p, p == 0 ? " plays " : " ");
    words += whole ? span_of("replica", first / stages, last / stages)
                   : span_of("stage", first % stages, last % stages);
    words += !whole && replicas > 1 ? concat(" of replica ", first / stages) : "";
    words += p == 0 && servers ? " and the servers" : "";
  }
  return words;
}

}  // namespace

Result<Placement> place(const Blueprint& b, int processes) {
  const proto::Experiment& e = b.experiment;
  if (const std::string why = obstacle(e); !why.empty()) {
    return refused(why);
  }
  const auto replicas = static_cast<std::int32_t>(e.replicas().count());
  const std::int32_t stages = b.schedule->options.stages;
  const Seats seats(replicas, stages, processes);
  if (!seats.fit()) {
    return refused(concat(processes,
                          " are more than this run has places for: ",
                          replicas,
                          " x ",
                          stages,
                          " (replicas x stages); name at most ",
                          replicas * stages));
  }
  const Roster who(b);
  Placement placement{.process_of = std::vector<int>(who.entries().size(), 0),
                      .words = describe(seats, replicas, stages, b.link.has_value()),
                      .whole_replicas = processes <= replicas};
  for (std::int32_t r = 0; r < replicas; ++r) {
    placement.process_of[who.source(r).id] = seats.of(r, 0);
    for (std::int32_t k = 0; k < stages; ++k) {
      placement.process_of[who.stages(r)[static_cast<std::size_t>(k)].id] = seats.of(r, k);
    }
    for (std::int32_t c = 0; c < b.schedule->chunks; ++c) {
      const auto at = static_cast<std::size_t>(c);
      const int process = seats.of(r, b.schedule->stage_of(c));
      placement.process_of[who.shards(r)[at].id] = process;
      placement.process_of[who.optimizers(r)[at].id] = process;
    }
    for (const Roster::PredictorSeat& predictor : who.predictors(r)) {
      const int process = seats.of(r, b.schedule->stage_of(predictor.chunk));
      placement.process_of[predictor.self.id] = process;
      placement.process_of[predictor.shard.id] = process;
      placement.process_of[predictor.optimizer.id] = process;
    }
  }
  Sha256 digest;
  for (std::size_t id = 0; id < who.entries().size(); ++id) {
    const Roster::Entry& entry = who.entries()[id];
    const std::string line =
        concat(entry.name, ' ', entry.thread, ' ', placement.process_of[id], '\n');
    digest.update(line.data(), line.size());
  }
  placement.digest = digest.finish();
  return placement;
}

}  // namespace troupe
