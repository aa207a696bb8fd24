// Tensors that one process lends to another in memory that both have: their bytes, who may use a block and until when, and
// that nothing is believed of a place or a descriptor that is none.
#include "runtime/cluster/shared_memory.hpp"

#include "messages/tensor_bytes.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/inbox.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

namespace shared_memory_test {

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr std::int64_t kSmallest = static_cast<std::int64_t>(Lender::kTensorBytesMin) / 4;

Tensor numbers(std::int64_t count, float first) {
  Stream stream(Device{});
  std::vector<float> all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), first);
  return from_host(stream, all, {count});
}

bool equal(const Tensor& x, const Tensor& y) {
  return std::ranges::equal(bytes_of(x), bytes_of(y));
}

/// Memory of this process that its other end has opened.
struct Ends {
  Lender lender;
  std::optional<Borrower> borrower = Borrower::open(lender.offer());
};

/// How often such memory is mapped in this process.
int mapped() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) {
    count += line.find("memfd:troupe") != std::string::npos ? 1 : 0;
  }
  return count;
}

std::uint32_t number(int descriptor) {
  return static_cast<std::uint32_t>(descriptor);
}

}  // namespace

TEST_CASE(
    "a tensor that was lent has its bytes, and its block is free when its last handle is gone") {
  Ends ends;
  REQUIRE(ends.borrower);
  const Tensor sent = numbers(10'000, 3);
  const auto place = ends.lender.lend(bytes_of(sent));
  REQUIRE(place);
  Tensor came = ends.borrower->adopt(*place, {100, 100}, DType::float32);
  Tensor part = came.view(5000, {5000});
  CHECK(came.shape() == Shape{100, 100});
  CHECK(equal(came, sent));
  came = {};
  const auto other = ends.lender.lend(bytes_of(numbers(10'000, 7)));
  REQUIRE(other);
  CHECK(other->block != place->block);  // a part of it still has a handle
  CHECK(part.span<float>().front() == 5003);
  part = {};
  const auto again = ends.lender.lend(bytes_of(sent));
  REQUIRE(again);
  CHECK(again->block == place->block);
  CHECK(again->offset == place->offset);
}

TEST_CASE(
    "nothing is lent to who has not opened the memory, nor tensors that are too small or too "
    "large") {
  Lender alone;
  CHECK_FALSE(alone.lend(bytes_of(numbers(kSmallest, 1))));
  Ends ends;
  REQUIRE(ends.borrower);
  CHECK(ends.lender.lend(bytes_of(numbers(kSmallest, 1))));
  CHECK_FALSE(ends.lender.lend(bytes_of(numbers(kSmallest - 1, 1))));
  constexpr auto kLargest = static_cast<std::int64_t>(Lender::kTensorBytesMax) / 4;
  CHECK(ends.lender.lend(bytes_of(numbers(kLargest, 1))));
  CHECK_FALSE(ends.lender.lend(bytes_of(numbers(kLargest + 1, 1))));
}

TEST_CASE("where all room is taken nothing is lent, until a block is free again") {
  Ends ends;
  REQUIRE(ends.borrower);
  // Of 4 MiB: the flags leave room for one block less than fit into the whole.
  constexpr std::int64_t kCount = 1 << 20;
  const Tensor sent = numbers(kCount, 1);
  std::vector<Tensor> held;
  while (const auto place = ends.lender.lend(bytes_of(sent))) {
    held.push_back(ends.borrower->adopt(*place, {kCount}, DType::float32));
  }
  CHECK(held.size() == SharedMemory::kBytes / (4 * kCount) - 1);
  CHECK(ends.lender.lend(bytes_of(numbers(kSmallest, 1))));  // a smaller one still finds room
  held.pop_back();
  CHECK(ends.lender.lend(bytes_of(sent)));
  CHECK_FALSE(ends.lender.lend(bytes_of(sent)));
}

TEST_CASE("there are as many blocks as there are flags") {
  Ends ends;
  REQUIRE(ends.borrower);
  const Tensor sent = numbers(kSmallest, 1);
  std::size_t lent = 0;
  while (ends.lender.lend(bytes_of(sent))) {
    ++lent;
  }
  CHECK(lent == SharedMemory::kBlocks);
}

TEST_CASE("a tensor outlives both ends of the memory that it lies in") {
  Tensor came;
  {
    Ends ends;
    REQUIRE(ends.borrower);
    const auto place = ends.lender.lend(bytes_of(numbers(10'000, 1)));
    REQUIRE(place);
    came = ends.borrower->adopt(*place, {10'000}, DType::float32);
  }
  CHECK(equal(came, numbers(10'000, 1)));
}

TEST_CASE("a place that there is none of is not believed") {
  Ends ends;
  REQUIRE(ends.borrower);
  const auto place = ends.lender.lend(bytes_of(numbers(10'000, 1)));
  REQUIRE(place);
  const Shape shape{10'000};
  const auto refused = [&](Place wrong, Shape of) {
    CHECK_THROWS_AS(ends.borrower->adopt(wrong, of, DType::float32), WireError);
  };
  refused({0, place->offset}, shape);
  refused({SharedMemory::kBlocks + 1, place->offset}, shape);
  refused({place->block, 0}, shape);                     // the flags
  refused({place->block, place->offset + 4}, shape);     // no block begins there
  refused({place->block, SharedMemory::kBytes}, shape);  // nor there
  refused({place->block, ~std::uint64_t{0} - 4095}, shape);
  refused({place->block, place->offset}, {static_cast<std::int64_t>(SharedMemory::kBytes / 4)});
}

TEST_CASE("where files may not be so large nothing is offered, and the process lives") {
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit small{1 << 20, 1 << 20};
    ::_exit(::setrlimit(RLIMIT_FSIZE, &small) == 0 && Lender().offer().pid == 0 ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("a descriptor that leads to no such memory is not opened") {
  const auto mine = static_cast<std::uint32_t>(::getpid());
  CHECK_FALSE(Borrower::open({}));
  CHECK_FALSE(Borrower::open({mine, 1'000'000}));
  std::FILE* const file = std::tmpfile();
  REQUIRE(file != nullptr);
  CHECK(::ftruncate(::fileno(file), SharedMemory::kBytes) == 0);
  CHECK_FALSE(Borrower::open({mine, number(::fileno(file))}));
  std::fclose(file);
  const int unsealed = ::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  CHECK(::ftruncate(unsealed, SharedMemory::kBytes) == 0);
  // Its owner could make it smaller: reading would be a fault.
  CHECK_FALSE(Borrower::open({mine, number(unsealed)}));
  ::close(unsealed);
  const int small = ::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  CHECK(::ftruncate(small, 4096) == 0);
  CHECK(::fcntl(small, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0);
  CHECK_FALSE(Borrower::open({mine, number(small)}));
  ::close(small);
}

TEST_CASE("a channel lends tensors as long as there is room, and sends the others, in order") {
  TwoChannels two;
  auto& [of_a, of_b, a, b] = two;
  a.open(of_a.events());
  b.open(of_b.events());
  a.send(1, {.recipient = 0});  // a's greeting has come with it: a may lend from now on
  REQUIRE(of_b.await(1));
  // Of 4 MB each, which nobody lets go: more than there is room for.
  constexpr std::uint32_t kCount = 60;
  constexpr std::int64_t kNumbers = 1'000'001;
  for (std::uint32_t i = 0; i < kCount; ++i) {
    a.send(1,
           {.recipient = 1,
            .content = {.bytes = std::to_string(i),
                        .tensors = {numbers(kNumbers, static_cast<float>(i))}}});
  }
  REQUIRE(of_b.await(1 + kCount));
  CHECK(of_b.broken.empty());  // a has not closed yet
  std::size_t own = 0;         // in memory of b's pool, which is rounded up
  for (std::uint32_t i = 0; i < kCount; ++i) {
    const Parcel& parcel = of_b.parcels[1 + i].second;
    REQUIRE(parcel.content.bytes == std::to_string(i));
    const Tensor& tensor = parcel.content.tensors.at(0);
    REQUIRE(tensor.elements() == kNumbers);
    REQUIRE(equal(tensor, numbers(kNumbers, static_cast<float>(i))));
    own += tensor.buffer()->size_bytes() > bytes_of(tensor).size() ? 1U : 0U;
  }
  CHECK(own > 0);
  CHECK(own < kCount);
  a.close();
  b.close();
}

TEST_CASE("of a peer that was dropped no memory is left") {
  const int before = mapped();
  TwoChannels two;
  auto& [of_a, of_b, a, b] = two;
  a.open(of_a.events());
  b.open(of_b.events());
  a.send(1, {});
  b.send(0, {});
  REQUIRE(of_a.await(1));
  REQUIRE(of_b.await(1));
  REQUIRE(mapped() == before + 4);  // each has its own and the other's
  a.drop(1);
  for (int i = 0; i < 300 && mapped() > before + 2; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds{100});
  }
  CHECK(mapped() == before + 2);
  a.close();
  b.close();
}

TEST_CASE("who always has something to send hears others, too") {
  TwoChannels two;
  auto& [of_a, of_b, a, b] = two;
  const Tensor load = numbers(200'000, 1);
  Channel::Events events = of_b.events();
  events.parcel = [&](int, Parcel parcel) {
    if (parcel.recipient == 0) {
      a.send(1, {.content = {.bytes = "", .tensors = {load}}});  // another in its place, at once
    } else {
      b.send(0, {.recipient = parcel.recipient});
    }
  };
  a.open(of_a.events());
  b.open(std::move(events));
  for (int i = 0; i < 40; ++i) {
    a.send(1, {.content = {.bytes = "", .tensors = {load}}});
  }
  for (std::uint32_t question = 1; question <= 20; ++question) {
    a.send(1, {.recipient = question});
    REQUIRE(of_a.await(question));
  }
  a.close();
  b.close();
}

}  // namespace shared_memory_test
