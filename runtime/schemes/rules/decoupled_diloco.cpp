// Decoupled DiLoCo (Douillard et al. 2026, arXiv:2604.21428): when a fragment's outer step is made, and how
// the movements of several replicas become one. With c the numbers since a replica took the outer weights
// over last, its weight is w = c_tokens (c_tokens / c_steps) (section 3.2). With phi(x) = x / |x|, phi(0) = 0,
//
//   RDA({v, w}) = (sum w |v| / sum w) phi(sum w phi(v) / sum w)              of each tensor but embeddings
//   mean({v, w}) = sum w v / sum w                                            of embeddings
//
// An outer step waits for K replicas, then for a share gamma of what is left of the overlap (equation 3):
// gamma (tau xi_step - xi_quorum - xi_sync), of the times of a mini-batch, until the quorum was complete, and of
// messages with the outer step. The RDA of one vector is that vector.
#include "experiment/replicas.pb.h"
#include "kernels/update.hpp"
#include "runtime/schemes/exchanges/exchange.hpp"
#include "runtime/schemes/rules/parts.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

namespace troupe {
namespace {

class Decoupled final : public Admission {
 public:
  explicit Decoupled(const proto::Diloco& options)
      : options_(options.mode().decoupled()), period_(static_cast<double>(outer_period(options))) {}

  /// Only who has moved from the newest weights counts for the quorum, and who was told to send earlier by
  /// the share of a period that it has moved for: who came too late for the last outer step, or is slow, does
  /// not begin the next alone. With all living here nobody is waited for.
  Choice choose(const std::vector<Arrival>& waiting,
                const Ledger& ledger,
                double now) const override {
    const std::int64_t living = ledger.living();
    const auto wanted = static_cast<double>(std::min(living, options_.quorum()));
    std::set<std::int32_t> here;
    double shares = 0;
    double began = std::numeric_limits<double>::infinity();
    double met = began;
    for (const Arrival& push : waiting) {
      if (ledger.replicas.at(static_cast<std::size_t>(push.replica)).alive) {
        here.insert(push.replica);
      }
      if (push.read_version < ledger.version) {
        continue;
      }
      const double share =
          std::min(1.0, static_cast<double>(push.mini_batches) / (kFull * period_));
      shares += share;
      if (share == 1) {  // who sends early has been told to, and waits for the others
        began = std::min(began, push.time);
      }
      if (shares >= wanted - 1e-9) {
        met = std::min(met, push.time);
      }
    }
    const bool all = static_cast<std::int64_t>(here.size()) == living;
    const double until = met + (std::isfinite(met) ? grace(ledger, met - std::min(began, met)) : 0);
    Choice choice;
    if (!all && now < until) {
      choice.ask_again = until;
      return choice;
    }
    for (std::size_t i = 0; i < waiting.size(); ++i) {
      choice.take.push_back(i);
    }
    return choice;
  }

  /// One that came too late gets the newest weights all the same: its movement is in the next ones.
  bool answers(std::int32_t replica, const Ledger& ledger) const override {
    const Standing& asker = ledger.replicas.at(static_cast<std::size_t>(replica));
    return asker.waiting == 0 || asker.handed < ledger.version;
  }

  std::int64_t answers_by(const Ledger& ledger) const override { return ledger.version; }

 private:
  /// Seconds, by the fastest of the living and the slowest of their messages: nobody whose movement is in an
  /// outer step gets it later than its overlap allows for. None before anything has been measured.
  double grace(const Ledger& ledger, double quorum) const {
    double step = std::numeric_limits<double>::infinity();
    double sync = 0;
    for (const Standing& s : ledger.replicas) {
      if (s.alive && s.step > 0) {
        step = std::min(step, s.step);
        sync = std::max(sync, s.sync);
      }
    }
    const double left = static_cast<double>(options_.overlap()) * step - quorum - sync;
    return std::isfinite(step) ? options_.grace() * std::max(0.0, left) : 0;
  }

  // A share of a period that counts as all of it: speeds are measured, and vary.
  static constexpr double kFull = 0.75;

  proto::DecoupledDiloco options_;
  double period_;
};

/// Of elements [offset, offset + n) of x. Waits for it.
double norm_of(Stream& stream, const Tensor& x, std::int64_t offset, std::int64_t n) {
  Tensor out = stream.allocate({1}, DType::float64);
  const Part part{offset, n};
  sum_of_squares(stream, x, {&part, 1}, out);
  out.set_ready(stream.record());
  return std::sqrt(to_host(out)[0]);
}

/// What a movement weighs: how much its replica has seen, times how much of it in a step.
double token_weight(double tokens, double steps) {
  return tokens * (tokens / steps);
}

std::vector<double> merge_weights(const Update& update, double rows) {
  std::vector<double> weights;
  for (const Contribution& of : update.contributions) {
    const auto steps = static_cast<double>(std::max<std::int64_t>(1, of.steps));
    weights.push_back(token_weight(steps * rows, steps));
  }
  return weights;
}

/// Puts the RDA of one tensor, `shape` from `offset`, into the same place of `out`.
void radial_directional(Stream& stream,
                        const Update& update,
                        const std::vector<double>& weights,
                        const RuleContext::Part& part,
                        const Tensor& out) {
  const std::int64_t n = part.shape.elements();
  double radius = 0;
  double total = 0;
  std::vector<Term> directions;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const Contribution& of = update.contributions[i];
    const Tensor& v = of.values.front();
    const double length = norm_of(stream, v, part.offset, n);
    total += weights[i];
    radius += weights[i] * std::abs(of.factor) * length;
    // A movement so small that the factor of its direction would leave float32 has none.
    const bool some = length * std::numeric_limits<float>::max() > weights[i];
    if (some && of.factor != 0) {
      directions.push_back(
          {weights[i] * (of.factor > 0 ? 1 : -1) / length, v.view(part.offset, {n})});
    }
  }
  const Tensor place = out.view(part.offset, {n});
  if (directions.empty()) {
    fill(stream, place, 0);
    return;
  }
  const Tensor direction = sum_of(stream, directions);
  const double length = norm_of(stream, direction, 0, n);
  combine(stream, {{length > 0 ? radius / total / length : 0, direction}}, place);
}

}  // namespace

std::unique_ptr<Admission> decoupled_quorum(const proto::Diloco& options) {
  return std::make_unique<Decoupled>(options);
}

Term merged_movement(Stream& stream, const Update& update, const MovementMerge& merge) {
  if (update.contributions.size() == 1) {
    return {update.contributions.front().factor, update.contributions.front().values.front()};
  }
  const std::vector<double> weights = merge_weights(update, merge.rows);
  double total = 0;
  for (const double weight : weights) {
    total += weight;
  }
  std::vector<Term> terms;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const Contribution& of = update.contributions[i];
    terms.push_back({weights[i] * of.factor / total, of.values.front()});
  }
  const Tensor merged = sum_of(stream, terms);
  for (const RuleContext::Part& tensor : merge.radial) {
    radial_directional(stream, update, weights, tensor, merged);
  }
  return {1, merged};
}

}  // namespace troupe
