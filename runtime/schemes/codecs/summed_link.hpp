// Codecs in an all-reduce (synchronous.reduction ring, tree): what replicas add up is smaller than their
// gradients. That takes a codec whose messages have a sum that is a message of its kind, and there are two
// ways (CodecScheme):
//
//   recoded  fp16, bf16: a replica decodes what comes, adds its own, and encodes the sum anew; what that
//            leaves out stays with the replica that has encoded it (actors/exchange/gradient_sum.hpp)
//   linear   random_k, powersgd: numbers that are linear in the gradient, so that the mean of the replicas'
//            numbers is the numbers of their mean. There may be several rounds of sums, where the numbers of one
//            depend on the mean of those before it (SumCode)
#pragma once

#include "kernels/random.hpp"
#include "kernels/stream.hpp"
#include "messages/update.hpp"
#include "runtime/schemes/codecs/codec.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace troupe {

/// A linear code, on the host. Immutable: what it keeps from one gradient to the next is the LinkState, which
/// is the same at all replicas but for the residual. `random` is the same at all of them, too.
class SumCode {
 public:
  using Numbers = std::vector<float>;

  virtual ~SumCode() = default;

  /// Of sums; a code of several slices that have different numbers of rounds is refused.
  virtual std::size_t rounds() const { return 1; }

  /// x's numbers of round means.size(); `means`: over the replicas, of the rounds before it. May be none.
  virtual Numbers numbers(std::span<const float> x,
                          const std::vector<Numbers>& means,
                          const LinkState& state,
                          const RandomStream& random) const = 0;

  /// What `last` says, the last round's numbers of one replica or their mean, to `out` (n).
  virtual void decode(const std::vector<Numbers>& means,
                      const Numbers& last,
                      const RandomStream& random,
                      std::span<float> out) const = 0;

  /// Called with the mean of the last round.
  virtual void summed(const Numbers& /*last*/, LinkState& /*state*/) const {}

  /// Numbers that it keeps besides the residual: LinkState::tensors[1], zeros at first.
  virtual std::int64_t kept() const { return 0; }
};

/// A replica's part in the sums of one slice.
struct SummedLink {
  std::shared_ptr<const SumCode> code{};
  bool feedback = false;
  std::uint64_t seed = 0;  // of what is drawn at random
  std::uint64_t name = 0;  // of the slice, the same at all replicas

  /// The gradient and what is left of earlier ones, (n) on the host; where not all are finite, NaNs.
  Tensor begin(Stream& stream, const Tensor& gradient, LinkState& state) const;

  /// x's numbers of the next round, (k), on the stream's device.
  Tensor numbers(Stream& stream,
                 const Tensor& x,
                 const std::vector<Tensor>& means,
                 const LinkState& state) const;

  /// The mean of all replicas' gradients as the last of `means` says it, (n) on the stream's device; NaNs where
  /// not all means are finite. What x's own numbers `own` of the last round leave out is kept.
  Tensor end(Stream& stream,
             const Tensor& x,
             const Tensor& own,
             const std::vector<Tensor>& means,
             LinkState& state) const;
};

/// Of the codec that `context.chosen` names; empty where it has no linear code.
std::shared_ptr<const SumCode> make_sum_code(const CodecContext& context);

}  // namespace troupe
