// How decoupled modules that come back by themselves get their data: a module goes on with the mini-batch that the one in
// front of it sends next, whose labels may have been sent long before, when it was dead.
#include "actors/source.hpp"
#include "messages/archive.hpp"
#include "messages/ending.hpp"
#include "messages/pipeline.hpp"
#include "messages/returns.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

/// Where inputs are predicted from the data, all of a module's comes from here, and what was sent is lost.
void Source::handle(Returned m, double now, Effects& fx) {
  for (const std::int32_t module : m.modules) {
    if (c_.input_predictors.empty()) {
      fx.send(c_.stages.at(static_cast<std::size_t>(module)), Halt{});
    } else {
      go_on({module, 0, next_ / c_.micro_batches}, now, fx);
    }
  }
  mark_anew(fx);
  fx.send(c_.director, Returned{-1, std::move(m.modules)});
}

/// The module knows where it goes on.
void Source::go_on(const Halted& m, double now, Effects& fx) {
  const auto at = static_cast<std::size_t>(m.chunk);
  Rejoin rejoin{.batch = m.step, .marks = {}};
  for (const DueMark& due : due_) {
    rejoin.marks.push_back(due.step);
  }
  if (mark_) {
    rejoin.marks.push_back(mark_->due.step);
  }
  if (end_) {  // before it begins: its shard pins the weights of the end
    fx.send(c_.stages.at(at), End{*end_});
    fx.send(c_.shards.at(at), End{*end_});
  }
  fx.send(c_.stages.at(at), rejoin);
  // What it had not taken before it will not.
  const std::int64_t before = taken();
  if (taken_.size() > 1 || m.chunk == c_.credit_chunk) {
    std::int64_t& taken = taken_.at(taken_.size() > 1 ? at : 0);
    taken = std::max(taken, m.step * c_.micro_batches);
  }
  credits_ += static_cast<std::int32_t>(taken() - before);
  if (m.chunk == c_.head_chunk || at < c_.labelled.size()) {
    for (std::int64_t batch = m.step; batch < next_ / c_.micro_batches; ++batch) {
      resend_.push_back({m.chunk, batch});
    }
  }
  resend(fx);
  admit(now, fx);
}

/// Gathers the first mini-batch whose labels are to be sent again.
void Source::resend(Effects& fx) {
  if (!gathering_ && !resending_ && !resend_.empty()) {
    resending_ = true;
    gather_samples(resend_.front().second, 0, fx);
  }
}

void Source::resent(Tensor labels, double now, Effects& fx) {
  const auto [module, batch] = resend_.front();
  resend_.pop_front();
  resending_ = false;
  const Ref<LearnerRole> to = module == c_.head_chunk
                                  ? Ref<LearnerRole>(c_.head)
                                  : c_.labelled.at(static_cast<std::size_t>(module));
  fx.send(to, Labels{{c_.replica, module, batch, 0}, std::move(labels)});
  resend(fx);
  admit(now, fx);
}

void Source::mark_anew(Effects& fx) {
  if (mark_) {
    mark_->results.clear();
    ++mark_->turn;
    begun_anew_ = mark_->due.step;
    mark_->next = mark_gathering_ ? -1 : 0;
    mark(fx);
  }
}

}  // namespace troupe
