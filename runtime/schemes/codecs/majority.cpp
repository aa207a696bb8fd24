#include "runtime/schemes/codecs/majority.hpp"

#include "runtime/schemes/codecs/host_memory.hpp"

#include <cmath>

namespace troupe {

void Majority::decide(Stream& stream, Update& update) const {
  std::vector<Tensor> votes;
  for (const Contribution& of : update.contributions) {
    votes.push_back(on_host(stream, of.values.front()));
  }
  const std::int64_t n = update.base.elements();
  RandomStream coins(seed, Purpose::sample, name);
  coins.key = coins.bits(static_cast<std::uint64_t>(update.version));
  Tensor decided = host_tensor(n, DType::float32);
  float* const out = decided.data<float>();
  for (std::int64_t j = 0; j < n; ++j) {
    float sum = 0;
    float some = 0;
    for (const Tensor& of : votes) {
      sum += of.data<float>()[j];
      some += std::abs(of.data<float>()[j]);
    }
    const bool up = sum != 0 ? sum > 0 : (coins.bits(static_cast<std::uint64_t>(j)) >> 63) != 0;
    // A NaN stays one: the run ends as diverged.
    out[j] = some == 0 || std::isnan(sum) ? sum : up ? 1.0f : -1.0f;
  }
  const Tensor on = on_device(stream, decided);
  for (Contribution& of : update.contributions) {
    of.values.front() = on;
  }
}

}  // namespace troupe
