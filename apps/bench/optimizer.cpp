#include "apps/bench/optimizer.hpp"

#include "kernels/stream.hpp"
#include "kernels/update.hpp"

#include <vector>

namespace troupe {
__attribute__((optimize("O3"), noinline)) void triad(float* __restrict a,
                                                     const float* __restrict b,
                                                     const float* __restrict c,
                                                     std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    a[i] = b[i] + 1e-9f * c[i];
  }
}

Row optimizer_bandwidth(double seconds) {
  const std::int64_t n = 16 << 20;  // 64 MiB a tensor: far beyond every cache
  Stream stream(Device{});
  std::vector<Tensor> t;
  for (int i = 0; i < 3; ++i) {
    t.push_back(stream.allocate({n}));
    fill(stream, t.back(), 0.5);
  }
  const auto of_triad_loop = [&] {
    triad(t[0].data<float>(), t[1].data<float>(), t[2].data<float>(), n);
  };
  UpdateArguments arguments{.kernel = UpdateKernel::momentum,
                            .scalars = {.rate = 1e-6f, .gamma = 0.9f},
                            .w = t[0],
                            .g = t[1],
                            .w_new = t[0],
                            .m = t[2],
                            .v = {},
                            .displacement = {},
                            .displacement_decay = 0,
                            .predictions = {}};
  Rounds rounds;
  const int many = turns(seconds, static_cast<int>(seconds * 10));
  for (int round = 0; round < many; ++round) {
    const double of_triad = 12.0 * static_cast<double>(n) / seconds_of(of_triad_loop);
    const double rate =
        20.0 * static_cast<double>(n) / seconds_of([&] { update(stream, arguments); });
    rounds.add(rate, rate / of_triad);
  }
  return {"optimizer step (momentum, 20 B a parameter)",
          number("%.1f GB/s", rounds.rate() / 1e9),
          "triad (12 B an element) in turn",
          rounds.percent(),
          ">= 60 %"};
}

}  // namespace troupe
