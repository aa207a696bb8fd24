"""Troupe's networks as PyTorch modules.

Modules and parameters have the names that weights.safetensors has, so that a file loads as it is.
Images are (B, H, W, C) as Troupe's batches have them; dropout is left out.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

ACTIVATIONS = {
    "none": lambda x: x,
    "relu": F.relu,
    "tanh": torch.tanh,
    "gelu": lambda x: F.gelu(x, approximate="tanh"),
    "selu": F.selu,
    "gelu_erf": F.gelu,
    "silu": F.silu,
}


def channels_first(x):
    return x.permute(0, 3, 1, 2)


class Mlp(nn.Module):
    """Dense layers over samples of any shape."""

    def __init__(self, inputs, hidden, outputs, activation):
        super().__init__()
        widths = [inputs, *hidden, outputs]
        for i in range(len(widths) - 1):
            self.add_module(f"dense{i + 1}", nn.Linear(widths[i], widths[i + 1]))
        self.count = len(widths) - 1
        self.activation = ACTIVATIONS[activation]

    def forward(self, x):
        x = (channels_first(x) if x.dim() == 4 else x).flatten(1)
        for i in range(1, self.count):
            x = self.activation(getattr(self, f"dense{i}")(x))
        return getattr(self, f"dense{self.count}")(x)


class LeNet5(nn.Module):
    def __init__(self, side=28, channels=1, outputs=10, activation="relu"):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 6, 5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.dense1 = nn.Linear(16 * ((side // 2 - 4) // 2) ** 2, 120)
        self.dense2 = nn.Linear(120, 84)
        self.dense3 = nn.Linear(84, outputs)
        self.activation = ACTIVATIONS[activation]

    def forward(self, x):
        act = self.activation
        x = F.max_pool2d(act(self.conv1(channels_first(x))), 2)
        x = F.max_pool2d(act(self.conv2(x)), 2).flatten(1)
        return self.dense3(act(self.dense2(act(self.dense1(x)))))


class Vgg(nn.Module):
    WIDTHS = {
        11: [64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0],
        16: [64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0],
    }

    def __init__(self, depth=11, side=32, outputs=10, batch_norm=True):
        super().__init__()
        layers = []
        channels = 3
        for width in self.WIDTHS[depth]:
            if width == 0:
                layers.append(nn.MaxPool2d(2))
                continue
            layers.append(nn.Conv2d(channels, width, 3, padding=1))
            layers += [nn.BatchNorm2d(width)] if batch_norm else []
            layers.append(nn.ReLU())
            channels = width
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Linear(512 * (side // 32) ** 2, outputs)

    def forward(self, x):
        return self.classifier(self.features(channels_first(x)).flatten(1))


class Block(nn.Module):
    """A residual block: two 3x3 convolutions, or the bottleneck of 1x1, 3x3 and 1x1."""

    def __init__(self, inputs, width, stride, bottleneck):
        super().__init__()
        outputs = 4 * width if bottleneck else width
        shapes = (
            [(inputs, width, 1, 1), (width, width, 3, stride), (width, outputs, 1, 1)]
            if bottleneck
            else [(inputs, width, 3, stride), (width, width, 3, 1)]
        )
        for i, (before, after, kernel, step) in enumerate(shapes, 1):
            convolution = nn.Conv2d(before, after, kernel, step, kernel // 2, bias=False)
            self.add_module(f"conv{i}", convolution)
            self.add_module(f"bn{i}", nn.BatchNorm2d(after))
        self.count = len(shapes)
        self.downsample = (
            nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
            if stride != 1 or inputs != outputs
            else nn.Identity()
        )
        self.outputs = outputs

    def forward(self, x):
        skip = self.downsample(x)
        for i in range(1, self.count + 1):
            x = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(x))
            x = F.relu(x) if i < self.count else F.relu(x + skip)
        return x


class ResNet(nn.Module):
    BLOCKS = {
        20: [3, 3, 3],
        32: [5, 5, 5],
        56: [9, 9, 9],
        18: [2, 2, 2, 2],
        50: [3, 4, 6, 3],
    }

    def __init__(self, depth, outputs=10, small_stem=True):
        super().__init__()
        counts = self.BLOCKS[depth]
        width = channels = 16 if len(counts) == 3 else 64
        self.small_stem = small_stem or len(counts) == 3
        self.conv1 = (
            nn.Conv2d(3, width, 3, 1, 1, bias=False)
            if self.small_stem
            else nn.Conv2d(3, width, 7, 2, 3, bias=False)
        )
        self.bn1 = nn.BatchNorm2d(width)
        self.groups = len(counts)
        for group, count in enumerate(counts, 1):
            blocks = []
            for i in range(count):
                stride = 2 if group > 1 and i == 0 else 1
                blocks.append(Block(channels, width, stride, depth == 50))
                channels = blocks[-1].outputs
            self.add_module(f"layer{group}", nn.Sequential(*blocks))
            width *= 2
        self.fc = nn.Linear(channels, outputs)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(channels_first(x))))
        if not self.small_stem:
            x = F.max_pool2d(x, 3, 2, 1)
        for group in range(1, self.groups + 1):
            x = getattr(self, f"layer{group}")(x)
        return self.fc(x.mean((2, 3)))


class Lstm(nn.Module):
    def __init__(self, vocabulary, width, layers, residual):
        super().__init__()
        self.encoder = nn.Embedding(vocabulary, width)
        self.rnn = nn.ModuleList(nn.LSTM(width, width, batch_first=True) for _ in range(layers))
        self.decoder = nn.Linear(width, vocabulary)
        self.residual = residual

    def forward(self, x):
        x = self.encoder(x)
        for layer in self.rnn:
            y = layer(x)[0]
            x = x + y if self.residual else y
        return self.decoder(x)


def turned(x, theta):
    """Rotary positions of (B, heads, T, size), as Hugging Face's Llama has them."""
    half = x.shape[3] // 2
    speed = theta ** (-torch.arange(half, dtype=torch.float64) / half)
    angle = torch.outer(torch.arange(x.shape[2], dtype=torch.float64), speed).repeat(1, 2)
    swapped = torch.cat((-x[..., half:], x[..., :half]), 3)
    return x * angle.cos().to(x.dtype) + swapped * angle.sin().to(x.dtype)


def attend(qkv, heads, kv_heads=None, causal=True, theta=None):
    """(B, T, q | k | v) -> (B, T, width): self-attention, by its formula."""
    kv_heads = kv_heads or heads
    batch, length, columns = qkv.shape
    size = columns // (heads + 2 * kv_heads)
    parts = qkv.view(batch, length, -1, size).transpose(1, 2)
    q, k, v = parts.split((heads, kv_heads, kv_heads), 1)
    if theta:
        q, k = turned(q, theta), turned(k, theta)
    k, v = (t.repeat_interleave(heads // kv_heads, 1) for t in (k, v))
    scores = q @ k.transpose(2, 3) / math.sqrt(size)
    mask = torch.ones(length, length, dtype=torch.bool).triu(1)
    weights = (scores.masked_fill(mask, -math.inf) if causal else scores).softmax(3)
    return (weights @ v).transpose(1, 2).reshape(batch, length, heads * size)


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)
        self.heads = heads

    def forward(self, x):
        return self.c_proj(attend(self.c_attn(x), self.heads))


class GptBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = nn.Module()
        self.mlp.c_fc = nn.Linear(width, 4 * width)
        self.mlp.c_proj = nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp.c_proj(ACTIVATIONS["gelu"](self.mlp.c_fc(self.ln_2(x))))


class Gpt(nn.Module):
    def __init__(self, vocabulary, length, width, layers, heads, tied):
        super().__init__()
        self.transformer = nn.Module()
        self.transformer.wte = nn.Embedding(vocabulary, width)
        self.transformer.wpe = nn.Embedding(length, width)
        self.transformer.h = nn.ModuleList(GptBlock(width, heads) for _ in range(layers))
        self.transformer.ln_f = nn.LayerNorm(width)
        self.lm_head = None if tied else nn.Linear(width, vocabulary, bias=False)

    def forward(self, x):
        t = self.transformer
        y = t.wte(x) + t.wpe.weight[: x.shape[1]]
        for block in t.h:
            y = block(y)
        y = t.ln_f(y)
        return y @ t.wte.weight.T if self.lm_head is None else self.lm_head(y)


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * self.weight


class AddLoss(torch.autograd.Function):
    """x itself; in the backward, `loss` is added to what is minimised."""

    @staticmethod
    def forward(_, x, loss):
        return x.clone()

    @staticmethod
    def backward(_, dy):
        return dy, torch.ones((), dtype=dy.dtype)


def swiglu(x):
    gate, up = x.chunk(2, -1)
    return F.silu(gate) * up


class Mixture(nn.Module):
    """Experts one position at a time, by the formulas."""

    def __init__(self, width, hidden, experts, chosen, balance, capacity=0.0, gelu=False):
        super().__init__()
        self.gate = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(nn.Module() for _ in range(experts))
        for expert in self.experts:
            first = nn.Linear(width, hidden if gelu else 2 * hidden, bias=False)
            expert.add_module("w1" if gelu else "w13", first)
            expert.w2 = nn.Linear(hidden, width, bias=False)
        self.chosen, self.balance, self.capacity, self.gelu = chosen, balance, capacity, gelu

    def expert(self, number, x):
        of = self.experts[number]
        return of.w2(ACTIVATIONS["gelu"](of.w1(x)) if self.gelu else swiglu(of.w13(x)))

    def forward(self, x):
        rows = x.reshape(-1, x.shape[-1])
        count = len(self.experts)
        shares = self.gate(rows).softmax(1)
        best, choices = shares.topk(self.chosen, 1)
        gates = best if self.chosen == 1 else best / best.sum(1, keepdim=True)
        room = math.ceil(self.capacity * len(rows) * self.chosen / count) if self.capacity else len(rows) * self.chosen
        taken = [0] * count
        sums = [torch.zeros_like(row) for row in rows]
        for choice in range(self.chosen):
            for r, row in enumerate(rows):
                number = int(choices[r, choice])
                if taken[number] < room:
                    sums[r] = sums[r] + gates[r, choice] * self.expert(number, row)
                taken[number] += 1
        used = torch.bincount(choices[:, 0], minlength=count) / len(rows)
        loss = self.balance * count * (used * shares.mean(0)).sum()
        return AddLoss.apply(torch.stack(sums), loss).reshape(x.shape)


class LlamaBlock(nn.Module):
    def __init__(self, width, heads, kv_heads, hidden, theta, experts):
        super().__init__()
        size = width // heads
        self.heads, self.kv_heads, self.theta = heads, kv_heads, theta
        self.input_layernorm = RmsNorm(width)
        self.self_attn = nn.Module()
        self.self_attn.qkv_proj = nn.Linear(width, (heads + 2 * kv_heads) * size, bias=False)
        self.self_attn.o_proj = nn.Linear(width, width, bias=False)
        self.post_attention_layernorm = RmsNorm(width)
        if experts:
            self.block_sparse_moe = experts()
            return
        self.mlp = nn.Module()
        self.mlp.gate_up_proj = nn.Linear(width, 2 * hidden, bias=False)
        self.mlp.down_proj = nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        qkv = self.self_attn.qkv_proj(self.input_layernorm(x))
        x = x + self.self_attn.o_proj(attend(qkv, self.heads, self.kv_heads, theta=self.theta))
        y = self.post_attention_layernorm(x)
        if hasattr(self, "block_sparse_moe"):
            return x + self.block_sparse_moe(y)
        return x + self.mlp.down_proj(swiglu(self.mlp.gate_up_proj(y)))


class Llama(nn.Module):
    def __init__(self, vocabulary, width, layers, heads, kv_heads, hidden, theta=1e4, tied=False, experts=None):
        super().__init__()
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(vocabulary, width)
        self.model.layers = nn.ModuleList(
            LlamaBlock(width, heads, kv_heads, hidden, theta, experts) for _ in range(layers)
        )
        self.model.norm = RmsNorm(width)
        self.lm_head = None if tied else nn.Linear(width, vocabulary, bias=False)

    def forward(self, x):
        y = self.model.embed_tokens(x)
        for block in self.model.layers:
            y = block(y)
        y = self.model.norm(y)
        return y @ self.model.embed_tokens.weight.T if self.lm_head is None else self.lm_head(y)


class CustomModern(nn.Module):
    """CUSTOM_MODERN below."""

    def __init__(self, vocabulary):
        super().__init__()
        self.add_module("0", nn.Embedding(vocabulary, 8))
        self.add_module("1", RmsNorm(8))
        self.add_module("3", nn.Module())
        self.get_submodule("3").c_attn = nn.Linear(8, 16)
        self.get_submodule("3").c_proj = nn.Linear(8, 8)
        self.add_module("6", nn.Module())
        self.get_submodule("6").gate_up_proj = nn.Linear(8, 12, bias=False)
        self.get_submodule("6").down_proj = nn.Linear(6, 8, bias=False)
        self.add_module("8", nn.Linear(8, 5))
        self.add_module("11", Mixture(13, 6, 3, 1, 0.1, 1.0, True))
        self.add_module("12", nn.Linear(13, vocabulary))

    def forward(self, x):
        at = dict(self.named_children())
        x = at["1"](at["0"](x))
        x = x + at["3"].c_proj(attend(at["3"].c_attn(x), 4, 2, False, 100))
        gated = at["6"].down_proj(swiglu(at["6"].gate_up_proj(x)))
        x = F.silu(torch.cat((F.gelu(at["8"](x)), gated), 2))
        return at["12"](at["11"](x))


CUSTOM_MODERN = (
    "layer { embedding { width: 8 positions: false } } layer { rms_norm {} } layer { fork { name: 'a' } } "
    "layer { attention { heads: 4 kv_heads: 2 causal: false rotary: 100 } } layer { join { name: 'a' } } "
    "layer { fork { name: 'b' } } layer { swiglu { hidden: 6 } } layer { swap { name: 'b' } } "
    "layer { dense { outputs: 5 activation: gelu_erf } } layer { concatenate { name: 'b' } } "
    "layer { activation { kind: silu } } "
    "layer { mixture { experts: 3 chosen: 1 hidden: 6 expert: gelu capacity: 1 balance: 0.1 } } layer { dense {} }"
)


class CustomImages(nn.Module):
    """CUSTOM_IMAGES below: names are places in the list."""

    def __init__(self, channels=1, outputs=10):
        super().__init__()
        self.add_module("0", nn.Conv2d(channels, 8, 3, 2, 1))
        self.add_module("1", nn.GroupNorm(4, 8))
        self.add_module("4", nn.Conv2d(8, 8, 3, 1, 1))
        self.add_module("5", nn.GroupNorm(2, 8))
        self.add_module("9", nn.Linear(8, 24))
        self.add_module("10", nn.LayerNorm(24))
        self.add_module("11", nn.Linear(24, outputs))

    def forward(self, x):
        at = dict(self.named_children())
        x = F.relu(at["1"](at["0"](channels_first(x))))
        x = F.relu(at["5"](torch.tanh(at["4"](x))) + x)
        x = F.max_pool2d(x, 2).mean((2, 3))
        return at["11"](at["10"](F.selu(at["9"](x))))


CUSTOM_IMAGES = (
    "layer { convolution { outputs: 8 stride: 2 } } layer { group_norm { groups: 4 } } "
    "layer { activation { kind: relu } } layer { fork {} } "
    "layer { convolution { outputs: 8 activation: tanh } } layer { group_norm { groups: 2 } } "
    "layer { join { activation: relu } } layer { max_pool {} } "
    "layer { average_pool { kernel: 0 } } layer { dense { outputs: 24 activation: selu } } "
    "layer { layer_norm {} } layer { dense {} }"
)


class CustomNorms(nn.Module):
    """CUSTOM_NORMS below: smooth everywhere, for optimizers."""

    def __init__(self, side=28, channels=1, outputs=10):
        super().__init__()
        self.add_module("0", nn.Conv2d(channels, 8, 5))
        self.add_module("1", nn.BatchNorm2d(8))
        self.add_module("5", nn.Conv2d(8, 8, 3, 1, 1, bias=True))
        self.add_module("6", nn.BatchNorm2d(8))
        self.add_module("8", nn.Linear(8 * ((side - 5) // 2) ** 2, 24))
        self.add_module("9", nn.Linear(24, outputs))

    def forward(self, x):
        at = dict(self.named_children())
        x = torch.tanh(at["1"](ACTIVATIONS["gelu"](at["0"](channels_first(x)))))
        x = F.avg_pool2d(x, 3, 2)
        x = x + at["6"](torch.tanh(at["5"](x)))
        return at["9"](torch.tanh(at["8"](x.flatten(1))))


CUSTOM_NORMS = (
    "layer { convolution { outputs: 8 kernel: 5 padding: 0 activation: gelu } } layer { batch_norm {} } "
    "layer { activation { kind: tanh } } layer { average_pool { kernel: 3 stride: 2 } } "
    "layer { fork { name: 'a' } } layer { convolution { outputs: 8 activation: tanh } } "
    "layer { batch_norm {} } layer { join { name: 'a' } } "
    "layer { dense { outputs: 24 activation: tanh } } layer { dense {} }"
)


class CustomPools(nn.Module):
    """CUSTOM_POOLS below."""

    def __init__(self, channels=1, outputs=10):
        super().__init__()
        self.add_module("0", nn.Conv2d(channels, 8, 4, 2, 1))
        self.add_module("2", nn.Conv2d(8, 12, 3, 1, 2))
        self.add_module("4", nn.BatchNorm2d(12))
        self.add_module("7", nn.Linear(12, outputs))

    def forward(self, x):
        at = dict(self.named_children())
        x = F.max_pool2d(torch.tanh(at["0"](channels_first(x))), 3, 2)
        x = at["4"](F.avg_pool2d(F.selu(at["2"](x)), 2, 1))
        return at["7"](ACTIVATIONS["gelu"](x).mean((2, 3)))


CUSTOM_POOLS = (
    "layer { convolution { outputs: 8 kernel: 4 stride: 2 padding: 1 activation: tanh } } "
    "layer { max_pool { kernel: 3 stride: 2 } } layer { convolution { outputs: 12 padding: 2 activation: selu } } "
    "layer { average_pool { stride: 1 } } layer { batch_norm {} } layer { activation { kind: gelu } } "
    "layer { average_pool { kernel: 0 } } layer { dense {} }"
)


class CustomText(nn.Module):
    """CUSTOM_TEXT below."""

    def __init__(self, vocabulary, length):
        super().__init__()
        embedding = nn.Embedding(vocabulary, 16)
        embedding.positions = nn.Parameter(torch.zeros(length, 16))
        self.add_module("0", embedding)
        self.add_module("1", Attention(16, 2))
        self.add_module("2", nn.LSTM(16, 12, batch_first=True))
        self.add_module("3", nn.Linear(12, vocabulary))

    def forward(self, x):
        at = dict(self.named_children())
        y = at["1"](at["0"](x) + at["0"].positions)
        return at["3"](at["2"](y)[0])


CUSTOM_TEXT = (
    "layer { embedding { width: 16 } } layer { attention { heads: 2 } } "
    "layer { lstm { width: 12 } } layer { dense {} }"
)


class CustomTokens(nn.Module):
    """CUSTOM_TOKENS below: no positions."""

    def __init__(self, vocabulary):
        super().__init__()
        self.add_module("0", nn.Embedding(vocabulary, 16))
        self.add_module("1", nn.LayerNorm(16))
        self.add_module("3", nn.Linear(16, 16))
        self.add_module("5", nn.LSTM(16, 12, batch_first=True))
        self.add_module("6", nn.Linear(12, vocabulary))

    def forward(self, x):
        at = dict(self.named_children())
        y = at["1"](at["0"](x))
        return at["6"](at["5"](y + ACTIVATIONS["gelu"](at["3"](y)))[0])


CUSTOM_TOKENS = (
    "layer { embedding { width: 16 positions: false } } layer { layer_norm {} } layer { fork {} } "
    "layer { dense { outputs: 16 activation: gelu } } layer { join {} } "
    "layer { lstm { width: 12 } } layer { dense {} }"
)


def loss_of(output, target, smoothing=0.0):
    """Of a mini-batch: cross-entropy for labels, else half the squared distance."""
    if target.dtype.is_floating_point:
        return 0.5 * ((output - target) ** 2).sum(1).mean()
    return F.cross_entropy(
        output.flatten(0, -2), target.flatten().long(), label_smoothing=smoothing
    )


def load(module, tensors, dtype):
    """The module with these weights, in training; batch norms' own counters are not in files."""
    left = module.load_state_dict(tensors, strict=False)
    missing = [name for name in left.missing_keys if not name.endswith("num_batches_tracked")]
    if missing or left.unexpected_keys:
        raise SystemExit(f"missing {missing}, of no use {left.unexpected_keys}")
    return module.to(dtype).train()


def parameter_names(module):
    return [name for name, _ in module.named_parameters()]
