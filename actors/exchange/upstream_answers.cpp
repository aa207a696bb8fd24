// What comes from the servers: the messages of a codec become weights, and all that a step waits for
// makes the step.
#include "actors/answer_link.hpp"
#include "actors/exchange/upstream.hpp"
#include "messages/bad_sender.hpp"
#include "messages/optimizer.hpp"
#include "messages/servers.hpp"
#include "messages/weights.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

void Upstream::answered(Answer m, double now, Effects& fx) {
  TROUPE_BELIEVE(
      m.slice < lines_.size(), "an answer of slice ", m.slice, ", which there is none of");
  if (m.pinned) {
    const bool sound = !m.weights.empty() && m.weights.front().values &&
                       check_message(nullptr, m.weights.front().values, sizes_[m.slice]);
    TROUPE_BELIEVE(
        sound, "slice ", m.slice, ": the server has sent weights of a step that are none");
    if (auto complete = pinned_.came(std::move(m))) {
      host().reply(complete->first, std::move(complete->second), fx);
    }
    return;
  }
  const std::size_t slice = m.slice;
  Line& line = lines_.at(slice);
  const bool whole = m.weights.empty() || m.weights.front().values;
  if (!whole && m.since < line.has_version) {
    return;  // it came twice, or is of a question that was answered since
  }
  decode(m,
         {.codec = c_.down.empty() ? nullptr : c_.down[slice].get(),
          .whole = c_.down_whole,
          .numbers = sizes_[slice],
          .has = line.has,
          .has_version = line.has_version});
  const Slice theirs = m.weights.front();
  const bool again = line.answer.has_value();  // a message that came twice takes no longer
  if (!line.take(std::move(m))) {
    return;
  }
  if (c_.link.never_waits && line.due > 0 && !again) {
    paces_[slice].trip = now - paces_[slice].sent;
  }
  if (!c_.down.empty() && !c_.down_whole) {
    line.has = theirs.values;
    line.has_version = theirs.version;
  }
  if (next_) {
    merge(now, fx);
  } else {
    host().look_again(now, fx);
  }
}

/// The next step, once all answers that it waits for have come.
void Upstream::merge(double now, Effects& fx) {
  if (!std::all_of(lines_.begin(), lines_.end(), [](const Line& l) { return l.complete(); })) {
    return;
  }
  StepWeights made = std::move(*next_);
  next_.reset();
  Weights own = made.base;  // and what it alone has predicted
  std::vector<Weights> predicted = std::exchange(made.predictions, {});
  made.base.resize(lines_.size());
  for (std::size_t s = 0; s < lines_.size(); ++s) {
    work_in(s, made);
  }
  reset_moments_ = c_.link.reset_moments;
  if (made.predictions.empty() && !predicted.empty()) {
    following_ = std::move(made);
    follow(std::move(own), std::move(predicted), fx);
    return;
  }
  host().install(std::move(made), now, fx);
}

/// The answer of slice `slice` takes its place in the next step.
void Upstream::work_in(std::size_t slice, StepWeights& made) {
  Line& line = lines_[slice];
  Answer answer = std::move(*line.answer);
  line.answer.reset();
  line.awaited = false;
  line.own.clear();  // it holds them all: a question is answered when its own push is decided
  line.note(answer);
  follow_run(slice, answer, mini_batches());
  if (c_.link.travel == Travel::change) {
    line.since = answer.weights.front().values;
  }
  made.predictions.resize(answer.weights.size() - 1);
  for (std::size_t p = 0; p < made.predictions.size(); ++p) {
    made.predictions[p].resize(lines_.size());
    made.predictions[p][slice] = answer.weights[1 + p];
  }
  made.base[slice] = std::move(answer.weights.front());
  if (!answer.moments.empty()) {
    moments_.resize(lines_.size());
    moments_[slice] = std::move(answer.moments);
  }
  if (answer.period > 0 && slice == 0) {
    period_ = answer.period;
  }
}

void Upstream::follow(Weights own, std::vector<Weights> predicted, Effects& fx) {
  Follow m{.from = c_.self,
           .stamp = host().push().stamp,
           .before = std::move(own),
           .after = {},
           .predictions = std::move(predicted)};
  for (const Slice& slice : following_->base) {
    m.after.push_back(slice.values);
  }
  fx.send(c_.optimizer, std::move(m));
}

void Upstream::did(Followed m, double now, Effects& fx) {
  TROUPE_CHECK(following_, "shard ", c_.chunk, ": a Followed that nobody asked for");
  StepWeights made = std::move(*std::exchange(following_, {}));
  made.predictions = std::move(m.predictions);
  host().install(std::move(made), now, fx);
}

bool Upstream::fetch_pinned(const Pull& pull, Effects& fx) {
  pinned_.ask(pull, fx);
  return true;
}

std::string Upstream::waits_for() const {
  if (next_) {
    return "the servers' answer after mini-batch " + std::to_string(host().step());
  }
  if (!ready(host().step())) {
    return "the servers' answer that is due after mini-batch " + std::to_string(host().step());
  }
  return "";
}

}  // namespace troupe
