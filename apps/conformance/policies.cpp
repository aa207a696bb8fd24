// Whether a weight policy keeps what the runtime promises of every weight policy.
#include "apps/conformance/kits.hpp"
#include "kernels/wording.hpp"
#include "messages/experiment.hpp"
#include "runtime/schemes/optimizers/optimizer_scheme.hpp"

#include <algorithm>
#include <deque>
#include <utility>

namespace troupe::conformance {
namespace {

bool is_ahead(const View& view) {
  return view.reach.kind == ReachKind::linear || view.reach.kind == ReachKind::geometric;
}

bool is_backward(Act act) {
  return act == Act::backward || act == Act::input_gradient;
}

/// What one chunk's views come to, when the sequence is followed further than the plan was.
class Follower {
 public:
  Follower(const Blueprint& b, std::int32_t chunk)
      : b_(b), chunk_(chunk), plan_(b.plans[static_cast<std::size_t>(chunk)]) {}

  void follow() {
    const Schedule& s = *b_.schedule;
    const Sequence& sequence = s.stages[static_cast<std::size_t>(s.stage_of(chunk_))];
    const auto periods = static_cast<std::uint64_t>(8 * s.delay_max + 64);
    const std::uint64_t length = sequence.prologue.size() + periods * sequence.period.size();
    for (std::uint64_t i = 0; i < length && wrong.empty(); ++i) {
      if (const Action a = sequence.at(i); a.chunk == chunk_) {
        see(a);
      }
    }
  }

  std::string wrong;        // the first view that its shard does not have
  std::int64_t views = 0;   // looked at
  std::int64_t behind = 0;  // updates: the oldest step that a forward reads
  std::int64_t ahead = 0;   // updates: the farthest prediction
  bool predicts = false;    // some reach is linear or geometric
  bool goes_back = false;   // some reach is a displacement
  bool newest = true;       // every view is of the newest step, without a reach

 private:
  void see(const Action& a) {
    if (a.act == Act::forward) {
      naturals_.push_back(a.natural);
      const View view = b_.view->forward(a);
      behind = std::max(behind, a.batch - view.step);
      ahead = is_ahead(view) ? std::max<std::int64_t>(ahead, view.reach.horizon) : ahead;
      read(a, view);
    } else if (is_backward(a.act)) {
      const std::int64_t natural = naturals_.front();
      naturals_.pop_front();
      if (const auto view = b_.view->backward(a, natural)) {
        read(a, *view);
      } else {
        newest = false;  // what the stage has kept
      }
    }
  }

  void read(const Action& a, const View& view) {
    ++views;
    predicts = predicts || is_ahead(view);
    goes_back = goes_back || view.reach.kind == ReachKind::displacement;
    newest = newest && view == View{a.natural, {}};
    const std::vector<Reach>& due = plan_.reaches(view.step);
    const bool announced = view.reach.kind == ReachKind::none || view.step == 0 ||
                           std::find(due.begin(), due.end(), view.reach) != due.end();
    if (view.step < 0 || view.step > a.natural || view.step <= a.natural - plan_.keep) {
      wrong = fill_in("{} reads step {}, and its shard has the last {} up to {}",
                      to_string(a),
                      view.step,
                      plan_.keep,
                      a.natural);
    } else if (!announced) {
      wrong = fill_in(
          "{} reads step {} moved by {}, which the mini-batches at the start do not: a policy has "
          "to read each mini-batch as the one before, one step later",
          to_string(a),
          view.step,
          view.reach.horizon);
    }
  }

  const Blueprint& b_;
  const std::int32_t chunk_;
  const ViewPlan& plan_;
  std::deque<std::int64_t> naturals_;
};

/// Nothing where the policy goes with every optimizer, so with the default one.
Assignments first_fitting(const PolicyScheme& policy) {
  if (policy.goes_with) {
    for (const OptimizerScheme& optimizer : optimizer_schemes()) {
      if (policy.goes_with(optimizer)) {
        return {optimizer_assignment(optimizer)};
      }
    }
  }
  return {};
}

class PolicyKit {
 public:
  PolicyKit(const PolicyScheme& scheme, const ConformanceOptions& options)
      : scheme_(scheme),
        options_(options),
        optimizer_(first_fitting(scheme)),
        choice_(with(choose(weights_assignment(scheme), options.values), optimizer_)) {}

  Result<std::vector<Finding>> run() {
    follow_all();
    if (pipes_ == 0) {
      return Error{ErrorKind::usage, refusal_};
    }
    return std::vector<Finding>{views(), facts(), staleness(), identity(), replay()};
  }

 private:
  Assignments pipe(const ScheduleScheme& schedule, int stages, int micro_batches) const {
    return with(choice_,
                {schedule_assignment(schedule),
                 concat("pipeline.stages=", stages),
                 concat("pipeline.micro_batches=", micro_batches)});
  }

  void follow_all() {
    for (const ScheduleScheme& schedule : schedule_schemes()) {
      for (const int stages : {1, 3, 4}) {
        for (const int micro_batches : {1, 3, 4, 8}) {
          const Assignments all = pipe(schedule, stages, micro_batches);
          const auto blueprint = pipeline_blueprint(all);
          if (!blueprint) {
            refusal_ = refusal_.empty() ? blueprint.error().message : refusal_;
            continue;
          }
          follow(*blueprint);
          const bool late = blueprint->schedule->delay_max > late_;
          if (shown_.empty() || late) {
            shown_ = all;
            late_ = blueprint->schedule->delay_max;
          }
        }
      }
    }
  }

  void follow(const Blueprint& b) {
    ++pipes_;
    for (std::int32_t c = 0; c < b.schedule->chunks; ++c) {
      Follower f(b, c);
      f.follow();
      views_ += f.views;
      behind_ = std::max(behind_, f.behind);
      ahead_ = std::max(ahead_, f.ahead);
      predicts_ = predicts_ || f.predicts;
      goes_back_ = goes_back_ || f.goes_back;
      newest_ = newest_ && f.newest;
      if (!f.wrong.empty() && wrong_.empty()) {
        wrong_ = concat("under ", b.schedule->options.name, ": ", f.wrong);
      }
      if (f.goes_back && scheme_.step) {
        const WeightContext context = weight_context(b.experiment);
        const std::int64_t delay = b.schedule->delay[static_cast<std::size_t>(c)];
        displaced_ = displaced_ && scheme_.step(context, delay).displacement_decay > 0;
      }
    }
  }

  Finding views() const {
    if (!wrong_.empty()) {
      return {"views", false, wrong_};
    }
    return {"views",
            true,
            concat(views_,
                   " reads in ",
                   pipes_,
                   " pipes: each of a step that its shard keeps, each prediction announced")};
  }

  Finding facts() const {
    if (predicts_ != scheme_.predicts) {
      return {"facts",
              false,
              predicts_ ? "it predicts, and does not say so (PolicyScheme::predicts)"
                        : "it says that it predicts, and no view does"};
    }
    if (scheme_.newest_only && !newest_) {
      return {"facts", false, "it says newest_only, and reads something else"};
    }
    if (goes_back_ && (!scheme_.step || !displaced_)) {
      return {
          "facts",
          false,
          "it reads along the displacement, which is not kept (PolicyStep::displacement_decay)"};
    }
    return {"facts",
            true,
            concat("reads ",
                   newest_ ? "what is newest" : "steps by number",
                   predicts_ ? ", predicts" : "",
                   goes_back_ ? ", goes back" : "",
                   scheme_.step ? ", changes the step" : "")};
  }

  Finding staleness() const {
    const std::string what =
        fill_in("the oldest step that a forward reads is {} before its own update{}",
                behind_,
                ahead_ > 0 ? concat("; predictions go as far as ", ahead_, " ahead") : "");
    if (!options_.bound) {
      return {"staleness", true, what};
    }
    return {
        "staleness", behind_ <= *options_.bound, concat(what, "; the bound is ", *options_.bound)};
  }

  Finding identity() const {
    const PipelineTrial own = run_pipeline(pipe(*schedule_schemes().find("one_f_one_b"), 1, 1));
    if (!own.trouble.empty()) {
      return {"identity", false, "one stage: " + own.trouble};
    }
    const PipelineTrial other = run_pipeline(with(optimizer_, {"pipeline.schedule=one_f_one_b"}));
    const bool same = own.result.summary.weights_sha256 == other.result.summary.weights_sha256;
    return {"identity",
            true,
            same ? "one stage: what the optimizer alone trains, bit for bit"
                 : "one stage: not what the optimizer alone trains",
            same};
  }

  Finding replay() const {
    return two_equal([&] { return run_pipeline(shown_); });
  }

  const PolicyScheme& scheme_;
  const ConformanceOptions& options_;
  Assignments optimizer_;
  Assignments choice_;
  Assignments shown_;  // the pipe with the greatest delay
  std::int64_t late_ = 0;
  std::string refusal_;  // of the first pipe that it does not go with
  std::string wrong_;
  std::int64_t pipes_ = 0;
  std::int64_t views_ = 0;
  std::int64_t behind_ = 0;
  std::int64_t ahead_ = 0;
  bool predicts_ = false;
  bool goes_back_ = false;
  bool displaced_ = true;
  bool newest_ = true;
};

}  // namespace

Result<std::vector<Finding>> check_policy_conformance(const PolicyScheme& scheme,
                                                      const ConformanceOptions& options) {
  return PolicyKit(scheme, options).run();
}

}  // namespace troupe::conformance
