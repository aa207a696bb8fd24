"""Trains the same networks by Troupe and by PyTorch, from the same weights on the same batches.

  tests/peers/parity.py --troupe build/release/troupe [NAME...]

For each case: `troupe ckpt init` writes the weights, `troupe data batches` the batches, and `troupe
run` trains. PyTorch does the same in float64, which is taken as the truth, and in float32 four
times: as it is, with the samples of each batch in reverse, which is the same sum in another order,
and twice from weights that are off by one rounding. Printed and checked:

  gradient  ||g - g64|| / ||g64|| of the first step, of the worst parameter: at most 1e-5, or what
            PyTorch's own float32 comes to
  loss      the largest |L - L64| / |L64| over all steps: at most 3 times PyTorch's own in float32,
            or FLOOR where that is less than a float32 loss can show

relu and max pooling have kinks, and of millions of values some lie within rounding of one: then all
float32 runs leave the truth by 1e-3 and more, each at a step of its own. So networks with kinks are
trained slowly, and PyTorch's own deviation is the largest of several.

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
from safetensors.torch import load_file

import networks
import optimizers

GRADIENT_MAX = 1e-5
DRIFT_MAX = 3
FLOOR = 2.0**-21  # 8 roundings of a float32 loss
STEEP = 2.0**20
MOMENTUM = {"rule": "momentum", "learning_rate": 0.02}
SLOW = {"rule": "momentum", "learning_rate": 0.002}
SLOWEST = {"rule": "momentum", "learning_rate": 0.0002}

GLYPHS = "glyphs { limit: 6400 test_limit: 16 }"


class Case:
    def __init__(self, name, model, data, make, steps=200, batch=32, optimizer=MOMENTUM):
        self.name = name
        self.model = model
        self.data = data
        self.make = make  # of the shapes of all parameters
        self.steps = steps
        self.batch = batch
        self.optimizer = optimizer

    @property
    def smoothing(self):
        return 0.1 if "label_smoothing" in self.model else 0.0


def mlp(activation):
    return lambda shapes: networks.Mlp(784, [64, 32], 10, activation)


def gpt(tied):
    return lambda shapes: networks.Gpt(
        shapes["transformer.wte.weight"][0], 32, 32, 2, 4, tied
    )


def lstm(residual):
    return lambda shapes: networks.Lstm(shapes["encoder.weight"][0], 24, 2, residual)


def cases(folder):
    cifar = f"cifar10 {{ path: '{folder}/cifar' }}"
    text = f"text {{ path: '{folder}/text' context: 32 stride: 7 }}"
    adam = {"rule": "adam", "learning_rate": 0.002}
    all_of_them = [
        Case("linear", "linear {}", GLYPHS, lambda _: networks.Mlp(784, [], 10, "none")),
        *(
            Case(f"mlp-{kind}", f"mlp {{ hidden: [64, 32] activation: {kind} }}", GLYPHS, mlp(kind))
            for kind in ("relu", "tanh", "gelu")
        ),
        Case(
            "mlp-smoothed",
            "mlp { hidden: [64, 32] } label_smoothing: 0.1",
            GLYPHS,
            mlp("relu"),
        ),
        Case(
            "mlp-values",
            "mlp { hidden: [64, 32] activation: tanh }",
            "teacher { inputs: 20 outputs: 3 values: true }",
            lambda _: networks.Mlp(20, [64, 32], 3, "tanh"),
        ),
        Case(
            "mlp-cifar",
            "mlp { hidden: [64, 32] }",
            cifar,
            lambda _: networks.Mlp(3072, [64, 32], 10, "relu"),
            optimizer=SLOW,
        ),
        # In batch 66 two values of a pooling window are 4e-8 apart.
        Case("lenet5", "lenet5 {}", GLYPHS, lambda _: networks.LeNet5(), 60, optimizer=SLOW),
        Case("lenet5-tanh", "lenet5 { activation: tanh }", GLYPHS, lambda _: networks.LeNet5(activation="tanh"), optimizer=SLOW),
        Case("snn", "snn {}", GLYPHS, lambda _: networks.Mlp(784, [128] * 7, 10, "selu"), optimizer=SLOW),
        Case("vgg11", "vgg { depth: 11 }", cifar, lambda _: networks.Vgg11(), 10, 16, SLOW),
        Case(
            "vgg11-plain",
            "vgg { depth: 11 batch_norm: false }",
            cifar,
            lambda _: networks.Vgg11(batch_norm=False),
            10,
            8,
            SLOW,
        ),
        Case("resnet20", "resnet { depth: 20 }", cifar, lambda _: networks.ResNet(20), 20, 8, SLOW),
        Case("resnet18", "resnet { depth: 18 }", cifar, lambda _: networks.ResNet(18), 5, 2, SLOWEST),
        Case(
            "resnet18-stem",
            "resnet { depth: 18 small_stem: false }",
            cifar,
            lambda _: networks.ResNet(18, small_stem=False),
            5,
            16,
            SLOWEST,
        ),
        Case("resnet50", "resnet { depth: 50 }", cifar, lambda _: networks.ResNet(50), 3, 2, SLOWEST),
        Case("lstm", "lstm { layers: 2 width: 24 }", text, lstm(False), batch=8),
        Case("lstm-residual", "lstm { layers: 2 width: 24 residual: true }", text, lstm(True), batch=8),
        Case("gpt-tied", "gpt { layers: 2 width: 32 heads: 4 }", text, gpt(True), 200, 8, adam),
        Case("gpt-untied", "gpt { layers: 2 width: 32 heads: 4 tied: false }", text, gpt(False), 200, 8, adam),
        Case("custom-images", f"layers {{ {networks.CUSTOM_IMAGES} }}", GLYPHS, lambda _: networks.CustomImages(), optimizer=SLOW),
        Case(
            "custom-text",
            f"layers {{ {networks.CUSTOM_TEXT} }}",
            text,
            lambda shapes: networks.CustomText(shapes["0.weight"][0], 32),
            batch=8,
        ),
    ]
    rates = {
        "sgd": 0.05,
        "momentum": 0.02,
        "nesterov": 0.02,
        "adam": 0.002,
        "adamw": 0.002,
        "nadam": 0.002,
        "nadamw": 0.002,
        "adagrad": 0.01,
        "rmsprop": 0.0001,
        "muon": 0.002,
    }
    for rule, rate in rates.items():
        options = {"rule": rule, "learning_rate": rate, "weight_decay": 0.01}
        if rule == "rmsprop":
            options["beta2"] = 0.99
        all_of_them.append(
            Case(f"mlp-{rule}", "mlp { hidden: [64, 32] activation: tanh }", GLYPHS, mlp("tanh"), optimizer=options)
        )
        if rule in ("nesterov", "adamw", "muon"):
            model = "gpt { layers: 2 width: 32 heads: 4 tied: false }"
            all_of_them.append(Case(f"gpt-{rule}", model, text, gpt(False), 200, 8, options))
    scheduled = {**adam, "rule": "adamw", "schedule": "{ cosine {} }", "warm_up": 20, "clip_norm": 0.5}
    all_of_them.append(
        Case("mlp-scheduled", "mlp { hidden: [64, 32] }", GLYPHS, mlp("relu"), optimizer=scheduled)
    )
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


def worst_error(got, wanted):
    """The largest relative error of all tensors, and whose."""
    whole = max(float(t.norm()) for t in wanted.values())
    worst = (0.0, "")
    for name, tensor in wanted.items():
        norm = float(tensor.norm())
        if norm < 1e-12 * whole:
            layer = name.rpartition(".")[0] + "."
            norm = max(float(t.norm()) for n, t in wanted.items() if n.startswith(layer))
        worst = max(worst, (float((got[name].double() - tensor).norm()) / norm, name))
    return worst


def nudged(tensors, seed):
    """Each weight one rounding up or down, by chance."""
    chance = torch.Generator().manual_seed(seed)
    up = {n: torch.rand(t.shape, generator=chance) < 0.5 for n, t in tensors.items()}
    far = {n: torch.where(up[n], torch.inf, -torch.inf) for n in tensors}
    return {n: t.nextafter(far[n]) if t.dim() > 1 else t for n, t in tensors.items()}


def drift(losses, truth):
    return max(abs(a - b) / abs(b) for a, b in zip(losses, truth, strict=True))


def compare(troupe, case):
    weights, initial, x, target = troupe.start(case)
    steep = {"rule": "sgd", "learning_rate": STEEP}
    first, after = troupe.train(case, "first", steep, 1, weights)
    losses, _ = troupe.train(case, "all", case.optimizer, case.steps, weights)
    shapes = {name: tensor.shape for name, tensor in initial.items()}

    def peer(dtype, tensors=initial, reverse=False):
        module = networks.load(case.make(shapes), tensors, dtype)
        order = (x.flip(1), target.flip(1)) if reverse else (x, target)
        return train(case, module, *order)

    truth, gradients, buffers = peer(torch.float64)
    singles = [peer(torch.float32), peer(torch.float32, reverse=True)]
    singles += [peer(torch.float32, nudged(initial, seed)) for seed in (1, 2)]
    ours = {name: (initial[name].double() - after[name].double()) / STEEP for name in gradients}
    error, where = max(worst_error(ours, gradients), worst_error(after, buffers) if buffers else (0, ""))
    own_error = max(worst_error(s[1], gradients)[0] for s in singles)
    own_drift = max(drift(s[0], truth) for s in singles)
    our_drift = drift(losses, truth)
    same_first = first[0] == losses[0]
    passed = (
        error <= max(GRADIENT_MAX, own_error)
        and our_drift <= max(DRIFT_MAX * own_drift, FLOOR)
        and same_first
    )
    count = sum(t.numel() for t in gradients.values())
    return passed, (
        f"{case.name:15} {count:>10,} {case.steps:>5}  {error:8.1e} {own_error:8.1e}  "
        f"{our_drift:8.1e} {own_drift:8.1e}  {truth[0]:7.4f} {truth[-1]:7.4f}  "
        f"{'ok' if passed else 'NO'}  {where}"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--troupe", required=True, help="the program")
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
        print(f"PyTorch {torch.__version__}; errors against its float64")
        print(f"{'':32}  {'gradient':^17}  {'loss, worst step':^17}  {'loss':^15}")
        print(
            f"{'case':15} {'parameters':>10} {'steps':>5}  {'Troupe':>8} {'PyTorch':>8}  "
            f"{'Troupe':>8} {'PyTorch':>8}  {'first':>7} {'last':>7}      worst in"
        )
        start = time.monotonic()
        for case in chosen:
            passed, line = compare(Troupe(arguments.troupe, folder), case)
            print(line, flush=True)
            failed += [] if passed else [case.name]
    print(f"{len(chosen)} cases in {time.monotonic() - start:.0f} s; failed: {', '.join(failed) or 'none'}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
