#include "apps/bench/benches.hpp"
#include "apps/bench/workload.hpp"
#include "apps/plan/profiled_cut.hpp"

#include <algorithm>
#include <cmath>

namespace troupe {
namespace {

struct Profiled {
  std::string what;
  Workload workload;
};

Row profiled_cut_of(const Profiled& network, double seconds) {
  const auto batch = static_cast<double>(network.workload.batch);
  Blueprint b = blueprint_of(network.workload, noise(network.workload), 2);
  const int many = turns(seconds, 3);
  Rounds rounds;
  std::string where;
  for (int round = 0; round < many; ++round) {
    const auto profile = measure_layers(b);
    TROUPE_CHECK(profile, profile.error().message);
    const auto cut = profiled_cut(b, *profile);
    TROUPE_CHECK(cut, cut.error().message);
    const auto made = cut_blueprint(b, *cut);
    TROUPE_CHECK(made, made.error().message);
    const double predicted = predict(b, *profile).samples_per_second;
    const auto updates = std::max<std::int64_t>(
        5, static_cast<std::int64_t>(std::ceil(predicted / batch * seconds / many / 2)));
    const double rate = batch / seconds_per_update(b, updates);
    rounds.add(rate, rate / predicted);
    where = b.network.layers[static_cast<std::size_t>(cut->front())]->name();
  }
  return {network.what + " cut in two by its profile",
          number("%.0f samples/s", rounds.rate()),
          "what the profile promises; last cut before " + where,
          rounds.percent(),
          "85 to 115 %"};
}

}  // namespace

Rows profiled_cuts(double seconds) {
  const Shape glyph{28, 28, 1};
  Rows rows;
  for (Profiled network : std::initializer_list<Profiled>{
           {"MLP 784-1024-1024-10", {.model = "mlp { hidden: [1024, 1024] }", .sample = glyph}},
           {"LeNet-5", {.model = "lenet5 {}", .sample = glyph}},
           {"ResNet-20 on 32x32", {.model = "resnet { depth: 20 }", .sample = {32, 32, 3}}},
           {"GPT, 4 layers of 128",
            {.model = "gpt { layers: 4 width: 128 heads: 4 }",
            .sample = {128},
            .batch = 16,
            .classes = 65,
            .tokens = true}},
       }) {
    if (is_quick(seconds)) {
      network.workload.batch /= 8;
    }
    rows.push_back(profiled_cut_of(network, seconds));
  }
  return rows;
}

}  // namespace troupe
