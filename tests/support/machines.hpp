// Machines driven by hand: what they send and record, and tensors for what they are sent.
#pragma once

#include "kernels/stream.hpp"
#include "runtime/system/machine.hpp"
#include "tests/support/catch.hpp"

#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

namespace troupe::test {

/// (n), each element `value`.
inline Tensor filled(float value, std::int64_t n = 8) {
  Stream stream(Device{});
  Tensor t = stream.allocate({n});
  fill(stream, t, value);
  return t;
}

/// The first element.
inline float first_of(const Tensor& t) {
  return t.span<float>()[0];
}

inline Weights weights_of(const std::vector<Tensor>& slices) {
  Weights weights;
  for (const Tensor& slice : slices) {
    weights.push_back({.values = slice});
  }
  return weights;
}

/// All sends of type M, with their recipients, in order.
template <class M>
std::vector<std::pair<ActorId, M>> sent(const Effects& fx) {
  std::vector<std::pair<ActorId, M>> all;
  for (const Effects::Send& send : fx.sends) {
    if (const auto* m = get_if<M>(&send.message)) {
      all.emplace_back(send.to, *m);
    }
  }
  return all;
}

/// Those to one recipient.
template <class M>
std::vector<M> sent_to(ActorId to, const Effects& fx) {
  std::vector<M> all;
  for (auto& [recipient, m] : sent<M>(fx)) {
    if (recipient == to) {
      all.push_back(std::move(m));
    }
  }
  return all;
}

/// The only send of type M; whatever else was wanted is forgotten.
template <class M>
M only(Effects& fx) {
  auto all = sent<M>(fx);
  REQUIRE(all.size() == 1);
  fx.clear();
  return std::move(all.front().second);
}

/// All records of type R.
template <class R>
std::vector<R> recorded(const Effects& fx) {
  std::vector<R> all;
  for (const RecordEntry& entry : fx.records) {
    if (const auto* r = std::get_if<R>(&entry)) {
      all.push_back(*r);
    }
  }
  return all;
}

}  // namespace troupe::test
