// Whether an optimizer, a codec or a layer keeps what the runtime promises of it.
#include "apps/conformance/kits.hpp"
#include "apps/conformance/replicas.hpp"
#include "experiment.pb.h"
#include "kernels/random.hpp"
#include "kernels/wording.hpp"
#include "messages/experiment.hpp"

#include <algorithm>
#include <cmath>
#include <exception>
#include <utility>

namespace troupe::conformance {
namespace {

/// Normal numbers, by name.
std::vector<float> drawn(std::int64_t n, std::uint64_t name) {
  const RandomStream random(1, Purpose::sample, name);
  std::vector<float> x(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<float>(random.normal(i));
  }
  return x;
}

Finding two_equal_runs(const Assignments& set) {
  const ReplicaTrial first = run_replicas(set);
  const ReplicaTrial second = run_replicas(set);
  return first.trouble.empty() ? equal_runs(first.result, second.result)
                               : Finding{"replay", false, first.trouble};
}

/// What `check` finds; where it throws, that is what is broken.
template <class Check>
Finding caught(const char* name, Check&& check) {
  try {
    return check();
  } catch (const std::exception& thrown) {
    return {name, false, thrown.what()};
  }
}

// -- codecs -----------------------------------------------------------------------------------------

class CodecKit {
 public:
  CodecKit(const CodecScheme& scheme, const ConformanceOptions& options)
      : scheme_(scheme),
        set_(choose(
            (codecs().built_in(scheme) ? "replicas.codec.up=" : "replicas.codec.up.custom.name=") +
                scheme.info.name,
            options.values)) {
    set_.push_back(concat("replicas.count=", kReplicas));
    set_.push_back("clock.workers.spread=0.6");
    if (scheme.velocity || scheme.votes) {
      set_.push_back("optimizer.rule=sgd");
    }
  }

  Result<std::vector<Finding>> run() {
    const auto made = replicas_blueprint(set_);
    if (!made) {
      return made.error();
    }
    chosen_ = made->experiment.replicas().codec();
    return std::vector<Finding>{caught("messages", [&] { return messages(); }),
                                caught("strangers", [&] { return strangers(); }),
                                two_equal_runs(set_),
                                resumes(set_)};
  }

 private:
  static constexpr std::int64_t kSizes[] = {1, 31, 64, 1000, 4097};

  CodedLink link(std::int64_t n) const {
    return {.codec = make_codec({.chosen = chosen_.up(),
                                 .parts = {{.name = "w", .offset = 0, .shape = {n}}},
                                 .elements = n,
                                 .replicas = kReplicas,
                                 .feedback = keeps_residual(chosen_)}),
            .feedback = keeps_residual(chosen_),
            .seed = 1,
            .name = 1};
  }

  Finding messages() const {
    Stream stream{Device{}};
    double words = 0;
    double numbers = 0;
    for (const std::int64_t n : kSizes) {
      LinkState state[2];
      for (std::uint64_t number = 0; number < 3; ++number) {
        std::vector<float> x = drawn(n, number);
        if (number == 2) {
          std::fill(x.begin(), x.end(), 0.0f);
        }
        const Tensor update = from_host(stream, x, {n});
        const CodedLink here = link(n);
        const Tensor one = here.encode(stream, update, 1, state[0]);
        const Tensor other = here.encode(stream, update, 1, state[1]);
        const auto a = one.span<std::int32_t>();
        const auto b = other.span<std::int32_t>();
        if (!std::equal(a.begin(), a.end(), b.begin(), b.end())) {
          return {"messages", false, concat("of the same ", n, " numbers two messages differ")};
        }
        for (const float value : decoded_on_host(*here.codec, one, n).span<float>()) {
          if (!std::isfinite(value)) {
            return {"messages", false, concat("of ", n, " numbers one is not finite any more")};
          }
        }
        words += static_cast<double>(a.size());
        numbers += static_cast<double>(n);
      }
    }
    return {"messages",
            true,
            fill_in("each is understood, and the same of the same numbers; {} % of their size",
                    std::round(100 * words / numbers))};
  }

  /// Messages that are none, or of other numbers: they may be refused, and must not end the process.
  Finding strangers() const {
    Stream stream{Device{}};
    std::int64_t looked_at = 0;
    std::int64_t refused = 0;
    for (const std::int64_t n : kSizes) {
      LinkState state;
      const CodedLink here = link(n);
      const Tensor sound = here.encode(stream, from_host(stream, drawn(n, 1), {n}), 1, state);
      const auto words = sound.span<std::int32_t>();
      for (std::size_t i = 0; i <= words.size(); i += 1 + words.size() / 16) {
        for (const std::uint32_t wrong : {0u, 0x7fffffffu, 0xffffffffu}) {
          std::vector<std::uint32_t> message(words.begin(), words.end());
          i < message.size() ? message[i] = wrong : message.emplace_back(wrong);
          std::vector<float> out(static_cast<std::size_t>(n));
          refused += here.codec->read(message, n, out.data()) ? 0 : 1;
          message.resize(i);
          refused += here.codec->read(message, n, out.data()) ? 0 : 1;
          looked_at += 2;
        }
      }
    }
    return {
        "strangers",
        refused > 0,
        concat("of ", looked_at, " messages that were changed or cut ", refused, " are refused")};
  }

  const CodecScheme& scheme_;
  Assignments set_;
  proto::Codecs chosen_;
};

// -- optimizers -------------------------------------------------------------------------------------

class OptimizerKit {
 public:
  OptimizerKit(const OptimizerScheme& scheme, const ConformanceOptions& options)
      : scheme_(scheme),
        set_(choose(
            (optimizer_schemes().built_in(scheme) ? "optimizer.rule=" : "optimizer.custom.name=") +
                scheme.info.name,
            options.values)) {}

  Result<std::vector<Finding>> run() {
    const auto made = replicas_blueprint(set_);
    if (!made) {
      return made.error();
    }
    values_ = OptionValues(scheme_.info.options, made->experiment.optimizer().custom());
    std::vector<Finding> all;
    for (const auto& [name, check] : {std::pair{"padding", &OptimizerKit::padding},
                                      std::pair{"in place", &OptimizerKit::in_place},
                                      std::pair{"pieces", &OptimizerKit::pieces}}) {
      all.push_back(scheme_.method.update
                        ? caught(name, [&, of = check] { return (this->*of)(); })
                        : Finding{name, true, "a kernel of the program moves the weights", false});
    }
    all.push_back(two_equal_runs(set_));
    all.push_back(resumes(set_));
    return all;
  }

 private:
  static constexpr std::int64_t kAll = 96;
  static constexpr std::int64_t kUsed = 64;  // the rest is padding

  struct Made {
    std::vector<double> w, direction;
    std::vector<std::vector<double>> moments;
    bool operator==(const Made&) const = default;
  };

  /// Three updates of the numbers from `begin` to `end`.
  Made updated(std::int64_t begin, std::int64_t end, bool in_place) const {
    Stream stream{Device{}};
    const auto part = [&](std::uint64_t name) {
      std::vector<float> x = drawn(kAll, name);
      std::fill(x.begin() + kUsed, x.end(), 0.0f);
      return from_host(
          stream, std::vector<float>(x.begin() + begin, x.begin() + end), {end - begin});
    };
    UpdateTensors t{.w = part(0), .g = {}, .w_new = {}, .moments = {}};
    for (int i = 0; i < scheme_.method.moments; ++i) {
      t.moments.push_back(from_host(
          stream, std::vector<float>(static_cast<std::size_t>(end - begin)), {end - begin}));
    }
    Made made;
    for (std::uint64_t update = 1; update <= 3; ++update) {
      t.g = part(update);
      t.w_new = in_place ? t.w : stream.allocate({end - begin});
      const UpdateNumbers numbers{.update = static_cast<std::int64_t>(update),
                                  .rate = 0.01,
                                  .gradient_scale = 0.5,
                                  .momentum = 0.9,
                                  .beta2 = 0.99,
                                  .epsilon = 1e-8,
                                  .weight_decay = 0.1};
      made.direction = to_host(scheme_.method.update(stream, numbers, values_, t));
      t.w = t.w_new;
    }
    made.w = to_host(t.w);
    for (const Tensor& moment : t.moments) {
      made.moments.push_back(to_host(moment));
    }
    return made;
  }

  Finding padding() const {
    const Made made = updated(0, kAll, false);
    const auto stays = [](const std::vector<double>& x) {
      return std::all_of(x.begin() + kUsed, x.end(), [](double value) { return value == 0; });
    };
    const bool all = stays(made.w) && stays(made.direction) &&
                     std::all_of(made.moments.begin(), made.moments.end(), stays);
    return {
        "padding", all, concat("what is 0 at the start ", all ? "stays" : "does not stay", " 0")};
  }

  Finding in_place() const {
    const bool same = updated(0, kAll, false) == updated(0, kAll, true);
    return {"in place", same, concat(same ? "the same" : "something else", " where w_new is w")};
  }

  Finding pieces() const {
    if (scheme_.matrices) {
      return {"pieces", true, "each parameter is moved by itself", false};
    }
    Made both = updated(0, kUsed / 2, false);
    const Made second = updated(kUsed / 2, kAll, false);
    both.w.insert(both.w.end(), second.w.begin(), second.w.end());
    const bool same = both.w == updated(0, kAll, false).w;
    return {"pieces",
            same,
            same ? "the same weights wherever a slice is cut"
                 : "the weights depend on where a slice is cut, and so on replicas.shards"};
  }

  const OptimizerScheme& scheme_;
  Assignments set_;
  OptionValues values_;
};

// -- layers -----------------------------------------------------------------------------------------

using Numbers = std::vector<float>;

class LayerKit {
 public:
  LayerKit(std::shared_ptr<const Layer> layer, Shape input)
      : layer_(std::move(layer)), specs_(layer_->parameters()) {
    BundleShape after{{"x", input}};
    layer_->shapes(after);
    inputs_.push_back(drawn(with_batch(kRows, input).elements(), 0));
    shapes_.push_back(with_batch(kRows, input));
    output_ = with_batch(kRows, after.front().shape);
    dy_ = drawn(output_.elements(), 1);
    for (const ParameterSpec& spec : specs_) {
      Numbers w = drawn(spec.shape.elements(), 2 + inputs_.size());
      for (float& value : w) {
        value = (spec.initial == Initial::one ? 1 : 0) + 0.3f * value;
      }
      inputs_.push_back(std::move(w));
      shapes_.push_back(spec.shape);
    }
  }

  std::vector<Finding> run() {
    return {caught("pure", [&] { return pure(); }),
            caught("gradient", [&] { return gradient(); }),
            caught("adds", [&] { return adds(); })};
  }

 private:
  static constexpr std::int64_t kRows = 5;

  Pass pass() { return {.stream = stream_, .training = true, .seed = 1, .first_sample = 0}; }

  std::vector<Tensor> weights(const std::vector<Numbers>& inputs) {
    std::vector<Tensor> w;
    for (std::size_t i = 1; i < inputs.size(); ++i) {
      w.push_back(from_host(stream_, inputs[i], shapes_[i]));
    }
    return w;
  }

  std::vector<double> forward(const std::vector<Numbers>& inputs, Saved& saved) {
    Bundle bundle{{"x", from_host(stream_, inputs[0], shapes_[0])}};
    const std::vector<Tensor> w = weights(inputs);
    layer_->forward(pass(), w, {}, bundle, saved);
    TROUPE_CHECK(bundle.front().tensor.shape() == output_,
                 "its output has another shape than it says");
    return to_host(bundle.front().tensor);
  }

  double loss(const std::vector<Numbers>& inputs) {
    Saved saved;
    const std::vector<double> y = forward(inputs, saved);
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) {
      sum += y[i] * dy_[i];
    }
    return sum;
  }

  /// Of x and each parameter, added to `start` where that is not empty.
  std::vector<std::vector<double>> gradients(float start, bool accumulate) {
    Saved saved;
    forward(inputs_, saved);
    Bundle error{{"x", from_host(stream_, dy_, output_)}};
    const std::vector<Tensor> w = weights(inputs_);
    layer_->input_gradient(pass(), w, saved, error, true);
    std::vector<std::vector<double>> all{to_host(error.front().tensor)};
    std::vector<Gradient> to;
    for (const Tensor& one : w) {
      const auto size = static_cast<std::size_t>(one.elements());
      to.push_back({from_host(stream_, Numbers(size, start), one.shape()), accumulate});
    }
    layer_->weight_gradient(stream_, saved, to);
    for (const Gradient& g : to) {
      all.push_back(to_host(g.to));
    }
    return all;
  }

  Finding pure() {
    Saved saved;
    const bool same = forward(inputs_, saved) == forward(inputs_, saved);
    return {"pure", same, concat("two equal forwards: ", same ? "equal" : "different", " outputs")};
  }

  /// Along random directions, beside central differences.
  Finding gradient() {
    constexpr float kStep = 1e-3f;
    constexpr double kOff = 0.03;
    constexpr std::uint64_t kDirections = 16;
    const auto g = gradients(0, false);
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      double off = 0;
      double size = 0;
      for (std::uint64_t d = 0; d < kDirections; ++d) {
        const Numbers along = drawn(static_cast<std::int64_t>(inputs_[i].size()), 100 + d);
        std::vector<Numbers> up = inputs_;
        std::vector<Numbers> down = inputs_;
        double said = 0;
        for (std::size_t k = 0; k < along.size(); ++k) {
          up[i][k] += kStep * along[k];
          down[i][k] -= kStep * along[k];
          said += g[i].at(k) * (up[i][k] - down[i][k]);
        }
        const double found = loss(up) - loss(down);
        off += (found - said) * (found - said);
        size += std::max(found * found, said * said);
      }
      if (!(off <= kOff * kOff * size)) {
        return {"gradient",
                false,
                fill_in("the gradient by {} is off by {} % of what differences say",
                        i == 0 ? std::string("x") : specs_[i - 1].name,
                        std::round(100 * std::sqrt(off / size)))};
      }
    }
    return {"gradient", true, concat("by x and ", specs_.size(), " parameters as differences say")};
  }

  Finding adds() {
    if (specs_.empty()) {
      return {"adds", true, "it has no parameters", false};
    }
    const auto alone = gradients(7, false);
    const auto added = gradients(7, true);
    for (std::size_t i = 1; i < alone.size(); ++i) {
      for (std::size_t k = 0; k < alone[i].size(); ++k) {
        if (std::abs(alone[i][k] + 7 - added[i][k]) > 1e-4 * (7 + std::abs(alone[i][k]))) {
          return {"adds", false, "it does not add to the gradients of earlier micro-batches"};
        }
      }
    }
    return {"adds", true, "it adds to the gradients of earlier micro-batches"};
  }

  Stream stream_{Device{}};
  std::shared_ptr<const Layer> layer_;
  std::vector<ParameterSpec> specs_;
  std::vector<Numbers> inputs_;  // x, then each parameter
  std::vector<Shape> shapes_;
  Shape output_;
  Numbers dy_;
};

}  // namespace

Result<std::vector<Finding>> check_codec_conformance(const CodecScheme& scheme,
                                                     const ConformanceOptions& options) {
  if (!scheme.codec) {
    return Error{ErrorKind::usage, concat("conformance: ", scheme.info.name, " codes nothing")};
  }
  return CodecKit(scheme, options).run();
}

Result<std::vector<Finding>> check_optimizer_conformance(const OptimizerScheme& scheme,
                                                         const ConformanceOptions& options) {
  return OptimizerKit(scheme, options).run();
}

Result<std::vector<Finding>> check_layer_conformance(const LayerScheme& scheme,
                                                     const ConformanceOptions& options) {
  proto::Experiment given;
  for (const std::string& value : options.values) {
    if (auto set = set_value(given, "optimizer.custom.values." + value); !set) {
      return set.error();
    }
  }
  const proto::CustomScheme& values = given.optimizer().custom();
  if (auto legal = check_options(scheme.info, values, "layer"); !legal) {
    return legal.error();
  }
  Error why;
  for (const Shape& input : {Shape{12}, Shape{6, 8}, Shape{6, 6, 3}}) {
    auto made = scheme.make("layer", {{"x", input}}, OptionValues(scheme.info.options, values));
    if (made) {
      return LayerKit(*std::move(made), input).run();
    }
    why = made.error();
  }
  return why;
}

}  // namespace troupe::conformance
