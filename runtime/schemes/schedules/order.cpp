// Whether a schedule's actions are in order.
#include "kernels/check.hpp"
#include "kernels/wording.hpp"
#include "runtime/schemes/schedules/compose.hpp"

#include <map>

namespace troupe::schedules {
namespace {

/// What one chunk has behind it.
struct Behind {
  std::int64_t forwards = 0;
  std::int64_t errors = 0;
  std::int64_t gradients = 0;
  std::int64_t updates = 0;

  auto operator<=>(const Behind&) const = default;
};

class Order {
 public:
  Order(const ScheduleScheme& scheme, const Schedule& schedule, std::int32_t stage)
      : scheme_(scheme), schedule_(schedule), stage_(stage), M_(schedule.options.micro_batches) {
    for (std::int32_t c = 0; c < schedule.chunks; ++c) {
      if (schedule.works_on(stage, c)) {
        behind_[c] = {};
      }
    }
  }

  Result<void> check(const Sequence& sequence) {
    for (const Action& a : sequence.prologue) {
      TROUPE_TRY(see(a));
    }
    const auto before = behind_;
    for (const Action& a : sequence.period) {
      TROUPE_TRY(see(a));
    }
    for (const auto& [chunk, now] : behind_) {
      const Behind& then = before.at(chunk);
      const std::int64_t own = share(chunk);
      const Behind one{
          then.forwards + own, then.errors + own, then.gradients + own, then.updates + 1};
      if (now != one) {
        return refuse("the period of stage ",
                      stage_,
                      " is not one mini-batch of chunk ",
                      chunk,
                      ", whose forwards, backwards and update it has once for each of ",
                      own,
                      own == 1 ? " micro-batch" : " micro-batches");
      }
    }
    return {};
  }

 private:
  /// How many of a mini-batch's micro-batches the stage has.
  std::int64_t share(std::int32_t chunk) const { return M_ / schedule_.copies_of(chunk); }

  template <class... Parts>
  Result<void> refuse(const Parts&... parts) const {
    return usage_error("pipeline.schedule: {}: {}", scheme_.info.name, concat(parts...));
  }

  Result<void> see(const Action& a) {
    const auto found = behind_.find(a.chunk);
    if (found == behind_.end()) {
      return refuse("stage ", stage_, " does ", to_string(a), ", and has no chunk ", a.chunk);
    }
    if (schedule_.stage_of(a.chunk, a.batch, a.micro_batch) != stage_) {
      return out_of_place(a);
    }
    Behind& b = found->second;
    const std::int64_t M = share(a.chunk);
    const std::int64_t n = schedule_.number_of(a.chunk, a);
    switch (a.act) {
      case Act::forward:
        return n == b.forwards++ ? Result<void>{} : out_of_place(a);
      case Act::backward:
        return n == b.errors++ && n == b.gradients++ && n < b.forwards ? Result<void>{}
                                                                       : out_of_place(a);
      case Act::input_gradient:
        return n == b.errors++ && n < b.forwards ? Result<void>{} : out_of_place(a);
      case Act::weight_gradient:
        return n == b.gradients++ && n < b.errors ? Result<void>{} : out_of_place(a);
      case Act::update:
        return n == b.updates++ * M && n + M <= b.gradients ? Result<void>{} : out_of_place(a);
    }
    return {};
  }

  Result<void> out_of_place(const Action& a) const {
    return refuse("stage ",
                  stage_,
                  " does ",
                  to_string(a),
                  " where it is not due: each chunk has its forwards, its backwards and its "
                  "updates in order, each once, a backward after its forward and an update after "
                  "all backwards of its mini-batch");
  }

  const ScheduleScheme& scheme_;
  const Schedule& schedule_;
  const std::int32_t stage_;
  const std::int64_t M_;
  std::map<std::int32_t, Behind> behind_;  // by chunk of the stage
};

bool is_flushed(const Sequence& sequence) {
  for (const Action& a : sequence.period) {
    if (a.batch != 0) {
      return false;
    }
  }
  return sequence.prologue.empty();
}

}  // namespace

Result<void> check_order(const ScheduleScheme& scheme,
                         const Schedule& schedule,
                         std::int32_t stage,
                         const Sequence& sequence) {
  TROUPE_TRY(Order(scheme, schedule, stage).check(sequence));
  if (scheme.flushed && !is_flushed(sequence)) {
    return usage_error(
        "pipeline.schedule: {}: it is flushed, and stage {} begins with a mini-batch before the "
        "update of the one before; a flushed schedule has no prologue, and mini-batch 0 as its "
        "period",
        scheme.info.name,
        stage);
  }
  return {};
}

}  // namespace troupe::schedules
