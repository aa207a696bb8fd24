// What `plan` promises, against the closed forms of the papers.
#include "apps/plan/plan.hpp"

#include "apps/cli/text.hpp"
#include "apps/plan/codecs.hpp"
#include "apps/plan/forecast.hpp"
#include "apps/plan/layers.hpp"
#include "apps/plan/memory.hpp"
#include "apps/plan/reads.hpp"
#include "apps/plan/room.hpp"
#include "apps/plan/traffic.hpp"
#include "apps/plan/zero_bubble.hpp"
#include "apps/presets/presets.hpp"
#include "apps/run/phases.hpp"
#include "experiment.pb.h"
#include "messages/experiment.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/text_file.hpp"

#include <algorithm>

namespace plan_test {

using namespace troupe;

namespace {

/// Eight layers alike on `stages` stages, every forward 1 s, every half of a backward 1 s.
Blueprint blueprint(int stages, std::vector<std::string> assignments) {
  std::vector<std::string> all{"model.mlp.hidden=[16,16,16,16,16,16,16]",
                               "data=teacher",
                               "data.teacher.inputs=16",
                               "data.teacher.outputs=16",
                               "data.batch_size=16",
                               "clock.forward.seconds=[1]",
                               "clock.input_gradient.seconds=[1]",
                               "clock.weight_gradient.seconds=[1]",
                               "pipeline.stages=" + std::to_string(stages)};
  all.insert(all.end(), assignments.begin(), assignments.end());
  auto experiment = load_experiment("glyphs-mlp", all);
  REQUIRE(experiment);
  auto made = make_blueprint(*experiment);
  if (!made) {
    FAIL(made.error().message);
  }
  return *made;
}

std::vector<std::int64_t> copies(const Blueprint& b) {
  std::vector<std::int64_t> all;
  for (std::int32_t c = 0; c < b.schedule->chunks; ++c) {
    all.push_back(memory_of(b, c).copies);
  }
  return all;
}

std::vector<std::int64_t> stashes(const Blueprint& b) {
  std::vector<std::int64_t> all;
  for (std::int32_t c = 0; c < b.schedule->chunks; ++c) {
    all.push_back(memory_of(b, c).stashes);
  }
  return all;
}

using Counts = std::vector<std::int64_t>;

}  // namespace

TEST_CASE("a schedule is no longer than its run, however many epochs are to be flushed", "[apps]") {
  const std::vector<std::string> pipemare{"pipeline.weights=pipemare",
                                          "pipeline.weights.pipemare.synchronous_epochs=10"};
  const auto flushed = [&](const std::string& end) {
    std::vector<std::string> all = pipemare;
    all.push_back(end);
    return blueprint(2, all).schedule->options.synchronous_batches;
  };
  CHECK(flushed("stop.updates=20") == 20);
  CHECK(flushed("stop.epochs=20") > 20);
}

TEST_CASE("copies of the weights are those of the papers", "[apps]") {
  CHECK(copies(blueprint(4, {"pipeline.weights=latest"})) == Counts{1, 1, 1, 1});
  CHECK(copies(blueprint(4, {"pipeline.weights=stash"})) == Counts{4, 3, 2, 1});          // K-k
  CHECK(copies(blueprint(4, {"pipeline.weights=vertical_sync"})) == Counts{4, 4, 4, 4});  // K
  CHECK(copies(blueprint(4, {"pipeline.weights=double_buffered", "pipeline.micro_batches=4"})) ==
        Counts{2, 2, 2, 2});
  CHECK(copies(blueprint(4,
                         {"pipeline.schedule=one_f_one_b",
                          "pipeline.weights=stash",
                          "pipeline.micro_batches=4"})) == Counts{1, 1, 1, 1});
  // The slice, its prediction, and the predictions that backwards wait for.
  CHECK(copies(blueprint(4, {"pipeline.weights=spectrain"})) == Counts{5, 4, 3, 1});
}

TEST_CASE("the speed of several replicas is told as one replica's", "[apps]") {
  CHECK_THAT(describe(blueprint(1, {"replicas.count=4"})), test::says("samples/s by each replica"));
  CHECK_THAT(describe(blueprint(1, {})), test::says("samples/s") && !test::says("by each replica"));
}

TEST_CASE("activations are kept as long as the schedule needs them", "[apps]") {
  CHECK(stashes(blueprint(4, {})) == Counts{4, 3, 2, 1});
  CHECK(
      stashes(blueprint(
          4, {"pipeline.schedule=gpipe", "pipeline.micro_batches=8", "pipeline.weights=latest"})) ==
      Counts{8, 8, 8, 8});
  CHECK(stashes(blueprint(4,
                          {"pipeline.schedule=one_f_one_b",
                           "pipeline.micro_batches=8",
                           "pipeline.weights=latest"})) == Counts{4, 3, 2, 1});
  CHECK(stashes(blueprint(4, {"pipeline.schedule=async_full_duplex"})) == Counts{7, 5, 3, 1});
}

TEST_CASE("who sends how many bytes follows from what is between stages, and from codecs",
          "[apps]") {
  const auto sent = [](const Blueprint& b) {
    std::string text;
    for (const SentBy& one : sent_by_actors(b)) {
      text += concat(text.empty() ? "" : " ", one.actor, "=", one.bytes);
    }
    return text;
  };
  // 16 samples of 16 numbers of 4 bytes between any two layers.
  CHECK(sent(blueprint(1, {})) == "source=1024");
  CHECK(sent(blueprint(4, {})) ==
        "source=1024 stage-0=1024 stage-1=2048 stage-2=2048 stage-3=1024");
  // The last chunk of the first pass and the first one of the way back are on one stage: nothing goes from it to itself.
  CHECK(
      sent(blueprint(
          2, {"pipeline.schedule=zb_v", "pipeline.micro_batches=4", "pipeline.weights=latest"})) ==
      "source=1024 stage-0=2048 stage-1=2048");
  // Each of a chunk's stages has half of the micro-batches.
  CHECK(sent(blueprint(4,
                       {"pipeline.schedule=dual_pipe",
                        "pipeline.micro_batches=8",
                        "pipeline.weights=latest"})) ==
        "source=1024 stage-0=1024 stage-1=2048 stage-2=2048 stage-3=1024");
  // 8 layers of 16 x 17 parameters; the server answers both replicas, in bf16.
  CHECK(sent(blueprint(1,
                       {"replicas.count=2",
                        "replicas.exchange=parameter_server",
                        "replicas.codec.down=bf16"})) ==
        "source=1024 shard-0=8704 server-0.0=8704");
  CHECK(sent(blueprint(2, {"decoupled=local_loss"})).empty());
}

TEST_CASE("moments and gradients are as large as the weights", "[apps]") {
  const Blueprint momentum = blueprint(2, {});
  const auto bytes = static_cast<double>(momentum.chunks[0]->layout().bytes());
  CHECK(memory_of(momentum, 0).moments == bytes);
  CHECK(memory_of(momentum, 0).gradient == bytes);
  CHECK(memory_of(blueprint(2, {"optimizer.rule=adamw"}), 0).moments == 2 * bytes);
  CHECK(memory_of(blueprint(2, {"optimizer.rule=sgd"}), 0).moments == 0);
  CHECK(memory_of(blueprint(2, {"optimizer.rule=sgd", "pipeline.weights=pipemare"}), 0).moments ==
        bytes);
}

TEST_CASE("recomputing keeps inputs only", "[apps]") {
  const Blueprint kept = blueprint(4, {});
  const Blueprint recomputed = blueprint(4, {"pipeline.activations=recompute"});
  CHECK(memory_of(recomputed, 0).activations < memory_of(kept, 0).activations);
}

TEST_CASE("what is left of the staleness is the delay less the prediction", "[apps]") {
  const auto left = [](const Blueprint& b) {
    Counts all;
    for (std::int32_t c = 0; c < b.schedule->chunks; ++c) {
      all.push_back(std::llround(reads_of(b, c).left()));
    }
    return all;
  };
  CHECK(left(blueprint(4, {"pipeline.weights=stash"})) == Counts{3, 2, 1, 0});
  CHECK(left(blueprint(4, {"pipeline.weights=vertical_sync"})) == Counts{3, 3, 3, 3});
  CHECK(left(blueprint(4, {"pipeline.weights=spectrain"})) == Counts{0, 0, 0, 0});
  CHECK(left(blueprint(4, {"pipeline.weights=nwpt"})) == Counts{2, 1, 0, -1});
  CHECK(reads_of(blueprint(4, {"pipeline.weights=stash"}), 0).stashed);
  const ChunkReads latest = reads_of(blueprint(4, {"pipeline.weights=latest"}), 0);
  CHECK_FALSE(latest.stashed);
  CHECK(latest.forward_behind == 3);
  CHECK(latest.backward_behind == 0);
}

TEST_CASE("idle time follows the closed forms", "[apps]") {
  // GPipe and 1F1B: (K-1)/(M+K-1) of the time.
  for (const char* schedule : {"gpipe", "one_f_one_b"}) {
    const Forecast f = forecast(blueprint(4,
                                          {std::string("pipeline.schedule=") + schedule,
                                           "pipeline.micro_batches=8",
                                           "pipeline.weights=latest"}));
    CHECK(f.idle_steady == Approx(3.0 / 11));
    CHECK(f.idle_run == Approx(3.0 / 11));
    CHECK(f.period == Approx(33));
  }
  CHECK(forecast(blueprint(4, {"pipeline.schedule=sequential", "pipeline.weights=latest"}))
            .idle_steady == Approx(0.75));
  const Forecast async = forecast(blueprint(4, {"stop.updates=100", "stop.epochs=0"}));
  CHECK(async.idle_steady == Approx(0).margin(1e-9));
  CHECK(async.period == Approx(3));
  CHECK(async.idle_run == Approx(9.0 / 309));  // the pipe is filled and drained once
}

TEST_CASE("a plan of DualPipe has each chunk on two stages", "[apps]") {
  const Blueprint b = blueprint(
      4, {"pipeline.schedule=dual_pipe", "pipeline.micro_batches=8", "pipeline.weights=latest"});
  const std::string text = describe(b);
  CHECK_THAT(text, test::says("4 stages with chunks 0,3 | 1,2 | 1,2 | 0,3, 8 micro-batches"));
  CHECK_THAT(text, test::says("dense8        (16)           272         1.54k  stage-3+0"));
  CHECK_THAT(describe_briefly(b), test::says("stages 0+3: dense1..dense2 (544 on cpu); 1+2: "));
  const Forecast f = forecast(b);
  CHECK(f.period == Approx(8 * 3 + 1));  // (K/2-1)(T_F+T_B-2 T_W)
  CHECK(f.idle_steady == Approx(1.0 / 25));
  CHECK(copies(b) == Counts{1, 1, 1, 1});
  const ChunkMemory one = memory_of(blueprint(4, {"pipeline.weights=latest"}), 0);
  CHECK(memory_of(b, 0).gradient == 2 * one.gradient);
  CHECK(memory_of(b, 0).weights == one.weights);
  CHECK(memory_of(b, 0).moments == one.moments);
}

TEST_CASE("a zero bubble is found for stages that are not alike, within the memory", "[apps]") {
  const std::vector<std::string> unlike{"clock.forward.seconds=[1,2,1,1]",
                                        "clock.weight_gradient.seconds=[1,1,2,1]",
                                        "pipeline.schedule=one_f_one_b",
                                        "pipeline.micro_batches=8"};
  const Blueprint b = blueprint(4, unlike);
  const auto held = [&](const Schedule& schedule) {
    Blueprint of = b;
    of.schedule = std::make_shared<const Schedule>(schedule);
    return memory_of(of, 0).stashes;
  };
  const auto found = zero_bubble(b, b.times, 0);
  REQUIRE(found);
  Blueprint ordered = b;
  ordered.schedule = std::make_shared<const Schedule>(found->schedule);
  CHECK(forecast(ordered).period < 0.9 * forecast(b).period);
  CHECK(forecast(ordered).period >= 8 * 4 - 1e-9);  // the work of stage 1 and of stage 2
  CHECK_THAT(found->words, Catch::Contains("zero bubble ") && Catch::Contains("one_f_one_b: "));
  // As much as three micro-batches of the first stage need.
  const ChunkMemory m = memory_of(b, 0);
  const auto little =
      zero_bubble(b, b.times, m.total() - static_cast<double>(m.stashes - 3) * m.stash);
  REQUIRE(little);
  CHECK(held(little->schedule) == 3);
  CHECK(held(found->schedule) > 3);
  const auto none = zero_bubble(b, b.times, 1);
  REQUIRE_FALSE(none);
  CHECK(none.error().message ==
        "--memory: stage 0 has no room for a micro-batch between its forward and its weight "
        "gradient");
  const Blueprint several = blueprint(2, {"pipeline.schedule=zb_v", "pipeline.micro_batches=8"});
  CHECK_FALSE(zero_bubble(several, several.times, 0));
}

TEST_CASE("clipping is global in flushed schedules and by shard in others", "[apps]") {
  CHECK_THAT(describe(blueprint(2, {})), test::says("clipping   none"));
  CHECK_THAT(describe(blueprint(2, {"optimizer.clip_norm=1"})),
             test::says("by each shard for itself"));
  CHECK_THAT(describe(blueprint(2, {"optimizer.clip_norm=1", "pipeline.schedule=gpipe"})),
             test::says("over all parameters"));
  // A codec's own bound is R^(1/2) times what is set; the lesser of the two counts.
  const std::vector<std::string> dgc{"replicas.count=4",
                                     "replicas.exchange=synchronous",
                                     "optimizer.rule=sgd",
                                     "replicas.codec.up.dgc.clip_norm=0.5"};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> set = dgc;
    set.insert(set.end(), more.begin(), more.end());
    return describe(blueprint(2, set));
  };
  CHECK_THAT(with({"pipeline.schedule=gpipe"}),
             test::says("clipping   to norm 1 over all parameters"));
  CHECK_THAT(with({"pipeline.weights=stash"}),
             test::says("clipping   to norm 1 by each shard for itself"));
  CHECK_THAT(with({"pipeline.schedule=gpipe", "optimizer.clip_norm=0.75"}),
             test::says("clipping   to norm 0.75 over all parameters"));
  CHECK_THAT(with({"pipeline.schedule=gpipe", "optimizer.clip_norm=2"}),
             test::says("clipping   to norm 1 over all parameters"));
}

TEST_CASE("a plan tells the warm-up that a rule brings", "[apps]") {
  const std::vector<std::string> dana{
      "replicas.count=4", "replicas.rule=dana_zero", "pipeline.weights=stash"};
  CHECK_THAT(describe(blueprint(1, dana)), test::says("updates of warm-up from 0.25 of the rate"));
  for (const char* without : {"replicas.rate_factor=1", "replicas.rule=multi"}) {
    std::vector<std::string> set = dana;
    set.emplace_back(without);
    CHECK_THAT(describe(blueprint(1, set)), !test::says("warm-up"));
  }
}

TEST_CASE("a run that needs more memory than there is, is foreseen", "[apps]") {
  CHECK(memory_warning(blueprint(2, {})).empty());
  const Blueprint large =
      blueprint(2,
                {"model.mlp.hidden=[65536,65536,65536,65536,65536,65536,65536,65536]",
                 "replicas.count=64",
                 "replicas.exchange=averaging"});
  CHECK_THAT(memory_warning(large), test::says("of memory, and the run needs at least"));
  CHECK_THAT(describe(large), test::says("warning    cpu has"));
  CHECK_THAT(describe_briefly(large), test::says("warning    cpu has"));
}

TEST_CASE("a link that nobody waits for and that is slow is told of beforehand", "[apps]") {
  const std::vector<std::string> halos{"replicas.count=4",
                                       "replicas.exchange=halos",
                                       "clock.forward.seconds=[1]",
                                       "clock.input_gradient.seconds=[1]",
                                       "clock.weight_gradient.seconds=[1]"};
  const std::vector<std::string> decoupled{"replicas.count=4",
                                           "replicas.exchange=diloco",
                                           "replicas.exchange.diloco.mode=decoupled",
                                           "clock.forward.seconds=[1]",
                                           "clock.input_gradient.seconds=[1]",
                                           "clock.weight_gradient.seconds=[1]"};
  const auto told = [](std::vector<std::string> set, const std::vector<std::string>& more) {
    set.insert(set.end(), more.begin(), more.end());
    return describe_briefly(blueprint(1, set));
  };
  CHECK_THAT(told(halos, {}), !test::says("warning"));
  CHECK_THAT(told(halos, {"clock.between_servers.seconds=[2900]"}), !test::says("warning"));
  CHECK_THAT(told(halos, {"clock.exchange.seconds=[1e6]"}),
             !test::says("warning"));  // it is waited for
  const std::string slow = told(halos, {"clock.between_servers.seconds=[30,6000]"});
  CHECK_THAT(slow, test::says("between a group's server and the global one takes"));
  CHECK_THAT(slow, test::says("as long as 2.00k mini-batches"));
  CHECK_THAT(told(halos, {"clock.bandwidth_between_servers=0.01"}), test::says("warning"));
  CHECK_THAT(
      told(halos, {"clock.between_servers.seconds=[4000]", "clock.workers.slowness=[1,1,1,0.25]"}),
      test::says("as long as 5.33k mini-batches"));
  CHECK_THAT(told(decoupled, {"clock.exchange.seconds=[2900]"}), !test::says("warning"));
  CHECK_THAT(told(decoupled, {"clock.exchange.seconds=[6000]"}),
             test::says("between a replica and a server takes"));
  CHECK_THAT(told(decoupled,
                  {"replicas.exchange.diloco.mode=asynchronous", "clock.exchange.seconds=[6000]"}),
             !test::says("warning"));
  CHECK_THAT(told(halos,
                  {"clock.between_servers.seconds=[1]",
                   "clock.forward.seconds=[0]",
                   "clock.input_gradient.seconds=[0]",
                   "clock.weight_gradient.seconds=[0]"}),
             test::says("while a mini-batch takes no time"));
}

TEST_CASE("what a run cannot learn by is warned of", "[apps]") {
  const std::vector<std::string> diloco{
      "replicas.count=2", "replicas.exchange=diloco", "stop.epochs=0"};
  const auto with = [](std::vector<std::string> set, const std::string& more) {
    set.push_back(more);
    return set;
  };
  CHECK_THAT(warnings(blueprint(1, with(diloco, "stop.updates=12"))),
             test::says("learnt after 50 mini-batches, and the run has 12"));
  CHECK(warnings(blueprint(1, with(diloco, "stop.updates=50"))).empty());
  CHECK_THAT(
      warnings(blueprint(1, with(with(diloco, "stop.updates=12"), "replicas.exchange=averaging"))),
      test::says("learnt after 16 mini-batches, and the run has 12"));

  const auto norm = [](int micro_batches) {
    auto experiment = parse_experiment(
        "data { batch_size: 4 glyphs { limit: 100 test_limit: 10 } } model { layers { layer { "
        "dense { "
        "outputs: 8 } } layer { batch_norm {} } layer { dense {} } } } stop { epochs: 1 }",
        "text");
    REQUIRE(experiment);
    REQUIRE(set_value(*experiment, concat("pipeline.micro_batches=", micro_batches)));
    REQUIRE(resolve(*experiment));
    auto made = make_blueprint(*experiment);
    REQUIRE(made);
    return warnings(*made);
  };
  CHECK_THAT(norm(4), test::says("the batch norm 1 sees one row"));
  CHECK(norm(2).empty());

  struct Counter final : PlainLayer {  // keeps something else
    using PlainLayer::PlainLayer;

    std::vector<ParameterSpec> buffers() const override {
      return {{.name = "1.count", .shape = {1}, .initial = Initial::zero}};
    }

    Shape output_shape() const override { return {8}; }

    std::int64_t saved_bytes() const override { return 0; }

    Tensor transform(
        const Pass&, Parameters, std::span<Tensor>, const Tensor& x, Saved&) const override {
      return x;
    }

    Tensor transform_gradient(const Pass&, Parameters, Saved&, Tensor dy, bool) const override {
      return dy;
    }

    void weight_gradient(Stream&, const Saved&, std::span<const Gradient>) const override {}
  };

  Blueprint counts = blueprint(1, {});
  counts.experiment->mutable_data()->set_batch_size(1);
  counts.network.layers[0] = std::make_shared<Counter>("counter");
  CHECK(one_row_doubt(counts).empty());
}

TEST_CASE("a plan asks a layer as often in a long pipe as in a short one", "[apps]") {
  struct Asked final : PlainLayer {
    Asked(std::shared_ptr<const Layer> layer, std::int64_t& count)
        : PlainLayer(layer->name()),
          plain(std::dynamic_pointer_cast<const PlainLayer>(layer)),
          times(count) {}

    std::vector<ParameterSpec> parameters() const override { return ++times, plain->parameters(); }

    Flops flops() const override { return ++times, plain->flops(); }

    Shape output_shape() const override { return ++times, plain->output_shape(); }

    std::int64_t saved_bytes() const override { return ++times, plain->saved_bytes(); }

    Tensor transform(const Pass& pass,
                     Parameters w,
                     std::span<Tensor> buffers,
                     const Tensor& x,
                     Saved& saved) const override {
      return plain->transform(pass, w, buffers, x, saved);
    }

    Tensor transform_gradient(
        const Pass& pass, Parameters w, Saved& saved, Tensor dy, bool want_dx) const override {
      return plain->transform_gradient(pass, w, saved, std::move(dy), want_dx);
    }

    std::shared_ptr<const PlainLayer> plain;
    std::int64_t& times;
  };

  const auto asked = [](int stages) {
    std::string layers = "[8";
    for (int i = 2; i < stages; ++i) {
      layers += ",8";
    }
    Blueprint b = blueprint(stages, {"model.mlp.hidden=" + layers + "]"});
    std::int64_t times = 0;
    for (auto& layer : b.network.layers) {
      layer = std::make_shared<Asked>(layer, times);
    }
    REQUIRE(schedule_blueprint(b));
    CHECK(describe(b).size() > 1000);
    CHECK(check_memory(b));
    return times;
  };
  const std::int64_t some = asked(32) - asked(16);  // those at the ends are asked less
  CHECK(some > 16);
  CHECK(asked(64) - asked(32) == 2 * some);
}

TEST_CASE("a plan is quick for a long pipe", "[apps]") {
  std::string layers = "[";
  for (int i = 0; i < 63; ++i) {
    layers += i == 0 ? "8" : ",8";
  }
  CHECK(describe(blueprint(64, {"model.mlp.hidden=" + layers + "]"})).size() > 1000);
}

TEST_CASE("the layer table has each layer's output, parameters, work and stage, and their sums",
          "[apps]") {
  const Blueprint b = blueprint(2, {});
  const std::string text = layer_table(b);
  CHECK_THAT(text, test::says("input         (16)"));
  CHECK_THAT(
      text, test::says("dense1        (16)           272         1.02k  stage-0"));  // 16 x 16 + 16
  CHECK_THAT(text, test::says("dense8        (16)           272         1.54k  stage-1"));
  CHECK_THAT(text, test::says("all 8 layers               2,176"));
  CHECK(std::count(text.begin(), text.end(), '\n') == 11);
  CHECK_THAT(text, test::says("stage-0..1"));
  CHECK_THAT(describe(b), test::says(text));
}

TEST_CASE("blocks of a deep network are told once and counted", "[apps]") {
  const std::vector<std::string> gpt{
      "data.text.path=" + test::text_file(), "data.text.context=8", "data.batch_size=2"};
  const auto table_of = [&](int layers, const std::string& more) {
    std::vector<std::string> all = gpt;
    all.insert(all.end(),
               {"model.gpt.width=16",
                "model.gpt.heads=2",
                "model.gpt.layers=" + std::to_string(layers),
                more});
    auto experiment = load_experiment("shakespeare-gpt", all);
    REQUIRE(experiment);
    auto made = make_blueprint(*experiment);
    if (!made) {
      FAIL(made.error().message);
    }
    return std::pair(layer_table(*made), made->network);
  };
  const auto [few, small] = table_of(2, "pipeline.stages=1");
  CHECK_THAT(few, !test::says("more times"));
  const auto [deep, network] = table_of(60, "pipeline.stages=4");
  CHECK(network.layers.size() > 500);
  CHECK(std::count(deep.begin(), deep.end(), '\n') < 30);
  CHECK_THAT(deep, test::says("layers above 59 more times, to transformer.h.59."));
  CHECK_THAT(deep, test::says("stage-0..3"));
  CHECK_THAT(deep, test::says(grouped(network.parameters())));
}

TEST_CASE("plan says what codecs send and keep", "[apps]") {
  const std::vector<std::string> replicas{
      "replicas.count=2", "replicas.exchange=synchronous", "pipeline.weights=stash"};
  const auto text = [&](const std::string& set, const std::string& rule = "momentum") {
    std::vector<std::string> all = replicas;
    all.insert(all.end(), {set, "optimizer.rule=" + rule});
    return codecs_text(blueprint(1, all));
  };
  CHECK(text("replicas.codec.up=none") == "");
  CHECK(text("replicas.codec.up=fp16") ==
        "codec      up fp16; bytes of a message of n numbers: 2 n; each replica keeps a residual, "
        "1 copy of the weights\n");
  CHECK(text("replicas.codec.up=dgc", "sgd").find("a residual and the codec's memory, 2 copies") !=
        std::string::npos);
  CHECK(text("replicas.codec.up.sign_vote.momentum=0", "sgd").find("keeps") == std::string::npos);
  CHECK(text("replicas.codec.up=sign_vote", "sgd").find("the codec's memory, 1 copy of") !=
        std::string::npos);
  CHECK(text("replicas.codec.up=terngrad").find("residual") == std::string::npos);
  CHECK(text("replicas.codec.down=top_k").find("what replicas have, one copy more") !=
        std::string::npos);
  CHECK(text("replicas.codec.down=bf16").find("copy") == std::string::npos);
  const std::string groups = codecs_text(blueprint(1,
                                                   {"replicas.count=4",
                                                    "replicas.exchange=halos",
                                                    "replicas.codec.up=int8_block",
                                                    "replicas.codec.down=one_bit"}));
  CHECK_THAT(groups, test::says("each group's server keeps a residual, 1 copy of the weights"));
  CHECK_THAT(
      groups,
      test::says("what the groups' servers have of their weights, and so do these, one copy"));
}

TEST_CASE("DiLoCo's presets send E3M0, and forget what that leaves out", "[apps]") {
  for (const char* preset : {"streaming-diloco", "decoupled-diloco"}) {
    INFO(preset);
    const auto experiment = load_experiment(preset, {"data=teacher"});
    REQUIRE(experiment);
    const auto made = make_blueprint(*experiment);
    REQUIRE(made);
    CHECK_THAT(codecs_text(*made), test::says("codec      up e3m0") && !test::says("residual"));
  }
}

TEST_CASE("plan says what replicas without servers send one another", "[apps]") {
  const auto sends = [](const std::string& set) {
    const std::string text =
        describe(blueprint(1, {"replicas.count=16", "replicas.exchange" + set}));
    const auto at = text.find("each replica sends at most ");
    return at == text.npos ? "" : text.substr(at + 27, text.find(" (", at) - at - 27);
  };
  CHECK(sends(".gossip.graph=ring") == "2 times its weights");
  CHECK(sends(".gossip.graph=exponential") == "4 times its weights");
  CHECK(sends(".gossip.graph=complete") == "15 times its weights");
  CHECK(sends(".gossip.period=4") == "0.5 times its weights");
  CHECK(sends("=sgp") == "1 times its weights");
  CHECK(sends("=ad_psgd") == "1 times its weights");
  CHECK(sends("=strom") == "15 times its weights");
  CHECK(sends("=averaging").empty());
}

TEST_CASE("data that is not here is planned by its sizes, and by no more than there is of it",
          "[apps]") {
  const auto phases_with = [](const std::string& limit) {
    const auto e = load_experiment("mnist-lenet5",
                                   {"data.mnist.path=/nonexistent", "data.mnist.limit=" + limit});
    REQUIRE(e);
    return make_phases(*e, {}, true);
  };
  const auto some = phases_with("1000");
  REQUIRE(some);
  CHECK(some->front().blueprint.data->size(Split::train) == 1000);
  CHECK_THAT(some->front().missing, test::says("/nonexistent"));
  const auto too_many = phases_with("60001");
  REQUIRE_FALSE(too_many);
  CHECK(too_many.error().kind == ErrorKind::data);
  CHECK(too_many.error().message ==
        "data.mnist.limit is 60001, but there are 60000 training samples");
}

}  // namespace plan_test
