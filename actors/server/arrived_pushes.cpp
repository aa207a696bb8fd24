#include "actors/server/arrived_pushes.hpp"

#include "kernels/check.hpp"

#include <algorithm>

namespace troupe {
namespace {

/// Indices are in range and unique.
void check(const Admission::Choice& choice, std::size_t waiting) {
  std::vector<bool> chosen(waiting);
  for (const std::vector<std::size_t>* part : {&choice.take, &choice.drop}) {
    for (const std::size_t i : *part) {
      TROUPE_CHECK(i < waiting, "[Admission] chose push ", i, " of ", waiting, ", from 0");
      TROUPE_CHECK(!chosen[i], "[Admission] chose push ", i, " of ", waiting, " twice");
      chosen[i] = true;
    }
  }
}

}  // namespace

Arrival arrival_of(const Upload& m, double time) {
  return {m.stamp.replica, m.stamp.batch, m.contribution.mini_batches, m.read_version, time};
}

void ArrivedPushes::add(Upload m) {
  arrivals_.push_back(arrival_of(m, m.arrived));
  waiting_.push_back(std::move(m));
}

void ArrivedPushes::index() {
  arrivals_.clear();
  for (const Upload& m : waiting_) {
    arrivals_.push_back(arrival_of(m, m.arrived));
  }
  needs_ = {};
}

Admission::Choice ArrivedPushes::choose(const Admission& admission,
                                        const Ledger& ledger,
                                        double now,
                                        std::int64_t membership) const {
  if (waiting_.size() < needs_.pushes && needs_.version == ledger.version &&
      needs_.membership == membership) {
    return {};
  }
  Admission::Choice choice = admission.choose(arrivals_, ledger, now);
  check(choice, waiting_.size());
  const bool more = choice.take.empty() && choice.drop.empty() && choice.more > 0;
  needs_ = {more ? waiting_.size() + choice.more : 0, ledger.version, membership};
  return choice;
}

void ArrivedPushes::take(std::vector<std::size_t> which) {
  for (Upload& m : give_up(std::move(which))) {
    applying_.push_back(std::move(m));
  }
  std::sort(applying_.begin(), applying_.end(), [](const Upload& a, const Upload& b) {
    return std::pair(a.stamp.replica, a.stamp.batch) < std::pair(b.stamp.replica, b.stamp.batch);
  });
}

std::vector<Upload> ArrivedPushes::give_up(std::vector<std::size_t> which) {
  std::sort(which.rbegin(), which.rend());
  std::vector<Upload> out;
  for (const std::size_t i : which) {
    out.push_back(std::move(waiting_.at(i)));
  }
  if (which.size() == 1) {  // most often the first, which costs a deque nothing
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(which.front()));
    arrivals_.erase(arrivals_.begin() + static_cast<std::ptrdiff_t>(which.front()));
    return out;
  }
  std::size_t kept = 0;
  for (std::size_t i = 0; i < waiting_.size(); ++i) {
    if (!which.empty() && which.back() == i) {
      which.pop_back();
      continue;
    }
    if (kept != i) {
      waiting_[kept] = std::move(waiting_[i]);
      arrivals_[kept] = arrivals_[i];
    }
    ++kept;
  }
  waiting_.resize(kept);
  arrivals_.resize(kept);
  return out;
}

bool ArrivedPushes::in_work(std::int32_t replica) const {
  const auto at = std::lower_bound(
      applying_.begin(), applying_.end(), replica, [](const Upload& m, std::int32_t who) {
        return m.stamp.replica < who;
      });
  return at != applying_.end() && at->stamp.replica == replica;
}

std::int64_t ArrivedPushes::mini_batches_in_work() const {
  std::int64_t sum = 0;
  for (const Upload& m : applying_) {
    sum += m.contribution.mini_batches;
  }
  return sum;
}

}  // namespace troupe
