#include "runtime/schemes/schedules/walk.hpp"

#include "kernels/check.hpp"

#include <algorithm>

namespace troupe {
namespace {

/// How many of each a chunk, or one of its alternates, has behind it. They come in order, so that a number says
/// which.
struct Done {
  std::int64_t forwards = 0;
  std::int64_t errors = 0;     // error signals that have left
  std::int64_t gradients = 0;  // of micro-batches, whole
  std::int64_t updates = 0;
};

class Walker {
 public:
  Walker(const Schedule& schedule, std::int64_t batches)
      : s_(schedule),
        batches_(batches),
        micro_batches_(schedule.options.micro_batches),
        alternates_(static_cast<std::size_t>(
            schedule.copies.empty()
                ? 1
                : *std::max_element(schedule.copies.begin(), schedule.copies.end()))),
        done_(static_cast<std::size_t>(schedule.chunks) * alternates_),
        next_(schedule.stages.size()),
        waits_(schedule.stages.size()) {
    for (const Sequence& sequence : schedule.stages) {
      ends_.push_back(end_of(sequence));
    }
  }

  template <class See>
  Walk walk(const See& see) {
    for (std::size_t k = s_.stages.size(); k-- > 0;) {
      ready_.push_back(static_cast<std::int32_t>(k));
    }
    while (!ready_.empty()) {
      const std::int32_t stage = ready_.back();
      ready_.pop_back();
      go_on(stage, see);
    }
    for (std::size_t k = 0; k < s_.stages.size(); ++k) {
      if (waits_[k]) {
        const Action a = s_.stages[k].at(next_[k]);
        walk_.stuck.push_back({static_cast<std::int32_t>(k), a, lacks(a)});
      }
    }
    return std::move(walk_);
  }

 private:
  /// Where the stage's sequence has nothing more of these mini-batches.
  std::uint64_t end_of(const Sequence& sequence) const {
    std::int64_t first = batches_;
    for (const Action& a : sequence.period) {
      first = std::min(first, a.batch);
    }
    return sequence.prologue.size() +
           sequence.period.size() * static_cast<std::uint64_t>(batches_ - first);
  }

  template <class See>
  void go_on(std::int32_t stage, const See& see) {
    const auto k = static_cast<std::size_t>(stage);
    for (waits_[k] = false; next_[k] < ends_[k]; ++next_[k]) {
      const Action a = s_.stages[k].at(next_[k]);
      if (a.batch >= batches_) {
        continue;
      }
      ++walk_.looks;
      if (!can_start(a)) {
        waits_[k] = true;
        return;
      }
      see(stage, a);
      count(a);
    }
  }

  std::size_t at(std::int32_t chunk, std::int32_t turn) const {
    return static_cast<std::size_t>(chunk) * alternates_ + static_cast<std::size_t>(turn);
  }

  /// Of the alternate of `chunk` that has the action's micro-batch.
  std::size_t at(std::int32_t chunk, const Action& a) const {
    return at(chunk, s_.turn_of(chunk, a.batch, a.micro_batch));
  }

  Done& of(std::int32_t chunk, const Action& a) { return done_[at(chunk, a)]; }

  const Done& of(std::int32_t chunk, const Action& a) const { return done_[at(chunk, a)]; }

  std::int64_t number(std::int32_t chunk, const Action& a) const { return s_.number_of(chunk, a); }

  std::int64_t number(const Action& a) const { return number(a.chunk, a); }

  /// Of a mini-batch that one alternate of `chunk` has.
  std::int64_t share(std::int32_t chunk) const {
    return s_.round_of(chunk) * micro_batches_ / s_.copies_of(chunk);
  }

  /// All alternates have handed in what makes the step that the forward `a` reads.
  bool stepped(const Action& a) const {
    const std::int32_t copies = s_.copies_of(a.chunk);
    for (std::int32_t turn = 0; copies > 1 && turn < copies; ++turn) {
      if (done_[at(a.chunk, turn)].updates * s_.round_of(a.chunk) < a.natural) {
        return false;
      }
    }
    return true;
  }

  bool last(std::int32_t chunk) const { return s_.is_head(chunk); }

  /// Whether all parts of a section, whose first chunk is `first`, have what `what` counts of the action's micro-batch.
  bool all_have(std::int32_t first, const Action& a, std::int64_t Done::*what) const {
    for (std::int32_t chunk = first; chunk < first + s_.width; ++chunk) {
      if (of(chunk, a).*what <= number(chunk, a)) {
        return false;
      }
    }
    return true;
  }

  void wake_all(std::int32_t first, const Action& a) {
    for (std::int32_t chunk = first; chunk < first + s_.width; ++chunk) {
      wake(s_.stage_of(chunk, a.batch, a.micro_batch));
    }
  }

  bool can_start(const Action& a) const {
    const std::int64_t n = number(a);
    switch (a.act) {
      case Act::forward:
        return stepped(a) && (s_.is_first(a.chunk) || s_.inputs_predicted ||
                              all_have(s_.before(a.chunk), a, &Done::forwards));
      case Act::backward:
      case Act::input_gradient:
        return of(a.chunk, a).forwards > n && (last(a.chunk) || signalled(a));
      case Act::weight_gradient:
        return of(a.chunk, a).errors > n;
      case Act::update:
        return of(a.chunk, a).gradients >= n + share(a.chunk) &&
               of(a.chunk, a).updates == a.batch / s_.round_of(a.chunk);
    }
    return false;
  }

  /// What the action's chunk makes the error signal of its micro-batch of has left its sender.
  bool signalled(const Action& a) const {
    switch (s_.signal_from) {
      case SignalFrom::next:
        return all_have(s_.behind(a.chunk), a, &Done::errors);
      case SignalFrom::head:
        return of(s_.chunks - 1, a).forwards > number(s_.chunks - 1, a);
      case SignalFrom::nobody:
      case SignalFrom::predictor:
        break;
    }
    return true;
  }

  void count(const Action& a) {
    Done& done = of(a.chunk, a);
    switch (a.act) {
      case Act::forward:
        ++done.forwards;
        if (!last(a.chunk)) {
          wake_all(s_.behind(a.chunk), a);
        } else if (s_.signal_from == SignalFrom::head) {
          for (std::int32_t c = 0; c < a.chunk; ++c) {
            wake(s_.stage_of(c, a.batch, a.micro_batch));
          }
        }
        break;
      case Act::backward:
      case Act::input_gradient:
        ++done.errors;
        done.gradients += a.act == Act::backward;
        if (!s_.is_first(a.chunk)) {
          wake_all(s_.before(a.chunk), a);
        }
        break;
      case Act::weight_gradient:
        ++done.gradients;
        break;
      case Act::update:
        ++done.updates;
        for (std::int32_t turn = 0; turn < s_.copies_of(a.chunk); ++turn) {
          wake(s_.in_turn(a.chunk, turn));
        }
        break;
    }
  }

  void wake(std::int32_t stage) {
    const auto k = static_cast<std::size_t>(stage);
    if (!waits_[k]) {
      return;
    }
    ++walk_.looks;
    if (can_start(s_.stages[k].at(next_[k]))) {
      waits_[k] = false;
      ready_.push_back(stage);
    }
  }

  std::string lacks(const Action& a) const {
    const std::string which = concat("(", a.batch, ",", a.micro_batch, ")@");
    const Done& done = of(a.chunk, a);
    switch (a.act) {
      case Act::forward:
        return stepped(a) ? concat("F", which, s_.before(a.chunk))
                          : concat("U(", a.natural - 1, ")@", a.chunk);
      case Act::backward:
      case Act::input_gradient:
        return done.forwards <= number(a)           ? concat("F", which, a.chunk)
               : s_.signal_from == SignalFrom::head ? concat("F", which, s_.chunks - 1)
                                                    : concat("B", which, s_.behind(a.chunk));
      case Act::weight_gradient:
        return concat("I", which, a.chunk);
      case Act::update:
        break;
    }
    const std::int64_t missing = done.gradients - number(a);
    return missing < share(a.chunk)
               ? concat("the gradient of (", a.batch, ",", missing, ")@", a.chunk)
               : concat("U(", a.batch - 1, ")@", a.chunk);
  }

  const Schedule& s_;
  const std::int64_t batches_;
  const std::int64_t micro_batches_;
  const std::size_t alternates_;     // of a chunk, at most
  std::vector<Done> done_;           // by chunk and alternate
  std::vector<std::uint64_t> next_;  // by stage: index of its next action
  std::vector<std::uint64_t> ends_;
  std::vector<bool> waits_;  // its next action could not start
  std::vector<std::int32_t> ready_;
  Walk walk_;
};

}  // namespace

Walk walk(const Schedule& schedule,
          std::int64_t batches,
          const std::function<void(std::int32_t stage, const Action& action)>& see) {
  return Walker(schedule, batches).walk(see);
}

}  // namespace troupe
