// Records that may come again, as only those of machines with copies do (runtime/system/copied.hpp).
#pragma once

#include "messages/record.hpp"

#include <algorithm>
#include <cstdint>
#include <map>

namespace troupe {

/// A copy of a machine that takes the place of one that was lost tells again what may not have come.
class ToldOnce {
 public:
  /// Whether the record has not come before.
  bool is_news(const RecordEntry& entry) {
    if (entry.number == 0) {
      return true;
    }
    std::uint64_t& last = last_of_[entry.teller];
    const bool news = entry.number > last;
    last = std::max(last, entry.number);
    return news;
  }

  void archive(auto& a) { a(last_of_); }

 private:
  std::map<ActorId, std::uint64_t> last_of_;  // by machine: the last that has come
};

}  // namespace troupe
