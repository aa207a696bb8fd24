// Whether a schedule keeps what the runtime promises of every schedule.
#include "apps/conformance/kits.hpp"
#include "apps/conformance/trial.hpp"
#include "experiment.pb.h"
#include "kernels/sequences.hpp"
#include "kernels/wording.hpp"
#include "messages/experiment.hpp"
#include "runtime/schemes/schedules/schedule_scheme.hpp"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

namespace troupe::conformance {
namespace {

constexpr std::array kStages{1, 2, 3, 4, 7};
constexpr std::array kMicroBatches{1, 2, 3, 4, 8};

class ScheduleKit {
 public:
  ScheduleKit(const ScheduleScheme& scheme, const ConformanceOptions& options)
      : scheme_(scheme),
        options_(options),
        choice_(choose(schedule_assignment(scheme), options.values)) {}

  Result<std::vector<Finding>> run() {
    TROUPE_TRY(make_all());
    if (made_.empty()) {
      return std::vector<Finding>{
          {"order", false, "it goes with no number of stages and micro-batches: " + refusal_}};
    }
    return std::vector<Finding>{order(), finish(), delay(), versions(), identity(), replay()};
  }

 private:
  struct Made {
    Schedule schedule;
    int stages = 0;
    int micro_batches = 0;
  };

  /// The pipe of so many stages and micro-batches.
  Assignments pipe(int stages, int micro_batches) const {
    return with(
        choice_,
        {concat("pipeline.stages=", stages), concat("pipeline.micro_batches=", micro_batches)});
  }

  /// Every pipe that it is for. Error (usage) where its options are wrong.
  Result<void> make_all() {
    for (const int stages : kStages) {
      for (const int micro_batches : kMicroBatches) {
        auto options = options_of(pipe(stages, micro_batches));
        TROUPE_TRY(options);
        if (scheme_.fits) {
          if (const auto fits = scheme_.fits(*options); !fits) {
            ++refused_;
            refusal_ = fits.error().message;
            continue;
          }
        }
        auto schedule = make_schedule(*options);
        if (schedule) {
          made_.push_back({*std::move(schedule), stages, micro_batches});
        } else if (broken_.empty()) {
          broken_ = concat(
              stages, " stages, ", micro_batches, " micro-batches: ", schedule.error().message);
        }
      }
    }
    if (made_.empty() && refusal_.empty()) {
      refusal_ = broken_;
    }
    return {};
  }

  static Result<ScheduleOptions> options_of(const Assignments& assignments) {
    proto::Experiment e;
    for (const std::string& assignment : assignments) {
      TROUPE_TRY(set_value(e, assignment));
    }
    TROUPE_TRY(resolve(e));
    return schedule_options(e);
  }

  Finding order() const {
    if (!broken_.empty()) {
      return {"order", false, broken_};
    }
    return {"order",
            true,
            fill_in("{} pipes of 1 to 7 stages and 1 to 8 micro-batches: each forward, backward "
                    "and update once and in order{}",
                    made_.size(),
                    refused_ > 0 ? concat("; ", refused_, " others are refused: ", refusal_) : "")};
  }

  /// Short runs end in the start-up, long ones go round often.
  Finding finish() const {
    std::int64_t runs = 0;
    for (const Made& one : made_) {
      const std::int64_t filling = one.schedule.delay_max + one.schedule.chunks;
      for (const std::int64_t batches : {std::int64_t{1}, std::int64_t{2}, filling, 5 * filling}) {
        ++runs;
        if (const auto ends = check_schedule(one.schedule, batches); !ends) {
          return {"finish",
                  false,
                  concat("a run of ", batches, " mini-batches: ", ends.error().message)};
        }
      }
    }
    return {
        "finish", true, concat(runs, " runs of 1 to 5 times the mini-batches in flight all end")};
  }

  Finding delay() const {
    std::int64_t largest = 0;
    for (const Made& one : made_) {
      largest = std::max(largest, one.schedule.delay_max);
    }
    const std::string what = fill_in(
        "on {} stages with {} micro-batches forwards are {} updates early, chunk by chunk; at most "
        "{} in all of these pipes",
        shown().stages,
        shown().micro_batches,
        joined(shown().schedule.delay, ", "),
        largest);
    return within(options_, "delay", largest, what);
  }

  /// What the stages of a run read is what the sequence says, whatever their times.
  Finding versions() const {
    std::int64_t reads = 0;
    for (const Made& one : made_) {
      if (one.stages > 4 || one.micro_batches == 8) {
        continue;
      }
      const PipelineTrial t = run_pipeline(pipe(one.stages, one.micro_batches));
      if (!t.trouble.empty()) {
        return {"versions", false, t.trouble};
      }
      for (const AppliedRecord& record : t.applied) {
        for (const Read& read : record.reads) {
          ++reads;
          const std::int64_t due =
              one.schedule.forward_of(record.stamp.chunk, record.stamp.batch, read.micro_batch)
                  .natural;
          if (read.forward_version != due) {
            return {"versions",
                    false,
                    fill_in("the forward of {} on chunk {} read version {}, due was {}",
                            record.stamp.batch,
                            record.stamp.chunk,
                            read.forward_version,
                            due)};
          }
        }
      }
    }
    return {
        "versions",
        true,
        concat("runs with times that vary: ", reads, " forwards read the versions they should")};
  }

  Finding identity() const {
    const Made* one = nullptr;
    for (const Made& made : made_) {
      if (made.stages <= 4 && made.schedule.delay_max == 0) {
        one = &made;
      }
    }
    if (!one) {
      return {"identity",
              true,
              "no pipe of it is without delay, so that it is no plain training",
              false};
    }
    const PipelineTrial own = run_pipeline(pipe(one->stages, one->micro_batches));
    // Where stages add up shares of a gradient, sums are made in another order than one stage's, on any number of stages.
    const Made* const fewest = &*std::ranges::find(made_, one->micro_batches, &Made::micro_batches);
    const bool shares = !one->schedule.copies.empty();
    const PipelineTrial plain =
        shares ? run_pipeline(pipe(fewest->stages, one->micro_batches))
               : run_pipeline({concat("pipeline.micro_batches=", one->micro_batches),
                               "pipeline.schedule=sequential"});
    if (!own.trouble.empty()) {
      return {"identity", false, own.trouble};
    }
    const bool same = own.result.summary.weights_sha256 == plain.result.summary.weights_sha256;
    return {"identity",
            same,
            fill_in("{}{}{} micro-batches, no delay: {}what {} trains, bit for bit",
                    one->stages,
                    one->stages == 1 ? " stage, " : " stages, ",
                    one->micro_batches,
                    same ? "" : "not ",
                    shares ? "the shortest pipe" : "one stage")};
  }

  Finding replay() const {
    const Assignments set = pipe(shown().stages, shown().micro_batches);
    return two_equal([&] { return run_pipeline(set); });
  }

  /// Of the pipes that can be run on the kit's network, the one that shows most.
  const Made& shown() const {
    const auto shows = [](const Made& one) {
      const bool runs = one.stages <= 4;
      return std::tuple(runs,
                        runs ? one.schedule.delay_max : 0,
                        one.stages,
                        one.micro_batches < 8 ? one.micro_batches : 0);
    };
    return *std::max_element(made_.begin(), made_.end(), [&](const Made& a, const Made& b) {
      return shows(a) < shows(b);
    });
  }

  const ScheduleScheme& scheme_;
  const ConformanceOptions& options_;
  Assignments choice_;
  std::vector<Made> made_;
  std::string broken_;  // the first pipe that should have been made
  std::int64_t refused_ = 0;
  std::string refusal_;  // the last
};

}  // namespace

Finding equal_runs(const RunResult& first, const RunResult& second) {
  const bool order = first.summary.order_sha256 == second.summary.order_sha256;
  const bool weights = first.summary.weights_sha256 == second.summary.weights_sha256;
  return {"replay",
          order && weights,
          fill_in("two equal runs: {} orders of messages, {} weights",
                  order ? "equal" : "different",
                  weights ? "equal" : "different")};
}

Finding within(const ConformanceOptions& options,
               const char* check,
               std::int64_t found,
               const std::string& what) {
  return {check,
          found <= options.bound.value_or(found),
          options.bound ? concat(what, ", the bound ", *options.bound) : what};
}

Result<std::vector<Finding>> check_schedule_conformance(const ScheduleScheme& scheme,
                                                        const ConformanceOptions& options) {
  return ScheduleKit(scheme, options).run();
}

}  // namespace troupe::conformance
