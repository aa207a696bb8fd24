#include "apps/bench/benches.hpp"
#include "apps/bench/optimizer.hpp"
#include "experiment.pb.h"
#include "kernels/check.hpp"
#include "messages/experiment.hpp"
#include "runtime/schemes/codecs/codec.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace troupe {
namespace {

constexpr std::int64_t kSide = 4096;
constexpr std::int64_t kNumbers = kSide * kSide;  // 64 MiB: far beyond every cache

/// A codec of one matrix, by its key's assignment behind replicas.codec.up.
struct Subject {
  const char* name;
  const char* set;
  const char* budget;
};

constexpr Subject kSubjects[] = {
    {"fp16", "=fp16", ">= 30 %"},
    {"bf16", "=bf16", ""},
    {"int8_block", "=int8_block", ">= 30 %"},
    {"int4_block", "=int4_block", ">= 30 %"},
    {"e3m0", "=e3m0", ""},
    {"one_bit", "=one_bit", ">= 30 %"},
    {"strom, 0.1 % sent", ".strom.threshold=3.29", ">= 30 %"},
    {"top_k, 1 %", ".top_k.density=0.01", ""},
    {"random_k, 1 %", ".random_k.density=0.01", ""},
    {"qsgd", "=qsgd", ">= 15 %"},
    {"terngrad", "=terngrad", ">= 15 %"},
    {"powersgd, rank 1", "=powersgd", ""},
};

std::shared_ptr<const Codec> codec_of(const Subject& subject) {
  proto::Experiment e;
  const auto set = set_value(e, std::string("replicas.codec.up") + subject.set);
  TROUPE_CHECK(set && resolve(e), "the bench of ", subject.name, " sets what is no codec");
  return make_codec({.chosen = e.replicas().codec().up(),
                     .parts = {{"matrix", 0, {kSide, kSide}, true}},
                     .elements = kNumbers,
                     .replicas = 1,
                     .feedback = true});
}

/// Normal numbers, some thousands of them over and over.
void fill_normal(std::span<float> x) {
  constexpr std::size_t kDistinct = 1 << 16;
  const RandomStream random(1, Purpose::test);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = i < kDistinct ? static_cast<float>(random.normal(i)) : x[i - kDistinct];
  }
}

}  // namespace

Rows codecs_bandwidth(double seconds) {
  Stream stream(Device{});
  std::vector<Tensor> t;
  for (int i = 0; i < 3; ++i) {
    t.push_back(stream.allocate({kNumbers}));
    fill_normal(t.back().span<float>());
  }
  Rows rows;
  for (const Subject& subject : kSubjects) {
    const auto codec = codec_of(subject);
    LinkState state;
    state.tensors.resize(2);
    state.tensors[1] = stream.allocate({std::max<std::int64_t>(1, codec->kept())});
    fill(stream, state.tensors[1], 0);
    std::vector<std::uint32_t> message;
    const RandomStream random(1, Purpose::sample);
    const auto encode = [&] {
      message.clear();
      codec->encode(t[1].span<float>(), state, random, message);
    };
    const auto decode = [&] {
      const auto sound = codec->read(message, kNumbers, t[2].data<float>());
      TROUPE_CHECK(sound, subject.name, " does not understand itself");
    };
    encode();  // the message's memory is there from now on, as it is in a run
    std::vector<double> ratios;
    std::vector<double> encoding;
    std::vector<double> decoding;
    const int rounds = turns(seconds, static_cast<int>(seconds));
    for (int round = 0; round < rounds; ++round) {
      const double of_triad =
          12.0 * kNumbers / seconds_of([&] {
            triad(t[0].data<float>(), t[1].data<float>(), t[2].data<float>(), kNumbers);
          });
      encoding.push_back(seconds_of(encode));
      decoding.push_back(seconds_of(decode));
      const double moved = 8.0 * (kNumbers + static_cast<double>(message.size()));
      ratios.push_back(moved / (encoding.back() + decoding.back()) / of_triad);
    }
    const double bytes = 4.0 * kNumbers;
    rows.push_back({concat("codec ", subject.name),
                    number("%.1f GB/s to messages", bytes / median(encoding) / 1e9) +
                        number(", %.1f back", bytes / median(decoding) / 1e9),
                    "triad (12 B an element) in turn",
                    number("%.1f %%", 100 * median(ratios)),
                    subject.budget});
  }
  return rows;
}

}  // namespace troupe
