#include "actors/exchange/upstream.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

Upstream::Upstream(Config config)
    : c_(std::move(config)),
      pinned_(c_.self, c_.evaluated.empty() ? c_.servers : c_.evaluated),
      lines_(c_.servers.size()),
      paces_(c_.servers.size()),
      period_(c_.link.push_every) {}

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
    paces_[s].next = c_.link.push_every + turn_of(s);
  }
  links_.resize(c_.encodes ? lines_.size() : 0);
  seen_[0].assign(lines_.size(), lines_.front().merged);
}

double Upstream::planned_rate(std::int64_t step) const {
  return c_.rule.rate(of_replica(step) * c_.link.rate_stride + ahead_);
}

/// Of a cache of the servers' weights it is theirs.
Exchange::Label Upstream::label(std::size_t slice) const {
  if (c_.link.steps) {
    return Exchange::label(slice);
  }
  return {lines_[slice].merged.version, lines_[slice].merged.rate};
}

bool Upstream::gradient_travels() const {
  return !c_.link.steps || c_.link.travel == Travel::gradient;
}

/// The slices take turns within a period.
std::int64_t Upstream::turn_of(std::size_t slice) const {
  if (!c_.link.streams) {
    return 0;
  }
  return c_.turns.empty() ? c_.link.push_every * static_cast<std::int64_t>(slice) /
                                static_cast<std::int64_t>(lines_.size())
                          : c_.turns.at(slice);
}

/// Whether slice `slice` is sent after the first n mini-batches.
bool Upstream::sends(std::size_t slice, std::int64_t n) const {
  const Link& link = c_.link;
  const Line& line = lines_[slice];
  if (link.never_waits) {  // not with the mini-batch that the last answer is worked in with
    return line.due == 0 && n > paces_[slice].worked_in && n >= paces_[slice].next;
  }
  return link.dynamic ? n >= line.pushed + period_ : link.pushes(n, turn_of(slice));
}

bool Upstream::waits_for_fetch(std::int64_t n) const {
  const Link& link = c_.link;
  if (link.late() || link.overlaps) {
    return false;
  }
  if (link.bound >= 0) {
    std::int64_t clock = lines_.front().clock;
    for (const Line& line : lines_) {
      clock = std::min(clock, line.clock);
    }
    return sends(0, n) && clock < of_replica(n) - link.bound;
  }
  return link.steps && link.travel != Travel::gradient ? sends(0, n) : n % link.fetch_every == 0;
}

/// Whether a fetch begins after mini-batch n that nobody waits for before the next is due.
bool Upstream::asks(std::int64_t n) const {
  return c_.link.overlaps && n % c_.link.fetch_every == 0;
}

/// Not while what is due after the next mini-batch has yet to come (Link::late, a fetch that overlaps).
bool Upstream::ready(std::int64_t batch) const {
  return c_.link.never_waits || std::none_of(lines_.begin(), lines_.end(), [&](const Line& line) {
           return line.due == batch + 1 && !line.answer;
         });
}

// -- a push ----------------------------------------------------------------------------------------

bool Upstream::prepare(Apply& apply, double now, Effects& fx) {
  const std::int64_t n = mini_batches();
  note_reads(host().push());
  factor_ = apply.gradient_scale;
  apply.steps = c_.link.steps;
  apply.forward.clear();  // the gap is the servers' to measure
  if (c_.link.overlaps) {
    apply.base = fetched(n);
  }
  apply.outbound = outbound(n);
  const bool as_it_is = !apply.steps && !apply.outbound.accrue && !c_.tied && !c_.encodes;
  if (as_it_is && c_.link.travel == Travel::gradient) {
    travel({}, {.outgoing = std::move(apply.gradient)}, now, fx);
    return false;
  }
  apply.inbound = inbound(n);
  apply.rate = apply.steps ? rate(host().step()) : seen_rate_;
  apply.next_rate = rate(host().step() + 1);
  return true;
}

Outbound Upstream::outbound(std::int64_t n) {
  const Link& link = c_.link;
  const bool some = sends(0, n) || link.streams;
  Outbound out{.made = some && link.travel != Travel::weights,
               .accrue = link.travel == Travel::gradient && link.push_every > 1,
               .travel = link.travel,
               .since = {},
               .before = some && link.before,
               .moments = some && link.moments,
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

/// What the mini-batch had read of the servers' versions.
void Upstream::note_reads(const Push& push) {
  std::int64_t oldest = push.stamp.batch;
  for (const Read& read : push.reads) {
    oldest = std::min(oldest, read.forward.step);
  }
  seen_.erase(seen_.begin(), seen_.lower_bound(oldest));  // a later mini-batch reads no older step
  const std::vector<Merged>& seen = seen_.at(oldest);
  for (std::size_t s = 0; s < lines_.size(); ++s) {
    Line& line = lines_[s];
    if (line.read_version < 0) {
      line.read_version = seen[s].version;
      line.read_time = push.read_time;
    }
    if (c_.link.of_reads()) {
      const auto version = [&](std::int64_t step, std::int64_t otherwise) {
        const auto found = seen_.find(step);
        return found != seen_.end() ? found->second[s].version : otherwise;
      };
      for (Read read : push.reads) {
        read.forward_version = version(read.forward.step, read.forward_version);
        read.backward_version = version(read.backward.step, read.backward_version);
        line.reads.push_back(read);
      }
    }
  }
  seen_rate_ = seen.front().rate;
}

/// By slice, the weights that have come and take the place of the replica's own before its step of
/// mini-batch n; empty where none have.
Weights Upstream::fetched(std::int64_t n) {
  Weights theirs(lines_.size());
  for (std::size_t s = 0; s < lines_.size(); ++s) {
    Line& line = lines_[s];
    if (!line.answer) {
      continue;
    }
    follow_run(s, *line.answer, n - 1);
    line.note(*line.answer);
    theirs[s].values = line.answer->weights.front().values;
    line.answer.reset();
    line.due = 0;
    line.asked = 0;
  }
  return theirs;
}

/// What came from the servers and is worked in with mini-batch n.
Inbound Upstream::inbound(std::int64_t n) {
  Inbound in{.theirs = {},
             .mix = c_.link.mix,
             .own = {},
             .moments = std::exchange(moments_, {}),
             .reset_moments = std::exchange(reset_moments_, false)};
  const auto due = [&](const Line& line) {
    return line.due_at(n, c_.link.never_waits);
  };
  const bool any = std::any_of(lines_.begin(), lines_.end(), due);
  if (!any || next_) {
    return in;
  }
  in.theirs.resize(lines_.size());
  in.own.resize(lines_.size());
  for (std::size_t s = 0; s < lines_.size(); ++s) {
    Line& line = lines_[s];
    if (!due(line)) {
      continue;
    }
    std::erase_if(line.own, [&](const auto& change) { return change.first <= line.answer->holds; });
    for (const auto& [sequence, change] : line.own) {
      in.own[s].push_back(change);
    }
    const auto since = static_cast<std::int64_t>(line.own.size()) * c_.link.push_every;
    follow_run(
        s, *line.answer, n - 1 - since);  // which the answer's step of the run does not count
    line.note(*line.answer);
    in.theirs[s] = line.answer->weights.front().values;
    line.due = 0;
    if (c_.link.streams) {
      line.since = in.theirs[s];  // the next movement counts from the shared fragment
      paces_[s].worked_in = n;
      // From the last push on, or where the answer came late, as from one that it came in time for.
      const std::int64_t period =
          line.answer->period > 0 ? line.answer->period : c_.link.push_every;
      paces_[s].next = std::max(line.pushed, n - c_.link.overlap) + period;
    }
    line.answer.reset();
  }
  return in;
}

/// The replica hears how far the run was with n of its own mini-batches.
void Upstream::follow_run(std::size_t slice, const Answer& answer, std::int64_t n) {
  if (c_.link.run_rate && slice == 0) {
    ahead_ = answer.step - of_replica(n) * c_.link.rate_stride;
  }
}

void Upstream::applied(Applied made, double now, Effects& fx) {
  residuals_ = std::exchange(made.residuals, {});
  links_ = std::exchange(made.links, {});
  StepWeights next{std::exchange(made.next, {}), std::exchange(made.predictions, {})};
  travel(std::move(next), std::move(made), now, fx);
}

/// The mini-batch's own work is done: `made` are the replica's next weights (empty where only an
/// answer makes them), `parts` has what is to be sent, by slice.
void Upstream::travel(StepWeights made, Applied parts, double now, Effects& fx) {
  const Link& link = c_.link;
  const std::int64_t n = mini_batches();
  const bool wait = waits_for_fetch(n);
  for (std::size_t s = 0; s < lines_.size(); ++s) {
    if (!sends(s, n)) {
      if (wait || asks(n)) {
        upload(s, {}, wait, now, fx);
      }
      continue;
    }
    std::vector<Tensor> values =
        s < parts.moments.size() ? std::move(parts.moments[s]) : std::vector<Tensor>{};
    if (link.travel == Travel::weights && !c_.encodes) {
      if (link.before) {
        values.insert(values.begin(), std::move(parts.outgoing.at(s)));
      }
      values.insert(values.begin(), made.base.at(s).values);
    } else {
      values.insert(values.begin(), std::move(parts.outgoing.at(s)));
    }
    if (link.eager && !wait) {
      lines_[s].own.emplace_back(lines_[s].sequence + 1, values.front());
    }
    upload(s, std::move(values), wait, now, fx);
    if (link.travel == Travel::change) {
      // Unless an answer replaces it. Streams: only the last push can come before that answer.
      lines_[s].since = made.base.at(s).values;
    }
  }
  if (!wait) {
    host().install(std::move(made), now, fx);
    return;
  }
  next_ = std::move(made);
  merge(now, fx);
}

/// `values`: what travels, then the moments; empty: a question alone.
void Upstream::upload(
    std::size_t slice, std::vector<Tensor> values, bool wait, double now, Effects& fx) {
  const Link& link = c_.link;
  const std::int64_t n = mini_batches();
  Line& line = lines_[slice];
  const std::int64_t done = of_replica(n);
  Upload m{.stamp = {c_.replica, c_.chunk, done - 1, 0},
           .sequence = ++line.sequence,
           .slice = slice,
           .answer = wait || link.late() || asks(n),
           .clock = wait && link.bound >= 0 ? std::max<std::int64_t>(0, done - link.bound) : 0,
           .contribution = {},
           .read_version = link.of_reads() ? line.read_version : line.merged.version,
           .has = line.has_version,
           .read_time = line.read_time,
           .reads = {}};
  if (!values.empty()) {
    m.contribution.mini_batches = n - line.pushed;
    m.contribution.steps = link.never_waits ? n - paces_[slice].worked_in : 0;
    m.trip = std::exchange(paces_[slice].trip, 0);
    paces_[slice].sent = now;
    m.contribution.rate = link.steps ? rate(host().step()) : seen_rate_;
    // Elsewhere clipping is in what the replica's own optimizer has made, in the sum or in the message.
    const bool as_it_is = link.travel == Travel::gradient && link.push_every == 1 && !c_.encodes;
    m.contribution.factor = as_it_is ? factor_ : 1;
    if (link.rebases && n % link.push_every != 0) {
      m.contribution.factor = 0;  // the run's last mini-batch: it is told of, and no meeting is due
    }
    m.contribution.values = std::move(values);
    if (link.of_reads()) {
      m.reads = std::exchange(line.reads, {});
    } else {
      m.reads.push_back({.forward_version = m.read_version, .backward_version = m.read_version});
    }
    line.pushed = n;
    line.read_version = -1;
    if (link.late()) {  // else a fetch may be under way, whose answer is still due
      line.due = n + link.overlap;
    }
  }
  if (asks(n)) {
    line.due = n + link.fetch_every;
    line.asked = line.sequence;
  }
  line.awaited = wait;
  fx.send(c_.servers[slice], std::move(m));
}

void Upstream::installed() {
  for (const Line& line : lines_) {
    seen_[host().step()].push_back(line.merged);
  }
}

}  // namespace troupe
