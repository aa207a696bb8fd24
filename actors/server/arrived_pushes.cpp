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

Admission::Choice ArrivedPushes::choose(const Admission& admission,
                                        const Ledger& ledger,
                                        double now) const {
  std::vector<Arrival> arrivals;
  for (const Upload& m : waiting_) {
    arrivals.push_back(arrival_of(m, m.arrived));
  }
  Admission::Choice choice = admission.choose(arrivals, ledger, now);
  check(choice, waiting_.size());
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
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return out;
}

bool ArrivedPushes::in_work(std::int32_t replica) const {
  return std::any_of(applying_.begin(), applying_.end(), [&](const Upload& m) {
    return m.stamp.replica == replica;
  });
}

std::int64_t ArrivedPushes::mini_batches_in_work() const {
  std::int64_t sum = 0;
  for (const Upload& m : applying_) {
    sum += m.contribution.mini_batches;
  }
  return sum;
}

}  // namespace troupe
