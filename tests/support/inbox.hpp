// What has come over a Channel, for tests that wait for it.
#pragma once

#include "runtime/cluster/channel.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace troupe::test {

/// From all peers.
class Inbox {
 public:
  Channel::Events events() {
    return {.parcel =
                [this](int from, Parcel parcel) {
                  const std::lock_guard lock(mutex_);
                  parcels.emplace_back(from, std::move(parcel));
                  changed_.notify_all();
                },
            .broken =
                [this](int /*from*/, const std::string& why) {
                  const std::lock_guard lock(mutex_);
                  broken.push_back(why);
                  changed_.notify_all();
                },
            .failed =
                [this](const std::string& why) {
                  const std::lock_guard lock(mutex_);
                  failed.push_back(why);
                  changed_.notify_all();
                },
            .tick = [] {},
            .readable =
                [](int) {
                }};
  }

  /// False where they have not come in time.
  bool await(std::size_t count) {
    return wait([&] { return parcels.size() >= count; });
  }

  bool await_broken() {
    return wait([&] { return !broken.empty(); });
  }

  bool await_failed() {
    return wait([&] { return !failed.empty(); });
  }

  /// Until one has come that `is_it`.
  template <class IsIt>
  bool await_parcel(IsIt is_it) {
    return wait([&] {
      return std::ranges::any_of(parcels, [&](const auto& one) { return is_it(one.second); });
    });
  }

  std::vector<std::pair<int, Parcel>> parcels;
  std::vector<std::string> broken;
  std::vector<std::string> failed;

 private:
  template <class Condition>
  bool wait(Condition condition) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds{30}, condition);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
};

/// The channels of two processes, 0 and 1, to each other, and what has come to each; they are not open yet.
struct TwoChannels {
  TwoChannels() { b.connect(0, a.listen(1, ::getpid())); }

  Inbox of_a{};
  Inbox of_b{};
  Channel a{0, "token"};
  Channel b{1, "token"};
};

}  // namespace troupe::test
