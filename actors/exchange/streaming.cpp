#include "actors/exchange/streaming.hpp"

#include "messages/archive.hpp"
#include "messages/archive_sized.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

std::int64_t Streaming::turn_of(std::size_t slice) const {
  const std::vector<std::int64_t>& turns = config().turns;
  return turns.empty() ? link().push_every * static_cast<std::int64_t>(slice) /
                             static_cast<std::int64_t>(slices())
                       : turns.at(slice);
}

bool Streaming::sends(std::size_t slice, std::int64_t n) const {
  const std::int64_t since = n - turn_of(slice);
  return (link().last > 0 && n == link().last) || (since > 0 && since % link().push_every == 0);
}

bool Streaming::prepare(Apply& apply, double /*now*/, Effects& /*fx*/) {
  const std::int64_t n = mini_batch_count();
  note_reads();
  apply.steps = true;
  apply.forward.clear();  // the gap is the servers' to measure
  apply.outbound = outbound(n, true);
  apply.inbound = inbound(n, how_.never_waits);
  apply.inbound.mix = how_.mix;
  apply.rate = rate(host().step());
  apply.next_rate = rate(host().step() + 1);
  return true;
}

void Streaming::complete_upload(Upload& m, std::int64_t n, double /*now*/) {
  m.answer = true;
  if (!m.contribution.values.empty()) {
    line(m.slice).due = n + how_.overlap;
  }
}

/// The next movement counts from the shared fragment.
void Streaming::answer_merged(std::size_t slice, const Answer& answer, std::int64_t /*n*/) {
  line(slice).since = answer.weights.front().values;
}

NeverWaiting::NeverWaiting(Config config) : Streaming(std::move(config)), paces_(slices()) {}

void NeverWaiting::join(ExchangeHost& host, const Weights& initial) {
  Upstream::join(host, initial);
  for (std::size_t s = 0; s < slices(); ++s) {
    paces_[s].next = link().push_every + turn_of(s);
  }
}

/// Not after the mini-batch that has merged the last answer.
bool NeverWaiting::sends(std::size_t slice, std::int64_t n) const {
  const Pace& pace = paces_[slice];
  return line(slice).due == 0 && n > pace.merged_at && n >= pace.next;
}

void NeverWaiting::complete_upload(Upload& m, std::int64_t n, double now) {
  Streaming::complete_upload(m, n, now);
  if (!m.contribution.values.empty()) {
    Pace& pace = paces_[m.slice];
    m.contribution.steps = n - pace.merged_at;
    m.trip = std::exchange(pace.trip, 0);
    pace.sent = now;
  }
}

void NeverWaiting::answer_came(std::size_t slice, double now) {
  if (line(slice).due > 0) {
    paces_[slice].trip = now - paces_[slice].sent;
  }
}

void NeverWaiting::answer_merged(std::size_t slice, const Answer& answer, std::int64_t n) {
  Streaming::answer_merged(slice, answer, n);
  paces_[slice].merged_at = n;
  // From the last push on, or where the answer came late, as from one that it came in time for.
  const std::int64_t period = answer.period > 0 ? answer.period : link().push_every;
  paces_[slice].next = std::max(line(slice).pushed, n - overlap()) + period;
}

void NeverWaiting::archive(Archive& a) {
  Upstream::archive(a);
  archive_sized(a, paces_);
}

}  // namespace troupe
