// The caches of one core, and the blocks of the CPU kernels that follow from them: what is read again and again is cut
// so that it stays in the cache that its rule names. None of these blocks changes the order of a sum, so that results do
// not depend on the machine's caches.
#pragma once

#include <cstdint>
#include <filesystem>

namespace troupe {

/// In bytes. The defaults are for what a machine does not tell: they are small, as too large a block costs more than one
/// that is too small.
struct Caches {
  std::int64_t first = 32 << 10;    // of data
  std::int64_t second = 512 << 10;  // of one core
  std::int64_t third = 2 << 20;     // a core's share
};

/// What Linux tells in `folder` of the caches of a processor, level by level. Virtual machines tell of caches that no
/// processor has: everything is held between the least and the most that processors with AVX2 have.
Caches read_caches(const std::filesystem::path& folder);

/// Of this machine's first processor; read once.
const Caches& caches();

/// K of a block of a packed product. It is no matter of caches: sums of several blocks of K are added one to the other, so
/// that another one would change bits. A panel of it and of two vectors takes 16 KiB with AVX2.
inline constexpr std::int64_t kProductDepth = 256;

struct Tiles {
  // Packed products: rows of the left factor that stay in half of the second-level cache while the right one passes by.
  // Of 42, so that tiles of 6 rows and of 14 rows fill them.
  std::int64_t product_rows;
  // Columns of the right factor that are copied together, an eighth of it.
  std::int64_t product_columns;
  // Packed convolutions: a panel of the filters, which all pixels of a block pass by, a third of it.
  std::int64_t panel_bytes;
  // Pixels of a block. With 512 channels their input takes three quarters of it: for one panel after the other it comes
  // from there.
  std::int64_t pixels;
  // Input that stays in half of it beside two panels of filters: only these are packed at a time then.
  std::int64_t small_input_bytes;
  // Sums of columns: a float and a double for each, three quarters of the first-level cache, beside four rows that pass by.
  std::int64_t sum_columns;
  // Updates: seven floats of each element of a block (weights before and after, gradient, two moments, direction, step) in
  // half of it: in seven eighths, what the processor fetches ahead takes the place of what is needed again.
  std::int64_t update_elements;
  // Layer normalization: elements of rows that go through its passes together, an eighth of it, for the same reason.
  std::int64_t row_elements;
};

/// The most that a rule comes to: arrays are as long.
inline constexpr std::int64_t kSumColumnsMax = 8192;
inline constexpr std::int64_t kUpdateElementsMax = 4096;

Tiles tiles_for(const Caches& caches);

/// tiles_for(caches()), or what was used last.
const Tiles& tiles();

/// For tests and for tables of how sensitive kernels are, while no other thread runs one.
void use_tiles(const Tiles& other);

}  // namespace troupe
