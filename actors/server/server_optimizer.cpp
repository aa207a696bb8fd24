#include "actors/server/server_optimizer.hpp"

#include "actors/pipeline/optimizer_parts.hpp"
#include "kernels/combine.hpp"
#include "kernels/wording.hpp"
#include "messages/archive.hpp"

#include <utility>

namespace troupe {
namespace {

/// Root mean square of the distance between the base and what the contributions had read.
double mean_gap(Stream& stream, const Update& update, std::int64_t parameters) {
  double sum = 0;
  double measured = 0;
  for (const Contribution& of : update.contributions) {
    if (of.read) {
      sum += square_of_distance(stream, update.base, of.read);
      ++measured;
    }
  }
  return measured > 0 ? root_mean_square(sum / measured, parameters) : -1;
}

/// No push: the base, mixed with the weights above where these have come.
Updated without_pushes(Stream& stream, Update update, const Combine& m) {
  Updated out;
  out.next = stream.allocate(update.base.shape());
  if (m.theirs) {
    combine(stream, {{1 - m.share, update.base}, {m.share, here(stream, m.theirs)}}, out.next);
  } else {
    combine(stream, {{1, update.base}}, out.next);
  }
  return out;
}

/// What goes up: how far `next` is from the weights of the last exchange.
Tensor moved_since(Stream& stream,
                   const Tensor& since,
                   const Tensor& next,
                   const CodedLink& above,
                   LinkState& link) {
  Tensor moved = stream.allocate(since.shape());
  combine(stream, {{1, since}, {-1, next}}, moved);
  return above ? above.encode(stream, moved, 1, link) : moved;
}

/// A Step can be user code. Without predictions replicas would go on from the initial weights.
void check_predictions(const Updated& made, std::size_t wanted) {
  TROUPE_CHECK(made.predictions.size() == wanted,
               fill_in("[Step] made {} predictions of the {} that the policy of pipeline.weights "
                       "asks for (Update::reaches). A rule whose step makes none says so by "
                       "RuleScheme::sends_elsewhere, and is refused with such a policy",
                       made.predictions.size(),
                       wanted));
}

}  // namespace

void ServerOptimizer::handle(Combine m, double, Effects& fx) {
  TROUPE_CHECK(!at_work_, "a second Combine while one is out");
  at_work_ = m.from;
  run(fx,
      {.work = Work::update, .stage = c_.stage, .stamp = m.stamp, .shared = true},
      [scale = std::exchange(c_.scale, {}),
       step = std::exchange(c_.step, {}),
       parameters = c_.parameters,
       up = c_.up,
       down = c_.down,
       above = c_.above,
       votes = c_.votes,
       link = std::exchange(link_, {}),
       m = std::move(m)](Stream& stream) mutable {
        for (const std::int32_t replica : m.forget) {
          step->forget(stream, replica);
        }
        Update& update = m.update;
        for (Contribution& of : update.contributions) {  // may come from other devices
          if (up) {
            of.values.front() = decoded(stream, *up, of.values.front(), update.base.elements());
          }
          for (Tensor& values : of.values) {
            values = here(stream, values);
          }
          of.read = here(stream, of.read);
        }
        if (votes) {
          votes->decide(stream, update);
        }
        const double distance = m.gap ? mean_gap(stream, update, parameters) : -1;
        for (Contribution& of : update.contributions) {
          if (scale->needs_aim()) {
            of.aim = step->aim(stream, of, update.base);
          }
          of.values.front() = scale->correct(stream, of, update);
          of.factor *= scale->weight(of, update);
          const double share = scale->rate_share(of, update);
          (step->takes_rates() ? of.rate_share : of.factor) *= share;
        }
        const Tensor before = scale->observes() ? update.base : Tensor{};
        const Tensor start = down && link.tensors.empty() ? update.base : Tensor{};
        const std::size_t wanted = update.reaches.size();
        Updated updated = update.contributions.empty()
                              ? without_pushes(stream, std::move(update), m)
                              : step->apply(stream, std::move(update));
        check_predictions(updated, wanted);
        if (m.since) {
          updated.moved = moved_since(stream, m.since, updated.next, above, link);
        }
        if (before) {
          scale->observe(stream, before, updated.next);
        }
        updated.gap = distance;
        if (down) {
          down.encode(stream, start, updated, link);
        }
        return CombineMade{std::move(updated), std::move(scale), std::move(step), std::move(link)};
      });
}

void ServerOptimizer::handle(Ran<CombineMade> m, double, Effects& fx) {
  TROUPE_CHECK(at_work_, "a job of the server came back that was not out");
  c_.scale = std::move(m.made.scale);
  c_.step = std::move(m.made.step);
  link_ = std::move(m.made.link);
  fx.send(*std::exchange(at_work_, std::nullopt), Combined{std::move(m.made.updated)});
}

/// There is one Scale and one Step, which are read into: here, or in what a job under way has made.
void ServerOptimizer::archive(Archive& a) {
  a.lend<Scale>([scale = c_.scale] { return scale; });
  a.lend<Step>([step = c_.step] { return step; });
  a(c_.scale, c_.step, at_work_, link_);
}

}  // namespace troupe
