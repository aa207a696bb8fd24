#include "actors/server_optimizer.hpp"

#include "actors/optimizer_parts.hpp"

#include <iterator>
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

/// An Updated as a job's outputs, and back: tensors in the order of its fields, their numbers beside.
Outputs packed(Updated u) {
  Outputs out;
  out.numbers = {u.gap,
                 u.sent ? 1.0 : 0.0,
                 static_cast<double>(u.answers.size()),
                 static_cast<double>(u.predictions.size())};
  out.tensors.push_back(std::move(u.next));
  if (u.sent) {
    out.tensors.push_back(std::move(u.sent));
  }
  for (std::vector<Tensor>* part : {&u.answers, &u.predictions, &u.moments}) {
    out.tensors.insert(out.tensors.end(),
                       std::make_move_iterator(part->begin()),
                       std::make_move_iterator(part->end()));
  }
  return out;
}

Updated unpacked(Outputs out) {
  Updated u;
  u.gap = out.numbers[0];
  auto at = std::make_move_iterator(out.tensors.begin());
  u.next = *at++;
  if (out.numbers[1] > 0) {
    u.sent = *at++;
  }
  const auto answers = static_cast<std::ptrdiff_t>(out.numbers[2]);
  const auto predictions = static_cast<std::ptrdiff_t>(out.numbers[3]);
  u.answers.assign(at, at + answers);
  u.predictions.assign(at + answers, at + answers + predictions);
  u.moments.assign(at + answers + predictions, std::make_move_iterator(out.tensors.end()));
  return u;
}

}  // namespace

void ServerOptimizer::handle(Combine m, double, Effects& fx) {
  TROUPE_CHECK(!at_work_, "a second Combine while one is out");
  at_work_ = m.from;
  fx.run({.work = Work::update,
          .stage = c_.stage,
          .stamp = m.stamp,
          .shared = true,
          .job = [scale = c_.scale, step = c_.step, parameters = c_.parameters, m = std::move(m)](
                     Stream& stream) mutable {
            for (const std::int32_t replica : m.forget) {
              step->forget(stream, replica);
            }
            Update& update = m.update;
            for (Contribution& of : update.contributions) {  // may come from other devices
              for (Tensor& values : of.values) {
                values = here(stream, values);
              }
              of.read = here(stream, of.read);
            }
            const double distance = m.gap ? mean_gap(stream, update, parameters) : -1;
            for (Contribution& of : update.contributions) {
              of.values.front() = scale->correct(stream, of, update);
              of.factor *= scale->weight(of, update);
            }
            const Tensor before = scale->observes() ? update.base : Tensor{};
            Updated updated = step->apply(stream, std::move(update));
            if (before) {
              scale->observe(stream, before, updated.next);
            }
            updated.gap = distance;
            return packed(std::move(updated));
          }});
}

void ServerOptimizer::handle(Ran m, double, Effects& fx) {
  TROUPE_CHECK(at_work_, "a job of the server came back that was not out");
  fx.send(*std::exchange(at_work_, std::nullopt), Combined{unpacked(std::move(m.outputs))});
}

}  // namespace troupe
