#include "runtime/cluster/record_batches.hpp"

#include "messages/archive.hpp"
#include "messages/record_archive.hpp"

namespace troupe {

namespace {

void archive_batch(Archive& a, RecordBatch& batch) {
  a(batch.now, batch.of);
  auto count = static_cast<std::uint32_t>(batch.entries.size());
  a(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    archive(a, a.reading() ? batch.entries.emplace_back() : batch.entries[i]);
  }
}

}  // namespace

void archive_batches(Archive& a, std::span<RecordBatch> batches) {
  auto count = static_cast<std::uint32_t>(batches.size());
  a(count);
  for (RecordBatch& batch : batches) {
    archive_batch(a, batch);
  }
}

std::vector<RecordBatch> read_batches(Archive& a) {
  std::uint32_t count = 0;
  a(count);
  std::vector<RecordBatch> batches;
  for (std::uint32_t i = 0; i < count; ++i) {
    archive_batch(a, batches.emplace_back());
  }
  a.expect_end();
  return batches;
}

}  // namespace troupe
