// What kernels/BENCHMARKS.md leaves to a measurement on cuda:0: the times of the ways that there are, and in the last line the answer.
//
//   gpu_decisions waiting|bgrad|lenet|muon|attention [small]     # small: sizes for the GPU that the CPU plays
//
// Where a way is not written, the last line says how much it could win at most. Exit status 4: it cannot run here.
#include "tests/gpu/decisions.hpp"

#include "kernels/convolution.hpp"
#include "kernels/loss.hpp"
#include "kernels/matmul.hpp"
#include "kernels/orthogonalize.hpp"
#include "kernels/update.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe::decisions {

bool small = false;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double seconds(Stream& stream, const std::function<void()>& pass) {
  const int turns = small ? 1 : 30;
  double least = 0;
  pass();
  stream.synchronize();
  for (int round = 0; round < (small ? 1 : 3); ++round) {
    const double begin = now();
    for (int i = 0; i < turns; ++i) {
      pass();
    }
    stream.synchronize();
    const double took = (now() - begin) / turns;
    least = round == 0 ? took : std::min(least, took);
  }
  return least;
}

Tensor varied(Stream& stream, Shape shape) {
  std::vector<float> values(static_cast<std::size_t>(shape.elements()));
  double x = 0;
  for (float& value : values) {
    x += 0.6180339887498949;
    x -= std::floor(x);
    value = static_cast<float>(0.1 * x - 0.05);
  }
  return from_host(stream, std::span<const float>(values), shape);
}

}  // namespace troupe::decisions

using namespace troupe;
using namespace troupe::decisions;

namespace {

double percent(double part, double whole) {
  return 100 * part / whole;
}

// -- a step of dense layers -------------------------------------------------------

/// Forward, loss, backward and an update with momentum; relu between layers.
class Mlp {
 public:
  Mlp(Stream& stream, std::vector<std::int64_t> widths, std::int64_t batch)
      : stream_(stream), widths_(std::move(widths)), batch_(batch) {
    const std::vector<std::int32_t> labels(static_cast<std::size_t>(batch));
    labels_ = from_host(stream, std::span<const std::int32_t>(labels), {batch});
    result_ = stream.allocate({2}, DType::float64);
    x_ = varied(stream, {batch, widths_[0]});
    for (std::size_t i = 0; i + 1 < widths_.size(); ++i) {
      const Shape shape{widths_[i + 1], widths_[i]};
      w_.push_back(varied(stream, shape));
      dw_.push_back(varied(stream, shape));
      m_.push_back(varied(stream, shape));
      b_.push_back(varied(stream, {widths_[i + 1]}));
      db_.push_back(varied(stream, {widths_[i + 1]}));
    }
  }

  struct Parts {
    bool bias_gradients = true;
    bool all_but_products = true;
    bool kept = true;  // activations and errors stand in the same memory in each step
    bool muon = false;
  };

  void step(const Parts& parts) {
    if (!parts.kept) {
      kept_.clear();
    }
    const std::size_t layers = w_.size();
    for (std::size_t i = 0; i < layers; ++i) {
      MatmulOptions options{.transpose_b = true};
      if (parts.all_but_products) {
        options.bias = b_[i];
        options.activation = i + 1 < layers ? ActivationKind::relu : ActivationKind::none;
      }
      matmul(stream_, activation(i), w_[i], activation(i + 1), options);
    }
    if (parts.all_but_products) {
      softmax_cross_entropy(stream_, activation(layers), labels_, error(layers), result_);
    }
    for (std::size_t i = layers; i-- > 0;) {
      const Tensor dy = error(i + 1);
      if (parts.all_but_products && i + 1 < layers) {
        activation_backward(stream_, ActivationKind::relu, activation(i + 1), dy, dy);
      }
      matmul(stream_, dy, activation(i), dw_[i], {.transpose_a = true});
      if (parts.all_but_products && parts.bias_gradients) {
        column_sum(stream_, dy, db_[i], false);
      }
      if (i > 0) {
        matmul(stream_, dy, w_[i], error(i));
      }
    }
    if (parts.all_but_products) {
      renew(parts.muon);
    }
  }

  /// Tensors that a step takes from the pool where none are kept.
  std::int64_t taken() const { return static_cast<std::int64_t>(kept_.size()); }

 private:
  Tensor activation(std::size_t i) { return i == 0 ? x_ : tensor("a", i); }

  Tensor error(std::size_t i) { return tensor("e", i); }

  Tensor tensor(const std::string& of, std::size_t i) {
    Tensor& kept = kept_[of + std::to_string(i)];
    if (!kept) {
      kept = stream_.allocate({batch_, widths_[i]});
    }
    return kept;
  }

  void renew(bool muon) {
    for (std::size_t i = 0; i < w_.size(); ++i) {
      if (muon && i + 1 < w_.size()) {  // the last layer is not Muon's
        orthogonalize(stream_, dw_[i], dw_[i]);
      }
      UpdateArguments a;
      a.kernel = UpdateKernel::momentum;
      a.scalars = {.rate = 1e-6f, .gamma = 0.9f};
      const Shape flat{w_[i].elements()};
      a.w = a.w_new = w_[i].reshape(flat);
      a.g = dw_[i].reshape(flat);
      a.m = m_[i].reshape(flat);
      update(stream_, a);
    }
  }

  Stream& stream_;
  std::vector<std::int64_t> widths_;
  std::int64_t batch_;
  Tensor labels_, result_, x_;
  std::vector<Tensor> w_, dw_, m_, b_, db_;
  std::map<std::string, Tensor> kept_;
};

Mlp mlp(Stream& stream) {
  return small ? Mlp(stream, {32, 48, 48, 10}, 8) : Mlp(stream, {784, 1024, 1024, 10}, 128);
}

void bgrad(Stream& stream) {
  Mlp net = mlp(stream);
  const double whole = seconds(stream, [&] { net.step({}); });
  const double without = seconds(stream, [&] { net.step({.bias_gradients = false}); });
  const double products = seconds(stream, [&] { net.step({.all_but_products = false}); });
  const double fresh = seconds(stream, [&] { net.step({.kept = false}); });
  std::printf("step of the MLP %.1f us, %.0f samples/s\n", 1e6 * whole, (small ? 8 : 128) / whole);
  std::printf("its products alone %.1f us, %.0f %%\n", 1e6 * products, percent(products, whole));
  std::printf("a tensor that retires and comes again, with its event: %.2f us\n",
              1e6 * (fresh - whole) / static_cast<double>(net.taken()));
  const double part = (whole - without) / whole;
  std::printf(
      "bias gradients by column_sum take %.1f of %.1f us, %.1f %%, and BGRAD, which is not "
      "written, can win no more: %s\n",
      1e6 * (whole - without),
      1e6 * whole,
      100 * part,
      part > kPart ? "worth writing" : "not worth writing");
}

void muon(Stream& stream) {
  Mlp net = mlp(stream);
  const double plain = seconds(stream, [&] { net.step({}); });
  const double with = seconds(stream, [&] { net.step({.muon = true}); });
  std::printf(
      "step of the MLP with momentum %.1f us, with Muon %.1f us\n", 1e6 * plain, 1e6 * with);
  double all = 0, in_products = 0;
  const std::vector<Shape> hidden = small ? std::vector<Shape>{{48, 32}, {48, 48}}
                                          : std::vector<Shape>{{1024, 784}, {1024, 1024}};
  for (const Shape& shape : hidden) {
    const bool tall = shape[0] > shape[1];
    const std::int64_t side = std::min(shape[0], shape[1]);
    const Tensor x = varied(stream, shape), y = varied(stream, shape);
    const Tensor gram = varied(stream, {side, side}), powers = varied(stream, {side, side});
    const double whole = seconds(stream, [&] { orthogonalize(stream, x, y); });
    const double products =
        5 * seconds(stream, [&] {  // of one of its five steps
          matmul(stream, x, x, gram, {.transpose_a = tall, .transpose_b = !tall});
          matmul(stream, gram, gram, powers, {.accumulate = true});
          matmul(stream, tall ? x : powers, tall ? powers : x, y, {.accumulate = true});
        });
    std::printf("orthogonalize (%lld, %lld) %.1f us, its products %.1f us\n",
                static_cast<long long>(shape[0]),
                static_cast<long long>(shape[1]),
                1e6 * whole,
                1e6 * products);
    all += whole;
    in_products += products;
  }
  const double rest = std::max(0.0, all - in_products);
  const double share = std::max(0.0, (with - plain) / with);
  std::printf(
      "orthogonalize is %.0f %% of a step with Muon, and %.0f %% of it are its copies and "
      "scalings, %.1f %% of the step: products with factors of their own, which are not written, "
      "are %s\n",
      100 * share,
      percent(rest, all),
      100 * share * rest / all,
      share * rest / all > kPart ? "worth writing" : "not worth writing");
}

// -- LeNet-5 ----------------------------------------------------------------------

struct Convolution {
  double all = 0;  // forward, weights' and (where wanted) input's gradient, in seconds
  double bias_and_activation = 0;  // of it
};

Convolution convolution(
    Stream& stream, Shape image, std::int64_t outputs, std::int64_t padding, bool input_gradient) {
  const ConvolutionGeometry geometry{.kernel = 5, .padding = padding};
  const std::int64_t side = geometry.output(image[1]);
  const Tensor x = varied(stream, image), dx = varied(stream, image);
  const Tensor w = varied(stream, {outputs, 5, 5, image[3]});
  const Tensor dw = varied(stream, {outputs, 5, 5, image[3]}), bias = varied(stream, {outputs});
  const Tensor y = varied(stream, {image[0], side, side, outputs});
  const auto forward = [&](bool plain) {
    return seconds(stream, [&] {
      convolution_forward(stream,
                          {.geometry = geometry,
                           .x = x,
                           .w = w,
                           .bias = plain ? Tensor() : bias,
                           .activation = plain ? ActivationKind::none : ActivationKind::relu,
                           .y = y});
    });
  };
  const double with = forward(false), without = forward(true);
  const double backward = seconds(stream, [&] {
    convolution_weight_gradient(stream, geometry, x, y, dw, false);
    if (input_gradient) {
      convolution_input_gradient(stream, geometry, y, w, dx);
    }
  });
  return {with + backward, std::max(0.0, with - without)};
}

double pooling(Stream& stream, Shape image) {
  const ConvolutionGeometry geometry{.kernel = 2, .stride = 2};
  const Shape half{image[0], image[1] / 2, image[2] / 2, image[3]};
  const Tensor x = varied(stream, image), dx = varied(stream, image), y = varied(stream, half);
  const Tensor winner = stream.allocate(half, DType::int32);
  return seconds(stream, [&] {
    max_pool_forward(stream, geometry, x, y, winner);
    max_pool_backward(stream, geometry, y, winner, dx);
  });
}

void lenet(Stream& stream) {
  const std::int64_t batch = small ? 2 : 128;
  const auto both = [&](std::int64_t c, std::int64_t o, std::int64_t middle) {
    const Convolution first = convolution(stream, {batch, 28, 28, c}, o, 2, false);
    const Convolution second = convolution(stream, {batch, 14, 14, middle}, 16, 0, true);
    return Convolution{first.all + second.all,
                       first.bias_and_activation + second.bias_and_activation};
  };
  const Convolution as_is = both(1, 6, 6), padded = both(8, 8, 8);
  const double pools = pooling(stream, {batch, 28, 28, 6}) + pooling(stream, {batch, 10, 10, 16});
  Mlp net(stream, {400, 120, 84, 10}, batch);
  const double dense = seconds(stream, [&] { net.step({}); });
  const double step = as_is.all + pools + dense;
  std::printf("parts of a step of LeNet-5, one after the other: %.1f us, %.0f samples/s\n",
              1e6 * step,
              static_cast<double>(batch) / step);
  std::printf("convolutions %.1f us, %.0f %%; of it bias and activation %.1f us\n",
              1e6 * as_is.all,
              percent(as_is.all, step),
              1e6 * as_is.bias_and_activation);
  std::printf("pooling %.1f us, %.0f %%; dense layers and their update %.1f us\n",
              1e6 * pools,
              percent(pools, step),
              1e6 * dense);
  std::printf(
      "in a profile cuDNN's layout changes have nchwToNhwc in their names; own ones (NCHW) are not "
      "written\n");
  const double won = (as_is.all - padded.all) / step;
  std::printf(
      "convolutions with 1 and 6 channels %.1f us, with 8 %.1f us, %.1f %% of a step: channels "
      "%s\n",
      1e6 * as_is.all,
      1e6 * padded.all,
      100 * won,
      won > kPart ? "are worth padding" : "stay as they are");
}

int decide(std::string_view what) {
  const std::map<std::string_view, void (*)(Stream&)> decisions{
      {"bgrad", bgrad}, {"lenet", lenet}, {"muon", muon}, {"attention", [](Stream&) {
                                                             attention();
                                                           }}};
  const auto found = decisions.find(what);
  if (found == decisions.end()) {
    std::fprintf(stderr, "gpu_decisions waiting|bgrad|lenet|muon|attention [small]\n");
    return 2;
  }
  if (auto available = check_available(kDevice); !available) {
    std::printf("skipped: %s\n", available.error().message.c_str());
    return 4;
  }
  if (what == "lenet" && cudnn_version().empty()) {
    std::printf("skipped: cuDNN cannot be loaded\n");
    return 4;
  }
  Stream stream(kDevice);
  found->second(stream);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view what = argc > 1 ? argv[1] : "";
  small = argc > 2 && std::string_view(argv[2]) == "small";
  try {
    return what == "waiting" ? waiting() : decide(what);
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
}
