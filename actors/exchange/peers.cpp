#include "actors/exchange/peers.hpp"

#include "actors/optimizer_parts.hpp"
#include "kernels/combine.hpp"
#include "messages/fields.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace troupe {
namespace {

// What shards tell one another besides what the exchange does. No name of a user's can begin so.
constexpr const char* kAsk = ":ask";        // for the weights of step stamp.batch
constexpr const char* kAnswer = ":answer";  // they are
constexpr const char* kSeen = ":seen";      // step stamp.batch is evaluated without their weights
constexpr const char* kEnd = ":end";        // stamp.batch was the last step

constexpr const char* kMix = ":mix";
constexpr const char* kMean = ":mean";

constexpr std::int64_t kUnknown = std::numeric_limits<std::int64_t>::max();

Weights weights_of(std::vector<Tensor> values, std::int64_t step) {
  Weights weights;
  for (Tensor& slice : values) {
    weights.push_back({.values = std::move(slice), .step = step, .version = step});
  }
  return weights;
}

std::vector<Tensor> mean_by_slice(Stream& stream,
                                  const std::map<std::int32_t, std::vector<Tensor>>& parts) {
  std::vector<Tensor> means;
  for (std::size_t s = 0; s < parts.begin()->second.size(); ++s) {
    std::vector<Term> terms;
    for (const auto& [replica, slices] : parts) {
      terms.push_back({1.0 / static_cast<double>(parts.size()), slices.at(s)});
    }
    means.push_back(weighted_sum(stream, terms));
  }
  return means;
}

/// By replica: sum of squares of its distance from `means`; -1 where it has no part. `all` are the replicas.
std::vector<double> distances(Stream& stream,
                              const std::map<std::int32_t, std::vector<Tensor>>& parts,
                              const std::vector<Tensor>& means,
                              std::size_t all) {
  std::vector<double> sums(all, -1);
  for (const auto& [replica, slices] : parts) {
    double& sum = sums[static_cast<std::size_t>(replica)];
    sum = 0;
    for (std::size_t s = 0; s < slices.size(); ++s) {
      sum += square_of_distance(stream, slices[s], means[s]);
    }
  }
  return sums;
}

/// `make(Stream&)` makes a Computed, which comes back to did().
template <class F>
void ask_for_job(Effects& fx, Lane lane, const Stamp& stamp, F make) {
  Run run{.lane = lane, .stamp = stamp};
  run.job = [lane, make = std::move(make)](Stream& stream) mutable {
    return ran(lane, make, stream);
  };
  fx.run(std::move(run));
}

}  // namespace

Tensor weighted_sum(Stream& stream, const std::vector<Term>& terms) {
  const Tensor sum = stream.allocate(terms.front().x.shape());
  for (std::size_t at = 0; at < terms.size();) {
    std::vector<Term> some;
    if (at > 0) {
      some.push_back({1, sum});
    }
    for (; at < terms.size() && some.size() < kTermsMax; ++at) {
      some.push_back(terms[at]);
    }
    combine(stream, some, sum);
  }
  return sum;
}

PeerExchange::PeerExchange(const ExchangeSeat& seat)
    : seat_(seat), ends_(seat.peers.size(), kUnknown), alive_(seat.peers.size(), true) {}

void PeerExchange::join(ExchangeHost& host, const Weights& initial) {
  Exchange::join(host, initial);
  newest_ = initial;
}

// -- a step ----------------------------------------------------------------------------------------

void PeerExchange::applied(Applied made, double now, Effects& fx) {
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
  ask_for_job(fx, Lane::sequence, host().push().stamp, [job = std::move(job)](Stream& stream) {
    Computed made = job(stream);
    made.what = kMix;
    return made;
  });
}

void PeerExchange::ask(std::string what, Mix job, Effects& fx) const {
  TROUPE_CHECK(!what.starts_with(':'), "[PeerExchange] a job may not be called ", what);
  ask_for_job(fx,
              Lane::sequence,
              {seat_.replica, seat_.chunk, step(), 0},
              [what = std::move(what), job = std::move(job)](Stream& stream) {
                Computed made = job(stream);
                made.what = what;
                return made;
              });
}

std::vector<Tensor> PeerExchange::values_of(const Weights& weights) {
  std::vector<Tensor> values;
  for (const Slice& slice : weights) {
    values.push_back(slice.values);
  }
  return values;
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

void PeerExchange::did(Computed m, double now, Effects& fx) {
  if (m.what == kMix) {
    const std::size_t slices = std::min(made_->base.size(), m.tensors.size());
    const auto more = m.tensors.begin() + static_cast<std::ptrdiff_t>(slices);
    mixed({more, m.tensors.end()}, std::move(m.numbers));
    m.tensors.erase(more, m.tensors.end());
    take_place(std::move(m.tensors), now, fx);
  } else if (m.what == kMean) {
    const auto step = static_cast<std::int64_t>(m.numbers.at(0));
    gatherings_.erase(step);
    m.numbers.erase(m.numbers.begin());
    if (!m.numbers.empty()) {
      fx.record(ConsensusRecord{seat_.replica, seat_.chunk, step, std::move(m.numbers)});
    }
    host().pin(step, weights_of(std::move(m.tensors), step), fx);
  } else {
    worked(std::move(m), fx);
    settle_where_complete(now, fx);
  }
}

/// Predictions go along with the weights that they are of.
void PeerExchange::take_place(std::vector<Tensor> mixed, double now, Effects& fx) {
  TROUPE_CHECK(mixed.size() == made_->base.size(),
               "[PeerExchange] mix() made ",
               mixed.size(),
               " slices of ",
               made_->base.size());
  Weights before = made_->base;
  for (std::size_t s = 0; s < mixed.size(); ++s) {
    const Tensor& own = made_->base[s].values;
    TROUPE_CHECK(mixed[s] && mixed[s].shape() == own.shape() && mixed[s].type() == own.type(),
                 "[PeerExchange] mix() made of slice ",
                 s,
                 " something else than ",
                 own.elements(),
                 " float32");
    made_->base[s].values = mixed[s];
  }
  if (made_->predictions.empty()) {
    settle(now, fx);
    return;
  }
  fx.send(seat_.optimizer,
          Follow{.from = seat_.self,
                 .stamp = host().push().stamp,
                 .before = std::move(before),
                 .after = std::move(mixed),
                 .predictions = std::exchange(made_->predictions, {})});
}

void PeerExchange::did(Followed m, double now, Effects& fx) {
  made_->predictions = std::move(m.predictions);
  settle(now, fx);
}

void PeerExchange::settle(double now, Effects& fx) {
  mixing_ = false;
  StepWeights made = *std::exchange(made_, {});
  newest_ = made.base;
  settled(newest_, fx);
  host().install(std::move(made), now, fx);
  note_step(fx);
}

// -- evaluations -----------------------------------------------------------------------------------

void PeerExchange::note_step(Effects& fx) {
  if (seat_.evaluation.due(step())) {
    kept_[step()] = newest_;
    if (seat_.chunk == 0 && step() != end_) {
      fx.send(seat_.director, MarkDue{.step = step()});
    }
  }
  hand_out(fx);
  finish(fx);
}

/// Whether this replica's weights of the step are there, or no later ones will be.
bool PeerExchange::has(std::int64_t step) const {
  return step <= this->step() || (end_ && this->step() >= *end_);
}

Weights PeerExchange::weights_at(std::int64_t step) const {
  const auto kept = kept_.find(step);
  return kept == kept_.end() ? newest_ : kept->second;
}

/// The first of several questions for a step makes all replicas that count look for it.
void PeerExchange::make_pin(std::int64_t step, Effects& fx) {
  if (gatherings_.contains(step)) {
    return;
  }
  Gathering& gathering = gatherings_[step];
  gathering.missing.insert(seat_.replica);
  for (std::int32_t r = 0; seat_.mean && r < static_cast<std::int32_t>(alive_.size()); ++r) {
    if (alive_[static_cast<std::size_t>(r)]) {
      gathering.missing.insert(r);
    }
  }
  const Stamp stamp{seat_.replica, seat_.chunk, step, 0};
  for (std::int32_t r = 0; r < static_cast<std::int32_t>(alive_.size()); ++r) {
    if (alive_[static_cast<std::size_t>(r)] && r != seat_.replica) {
      fx.send(seat_.peers[static_cast<std::size_t>(r)],
              Note{.stamp = stamp, .what = seat_.mean ? kAsk : kSeen});
    }
  }
  asks_.insert({step, seat_.replica});
  hand_out(fx);
}

/// Answers what can be answered, itself included. Questions come in the order of steps.
void PeerExchange::hand_out(Effects& fx) {
  while (!asks_.empty() && has(asks_.begin()->first)) {
    const auto [step, to] = *asks_.begin();
    asks_.erase(asks_.begin());
    std::vector<Tensor> values = values_of(weights_at(step));
    kept_.erase(kept_.begin(), kept_.lower_bound(step));
    if (to == seat_.replica) {
      gathered(step, to, std::move(values), fx);
      continue;
    }
    fx.send(seat_.peers[static_cast<std::size_t>(to)],
            Note{.stamp = {seat_.replica, seat_.chunk, step, 0},
                 .what = kAnswer,
                 .tensors = std::move(values)});
  }
}

void PeerExchange::gathered(std::int64_t step,
                            std::int32_t from,
                            std::vector<Tensor> tensors,
                            Effects& fx) {
  const auto found = gatherings_.find(step);
  if (found != gatherings_.end() && found->second.missing.erase(from) > 0) {
    found->second.parts[from] = std::move(tensors);
    close_where_complete(step, fx);
  }
}

void PeerExchange::close_where_complete(std::int64_t step, Effects& fx) {
  if (!gatherings_.at(step).missing.empty()) {
    return;
  }
  // A job even where there is one part: the shard may be in the middle of answering who asked for it.
  // The gathering stays until the job is done, so that nobody begins another one.
  std::map<std::int32_t, std::vector<Tensor>> parts = std::move(gatherings_.at(step).parts);
  ask_for_job(
      fx,
      Lane::mark,
      {seat_.replica, seat_.chunk, step, 0},
      [parts = std::move(parts), step, all = seat_.mean ? alive_.size() : 0](Stream& stream) {
        Computed made{.tensors = mean_by_slice(stream, parts),
                      .numbers = {static_cast<double>(step)},
                      .what = kMean};
        if (all > 0) {
          const auto told = distances(stream, parts, made.tensors, all);
          made.numbers.insert(made.numbers.end(), told.begin(), told.end());
        }
        return made;
      });
}

// -- who is left, and the end ----------------------------------------------------------------------

bool PeerExchange::makes(std::int32_t replica, std::int64_t step) const {
  const auto r = static_cast<std::size_t>(replica);
  return alive_.at(r) && step < ends_[r];
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
    leave(static_cast<std::int32_t>(r), 0, now, fx);
  }
}

void PeerExchange::leave(std::int32_t replica, std::int64_t end, double now, Effects& fx) {
  std::int64_t& known = ends_[static_cast<std::size_t>(replica)];
  if (known == kUnknown) {  // else it had come to its end, and died afterwards
    known = end;
    left(replica, fx);
  }
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
  for (std::size_t r = 0; r < alive_.size(); ++r) {
    if (alive_[r] && static_cast<std::int32_t>(r) != seat_.replica) {
      fx.send(seat_.peers[r], Note{.stamp = stamp, .what = kEnd});
    }
  }
  fx.send(seat_.director, Finished{seat_.replica, seat_.chunk, step()});
}

// -- notes -----------------------------------------------------------------------------------------

void PeerExchange::tell(std::int32_t replica,
                        std::string what,
                        std::vector<double> numbers,
                        std::vector<Tensor> tensors,
                        Effects& fx) const {
  TROUPE_CHECK(!what.starts_with(':'), "[PeerExchange] a Note may not be called ", what);
  TrafficRecord traffic{.replica = seat_.replica, .chunk = seat_.chunk};
  for (const Tensor& tensor : tensors) {
    traffic.bytes += 4 * tensor.elements();
  }
  fx.record(traffic);
  fx.send(seat_.peers.at(static_cast<std::size_t>(replica)),
          Note{.stamp = {seat_.replica, seat_.chunk, step(), 0},
               .what = std::move(what),
               .numbers = std::move(numbers),
               .tensors = std::move(tensors)});
}

void PeerExchange::came(Note m, double now, Effects& fx) {
  const std::int32_t from = m.stamp.replica;
  if (m.what == kAsk) {
    asks_.insert({m.stamp.batch, from});
    hand_out(fx);
  } else if (m.what == kAnswer) {
    gathered(m.stamp.batch, from, std::move(m.tensors), fx);
  } else if (m.what == kSeen) {
    kept_.erase(kept_.begin(), kept_.lower_bound(m.stamp.batch));
  } else if (m.what == kEnd) {
    leave(from, m.stamp.batch, now, fx);
  } else {
    heard(std::move(m), fx);
    settle_where_complete(now, fx);
  }
}

std::string PeerExchange::waits_for() const {
  return made_ && !mixing_ ? concat("what its peers tell after mini-batch ", step()) : "";
}

void PeerExchange::archive(Archive& a) {
  Exchange::archive(a);
  a(ends_, alive_, newest_, kept_, made_, mixing_, asks_, gatherings_, end_, finished_);
}

}  // namespace troupe
