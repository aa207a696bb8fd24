#include "actors/coordinator.hpp"

#include "actors/ending.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace troupe {
namespace {

using Kind = VectorCommand::Kind;

constexpr VectorName kWeights{.kind = VectorKind::weights};
constexpr VectorName kPoint{.kind = VectorKind::point};
constexpr VectorName kGradient{.kind = VectorKind::gradient};
constexpr VectorName kSum{.kind = VectorKind::sum};
constexpr VectorName kDirection{.kind = VectorKind::direction};

VectorName step_of(std::int64_t slot) {
  return {VectorKind::step, slot};
}

VectorName change_of(std::int64_t slot) {
  return {VectorKind::change, slot};
}

// s.y must be this share of y.y, or the pair would turn descent into ascent (Nocedal & Wright 2006,
// section 7.2 has the recursion; the guard keeps the inverse Hessian positive).
constexpr double kCurvatureMin = 1e-10;
constexpr std::int32_t kShortenedMax = 40;  // then no step along the direction helps
constexpr std::int64_t kTestSamples = 500;  // of a portion of the test data

std::int32_t test_portions(std::int64_t samples) {
  return static_cast<std::int32_t>((samples + kTestSamples - 1) / kTestSamples);
}

}  // namespace

Coordinator::Coordinator(Config config) : c_(std::move(config)), workers_(c_.workers.size()) {}

void Coordinator::handle(Start, double now, Effects& fx) {
  begin_pass(false, now, fx);
}

// -- portions -------------------------------------------------------------------------------------

void Coordinator::begin_pass(bool test, double now, Effects& fx) {
  doing_ = test ? Doing::testing : Doing::evaluating;
  dealer_.emplace(test ? test_portions(c_.test_samples) : c_.portions, c_.backup);
  results_.clear();
  ready_ = 0;
  pass_began_ = now;
  deal(fx);
}

Portion Coordinator::portion(std::int32_t index, std::int32_t worker) const {
  const bool test = doing_ == Doing::testing;
  const std::int64_t samples = test ? c_.test_samples : c_.samples;
  const std::int64_t portions = test ? test_portions(samples) : c_.portions;
  const std::int64_t first = index * samples / portions;
  const std::int64_t last = (index + 1) * samples / portions;
  return {.stamp = {.replica = worker, .batch = evaluations_, .micro_batch = index},
          .version = version_,
          .first = first,
          .last = last,
          .test = test,
          .share =
              static_cast<float>(static_cast<double>(last - first) / static_cast<double>(samples))};
}

void Coordinator::deal(Effects& fx) {
  if (doing_ != Doing::evaluating && doing_ != Doing::testing) {
    return;
  }
  for (std::size_t w = 0; w < workers_.size(); ++w) {
    const auto worker = static_cast<std::int32_t>(w);
    if (!workers_[w].alive || workers_[w].busy) {
      continue;
    }
    if (const auto index = dealer_->deal(worker)) {
      workers_[w].busy = true;
      fx.send(c_.workers[w], portion(*index, worker));
    }
  }
}

void Coordinator::handle(PortionDone m, double now, Effects& fx) {
  const std::int32_t worker = m.stamp.replica;
  Worker& sender = workers_.at(static_cast<std::size_t>(worker));
  if (!sender.alive) {
    return;  // its portions have been taken from it
  }
  sender.busy = false;
  // A test and the batch before it are at one version; their stamps differ.
  const bool open = (doing_ == Doing::evaluating || doing_ == Doing::testing) &&
                    m.version == version_ && m.stamp.batch == evaluations_;
  if (open && !m.result) {
    dealer_->lose(worker);  // it had been answered with another version: again
  } else if (open && dealer_->finish(worker, m.stamp.micro_batch)) {
    results_[m.stamp.micro_batch] = std::move(m.result);
    complete(now, fx);
  }
  deal(fx);
}

void Coordinator::handle(GradientReady m, double now, Effects& fx) {
  if (m.version == version_ && doing_ == Doing::evaluating) {
    ++ready_;
    complete(now, fx);
  }
}

/// Where the pass is complete: goes on with what it was for.
void Coordinator::complete(double now, Effects& fx) {
  const auto shards = static_cast<std::int64_t>(c_.shards.size());
  if (!dealer_->complete() || (doing_ == Doing::evaluating && ready_ < shards)) {
    return;
  }
  doing_ == Doing::testing ? tested(now, fx) : judge(now, fx);
}

// -- L-BFGS ---------------------------------------------------------------------------------------

/// Loss and gradient at the point are known.
void Coordinator::judge(double now, Effects& fx) {
  // In the order of the portions, into the first one's tensor: nobody else holds it any more.
  Tensor total = std::move(results_.at(0));
  results_.erase(0);
  for (const auto& [index, result] : results_) {
    total.span<double>()[0] += result.span<double>()[0];
    total.span<double>()[1] += result.span<double>()[1];
  }
  results_.clear();
  const std::int64_t rows = c_.samples * c_.labels_per_sample;
  point_loss_ = total.span<double>()[0] / static_cast<double>(rows);
  if (evaluations_ > 0 && !std::isfinite(point_loss_)) {
    // A step far too long, which is shortened, is no divergence and must not be recorded as one.
    total.span<double>()[0] = loss_ * static_cast<double>(rows);
  }
  const Stamp stamp{.batch = evaluations_};
  fx.record(
      LossRecord{.stamp = stamp, .samples = c_.samples, .rows = rows, .result = std::move(total)});
  fx.record(AppliedRecord{.stamp = stamp,
                          .applied_to = evaluations_,
                          .rate = length_,
                          .seconds = now - pass_began_,
                          .reads = {{.forward = {evaluations_, {}},
                                     .backward = {evaluations_, {}},
                                     .forward_version = evaluations_,
                                     .backward_version = evaluations_}}});
  ++evaluations_;
  ending_ |= halted_ || (c_.batches > 0 && evaluations_ >= c_.batches) ||
             (c_.seconds > 0 && now >= c_.seconds);
  // Written so that a loss that is not a number is no decrease.
  if (evaluations_ == 1 || point_loss_ <= loss_ + c_.armijo * length_ * slope_) {
    accept(fx);
  } else if (++shortened_ > kShortenedMax) {
    ending_ = true;
    conclude(now, fx);
  } else if (ending_) {
    conclude(now, fx);
  } else {
    move(length_ * c_.shrink, fx);
  }
}

void Coordinator::accept(Effects& fx) {
  std::vector<VectorCommand> commands;
  if (evaluations_ > 1) {
    const VectorName s = step_of(slot_);
    const VectorName y = change_of(slot_);
    commands = {{Kind::copy, s, kPoint},
                {Kind::add_scaled, s, kWeights, -1},
                {Kind::copy, y, kSum},
                {Kind::add_scaled, y, kGradient, -1},
                {Kind::dot, s, y},
                {Kind::dot, y, y}};
  }
  commands.push_back({Kind::copy, kWeights, kPoint});
  commands.push_back({Kind::copy, kGradient, kSum});
  commands.push_back({Kind::dot, kGradient, kGradient});
  loss_ = point_loss_;
  at_weights_ = true;
  shortened_ = 0;
  command(Doing::curvature, std::move(commands), false, fx);
}

void Coordinator::note_pair(const std::vector<double>& dots) {
  gradient_square_ = dots.back();
  if (dots.size() == 1 || c_.history == 0) {
    return;
  }
  const double sy = dots[0];
  const double yy = dots[1];
  if (!(sy > kCurvatureMin * yy)) {
    return;  // the slot is used again
  }
  scale_ = sy / yy;
  pairs_.push_back({.slot = slot_, .rho = 1 / sy});
  if (static_cast<std::int64_t>(pairs_.size()) > c_.history) {
    pairs_.pop_front();
  }
  slot_ = (slot_ + 1) % (c_.history + 1);  // one more than there are pairs: never one in use
}

/// From an accepted point: to a test, the end or the next direction.
void Coordinator::go_on(double now, Effects& fx) {
  const bool due = c_.evaluate_every > 0 && evaluations_ % c_.evaluate_every == 0;
  if (due && !ending_ && tested_ != evaluations_) {
    begin_pass(true, now, fx);
  } else if (ending_) {
    conclude(now, fx);
  } else {
    begin_direction(fx);
  }
}

// The two-loop recursion: q = g; for pairs from the newest, alpha = rho s.q, q -= alpha y;
// q *= s.y / y.y; for pairs from the oldest, q += (alpha - rho y.q) s; direction = -q.

void Coordinator::begin_direction(Effects& fx) {
  std::vector<VectorCommand> commands{{Kind::copy, kDirection, kGradient}};
  if (pairs_.empty()) {
    commands.push_back({Kind::scale, kDirection, {}, -1});
    commands.push_back({Kind::dot, kDirection, kGradient});
    command(Doing::slope, std::move(commands), false, fx);
    return;
  }
  at_ = pairs_.size() - 1;
  commands.push_back({Kind::dot, kDirection, step_of(pairs_[at_].slot)});
  command(Doing::backward, std::move(commands), false, fx);
}

/// The pair at_ has its alpha: to the next older one, or to the second loop.
void Coordinator::turn(Effects& fx) {
  const Pair& pair = pairs_[at_];
  std::vector<VectorCommand> commands{
      {Kind::add_scaled, kDirection, change_of(pair.slot), static_cast<float>(-pair.alpha)}};
  if (at_ > 0) {
    --at_;
    commands.push_back({Kind::dot, kDirection, step_of(pairs_[at_].slot)});
    command(Doing::backward, std::move(commands), false, fx);
    return;
  }
  commands.push_back({Kind::scale, kDirection, {}, static_cast<float>(scale_)});
  commands.push_back({Kind::dot, kDirection, change_of(pair.slot)});
  command(Doing::forward, std::move(commands), false, fx);
}

void Coordinator::step_forward(double change_dot, Effects& fx) {
  const Pair& pair = pairs_[at_];
  std::vector<VectorCommand> commands{{Kind::add_scaled,
                                       kDirection,
                                       step_of(pair.slot),
                                       static_cast<float>(pair.alpha - pair.rho * change_dot)}};
  if (++at_ < pairs_.size()) {
    commands.push_back({Kind::dot, kDirection, change_of(pairs_[at_].slot)});
    command(Doing::forward, std::move(commands), false, fx);
    return;
  }
  commands.push_back({Kind::scale, kDirection, {}, -1});
  commands.push_back({Kind::dot, kDirection, kGradient});
  command(Doing::slope, std::move(commands), false, fx);
}

void Coordinator::descend(double slope, double now, Effects& fx) {
  slope_ = slope;
  if (slope_ < 0) {
    // Without curvature nothing is known of the scale: a step of length 1 at most.
    move(pairs_.empty() ? std::min(1.0, 1 / std::sqrt(gradient_square_)) : 1.0, fx);
  } else if (!pairs_.empty()) {
    pairs_.clear();  // rounding has made the direction useless: begin again with the gradient
    begin_direction(fx);
  } else {
    ending_ = true;  // the gradient is 0
    conclude(now, fx);
  }
}

void Coordinator::move(double length, Effects& fx) {
  length_ = length;
  at_weights_ = false;
  command(Doing::moving,
          {{Kind::copy, kPoint, kWeights},
           {Kind::add_scaled, kPoint, kDirection, static_cast<float>(length)}},
          true,
          fx);
}

// -- the shards -----------------------------------------------------------------------------------

void Coordinator::command(Doing doing,
                          std::vector<VectorCommand> commands,
                          bool moves,
                          Effects& fx) {
  doing_ = doing;
  version_ += moves;
  ++request_;
  replies_.clear();
  for (const auto& shard : c_.shards) {
    fx.send(shard, VectorCommands{request_, version_, commands});
  }
}

void Coordinator::handle(VectorReply m, double now, Effects& fx) {
  if (m.request != request_) {
    return;
  }
  replies_[m.shard] = std::move(m.dots);
  if (replies_.size() < c_.shards.size()) {
    return;
  }
  std::vector<double> dots(replies_.begin()->second.size());
  for (const auto& [shard, of_shard] : replies_) {
    for (std::size_t i = 0; i < dots.size(); ++i) {
      dots[i] += of_shard[i];
    }
  }
  replies_.clear();
  replied(dots, now, fx);
}

void Coordinator::replied(const std::vector<double>& dots, double now, Effects& fx) {
  switch (doing_) {
    case Doing::moving:
      begin_pass(ending_, now, fx);  // at the end only back to the weights, for a last test
      break;
    case Doing::curvature:
      note_pair(dots);
      go_on(now, fx);
      break;
    case Doing::backward:
      pairs_[at_].alpha = pairs_[at_].rho * dots.front();
      turn(fx);
      break;
    case Doing::forward:
      step_forward(dots.front(), fx);
      break;
    case Doing::slope:
      descend(dots.front(), now, fx);
      break;
    case Doing::evaluating:
    case Doing::testing:
    case Doing::concluding:
      break;
  }
}

// -- tests and the end ----------------------------------------------------------------------------

void Coordinator::tested(double now, Effects& fx) {
  double loss = 0;
  double right = 0;
  for (const auto& [index, result] : results_) {
    loss += result.span<double>()[0];
    right += result.span<double>()[1];
  }
  results_.clear();
  const auto labels = static_cast<double>(c_.test_samples * c_.labels_per_sample);
  tested_ = evaluations_;
  fx.record(EvaluationRecord{.step = evaluations_,
                             .loss = loss / labels,
                             .accuracy = right / labels,
                             .has_accuracy = c_.classes,
                             .samples = c_.test_samples});
  ending_ |= halted_ || (c_.target_accuracy > 0 && right / labels >= c_.target_accuracy);
  go_on(now, fx);
}

void Coordinator::conclude(double now, Effects& fx) {
  if (c_.evaluate && tested_ != evaluations_) {
    if (!at_weights_) {
      at_weights_ = true;
      command(Doing::moving, {{Kind::copy, kPoint, kWeights}}, true, fx);
    } else {
      begin_pass(true, now, fx);
    }
    return;
  }
  doing_ = Doing::concluding;
  for (const auto& shard : c_.shards) {
    fx.send(shard, Release{evaluations_, true});
  }
}

void Coordinator::handle(PointReply m, double, Effects& fx) {
  final_[m.shard] = std::move(m.values);
  if (final_.size() < c_.shards.size()) {
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
  std::size_t left = 0;
  bool worker_lost = false;
  for (std::size_t w = 0; w < workers_.size(); ++w) {
    const auto worker = static_cast<std::int32_t>(w);
    if (m.id == c_.workers[w].id) {
      worker_lost = true;
      if (workers_[w].alive) {
        fx.record(LossOfReplica{.replica = worker, .cause = m.actor + ": " + m.cause});
      }
      workers_[w].alive = false;
      if (dealer_) {
        dealer_->lose(worker);
      }
    }
    left += workers_[w].alive;
  }
  if (worker_lost && left > 0) {
    deal(fx);
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
      return dealer_ && !dealer_->complete()
                 ? concat(dealer_->left(), " portions of batch ", evaluations_)
                 : "the shards' sums";
    case Doing::concluding:
      return "the final weights";
    default:
      return "the shards";
  }
}

}  // namespace troupe
