// The parts of a stage, each on its own: messages in, effects out.
#include "actors/pipeline/stage/arrivals.hpp"
#include "actors/pipeline/stage/by_micro_batch.hpp"
#include "actors/pipeline/stage/chunk_statistics.hpp"
#include "actors/pipeline/stage/gradient_sums.hpp"
#include "actors/pipeline/stage/least_used_buffer.hpp"
#include "actors/pipeline/stage/sequence_cursor.hpp"
#include "actors/pipeline/stage/sequence_wait.hpp"
#include "actors/pipeline/stage/stashes.hpp"
#include "kernels/random.hpp"
#include "messages/archive.hpp"
#include "messages/bad_sender.hpp"
#include "tests/support/catch.hpp"

#include <map>

namespace stage_parts_test {

using namespace troupe;

namespace {

constexpr Ref<DirectorRole> kDirector{7};

Action forward(std::int64_t batch, std::int32_t micro_batch = 0, std::int32_t chunk = 0) {
  return {.act = Act::forward, .chunk = chunk, .batch = batch, .micro_batch = micro_batch};
}

constexpr Arrivals::Needs kHead{.labels = true, .errors = 0};
constexpr Arrivals::Needs kInner{.labels = false, .errors = 1};

Action backward(std::int64_t batch, std::int32_t micro_batch = 0, std::int32_t chunk = 0) {
  return {.act = Act::backward, .chunk = chunk, .batch = batch, .micro_batch = micro_batch};
}

Tensor value(float x) {
  Stream stream(Device{});
  Tensor t = stream.allocate({1});
  fill(stream, t, x);
  return t;
}

/// The waits in `fx`, as (start, end), which is cleared.
std::vector<std::pair<double, double>> waits(Effects& fx) {
  std::vector<std::pair<double, double>> all;
  for (const RecordEntry& entry : fx.records) {
    const auto& wait = std::get<WaitRecord>(entry);
    all.emplace_back(wait.start, wait.end);
  }
  fx.clear();
  return all;
}

using Waits = std::vector<std::pair<double, double>>;

/// The values of the buffers that were sent to the director.
std::vector<float> concluded(const Effects& fx) {
  std::vector<float> all;
  for (const Effects::Send& send : fx.sends) {
    CHECK(send.to == kDirector.id);
    all.push_back(get<Buffers>(send.message).tensors.front().span<float>()[0]);
  }
  return all;
}

ChunkStatistics statistics(bool served) {
  return ChunkStatistics({.served = served,
                          .evaluation = {.every = 2},
                          .director = kDirector,
                          .initial = {{0, {value(0)}}}});
}

}  // namespace

TEST_CASE(
    "what is kept by micro-batch is found as in a tree, in whichever order it comes and goes") {
  using Key = std::tuple<std::int64_t, std::int32_t, std::int32_t>;  // as MicroBatch is ordered
  const RandomStream random(1, Purpose::test);
  ByMicroBatch<int> kept;
  std::map<Key, int> expected;
  for (std::uint64_t i = 0; i < 20'000; ++i) {
    const bool fill =
        i / 500 % 2 == 0;  // by turns rather more comes than goes, and the other way round
    const MicroBatch key{.chunk = static_cast<std::int32_t>(random.below(4 * i, 2)),
                         .batch = static_cast<std::int64_t>(random.below(4 * i + 1, 20)),
                         .micro_batch = static_cast<std::int32_t>(random.below(4 * i + 2, 3))};
    const Key same{key.batch, key.chunk, key.micro_batch};
    if (random.below(4 * i + 3, 4) < (fill ? 3 : 1)) {
      kept[key] += static_cast<int>(i);
      expected[same] += static_cast<int>(i);
    } else {
      const auto taken = kept.take(key);
      const auto found = expected.extract(same);
      REQUIRE(taken.has_value() == !found.empty());
      REQUIRE((!taken || *taken == found.mapped()));
    }
    const auto found = expected.find(same);
    REQUIRE(kept.size() == expected.size());
    REQUIRE((kept.find(key) == nullptr) == (found == expected.end()));
    REQUIRE((found == expected.end() || *kept.find(key) == found->second));
    if (i % 1000 == 0) {  // written and read back it is the same
      Archive out;
      out(kept);
      kept = {};
      Archive in(out.take());
      in(kept);
      in.expect_end();
    }
  }
  for (const auto& [key, value] : expected) {
    CHECK(kept.take({std::get<1>(key), std::get<0>(key), std::get<2>(key)}) == value);
  }
  CHECK(kept.size() == 0);
}

TEST_CASE("an action lacks first what only another machine can bring") {
  Arrivals arrivals;
  CHECK(arrivals.missing(forward(3), {.of_source = true}) == Want::data);
  CHECK(arrivals.missing(forward(3, 0, 1), kHead) == Want::activation);
  arrivals.keep(Activation{{0, 1, 3, 0}, {{"x", value(1)}}});
  CHECK(arrivals.missing(forward(3, 0, 1), kHead) == Want::data);  // labels
  CHECK_FALSE(arrivals.missing(forward(3, 0, 1), kInner));
  arrivals.keep(Labels{{0, 1, 3, 0}, value(1)});
  CHECK_FALSE(arrivals.missing(forward(3, 0, 1), kHead));
  CHECK(arrivals.missing(forward(3, 1, 1), kHead) == Want::activation);
  CHECK(arrivals.missing(backward(3, 0, 1), kInner) == Want::error);
  CHECK_FALSE(arrivals.missing(backward(3, 0, 1), kHead));
}

TEST_CASE("pieces of parts are of the same samples") {
  Stream stream(Device{});
  const auto rows = [&](std::int64_t count) {
    return stream.allocate({count, 2});
  };
  const auto came = [&](std::vector<std::int64_t> counts, const std::string& piece) {
    Arrivals arrivals(0, std::ssize(counts));
    for (std::size_t t = 0; t < counts.size(); ++t) {
      if (piece == "x<") {
        arrivals.keep(Activation{{0, 1, 3, 0}, {{piece + std::to_string(t), rows(counts[t])}}});
      } else {
        arrivals.keep(ErrorSignal{{0, 1, 3, 0}, {{piece + std::to_string(t), rows(counts[t])}}});
      }
    }
  };
  for (const std::string piece : {"x<", "x>"}) {
    CAPTURE(piece);
    CHECK_NOTHROW(came({4, 4}, piece));
    CHECK_NOTHROW(came({3, 4}, piece));  // 7 samples
    CHECK_NOTHROW(came({1, 2, 1, 2}, piece));
    CHECK_THROWS_AS(came({4, 3}, piece), BadSender);  // 7 have the greater share behind
    CHECK_THROWS_AS(came({4, 6}, piece), BadSender);
    CHECK_THROWS_AS(came({4, 4, 1}, piece), BadSender);
    CHECK_THROWS_AS(came({2, 1, 1, 2}, piece), BadSender);
  }
  CHECK_NOTHROW(Arrivals().keep(Activation{{0, 1, 3, 0}, {{"x", rows(5)}}}));
}

TEST_CASE("a buffer gives what was used least, of this the newest, and the oldest makes room") {
  LeastUsedBuffer<int> buffer;
  CHECK(buffer.empty());
  CHECK(buffer.keep(1, 3) == 0);
  CHECK(buffer.fresh());
  CHECK(buffer.draw().value == 1);
  CHECK_FALSE(buffer.fresh());
  CHECK(buffer.draw().again);  // 1 was used twice
  CHECK(buffer.keep(2, 3) == 0);
  CHECK(buffer.keep(3, 3) == 0);
  CHECK(buffer.keep(4, 3) == 0);  // 1 made room, which had been used
  std::vector<int> drawn;
  for (int i = 0; i < 7; ++i) {
    const auto draw = buffer.draw();
    CHECK(draw.again == (i > 2));
    drawn.push_back(draw.value);
  }
  CHECK(drawn == std::vector{4, 3, 2, 4, 3, 2, 4});
  CHECK(buffer.keep(5, 3) == 0);
  CHECK(buffer.keep(6, 3) == 0);
  CHECK(buffer.keep(7, 3) == 0);
  CHECK(buffer.keep(8, 3) == 1);  // nobody has seen 5
  CHECK(buffer.keep(9, 1) == 3);
  CHECK(buffer.draw().value == 9);
}

TEST_CASE("inputs that are drawn from a buffer bring their labels") {
  Arrivals arrivals(2);
  constexpr Arrivals::Needs kDrawing{.labels = true, .errors = 1};
  const auto send = [&](std::int32_t chunk, std::int64_t batch, float x) {
    Bundle bundle{{"x", value(x)}};
    if (chunk > 0) {
      bundle.push_back({"labels", value(-x)});
    }
    arrivals.keep(Activation{{0, chunk, batch, 0}, std::move(bundle)});
  };
  const auto drawn = [&](std::int64_t batch, bool again, std::int64_t replaced) {
    const Action a = forward(batch, 0, 1);
    const Arrivals::Choice choice = arrivals.draw(a);
    CHECK(choice.again == again);
    CHECK(choice.replaced == replaced);
    const Arrivals::ForwardInput in = arrivals.take_input(a);
    REQUIRE(in.bundle.size() == 1);
    CHECK(in.labels.span<float>()[0] == -in.bundle.front().tensor.span<float>()[0]);
    return in.bundle.front().tensor.span<float>()[0];
  };
  CHECK(arrivals.missing(forward(0, 0, 1), kDrawing) == Want::activation);
  send(1, 0, 1);
  CHECK_FALSE(arrivals.missing(forward(7, 0, 1), kDrawing));  // of whatever mini-batch
  CHECK(drawn(0, false, 0) == 1);
  CHECK(drawn(1, true, 0) == 1);
  send(1, 1, 2);
  send(1, 2, 3);
  send(1, 3, 4);
  CHECK(drawn(2, false, 1) == 4);
  CHECK(drawn(3, false, 0) == 3);
  send(0, 0, 5);  // the first chunk has none: its input is the data
  CHECK(arrivals.missing(forward(0), kDrawing) == Want::data);
  arrivals.keep(Labels{{0, 0, 0, 0}, value(6)});
  CHECK_FALSE(arrivals.missing(forward(0), kDrawing));
  CHECK(arrivals.missing(forward(1), {.of_source = true}) == Want::data);
}

TEST_CASE("a wait is recorded when it ends or turns into another") {
  SequenceWait wait(1);
  Effects fx;
  wait.begin(Want::data, 1, fx);
  wait.begin(Want::data, 2, fx);
  CHECK(waits(fx).empty());
  wait.begin(Want::weights, 3, fx);
  CHECK(waits(fx) == Waits{{1, 3}});
  wait.end(5, fx);
  wait.end(6, fx);
  CHECK(waits(fx) == Waits{{3, 5}});
}

TEST_CASE("the time of an evaluation is not waiting") {
  SequenceWait wait(1);
  Effects fx;
  wait.begin(Want::error, 1, fx);
  wait.pause(2, fx);
  CHECK(waits(fx) == Waits{{1, 2}});
  wait.resume(5);
  wait.end(6, fx);
  CHECK(waits(fx) == Waits{{5, 6}});

  wait.begin(Want::error, 7, fx);
  wait.pause(8, fx);
  fx.clear();
  wait.end(9, fx);  // within the evaluation
  CHECK(waits(fx).empty());
}

TEST_CASE("a stash goes with its backward") {
  Stashes stashes(KeepActivations::fifo, 0);
  stashes.keep(forward(0)).first_sample = 10;
  stashes.keep(forward(1)).first_sample = 20;
  CHECK(stashes.take(backward(0)).first_sample == 10);
  CHECK(stashes.take(backward(1)).first_sample == 20);
  Effects fx;
  stashes.record_count_max(fx);
  stashes.record_count_max(fx);
  REQUIRE(fx.records.size() == 1);
  CHECK(std::get<StageRecord>(fx.records.front()).stashes_max == 2);
}

TEST_CASE("a push tells what each micro-batch has read, and when the oldest forward began") {
  GradientSums sums;
  Action second = forward(4, 1);
  second.natural = 3;
  sums.open_read(forward(4, 0), View{2, {}}, 12, 7.0);
  sums.open_read(second, View{3, {}}, 13, 8.0);
  CHECK(sums.forward_natural(backward(4, 1)) == 3);
  sums.begin_backward({}, 12);
  sums.close_read(backward(4, 0));
  sums.begin_backward(View{5, {}}, 15);
  sums.close_read(backward(4, 1));
  sums.put(0, {value(1)});
  const BatchGradient batch = sums.take_batch({.act = Act::update, .chunk = 0, .batch = 4});
  CHECK(batch.read_time == 7);
  REQUIRE(batch.reads.size() == 2);
  CHECK(batch.reads[0].forward == View{2, {}});
  CHECK(batch.reads[0].backward == View{2, {}});
  CHECK(batch.reads[1].forward == View{3, {}});
  CHECK(batch.reads[1].backward == View{5, {}});
  CHECK(batch.reads[1].backward_version == 15);
  CHECK(batch.gradient.size() == 1);
}

TEST_CASE("an evaluation reads the statistics of its step, whatever came after") {
  ChunkStatistics of = statistics(false);
  Effects fx;
  for (std::int64_t batch = 0; batch < 4; ++batch) {
    of.set(0, {value(static_cast<float>(batch + 1))});
    of.finish_batch(0, batch, fx);
  }
  CHECK(of.at(0, 2).front().span<float>()[0] == 2);
  of.release(2);
  CHECK(of.at(0, 2).front().span<float>()[0] == 4);
}

TEST_CASE("the director gets the statistics of the last step once its forwards are done") {
  ChunkStatistics of = statistics(false);
  Effects fx;
  of.conclude(1, fx);
  CHECK(concluded(fx).empty());
  of.set(0, {value(5)});
  of.finish_batch(0, 0, fx);
  CHECK(concluded(fx) == std::vector<float>{5});
  of.finish_batch(0, 1, fx);
  CHECK(concluded(fx).size() == 1);
}

TEST_CASE("where replicas share weights the director gets the statistics at once") {
  ChunkStatistics of = statistics(true);
  Effects fx;
  of.conclude(1, fx);
  CHECK(concluded(fx) == std::vector<float>{0});
}

TEST_CASE("a cursor finds the next forward of a chunk and knows what is beyond the end") {
  auto schedule = std::make_shared<Schedule>();
  schedule->stages.push_back({.prologue = {forward(0)}, .period = {backward(0), forward(1)}});
  SequenceCursor cursor(schedule, 0);
  CHECK(cursor.next_forward(0).batch == 1);
  CHECK(cursor.advance().act == Act::forward);
  CHECK(cursor.action().act == Act::backward);
  CHECK_FALSE(cursor.beyond_end(forward(1)));
  cursor.set_end(1);
  CHECK(cursor.beyond_end(forward(1)));
  CHECK_FALSE(cursor.beyond_end(backward(0)));
}

}  // namespace stage_parts_test
