// The source as a plain state machine: what it makes of text, whose samples have many labels.
#include "actors/pipeline/source.hpp"

#include "experiment/data.pb.h"
#include "kernels/stream.hpp"
#include "runtime/data/text.hpp"
#include "tests/runtime/data/files.hpp"
#include "tests/runtime/data/samples.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>
#include <string>
#include <variant>
#include <vector>

namespace source_test {

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr std::int64_t kContext = 100;
constexpr Ref<StageRole> kFirst{7};
constexpr Ref<StageRole> kHead{8};
constexpr Ref<DirectorRole> kDirector{0};

/// 90 windows to train on at most offsets, and 49 to test: two batches of a Mark and a bit.
std::shared_ptr<const Dataset> text(const TemporaryFolder& folder) {
  std::string bytes;
  for (std::int64_t i = 0; i < 50'000; ++i) {
    bytes += static_cast<char>(i * i % 253);
  }
  folder.write("text", bytes);
  proto::Text options;
  options.set_path(folder / "text");
  options.set_context(kContext);
  options.mutable_vocabulary()->mutable_bytes();
  return *open_text(options, 1);
}

Source source(const std::shared_ptr<const Dataset>& data) {
  return Source({.data = data,
                 .sizes = BatchSizes(data->size(Split::train), 6),
                 .micro_batches = 3,
                 .prefetch = 1000,
                 .batches = 80,  // beyond the first epoch, which has 74
                 .evaluation = {},
                 .evaluate = true,
                 .first = {{kFirst}},
                 .heads = {{kHead}},
                 .head_chunk = 1,
                 .stages = {},
                 .shards = {},
                 .director = kDirector});
}

template <class M>
std::vector<M> sent(const Effects& fx) {
  std::vector<M> all;
  for (const auto& send : fx.sends) {
    if (const M* message = get_if<M>(&send.message)) {
      all.push_back(*message);
    }
  }
  return all;
}

/// Runs the jobs of `fx` and of all that follow, until the source has none.
Effects run_all(Source& machine, Effects fx) {
  Stream stream(Device{});
  while (!fx.runs.empty()) {
    std::vector<Run> runs = std::move(fx.runs);
    fx.runs.clear();
    for (Run& run : runs) {
      machine.on(run.job(stream), 0, fx);
    }
  }
  return fx;
}

std::vector<std::int32_t> values(const Tensor& tensor) {
  const auto span = tensor.span<std::int32_t>();
  return {span.begin(), span.end()};
}

Tensor result_of(double loss, double right) {
  Stream stream(Device{});
  Tensor result = stream.allocate({2}, DType::float64);
  result.span<double>()[0] = loss;
  result.span<double>()[1] = right;
  return result;
}

}  // namespace

TEST_CASE("tokens and their labels are (B, T), of the window of the epoch", "[actors]") {
  const TemporaryFolder folder;
  const auto data = text(folder);
  Source machine = source(data);
  Effects fx;
  machine.handle(Start{}, 0, fx);
  fx = run_all(machine, std::move(fx));
  const auto activations = sent<Activation>(fx);
  const auto labels = sent<Labels>(fx);
  REQUIRE(activations.size() == 240);
  REQUIRE(labels.size() == 240);
  BatchOrder order(data->size(Split::train), 6, 1);
  REQUIRE(order.epoch(79) == 1);
  for (const std::int64_t i : {0, 1, 239}) {
    const Gathered expected =
        gather(*data, Split::train, order.indices(i / 3, i % 3, 3), order.epoch(i / 3));
    const Tensor& x = activations[static_cast<std::size_t>(i)].bundle.front().tensor;
    const Tensor& target = labels[static_cast<std::size_t>(i)].labels;
    CHECK(x.shape() == Shape{2, kContext});
    CHECK(target.shape() == Shape{2, kContext});
    CHECK(values(x) == expected.tokens);
    CHECK(values(target) == expected.labels);
  }
}

TEST_CASE("loss and accuracy of text are means over its tokens", "[actors]") {
  const TemporaryFolder folder;
  const auto data = text(folder);
  REQUIRE(data->size(Split::test) == 49);
  Source machine = source(data);
  Effects fx;
  machine.handle(Start{}, 0, fx);
  fx = run_all(machine, std::move(fx));
  std::vector<std::int64_t> rows;
  std::vector<std::int32_t> tokens;
  for (const MarkBatch& batch : sent<MarkBatch>(fx)) {
    rows.push_back(batch.labels.shape().front());
    const auto some = values(batch.bundle.front().tensor);
    tokens.insert(tokens.end(), some.begin(), some.end());
  }
  CHECK(rows == std::vector<std::int64_t>{20, 20, 9});  // 20 * 100 labels are within 2048
  CHECK(tokens == gather(*data, Split::test, range(0, 49)).tokens);
  fx.clear();
  machine.handle(MarkResult{80, 2, result_of(1000, 90)}, 0, fx);
  machine.handle(MarkResult{80, 0, result_of(3000, 300)}, 0, fx);
  CHECK(sent<MarkDone>(fx).empty());
  machine.handle(MarkResult{80, 1, result_of(900, 100)}, 0, fx);
  REQUIRE(sent<MarkDone>(fx).size() == 1);
  const MarkDone done = sent<MarkDone>(fx).front();
  CHECK(done.loss == Approx(4900.0 / 4900.0));
  CHECK(done.accuracy == Approx(490.0 / 4900.0));
  CHECK(done.samples == 49);
}

TEST_CASE("a source that comes back begins where it is told, and has no Start", "[actors]") {
  const TemporaryFolder folder;
  const auto data = text(folder);
  Source whole = source(data);
  Source back = source(data);
  Effects fx;
  whole.handle(Start{}, 0, fx);
  const auto expected = sent<Activation>(run_all(whole, std::move(fx)));
  Effects again;
  back.handle(Rejoin{.batch = 70}, 0, again);  // the end of the first epoch
  const auto made = sent<Activation>(run_all(back, std::move(again)));
  REQUIRE(made.size() > 30);
  for (std::size_t i = 0; i < 30; ++i) {
    CHECK(made[i].stamp.batch == static_cast<std::int64_t>(i / 3));  // the stages count from 0
    CHECK(values(made[i].bundle.front().tensor) == values(expected[210 + i].bundle.front().tensor));
  }
}

}  // namespace source_test
