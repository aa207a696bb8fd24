"""Writes tests/runtime/model/golden.hpp: losses and gradients of small networks, and steps of every optimizer, by PyTorch
in float64.

  tests/peers/golden.py > tests/runtime/model/golden.hpp

Weights and batches are formulas over integers, which golden_test.cpp has too. So that float32 may be
compared at all, no value may stand so near a kink (0 at relu and selu, two equal maxima) that rounding
could move it to the other side: the least distance of each case is checked and printed on stderr.
"""

import sys

import numpy
import torch
import torch.nn.functional as F

import networks
import optimizers

# The largest error of a tensor over its norm that the test allows, unless PyTorch's own in float32 is more than half of
# it: deep networks with batch norms over few rows have 3 times their own.
TOLERANCE = 2e-5
KINK_MIN = 4e-6  # some times the rounding behind a dozen batch norms; other batches were tried where one was nearer

# Name, model, shape of a sample, rows, classes (of tokens, where the model reads them), values of a target, smoothing,
# module.
CASES = [
    ("mlp relu", "mlp { hidden: [9, 7] }", (5, 3, 2), 6, 4, 0, 0.1, lambda: networks.Mlp(30, [9, 7], 4, "relu")),
    ("mlp tanh", "mlp { hidden: [9, 7] activation: tanh }", (13,), 6, 0, 3, 0.0, lambda: networks.Mlp(13, [9, 7], 3, "tanh")),
    ("mlp gelu", "mlp { hidden: [9] activation: gelu }", (13,), 6, 4, 0, 0.0, lambda: networks.Mlp(13, [9], 4, "gelu")),
    ("mlp gelu_erf", "mlp { hidden: [9] activation: gelu_erf }", (13,), 6, 4, 0, 0.0, lambda: networks.Mlp(13, [9], 4, "gelu_erf")),
    ("mlp silu", "mlp { hidden: [9] activation: silu }", (13,), 6, 4, 0, 0.0, lambda: networks.Mlp(13, [9], 4, "silu")),
    ("snn", "snn { hidden: [9, 9, 7] }", (13,), 6, 4, 0, 0.0, lambda: networks.Mlp(13, [9, 9, 7], 4, "selu")),
    ("lenet5", "lenet5 {}", (16, 16, 2), 3, 5, 0, 0.0, lambda: networks.LeNet5(16, 2, 5)),
    ("vgg", "vgg {}", (32, 32, 3), 4, 5, 0, 0.0, lambda: networks.Vgg(outputs=5)),
    ("vgg plain", "vgg { batch_norm: false }", (32, 32, 3), 2, 5, 0, 0.0, lambda: networks.Vgg(outputs=5, batch_norm=False)),
    ("vgg16", "vgg { depth: 16 }", (32, 32, 3), 2, 5, 0, 0.0, lambda: networks.Vgg(16, outputs=5)),
    ("resnet", "resnet { depth: 20 }", (16, 16, 3), 8, 5, 0, 0.0, lambda: networks.ResNet(20, 5)),
    ("resnet32", "resnet { depth: 32 }", (16, 16, 3), 4, 5, 0, 0.0, lambda: networks.ResNet(32, 5)),
    ("resnet56", "resnet { depth: 56 }", (16, 16, 3), 4, 5, 0, 0.0, lambda: networks.ResNet(56, 5)),
    ("resnet18", "resnet { depth: 18 small_stem: false }", (16, 16, 3), 7, 5, 0, 0.0, lambda: networks.ResNet(18, 5, small_stem=False)),
    ("lstm", "lstm { layers: 2 width: 6 }", (5,), 3, 11, 0, 0.0, lambda: networks.Lstm(11, 6, 2, False)),
    ("lstm residual", "lstm { layers: 2 width: 6 residual: true }", (5,), 3, 11, 0, 0.0, lambda: networks.Lstm(11, 6, 2, True)),
    ("gpt tied", "gpt { layers: 2 width: 8 heads: 2 }", (7,), 3, 11, 0, 0.1, lambda: networks.Gpt(11, 7, 8, 2, 2, True)),
    ("gpt untied", "gpt { layers: 2 width: 8 heads: 2 tied: false }", (7,), 3, 11, 0, 0.0, lambda: networks.Gpt(11, 7, 8, 2, 2, False)),
    ("custom images", f"layers {{ {networks.CUSTOM_IMAGES} }}", (14, 14, 3), 3, 5, 0, 0.0, lambda: networks.CustomImages(3, 5)),
    ("custom norms", f"layers {{ {networks.CUSTOM_NORMS} }}", (12, 12, 3), 3, 5, 0, 0.0, lambda: networks.CustomNorms(12, 3, 5)),
    ("custom pools", f"layers {{ {networks.CUSTOM_POOLS} }}", (12, 12, 3), 2, 5, 0, 0.0, lambda: networks.CustomPools(3, 5)),
    ("custom text", f"layers {{ {networks.CUSTOM_TEXT} }}", (5,), 3, 11, 0, 0.0, lambda: networks.CustomText(11, 5)),
    ("llama", "llama { layers: 2 width: 8 heads: 2 hidden: 10 }", (7,), 3, 11, 0, 0.1, lambda: networks.Llama(11, 8, 2, 2, 2, 10)),
    ("llama tied, heads on one of keys", "llama { layers: 2 width: 16 heads: 4 kv_heads: 1 theta: 500 tied: true }", (7,), 3, 11, 0, 0.0, lambda: networks.Llama(11, 16, 2, 4, 1, 64, 500, True)),
    ("llama of experts", "llama { layers: 2 width: 8 heads: 2 hidden: 6 experts: 3 chosen: 2 capacity: 0.75 balance: 0.2 }", (7,), 3, 11, 0, 0.0,
     lambda: networks.Llama(11, 8, 2, 2, 2, 0, experts=lambda: networks.Mixture(8, 6, 3, 2, 0.2, 0.75))),
    ("custom text of today", f"layers {{ {networks.CUSTOM_MODERN} }}", (7,), 3, 11, 0, 0.0, lambda: networks.CustomModern(11)),
    ("custom text without positions", f"layers {{ {networks.CUSTOM_TOKENS} }}", (5,), 3, 11, 0, 0.0, lambda: networks.CustomTokens(11)),
]  # fmt: skip

# Of an optimizer's weights: the rounding of 6 steps, and of Newton-Schulz's products. PyTorch's own float32 is checked.
RULE_TOLERANCE = 5e-7
RULE_STEPS = 6
RULES = [
    "rule: sgd",
    "rule: momentum",
    "rule: nesterov",
    "rule: adam",
    "rule: adamw",
    "rule: nadam",
    "rule: nadamw",
    "rule: adagrad",
    "rule: rmsprop beta2: 0.99",
    "rule: muon",
    "rule: momentum clip_norm: 1.5",
]
EVERY_RULE = "learning_rate: 0.03 weight_decay: 0.01"

X, TARGET, GRADIENT = 1000, 1001, 2000  # keys of what is no weight
READ_TOKENS = ("lstm", "gpt", "llama", "custom text")


# -- the formulas, as in golden_test.cpp ---------------------------------------------------------------


def hashed(key, count):
    """count numbers below 2^32 (the last steps of MurmurHash3)."""
    h = (numpy.arange(count, dtype=numpy.uint64) * 2654435761 + key * 40503) & 0xFFFFFFFF
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        h = ((h ^ (h >> numpy.uint64(shift))) * factor) & 0xFFFFFFFF
    return h


def numbers(key, count):
    """Multiples of 2^-24 in [-1/2, 1/2)."""
    return (hashed(key, count) >> numpy.uint64(8)).astype(numpy.float64) / 2**24 - 0.5


def weight(key, name, shape):
    u = numbers(key, int(numpy.prod(shape)))
    if len(shape) > 1:
        fan_in = int(numpy.prod(shape[1:]))
        scale = 4.0
        while fan_in >= 4:
            fan_in //= 4
            scale /= 2
        u = scale * u
    elif name.endswith((".weight", ".running_var")):
        u = 1 + u / 2
    else:
        u = u / 4
    return torch.from_numpy(u.astype(numpy.float32).reshape(shape))


def batch(sample, rows, classes, values, tokens):
    count = rows * int(numpy.prod(sample))
    if tokens:
        x = torch.from_numpy((hashed(X, count) % classes).astype(numpy.int64))
        target = torch.from_numpy((hashed(TARGET, count) % classes).astype(numpy.int64))
        return x.reshape(rows, *sample), target.reshape(rows, *sample)
    x = torch.from_numpy(4 * numbers(X, count)).reshape(rows, *sample)
    if values:
        return x, torch.from_numpy(numbers(TARGET, rows * values)).reshape(rows, values)
    return x, torch.from_numpy((hashed(TARGET, rows) % classes).astype(numpy.int64))


# -- kinks ---------------------------------------------------------------------------------------------

distances = []


def watched(function):
    def call(x, *more, **named):
        distances.append(float(x.detach().abs().min()))
        return function(x, *more, **named)

    return call


def watched_pool(function):
    def call(x, kernel, stride=None, padding=0, *more, **named):
        planes = x.detach().flatten(0, 1)[:, None]
        two = F.unfold(planes, kernel, stride=stride or kernel, padding=padding).topk(2, 1).values
        gap = (two[:, 0] - two[:, 1])[two[:, 0] != 0]  # behind relu a 0 has no gradient anyway
        distances.append(float(gap.min()))
        return function(x, kernel, stride, padding, *more, **named)

    return call


# -- the header ----------------------------------------------------------------------------------------


def text_of(number):
    return repr(float(number))


def row(name, tensor):
    flat = tensor.detach().double().flatten()
    chosen = [flat[0], flat[len(flat) // 2], flat[-1]]
    return (
        f'     {{"{name}", {text_of(flat.sum())}, {text_of(flat.square().sum())}, '
        f"{{{', '.join(map(text_of, chosen))}}}}},"
    )


def error_of(gradients, truth):
    """The largest error of a gradient over its norm; as golden_test.cpp measures one that is 0 but for rounding."""
    squares = {n: float(g.square().sum()) for n, g in truth.items()}
    worst = 0.0
    for n, g in truth.items():
        layer = n.rpartition(".")[0]
        zero = squares[n] < 1e-24 * max(squares.values())
        scale = max(s for m, s in squares.items() if m.rpartition(".")[0] == layer) if zero else squares[n]
        error = float((gradients[n].double() - g).norm())
        worst = max(worst, error / scale**0.5 if error else 0.0)
    return worst


def gradients_of(module, x, target, smoothing):
    """The loss, and all gradients; that of an expert which nothing goes through is 0."""
    loss = networks.loss_of(module(x), target, smoothing)
    loss.backward()
    return loss.detach(), {n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in module.named_parameters()}


def write_case(name, model, sample, rows, classes, values, smoothing, make):
    module = make()
    state = {n: t for n, t in module.state_dict().items() if not n.endswith("num_batches_tracked")}
    # Keys are places in Troupe's files: parameters, then running statistics.
    names = sorted(state, key=lambda n: "running" in n)
    tensors = {n: weight(key, n, tuple(state[n].shape)) for key, n in enumerate(names)}
    networks.load(module, tensors, torch.float64)
    tokens = name.startswith(READ_TOKENS)
    x, target = batch(sample, rows, classes, values, tokens)
    distances.clear()
    loss, gradients = gradients_of(module, x, target, smoothing)
    nearest = min(distances, default=float("inf"))
    if nearest < KINK_MIN:
        raise SystemExit(f"{name}: {nearest:.1e} from a kink")
    single = networks.load(make(), tensors, torch.float32)
    real = [t.float() if t.is_floating_point() else t for t in (x, target)]
    own = error_of(gradients_of(single, *real, smoothing)[1], gradients)
    tolerance = TOLERANCE if own <= TOLERANCE / 2 else 3 * own
    print(f"{name}: nearest to a kink {nearest:.1e}, error of float32 {own:.1e}", file=sys.stderr)
    smoothed = f" label_smoothing: {smoothing}" if smoothing else ""
    print(f'    {{"{name}",')
    print(f'     "model {{ {model}{smoothed} }}",')
    shape = ", ".join(map(str, sample))
    says = "true" if tokens else "false"
    print(f"     {{{shape}}}, {rows}, {says}, {classes}, {values}, {text_of(loss)}, {tolerance:.1e},")
    print("     {")
    for n in names:
        print(row(n, gradients[n] if n in gradients else dict(module.named_buffers())[n]))
    print("     }},")


def stepped(options, dtype):
    """The weights of an LSTM after RULE_STEPS steps along gradients that are formulas too."""
    module = networks.Lstm(11, 6, 1, False)
    names = networks.parameter_names(module)
    tensors = {n: weight(key, n, tuple(w.shape)) for key, (n, w) in enumerate(module.named_parameters())}
    networks.load(module, tensors, dtype)
    pairs = options.replace(":", "").split()
    known = {k: v if k == "rule" else float(v) for k, v in zip(pairs[::2], pairs[1::2])}
    steppers = optimizers.optimizers(module, known)
    for step in range(RULE_STEPS):
        for key, w in enumerate(module.parameters()):
            g = numbers(GRADIENT + step * len(names) + key, w.numel())
            w.grad = torch.from_numpy(g).reshape(w.shape).to(dtype)
        if "clip_norm" in known:
            optimizers.clip(module, known["clip_norm"])
        for stepper in steppers:
            stepper.step()
    return {n: w.detach() for n, w in module.named_parameters()}


def write_rule(rule):
    options = f"{rule} {EVERY_RULE}"
    weights = stepped(options, torch.float64)
    own = error_of(stepped(options, torch.float32), weights)
    print(f"{rule}: error of float32 {own:.1e}", file=sys.stderr)
    if 3 * own > RULE_TOLERANCE:
        raise SystemExit(f"{rule}: {own:.1e} by PyTorch's own float32")
    print(f'    {{"optimizer {{ {options} }}",\n     {{')
    for name, tensor in weights.items():
        print(row(name, tensor))
    print("     }},")


def main():
    torch.set_num_threads(1)
    F.relu = watched(F.relu)
    F.selu = networks.ACTIVATIONS["selu"] = watched(F.selu)
    networks.ACTIVATIONS["relu"] = F.relu
    F.max_pool2d = watched_pool(F.max_pool2d)
    print(
        f"""// Generated by `tests/peers/golden.py > tests/runtime/model/golden.hpp` with PyTorch {torch.__version__},
// in float64. golden_test.cpp has the formulas of weights and batches.
#pragma once

#include "kernels/shape.hpp"

#include <array>
#include <cstdint>
#include <vector>

namespace troupe::test {{

/// The gradient of a parameter, or a running statistic or a weight after the step, in PyTorch's order.
struct GoldenTensor {{
  const char* name;
  double sum;
  double squares;                  // sum of squares
  std::array<double, 3> elements;  // the first, the one at count / 2, the last
}};

struct Golden {{
  const char* name;
  const char* model;
  Shape sample;
  std::int64_t rows;
  bool tokens;
  int classes;          // or
  std::int64_t values;  // of a target
  double loss;
  double tolerance;  // of the loss over itself, and of a tensor's error over its norm
  std::vector<GoldenTensor> tensors;
}};

// clang-format off
inline const std::vector<Golden> kGolden{{"""
    )
    for case in CASES:
        write_case(*case)
    print(
        f"""}};

/// What stands in weights after kRuleSteps updates of an LSTM of one layer, width 6 and 11 tokens.
struct GoldenRule {{
  const char* optimizer;
  std::vector<GoldenTensor> tensors;
}};

inline constexpr std::uint32_t kRuleSteps = {RULE_STEPS};
inline constexpr double kRuleTolerance = {RULE_TOLERANCE};  // of a weight's error over its norm

inline const std::vector<GoldenRule> kGoldenRules{{"""
    )
    for rule in RULES:
        write_rule(rule)
    print("};\n// clang-format on\n\n}  // namespace troupe::test")


if __name__ == "__main__":
    main()
