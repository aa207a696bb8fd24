// Records between processes: an Archive's form of them.
#pragma once

#include "messages/archive.hpp"
#include "messages/record.hpp"

namespace troupe {

/// Which alternative, then its fields. ArchiveError where there is none of that number, or a field has a
/// value that it cannot have.
void archive(Archive& a, RecordEntry& record);

}  // namespace troupe
