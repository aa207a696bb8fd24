// A network that is cut in width trains as one that is not: up to the rounding of sums that are made of parts, in the
// same bits whenever it is run, with the delays and views of the pipeline that it stands for.
#include "apps/plan/traffic.hpp"
#include "apps/topologies/placement.hpp"
#include "messages/messages.hpp"
#include "messages/pipeline.hpp"
#include "runtime/checkpoint/weights.hpp"
#include "runtime/model/layers/junction.hpp"
#include "runtime/model/registry.hpp"
#include "tests/runtime/data/files.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/harness.hpp"
#include "tests/support/text_file.hpp"

#include <cmath>
#include <map>
#include <set>
#include <vector>

namespace width_test {

using namespace troupe;
using namespace troupe::test;

namespace {

/// Four heads, dropout and a tied table.
std::string gpt() {
  return "data { text { path: '" + text_file() + "' context: 6 } batch_size: 12 } " +
         "model { gpt { layers: 2 width: 16 heads: 4 dropout: 0.1 } label_smoothing: 0.1 } "
         "optimizer { learning_rate: 0.05 } record { evaluate: false order: false }";
}

/// Four experts, of which a position goes through two, or fewer where one is full.
std::string experts() {
  return "data { text { path: '" + text_file() + "' context: 6 } batch_size: 12 } " +
         "model { llama { layers: 2 width: 16 heads: 4 kv_heads: 4 hidden: 12 experts: 4 "
         "capacity: 1.5 balance: 0.5 } } "
         "optimizer { learning_rate: 0.05 } record { evaluate: false order: false }";
}

/// Convolutions, every normalisation, skip connections, pools and dropout.
std::string images() {
  return "model { layers { "
         "layer { convolution { outputs: 8 stride: 3 } } layer { batch_norm {} } "
         "layer { activation { kind: tanh } } layer { fork { name: 'a' } } "
         "layer { convolution { outputs: 8 activation: tanh } } "
         "layer { group_norm { groups: 4 } } layer { join { name: 'a' } } "
         "layer { dropout { rate: 0.25 } } layer { max_pool {} } "
         "layer { average_pool { kernel: 5 } } layer { dense { outputs: 8 } } "
         "layer { fork { name: 'a' } } layer { dense { outputs: 8 activation: gelu } } "
         "layer { layer_norm {} } layer { join { name: 'a' } } layer { dense {} } } } "
         "data { glyphs { limit: 240 test_limit: 67 } batch_size: 12 } "
         "optimizer { learning_rate: 0.02 } record { evaluate: false order: false }";
}

/// A U-Net's way down and up, with what it had beside what it has: channels that the parts share, which a convolution, a batch
/// norm and a dense layer have next; and an inception block whose ways have a channel too many or too few to be shared.
std::string joined_images() {
  return "model { layers { "
         "layer { convolution { outputs: 8 stride: 7 activation: tanh } } layer { fork { name: 'a' "
         "} } layer { average_pool {} } layer { convolution { outputs: 4 activation: tanh } } "
         "layer { upsample {} } layer { concatenate { name: 'a' } } layer { batch_norm {} } "
         "layer { fork { name: 'b' } } layer { convolution { outputs: 4 activation: tanh } } "
         "layer { concatenate { name: 'b' } } layer { convolution { outputs: 4 } } "
         "layer { fork { name: 'c' } } layer { fork { name: 'd' } } "
         "layer { convolution { outputs: 3 kernel: 1 padding: 0 activation: gelu_erf } } "
         "layer { swap { name: 'd' } } layer { convolution { outputs: 4 activation: tanh } } "
         "layer { concatenate { name: 'd' } } layer { concatenate { name: 'c' } } "
         "layer { dense { outputs: 8 } } layer { fork { name: 'e' } } "
         "layer { dense { outputs: 4 activation: tanh } } layer { concatenate { name: 'e' } } "
         "layer { dense { outputs: 8 } } layer { dense {} } } } "
         "data { glyphs { limit: 240 test_limit: 67 } batch_size: 12 } "
         "optimizer { learning_rate: 0.02 } record { evaluate: false order: false }";
}

Outcome train(const std::string& task, const Options& options, bool threads = false) {
  Outcome outcome =
      run(experiment(task, joined({"stop.updates=24"}, options)), {.threads = threads});
  INFO(outcome.ending.cause);
  REQUIRE(outcome.ending.exit_code == 0);
  REQUIRE_FALSE(outcome.weights.empty());
  return outcome;
}

std::string width(int T) {
  return "pipeline.width=" + std::to_string(T);
}

}  // namespace

TEST_CASE("two and four parts train as one", "[system]") {
  const std::string mlp = tiny_task("24,20,16,16", "tanh");
  for (const std::string& task : {mlp, gpt(), experts(), images(), joined_images()}) {
    const Outcome one = train(task, {});
    for (const int T : {2, 4}) {
      INFO(task << " T " << T);
      const Outcome cut = train(task, {width(T)});
      CHECK(relative_distance(cut.weights, one.weights) < 1e-5);
      CHECK_FALSE(same(cut.weights, one.weights));  // the sums are made of parts
      CHECK(std::abs(cut.mean_loss(0, 24) - one.mean_loss(0, 24)) < 1e-5 * one.mean_loss(0, 24));
      CHECK(same(train(task, {width(T)}, true).weights, cut.weights));  // threads
    }
  }
}

TEST_CASE("a micro-batch without even shares is cut all the same", "[system]") {
  const std::string mlp = tiny_task("24,20,16,16", "tanh");
  const Options uneven{"data.batch_size=7"};
  CHECK(relative_distance(train(mlp, joined(uneven, {width(4)})).weights,
                          train(mlp, uneven).weights) < 1e-5);
}

TEST_CASE("schedules and depth change nothing of a cut in width", "[system]") {
  const Options parts{width(2), "pipeline.micro_batches=4"};
  const Outcome one = train(gpt(), parts);
  for (const std::string schedule : {"gpipe", "one_f_one_b", "interleaved", "zb_h1"}) {
    INFO(schedule);
    const Options deep{"pipeline.stages=2", "pipeline.schedule=" + schedule};
    CHECK(same(train(gpt(), joined(parts, deep)).weights, one.weights));
  }
  CHECK(same(train(gpt(), joined(parts, {"pipeline.activations=recompute"})).weights, one.weights));
  CHECK(same(train(gpt(), joined(parts, {"placement.optimizer=own"})).weights, one.weights));
}

TEST_CASE("what lies side by side is cut anywhere, in depth as well as in width", "[system]") {
  const Outcome one = train(joined_images(), {width(2), "pipeline.micro_batches=2"});
  for (const int stages : {2, 3, 5, 11}) {
    INFO(stages);
    CHECK(same(
        train(joined_images(),
              {width(2), "pipeline.micro_batches=2", "pipeline.stages=" + std::to_string(stages)})
            .weights,
        one.weights));
  }
}

TEST_CASE("views are those of the pipeline that is not cut in width", "[system]") {
  const std::string mlp = tiny_task("24,20,16,16", "tanh");
  for (const std::string policy :
       {"latest", "stash", "vertical_sync", "spectrain", "spectrain_paper", "xpipe", "pipemare"}) {
    INFO(policy);
    const Options stale{
        "pipeline.stages=3", "pipeline.schedule=async_one_f_one_b", "pipeline.weights=" + policy};
    const Outcome one = train(mlp, stale);
    const Outcome cut = train(mlp, joined(stale, {width(2)}));
    CHECK(relative_distance(cut.weights, one.weights) < 1e-4);
    std::map<std::int64_t, std::int64_t> of_one;
    std::map<std::int64_t, std::int64_t> of_cut;
    const auto count = [](const Outcome& outcome, std::map<std::int64_t, std::int64_t>& to) {
      for (const AppliedRecord& record : outcome.applied) {
        for (const Read& read : record.reads) {
          ++to[record.applied_to - read.forward.step];
        }
      }
    };
    count(one, of_one);
    count(cut, of_cut);
    REQUIRE(of_one.size() == of_cut.size());
    CHECK(
        std::equal(of_one.begin(), of_one.end(), of_cut.begin(), [](const auto& a, const auto& b) {
          return a.first == b.first;
        }));
  }
}

// Megatron-LM's count (Korthikanti et al. 2022, section 4.2): at each junction a part sends 4 (T - 1) / T bytes a row and
// column. A GPT of L blocks has 4 L of them, one behind the embedding and one before the head; the loss has two numbers a row
// for each part.
TEST_CASE("what parts send each other is what junctions cost", "[system]") {
  const std::int64_t B = 12;
  const std::int64_t S = 6;
  const std::int64_t W = 16;
  const std::int64_t L = 2;
  for (const std::int64_t T : {2, 4}) {
    std::int64_t forwards = 0;
    std::int64_t backwards = 0;
    // A piece "x<t" or "x>t" is of part t; what goes to that part itself is not sent.
    const auto count = [T](const Stamp& to, const Bundle& bundle) {
      std::int64_t bytes = 0;
      for (const NamedTensor& entry : bundle) {
        const bool piece = entry.name.starts_with("x<") || entry.name.starts_with("x>");
        const bool sent = piece && std::stoll(entry.name.substr(2)) != to.chunk % T;
        bytes += sent ? 4 * entry.tensor.elements() : 0;
      }
      return bytes;
    };
    const auto hear = [&](ActorId, const Message& message) {
      if (const auto* forward = get_if<Activation>(&message)) {
        forwards += count(forward->stamp, forward->bundle);
      } else if (const auto* backward = get_if<ErrorSignal>(&message)) {
        backwards += count(backward->stamp, backward->bundle);
      }
      return false;
    };
    const Outcome done =
        run(experiment(gpt(), {width(static_cast<int>(T)), "stop.updates=1"}), {.lose = hear});
    REQUIRE(done.ending.exit_code == 0);
    const std::int64_t junctions = (4 * L + 2) * 4 * (T - 1) * B * S * W;  // of all parts
    const std::int64_t statistics = T * (T - 1) * B * S * 2 * 4;
    const auto planned =
        make_blueprint(experiment(gpt(), {width(static_cast<int>(T)), "stop.updates=1"}));
    REQUIRE(planned);
    std::int64_t foreseen = 0;
    for (const auto& chunk : planned->chunks) {
      foreseen += B * bytes_ahead(*planned, chunk->index());
    }
    CHECK(foreseen == junctions + statistics);
    INFO("T " << T);
    CHECK(forwards == junctions + statistics);
    CHECK(backwards == junctions + statistics);
  }
}

// 0.02 is below the norm of nearly every gradient of this task, so that what is clipped by another norm learns something else.
TEST_CASE("a chunk's gradient is clipped by the norm of all its parts, also where nobody flushes",
          "[system]") {
  const std::string mlp = tiny_task("24,20,16,16", "tanh");
  const Options clips{"optimizer.clip_norm=0.02", "optimizer.rule=sgd"};
  const Options stale{"pipeline.stages=2", "pipeline.schedule=async_one_f_one_b"};
  for (const Options& how :
       {Options{},
        stale,
        joined(stale, {"pipeline.weights=stash", "pipeline.micro_batches=2"}),
        joined(stale, {"replicas.count=2", "replicas.exchange=parameter_server"}),
        joined(stale, {"replicas.count=2", "replicas.exchange=diloco"})}) {
    const Options settings = joined(clips, how);
    const Outcome one = train(mlp, settings);
    const Options unclipped = joined(how, {"optimizer.rule=sgd"});
    CHECK(relative_distance(one.weights, train(mlp, unclipped).weights) > 1e-3);
    for (const int T : {2, 4}) {
      INFO("T " << T << " " << how.size());
      const Outcome cut = train(mlp, joined(settings, {width(T)}));
      CHECK(relative_distance(cut.weights, one.weights) < 1e-5);
      if (how.empty() || how.back() != "replicas.exchange=parameter_server") {  // arrival decides
        CHECK(same(train(mlp, joined(settings, {width(T)}), true).weights, cut.weights));
      }
    }
  }
}

TEST_CASE("evaluations are those of the whole network", "[system]") {
  const Options evaluated{"record.evaluate=true", "record.evaluate_every=8"};
  const Outcome one = train(images(), evaluated);
  const Outcome cut = train(images(), joined(evaluated, {width(4)}));
  REQUIRE(cut.evaluations.size() == one.evaluations.size());
  for (std::size_t i = 0; i < one.evaluations.size(); ++i) {
    CHECK(cut.evaluations[i].samples == one.evaluations[i].samples);
    CHECK(std::abs(cut.evaluations[i].loss - one.evaluations[i].loss) < 1e-5);
  }
}

TEST_CASE("the name of a piece says of which part it is, or for which", "[system]") {
  for (const std::int64_t part : {0, 9, 10, 31}) {
    const auto to = as_piece(piece_for(part)), of = as_piece(piece_from(part));
    REQUIRE((to && of));
    CHECK((to->part == part && to->is_for));
    CHECK((of->part == part && !of->is_for));
  }
  // A peer may send any names.
  for (const char* const name :
       {"", "x", "x>", "x<", "x>03", "x>3 ", "x>+3", "y>3", "xx3", "x>99999999999999999999"}) {
    CHECK_FALSE(as_piece(name));
  }
}

// The parts could share the classes of its head, but what they share then is cross-entropy.
TEST_CASE("a loss of one's own is that of all parts, also behind a head of tokens", "[system]") {
  const auto task = [](const TemporaryFolder& folder, int letters, const std::string& model) {
    std::string text;
    for (int i = 0; i < 3000; ++i) {
      text += static_cast<char>('a' + (i * i + i / 7) % letters);
    }
    folder.write("text", text);
    return "data { text { path: '" + (folder / "text") +
           "' context: 6 } batch_size: 12 } model { " + model +
           " } optimizer { learning_rate: 0.0002 } record { evaluate: false order: false }";
  };
  const auto half_square = [](Stream&, const Tensor& y, const Tensor&, const Tensor& gradient) {
    Judged judged;
    const auto samples = static_cast<double>(y.shape()[0]);
    for (std::size_t i = 0; i < y.span<float>().size(); ++i) {
      const float value = y.span<float>()[i];
      judged.mean += 0.5 * static_cast<double>(value) * static_cast<double>(value) / samples;
      if (gradient) {
        gradient.span<float>()[i] = value / static_cast<float>(samples);
      }
    }
    return judged;
  };
  REQUIRE(register_network(
      {.info = {.name = "gpt_of_its_own", .summary = "a GPT with another loss"},
       .build =
           [=](Network& n, const NetworkContext& c) {
             const TemporaryFolder folder;
             const auto built = make_blueprint(experiment(
                 task(folder, static_cast<int>(c.outputs), "gpt { layers: 1 width: 16 heads: 4 }"),
                 {"stop.updates=24"}));
             REQUIRE(built);
             for (const auto& layer : built->network.layers) {
               n.add(layer);
             }
             n.loss = Loss::own;
             n.own_loss = half_square;
             return Result<void>();
           },
       .tokens = true}));
  const TemporaryFolder folder;
  const std::string own = task(folder, 8, "custom { name: 'gpt_of_its_own' }");
  const Outcome one = train(own, {});
  const Outcome cut = train(own, {width(2)});
  CHECK(relative_distance(cut.weights, one.weights) < 1e-5);
  CHECK(std::abs(cut.mean_loss(0, 24) - one.mean_loss(0, 24)) < 1e-5 * one.mean_loss(0, 24));
  const auto uneven = make_blueprint(experiment(
      task(folder, 7, "custom { name: 'gpt_of_its_own' }"), {width(2), "stop.updates=24"}));
  REQUIRE_FALSE(uneven);
  CHECK_THAT(uneven.error().message, says("the network's output is not cut by 2 parts"));
}

TEST_CASE("replicas are cut in width, too", "[system]") {
  const std::string mlp = tiny_task("24,20,16,16", "tanh");
  for (const Options& replicas :
       {Options{"replicas.count=2", "replicas.exchange=synchronous"},
        Options{"replicas.count=2", "replicas.exchange=diloco"},
        Options{"replicas.count=2", "replicas.exchange=parameter_server"}}) {
    INFO(replicas[1]);
    const Outcome one = train(mlp, replicas);
    CHECK(relative_distance(train(mlp, joined(replicas, {width(2)})).weights, one.weights) < 1e-4);
  }
}

TEST_CASE("parts of a mixture have to compute alike, and other parts have not", "[system]") {
  const auto alike = [](const std::string& task) {
    const auto b = make_blueprint(experiment(task, {"stop.updates=24", width(2)}));
    INFO((b ? "" : b.error().message));
    REQUIRE(b);
    const auto placed = place(*b, 2);
    REQUIRE(placed);
    return placed->alike;
  };
  CHECK(alike(experts()) == std::vector<std::set<int>>{{0, 1}});
  CHECK(alike(gpt()).empty());
}

}  // namespace width_test
