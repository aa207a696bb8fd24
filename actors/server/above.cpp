#include "actors/server/above.hpp"

#include "actors/exchange/answer_link.hpp"

#include <utility>

namespace troupe {

Above::Above(Config config, Tensor initial) : c_(std::move(config)), since_(std::move(initial)) {
  if (c_.down && !c_.down_whole) {
    has_ = since_;
    has_version_ = 0;
  }
}

Membership Above::own(Membership m) const {
  for (std::size_t r = 0; r < m.alive.size(); ++r) {
    m.alive[r] = m.alive[r] && c_.members.at(r);
  }
  return m;
}

void Above::accumulate(const std::vector<Upload>& pushes, Combine& job) {
  for (const Upload& m : pushes) {
    ++pushes_;
    mini_batches_ += m.contribution.mini_batches;
    rate_ = m.contribution.rate;
  }
  if (!out_ && pushes_ >= c_.accumulate) {
    job.since = since_;
  }
}

void Above::merge(Combine& job) {
  at_work_ = true;
  job.theirs = theirs_->weights.front().values;
  job.share = c_.merge;
}

void Above::flush(Combine& job) {
  at_work_ = true;
  job.since = since_;
}

void Above::done(Tensor moved, const Tensor& weights, double now, Effects& fx) {
  if (moved) {
    send(std::move(moved), fx);
  } else if (at_work_) {
    read_version_ = theirs_->weights.front().version;
    read_time_ = now;
    theirs_.reset();
    since_ = weights;
    pushes_ = 0;
    out_ = false;
  }
  at_work_ = false;
}

void Above::send(Tensor moved, Effects& fx) {
  out_ = true;
  sent_ += mini_batches_;
  Upload m{.stamp = {.replica = c_.group, .chunk = c_.chunk, .batch = sent_ - 1},
           .sequence = ++sequence_,
           .slice = c_.slice,
           .contribution = {},
           .read_version = read_version_,
           .has = has_version_,
           .read_time = read_time_,
           .reads = {{.forward_version = read_version_, .backward_version = read_version_}},
           .far = true};
  m.contribution.mini_batches = std::exchange(mini_batches_, 0);
  m.contribution.rate = rate_;
  m.contribution.values.push_back(std::move(moved));
  fx.send(c_.server, std::move(m));
}

bool Above::came(Answer m) {
  if (!out_ || theirs_ || m.request != sequence_) {
    return false;
  }
  decode(m,
         {.codec = c_.down.get(),
          .whole = c_.down_whole,
          .numbers = since_.elements(),
          .has = has_,
          .has_version = has_version_});
  if (has_) {
    has_ = m.weights.front().values;
    has_version_ = m.weights.front().version;
  }
  theirs_ = std::move(m);
  return true;
}

}  // namespace troupe
