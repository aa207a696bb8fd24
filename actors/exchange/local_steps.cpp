#include "actors/exchange/local_steps.hpp"

#include "messages/archive.hpp"
#include "messages/archive_sized.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

LocalSteps::LocalSteps(Config config)
    : Upstream(std::move(config)), how_(*link().local()), period_(link().push_every) {}

bool LocalSteps::sends(std::size_t slice, std::int64_t n) const {
  return link().dynamic ? n >= line(slice).pushed + period_ : Upstream::sends(slice, n);
}

bool LocalSteps::waits(std::int64_t n) const {
  if (how_.takes != LocalLink::Takes::at_once) {
    return false;
  }
  if (how_.clocks) {
    std::int64_t clock = line(0).clock;
    for (std::size_t s = 1; s < slices(); ++s) {
      clock = std::min(clock, line(s).clock);
    }
    return sends(0, n) && clock < of_replica(n) - how_.clocks->bound;
  }
  return link().travel == Travel::gradient ? n % how_.fetch_every == 0 : sends(0, n);
}

bool LocalSteps::fetches(std::int64_t n) const {
  return how_.takes == LocalLink::Takes::overlapping && n % how_.fetch_every == 0;
}

bool LocalSteps::prepare(Apply& apply, double /*now*/, Effects& /*fx*/) {
  const std::int64_t n = mini_batch_count();
  note_reads();
  note_clipping(apply.gradient_scale);
  apply.steps = true;
  apply.forward.clear();  // the gap is the servers' to measure
  if (how_.takes == LocalLink::Takes::overlapping) {
    apply.base = fetched(n);
  }
  const bool some = sends(0, n);
  apply.outbound = outbound(n, some && link().travel != Travel::weights);
  apply.outbound.before = some && how_.before;
  apply.outbound.moments = some && how_.moments == LocalLink::Moments::travel;
  apply.inbound = inbound(n, false);
  apply.inbound.moments = std::exchange(moments_, {});
  apply.inbound.reset_moments = std::exchange(reset_moments_, false);
  apply.rate = rate(host().step());
  apply.next_rate = rate(host().step() + 1);
  return true;
}

/// By slice, the weights that have come and take the place of the replica's own before its step of
/// mini-batch n; empty where none have.
Weights LocalSteps::fetched(std::int64_t n) {
  Weights theirs(slices());
  for (std::size_t s = 0; s < slices(); ++s) {
    if (line(s).answer) {
      theirs[s].values = take_answer(s, n - 1);
      line(s).fetch = 0;
    }
  }
  return theirs;
}

/// The optimizer's moments travel behind the rest.
std::vector<Tensor> LocalSteps::outgoing_values(std::size_t slice,
                                                const StepWeights& made,
                                                Applied& parts,
                                                bool waits) {
  std::vector<Tensor> values;
  const bool weights = link().travel == Travel::weights && !config().encodes;
  if (weights) {
    values.push_back(made.base.at(slice).values);
  }
  if (!weights || how_.before) {
    values.push_back(std::move(parts.outgoing.at(slice)));
  }
  if (slice < parts.moments.size()) {
    std::move(parts.moments[slice].begin(), parts.moments[slice].end(), std::back_inserter(values));
  }
  if (how_.clocks && how_.clocks->eager && !waits) {
    line(slice).own.emplace_back(line(slice).sequence + 1, values.front());
  }
  return values;
}

void LocalSteps::complete_upload(Upload& m, std::int64_t n, double /*now*/) {
  Line& line = this->line(m.slice);
  if (m.answer && how_.clocks) {
    m.clock = std::max<std::int64_t>(0, of_replica(n) - how_.clocks->bound);
  }
  if (how_.takes == LocalLink::Takes::before_step) {
    m.answer = true;
    if (!m.contribution.values.empty()) {
      line.due = n + 1;
      if (n % link().push_every != 0) {
        m.contribution.factor =
            0;  // the run's last mini-batch: it is told of, and no meeting is due
      }
    }
  }
  if (fetches(n)) {
    m.answer = true;
    line.due = n + how_.fetch_every;
    line.fetch = line.sequence;
  }
}

void LocalSteps::took_over(std::size_t slice, Answer& answer) {
  reset_moments_ = how_.moments == LocalLink::Moments::reset;
  if (!answer.moments.empty()) {
    moments_.resize(slices());
    moments_[slice] = std::move(answer.moments);
  }
  if (answer.period > 0 && slice == 0) {
    period_ = answer.period;
  }
}

void LocalSteps::archive(Archive& a) {
  Upstream::archive(a);
  a(period_, moments_, reset_moments_);
  expect_archived(moments_.empty() || moments_.size() == slices(),
                  "the state has other slices than this run");
}

}  // namespace troupe
