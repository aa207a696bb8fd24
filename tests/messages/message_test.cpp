// A message is a handle of what it says; what is said of its fields is made of its struct alone.
#include "messages/message.hpp"

#include "kernels/stream.hpp"
#include "messages/for_each_field.hpp"
#include "messages/messages.hpp"
#include "messages/protocol.hpp"
#include "tests/support/catch.hpp"

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

namespace message_test {

using namespace troupe;

struct Inner {
  int x = 1;
};

struct Mixed {
  std::array<double, 3> numbers{};
  std::optional<Inner> maybe{};
  Inner inner{};
  std::string text{};
  std::vector<bool> flags{};
  std::map<int, std::string> named{};
  std::shared_ptr<int> shared{};
  const char* literal = "";
};

namespace {

struct None {};

Tensor one() {
  Stream stream(Device{});
  return stream.allocate({1});
}

}  // namespace

static_assert(kFieldsOf<None> == 0 && kFieldsOf<Inner> == 1 && kFieldsOf<Mixed> == 8);
static_assert(kFieldsOf<Upload> == 14 && kFieldsOf<Ran<StepMade>> == 2);

// Whoever understands more may stand for who understands less, and nobody for who understands more.
static_assert(std::is_convertible_v<Ref<StageRole>, Ref<LearnerRole>>);
static_assert(std::is_convertible_v<Ref<PredictorRole>, Ref<LearnerRole>>);
static_assert(!std::is_convertible_v<Ref<LearnerRole>, Ref<StageRole>>);
static_assert(!std::is_convertible_v<Ref<PredictorRole>, Ref<StageRole>>);
static_assert(!std::is_convertible_v<Ref<ShardRole>, Ref<LearnerRole>>);
static_assert(!PredictorRole::accepts<End> && StageRole::accepts<End>);

TEST_CASE("the fields of a struct are visited in their order") {
  Mixed mixed{.text = "text"};
  std::vector<std::size_t> seen;
  for_each_field(mixed, [&](auto& field, std::size_t i) {
    seen.push_back(i);
    if constexpr (std::is_same_v<decltype(field), std::string&>) {
      CHECK(i == 3);
      field = "changed";
    }
  });
  CHECK(seen == std::vector<std::size_t>{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(mixed.text == "changed");
}

TEST_CASE("a message that is handed on is empty, and one that is copied says the same twice") {
  Message first = sent_by(3, PullReply{.request = 7, .chunk = 1, .weights = {{.values = one()}}});
  Message copy = first;
  Message moved = std::move(first);
  CHECK_FALSE(first);  // NOLINT: that is what is looked at
  CHECK(get_if<PullReply>(&first) == nullptr);
  CHECK(moved.from == 3);
  CHECK(copy.from == 3);
  REQUIRE(holds_alternative<PullReply>(copy));
  CHECK(get_if<Pull>(&copy) == nullptr);
  get<PullReply>(copy).request = 8;
  CHECK(get<PullReply>(moved).request == 7);
  CHECK(get<PullReply>(copy).weights[0].values.data<float>() ==
        get<PullReply>(moved).weights[0].values.data<float>());
  CHECK_THROWS_AS(get<Pull>(copy), ContractError);
  copy = std::move(moved);
  CHECK(get<PullReply>(copy).request == 7);
}

TEST_CASE("a message that takes another's place lets go of what it said, whatever kind that is") {
  Message kept = Answer{.weights = {{.values = one()}}};
  kept = Message(Credit{.chunk = 2});
  REQUIRE(holds_alternative<Credit>(kept));
  Message other = Answer{.weights = {{.values = one()}}};
  std::swap(kept, other);
  CHECK(holds_alternative<Answer>(kept));
  CHECK(get<Credit>(other).chunk == 2);
  kept = Message();
  CHECK_FALSE(kept);
}

TEST_CASE("a message is called as its struct is") {
  CHECK(message_name(Start()) == "Start");
  CHECK(message_name(Ran<BackwardPass>()) == "Ran");
  CHECK(message_name(Ran<StepMade>()) == "Ran");
  CHECK(message_name(Answer()) == "Answer");
  std::map<std::string_view, int> names;
  for (std::size_t i = 0; i < Kinds::size; ++i) {
    ++names[message_name(i)];
  }
  CHECK(names.contains("GradientReady"));
  for (const auto& [name, count] : names) {
    CAPTURE(name);
    CHECK((count == 1) != (name == "Ran"));
  }
}

TEST_CASE("every tensor of a result is found once") {
  StepMade made;
  made.applied.next = {{.values = one()}, {}};
  made.applied.predictions = {{{.values = one()}}};
  made.applied.outgoing = {one()};
  made.applied.moments = {{one(), one()}, {}};
  made.applied.residuals = {{.values = one()}};
  made.applied.links = {{.tensors = {one(), Tensor()}, .numbers = {1}}};
  std::set<const float*> seen;
  int count = 0;
  for_each_tensor(made, [&](Tensor& tensor) {
    seen.insert(tensor.data<float>());
    ++count;
  });
  CHECK(count == 7);
  CHECK(seen.size() == 7);
  RowsLooked looked{.weights = one(), .score = RowsLooked::Score{}};
  for_each_tensor(looked, [&](Tensor&) { ++count; });
  CHECK(count == 8);
}

}  // namespace message_test
