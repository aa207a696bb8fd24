// A shard's evaluations, the end of its run, and what it is asked when nothing moves.
#include "actors/parameter_shard.hpp"
#include "messages/archive.hpp"
#include "messages/archive_sized.hpp"
#include "messages/ending.hpp"
#include "messages/evaluation.hpp"

#include <utility>

namespace troupe {

void ParameterShard::pin(std::int64_t step, Weights weights, Effects& fx) {
  pins_[step] = std::move(weights);
  serve(fx);
  conclude(fx);
}

void ParameterShard::handle(End m, double, Effects& fx) {
  end_ = m.batches;
  c_.exchange->ended(m.batches, fx);
  if (c_.exchange->pins_steps() && step_ == *end_) {
    pins_[step_] = kept_.at(step_).base;
  }
  conclude(fx);
}

void ParameterShard::handle(Release m, double, Effects& fx) {
  if (m.passed_over) {
    c_.exchange->passed_over(m.step);
  } else if (m.conclude) {
    conclude_at_ = m.step;
    conclude(fx);
  } else if (!c_.exchange->pins_steps() || !end_ || m.step != *end_) {
    pins_.erase(m.step);  // an end brought forward to this very step would still need it
  }
}

void ParameterShard::conclude(Effects& fx) {
  if (!conclude_at_) {
    return;
  }
  if (!pins_.contains(*conclude_at_)) {
    c_.exchange->make_pin(*conclude_at_, fx);
    return;
  }
  fx.send(c_.director, Concluded{c_.chunk, 0, pins_.at(*conclude_at_)});
  conclude_at_.reset();
}

Remains ParameterShard::remains() const {
  if (!c_.exchange->of_network()) {
    return {};
  }
  const Weights& kept = kept_.at(step_).base;
  const Weights newest = kept.empty() ? c_.exchange->newest() : kept;
  return newest.empty() ? Remains{} : Remains{.weights = {{c_.chunk, 0, newest}}, .buffers = {}};
}

std::string ParameterShard::waits_for() const {
  if (applying_ || !queue_.empty()) {  // else its stage's turn comes first
    if (const std::string what = c_.exchange->waits_for(); !what.empty()) {
      return what;
    }
  }
  if (applying_) {
    return clipping_.globally() && applying_->gradient.empty()
               ? "its optimizer or the other shards' norms"
               : "its optimizer";
  }
  if (end_ && step_ >= *end_) {
    return "";
  }
  return "the gradient of mini-batch " + std::to_string(step_) +
         (queue_.empty() ? " of its stage" : " of a stage that shares a parameter");
}

/// What was read may be of a file that somebody else has made. ArchiveError.
void ParameterShard::expect_sound() const {
  expect_archived(kept_.contains(step_), "the state has no weights of the newest step");
  const auto whole = [this](const Weights& weights) {
    return weights.empty() || weights.size() == slices_;
  };
  for (const auto& [step, made] : kept_) {
    expect_archived(whole(made.base), "the state has other slices than this run");
    for (const Weights& predicted : made.predictions) {
      expect_archived(predicted.size() == slices_, "the state has other slices than this run");
    }
  }
  for (const auto& [step, pinned] : pins_) {
    expect_archived(pinned.size() == slices_, "the state has other slices than this run");
  }
}

void ParameterShard::archive(Archive& a) {
  c_.exchange->archive(a);
  a(clipping_,
    tied_,
    step_,
    kept_,
    pins_,
    waiting_,
    queue_,
    applying_,
    last_sequence_,
    end_,
    conclude_at_);
  if (a.reading()) {
    expect_sound();
  }
}

}  // namespace troupe
