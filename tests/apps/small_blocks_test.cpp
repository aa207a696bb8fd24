// new and delete of the program (apps/cli/small_blocks.cpp), which is compiled into this test.
#include "tests/support/catch.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <new>
#include <thread>
#include <vector>

namespace {

constexpr std::size_t kSizeMax = 1100;  // beyond the largest that are kept

struct Filled {
  unsigned char* at;
  std::size_t bytes;

  explicit Filled(std::size_t size)
      : at(static_cast<unsigned char*>(::operator new(size))), bytes(size) {
    std::memset(at, mark(), bytes);
  }

  unsigned char mark() const { return static_cast<unsigned char>(bytes % 251); }

  bool whole() const {
    return std::all_of(at, at + bytes, [this](unsigned char byte) { return byte == mark(); });
  }
};

std::vector<Filled> of_all_sizes() {
  std::vector<Filled> blocks;
  for (int round = 0; round < 3; ++round) {
    for (std::size_t bytes = 1; bytes <= kSizeMax; ++bytes) {
      blocks.emplace_back(bytes);
    }
  }
  return blocks;
}

bool let_go(const std::vector<Filled>& blocks) {
  bool whole = true;
  for (const Filled& block : blocks) {
    whole = whole && block.whole();
    ::operator delete(block.at, block.bytes);
  }
  return whole;
}

}  // namespace

TEST_CASE("a block that its thread has let go of is taken again by one of about its size") {
  void* const first = ::operator new(41);
  void* const second = ::operator new(48);
  ::operator delete (first, std::size_t{41});
  ::operator delete (second, std::size_t{48});
  void* const last = ::operator new(33);
  void* const before = ::operator new(41);
  CHECK(last == second);
  CHECK(before == first);
  ::operator delete (last, std::size_t{33});
  ::operator delete(before);  // who does not know its size may let it go, too
}

TEST_CASE("blocks of every size keep what is in them, whichever thread lets them go") {
  bool whole = true;
  for (int turn = 0; turn < 3; ++turn) {
    std::vector<Filled> taken;
    std::thread([&] { taken = of_all_sizes(); }).join();  // and more than a thread keeps
    const std::vector<Filled> own = of_all_sizes();
    std::thread([&] { whole = let_go(own) && let_go(of_all_sizes()) && whole; }).join();
    whole = let_go(taken) && whole;
  }
  CHECK(whole);
}

TEST_CASE("a block of no bytes is one, and of too many there is none") {
  void* const nothing = ::operator new(0);
  CHECK(nothing != nullptr);
  ::operator delete (nothing, std::size_t{0});
  std::size_t too_many = std::numeric_limits<std::size_t>::max();
  CHECK_THROWS_AS(::operator new(too_many), std::bad_alloc);
}
