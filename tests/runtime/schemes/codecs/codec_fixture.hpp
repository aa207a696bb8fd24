// Codecs as an experiment chooses them, over a slice of two matrices, two vectors and padding.
#pragma once

#include "experiment.pb.h"
#include "messages/archive.hpp"
#include "messages/experiment.hpp"
#include "runtime/schemes/codecs/codec.hpp"
#include "tests/support/catch.hpp"

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

namespace troupe::test {

using Numbers = std::vector<float>;

constexpr std::int64_t kSlice = 448;

inline std::vector<RuleContext::Part> parts() {
  return {{"w1", 0, {20, 13}, true},
          {"b1", 260, {20}, false},
          {"w2", 288, {7, 20}, true},  // eight numbers of padding before it
          {"b2", 428, {7}, false}};
}

/// Both ends of a link for `choice`, "up.top_k.density=0.1 feedback=on".
struct Ends {
  explicit Ends(const std::string& choice, std::int64_t size = kSlice, std::int32_t replicas = 1)
      : n(size) {
    proto::Experiment e;
    std::size_t begin = 0;
    while (begin < choice.size()) {
      const std::size_t end = std::min(choice.find(' ', begin), choice.size());
      const std::string word = choice.substr(begin, end - begin);
      REQUIRE(set_value(e, "replicas.codec." + word));
      begin = end + 1;
    }
    finish(e, replicas);
  }

  void finish(proto::Experiment& e, std::int32_t replicas) {
    REQUIRE(resolve(e));
    chosen = e.replicas().codec();
    link.feedback = keeps_residual(chosen);
    link.seed = 7;
    link.name = link_name(1, 0, 0);
    link.codec = make_codec({.chosen = chosen.up(),
                             .parts = n == kSlice ? parts() : std::vector<RuleContext::Part>{},
                             .elements = n,
                             .replicas = replicas,
                             .feedback = link.feedback});
    REQUIRE(link.codec);
  }

  Tensor tensor(const Numbers& x) { return from_host(stream, x, {n}); }

  Tensor message(const Numbers& x) { return link.encode(stream, tensor(x), 1, state); }

  Numbers read(const Tensor& message) {
    REQUIRE(check_message(link.codec.get(), message, n));
    const std::span<float> out = (last = decoded(stream, *link.codec, message, n)).span<float>();
    return {out.begin(), out.end()};
  }

  /// There and back.
  Numbers sent(const Numbers& x) { return read(message(x)); }

  /// What was not sent yet.
  Numbers left() const {
    if (state.tensors.empty() || !state.tensors[0]) {
      return Numbers(static_cast<std::size_t>(n));
    }
    const std::span<float> left = state.tensors[0].span<float>();
    return {left.begin(), left.end()};
  }

  std::int64_t n;
  proto::Codecs chosen;
  CodedLink link;
  LinkState state;
  Stream stream{Device{}};
  Tensor last;
};

/// Normal numbers; `which` tells draws apart.
inline Numbers normal(std::int64_t n, std::uint64_t which, double deviation = 1) {
  const RandomStream random(11, Purpose::test, which);
  Numbers x;
  for (std::int64_t i = 0; i < n; ++i) {
    x.push_back(static_cast<float>(deviation * random.normal(static_cast<std::uint64_t>(i))));
  }
  return x;
}

inline Tensor words_tensor(Stream& stream, const std::vector<std::uint32_t>& words) {
  const std::vector<std::int32_t> signed_words(words.begin(), words.end());
  return from_host(stream, signed_words, Shape{static_cast<std::int64_t>(signed_words.size())});
}

inline std::vector<std::uint32_t> words_in(const Tensor& message) {
  const std::span<std::int32_t> words = message.span<std::int32_t>();
  return {words.begin(), words.end()};
}

}  // namespace troupe::test
