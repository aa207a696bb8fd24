#include "kernels/tiles.hpp"

#include <algorithm>
#include <fstream>
#include <string>

namespace troupe {
namespace {

/// The first line of a file; "" where there is none.
std::string line_of(const std::filesystem::path& path) {
  std::string line;
  std::getline(std::ifstream(path) >> std::ws, line);
  return line;
}

/// "32K", "1024K", "32M"; 0 for anything else.
std::int64_t bytes_of(const std::string& size) {
  std::size_t end = 0;
  std::int64_t number = 0;
  for (; end < size.size() && size[end] >= '0' && size[end] <= '9' && number < (1 << 30); ++end) {
    number = 10 * number + (size[end] - '0');
  }
  const std::string unit = size.substr(end);
  return unit == "K" ? number << 10 : unit == "M" ? number << 20 : 0;
}

/// How many processors a list like "0-3,8-11" has; at least 1.
std::int64_t processors_of(const std::string& list) {
  std::int64_t count = 0;
  std::int64_t first = -1;
  std::int64_t number = 0;
  for (const char c : list + ",") {
    if (c >= '0' && c <= '9') {
      number = std::min<std::int64_t>(10 * number + (c - '0'), 1 << 20);
    } else {
      count += c == '-' ? 0 : first < 0 ? 1 : std::max<std::int64_t>(1, number - first + 1);
      first = c == '-' ? number : -1;
      number = 0;
    }
  }
  return std::max<std::int64_t>(1, count);
}

std::int64_t down_to(std::int64_t n, std::int64_t multiple) {
  return std::max(multiple, n / multiple * multiple);
}

Tiles& in_use() {
  static Tiles used = tiles_for(caches());
  return used;
}

}  // namespace

Caches read_caches(const std::filesystem::path& folder) {
  Caches found;
  for (int i = 0; i < 8; ++i) {
    const std::filesystem::path index = folder / ("index" + std::to_string(i));
    const std::int64_t bytes = bytes_of(line_of(index / "size"));
    const std::string level = line_of(index / "level");
    if (bytes == 0 || line_of(index / "type") == "Instruction") {
      continue;
    }
    if (level == "1") {
      found.first = std::clamp<std::int64_t>(bytes, 16 << 10, 128 << 10);
    } else if (level == "2") {
      found.second = std::clamp<std::int64_t>(bytes, 256 << 10, 4 << 20);
    } else if (level == "3") {
      found.third = std::clamp<std::int64_t>(
          bytes / processors_of(line_of(index / "shared_cpu_list")), 512 << 10, 64 << 20);
    }
  }
  return found;
}

const Caches& caches() {
  static const Caches found = read_caches("/sys/devices/system/cpu/cpu0/cache");
  return found;
}

Tiles tiles_for(const Caches& caches) {
  constexpr std::int64_t kFloat = sizeof(float);
  const std::int64_t second = caches.second;
  const std::int64_t first = caches.first;
  return {.product_rows = down_to(second / 2 / (kProductDepth * kFloat), 42),
          .product_columns = down_to(second / 8 / (kProductDepth * kFloat), 32),
          .panel_bytes = second / 3,
          .pixels = second * 3 / 4 / (512 * kFloat),
          .small_input_bytes = second / 2,
          .sum_columns = std::min(kSumColumnsMax, down_to(first * 3 / 4 / (3 * kFloat), 64)),
          .update_elements = std::min(kUpdateElementsMax, down_to(first / 2 / (7 * kFloat), 64)),
          .row_elements = first / 8 / kFloat};
}

const Tiles& tiles() {
  return in_use();
}

void use_tiles(const Tiles& other) {
  in_use() = other;
  in_use().sum_columns = std::min(kSumColumnsMax, other.sum_columns);
  in_use().update_elements = std::min(kUpdateElementsMax, other.update_elements);
}

}  // namespace troupe
