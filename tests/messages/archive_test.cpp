// What is written is what is read; what is not what was written is refused.
#include "messages/archive.hpp"

#include "kernels/stream.hpp"
#include "messages/message.hpp"
#include "messages/weights.hpp"
#include "tests/support/catch.hpp"

#include <limits>
#include <string>
#include <utility>

namespace archive_test {

using namespace troupe;

namespace {

Tensor numbers(std::initializer_list<float> values) {
  Stream stream(Device{});
  const std::vector<float> all(values);
  return from_host(stream, all, {static_cast<std::int64_t>(all.size())});
}

template <class T>
Archived written(T& value) {
  Archive a;
  a(value);
  return a.take();
}

template <class T>
T read(Archived from) {
  T value{};
  Archive a(std::move(from));
  a(value);
  a.expect_end();
  return value;
}

struct Inner {
  double x = 0;
  std::string name{};
};

class Outer {
 public:
  void archive(auto& a) { a(flags, inner, queue, byte, missing); }

  std::vector<bool> flags{};
  std::map<std::pair<int, std::int64_t>, Inner> inner{};
  std::deque<std::set<int>> queue{};
  std::uint8_t byte = 0;
  std::optional<Inner> missing{};
};

/// Shares a Counter that it does not know how to make.
class Counter {
 public:
  void archive(auto& a) { a(count); }

  int count = 0;
};

}  // namespace

TEST_CASE("what is written is what is read", "[archive]") {
  Outer outer{
      .flags = {true, false, true},
      .inner = {{{1, 2}, {std::numeric_limits<double>::infinity(), "inf"}}, {{3, -4}, {-0.0, ""}}},
      .queue = {{3, 1, 2}, {}},
      .byte = 200,
      .missing = {}};
  const Outer again = read<Outer>(written(outer));
  CHECK(again.flags == outer.flags);
  REQUIRE(again.inner.size() == 2);
  CHECK(again.inner.at({1, 2}).x == std::numeric_limits<double>::infinity());
  CHECK(again.inner.at({1, 2}).name == "inf");
  CHECK(std::signbit(again.inner.at({3, -4}).x));
  CHECK(again.queue == outer.queue);
  CHECK(again.byte == 200);
  CHECK_FALSE(again.missing);
}

TEST_CASE("reading replaces what was there", "[archive]") {
  Outer few;
  const Archived from = written(few);
  Outer many{
      .flags = {true}, .inner = {{{1, 1}, {}}}, .queue = {{1}}, .byte = 1, .missing = Inner{}};
  Archive a(from);
  a(many);
  CHECK(many.flags.empty());
  CHECK(many.inner.empty());
  CHECK(many.queue.empty());
  CHECK_FALSE(many.missing);
}

TEST_CASE("two handles of one tensor are two handles of one tensor again", "[archive]") {
  const Tensor x = numbers({1, 2, 3, 4});
  std::vector<Tensor> all{x, x, x.view(1, {2}), numbers({1, 2, 3, 4}), {}, x.reshape({2, 2})};
  Archived state = written(all);
  CHECK(state.tensors.size() == 4);
  const auto again = read<std::vector<Tensor>>(std::move(state));
  REQUIRE(again.size() == 6);
  CHECK(again[0].buffer() == again[1].buffer());
  CHECK_FALSE(again[0].buffer() == again[3].buffer());
  CHECK(to_host(again[2]) == std::vector<double>{2, 3});
  CHECK(again[2].shape() == Shape{2});
  CHECK_FALSE(again[4]);
  CHECK(again[5].shape() == Shape{2, 2});
}

TEST_CASE("a tensor is written as it is now", "[archive]") {
  Tensor x = numbers({1, 2});
  Archived state = written(x);
  x.data<float>()[0] = 7;
  CHECK(to_host(read<Tensor>(std::move(state))) == std::vector<double>{1, 2});
}

TEST_CASE("every kind of tensor, also without elements, comes back", "[archive]") {
  Stream stream(Device{});
  for (const DType type : {DType::float32, DType::int32, DType::float64, DType::bfloat16}) {
    Tensor x = stream.allocate({0, 3}, type);
    const Tensor again = read<Tensor>(written(x));
    CHECK(again.type() == type);
    CHECK(again.shape() == Shape{0, 3});
  }
}

TEST_CASE("what is shared is made by whoever lends it", "[archive]") {
  auto shared = std::make_shared<Counter>();
  shared->count = 5;
  const auto lend = [](Archive& a) {
    a.lend<Counter>([] { return std::make_shared<Counter>(); });
  };
  Archive writer;
  lend(writer);
  std::shared_ptr<Counter> none;
  writer(shared, none);
  Archive reader(writer.take());
  lend(reader);
  std::shared_ptr<Counter> first;
  std::shared_ptr<Counter> second = shared;
  reader(first, second);
  CHECK(first->count == 5);
  CHECK_FALSE(second);

  Archive nobody;
  CHECK_THROWS_AS(nobody(shared), ContractError);
}

TEST_CASE("a state that ends too soon, or goes on, is refused", "[archive]") {
  Outer outer{.flags = {true, false},
              .inner = {{{1, 2}, {0.5, "half"}}},
              .queue = {{3, 1}},
              .byte = 2,
              .missing = Inner{1, "one"}};
  const Archived whole = written(outer);
  for (std::size_t bytes = 0; bytes < whole.bytes.size(); ++bytes) {
    CHECK_THROWS_AS(read<Outer>({whole.bytes.substr(0, bytes), {}}), ArchiveError);
  }
  CHECK_THROWS_AS(read<Outer>({whole.bytes + '\0', {}}), ArchiveError);
}

TEST_CASE("counts, answers and tensors that cannot be are refused", "[archive]") {
  CHECK_THROWS_AS(read<std::string>({std::string(8, '\xff'), {}}), ArchiveError);
  CHECK_THROWS_AS(read<std::vector<double>>({std::string(8, '\x7f'), {}}), ArchiveError);
  CHECK_THROWS_AS(read<bool>({"\2", {}}), ArchiveError);
  Tensor x = numbers({1});
  Archived state = written(x);
  state.tensors.clear();
  CHECK_THROWS_AS(read<Tensor>(std::move(state)), ArchiveError);
}

TEST_CASE("a message of every kind comes back as what it was", "[archive]") {
  constexpr std::size_t kKinds = Kinds::size;
  for (std::uint32_t kind = 0; kind < kKinds; ++kind) {
    // Zeros: numbers that are 0, lists that are empty, tensors that are the first one.
    const std::string zeros(4096, '\0');
    const std::string name(reinterpret_cast<const char*>(&kind), sizeof kind);
    Archive reader({name + zeros, {numbers({1})}});
    Message message;
    reader(message);
    CHECK(message.index() == kind);
    Archive writer;
    writer(message);
    Archive again(writer.take());
    Message second;
    again(second);
    again.expect_end();
    CHECK(second.index() == kind);
  }
  const std::uint32_t beyond = kKinds;
  Archive reader({std::string(reinterpret_cast<const char*>(&beyond), sizeof beyond), {}});
  Message message;
  CHECK_THROWS_AS(reader(message), ArchiveError);
}

TEST_CASE("a message keeps what it says", "[archive]") {
  Message push = Push{.from = {3},
                      .stamp = {1, 2, 30, 4},
                      .sequence = 9,
                      .read_time = 0.25,
                      .gradient = {numbers({1, 2})},
                      .reads = {{.micro_batch = 1, .forward = {5, {ReachKind::linear, 2}}}},
                      .forward = {}};
  Archive writer;
  writer(push);
  Archive reader(writer.take());
  Message again;
  reader(again);
  const Push& read_back = get<Push>(again);
  CHECK(read_back.from.id == 3);
  CHECK(read_back.stamp == Stamp{1, 2, 30, 4});
  CHECK(read_back.sequence == 9);
  CHECK(to_host(read_back.gradient.at(0)) == std::vector<double>{1, 2});
  CHECK(read_back.reads.at(0).forward == View{5, {ReachKind::linear, 2}});
}

}  // namespace archive_test
