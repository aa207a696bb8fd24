#include "messages/record_archive.hpp"

#include "messages/for_each_field.hpp"

#include <cstddef>
#include <mutex>
#include <set>
#include <string>
#include <type_traits>

namespace troupe {

namespace {

constexpr std::size_t kNamesMax = 64;  // of kinds of work, which are few

/// The same words where they stay: BusyRecord::what is a literal where it was made.
const char* kept_for_good(const std::string& words) {
  static std::mutex mutex;
  static std::set<std::string> all;
  const std::lock_guard lock(mutex);
  if (all.size() >= kNamesMax && !all.contains(words)) {
    throw ArchiveError("records name more kinds of work than there are");
  }
  return all.insert(words).first->c_str();
}

void fields(Archive& a, BusyRecord& busy) {
  std::string what = busy.what;
  a(busy.actor, busy.start, busy.end, what, busy.stamp);
  if (a.reading()) {
    busy.what = kept_for_good(what);
  }
}

template <class Record>
void fields(Archive& a, Record& record) {
  a(record);
  for_each_field(record, []<class T>(const T& field, std::size_t) {
    if constexpr (std::is_enum_v<T>) {
      if (field > last_of(field)) {
        throw ArchiveError("a record has a value that its kind does not have");
      }
    }
  });
}

template <std::size_t I = 0>
void become(RecordEntry& record, std::size_t index) {
  if constexpr (I < std::variant_size_v<RecordEntry::variant>) {
    index == I ? void(record.emplace<I>()) : become<I + 1>(record, index);
  } else {
    throw ArchiveError("the records have one of a kind that does not exist");
  }
}

}  // namespace

void archive(Archive& a, RecordEntry& record) {
  auto index = static_cast<std::uint32_t>(record.index());
  a(index);
  if (a.reading()) {
    become(record, index);
  }
  a(record.teller, record.number);
  std::visit([&](auto& r) { fields(a, r); }, static_cast<RecordEntry::variant&>(record));
}

}  // namespace troupe
