#include "actors/run/run_end.hpp"

#include "messages/archive.hpp"

#include <algorithm>

namespace troupe {
namespace {

/// The run may be to end at the very step that waits to be evaluated.
void queue_in_order(std::deque<MarkDue>& marks, const MarkDue& m) {
  if (!marks.empty() && marks.back().step == m.step) {
    marks.back().last |= m.last;
  } else {
    marks.push_back(m);
  }
}

}  // namespace

void RunEnd::release(std::int32_t holder, const Release& m, Effects& fx) const {
  for (const auto& shard : company_.shards.at(static_cast<std::size_t>(holder))) {
    fx.send(shard, m);
  }
}

// -- at the source ---------------------------------------------------------------------------------

/// Replica 0 speaks for all.
void EndAtSource::halt(const std::vector<bool>& /*alive*/, Effects& fx) {
  fx.send(company_.sources.front(), Halt{});
}

// -- at the servers --------------------------------------------------------------------------------

bool EndAtServers::news(const MarkDue& m) {
  if (m.last && !come_to_) {
    come_to_ = m.step;
  }
  return true;
}

std::vector<std::int64_t> EndAtServers::queue(std::deque<MarkDue>& marks, const MarkDue& m) const {
  queue_in_order(marks, m);
  return {};
}

void EndAtServers::release(std::int32_t /*holder*/, const Release& m, Effects& fx) const {
  for (const auto& server : company_.servers) {
    fx.send(server, m);
  }
}

void EndAtServers::halt(const std::vector<bool>& /*alive*/, Effects& fx) {
  if (!std::exchange(halted_, true)) {
    for (const auto& server : company_.servers) {
      fx.send(server, Halt{});
    }
  }
}

void EndAtServers::halted(const Halted& m, Effects& fx) {
  progress_[{m.chunk, m.slice}] = m.step;
  if (progress_.size() < company_.servers.size() || std::exchange(told_end_, true)) {
    return;
  }
  const auto [least, most] =
      std::minmax_element(progress_.begin(), progress_.end(), [](const auto& a, const auto& b) {
        return a.second < b.second;
      });
  // Where nothing has been applied, the first update.
  const std::int64_t end =
      nobody_waits_ ? come_to_.value_or(least->second) : std::max<std::int64_t>(1, most->second);
  for (const auto& server : company_.servers) {
    fx.send(server, End{end});
  }
}

void EndAtServers::membership(const Membership& m, Effects& fx) const {
  for (const auto& server : company_.told()) {
    fx.send(server, m);
  }
}

// -- with the last of all --------------------------------------------------------------------------

bool EndOfAll::news(const MarkDue& m) {
  if (m.step <= announced_) {
    return false;
  }
  announced_ = m.step;
  return true;
}

std::vector<std::int64_t> EndOfAll::queue(std::deque<MarkDue>& marks, const MarkDue& m) const {
  if (marks.size() > 1) {
    marks.pop_back();  // it waits for its turn, and would read then what this one reads
  }
  marks.push_back(m);
  return {};  // nothing is kept for any
}

void EndOfAll::halt(const std::vector<bool>& alive, Effects& fx) {
  for (std::size_t r = 0; r < company_.sources.size(); ++r) {
    if (alive[r]) {
      fx.send(company_.sources[r], Halt{});
    }
  }
}

void EndOfAll::finished(const Finished& m) {
  done_.insert({m.replica, m.chunk});
  updates_ = std::max(updates_, m.updates);
}

void EndOfAll::membership(const Membership& m, Effects& fx) const {
  for (std::size_t r = 0; r < m.alive.size(); ++r) {
    for (const auto& shard : company_.shards[r]) {
      if (m.alive[r]) {
        fx.send(shard, m);
      }
    }
  }
}

/// The newest stays, which may be the last of the run.
std::vector<std::int64_t> EndOfPeers::queue(std::deque<MarkDue>& marks, const MarkDue& m) const {
  queue_in_order(marks, m);
  std::vector<std::int64_t> passed_over;
  if (marks.size() <= 1 + kWaitingMax) {
    return passed_over;
  }
  std::deque<MarkDue> made{marks.front()};
  for (std::size_t i = 1; i < marks.size(); ++i) {
    if (i % 2 == 0 || i + 1 == marks.size()) {
      made.push_back(marks[i]);
    } else {
      passed_over.push_back(marks[i].step);
    }
  }
  marks = std::move(made);
  return passed_over;
}

/// The last step is what the last of the living leaves.
std::optional<std::int64_t> EndOfAll::all_finished(const std::vector<bool>& alive) {
  // Asked at each end of a chunk; most of the time there are too few of these to look further.
  const auto living = static_cast<std::size_t>(std::count(alive.begin(), alive.end(), true));
  if (done_.size() < living * static_cast<std::size_t>(company_.chunks)) {
    return {};
  }
  for (std::size_t r = 0; r < alive.size(); ++r) {
    for (std::int32_t c = 0; c < company_.chunks && alive[r]; ++c) {
      if (!done_.contains({static_cast<std::int32_t>(r), c})) {
        return {};
      }
    }
  }
  return std::exchange(told_, true) ? std::nullopt : std::optional(updates_);
}

// -- checkpoints -------------------------------------------------------------------------------------

void EndAtServers::archive(Archive& a) {
  a(halted_, progress_, told_end_, come_to_);
}

void EndOfAll::archive(Archive& a) {
  a(announced_, done_, updates_, told_);
}

}  // namespace troupe
