// Memory of devices. Each has a range of addresses of its own, of which nothing is used twice. An allocation ends where a
// page ends behind which there is no memory; what is left of its first page is checked, as is what CUDA's alignment leaves
// behind it.
#include "tests/kernels/device_on_cpu/world.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <sstream>
#include <vector>

namespace device_on_cpu {
namespace {

constexpr std::size_t kRangeBytes = std::size_t{1} << 38;
constexpr std::size_t kMemoryBytes = std::size_t{4} << 30;  // of a device
constexpr std::size_t kAlignment = 256;

struct Allocation {
  std::byte* data;
  std::size_t size_bytes;
  std::byte* pages;
  std::size_t pages_bytes;

  std::byte* end() const { return pages + pages_bytes; }
};

struct Range {
  std::byte* begin = nullptr;
  std::size_t used = 0;  // of the addresses
  std::size_t held = 0;  // of the memory
  bool open = true;
  std::map<const std::byte*, Allocation> all;  // by the first page
};

Range& range(int device) {
  static auto* const ranges = new std::array<Range, kDevicesMax + 1>;
  Range& r = (*ranges)[static_cast<std::size_t>(device)];
  if (!r.begin) {
    void* const begin =
        mmap(nullptr, kRangeBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (begin == MAP_FAILED) {
      std::abort();
    }
    r.begin = static_cast<std::byte*>(begin);
  }
  return r;
}

std::size_t page() {
  static const auto size = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

std::size_t up(std::size_t n, std::size_t to) {
  return (n + to - 1) / to * to;
}

bool untouched(const std::byte* begin, const std::byte* end) {
  return std::all_of(begin, end, [](std::byte each) { return each == std::byte{0xff}; });
}

void protect(const Allocation& a, bool can_be_used) {
  mprotect(a.pages, a.pages_bytes, can_be_used ? PROT_READ | PROT_WRITE : PROT_NONE);
}

std::string damage(const Allocation& a) {
  const bool before = !untouched(std::max(a.pages, a.data - kAlignment), a.data);
  const bool behind = !untouched(a.data + a.size_bytes, a.end());
  if (!before && !behind) {
    return "";
  }
  return std::string("something was written ") + (before ? "before" : "behind") +
         " an allocation of " + std::to_string(a.size_bytes) + " bytes";
}

/// Large ones are copies on write of a file, because most of a stream's workspace is never touched.
void fill(const Allocation& a) {
  constexpr std::size_t kChunk = std::size_t{4} << 20;
  static const int file = [] {
    const int made = memfd_create("nan", 0);
    const std::vector<unsigned char> bytes(kChunk, 0xff);
    return write(made, bytes.data(), kChunk) == static_cast<ssize_t>(kChunk) ? made : -1;
  }();
  std::size_t done = 0;
  for (; file >= 0 && done + kChunk <= a.pages_bytes; done += kChunk) {
    mmap(a.pages + done, kChunk, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, file, 0);
  }
  std::memset(a.pages + done, 0xff, a.pages_bytes - done);
}

/// The allocation in whose pages `address` lies, or null.
const Allocation* around(const Range& r, const std::byte* address) {
  auto found = r.all.upper_bound(address);
  if (found == r.all.begin()) {
    return nullptr;
  }
  const Allocation& a = (--found)->second;
  return address < a.end() ? &a : nullptr;
}

void drop(Range& r, const Allocation& a) {
  mmap(a.pages,
       a.pages_bytes,
       PROT_NONE,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
       -1,
       0);
  r.held -= a.pages_bytes;
  r.all.erase(a.pages);
}

}  // namespace

int device_count() {
  static const int count = [] {
    const char* wanted = std::getenv("TROUPE_DEVICES");
    return wanted ? std::clamp(std::atoi(wanted), 0, kDevicesMax) : 2;
  }();
  return count;
}

void* allocate(int device, std::size_t size_bytes) {
  Range& r = range(device);
  const std::size_t bytes = up(std::max<std::size_t>(size_bytes, 1), kAlignment);
  const std::size_t pages = up(bytes, page());
  if (r.held + pages > kMemoryBytes || r.used + pages + 2 * page() > kRangeBytes) {
    return nullptr;
  }
  Allocation a{nullptr, size_bytes, r.begin + r.used + page(), pages};
  a.data = a.end() - bytes;
  r.used += pages + page();
  r.held += pages;
  protect(a, true);
  fill(a);
  protect(a, r.open);
  r.all.emplace(a.pages, a);
  return a.data;
}

bool release(int device, void* data) {
  Range& r = range(device);
  const Allocation* a = around(r, static_cast<const std::byte*>(data));
  if (!a || a->data != data) {
    return false;
  }
  drop(r, Allocation(*a));
  return true;
}

void release_all(int device) {
  Range& r = range(device);
  while (!r.all.empty()) {
    drop(r, Allocation(r.all.begin()->second));
  }
}

std::string damage(int device) {
  for (const auto& [pages, a] : range(device).all) {
    if (std::string found = damage(a); !found.empty()) {
      return found;
    }
  }
  return "";
}

void open(unsigned devices, bool alone) {
  for (int device = 0; device < device_count(); ++device) {
    Range& r = range(device);
    const bool wanted = (devices >> device & 1u) != 0;
    if (r.open != wanted && (wanted || alone)) {
      r.open = wanted;
      for (const auto& [pages, a] : r.all) {
        protect(a, wanted);
      }
    }
  }
}

int device_of(const void* data, std::size_t size_bytes) {
  const auto* p = static_cast<const std::byte*>(data);
  for (int device = 0; device <= kDevicesMax; ++device) {
    const Allocation* a =
        device < device_count() || device == kHost ? around(range(device), p) : nullptr;
    if (a) {
      return p >= a->data && p + size_bytes <= a->data + a->size_bytes ? device : -1;
    }
  }
  return -1;
}

std::string what_is_at(const void* address) {
  const auto* p = static_cast<const std::byte*>(address);
  std::ostringstream out;
  out << address << ": ";
  for (int device = 0; device < device_count(); ++device) {
    const Range& r = range(device);
    if (p >= r.begin && p < r.begin + kRangeBytes) {
      out << "memory of device " << device;
      const Allocation* a = around(r, p);
      const Allocation* before = a ? a : around(r, p - page());
      if (!a && before) {
        out << ", " << p - before->data << " bytes from the beginning of an allocation of "
            << before->size_bytes;
      } else if (!a) {
        out << " that is not allocated, or no longer";
      }
      return out.str();
    }
  }
  out << "no device's memory";
  return out.str();
}

}  // namespace device_on_cpu
