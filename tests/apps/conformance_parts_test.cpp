// Every built-in optimizer and codec conforms, and the kit finds what does not; of layers, too.
#include "apps/conformance/conformance.hpp"
#include "kernels/combine.hpp"
#include "runtime/model/registry.hpp"
#include "runtime/schemes/codecs/codec.hpp"
#include "runtime/schemes/optimizers/optimizer_scheme.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>
#include <bit>
#include <map>
#include <memory>
#include <utility>

namespace conformance_parts_test {

using namespace troupe;
using namespace troupe::test;

namespace {

std::map<std::string, Finding> findings(const std::string& name) {
  auto found = check_conformance({.rule = name});
  INFO((found ? std::string() : found.error().message));
  REQUIRE(found);
  std::map<std::string, Finding> all;
  for (const Finding& finding : *found) {
    all[finding.check] = finding;
  }
  return all;
}

/// What it breaks, in alphabetical order.
std::string broken(const std::string& name) {
  std::string all;
  for (const auto& [check, finding] : findings(name)) {
    all += finding.holds ? "" : check + ".";
  }
  return all;
}

enum class Fault { none, forgets_length, counts, padding, slices, wrong, replaces, impure };

/// The numbers as they are.
class Plain final : public Codec {
 public:
  explicit Plain(Fault fault) : fault_(fault) {}

  void encode(std::span<const float> x,
              LinkState& /*state*/,
              const RandomStream& /*random*/,
              std::vector<std::uint32_t>& message) const override {
    static std::uint32_t count = 0;
    message.push_back(fault_ == Fault::counts ? ++count : 0);
    for (const float value : x) {
      message.push_back(std::bit_cast<std::uint32_t>(value));
    }
  }

  Result<void> read(troupe::Words message, std::int64_t n, float* out) const override {
    if (fault_ != Fault::forgets_length && static_cast<std::int64_t>(message.size()) != n + 1) {
      return Error{ErrorKind::lost, "it is of another length"};
    }
    for (std::size_t i = 1; out && i < message.size() && i <= static_cast<std::size_t>(n); ++i) {
      out[i - 1] = std::bit_cast<float>(message[i]);
    }
    return {};
  }

 private:
  Fault fault_;
};

void register_plain(const char* name, Fault fault) {
  REQUIRE(register_codec(
      {.info = {.name = name, .summary = "for a test"}, .codec = [fault](const CodecContext&) {
         return std::make_unique<Plain>(fault);
       }}));
}

/// Momentum by itself.
void register_momentum(const char* name, Fault fault) {
  const auto update = [fault](Stream& stream,
                              const UpdateNumbers& numbers,
                              const OptionValues&,
                              const UpdateTensors& t) {
    const Tensor& v = t.moments[0];
    const std::span<const float> g = t.g.span<float>();
    const double scale = fault == Fault::slices ? static_cast<double>(g.size()) / 96 : 1;
    combine(stream, {{numbers.momentum, v}, {numbers.gradient_scale * scale, t.g}}, v);
    if (fault == Fault::padding) {
      std::for_each(v.span<float>().begin(), v.span<float>().end(), [](float& x) { x += 1; });
    }
    combine(stream, {{1, t.w}, {-numbers.rate, v}}, t.w_new);
    return v;
  };
  REQUIRE(register_optimizer({.info = {.name = name, .summary = "for a test"},
                              .method = {.moments = 1, .update = update}}));
}

/// y = a x + b^2.
class Affine final : public PlainLayer {
 public:
  Affine(Fault fault, std::string name, Shape input)
      : PlainLayer(std::move(name)), fault_(fault), input_(input) {}

  std::vector<ParameterSpec> parameters() const override {
    return {{.name = name() + ".ab", .shape = {2}, .initial = Initial::one}};
  }

  Shape output_shape() const override { return input_; }

  std::int64_t saved_bytes() const override { return 4 * input_.elements(); }

  Tensor transform(const Pass& pass,
                   Parameters w,
                   std::span<Tensor>,
                   const Tensor& x,
                   Saved& saved) const override {
    static float calls = 0;
    const std::span<float> ab = w[0].span<float>();
    const Tensor y = pass.stream.allocate(x.shape());
    for (std::size_t i = 0; i < y.span<float>().size(); ++i) {
      y.span<float>()[i] =
          ab[0] * x.span<float>()[i] + ab[1] * ab[1] + (fault_ == Fault::impure ? ++calls : 0);
    }
    saved = {x};
    return y;
  }

  Tensor transform_gradient(
      const Pass& pass, Parameters w, Saved& saved, Tensor dy, bool) const override {
    const std::span<float> ab = w[0].span<float>();
    const Tensor of_ab = pass.stream.allocate({2});
    const std::span<float> g = of_ab.span<float>();
    std::fill(g.begin(), g.end(), 0.0f);
    const Tensor dx = pass.stream.allocate(dy.shape());
    for (std::size_t i = 0; i < dx.span<float>().size(); ++i) {
      g[0] += dy.span<float>()[i] * saved[0].span<float>()[i];
      g[1] += dy.span<float>()[i] * (fault_ == Fault::wrong ? 1 : 2) * ab[1];
      dx.span<float>()[i] = ab[0] * dy.span<float>()[i];
    }
    saved = {of_ab};
    return dx;
  }

  void weight_gradient(Stream& stream,
                       const Saved& saved,
                       std::span<const Gradient> g) const override {
    if (g[0].accumulate && fault_ != Fault::replaces) {
      combine(stream, {{1, g[0].to}, {1, saved[0]}}, g[0].to);
    } else {
      combine(stream, {{1, saved[0]}}, g[0].to);
    }
  }

 private:
  Fault fault_;
  Shape input_;
};

void register_affine(const char* name, Fault fault) {
  REQUIRE(register_layer(
      {.info = {.name = name, .summary = "for a test"},
       .make = [fault](const std::string& of, const BundleShape& input, const OptionValues&) {
         return Result<std::shared_ptr<const Layer>>(
             std::make_shared<Affine>(fault, of, input.front().shape));
       }}));
}

}  // namespace

TEST_CASE("every built-in optimizer and codec conforms", "[apps]") {
  for (const OptimizerScheme& scheme : optimizer_schemes().all()) {
    // "nesterov" and "adagrad" are a policy's and a rule's names, too.
    if (optimizer_schemes().built_in(scheme) && findings(scheme.info.name).contains("padding")) {
      CHECK(broken(scheme.info.name).empty());
    }
  }
  for (const CodecScheme& scheme : codecs().all()) {
    if (codecs().built_in(scheme) && scheme.codec) {
      INFO(scheme.info.name);
      CHECK(broken(scheme.info.name).empty());
    }
  }
}

TEST_CASE("the kit says of a codec of one's own what it breaks", "[apps]") {
  register_plain("plain", Fault::none);
  CHECK(broken("plain").empty());
  register_plain("forgets_length", Fault::forgets_length);
  CHECK(broken("forgets_length") == "strangers.");
  register_plain("counts", Fault::counts);
  CHECK(findings("counts").at("messages").what == "of the same 1 numbers two messages differ");
}

TEST_CASE("the kit says of an optimizer of one's own what it breaks", "[apps]") {
  register_momentum("own_momentum", Fault::none);
  CHECK(broken("own_momentum").empty());
  register_momentum("moves_padding", Fault::padding);
  CHECK(broken("moves_padding") == "padding.");
  register_momentum("by_slice", Fault::slices);
  CHECK(broken("by_slice") == "pieces.");
}

TEST_CASE("the kit says of a layer of one's own what it breaks", "[apps]") {
  register_affine("affine", Fault::none);
  CHECK(broken("affine").empty());
  register_affine("wrong", Fault::wrong);
  CHECK(broken("wrong") == "gradient.");
  CHECK(findings("wrong").at("gradient").what.starts_with("the gradient by layer.ab is off by "));
  register_affine("replaces", Fault::replaces);
  CHECK(broken("replaces") == "adds.");
  register_affine("impure", Fault::impure);
  CHECK(broken("impure").find("pure.") != std::string::npos);
}

}  // namespace conformance_parts_test
