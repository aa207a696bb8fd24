// Small blocks of memory that a thread lets go of are its own to take again: new and delete of the program troupe. A delivery
// takes some four (the message, its lists, the places where machines keep them), for each of which the C library needs three
// times as many instructions. Not under sanitizers, which have a new of their own, and in no other program that links us.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace {

constexpr std::size_t kStep = 16;   // bytes from one size of blocks to the next
constexpr std::size_t kSizes = 64;  // of them: to 1 KiB
constexpr std::uint32_t kKeptMax =
    64;  // blocks of a size: a thread may let go of more than it ever takes

struct Block {
  Block* next = nullptr;
};

/// Blocks of one size.
struct Shelf {
  Block* first = nullptr;
  std::uint32_t kept = 0;
  std::uint32_t kept_max = 0;  // until the thread has taken a block, and after it has ended

  void* take() {
    Block* const block = first;
    if (block) {
      first = block->next;
      --kept;
    }
    return block;
  }
};

// Without a destructor, as it is used until the last destructor of the thread has run.
constinit thread_local std::array<Shelf, kSizes> shelves{};

/// Lives as long as its thread takes blocks.
struct Opening {
  Opening() {
    for (Shelf& shelf : shelves) {
      shelf.kept_max = kKeptMax;
    }
  }

  ~Opening() {
    for (Shelf& shelf : shelves) {
      shelf.kept_max = 0;
      while (void* const block = shelf.take()) {
        std::free(block);
      }
    }
  }

  Opening(const Opening&) = delete;
  Opening& operator=(const Opening&) = delete;
};

/// None where the blocks are larger.
Shelf* shelf_of(std::size_t bytes) {
  const std::size_t size = (bytes - 1) / kStep;  // of no bytes: beyond
  return size < kSizes ? &shelves[size] : nullptr;
}

void* take_from_library(std::size_t bytes) {
  static thread_local const Opening opening;
  if (void* const block = std::malloc(bytes)) {
    return block;
  }
  throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t bytes) {
  Shelf* const shelf = shelf_of(bytes);
  if (!shelf) {
    return take_from_library(bytes);
  }
  void* const block = shelf->take();  // as large as any that comes to the same shelf
  return block ? block : take_from_library((bytes + kStep - 1) / kStep * kStep);
}

void operator delete(void* block) noexcept {
  std::free(block);
}

void operator delete(void* block, std::size_t bytes) noexcept {
  Shelf* const shelf = block ? shelf_of(bytes) : nullptr;
  if (shelf && shelf->kept < shelf->kept_max) {
    shelf->first = new (block) Block{shelf->first};
    ++shelf->kept;
  } else {
    std::free(block);
  }
}
