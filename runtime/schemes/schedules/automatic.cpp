#include "runtime/schemes/schedules/automatic.hpp"

#include "kernels/sequences.hpp"
#include "kernels/wording.hpp"
#include "runtime/schemes/schedules/walk.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <string>
#include <utility>

namespace troupe {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kShorter = 1e-9;  // share of a period, below which nothing is gained
constexpr std::size_t kReach = 8;  // places that an action is moved by, at most
constexpr std::int64_t kActionsWalked = 20'000'000;  // in the search for moves, some seconds
constexpr std::int64_t kBatches = 6;                 // in which a pipe becomes full
constexpr std::array<Act, 3> kActs{Act::forward, Act::input_gradient, Act::weight_gradient};

using Row = std::vector<Action>;

/// What decides the heuristic's order.
struct Parameters {
  double gap = 0;  // share of a weight gradient that a gap has to have for it
  double ahead =
      0;  // forwards before the first input gradient, beyond 1F1B's: shares of as many again
};

/// The heuristic: stages in virtual time, each doing the best that is there when it is free.
class Heuristic {
 public:
  Heuristic(const AutomaticOptions& options, const Parameters& parameters)
      : o_(options), p_(parameters), stages_(options.times.size()) {
    const auto M = static_cast<std::size_t>(o_.micro_batches);
    for (Stage& stage : stages_) {
      stage.input_at.assign(M, &stage == &stages_.front() ? 0 : kNever);
      stage.error_at.assign(M, kNever);
    }
  }

  /// The actions, by stage.
  std::vector<Row> rows() {
    while (const std::optional<std::size_t> next = next_to_look()) {
      step(*next);
    }
    return mapped<Row>(stages_, [&](Stage& stage) { return std::move(stage.row); });
  }

 private:
  struct Stage {
    Row row{};
    std::array<std::size_t, 3> done{};  // by act
    double free = 0;                    // when its last action ends
    // When it looks for the next one: then, or when something that it waits for arrives.
    double looks = 0;
    std::vector<double> input_at{}, error_at{};  // by micro-batch
  };

  /// The stage with work left that looks for some next.
  std::optional<std::size_t> next_to_look() const {
    std::optional<std::size_t> first;
    for (std::size_t k = 0; k < stages_.size(); ++k) {
      if (stages_[k].row.size() < 3 * stages_[k].input_at.size() &&
          (!first || stages_[k].looks < stages_[*first].looks)) {
        first = k;
      }
    }
    return first;
  }

  /// The stage does the best that is there, or waits.
  void step(std::size_t k) {
    Stage& s = stages_[k];
    const auto [forwards, errors, gradients] = s.done;
    const auto usual = static_cast<double>(stages_.size() - k);
    const bool room = forwards < s.input_at.size() &&
                      forwards - gradients < static_cast<std::size_t>(o_.stashes[k]) &&
                      static_cast<double>(forwards - errors) < usual + p_.ahead * (usual - 1);
    const double input = room ? s.input_at[forwards] : kNever;
    const double error = errors < forwards ? s.error_at[errors] : kNever;
    const double next = std::min(input, error);
    if (error <= s.looks) {
      act(k, 1);
    } else if (input <= s.looks) {
      act(k, 0);
    } else if (gradients < errors && next - s.looks >= p_.gap * o_.times[k].weight_gradient) {
      act(k, 2);
    } else {
      s.looks = next;
    }
  }

  void act(std::size_t k, std::size_t what) {
    Stage& s = stages_[k];
    const ChunkTimes& t = o_.times[k];
    const std::size_t number = s.done[what]++;
    s.row.push_back({.act = kActs[what],
                     .chunk = static_cast<std::int32_t>(k),
                     .micro_batch = static_cast<std::int32_t>(number)});
    s.looks += what == 0 ? t.forward : what == 1 ? t.input_gradient : t.weight_gradient;
    s.free = s.looks;
    if (what == 0 && k + 1 < stages_.size()) {
      arrives(stages_[k + 1], stages_[k + 1].input_at[number], s.free + t.link);
    } else if (what == 0) {
      s.error_at[number] = s.free;
    } else if (what == 1 && k > 0) {
      arrives(stages_[k - 1], stages_[k - 1].error_at[number], s.free + t.link_back);
    }
  }

  static void arrives(Stage& stage, double& at, double time) {
    at = time;
    stage.looks = std::max(stage.free, std::min(stage.looks, time));
  }

  const AutomaticOptions& o_;
  const Parameters& p_;
  std::vector<Stage> stages_;
};

/// Whether a row keeps its chunk's order and the stashes. A fused backward is both halves.
bool in_order(const Row& row, std::int64_t stashes) {
  std::array<std::int64_t, 3> done{};
  for (const Action& a : row) {
    const bool backward = a.act == Act::backward || a.act == Act::input_gradient;
    const bool gradient = a.act == Act::backward || a.act == Act::weight_gradient;
    if (a.act == Act::update) {
      continue;
    }
    if (a.act == Act::forward && (a.micro_batch != done[0]++ || done[0] - done[2] > stashes)) {
      return false;
    }
    if (backward && (a.micro_batch != done[1]++ || done[1] > done[0])) {
      return false;
    }
    if (gradient && (a.micro_batch != done[2]++ || done[2] > done[1])) {
      return false;
    }
  }
  return true;
}

bool keeps(const Schedule& schedule, const std::vector<std::int64_t>& stashes) {
  for (std::size_t k = 0; k < stashes.size(); ++k) {
    if (!in_order(schedule.stages[k].period, stashes[k])) {
      return false;
    }
  }
  return true;
}

std::vector<Row> rows_of(const Schedule& schedule) {
  return mapped<Row>(schedule.stages, [&](const Sequence& stage) { return stage.period; });
}

std::string text_of(const Row& row) {
  std::string text;
  for (const Action& a : row) {
    if (a.act != Act::update) {
      text += concat(
          text.empty() ? "" : " ", a.chunk, "FBIW"[static_cast<std::size_t>(a.act)], a.micro_batch);
    }
  }
  return text;
}

Result<Schedule> schedule_of(const std::vector<Row>& rows, std::int32_t micro_batches) {
  ScheduleOptions options{.name = "file",
                          .stages = static_cast<std::int32_t>(rows.size()),
                          .micro_batches = micro_batches};
  for (const Row& row : rows) {
    options.rows.push_back(text_of(row));
  }
  return make_schedule(options);
}

/// The best so far, with its period.
class Best {
 public:
  explicit Best(const AutomaticOptions& options) : o_(options) {}

  void offer(const Schedule& schedule) {
    if (keeps(schedule, o_.stashes)) {
      const double period = period_of(schedule, o_.times);
      if (!schedule_ || period < period_ * (1 - kShorter)) {
        schedule_ = schedule;
        period_ = period;
      }
    }
  }

  /// Moves actions along their rows as long as one such move makes the period shorter.
  void improve() {
    std::int64_t left = kActionsWalked;
    for (bool moved = true; moved && left > 0;) {
      moved = false;
      for (std::size_t k = 0; k < o_.times.size(); ++k) {
        const std::size_t n = schedule_->stages[k].period.size() - 1;  // the update stays the last
        for (std::size_t from = 0; from < n && left > 0; ++from) {
          for (std::size_t to = from > kReach ? from - kReach : 0;
               to < std::min(n, from + kReach + 1) && left > 0;
               ++to) {
            if (from != to && try_move(k, from, to, left)) {
              moved = true;
            }
          }
        }
      }
    }
  }

  const Schedule& schedule() const { return *schedule_; }

 private:
  /// `left`: actions that may still be looked at. A long row has many moves, so that each one counts, though its order forbids it.
  bool try_move(std::size_t k, std::size_t from, std::size_t to, std::int64_t& left) {
    Row row = schedule_->stages[k].period;
    left -= static_cast<std::int64_t>(row.size());
    const auto at = [&](std::size_t i) {
      return row.begin() + static_cast<std::ptrdiff_t>(i);
    };
    if (from < to) {
      std::rotate(at(from), at(from + 1), at(to + 1));
    } else {
      std::rotate(at(to), at(from), at(from + 1));
    }
    if (!in_order(row, o_.stashes[k])) {
      return false;
    }
    Schedule moved = *schedule_;
    moved.stages[k].period = std::move(row);
    for (const Sequence& stage : moved.stages) {
      left -= kBatches * static_cast<std::int64_t>(stage.period.size());
    }
    // A first mini-batch may be the prologue, which stays as it was.
    if (!walk(moved, 2, [](std::int32_t, const Action&) {}).stuck.empty()) {
      return false;
    }
    const double period = period_of(moved, o_.times);
    if (period >= period_ * (1 - kShorter)) {
      return false;
    }
    schedule_ = std::move(moved);
    period_ = period;
    return true;
  }

  const AutomaticOptions& o_;
  std::optional<Schedule> schedule_{};
  double period_ = kNever;
};

}  // namespace

double period_of(const Schedule& schedule, const std::vector<ChunkTimes>& times) {
  std::array<double, kBatches> ends{};
  for (const auto& stage : simulate(schedule, times, kBatches).stages) {
    for (const Interval& interval : stage) {
      double& end = ends[static_cast<std::size_t>(interval.action.batch)];
      end = std::max(end, interval.end);
    }
  }
  constexpr std::size_t kHalf = kBatches / 2;
  return (ends.back() - ends[kHalf - 1]) / static_cast<double>(kBatches - kHalf);
}

Result<Schedule> automatic_zero_bubble(const AutomaticOptions& o) {
  for (std::size_t k = 0; k < o.stashes.size(); ++k) {
    if (o.stashes[k] < 1) {
      return usage_error(
          "stage {} has no room for a micro-batch between its forward and its "
          "weight gradient",
          k);
    }
  }
  Best best(o);
  for (const double gap : {0.0, 0.5, 1.0}) {
    for (const double ahead : {0.0, 0.5, 1.0, 2.0}) {
      const auto made = schedule_of(Heuristic(o, {gap, ahead}).rows(), o.micro_batches);
      TROUPE_TRY(made);
      best.offer(*made);
    }
  }
  for (const char* name : {"one_f_one_b", "gpipe", "zb_h1", "zb_2p"}) {
    const auto built_in = make_schedule({.name = name,
                                         .stages = static_cast<std::int32_t>(o.times.size()),
                                         .micro_batches = o.micro_batches});
    if (!built_in || !keeps(*built_in, o.stashes)) {
      continue;
    }
    if (const auto made = schedule_of(rows_of(*built_in), o.micro_batches)) {
      best.offer(*made);
    }
  }
  best.improve();
  return schedule_of(rows_of(best.schedule()), o.micro_batches);
}

}  // namespace troupe
