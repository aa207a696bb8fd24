// A checkpoint whose sums are right: the file of the state and that of its tensors, and then what machines read of it.
#include "apps/run/run.hpp"
#include "apps/topologies/topology.hpp"
#include "experiment.pb.h"
#include "messages/experiment.hpp"
#include "runtime/checkpoint/store.hpp"
#include "runtime/record/sha256.hpp"
#include "runtime/system/snapshot.hpp"
#include "tests/fuzz/fuzz.hpp"

#include <stdexcept>

namespace troupe::fuzz {
namespace {

constexpr const char* kState = "state.pb";
constexpr const char* kTensors = "state.safetensors";

/// Two stages behind a server each, so that all kinds of machines are there.
const Blueprint& blueprint() {
  static const Blueprint one = [] {
    auto experiment = parse_experiment(
        "model { mlp { hidden: 3 } } replicas { count: 2 } stop { updates: 6 }"
        "data { teacher { inputs: 2 outputs: 2 hidden: 2 train: 16 test: 4 } batch_size: 4 }"
        "pipeline { stages: 2 schedule { async_one_f_one_b {} } weights { stash {} } }"
        "record { checkpoint { every: 2 } }",
        "here");
    if (!experiment || !resolve(*experiment)) {
      throw std::runtime_error("the experiment is wrong");
    }
    auto made = make_blueprint(*experiment);
    if (!made) {
      throw std::runtime_error(made.error().message);
    }
    return *std::move(made);
  }();
  return one;
}

}  // namespace

std::vector<std::string> seeds() {
  std::vector<Checkpoint> kept;
  RunOptions options;
  options.virtual_clock = true;
  options.kept = &kept;
  if (const auto result = run_experiment(blueprint(), options); !result || kept.empty()) {
    throw std::runtime_error("no checkpoint was made");
  }
  std::vector<std::string> all;
  for (const Checkpoint& checkpoint : kept) {
    const auto written = write_checkpoint(
        files().folder() / "made", checkpoint, 9, [](const auto&) { return Result<void>(); });
    all.push_back(joined({Files::read(*written / kState), Files::read(*written / kTensors)}));
  }
  return all;
}

}  // namespace troupe::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troupe;
  const std::vector<std::string> parts = fuzz::parted(fuzz::text_of(data, size));
  if (parts.size() != 2) {
    return 0;
  }
  std::filesystem::create_directories(fuzz::files().folder() / "step-2");
  std::string sums;
  for (std::size_t i = 0; i < 2; ++i) {
    const std::string name = i == 0 ? fuzz::kState : fuzz::kTensors;
    fuzz::files().write("step-2/" + name, parts[i]);
    Sha256 sum;
    sum.update(parts[i].data(), parts[i].size());
    sums += sum.finish() + "  " + name + "\n";
  }
  fuzz::files().write("step-2/SHA256SUMS", sums);
  auto checkpoint = read_checkpoint(fuzz::files().folder() / "step-2");
  if (!checkpoint) {
    return 0;
  }
  try {
    RunOptions options;
    options.virtual_clock = true;
    options.resume = &*checkpoint;
    options.interrupts = [] {
      return 2;
    };  // it has been read then
    fuzz::tried(run_experiment(fuzz::blueprint(), options));
  } catch (const ContractError&) {  // of shapes that are none
  }
  return 0;
}
