#include "actors/casts/sandblaster/coordinator.hpp"

#include "actors/casts/sandblaster/vector_names.hpp"
#include "actors/run/ending.hpp"
#include "messages/archive.hpp"
#include "messages/evaluation.hpp"

#include <cmath>
#include <utility>

namespace troupe {
namespace {

using Kind = VectorCommand::Kind;
using namespace vectors;

}  // namespace

Coordinator::Coordinator(Config config)
    : c_(std::move(config)),
      pass_({.workers = c_.workers,
             .shards = c_.shards.size(),
             .samples = c_.samples,
             .test_samples = c_.test_samples,
             .portions = c_.portions,
             .backup = c_.backup}),
      search_({.armijo = c_.armijo, .shrink = c_.shrink}),
      direction_(c_.history),
      shards_(c_.shards) {}

void Coordinator::handle(Start, double now, Effects& fx) {
  begin_pass(false, now, fx);
}

// -- passes over the data --------------------------------------------------------------------------

void Coordinator::begin_pass(bool test, double now, Effects& fx) {
  doing_ = test ? Doing::testing : Doing::evaluating;
  pass_.begin({.test = test, .version = shards_.version(), .batch = evaluations_, .began = now},
              fx);
}

void Coordinator::handle(PortionDone m, double now, Effects& fx) {
  if (pass_.came(std::move(m))) {
    complete(now, fx);
    pass_.deal(fx);
  }
}

void Coordinator::handle(GradientReady m, double now, Effects& fx) {
  pass_.came(m);
  complete(now, fx);
}

/// Where the pass is complete: goes on with what it was for.
void Coordinator::complete(double now, Effects& fx) {
  if (pass_.complete()) {
    doing_ == Doing::testing ? tested(now, fx) : judge(now, fx);
  }
}

// -- L-BFGS ----------------------------------------------------------------------------------------

/// Loss and gradient at the point are known: accepts the step, or shortens it.
void Coordinator::judge(double now, Effects& fx) {
  Tensor total = pass_.take_total();
  const double loss = total.span<double>()[0] / static_cast<double>(rows());
  record_batch(std::move(total), loss, now, fx);
  ++evaluations_;
  ending_ |= halted_ || (c_.batches > 0 && evaluations_ >= c_.batches) ||
             (c_.seconds > 0 && now >= c_.seconds);
  if (evaluations_ == 1 || search_.enough(loss)) {
    accept(loss, fx);
    return;
  }
  ending_ |= !search_.shorten();
  if (ending_) {
    conclude(now, fx);
  } else {
    move(fx);
  }
}

void Coordinator::record_batch(Tensor total, double loss, double now, Effects& fx) {
  if (evaluations_ > 0 && !std::isfinite(loss)) {
    // A step far too long, which is shortened, is no divergence and must not be recorded as one.
    total.span<double>()[0] = search_.loss() * static_cast<double>(rows());
  }
  const Stamp stamp{.batch = evaluations_};
  fx.record(LossRecord{
      .stamp = stamp, .samples = c_.samples, .rows = rows(), .result = std::move(total)});
  fx.record(AppliedRecord{.stamp = stamp,
                          .applied_to = evaluations_,
                          .rate = search_.length(),
                          .seconds = now - pass_.goal().began,
                          .reads = {{.forward = {evaluations_, {}},
                                     .backward = {evaluations_, {}},
                                     .forward_version = evaluations_,
                                     .backward_version = evaluations_}}});
}

void Coordinator::accept(double loss, Effects& fx) {
  search_.accept(loss);
  at_weights_ = true;
  command(Doing::accepting, direction_.accept(evaluations_ == 1), fx);
}

/// From an accepted point: to a test, the end or the next direction.
void Coordinator::go_on(double now, Effects& fx) {
  const bool due = c_.evaluate_every > 0 && evaluations_ % c_.evaluate_every == 0;
  if (due && !ending_ && tested_ != evaluations_) {
    begin_pass(true, now, fx);
  } else if (ending_) {
    conclude(now, fx);
  } else {
    direct(direction_.begin(), now, fx);
  }
}

/// `commands`: the next ones of the direction; none: it is made.
void Coordinator::direct(LbfgsDirection::Commands commands, double now, Effects& fx) {
  if (commands.empty()) {
    descend(now, fx);
  } else {
    command(Doing::directing, commands, fx);
  }
}

void Coordinator::descend(double now, Effects& fx) {
  if (direction_.slope() < 0) {
    search_.begin(direction_.slope(), direction_.first_length());
    move(fx);
  } else if (direction_.forget()) {  // rounding has made the direction useless
    direct(direction_.begin(), now, fx);
  } else {
    ending_ = true;  // the gradient is 0
    conclude(now, fx);
  }
}

void Coordinator::move(Effects& fx) {
  at_weights_ = false;
  command(Doing::moving,
          {{Kind::copy, kPoint, kWeights},
           {Kind::add_scaled, kPoint, kDirection, static_cast<float>(search_.length())}},
          fx);
}

// -- the shards ------------------------------------------------------------------------------------

void Coordinator::command(Doing doing, const LbfgsDirection::Commands& commands, Effects& fx) {
  doing_ = doing;
  shards_.send(commands, doing == Doing::moving, fx);
}

void Coordinator::handle(VectorReply m, double now, Effects& fx) {
  const auto dots = shards_.came(std::move(m));
  if (!dots) {
    return;
  }
  switch (doing_) {
    case Doing::moving:
      begin_pass(ending_, now, fx);  // at the end only back to the weights, for a last test
      break;
    case Doing::accepting:
      direction_.accepted(*dots);
      go_on(now, fx);
      break;
    case Doing::directing:
      direct(direction_.next(*dots), now, fx);
      break;
    case Doing::evaluating:
    case Doing::testing:
    case Doing::concluding:
      break;
  }
}

// -- tests and the end -----------------------------------------------------------------------------

void Coordinator::tested(double now, Effects& fx) {
  const Tensor total = pass_.take_total();
  const auto labels = static_cast<double>(c_.test_samples * c_.labels_per_sample);
  const double accuracy = total.span<double>()[1] / labels;
  tested_ = evaluations_;
  fx.record(EvaluationRecord{.step = evaluations_,
                             .loss = total.span<double>()[0] / labels,
                             .accuracy = accuracy,
                             .has_accuracy = c_.classes,
                             .samples = c_.test_samples});
  ending_ |= halted_ || (c_.target_accuracy > 0 && accuracy >= c_.target_accuracy);
  go_on(now, fx);
}

void Coordinator::conclude(double now, Effects& fx) {
  if (c_.evaluate && tested_ != evaluations_) {
    if (!at_weights_) {
      at_weights_ = true;
      command(Doing::moving, {{Kind::copy, kPoint, kWeights}}, fx);
    } else {
      begin_pass(true, now, fx);
    }
    return;
  }
  doing_ = Doing::concluding;
  for (const auto& shard : shards_.shards()) {
    fx.send(shard, Release{evaluations_, true});
  }
}

void Coordinator::handle(PointReply m, double, Effects& fx) {
  final_[m.shard] = std::move(m.values);
  if (final_.size() < shards_.shards().size()) {
    return;
  }
  Ending ending;
  ending.step = evaluations_;
  ending.weights.emplace_back();
  for (auto& [shard, values] : final_) {
    ending.weights.front().push_back(
        {.values = std::move(values), .step = evaluations_, .version = evaluations_});
  }
  ending.buffers = {{}};
  finish(std::move(ending), fx);
}

void Coordinator::handle(Halt, double, Effects&) {
  halted_ = true;  // seen when the batch is complete
}

void Coordinator::handle(Down m, double, Effects& fx) {
  const auto lost = pass_.lose(m.id);
  if (lost && lost->first_time) {
    fx.record(LossOfReplica{.replica = lost->worker, .cause = m.actor + ": " + m.cause});
  }
  if (lost && pass_.any_alive()) {
    pass_.deal(fx);
  } else {
    finish(ending_of(m), fx);
  }
}

void Coordinator::handle(Diverged m, double, Effects& fx) {
  finish(ending_of(m, c_.allow_divergence), fx);
}

void Coordinator::finish(Ending ending, Effects& fx) {
  if (!std::exchange(finished_, true)) {
    fx.finish(std::move(ending));
  }
}

std::string Coordinator::waits_for() const {
  if (finished_) {
    return "";
  }
  switch (doing_) {
    case Doing::evaluating:
    case Doing::testing:
      return pass_.left() > 0 ? concat(pass_.left(), " portions of batch ", evaluations_)
                              : "the shards' sums";
    case Doing::concluding:
      return "the final weights";
    default:
      return "the shards";
  }
}

void Coordinator::archive(Archive& a) {
  a(doing_,
    pass_,
    search_,
    direction_,
    shards_,
    evaluations_,
    tested_,
    at_weights_,
    ending_,
    halted_,
    finished_,
    final_);
}

}  // namespace troupe
