// What peers say to one another, and the weights of evaluations.
#include "actors/exchange/peers.hpp"
#include "actors/pipeline/optimizer_parts.hpp"
#include "actors/pipeline/shard_jobs.hpp"
#include "kernels/check.hpp"
#include "kernels/wording.hpp"
#include "messages/bad_sender.hpp"
#include "messages/evaluation.hpp"

#include <algorithm>
#include <utility>

namespace troupe {
namespace {

// What shards tell one another besides what the exchange does. No name of a user's can begin so.
constexpr const char* kAsk = ":ask";    // for the weights of step stamp.batch
constexpr const char* kSeen = ":seen";  // step stamp.batch is evaluated without their weights

Weights weights_of(std::vector<Tensor> values, std::int64_t step) {
  Weights weights;
  for (Tensor& slice : values) {
    weights.push_back({.values = std::move(slice), .step = step, .version = step});
  }
  return weights;
}

using PartsOfAll = std::map<std::int32_t, std::vector<Tensor>>;  // by replica

std::vector<Tensor> mean_by_slice(Stream& stream, const PartsOfAll& parts, std::size_t slices) {
  std::vector<Tensor> means;
  for (std::size_t s = 0; s < slices; ++s) {
    std::vector<Term> terms;
    for (const auto& [replica, values] : parts) {
      terms.push_back({1.0 / static_cast<double>(parts.size()), values.at(s)});
    }
    means.push_back(weighted_sum(stream, terms));
  }
  return means;
}

/// By replica: sum of squares of its weights' distance from `means`; -1 where it has no part. `all` are the replicas.
std::vector<double> distances(Stream& stream,
                              const PartsOfAll& parts,
                              const std::vector<Tensor>& means,
                              std::size_t all) {
  std::vector<double> sums(all, -1);
  for (const auto& [replica, values] : parts) {
    double& sum = sums[static_cast<std::size_t>(replica)];
    const std::size_t weights = values.size() - means.size();
    sum = 0;
    for (std::size_t s = 0; s < means.size(); ++s) {
      sum += square_of_distance(stream, values[weights + s], means[s]);
    }
  }
  return sums;
}

/// Replicas of `count`, in rising order, that a Note names; its sender is none of them.
std::vector<std::int32_t> members_of(const Note& note, std::size_t count) {
  std::vector<std::int32_t> all;
  for (const double number : note.numbers) {
    TROUPE_BELIEVE(number >= 0 && number < static_cast<double>(count) &&
                       static_cast<std::int32_t>(number) != note.stamp.replica &&
                       (all.empty() || static_cast<std::int32_t>(number) > all.back()),
                   fill_in("replica {} has sent an unusable list of members", note.stamp.replica));
    all.push_back(static_cast<std::int32_t>(number));
  }
  return all;
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
    Computed part;
    if (of_one_moment()) {
      part.numbers = {static_cast<double>(cut_.number)};
    } else {
      part.tensors = values_of(weights_at(step));
    }
    kept_.erase(kept_.begin(), kept_.lower_bound(step));
    answer(to, step, std::move(part), fx);
  }
}

void PeerExchange::answer(std::int32_t to, std::int64_t step, Computed part, Effects& fx) {
  TROUPE_CHECK(to >= 0 && static_cast<std::size_t>(to) < seat_.peers.size(),
               "[PeerExchange] an answer for replica ",
               to);
  if (to == seat_.replica) {
    gathered(step, to, std::move(part), fx);
    return;
  }
  fx.send(seat_.peers[static_cast<std::size_t>(to)],
          Note{.stamp = {seat_.replica, seat_.chunk, step, 0},
               .what = kReply,
               .numbers = std::move(part.numbers),
               .tensors = std::move(part.tensors)});
}

void PeerExchange::gathered(std::int64_t step, std::int32_t from, Computed part, Effects& fx) {
  const auto found = gatherings_.find(step);
  if (found == gatherings_.end()) {
    return;
  }
  Gathering& gathering = found->second;
  if (of_one_moment()) {
    const auto number = static_cast<std::int64_t>(part.numbers.at(0));
    if (part.tensors.empty() != (gathering.cut == 0) ||
        (gathering.cut > 0 && number != gathering.cut)) {
      return;  // of an evaluation that another replica has begun, and died
    }
    gathering.known = std::max(gathering.known, number);
  }
  if (gathering.missing.erase(from) > 0) {
    if (!part.tensors.empty()) {
      gathering.parts[from] = std::move(part.tensors);
    }
    close_where_complete(step, fx);
  }
}

bool PeerExchange::answers_well(const Note& note) const {
  if (!of_one_moment()) {
    return fit(note.tensors);
  }
  if (note.numbers.size() != 1 || !may_be_cut(note.numbers[0])) {
    return false;
  }
  if (note.tensors.empty()) {
    return true;
  }
  const auto own = note.tensors.end() -
                   static_cast<std::ptrdiff_t>(std::min(newest_.size(), note.tensors.size()));
  return fit({own, note.tensors.end()}) &&
         (own == note.tensors.begin() || fit({note.tensors.begin(), own}));
}

void PeerExchange::close_where_complete(std::int64_t step, Effects& fx) {
  Gathering& gathering = gatherings_.at(step);
  if (!gathering.missing.empty()) {
    return;
  }
  if (of_one_moment() && gathering.cut == 0) {
    begin_cut(step, fx);
    return;
  }
  // A job even where there is one part: the shard may be in the middle of answering who asked for it.
  // The gathering stays until the job is done, so that nobody begins another one.
  run_computed(
      fx,
      {seat_.replica, seat_.chunk, step, 0},
      kMean,
      [parts = std::exchange(gathering.parts, {}),
       slices = newest_.size(),
       step,
       all = seat_.mean ? alive_.size() : 0](Stream& stream) {
        Computed made{.tensors = mean_by_slice(stream, parts, slices),
                      .numbers = {static_cast<double>(step)}};
        if (all > 0) {
          const auto told = distances(stream, parts, made.tensors, all);
          made.numbers.insert(made.numbers.end(), told.begin(), told.end());
        }
        return made;
      },
      Lane::mark);
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
  for (const auto& [next, gathering] : gatherings_) {
    if (of_one_moment() && gathering.cut == 0 && gathering.missing.empty()) {
      close_where_complete(next, fx);  // it has waited for its turn
      break;
    }
  }
}

// -- notes -----------------------------------------------------------------------------------------

void PeerExchange::tell(std::int32_t replica,
                        std::string what,
                        std::vector<double> numbers,
                        std::vector<Tensor> tensors,
                        Effects& fx) {
  TROUPE_CHECK(!what.starts_with(':'), "[PeerExchange] a Note may not be called ", what);
  TrafficRecord traffic{.replica = seat_.replica, .chunk = seat_.chunk};
  for (const Tensor& tensor : tensors) {
    traffic.bytes += 4 * tensor.elements();
  }
  fx.record(traffic);
  if (any_time()) {
    numbers.push_back(static_cast<double>(cut_.number));
    ++told_[replica];
  }
  fx.send(seat_.peers.at(static_cast<std::size_t>(replica)),
          Note{.stamp = {seat_.replica, seat_.chunk, step(), 0},
               .what = std::move(what),
               .numbers = std::move(numbers),
               .tensors = std::move(tensors)});
}

void PeerExchange::tell_members(std::int64_t round,
                                const std::vector<std::int32_t>& gone,
                                std::int64_t step,
                                Effects& fx) const {
  for (std::size_t r = 0; r < seat_.peers.size(); ++r) {
    const auto other = static_cast<std::int32_t>(r);
    if (other != seat_.replica && makes(other, step)) {
      fx.send(seat_.peers[r],
              Note{.stamp = {seat_.replica, seat_.chunk, round, 0},
                   .what = kMembers,
                   .numbers = {gone.begin(), gone.end()}});
    }
  }
}

Result<void> PeerExchange::slice_of_letter(std::size_t slice, const Tensor& told) const {
  const Codec* const codec = seat_.links.empty() ? nullptr : seat_.links[slice].codec.get();
  return told ? check_message(codec, told, newest_[slice].values.elements())
              : Error{ErrorKind::lost, "it has nothing"};
}

void PeerExchange::check_letter(const Note& note, const char* what) const {
  TROUPE_BELIEVE(note.tensors.size() == newest_.size(),
                 fill_in("replica {} has sent an unusable {}", note.stamp.replica, what));
  for (std::size_t s = 0; s < note.tensors.size(); ++s) {
    const Result<void> sound = slice_of_letter(s, note.tensors[s]);
    TROUPE_BELIEVE(sound,
                   fill_in("slice {} of chunk {}: replica {} has sent an unusable {}: {}",
                           s,
                           seat_.chunk,
                           note.stamp.replica,
                           what,
                           sound.error().message));
  }
}

void PeerExchange::came(Note m, double now, Effects& fx) {
  const std::int32_t from = m.stamp.replica;
  const bool known = from >= 0 && static_cast<std::size_t>(from) < seat_.peers.size();
  TROUPE_BELIEVE(known, "a note of replica ", from, ", which does not exist");
  if (m.what == kAsk) {
    asks_.insert({m.stamp.batch, from});
    hand_out(fx);
  } else if (m.what == kReply) {
    TROUPE_BELIEVE(answers_well(m), "replica ", from, " has answered with unusable weights");
    gathered(m.stamp.batch,
             from,
             {.tensors = std::move(m.tensors), .numbers = std::move(m.numbers)},
             fx);
  } else if (m.what == kCut || m.what == kCounts || m.what == kDue) {
    heard_of_cut(m, fx);
  } else if (m.what == kSeen) {
    kept_.erase(kept_.begin(), kept_.lower_bound(m.stamp.batch));
  } else if (m.what == kEnd) {
    leave(from, m.stamp.batch, now, fx);
  } else if (m.what == kMembers) {
    heard_members(from, m.stamp.batch, members_of(m, seat_.peers.size()));
    fewer(fx);
    settle_where_complete(now, fx);
  } else {
    if (any_time()) {
      count(m, fx);
    }
    heard(std::move(m), fx);
    settle_where_complete(now, fx);
  }
}

}  // namespace troupe
