// What peers say to one another, and the weights of evaluations.
#include "actors/exchange/peers.hpp"
#include "actors/optimizer_parts.hpp"
#include "kernels/check.hpp"

#include "messages/bad_sender.hpp"

#include <utility>

namespace troupe {
namespace {

// What shards tell one another besides what the exchange does. No name of a user's can begin so.
constexpr const char* kAsk = ":ask";        // for the weights of step stamp.batch
constexpr const char* kAnswer = ":answer";  // they are
constexpr const char* kSeen = ":seen";      // step stamp.batch is evaluated without their weights

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

}  // namespace

// -- evaluations -----------------------------------------------------------------------------------

void PeerExchange::note_step(Effects& fx) {
  const bool passed = passed_over_.erase(step()) > 0;
  if (seat_.evaluation.due(step()) && !passed) {
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

bool PeerExchange::fetch_pinned(const Pull& pull, Effects& fx) {
  if (pull.own) {
    own_pulls_.push_back(pull);
    hand_out(fx);
  }
  return pull.own;
}

void PeerExchange::passed_over(std::int64_t step) {
  if (kept_.erase(step) == 0 && step > this->step()) {
    passed_over_.insert(step);
  }
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
  std::erase_if(own_pulls_, [&](const Pull& pull) {
    const bool there = has(pull.view.step);
    if (there) {
      host().reply(pull, weights_at(pull.view.step), fx);
    }
    return there;
  });
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
  run_job(fx,
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

/// The mean has been made.
void PeerExchange::evaluated(Computed m, Effects& fx) {
  const auto step = static_cast<std::int64_t>(m.numbers.at(0));
  gatherings_.erase(step);
  m.numbers.erase(m.numbers.begin());
  if (!m.numbers.empty()) {
    fx.record(ConsensusRecord{seat_.replica, seat_.chunk, step, std::move(m.numbers)});
  }
  host().pin(step, weights_of(std::move(m.tensors), step), fx);
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

void PeerExchange::check_letter(const Note& note, const char* what) const {
  TROUPE_BELIEVE(note.tensors.size() == newest_.size(),
               "replica ",
               note.stamp.replica,
               " has told ",
               what,
               " that is none");
  for (std::size_t s = 0; s < note.tensors.size(); ++s) {
    const Codec* const codec = seat_.links.empty() ? nullptr : seat_.links[s].codec.get();
    const Result<void> sound =
        note.tensors[s] ? check_message(codec, note.tensors[s], newest_[s].values.elements())
                        : Error{ErrorKind::lost, "it has nothing"};
    TROUPE_BELIEVE(sound,
                 "slice ",
                 s,
                 " of chunk ",
                 seat_.chunk,
                 ": replica ",
                 note.stamp.replica,
                 " has told ",
                 what,
                 " that is none: ",
                 sound.error().message);
  }
}

void PeerExchange::came(Note m, double now, Effects& fx) {
  const std::int32_t from = m.stamp.replica;
  const bool known = from >= 0 && static_cast<std::size_t>(from) < seat_.peers.size();
  TROUPE_BELIEVE(known, "a note of replica ", from, ", which there is none of");
  if (m.what == kAsk) {
    asks_.insert({m.stamp.batch, from});
    hand_out(fx);
  } else if (m.what == kAnswer) {
    TROUPE_BELIEVE(fit(m.tensors), "replica ", from, " has answered with weights that are none");
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

}  // namespace troupe
