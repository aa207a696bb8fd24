// What several senders have for the same mini-batch, until the last of it has come; then it is taken in the order of the
// senders, whatever order it came in. Shares of tied parameters, norms and gradients of replicas come in so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

namespace troupe {

template <class Sender, class T>
class FanIn {
 public:
  /// `senders`: how many there are for each mini-batch.
  explicit FanIn(std::size_t senders) : senders_(senders) {}

  /// What came first of a sender counts.
  void keep(std::int64_t batch, const Sender& from, T value) {
    came_[batch].try_emplace(from, std::move(value));
  }

  bool has(std::int64_t batch, const Sender& from) const {
    const auto found = came_.find(batch);
    return found != came_.end() && found->second.contains(from);
  }

  bool complete(std::int64_t batch) const {
    const auto found = came_.find(batch);
    return (found == came_.end() ? 0 : found->second.size()) >= senders_;
  }

  /// In the order of senders; empty where it has been taken already.
  std::map<Sender, T> take(std::int64_t batch) {
    auto found = came_.extract(batch);
    return found.empty() ? std::map<Sender, T>{} : std::move(found.mapped());
  }

  void archive(auto& a) { a(came_); }

 private:
  std::size_t senders_;
  std::map<std::int64_t, std::map<Sender, T>> came_;  // by mini-batch
};

}  // namespace troupe
