#include "actors/exchange/peers.hpp"

#include "actors/pipeline/optimizer_parts.hpp"
#include "actors/pipeline/shard_jobs.hpp"
#include "kernels/sequences.hpp"
#include "kernels/wording.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace troupe {

Tensor weighted_sum(Stream& stream, const std::vector<Term>& terms) {
  const Tensor sum = stream.allocate(terms.front().x.shape());
  for (std::size_t at = 0; at < terms.size();) {
    std::vector<Term> some;
    if (at > 0) {
      some.push_back({1, sum});
    }
    for (; at < terms.size() && some.size() < kTermsMax; ++at) {
      some.push_back({terms[at].factor, here(stream, terms[at].x)});
    }
    combine(stream, some, sum);
  }
  return sum;
}

PeerExchange::PeerExchange(const ExchangeSeat& seat)
    : Exchange({.pins_steps = false}), seat_(seat), alive_(seat.peers.size(), true) {}

void PeerExchange::join(ExchangeHost& host, const Weights& initial) {
  Exchange::join(host, initial);
  newest_ = initial;
}

// -- a step ----------------------------------------------------------------------------------------

void PeerExchange::applied(Applied&& made, double now, Effects& fx) {
  AppliedRecord record = record_of(host().push(), made, step(), now);
  record.rate = rate(step());
  fx.record(std::move(record));
  made_ = StepWeights{std::move(made.next), std::move(made.predictions)};
  stepped(made_->base, fx);
  settle_where_complete(now, fx);
}

void PeerExchange::settle_where_complete(double now, Effects& fx) {
  if (!made_ || mixing_ || !complete()) {
    return;
  }
  Mix job = mix(made_->base);
  if (!job) {
    settle(now, fx);
    return;
  }
  mixing_ = true;
  run_computed(fx, host().push().stamp, kMix, std::move(job));
}

void PeerExchange::mixed(std::vector<Tensor> more, std::vector<double> /*numbers*/) {
  TROUPE_CHECK(more.empty(),
               fill_in("[PeerExchange] mix() made {} slices of {}",
                       made_->base.size() + more.size(),
                       made_->base.size()));
}

void PeerExchange::ask(std::string what, Mix job, Effects& fx) const {
  TROUPE_CHECK(!what.starts_with(':'), "[PeerExchange] a job may not be called ", what);
  run_computed(fx, {seat_.replica, seat_.chunk, step(), 0}, std::move(what), std::move(job));
}

std::vector<Tensor> PeerExchange::values_of(const Weights& weights) {
  return mapped<Tensor>(weights, [&](const Slice& slice) { return slice.values; });
}

bool PeerExchange::fit(const std::vector<Tensor>& tensors) const {
  return std::equal(tensors.begin(),
                    tensors.end(),
                    newest_.begin(),
                    newest_.end(),
                    [](const Tensor& tensor, const Slice& slice) {
                      return tensor && tensor.type() == slice.values.type() &&
                             tensor.shape() == slice.values.shape();
                    });
}

void PeerExchange::job_done(Computed m, double now, Effects& fx) {
  if (m.what == kMix) {
    const std::size_t slices = std::min(made_->base.size(), m.tensors.size());
    const auto more = m.tensors.begin() + static_cast<std::ptrdiff_t>(slices);
    mixed({more, m.tensors.end()}, std::move(m.numbers));
    m.tensors.erase(more, m.tensors.end());
    take_place(std::move(m.tensors), now, fx);
  } else if (m.what == kFollow) {
    take_followed(std::move(m), made_->predictions);
    settle(now, fx);
  } else if (m.what == kMean) {
    evaluated(std::move(m), fx);
  } else if (m.what == kPart) {
    const auto step = static_cast<std::int64_t>(m.numbers.at(0));
    const auto to = static_cast<std::int32_t>(m.numbers.at(1));
    m.numbers.erase(m.numbers.begin(), m.numbers.begin() + 2);
    answer(to, step, std::move(m), fx);
  } else {
    worked(std::move(m), fx);
    settle_where_complete(now, fx);
  }
}

/// Predictions go along with the weights that they are of.
void PeerExchange::take_place(std::vector<Tensor> mixed, double now, Effects& fx) {
  TROUPE_CHECK(
      mixed.size() == made_->base.size(),
      fill_in("[PeerExchange] mix() made {} slices of {}", mixed.size(), made_->base.size()));
  Weights before = made_->base;
  for (std::size_t s = 0; s < mixed.size(); ++s) {
    const Tensor& own = made_->base[s].values;
    TROUPE_CHECK(mixed[s] && mixed[s].shape() == own.shape() && mixed[s].type() == own.type(),
                 fill_in("[PeerExchange] mix() made of slice {} something else than {} float32",
                         s,
                         own.elements()));
    made_->base[s].values = mixed[s];
  }
  if (made_->predictions.empty()) {
    settle(now, fx);
    return;
  }
  follow(fx, host().push().stamp, std::move(before), made_->base, made_->predictions);
}

void PeerExchange::settle(double now, Effects& fx) {
  mixing_ = false;
  StepWeights made = *std::exchange(made_, {});
  newest_ = made.base;
  settled(newest_, fx);
  host().install(std::move(made), now, fx);
  note_step(fx);
}

// -- who is left, and the end ----------------------------------------------------------------------

bool PeerExchange::makes(std::int32_t replica, std::int64_t step) const {
  const auto end = ends_.find(replica);
  return lives(replica) && (end == ends_.end() || step < end->second);
}

std::vector<std::int32_t> PeerExchange::gone_by(std::int64_t step) const {
  std::vector<std::int32_t> gone;
  for (const auto& [r, end] : ends_) {
    if (r != seat_.replica && !makes(r, step)) {
      gone.push_back(r);
    }
  }
  return gone;
}

void PeerExchange::membership(const Membership& m, double now, Effects& fx) {
  for (std::size_t r = 0; r < alive_.size(); ++r) {
    if (!alive_[r] || m.alive[r]) {
      continue;
    }
    alive_[r] = false;
    std::vector<std::int64_t> open;
    for (auto& [step, gathering] : gatherings_) {
      if (gathering.missing.erase(static_cast<std::int32_t>(r)) > 0) {
        open.push_back(step);
      }
    }
    for (const std::int64_t step : open) {
      close_where_complete(step, fx);
    }
    for (auto& [step, gathering] : gatherings_) {
      if (gathering.uncounted.erase(static_cast<std::int32_t>(r)) > 0) {
        hand_out_dues(step, gathering, fx);
      }
    }
    strike_off(static_cast<std::int32_t>(r), fx);
    leave(static_cast<std::int32_t>(r), 0, now, fx);
  }
}

void PeerExchange::leave(std::int32_t replica, std::int64_t end, double now, Effects& fx) {
  if (ends_.try_emplace(replica, end).second) {  // else it had come to its end, and died afterwards
    left(replica, fx);
  }
  fewer(fx);
  settle_where_complete(now, fx);
}

void PeerExchange::ended(std::int64_t batches, Effects& fx) {
  end_ = batches;
  hand_out(fx);
  finish(fx);
}

void PeerExchange::finish(Effects& fx) {
  if (!end_ || step() < *end_ || std::exchange(finished_, true)) {
    return;
  }
  const Stamp stamp{seat_.replica, seat_.chunk, step(), 0};
  Hearers hearers = step() == seat_.batches ? minding_the_end_of_all() : std::nullopt;
  if (!hearers) {
    hearers.emplace(alive_.size());
    std::iota(hearers->begin(), hearers->end(), 0);
  }
  for (const std::int32_t r : *hearers) {
    if (lives(r) && r != seat_.replica) {
      fx.send(seat_.peers[static_cast<std::size_t>(r)], Note{.stamp = stamp, .what = kEnd});
    }
  }
  fx.send(seat_.director, Finished{seat_.replica, seat_.chunk, step()});
}

std::string PeerExchange::waits_for() const {
  return made_ && !mixing_ ? concat("what its peers tell after mini-batch ", step()) : "";
}

}  // namespace troupe
