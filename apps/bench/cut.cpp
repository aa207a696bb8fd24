#include "apps/bench/cut.hpp"

#include "apps/bench/watch.hpp"
#include "apps/profile.hpp"
#include "runtime/system/threads.hpp"

#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

namespace troupe {
namespace {

constexpr std::int64_t kWarmUp = 10;  // updates
constexpr int kRounds = 3;

struct Trained {
  std::string what;
  std::string model;
  std::string data;
};

/// A text of noise for the networks that read one, gone with this.
class NoiseFile {
 public:
  NoiseFile()
      : path_(std::filesystem::temp_directory_path() /
              ("troupe-bench-" + std::to_string(::getpid()) + ".txt")) {
    std::ofstream out(path_);
    std::uint32_t x = 1;
    for (int i = 0; i < 200'000; ++i) {
      x = 1664525 * x + 1013904223;
      out << static_cast<char>(' ' + (x >> 24) % 65);
    }
  }

  ~NoiseFile() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }

  NoiseFile(const NoiseFile&) = delete;
  NoiseFile& operator=(const NoiseFile&) = delete;

  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

Blueprint in_two(const Trained& network, const std::string& cut, std::int64_t updates) {
  return bench_blueprint(
      "model { " + network.model + " } data { " + network.data +
      " } optimizer { rule: momentum learning_rate: 0.001 } pipeline { stages: 2 " + cut +
      " schedule { async_one_f_one_b {} } weights { stash {} } } stop { updates: " +
      std::to_string(updates) + " } record { evaluate: false order: false gap_every: 0 }");
}

Row profiled_cut_of(const Trained& network, double seconds) {
  std::vector<double> ratios;
  std::vector<double> rates;
  std::string where;
  for (int round = 0; round < kRounds; ++round) {
    const Blueprint whole = in_two(network, "", 1);
    const auto profile = measure_layers(whole);
    TROUPE_CHECK(profile, profile.error().message);
    const auto cut = profiled_cut(whole, *profile);
    TROUPE_CHECK(cut, cut.error().message);
    const std::string key = "cut: " + std::to_string(cut->front());
    const auto batch = static_cast<double>(whole.experiment.data().batch_size());
    const double predicted = predict(in_two(network, key, 1), *profile).samples_per_second;
    const auto updates = std::max<std::int64_t>(
        20, static_cast<std::int64_t>(std::ceil(predicted / batch * seconds / kRounds / 2)));
    const Blueprint b = in_two(network, key, kWarmUp + updates + 1);
    Cast cast = build_cast(b);
    Watch watch;
    run_on_threads(cast, watch, {});
    rates.push_back(batch / watch.per_batch(kWarmUp, kWarmUp + updates));
    ratios.push_back(rates.back() / predicted);
    where = b.network.layers[static_cast<std::size_t>(cut->front())]->name();
  }
  return {network.what + " cut in two by its profile",
          number("%.0f samples/s", median(rates)),
          "what the profile promises; last cut before " + where,
          number("%.1f %%", 100 * median(ratios)),
          "85 to 115 %"};
}

}  // namespace

Rows profiled_cuts(double seconds) {
  const NoiseFile text;
  const std::string glyphs = "batch_size: 128 glyphs { limit: 2048 test_limit: 10 }";
  Rows rows;
  for (const Trained& network : {
           Trained{"MLP 784-1024-1024-10", "mlp { hidden: [1024, 1024] }", glyphs},
           Trained{"LeNet-5", "lenet5 {}", glyphs},
           Trained{"ResNet-20 on 28x28", "resnet { depth: 20 }", glyphs},
           Trained{"GPT, 4 layers of 128",
                   "gpt { layers: 4 width: 128 heads: 4 }",
                   "batch_size: 16 text { path: '" + text.path() + "' }"},
       }) {
    rows.push_back(profiled_cut_of(network, seconds));
  }
  return rows;
}

}  // namespace troupe
