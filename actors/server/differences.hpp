// The messages of a server's last versions, where a codec makes what it answers (replicas.codec.down):
// what a replica that has an older version is told instead of the whole weights.
#pragma once

#include "kernels/tensor.hpp"

#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

namespace troupe {

class Differences {
 public:
  /// The most messages that one answer has: each costs its reader a look at all numbers, however few it moves.
  static constexpr std::size_t kMost = 1024;

  /// `message` leads to `version`, the next one; empty: nothing has moved. Those go that together would take more
  /// than the n numbers themselves, or that are more than kMost.
  void add(std::int64_t version, Tensor message, std::int64_t n) {
    newest_ = version;
    bytes_ += size(message);
    messages_.push_back(std::move(message));
    while (!messages_.empty() && (bytes_ >= 4 * n || messages_.size() > kMost)) {
      bytes_ -= size(messages_.front());
      messages_.pop_front();
    }
  }

  /// The messages from version `has` to the newest, but those that say nothing; not where some are gone.
  std::optional<std::vector<Tensor>> since(std::int64_t has) const {
    const std::int64_t count = newest_ - has;
    if (has < 0 || count < 0 || count > static_cast<std::int64_t>(messages_.size())) {
      return {};
    }
    std::vector<Tensor> all;
    for (auto at = messages_.end() - count; at != messages_.end(); ++at) {
      if (*at) {
        all.push_back(*at);
      }
    }
    return all;
  }

  /// The newest message, of whole weights.
  const Tensor& newest() const { return newest_message_; }

  void set_newest(Tensor message) { newest_message_ = std::move(message); }

  void archive(auto& a) { a(newest_, bytes_, messages_, newest_message_); }

 private:
  static std::int64_t size(const Tensor& message) { return message ? 4 * message.elements() : 0; }

  std::int64_t newest_ = 0;      // version
  std::int64_t bytes_ = 0;       // of all
  std::deque<Tensor> messages_;  // of the last versions
  Tensor newest_message_;
};

}  // namespace troupe
