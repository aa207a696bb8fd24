#include "messages/record.hpp"

namespace troupe {

RecordEntry::RecordEntry() = default;
RecordEntry::RecordEntry(const RecordEntry&) = default;
RecordEntry::RecordEntry(RecordEntry&&) noexcept = default;
RecordEntry& RecordEntry::operator=(const RecordEntry&) = default;
RecordEntry& RecordEntry::operator=(RecordEntry&&) noexcept = default;
RecordEntry::~RecordEntry() = default;

}  // namespace troupe
