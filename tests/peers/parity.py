"""Trains the same networks by Troupe and by PyTorch, from the same weights on the same batches.

  tests/peers/parity.py --troupe build/release/troupe [NAME...]

For each case: `troupe ckpt init` writes the weights, `troupe data batches` the batches, and `troupe
run` trains. PyTorch does the same in float64, which is taken as the truth, and in float32 several
times, each time with other roundings: as it is; with the samples of each batch in reverse, which is
the same sum in another order; without oneDNN; and from weights that are off by one rounding, with
the samples in an order of their own. Printed and checked:

  gradient  ||g - g64|| / ||g64|| of the first step, of the worst parameter: at most 1e-5, or what
            PyTorch's own float32 comes to; beside the same kinks, see below
  drift     |L - L64| / |L64|, step by step: at most 3 times the largest that a float32 run of
            PyTorch's has had until that step, or FLOOR where that is less than a float32 loss can
            show. `ratio` is the largest quotient of the two; `peers` is the largest that one of
            PyTorch's runs has against the others, for comparison.

relu and max pooling have kinks, and of millions of values some lie within rounding of one: then all
float32 runs leave the truth by 1e-3 and more, each at a step of its own. So networks with kinks are
trained slowly; where such steps are rare, it takes more runs of PyTorch's to meet them. Of the first
gradient it is known which values lie so near: where the error is above 1e-5, those are tried on the
other side of relu's kink in float64, and `kinks` says how many of them make the gradients meet.

A gradient that is 0 but for rounding (biases before a normalization) is compared with the norm of
its layer's. Troupe's gradient is (w0 - w1) / 2^20 after one step of SGD at a rate of 2^20, where w0
does not round it. Running statistics are compared after that step, as gradients are.
"""

import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import time

import torch
import torch.nn.functional as F
from safetensors.torch import load_file

import networks
import optimizers

GRADIENT_MAX = 1e-5
DRIFT_MAX = 3
FLOOR = 2.0**-21  # 8 roundings of a float32 loss
KINK_WIDTH = 1e-5  # values nearer to 0 than this may fall on either side
KINKS_MAX = 32  # tried
STEEP = 2.0**20
MOMENTUM = {"rule": "momentum", "learning_rate": 0.02}
SLOW = {"rule": "momentum", "learning_rate": 0.002}
SLOWEST = {"rule": "momentum", "learning_rate": 0.0002}
STILL = {"rule": "momentum", "learning_rate": 0.00002}

GLYPHS = "glyphs { limit: 6400 test_limit: 16 }"


class Case:
    def __init__(self, name, model, data, make, steps=200, batch=32, optimizer=MOMENTUM, peers=5):
        self.name = name
        self.model = model
        self.data = data
        self.make = make  # of the shapes of all parameters
        self.steps = steps
        self.batch = batch
        self.optimizer = optimizer
        self.peers = peers  # float32 runs of PyTorch's

    @property
    def smoothing(self):
        return 0.1 if "label_smoothing" in self.model else 0.0


def mlp(activation):
    return lambda shapes: networks.Mlp(784, [64, 32], 10, activation)


def gpt(tied):
    return lambda shapes: networks.Gpt(shapes["transformer.wte.weight"][0], 32, 32, 2, 4, tied)


def llama(shapes):
    return networks.Llama(shapes["lm_head.weight"][0], 32, 2, 4, 2, 64)


def lstm(residual):
    return lambda shapes: networks.Lstm(shapes["encoder.weight"][0], 24, 2, residual)


def cases(folder):
    """All of them. Kinks are rare in lenet5, custom-pools and mlp, so that these have more peers."""
    cifar = f"cifar10 {{ path: '{folder}/cifar' }}"
    text = f"text {{ path: '{folder}/text' context: 32 stride: 7 }}"
    adam = {"rule": "adam", "learning_rate": 0.002}
    scheduled = {**adam, "rule": "adamw", "schedule": "{ cosine {} }", "warm_up": 20, "clip_norm": 0.5}
    net = networks
    all_of_them = [
        Case("linear", "linear {}", GLYPHS, lambda _: net.Mlp(784, [], 10, "none")),
        Case("mlp-relu", "mlp { hidden: [64, 32] }", GLYPHS, mlp("relu"), peers=12),
        Case("mlp-tanh", "mlp { hidden: [64, 32] activation: tanh }", GLYPHS, mlp("tanh")),
        Case("mlp-gelu", "mlp { hidden: [64, 32] activation: gelu }", GLYPHS, mlp("gelu")),
        Case("mlp-smoothed", "mlp { hidden: [64, 32] } label_smoothing: 0.1", GLYPHS, mlp("relu"), peers=12),
        Case(
            "mlp-values",
            "mlp { hidden: [64, 32] activation: tanh }",
            "teacher { inputs: 20 outputs: 3 values: true }",
            lambda _: net.Mlp(20, [64, 32], 3, "tanh"),
        ),
        Case("mlp-cifar", "mlp { hidden: [64, 32] }", cifar, lambda _: net.Mlp(3072, [64, 32], 10, "relu"), optimizer=SLOW, peers=12),
        Case("mlp-scheduled", "mlp { hidden: [64, 32] }", GLYPHS, mlp("relu"), optimizer=scheduled, peers=12),
        Case("snn", "snn {}", GLYPHS, lambda _: net.Mlp(784, [128] * 7, 10, "selu"), optimizer=SLOW, peers=12),
        Case("lenet5", "lenet5 {}", GLYPHS, lambda _: net.LeNet5(), batch=16, optimizer=SLOW, peers=16),
        Case("lenet5-tanh", "lenet5 { activation: tanh }", GLYPHS, lambda _: net.LeNet5(activation="tanh"), batch=16, optimizer=SLOW, peers=16),
        Case("lenet5-gelu", "lenet5 { activation: gelu }", GLYPHS, lambda _: net.LeNet5(activation="gelu"), batch=16, optimizer=SLOW, peers=16),
        Case("vgg11", "vgg { depth: 11 }", cifar, lambda _: net.Vgg(), 100, 4, STILL, 4),
        Case("vgg11-plain", "vgg { depth: 11 batch_norm: false }", cifar, lambda _: net.Vgg(batch_norm=False), 100, 4, SLOW, 4),
        Case("vgg16", "vgg { depth: 16 }", cifar, lambda _: net.Vgg(16), 50, 4, STILL, 4),
        Case("resnet20", "resnet { depth: 20 }", cifar, lambda _: net.ResNet(20), 200, 4, SLOWEST),
        Case("resnet32", "resnet { depth: 32 }", cifar, lambda _: net.ResNet(32), 200, 4, SLOWEST, 4),
        Case("resnet56", "resnet { depth: 56 }", cifar, lambda _: net.ResNet(56), 200, 4, SLOWEST, 4),
        Case("resnet18", "resnet { depth: 18 }", cifar, lambda _: net.ResNet(18), 50, 2, SLOWEST, 4),
        Case("resnet18-stem", "resnet { depth: 18 small_stem: false }", cifar, lambda _: net.ResNet(18, small_stem=False), 50, 4, SLOWEST, 4),
        Case("resnet50", "resnet { depth: 50 }", cifar, lambda _: net.ResNet(50), 10, 2, SLOWEST, 4),
        Case("lstm", "lstm { layers: 2 width: 24 }", text, lstm(False), batch=8),
        Case("lstm-residual", "lstm { layers: 2 width: 24 residual: true }", text, lstm(True), batch=8),
        Case("gpt-tied", "gpt { layers: 2 width: 32 heads: 4 }", text, gpt(True), 200, 8, adam),
        Case("gpt-untied", "gpt { layers: 2 width: 32 heads: 4 tied: false }", text, gpt(False), 200, 8, adam),
        Case("llama", "llama { layers: 2 width: 32 heads: 4 kv_heads: 2 hidden: 64 }", text, llama, 200, 8, adam),
        Case("custom-images", f"layers {{ {net.CUSTOM_IMAGES} }}", GLYPHS, lambda _: net.CustomImages(), batch=16, optimizer=SLOW, peers=16),
        Case("custom-pools", f"layers {{ {net.CUSTOM_POOLS} }}", GLYPHS, lambda _: net.CustomPools(), batch=16, optimizer=SLOW, peers=16),
        Case("custom-norms", f"layers {{ {net.CUSTOM_NORMS} }}", GLYPHS, lambda _: net.CustomNorms(), batch=16, optimizer=SLOW),
        Case("custom-text", f"layers {{ {net.CUSTOM_TEXT} }}", text, lambda shapes: net.CustomText(shapes["0.weight"][0], 32), batch=8),
        Case("custom-tokens", f"layers {{ {net.CUSTOM_TOKENS} }}", text, lambda shapes: net.CustomTokens(shapes["0.weight"][0]), batch=8),
    ]  # fmt: skip
    # Batch norms make a fast network chaotic: then all float32 runs leave the truth.
    rates = {  # of conv, and of the others
        "sgd": (0.02, 0.05),
        "momentum": (0.002, 0.02),
        "nesterov": (0.002, 0.02),
        "adam": (0.0005, 0.002),
        "adamw": (0.0005, 0.002),
        "nadam": (0.0005, 0.002),
        "nadamw": (0.0005, 0.002),
        "adagrad": (0.002, 0.01),
        "rmsprop": (0.0001, 0.0001),
        "muon": (0.002, 0.002),
    }
    # Smooth ones: a kink would hide what a rule does.
    trained = [
        ("mlp", "mlp { hidden: [64, 32] activation: tanh }", GLYPHS, mlp("tanh"), 200, 32),
        ("conv", f"layers {{ {net.CUSTOM_NORMS} }}", GLYPHS, lambda _: net.CustomNorms(), 100, 16),
        ("lstm", "lstm { layers: 2 width: 24 }", text, lstm(False), 100, 8),
        ("gpt", "gpt { layers: 2 width: 32 heads: 4 tied: false }", text, gpt(False), 100, 8),
    ]
    for rule, of_rule in rates.items():
        for name, model, data, make, steps, batch in trained:
            rate = of_rule[0 if name == "conv" else 1]
            options = {"rule": rule, "learning_rate": rate, "weight_decay": 0.01}
            if rule == "rmsprop":
                options["beta2"] = 0.99
            all_of_them.append(Case(f"{name}-{rule}", model, data, make, steps, batch, options, 4))
    return all_of_them


# -- data ------------------------------------------------------------------------------------------


def write_data(folder):
    """Small files in the formats of CIFAR-10 and of text, the same every time."""
    numbers = random.Random(7)
    (folder / "cifar").mkdir()
    for name in [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]:
        records = bytearray()
        for _ in range(64):
            label = numbers.randrange(10)
            records.append(label)
            records += bytes((25 * label + byte) // 2 % 256 for byte in numbers.randbytes(3072))
        (folder / "cifar" / f"{name}.bin").write_bytes(records)
    words = ["".join(numbers.choices("abcdefghijklmnop", k=numbers.randint(1, 6))) for _ in range(60)]
    (folder / "text").write_text(" ".join(numbers.choices(words, k=6000)))


# -- Troupe ----------------------------------------------------------------------------------------


def experiment(case, optimizer, steps, start):
    lines = [f"{key}: {value}" for key, value in optimizer.items() if key != "schedule"]
    if "schedule" in optimizer:
        lines.append(f"schedule {optimizer['schedule']}")
    return (
        f"model {{ {case.model} }} data {{ batch_size: {case.batch} {case.data} }} "
        f"optimizer {{ {' '.join(lines)} }} stop {{ updates: {steps} }} "
        f"record {{ every: 1 evaluate: false gap_every: 0 order: false }} start_from: '{start}'"
    )


class Troupe:
    def __init__(self, program, folder):
        self.program = program
        self.folder = folder

    def call(self, *arguments):
        done = subprocess.run([self.program, *map(str, arguments)], capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(map(str, arguments))}\n{done.stderr}")

    def write(self, case, name, optimizer, steps, start=""):
        path = self.folder / f"{case.name}-{name}.textproto"
        path.write_text(experiment(case, optimizer, steps, start))
        return path

    def start(self, case):
        """Initial weights and all batches."""
        path = self.write(case, "start", case.optimizer, case.steps)
        weights = self.folder / f"{case.name}-weights.safetensors"
        batches = self.folder / f"{case.name}-batches.safetensors"
        self.call("ckpt", "init", path, weights)
        self.call("data", "batches", path, case.steps, batches)
        read = load_file(batches)
        return weights, load_file(weights), read["x"], read["target"]

    def train(self, case, name, optimizer, steps, start):
        """The loss of each step and the last weights."""
        out = self.folder / f"{case.name}-{name}"
        self.call("run", self.write(case, name, optimizer, steps, start), "--quiet", "--out", out)
        lines = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
        losses = [line["loss"] for line in lines if line["kind"] == "train"]
        return losses, load_file(out / "weights.safetensors")


# -- PyTorch ---------------------------------------------------------------------------------------


def train(case, module, x, target):
    """The loss of each step; gradients and buffers of the first."""
    dtype = next(module.parameters()).dtype
    steppers = optimizers.optimizers(module, case.optimizer)
    losses, gradients, buffers = [], {}, {}
    for step in range(case.steps):
        inputs = x[step] if x.dtype == torch.int32 else x[step].to(dtype)
        wanted = target[step].to(dtype) if target.dtype.is_floating_point else target[step]
        loss = networks.loss_of(module(inputs), wanted, case.smoothing)
        losses.append(float(loss.detach()))
        module.zero_grad()
        loss.backward()
        if step == 0:
            gradients = {name: w.grad.double().clone() for name, w in module.named_parameters()}
            buffers = {name: b.double().clone() for name, b in module.named_buffers() if "num_" not in name}
        if "clip_norm" in case.optimizer:
            optimizers.clip(module, case.optimizer["clip_norm"])
        for stepper in steppers:
            for group in stepper.param_groups:
                group["lr"] = optimizers.rate_at(step, case.steps, case.optimizer)
            stepper.step()
    return losses, gradients, buffers


# -- comparison ------------------------------------------------------------------------------------


def errors(got, wanted):
    """Of each tensor, relative: of one that is 0 but for rounding to its layer's norm."""
    norms = {name: float(tensor.norm()) for name, tensor in wanted.items()}
    scales = dict(norms)
    for name, norm in norms.items():
        if norm < 1e-12 * max(norms.values()):
            layer = name.rpartition(".")[0] + "."
            scales[name] = max(n for other, n in norms.items() if other.startswith(layer))
    return {name: float((got[name].double() - t).norm()) / scales[name] for name, t in wanted.items()}


def worst_error(got, wanted):
    """The largest relative error of all tensors, and whose."""
    return max((error, name) for name, error in errors(got, wanted).items())


def gradients_beside(case, module, x, target, sides):
    """The first step's gradients with values on the other side of relu's kink: `sides` holds (number of the relu, place).
    And the values nearest to a kink, in this form."""
    near = []
    calls = 0

    def relu(z, inplace=False):
        nonlocal calls
        positive = (z > 0).flatten()
        for place in [place for call, place in sides if call == calls]:
            positive[place] = ~positive[place]
        small = z.detach().abs().flatten()
        near.extend((float(small[i]), calls, int(i)) for i in (small < KINK_WIDTH).nonzero().flatten())
        calls += 1
        return z * positive.view(z.shape)

    plain = F.relu
    F.relu = networks.ACTIVATIONS["relu"] = relu
    try:
        loss = networks.loss_of(module(x), target, case.smoothing)
    finally:
        F.relu = networks.ACTIVATIONS["relu"] = plain
    loss.backward()
    return {name: w.grad for name, w in module.named_parameters()}, [(c, i) for _, c, i in sorted(near)]


def error_beside_kinks(case, fresh, x, target, got, truth):
    """The worst error of a gradient, and whose, if values near a kink may lie on either side; and how many have to."""
    found = worst_error(got, truth)
    if found[0] <= GRADIENT_MAX:
        return *found, 0

    def distance(wanted):
        return sum(error**2 for error in errors(got, wanted).values())

    inputs = x[0] if x.dtype == torch.int32 else x[0].double()
    wanted = target[0].double() if target.dtype.is_floating_point else target[0]
    sides, best = [], truth
    _, near = gradients_beside(case, fresh(), inputs, wanted, [])
    for place in near[:KINKS_MAX]:
        tried, _ = gradients_beside(case, fresh(), inputs, wanted, [*sides, place])
        if distance(tried) < 0.9 * distance(best):
            sides, best = [*sides, place], tried
    return *worst_error(got, best), len(sides)


def nudged(tensors, seed):
    """Each weight one rounding up or down, by chance."""
    chance = torch.Generator().manual_seed(seed)
    up = {n: torch.rand(t.shape, generator=chance) < 0.5 for n, t in tensors.items()}
    far = {n: torch.where(up[n], torch.inf, -torch.inf) for n in tensors}
    return {n: t.nextafter(far[n]) if t.dim() > 1 else t for n, t in tensors.items()}


def orders(case, peer):
    """The order in which peer number `peer` sees the samples of a batch."""
    if peer == 1:
        return torch.arange(case.batch).flip(0)
    chance = torch.Generator().manual_seed(peer)
    return torch.randperm(case.batch, generator=chance) if peer > 2 else torch.arange(case.batch)


def drift(losses, truth):
    """Step by step."""
    return [abs(a - b) / abs(b) for a, b in zip(losses, truth, strict=True)]


def ratio(drifts, others):
    """The largest quotient of a drift and what the others allow: their largest until then."""
    worst, allowed = 0.0, FLOOR / DRIFT_MAX
    for step, own in enumerate(drifts):
        allowed = max(allowed, *(other[step] for other in others))
        worst = max(worst, own / allowed)
    return worst


HEAD = "case parameters steps runs gradient peer's kinks drift peer's ratio peers first last".split()
WIDTHS = [16, 10, 5, 4, 8, 8, 5, 8, 8, 5, 5, 7, 7]


def row_of(fields):
    cells = [str(f).ljust(w) if i == 0 else str(f).rjust(w) for i, (f, w) in enumerate(zip(fields, WIDTHS))]
    return f"| {' | '.join(cells)} |"


def compare(troupe, case):
    """Whether Troupe keeps up, and a row of the table."""
    weights, initial, x, target = troupe.start(case)
    steep = {"rule": "sgd", "learning_rate": STEEP}
    first, after = troupe.train(case, "first", steep, 1, weights)
    losses, _ = troupe.train(case, "all", case.optimizer, case.steps, weights)
    shapes = {name: tensor.shape for name, tensor in initial.items()}

    def train_peer(number):
        start = nudged(initial, number) if number > 2 else initial
        module = networks.load(case.make(shapes), start, torch.float32)
        order = orders(case, number)
        with torch.backends.mkldnn.flags(enabled=number != 2):
            return train(case, module, x[:, order], target[:, order])

    def fresh():
        return networks.load(case.make(shapes), initial, torch.float64)

    truth, gradients, buffers = train(case, fresh(), x, target)
    singles = [train_peer(number) for number in range(case.peers)]
    ours = {name: (initial[name].double() - after[name].double()) / STEEP for name in gradients}
    error, where, kinks = error_beside_kinks(case, fresh, x, target, ours, gradients)
    own_error, _, own_kinks = error_beside_kinks(case, fresh, x, target, singles[0][1], gradients)
    if buffers:
        error, where = max((error, where), worst_error(after, buffers))
    drifts = [drift(s[0], truth) for s in singles]
    our_drift = drift(losses, truth)
    our_ratio = ratio(our_drift, drifts)
    own_ratio = max(ratio(d, [o for o in drifts if o is not d]) for d in drifts)
    same_first = first[0] == losses[0]
    passed = error <= max(GRADIENT_MAX, own_error) and our_ratio <= DRIFT_MAX and same_first
    fields = [case.name, f"{sum(t.numel() for t in gradients.values()):,}", case.steps, case.peers]
    fields += [f"{error:.1e}", f"{own_error:.1e}", f"{kinks}, {own_kinks}"]
    fields += [f"{max(our_drift):.1e}", f"{max(map(max, drifts)):.1e}"]
    fields += [f"{our_ratio:.2f}", f"{own_ratio:.1f}", f"{truth[0]:.4f}", f"{truth[-1]:.4f}"]
    return passed, row_of(fields) + ("" if passed else f" NO; gradient: {where}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--troupe", required=True, help="the program")
    parser.add_argument("--steps", type=int, default=10**9, help="at most so many; 1: gradients alone")
    parser.add_argument("names", nargs="*", metavar="NAME", help="cases; none: all")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # cases are small
    failed = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_data(folder)
        chosen = [c for c in cases(folder) if not arguments.names or c.name in arguments.names]
        unknown = set(arguments.names) - {case.name for case in chosen}
        if unknown:
            raise SystemExit(f"no case {', '.join(sorted(unknown))}")
        print(f"PyTorch {torch.__version__}, {time.strftime('%Y-%m-%d')}; errors against its float64\n")
        for case in chosen:
            case.steps = min(case.steps, arguments.steps)
        print(row_of(HEAD))
        print(row_of(["---", *["---:"] * (len(HEAD) - 1)]))
        start = time.monotonic()
        for case in chosen:
            passed, line = compare(Troupe(arguments.troupe, folder), case)
            print(line, flush=True)
            failed += [] if passed else [case.name]
    print(f"{len(chosen)} cases in {time.monotonic() - start:.0f} s; failed: {', '.join(failed) or 'none'}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
