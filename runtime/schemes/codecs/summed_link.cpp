#include "runtime/schemes/codecs/summed_link.hpp"

#include "kernels/codes.hpp"
#include "runtime/schemes/codecs/host_memory.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace troupe {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

SumCode::Numbers values_on_host(Stream& stream, const Tensor& x) {
  x.ready().wait();
  const Tensor here = on_host(stream, x);
  return SumCode::Numbers(here.data<float>(), here.data<float>() + here.elements());
}

Tensor on_device_of(Stream& stream, const SumCode::Numbers& numbers) {
  Tensor made = host_tensor(static_cast<std::int64_t>(numbers.size()), DType::float32);
  std::copy(numbers.begin(), numbers.end(), made.data<float>());
  return on_device(stream, made);
}

/// What is drawn for the gradient under way: the same at all replicas.
RandomStream drawn_for(const SummedLink& link, const LinkState& state) {
  RandomStream random(link.seed, Purpose::sample, link.name);
  random.key = random.bits(static_cast<std::uint64_t>(state.messages));
  return random;
}

}  // namespace

Tensor SummedLink::begin(Stream& stream, const Tensor& gradient, LinkState& state) const {
  const std::int64_t n = gradient.elements();
  begin_link(state, n, code->kept(), feedback);
  const Tensor here = on_host(stream, gradient);
  Tensor x = host_tensor(n, DType::float32);
  const float* const left = feedback ? state.tensors[0].data<float>() : nullptr;
  if (!codes::add_left(here.data<float>(), 1, left, x.data<float>(), n)) {
    std::fill_n(x.data<float>(), n, kNaN);
  }
  return x;
}

Tensor SummedLink::numbers(Stream& stream,
                           const Tensor& x,
                           const std::vector<Tensor>& means,
                           const LinkState& state) const {
  std::vector<SumCode::Numbers> before;
  for (const Tensor& mean : means) {
    before.push_back(values_on_host(stream, mean));
  }
  return on_device_of(stream,
                      code->numbers(x.span<float>(), before, state, drawn_for(*this, state)));
}

Tensor SummedLink::end(Stream& stream,
                       const Tensor& x,
                       const Tensor& own,
                       const std::vector<Tensor>& means,
                       LinkState& state) const {
  const std::int64_t n = x.elements();
  std::vector<SumCode::Numbers> sums;
  bool finite = true;
  for (const Tensor& mean : means) {
    sums.push_back(values_on_host(stream, mean));
    finite = finite && codes::finite(sums.back().data(), mean.elements());
  }
  Tensor out = host_tensor(n, DType::float32);
  if (!finite) {
    std::fill_n(out.data<float>(), n, kNaN);
    return on_device(stream, out);
  }
  const SumCode::Numbers last = std::move(sums.back());
  sums.pop_back();
  const RandomStream random = drawn_for(*this, state);
  if (feedback) {
    code->decode(sums, values_on_host(stream, own), random, out.span<float>());
    codes::left_of(x.data<float>(), out.data<float>(), state.tensors[0].data<float>(), n);
  }
  code->decode(sums, last, random, out.span<float>());
  code->summed(last, state);
  ++state.messages;
  return on_device(stream, out);
}

std::shared_ptr<const SumCode> make_sum_code(const CodecContext& context) {
  const CodecScheme& scheme = codec_scheme(context.chosen);
  return scheme.linear ? scheme.linear(context) : nullptr;
}

}  // namespace troupe
