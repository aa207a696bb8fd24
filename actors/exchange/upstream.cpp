#include "actors/exchange/upstream.hpp"

#include "actors/exchange/answer_link.hpp"
#include "actors/exchange/cached_weights.hpp"
#include "actors/exchange/local_steps.hpp"
#include "actors/exchange/streaming.hpp"
#include "actors/pipeline/shard_jobs.hpp"
#include "messages/archive.hpp"
#include "messages/archive_sized.hpp"
#include "messages/bad_sender.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

std::unique_ptr<Upstream> make_upstream(Upstream::Config config) {
  if (const StreamingLink* streaming = config.link.streaming()) {
    return streaming->never_waits ? std::make_unique<NeverWaiting>(std::move(config))
                                  : std::make_unique<Streaming>(std::move(config));
  }
  if (config.link.local()) {
    return std::make_unique<LocalSteps>(std::move(config));
  }
  return std::make_unique<CachedWeights>(std::move(config));
}

Upstream::Upstream(Config config)
    : Exchange(
          {.pins_steps = false,
           .gradient_travels = !config.link.steps() || config.link.travel == Travel::gradient}),
      c_(std::move(config)),
      pinned_(c_.self, c_.evaluated.empty() ? c_.servers : c_.evaluated),
      lines_(c_.servers.size()) {}

void Upstream::join(ExchangeHost& host, const Weights& initial) {
  Exchange::join(host, initial);
  TROUPE_CHECK(c_.servers.size() == initial.size(), "a shard needs a server for each slice");
  for (std::size_t s = 0; s < lines_.size(); ++s) {
    lines_[s].merged.rate = rate(0);
    sizes_.push_back(initial[s].values.elements());
    if (!c_.down.empty() && !c_.down_whole) {
      lines_[s].has = initial[s].values;
      lines_[s].has_version = 0;
    }
    if (c_.link.travel == Travel::change) {
      lines_[s].since = initial[s].values;
    }
  }
  links_.resize(c_.encodes ? lines_.size() : 0);
  merged_by_step_[0].assign(lines_.size(), lines_.front().merged);
}

double Upstream::planned_rate(std::int64_t step) const {
  return c_.rule.rate(of_replica(step) * c_.link.rate_stride + run_ahead_);
}

bool Upstream::sends(std::size_t /*slice*/, std::int64_t n) const {
  return n % c_.link.push_every == 0 || (c_.link.last > 0 && n == c_.link.last);
}

/// False while an answer is missing that the next mini-batch has to merge.
bool Upstream::ready(std::int64_t batch) const {
  return std::ranges::none_of(
      lines_, [&](const Line& line) { return line.due == batch + 1 && !line.answer; });
}

// -- a push ----------------------------------------------------------------------------------------

double Upstream::note_reads() {
  const Push& push = host().push();
  std::int64_t oldest = push.stamp.batch;
  for (const Read& read : push.reads) {
    oldest = std::min(oldest, read.forward.step);
  }
  // Later mini-batches read no older step.
  merged_by_step_.erase(merged_by_step_.begin(), merged_by_step_.lower_bound(oldest));
  const std::vector<Merged>& seen = merged_by_step_.at(oldest);
  for (std::size_t s = 0; s < lines_.size(); ++s) {
    Line& line = lines_[s];
    if (line.read_version < 0) {
      line.read_version = seen[s].version;
      line.read_time = push.read_time;
    }
    if (c_.link.of_reads()) {
      const auto version = [&](std::int64_t step, std::int64_t otherwise) {
        const auto found = merged_by_step_.find(step);
        return found != merged_by_step_.end() ? found->second[s].version : otherwise;
      };
      for (Read read : push.reads) {
        read.forward_version = version(read.forward.step, read.forward_version);
        read.backward_version = version(read.backward.step, read.backward_version);
        line.reads.push_back(read);
      }
    }
  }
  return seen.front().rate;
}

void Upstream::note_clipping(double factor) {
  const bool sent_unscaled =
      c_.link.travel == Travel::gradient && c_.link.push_every == 1 && !c_.encodes;
  clip_factor_ = sent_unscaled ? factor : 1;
}

Outbound Upstream::outbound(std::int64_t n, bool made) {
  const Link& link = c_.link;
  Outbound out{.made = made,
               .accrue = link.travel == Travel::gradient && link.push_every > 1,
               .travel = link.travel,
               .since = {},
               .residuals = std::exchange(residuals_, {}),
               .links = std::exchange(links_, {})};
  for (std::size_t s = 0; s < out.links.size(); ++s) {
    out.encodes.push_back(sends(s, n));
  }
  if (out.made && link.travel == Travel::change) {
    for (std::size_t s = 0; s < lines_.size(); ++s) {
      out.since.push_back({.values = sends(s, n) ? lines_[s].since : Tensor{}});
    }
  }
  return out;
}

Inbound Upstream::inbound(std::int64_t n, bool late) {
  Inbound in;
  for (std::size_t s = 0; s < lines_.size(); ++s) {
    Line& line = lines_[s];
    if (!line.due_at(n, late)) {
      continue;
    }
    in.theirs.resize(lines_.size());
    in.own.resize(lines_.size());
    std::erase_if(line.own, [&](const auto& change) { return change.first <= line.answer->holds; });
    for (const auto& [sequence, change] : line.own) {
      in.own[s].push_back(change);
    }
    const Answer answer = *line.answer;
    // The answer does not hold these changes, and its step of the run does not count them.
    const auto since = static_cast<std::int64_t>(line.own.size()) * c_.link.push_every;
    in.theirs[s] = take_answer(s, n - 1 - since);
    answer_merged(s, answer, n);
  }
  return in;
}

Tensor Upstream::take_answer(std::size_t slice, std::int64_t n) {
  Line& line = lines_[slice];
  Answer answer = *std::exchange(line.answer, {});
  follow_run(slice, answer, n);
  line.note(answer);
  line.due = 0;
  return std::move(answer.weights.front().values);
}

/// Notes how far the run is ahead of the replica. The answer holds the first n mini-batches of this shard.
void Upstream::follow_run(std::size_t slice, const Answer& answer, std::int64_t n) {
  if (c_.link.run_rate && slice == 0) {
    run_ahead_ = answer.step - of_replica(n) * c_.link.rate_stride;
  }
}

void Upstream::applied(Applied&& made, double now, Effects& fx) {
  residuals_ = std::exchange(made.residuals, {});
  links_ = std::exchange(made.links, {});
  StepWeights next{std::exchange(made.next, {}), std::exchange(made.predictions, {})};
  finish_mini_batch(std::move(next), std::move(made), now, fx);
}

std::vector<Tensor> Upstream::outgoing_values(std::size_t slice,
                                              const StepWeights& /*made*/,
                                              Applied& parts,
                                              bool /*waits*/) {
  return {std::move(parts.outgoing.at(slice))};
}

void Upstream::finish_mini_batch(StepWeights made, Applied parts, double now, Effects& fx) {
  const std::int64_t n = mini_batch_count();
  const bool wait = waits(n);
  for (std::size_t s = 0; s < lines_.size(); ++s) {
    if (sends(s, n)) {
      upload(s, outgoing_values(s, made, parts, wait), wait, now, fx);
      if (c_.link.travel == Travel::change) {
        // The next change counts from here, unless an answer replaces it (streaming: before the next push, but for the
        // last one of the run).
        lines_[s].since = made.base.at(s).values;
      }
    } else if (wait || fetches(n)) {
      upload(s, {}, wait, now, fx);
    }
  }
  if (!wait) {
    install(std::move(made), now, fx);
    return;
  }
  next_ = std::move(made);
  merge(now, fx);
}

/// `values`: as outgoing_values(); empty: the Upload only asks for weights.
void Upstream::upload(
    std::size_t slice, std::vector<Tensor> values, bool wait, double now, Effects& fx) {
  const std::int64_t n = mini_batch_count();
  Line& line = lines_[slice];
  Upload m{.stamp = {c_.replica, c_.chunk, of_replica(n) - 1, 0},
           .sequence = ++line.sequence,
           .slice = slice,
           .answer = wait,
           .contribution = {},
           .read_version = c_.link.of_reads() ? line.read_version : line.merged.version,
           .has = line.has_version,
           .read_time = line.read_time,
           .reads = {}};
  if (!values.empty()) {
    contribute(m, std::move(values), n);
  }
  complete_upload(m, n, now);
  line.awaited = wait;
  fx.send(c_.servers[slice], std::move(m));
}

void Upstream::contribute(Upload& m, std::vector<Tensor> values, std::int64_t n) {
  Line& line = lines_[m.slice];
  m.contribution.mini_batches = n - line.pushed;
  m.contribution.rate = rate_sent();
  m.contribution.factor = clip_factor_;
  m.contribution.values = std::move(values);
  if (c_.link.of_reads()) {
    m.reads = std::exchange(line.reads, {});
  } else {
    m.reads.push_back({.forward_version = m.read_version, .backward_version = m.read_version});
  }
  line.pushed = n;
  line.read_version = -1;
}

/// Installs the weights of the next step, and notes which of the servers' updates they hold.
void Upstream::install(StepWeights made, double now, Effects& fx) {
  for (const Line& line : lines_) {
    merged_by_step_[host().step() + 1].push_back(line.merged);
  }
  host().install(std::move(made), now, fx);
}

// -- what comes from the servers -------------------------------------------------------------------

void Upstream::answered(Answer m, double now, Effects& fx) {
  TROUPE_BELIEVE(
      m.slice < lines_.size(), "an answer for slice ", m.slice, ", which does not exist");
  if (m.pinned) {
    const bool sound = !m.weights.empty() && m.weights.front().values &&
                       check_message(nullptr, m.weights.front().values, sizes_[m.slice]);
    TROUPE_BELIEVE(sound, "slice ", m.slice, ": the server has sent unusable weights of a step");
    if (auto complete = pinned_.came(std::move(m))) {
      host().reply(complete->first, std::move(complete->second), fx);
    }
    return;
  }
  const std::size_t slice = m.slice;
  Line& line = lines_.at(slice);
  const bool whole = m.weights.empty() || m.weights.front().values;
  if (!whole && m.since < line.has_version) {
    return;  // it has come before, or a newer answer has
  }
  decode(m,
         {.codec = c_.down.empty() ? nullptr : c_.down[slice].get(),
          .whole = c_.down_whole,
          .numbers = sizes_[slice],
          .has = line.has,
          .has_version = line.has_version});
  const Slice theirs = m.weights.front();
  const bool again = line.answer.has_value();  // the first arrival is the one whose time counts
  if (!line.take(std::move(m))) {
    return;
  }
  if (!again) {
    answer_came(slice, now);
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

/// Makes the next step once all answers have come that it waits for.
void Upstream::merge(double now, Effects& fx) {
  if (!std::all_of(lines_.begin(), lines_.end(), [](const Line& l) { return l.complete(); })) {
    return;
  }
  StepWeights made = std::move(*next_);
  next_.reset();
  Weights own = made.base;  // the weights that the replica's predictions start from
  std::vector<Weights> predicted = std::exchange(made.predictions, {});
  made.base.resize(lines_.size());
  for (std::size_t s = 0; s < lines_.size(); ++s) {
    take_over(s, made);
  }
  if (made.predictions.empty() && !predicted.empty()) {
    made.predictions = predicted;
    follow(fx, host().push().stamp, std::move(own), made.base, std::move(predicted));
    following_ = std::move(made);
    return;
  }
  install(std::move(made), now, fx);
}

/// Puts the answer of slice `slice` into the next step.
void Upstream::take_over(std::size_t slice, StepWeights& made) {
  Line& line = lines_[slice];
  Answer answer = std::move(*line.answer);
  line.answer.reset();
  line.awaited = false;
  // The answer holds these changes: an Upload is answered after the server has dealt with its push.
  line.own.clear();
  line.note(answer);
  follow_run(slice, answer, mini_batch_count());
  if (c_.link.travel == Travel::change) {
    line.since = answer.weights.front().values;
  }
  made.predictions.resize(answer.weights.size() - 1);
  for (std::size_t p = 0; p < made.predictions.size(); ++p) {
    made.predictions[p].resize(lines_.size());
    made.predictions[p][slice] = answer.weights[1 + p];
  }
  made.base[slice] = std::move(answer.weights.front());
  took_over(slice, answer);
}

/// The job has moved the replica's predictions by as much as the answers have moved the weights.
void Upstream::job_done(Computed m, double now, Effects& fx) {
  TROUPE_CHECK(
      following_ && m.what == kFollow, "shard ", c_.chunk, ": predictions that nobody asked for");
  StepWeights made = std::move(*std::exchange(following_, {}));
  take_followed(std::move(m), made.predictions);
  install(std::move(made), now, fx);
}

void Upstream::rejoin(std::int64_t batch, Effects& fx) {
  TROUPE_CHECK(host().step() == -1 && !next_, "shard ", c_.chunk, ": a Rejoin while it is at work");
  first_batch_ = batch;
  merged_by_step_.clear();
  next_.emplace();
  for (LinkState& link : links_) {
    link.messages = batch;  // no random number is drawn that a message of before has drawn
  }
  for (std::size_t s = 0; s < lines_.size(); ++s) {
    upload(s, {}, true, 0, fx);
    lines_[s].due = 0;  // fetches that overlap mini-batches begin with the first of these
    lines_[s].fetch = 0;
  }
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

void Upstream::archive(Archive& a) {
  Exchange::archive(a);
  archive_sized(a, lines_);
  a(pinned_,
    merged_by_step_,
    next_,
    following_,
    clip_factor_,
    first_batch_,
    run_ahead_,
    residuals_,
    links_);
  const auto fits = [this](const auto& by_slice) {
    return by_slice.empty() || by_slice.size() == lines_.size();
  };
  for (const auto& [step, merged] : merged_by_step_) {
    expect_archived(merged.size() == lines_.size(), "the state has other slices than this run");
  }
  expect_archived(!merged_by_step_.empty() && fits(residuals_) && fits(links_) &&
                      (!next_ || fits(next_->base)) && (!following_ || fits(following_->base)),
                  "the state has other slices than this run");
}

}  // namespace troupe
