// An experiment and what is set in it: text of the user, and between processes of the lead.
#include "messages/experiment.hpp"

#include "experiment.pb.h"
#include "tests/fuzz/fuzz.hpp"

#include <cstdlib>

namespace troupe::fuzz {

std::vector<std::string> seeds() {
  proto::Experiment plain;
  if (!resolve(plain)) {
    return {};
  }
  return {
      joined({print_experiment(plain)}),
      joined({print_experiment_json(plain), "pipeline.stages=4"}),
      joined({"model { layers { layer { dense { outputs: 3 } } } } # a comment\noptimizer { rule: "
              "adamw }",
              "model.mlp.hidden=[64, 32]",
              "pipeline.schedule.interleaved.chunks=4",
              "name=\"K\303\266ln\""}),
      joined({R"({"pipeline": {"schedule": "gpipe", "weights": {"pipemare": {"decay": 0.25}}}})"})};
}

}  // namespace troupe::fuzz

/// What is taken prints, and reads back the same.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troupe;
  const std::vector<std::string> texts = fuzz::parted(fuzz::text_of(data, size));
  auto experiment = parse_experiment(texts.empty() ? "" : texts.front(), "here");
  if (!experiment) {
    return 0;
  }
  for (std::size_t i = 1; i < texts.size(); ++i) {
    const std::string before = experiment->SerializeAsString();
    if (!set_value(*experiment, texts[i]) && experiment->SerializeAsString() != before) {
      std::abort();
    }
  }
  if (resolve(*experiment)) {
    const std::string text = print_experiment(*experiment);
    const auto again = parse_experiment(text, "print_experiment()");
    if (!again || print_experiment(*again) != text) {
      std::abort();
    }
    fuzz::sound = true;
  }
  return 0;
}
