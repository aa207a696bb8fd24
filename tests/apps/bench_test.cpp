// troupe bench: every row runs; what it says where PyTorch is missing; what it measures trains. Its figures are no test's business.
#include "apps/bench/bench.hpp"

#include "apps/bench/gpu.hpp"
#include "apps/bench/loop.hpp"
#include "apps/bench/workload.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/program.hpp"

#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

namespace bench_test {

using namespace troupe;
using namespace troupe::test;

namespace {

/// `bench peers` with a Python that is a shell script.
Said peers_with(const std::string& script) {
  const Folder folder;
  const std::string python = folder / "python";
  std::ofstream(python) << "#!/bin/sh\n" << script;
  std::filesystem::permissions(python, std::filesystem::perms::owner_all);
  return run_program({"bench", "peers", "--quick", "--python", python});
}

/// What is wrong with a table of rows, or "": in each line but the heading the second column has a number, and no word is nan
/// or inf.
std::string wrong_with(const std::string& table) {
  std::istringstream lines(table);
  std::string line;
  std::getline(lines, line);
  if (line.rfind("what ", 0) != 0) {
    return "no heading: " + line;
  }
  int rows = 0;
  while (std::getline(lines, line)) {
    ++rows;
    if (std::regex_search(line, std::regex("\\b(nan|inf)\\b"))) {
      return "not a number: " + line;
    }
    if (!std::regex_search(line, std::regex("^\\S+( \\S+)*  +(loss within )?[0-9]"))) {
      return "no number: " + line;
    }
  }
  return rows > 0 ? "" : "no row";
}

}  // namespace

TEST_CASE("the networks of the GPU's benches are the papers'", "[apps]") {
  for (const GpuBench& bench : gpu_benches()) {
    Workload workload = bench.workload;
    workload.batch = 1;
    CHECK(BareLoop(workload).parameters() == (bench.convolutions     ? 25'557'032
                                              : bench.name == "gpt2" ? 124'439'808
                                                                     : 124'730'880));
  }
}

TEST_CASE("every row of the bench that needs neither a GPU nor PyTorch runs and prints numbers",
          "[apps]") {
  for (const std::string& row : bench_names()) {
    if (row.starts_with("gpu") || row == "peers") {
      continue;
    }
    INFO(row);
    if (row == "processes") {  // the other process is its own program, which knows what a node is
      const Said said = run_program({"bench", row, "--quick"});
      CHECK(said.code == 0);
      CHECK(said.err == "measuring " + row + "\n");
      CHECK(wrong_with(said.out) == "");
      continue;
    }
    std::ostringstream out;  // not run_program, which ends what takes longer than a minute
    std::ostringstream err;
    CHECK(run_bench({.names = {row}, .quick = true}, out, err) == 0);
    CHECK(err.str() == "measuring " + row + "\n");
    CHECK(wrong_with(out.str()) == "");
  }
}

TEST_CASE("bench peers says what is missing: Python, torch, an answer", "[apps]") {
  const Said no_python = run_program({"bench", "peers", "--python", "/nowhere/python"});
  CHECK(no_python.code == 2);
  CHECK(no_python.err.find("cannot run Python as '/nowhere/python'") != std::string::npos);
  CHECK(no_python.err.find("--python PYTHON") != std::string::npos);

  const Said no_torch = peers_with("echo \"error No module named 'torch'\"\n");
  CHECK(no_torch.code == 2);
  CHECK(no_torch.err.find("has no PyTorch (No module named 'torch')") != std::string::npos);

  const Said no_answer = peers_with("echo torch 2.0\n");
  CHECK(no_answer.code == 2);
  CHECK(no_answer.err.find("PyTorch's mlp gave no answer") != std::string::npos);
}

TEST_CASE("bench peers refuses to compare networks that differ", "[apps]") {
  const Said other = peers_with("echo torch 2.0; while read line; do echo 1; done\n");
  CHECK(other.code == 5);
  CHECK(other.err.find("mlp has 1863690 parameters, PyTorch's 1") != std::string::npos);
}

TEST_CASE("bench gpu without a GPU says what is missing", "[apps]") {
  if (check_available(Device{DeviceKind::cuda, 0})) {
    return;  // then it measures
  }
  for (const std::string row : {"gpu", "gpu-stages", "gpu-peers"}) {
    const Said said = run_program({"bench", row});
    CHECK(said.code == 2);
    CHECK(said.out.empty());
    CHECK_THAT(said.err, says("troupe: bench " + row + ": "));
  }
}

TEST_CASE("the benches' networks train in one stage and in two", "[apps]") {
  for (const Workload& workload : {
           Workload{.model = "resnet { depth: 20 }", .sample = {16, 16, 3}, .batch = 6},
           Workload{.model = "gpt { layers: 2 width: 8 heads: 2 }",
           .sample = {6},
           .batch = 4,
           .classes = 11,
           .tokens = true},
       }) {
    for (const int stages : {1, 2}) {
      CHECK(seconds_per_update(blueprint_of(workload, noise(workload), stages), 5) > 0);
    }
  }
}

TEST_CASE("the benches' noise is the same samples each time", "[apps]") {
  const Workload images{.model = "", .sample = {2, 2, 1}, .batch = 3};
  const auto data = noise(images);
  const auto samples = [](std::vector<float>& x, std::vector<std::int32_t>& labels) {
    return Samples{.x = x, .tokens = {}, .labels = labels, .targets = {}};
  };
  std::vector<float> all(12);
  std::vector<std::int32_t> labels(3);
  data->gather(Split::train, std::vector<std::int64_t>{0, 1, 2}, 0, samples(all, labels));
  std::vector<float> last(4);
  std::vector<std::int32_t> label(1);
  data->gather(Split::train, std::vector<std::int64_t>{2}, 5, samples(last, label));
  CHECK(std::equal(last.begin(), last.end(), all.begin() + 8));
  CHECK(label[0] == labels[2]);
  CHECK(all[0] != all[1]);
}

}  // namespace bench_test
