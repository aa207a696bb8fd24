// What feedback alignment puts fixed random numbers in the place of: the weights by which layers multiply, and nothing
// else that a backward reads. The trajectory is in literal_modules_test.
#include "kernels/random.hpp"
#include "messages/sections.hpp"
#include "runtime/schemes/decoupled/decoupled.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/harness.hpp"
#include "tests/support/text_file.hpp"

#include <set>

namespace feedback_alignment_test {

using namespace troupe;
using namespace troupe::test;

namespace {

/// Names of the parameters of all modules that a backward reads as they are, and of those it reads others of.
struct Names {
  std::set<std::string> own{};
  std::set<std::string> fixed{};
};

Names read_by_backwards(const std::string& text, const Options& set) {
  const BoxedExperiment e = experiment(text, joined({"decoupled=feedback_alignment"}, set));
  const auto b = make_blueprint(e);
  INFO((b ? "" : b.error().message));
  REQUIRE(b);
  Stream stream(Device{});
  Names names;
  for (std::size_t c = 0; c < b->chunks.size(); ++c) {
    const Chunk& chunk = *b->chunks[c];
    Weights forward;
    for (const std::int64_t size : chunk.layout().slice_sizes) {
      forward.push_back({.values = stream.allocate({size})});
      fill(stream, forward.back().values, 0.25);  // what no parameter starts with
    }
    const std::vector<Tensor> feedback = chunk.initial_slices(stream, mix(sections::seed(e) + 1));
    const Weights backward = module_signal(*b, c, stream)->backward(forward);
    REQUIRE(backward.size() == forward.size());
    for (const ParameterLayout::Entry& entry : chunk.layout().entries) {
      const auto values = [&](const Tensor& x) {
        return to_host(x.view(entry.offset, entry.spec.shape));
      };
      const std::vector<double> found = values(backward[entry.slice].values);
      const bool own = found == values(forward[entry.slice].values);
      INFO(entry.spec.name);
      CHECK((own || found == values(feedback[entry.slice])));
      (own ? names.own : names.fixed).insert(entry.spec.name);
    }
  }
  return names;
}

bool says(const std::string& name, std::string_view part) {
  return name.find(part) != std::string::npos;
}

const std::string kStop = " optimizer { learning_rate: 0.01 } stop { updates: 2 } ";

const std::string kText = "data { batch_size: 8 text { context: 8 } } " + kStop;

}  // namespace

TEST_CASE("feedback takes the place of matrices and filters, not of norms", "[system]") {
  const std::string images =
      "model { layers { layer { convolution { outputs: 8 } } layer { group_norm { groups: 2 } } "
      "layer { activation {} } layer { convolution { outputs: 4 } } layer { batch_norm {} } "
      "layer { dense {} } } } data { glyphs { limit: 100 } batch_size: 10 } pipeline { stages: 2 "
      "cut: [3] } " +
      kStop;
  const Names names = read_by_backwards(images, {});
  CHECK(names.fixed == std::set<std::string>{"0.weight", "3.weight", "5.weight"});
  CHECK(names.own.size() == 3 + 2 * 2);  // their biases, and factors and shifts of the norms
  // In slices of any number, whose bounds are between parameters.
  const Names divided = read_by_backwards(images, {"replicas.count=2", "replicas.shards=2"});
  CHECK(divided.fixed == names.fixed);
  const Names all = read_by_backwards(images, {"decoupled.feedback_alignment.replaces=parameters"});
  CHECK(all.own.empty());
}

TEST_CASE("of a transformer the projections have feedback, embeddings and norms none", "[system]") {
  const Names names = read_by_backwards(kText,
                                        {"data.text.path=" + text_file(),
                                         "model=gpt",
                                         "model.gpt.layers=2",
                                         "model.gpt.width=8",
                                         "model.gpt.heads=2",
                                         "model.gpt.tied=false",
                                         "pipeline.stages=2",
                                         "pipeline.cut=[12]"});
  CHECK(names.fixed.size() ==
        2 * 4 + 1);  // of a block qkv, its output, and two of its MLP; and the head
  for (const std::string& name : names.own) {
    CHECK((says(name, "ln_") || says(name, "wte") || says(name, "wpe") || says(name, "bias")));
  }
}

TEST_CASE("of an LSTM both weights have feedback, its map of truncated time none", "[system]") {
  const Names names = read_by_backwards(kText,
                                        {"data.text.path=" + text_file(),
                                         "data.text.contiguous=true",
                                         "model=lstm",
                                         "model.lstm.layers=2",
                                         "model.lstm.width=8",
                                         "model.lstm.carry=true",
                                         "model.lstm.future=1",
                                         "pipeline.stages=2",
                                         "pipeline.cut=[2]"});
  CHECK(names.fixed.size() == 2 * 2 + 1);
  CHECK(names.own.contains("rnn.0.future.weight"));
  CHECK(names.fixed.contains("rnn.0.weight_hh_l0"));
}

}  // namespace feedback_alignment_test
