// Whether a schedule's actions are in order.
#include "kernels/check.hpp"
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
      if (schedule.stage_of(c) == stage) {
        behind_[c] = {};
      }
    }
  }

  Result<void> check(const Sequence& sequence) {
    for (const Action& a : sequence.prologue) {
      if (auto sound = see(a); !sound) {
        return sound;
      }
    }
    const auto before = behind_;
    for (const Action& a : sequence.period) {
      if (auto sound = see(a); !sound) {
        return sound;
      }
    }
    for (const auto& [chunk, now] : behind_) {
      const Behind& then = before.at(chunk);
      const Behind one{then.forwards + M_, then.errors + M_, then.gradients + M_, then.updates + 1};
      if (now != one) {
        return refuse("the period of stage ",
                      stage_,
                      " is not one mini-batch of chunk ",
                      chunk,
                      ", whose forwards, backwards and update it has once for each of ",
                      M_,
                      M_ == 1 ? " micro-batch" : " micro-batches");
      }
    }
    return {};
  }

 private:
  template <class... Parts>
  Result<void> refuse(const Parts&... parts) const {
    return Error{ErrorKind::usage,
                 concat("pipeline.schedule: ", scheme_.info.name, ": ", parts...)};
  }

  Result<void> see(const Action& a) {
    const auto found = behind_.find(a.chunk);
    if (found == behind_.end()) {
      return refuse("stage ", stage_, " does ", to_string(a), ", and has no chunk ", a.chunk);
    }
    Behind& b = found->second;
    const std::int64_t n = a.batch * M_ + a.micro_batch;
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
        return n == b.updates++ * M_ && n + M_ <= b.gradients ? Result<void>{} : out_of_place(a);
    }
    return {};
  }

  Result<void> out_of_place(const Action& a) const {
    return refuse(
        "stage ",
        stage_,
        " does ",
        to_string(a),
        " where it is not due: each chunk has its forwards, its backwards and its updates "
        "in order, each once, a backward after its forward and an update after all "
        "backwards of its mini-batch");
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
  if (auto sound = Order(scheme, schedule, stage).check(sequence); !sound) {
    return sound;
  }
  if (scheme.flushed && !is_flushed(sequence)) {
    return Error{ErrorKind::usage,
                 concat("pipeline.schedule: ",
                        scheme.info.name,
                        ": it is flushed, and stage ",
                        stage,
                        " begins with a mini-batch before the update of the one before; a flushed "
                        "schedule has no prologue, and mini-batch 0 as its period")};
  }
  return {};
}

}  // namespace troupe::schedules
