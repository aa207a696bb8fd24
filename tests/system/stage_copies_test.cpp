// Copies of a stage (pipeline.copies, PipeDream's 1F1B round robin): against a loop over mini-batches in double that knows
// no stages, and in time.
#include "messages/sections.hpp"
#include "runtime/data/batch.hpp"
#include "runtime/schemes/schedules/timeline.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/double_modules.hpp"
#include "tests/support/harness.hpp"

#include <cmath>

namespace stage_copies_test {

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr double kRounding = 5e-7;  // of weights of some tenths, after 30 updates in float32
constexpr double kApart = 1e-4;     // what a loop for something else is off by, at least

using Copies = std::vector<std::int32_t>;

/// Three chunks, the last of which has the loss.
BoxedExperiment task(const Copies& copies, const Options& more = {}) {
  std::string list;
  int stages = 0;
  for (const std::int32_t r : copies) {
    list += (list.empty() ? "" : ",") + std::to_string(r);
    stages += r;
  }
  return experiment(
      "model { mlp { hidden: [9, 7] activation: tanh } } "
      "data { batch_size: 16 teacher { inputs: 12 outputs: 5 hidden: 16 train: 512 test: 64 } } "
      "optimizer { rule: momentum learning_rate: 0.05 momentum: 0.9 } stop { updates: 31 } "
      "pipeline { cut: [1, 2] schedule { async_one_f_one_b {} } weights { stash {} } } "
      "record { evaluate: false order: false } ",
      joined({"pipeline.copies=[" + list + "]", "pipeline.stages=" + std::to_string(stages)},
             more));
}

/// Chunk k has made so many updates when its forward of mini-batch b begins: one for each whole round of
/// its r copies, but for the rounds that are under way, which keep all stages from this one on busy; and
/// of several copies for the last one, whose mini-batches may be under way at the others.
std::int64_t updates_before(const Copies& copies, std::size_t k, std::int64_t batch) {
  int behind = 0;
  for (std::size_t i = k; i < copies.size(); ++i) {
    behind += copies[i];
  }
  const std::int64_t under_way = (behind + copies[k] - 1) / copies[k];
  return std::max<std::int64_t>(0, batch / copies[k] - (under_way - 1) - (copies[k] > 1 ? 1 : 0));
}

/// PipeDream's: each mini-batch goes forward and back at the weights that its forward met, and an update
/// of chunk k is the mean of copies[k] mini-batches.
std::vector<double> in_double(const proto::Experiment& e, const Copies& copies) {
  auto b = make_blueprint(e);
  REQUIRE(b);
  std::vector<std::vector<DoubleModule>> by_update;  // of each chunk, the newest last
  std::vector<std::vector<Matrix>> sums(b->chunks.size());
  for (const auto& chunk : b->chunks) {
    by_update.push_back(
        {DoubleModule(chunk->last() ? std::vector{DoublePart::dense}
                                    : std::vector{DoublePart::dense, DoublePart::tanh},
                      initial_parameters(*chunk, sections::seed(e)))});
  }
  Stream stream{Device{}};
  BatchOrder order(b->data->size(Split::train), b->sizes, sections::seed(e));
  for (std::int64_t batch = 0; batch < b->batches; ++batch) {
    const auto sample = gather_batch(
        stream, *b->data, Split::train, order.indices(batch, 0, 1), order.epoch(batch));
    std::vector<const DoubleModule*> read;
    std::vector<DoubleModule::Pass> passes;
    for (std::size_t k = 0; k < by_update.size(); ++k) {
      read.push_back(&by_update[k].at(static_cast<std::size_t>(updates_before(copies, k, batch))));
      passes.push_back(read[k]->forward(k == 0 ? matrix_of(sample.x) : passes[k - 1].y));
    }
    const std::vector<double> target = matrix_of(sample.target).values;
    Matrix error =
        cross_entropy_gradient(passes.back().y, std::vector<int>(target.begin(), target.end()));
    std::vector<std::vector<Matrix>> gradients(by_update.size());
    for (std::size_t k = by_update.size(); k-- > 0;) {
      auto made = read[k]->backward(passes[k], error);
      error = std::move(made.dx);
      gradients[k] = std::move(made.parameters);
    }
    for (std::size_t k = 0; k < by_update.size(); ++k) {
      const std::int64_t r = copies[k];
      for (std::size_t i = 0; i < gradients[k].size(); ++i) {
        Matrix& g = gradients[k][i];
        g = sum(1.0 / static_cast<double>(r),
                g,
                batch % r == 0 ? 0.0 : 1.0,
                batch % r == 0 ? g : sums[k][i]);
      }
      sums[k] = gradients[k];
      if ((batch + 1) % r == 0) {
        DoubleModule next = by_update[k].back();
        next.step(sums[k], 0.05, 0.9);
        by_update[k].push_back(std::move(next));
      }
    }
  }
  std::vector<double> all;
  for (const auto& versions : by_update) {
    for (const Matrix& p : versions.back().parameters) {
      all.insert(all.end(), p.values.begin(), p.values.end());
    }
  }
  return all;
}

Outcome trained(const proto::Experiment& e, bool threads = false) {
  Outcome outcome = run(e, {.threads = threads, .lose = {}});
  INFO(outcome.ending.cause);
  REQUIRE(outcome.ending.exit_code == 0);
  return outcome;
}

double apart(const std::vector<float>& weights, const std::vector<double>& expected) {
  REQUIRE(weights.size() == expected.size());
  double most = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    most = std::max(most, std::abs(static_cast<double>(weights[i]) - expected[i]));
  }
  return most;
}

const Copies kAll[] = {{2, 1, 1}, {1, 2, 1}, {1, 1, 2}, {3, 2, 1}, {2, 2, 2}, {1, 3, 2}};

std::string refusal(const proto::Experiment& e) {
  const auto made = make_blueprint(e);
  return made ? "" : made.error().message;
}

}  // namespace

TEST_CASE("a stage in several copies trains as PipeDream's loop does", "[system]") {
  CHECK(apart(trained(task({1, 1, 1})).weights, in_double(task({1, 1, 1}), {1, 1, 1})) < kRounding);
  for (const Copies& copies : kAll) {
    INFO(copies[0] << copies[1] << copies[2]);
    const std::vector<float> weights = trained(task(copies)).weights;
    CHECK(apart(weights, in_double(task(copies), copies)) < kRounding);
    CHECK(apart(weights, in_double(task(copies), {1, 1, 1})) > kApart);
  }
}

TEST_CASE("copies give the same bits on threads, with times that vary and with evaluations",
          "[system]") {
  for (const Copies& copies : kAll) {
    INFO(copies[0] << copies[1] << copies[2]);
    const std::vector<float> plain = trained(task(copies)).weights;
    CHECK(same(trained(task(copies), true).weights, plain));
    const Outcome varied = trained(task(copies,
                                        {"clock.forward.seconds=[1,3,2]",
                                         "clock.input_gradient.seconds=[2,1,1]",
                                         "clock.weight_gradient.seconds=[1]",
                                         "clock.update.seconds=[0.5]",
                                         "clock.link.seconds=[0.25]",
                                         "record.evaluate=true",
                                         "record.evaluate_every=5"}));
    CHECK(same(varied.weights, plain));
    CHECK(varied.evaluations.size() == 7);  // after 5, 10, ..., 30 mini-batches and at the end
  }
}

TEST_CASE("a forward meets the versions of whole rounds, and its backward the same", "[system]") {
  const Copies copies{3, 2, 1};
  for (const AppliedRecord& record : trained(task(copies)).applied) {
    const auto k = static_cast<std::size_t>(record.stamp.chunk);
    for (const Read& read : record.reads) {
      INFO("mini-batch " << record.stamp.batch << " on chunk " << k);
      CHECK(read.forward_version == copies[k] * updates_before(copies, k, record.stamp.batch));
      CHECK(read.backward_version == read.forward_version);
    }
  }
}

TEST_CASE("two copies of a stage that takes twice as long make a pipe without idle time",
          "[system]") {
  const auto seconds = [](const Copies& copies, int updates) {
    const BoxedExperiment e = task(copies,
                                   {"stop.updates=" + std::to_string(updates),
                                    "clock.forward.seconds=[2,1,1]",
                                    "clock.input_gradient.seconds=[2,1,1]",
                                    "clock.weight_gradient.seconds=[2,1,1]"});
    auto b = make_blueprint(e);
    REQUIRE(b);
    const double time = trained(e).seconds;
    CHECK(time == Approx(simulate(*b->schedule, b->times, b->batches).end).epsilon(1e-12));
    return time;
  };
  CHECK(seconds({2, 1, 1}, 60) - seconds({2, 1, 1}, 40) == Approx(20 * 3));
  CHECK(seconds({1, 1, 1}, 60) - seconds({1, 1, 1}, 40) == Approx(20 * 6));
}

TEST_CASE("what does not go with copies of a stage is refused", "[system]") {
  CHECK(refusal(task({2, 1, 1}, {"pipeline.stages=3"})) ==
        "pipeline.copies: they are 4 stages in all, and pipeline.stages is 3");
  CHECK(refusal(task({2, 1, 1}, {"pipeline.weights=latest"})) ==
        "pipeline.copies: stages that take turns are updated while others of their mini-batches "
        "are under way; use pipeline.weights stash");
  const std::string pipedream =
      "pipeline.copies: stages that take turns are those of PipeDream's 1F1B; use "
      "pipeline.schedule async_one_f_one_b, pipeline.micro_batches 1 and no pipeline.stage_of";
  CHECK(refusal(task({2, 1, 1}, {"pipeline.schedule=gpipe"})) == pipedream);
  CHECK(refusal(task({2, 1, 1}, {"pipeline.micro_batches=2"})) == pipedream);
  CHECK(refusal(task({2, 1, 1}, {"pipeline.stage_of=[0,1,2,3]"})) == pipedream);
  CHECK(refusal(task({2, 1, 1}, {"replicas.count=2", "replicas.exchange=synchronous"})) ==
        "pipeline.copies: they are for one replica, trained by backpropagation; use "
        "replicas.count 1, no hogwild or sandblaster, decoupled none and record.angle_every 0");
  for (const char* exchange : {"diloco", "easgd", "wsp", "synchronous", "averaging"}) {
    INFO(exchange);
    CHECK(refusal(task({2, 1, 1}, {concat("replicas.exchange=", exchange)})) ==
          "pipeline.copies: a round of mini-batches is one update, and servers would hear of each "
          "mini-batch; use replicas.exchange parameter_server, of which one replica needs none");
  }
}

}  // namespace stage_copies_test
