// How fast the passes over memory are on cuda:0, each as a share of a copy within the device.
//
//   gpu_bandwidth [ELEMENTS]     # 2^26
//
// A pass is charged for what it has to read and write once. Exit status 4: no GPU.
#include "kernels/activation.hpp"
#include "kernels/coding.hpp"
#include "kernels/convert.hpp"
#include "kernels/device.hpp"
#include "kernels/elementwise.hpp"
#include "kernels/loss.hpp"
#include "kernels/matmul.hpp"
#include "kernels/normalization.hpp"
#include "kernels/update.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>

using namespace troupe;

namespace {

constexpr int kTurns = 20;

struct Passes {
  Stream& stream;
  double of_copy = 0;  // bytes/s

  void measure(const std::string& name, double bytes, const std::function<void()>& pass) {
    pass();
    stream.synchronize();
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kTurns; ++i) {
      pass();
    }
    stream.synchronize();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    const double rate = bytes * kTurns / took.count();
    of_copy = of_copy > 0 ? of_copy : rate;
    std::printf(
        "%-28s %8.1f GB/s %6.1f %% of a copy\n", name.c_str(), rate / 1e9, 100 * rate / of_copy);
  }
};

/// Tensors of the stream's operand type.
void batch_norm(Passes& passes, Stream& stream, std::int64_t rows, std::int64_t columns) {
  const auto filled = [&](Shape shape, double value) {
    Tensor x = stream.allocate(shape);
    fill(stream, x, value);
    return x;
  };
  const Tensor x = operand(stream, filled({rows, columns}, 1)),
               y = operand(stream, filled({rows, columns}, 0)),
               dy = operand(stream, filled({rows, columns}, 0.5));
  const Tensor gamma = filled({columns}, 1), beta = filled({columns}, 0),
               mean = filled({columns}, 0), inverse = filled({columns}, 1);
  const bool narrow = x.type() == DType::bfloat16;
  const std::string size =
      "(" + std::to_string(rows) + ", " + std::to_string(columns) + ")" + (narrow ? " bf16" : "");
  const auto elements = static_cast<double>(rows * columns) * (narrow ? 0.5 : 1);
  passes.measure("batch norm forward " + size, 12 * elements, [&] {
    batch_norm_forward(stream,
                       ActivationKind::none,
                       {.x = x,
                        .gamma = gamma,
                        .beta = beta,
                        .epsilon = 1e-5f,
                        .y = y,
                        .mean = mean,
                        .inverse_deviation = inverse});
  });
  passes.measure("batch norm backward " + size, 20 * elements, [&] {
    batch_norm_backward(stream,
                        Tensor(),
                        {.x = x,
                         .gamma = gamma,
                         .mean = mean,
                         .inverse_deviation = inverse,
                         .dy = dy,
                         .dx = y,
                         .dgamma = gamma,
                         .dbeta = beta});
  });
}

void codecs(Passes& passes, Stream& stream, const Tensor& x, const Tensor& out) {
  const std::int64_t n = x.elements();
  const auto elements = static_cast<double>(n);
  const MessageRows one{.offset = 0, .size = n, .count = 1};
  const MessageRows rows{.offset = 0, .size = 256, .count = n / 256};

  struct Row {
    std::string name;
    MessageCode code;
    double bytes;  // of a number in the message
  };

  for (const auto& [name, code, bytes] :
       {Row{"int8, blocks of 256", {.kind = CodeKind::int8, .block = 256}, 1},
        Row{"bf16", {.kind = CodeKind::bfloats}, 2},
        Row{"one_bit, one row", {.kind = CodeKind::signs, .rows = {&one, 1}}, 0.125},
        Row{"one_bit, rows of 256", {.kind = CodeKind::signs, .rows = {&rows, 1}}, 0.125}}) {
    const Tensor message = stream.allocate({code.words(n)}, DType::int32);
    passes.measure("encode " + name, (4 + bytes) * elements, [&] {
      encode_message(stream, code, x, message);
    });
    passes.measure("decode " + name, (4 + bytes) * elements, [&] {
      decode_message(stream, code, message, out);
    });
    if (code.kind == CodeKind::int8) {
      const Tensor odd = stream.allocate({1}, DType::int32);
      passes.measure(
          "add what was left", 12 * elements, [&] { add_left(stream, x, 1, out, out, odd); });
      passes.measure("keep what is left, int8", 9 * elements, [&] {
        keep_left(stream, code, message, x, odd, out);
      });
    }
  }
}

/// What ResNet-50 and GPT-2 do between their products.
void in_bf16(double of_copy, std::int64_t n) {
  const Device device{DeviceKind::cuda, 0};
  if (!check_precision(device, Precision::bf16)) {
    return;
  }
  Stream stream(device, Precision::bf16);
  Passes passes{stream, of_copy};
  for (const std::int64_t columns : {64, 256, 2048}) {
    batch_norm(passes, stream, n / columns, columns);
  }
  const auto filled = [&](Shape shape) {
    Tensor x = stream.allocate(shape);
    fill(stream, x, 0.5);
    return operand(stream, x);
  };
  const Tensor x = filled({n}), dy = filled({n}), y = filled({n});
  const auto elements = static_cast<double>(n);
  for (const ActivationKind kind : {ActivationKind::relu, ActivationKind::gelu}) {
    const std::string name(to_string(kind));
    passes.measure(
        name + " forward bf16", 4 * elements, [&] { activation_forward(stream, kind, x, y); });
    passes.measure(name + " backward bf16", 6 * elements, [&] {
      activation_backward(stream, kind, x, dy, y);
    });
  }
  const Tensor wide = x.view(0, {n / 4864, 4864});
  const Tensor narrow = dy.view(0, {n / 4864, 2432});
  const auto gated = static_cast<double>(narrow.elements());
  passes.measure("silu gate forward bf16", 6 * gated, [&] {
    gate_forward(stream, ActivationKind::silu, wide, narrow);
  });
  passes.measure("silu gate backward bf16", 10 * gated, [&] {
    gate_backward(stream, ActivationKind::silu, wide, narrow, y.view(0, wide.shape()));
  });
  // GPT-2's classes; a row may begin anywhere.
  const std::int64_t classes = std::min<std::int64_t>(50257, n);
  const Shape logits{n / classes, classes};
  Stream host{Device{}};
  const Tensor first = host.allocate({logits[0]}, DType::int32);
  std::ranges::fill(first.span<std::int32_t>(), 0);
  const Tensor labels = stream.allocate(first.shape(), DType::int32);
  copy(stream, first, labels);
  const Tensor result = stream.allocate({2}, DType::float64);
  const Tensor part = x.view(0, logits);
  passes.measure("softmax and gradient bf16", 4 * static_cast<double>(logits.elements()), [&] {
    softmax_cross_entropy(stream, part, labels, y.view(0, logits), result, 0);
  });
}

}  // namespace

int main(int argc, char** argv) {
  const Device device{DeviceKind::cuda, 0};
  if (auto available = check_available(device); !available) {
    std::printf("skipped: %s\n", available.error().message.c_str());
    return 4;
  }
  const std::int64_t n = argc > 1 ? std::atoll(argv[1]) : std::int64_t{1} << 26;
  const auto elements = static_cast<double>(n);
  Stream stream(device);
  Passes passes{stream};
  const auto filled = [&](double value) {
    Tensor x = stream.allocate({n});
    fill(stream, x, value);
    return x;
  };
  const Tensor w = filled(1), g = filled(0.5), m = filled(0), v = filled(0.25);
  passes.measure("copy", 8 * elements, [&] { copy(stream, g, w); });
  passes.measure("add", 12 * elements, [&] { add(stream, g, w, ActivationKind::none, w); });
  for (const UpdateKernel kernel :
       {UpdateKernel::sgd, UpdateKernel::momentum, UpdateKernel::adam}) {
    UpdateArguments a;
    a.kernel = kernel;
    a.scalars = {.rate = 1e-6f, .gamma = 0.9f, .beta2 = 0.99f, .epsilon = 1e-6f};
    a.w = a.w_new = w;
    a.g = g;
    a.m = kernel == UpdateKernel::sgd ? Tensor() : m;
    a.v = kernel == UpdateKernel::adam ? v : Tensor();
    const int bytes = kernel == UpdateKernel::sgd ? 12 : kernel == UpdateKernel::momentum ? 20 : 28;
    passes.measure(
        "update, " + std::to_string(bytes) + " B", bytes * elements, [&] { update(stream, a); });
  }
  const Tensor norm = stream.allocate({1}, DType::float64);
  const Part whole{0, n};
  passes.measure("sum of squares", 4 * elements, [&] {
    sum_of_squares(stream, g, {&whole, 1}, norm);
  });
  const Tensor sums = stream.allocate({256});
  passes.measure("sums of 256 columns", 4 * elements, [&] {
    column_sum(stream, g.reshape({n / 256, 256}), sums, false);
  });
  codecs(passes, stream, g, w);
  batch_norm(passes, stream, n / 1024, 64);
  batch_norm(passes, stream, 1024, 512);
  in_bf16(passes.of_copy, n);
  return 0;
}
