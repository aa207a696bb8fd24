// Every figure is taken in one run and set against a bound measured in the same run: FLOPs against
// the matrix product's own rate, bytes against a triad, actors against a bare loop over the same
// kernels. Where two things are compared they take turns, and the median of the rounds counts.
#include "apps/bench/bench.hpp"

#include "apps/bench/benches.hpp"
#include "apps/bench/gpu.hpp"
#include "apps/bench/optimizer.hpp"
#include "apps/bench/replicas.hpp"
#include "apps/bench/training.hpp"
#include "apps/cli/text.hpp"
#include "kernels/result.hpp"
#include "kernels/sequences.hpp"

#include <algorithm>
#include <functional>
#include <ostream>

namespace troupe {
namespace {

struct Bench {
  std::string name;
  std::function<Result<Rows>(const BenchOptions& options, double seconds)> measure;
  bool on_request = false;
};

const std::vector<Bench>& benches() {
  static const std::vector<Bench> all = [] {
    std::vector<Bench> these;
    const auto add = [&](const std::string& name, auto measure) {
      these.push_back({name, [measure](const BenchOptions&, double seconds) {
                         return measure(seconds);
                       }});
    };
    for (const TrainingBench& bench : training_benches()) {
      add(bench.name, [&bench](double seconds) { return Rows{training_step(bench, seconds)}; });
    }
    add("actors", [](double seconds) { return Rows{actors_against_loop(seconds)}; });
    add("hop", hops);
    these.push_back({"channel", [](const BenchOptions& options, double seconds) {
                       return channels(seconds, options.ucx ? Transport::ucx : Transport::streams);
                     }});
    these.push_back({"processes", [](const BenchOptions&, double seconds) {
                       return two_processes(seconds);
                     }});
    add("stages", [](double seconds) { return Rows{two_stages(seconds)}; });
    add("decoupled", decoupled_stages);
    add("cut", profiled_cuts);
    add("optimizer", [](double seconds) { return Rows{optimizer_bandwidth(seconds)}; });
    add("codecs", codecs_bandwidth);
    add("virtual", [](double seconds) { return Rows{virtual_clock(seconds)}; });
    these.push_back(
        {"scale",
         [](const BenchOptions&, double seconds) { return Result<Rows>(costs_by_size(seconds)); },
         true});
    add("hogwild", hogwild);
    add("replicas", replicas);
    these.push_back({"gpu",
                     [](const BenchOptions&, double seconds) { return training_on_gpu(seconds); },
                     true});
    these.push_back({"gpu-stages",
                     [](const BenchOptions&, double seconds) { return stages_on_gpu(seconds); },
                     true});
    these.push_back({"gpu-peers",
                     [](const BenchOptions& options, double seconds) {
                       return against_peers_on_gpu(options.python, seconds);
                     },
                     true});
    these.push_back({"peers",
                     [](const BenchOptions& options, double seconds) {
                       return against_peers(options.python, seconds);
                     },
                     true});
    return these;
  }();
  return all;
}

}  // namespace

const std::vector<std::string>& bench_names() {
  static const std::vector<std::string> names = [] {
    return mapped<std::string>(benches(), [&](const Bench& bench) { return bench.name; });
  }();
  return names;
}

int run_bench(const BenchOptions& options, std::ostream& out, std::ostream& err) {
  const double seconds = options.quick ? 0.5 : 5;  // of each row, about
  const auto wanted = [&](const Bench& bench) {
    const auto& names = options.names;
    return names.empty() ? !bench.on_request
                         : std::find(names.begin(), names.end(), bench.name) != names.end();
  };
  std::vector<std::vector<std::string>> lines{{"what", "measured", "against", "ratio", "budget"}};
  for (const Bench& bench : benches()) {
    if (!wanted(bench)) {
      continue;
    }
    err << "measuring " << bench.name << '\n';
    const auto rows = bench.measure(options, seconds);
    if (!rows) {
      err << "troupe: " << rows.error().message << '\n';
      return static_cast<int>(rows.error().kind);
    }
    for (const Row& row : rows.value()) {
      lines.push_back({row.what, row.measured, row.against, row.ratio, row.budget});
    }
  }
  out << table(lines) << std::flush;
  return 0;
}

}  // namespace troupe
