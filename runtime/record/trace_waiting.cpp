#include "runtime/record/trace_waiting.hpp"

#include "messages/record.hpp"

#include <algorithm>
#include <iterator>

namespace troupe {
namespace {

constexpr std::string_view kNothingToDo = "nothing to do";

bool starts_before(const TimeSpan& x, const TimeSpan& y) {
  return x.start < y.start;
}

/// In order, each once, within the run.
void unite(std::vector<TimeSpan>& spans, const TimeSpan& run) {
  std::sort(spans.begin(), spans.end(), starts_before);
  std::vector<TimeSpan> united;
  for (TimeSpan span : spans) {
    span = {std::max(span.start, run.start), std::min(span.end, run.end)};
    if (span.start >= span.end) {
      continue;
    }
    if (!united.empty() && span.start <= united.back().end) {
      united.back().end = std::max(united.back().end, span.end);
    } else {
      united.push_back(span);
    }
  }
  spans = std::move(united);
}

/// The span of `spans`, which stand in order and apart, that time `at` is in, or null.
template <class Span>
const Span* span_at(const std::vector<Span>& spans, std::int64_t at) {
  const auto next =
      std::upper_bound(spans.begin(), spans.end(), at, [](std::int64_t t, const Span& one) {
        return t < one.start;
      });
  if (next == spans.begin() || std::prev(next)->end <= at) {
    return nullptr;
  }
  return &*std::prev(next);
}

}  // namespace

ThreadTimes::ThreadTimes(const std::vector<ActorTimes*>& actors, TimeSpan run) : run_(run) {
  std::vector<TimeSpan> busy;
  std::vector<TimeSpan> pending;
  for (ActorTimes* const actor : actors) {
    unite(actor->busy, run);
    unite(actor->pending, run);
    std::erase_if(actor->wants, [](const TimeSpan& span) { return span.start >= span.end; });
    std::sort(actor->wants.begin(), actor->wants.end(), starts_before);
    busy.insert(busy.end(), actor->busy.begin(), actor->busy.end());
    pending.insert(pending.end(), actor->pending.begin(), actor->pending.end());
  }
  unite(busy, run);
  unite(pending, run);
  busy.push_back({run.end, run.end});
  std::int64_t free_since = run.start;
  for (const TimeSpan& one : busy) {
    if (free_since < one.start) {
      // Where nothing waited when it began, the thread slept until something came.
      const bool slept = !span_at(pending, free_since);
      turns_.push_back({{free_since, one.start}, slept ? spent::kWakeUp : spent::kDispatch});
    }
    if (one.start < one.end) {
      turns_.push_back({one, spent::kQueue});
    }
    free_since = one.end;
  }
}

const char* ThreadTimes::kept_by(std::int64_t at) const {
  const Turn* const turn = span_at(turns_, at);
  return turn ? turn->keeps : spent::kBubble;
}

std::vector<TraceSlice> ThreadTimes::waiting_of(const ActorTimes& actor) const {
  std::vector<std::int64_t> edges{run_.start, run_.end};
  const auto add_edges = [&](const auto& spans) {
    for (const TimeSpan& span : spans) {
      edges.push_back(std::clamp(span.start, run_.start, run_.end));
      edges.push_back(std::clamp(span.end, run_.start, run_.end));
    }
  };
  add_edges(actor.busy);
  add_edges(actor.pending);
  add_edges(actor.wants);
  for (const TimeSpan& span : actor.pending) {
    auto turn = std::upper_bound(turns_.begin(), turns_.end(), span, starts_before);
    for (; turn != turns_.end() && turn->start < span.end; ++turn) {
      edges.push_back(turn->start);
    }
  }
  std::sort(edges.begin(), edges.end());
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  std::vector<TraceSlice> waiting;
  for (std::size_t i = 0; i + 1 < edges.size(); ++i) {
    const std::int64_t at = edges[i];
    if (span_at(actor.busy, at)) {
      continue;
    }
    const auto* const lacks = span_at(actor.wants, at);
    const std::string_view name = lacks ? kWants.at(lacks->want) : kNothingToDo;
    const char* const category = span_at(actor.pending, at) ? kept_by(at) : spent::kBubble;
    const bool goes_on = !waiting.empty() && waiting.back().end == at &&
                         waiting.back().name == name && waiting.back().category == category;
    if (goes_on) {
      waiting.back().end = edges[i + 1];
    } else {
      waiting.push_back({.start = at, .end = edges[i + 1], .name = name, .category = category});
    }
  }
  return waiting;
}

}  // namespace troupe
