"""The other side of `troupe bench peers`: the same networks in PyTorch, one training step at a time.

Reads one request a line and answers each with a number:

NETWORK parameters     how many it has; comes before the network's first steps
NETWORK STEPS          CPU seconds that the steps took
hogwild NETWORK STEPS  seconds that two processes took for STEPS mini-batches each on one model in
                       shared memory, each with an optimizer of its own, after some not counted
gpu WAY NETWORK STEPS  seconds that the steps took on cuda:0 in bfloat16 by autocast, or "parameters"
                       in place of STEPS; WAY is eager or compiled
rpc NETWORK STEPS      likewise of two processes that send their gradients to a third, which steps
                       under a lock and answers with the weights (torch.distributed.rpc)

On one thread, the program sets what is best for PyTorch before it starts this: one OpenMP thread, and malloc such
that large tensors are not given back to the system after every step (10 to 20 % for convolution
networks).
"""

import os
import sys
import tempfile
import threading
import time
import warnings

try:
    import torch
    import torch.multiprocessing as mp
    from torch import nn
    from torch.nn import functional as F
except ImportError as missing:
    print(f"error {missing}", flush=True)
    sys.exit(0)

torch.set_num_threads(1)
torch.manual_seed(1)

CHARACTERS = 65
WARM_UP = 5  # steps of a worker that are not counted


class Lenet5(nn.Sequential):
    def __init__(self):
        super().__init__(
            nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
            nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))


def mlp():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024),
                         nn.ReLU(), nn.Linear(1024, 10))


def vgg11():
    layers, channels = [], 3
    for width in [64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0]:
        if width == 0:
            layers.append(nn.MaxPool2d(2))
            continue
        layers += [nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(True)]
        channels = width
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(512, 10))


class Block(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = nn.Sequential() if inputs == width else nn.Sequential(
            nn.Conv2d(inputs, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = self.bn2(self.conv2(y))
        return F.relu(y + self.downsample(x), inplace=True)


def resnet18():
    blocks, inputs = [], 64
    for width in [64, 128, 256, 512]:
        blocks += [Block(inputs, width, 1 if width == 64 else 2), Block(width, width, 1)]
        inputs = width
    return nn.Sequential(nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU(True),
                         *blocks, nn.AvgPool2d(4), nn.Flatten(), nn.Linear(512, 10))


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.downsample = nn.Sequential() if inputs == 4 * width else nn.Sequential(
            nn.Conv2d(inputs, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = F.relu(self.bn2(self.conv2(y)), inplace=True)
        return F.relu(self.bn3(self.conv3(y)) + self.downsample(x), inplace=True)


def resnet50():
    blocks, inputs = [], 64
    for width, count in [(64, 3), (128, 4), (256, 6), (512, 3)]:
        for i in range(count):
            blocks.append(Bottleneck(inputs, width, 2 if width > 64 and i == 0 else 1))
            inputs = 4 * width
    return nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(True),
                         nn.MaxPool2d(3, 2, 1), *blocks, nn.AvgPool2d(7), nn.Flatten(),
                         nn.Linear(2048, 1000))


def gpt2():
    return Gpt(layers=12, width=768, heads=12, context=1024, vocabulary=50257)


def attention(q, k, v):
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    length = q.shape[-2]
    mask = torch.ones(length, length, dtype=torch.bool).triu(1)
    scores = (q @ k.transpose(-2, -1)) * q.shape[-1] ** -0.5
    return scores.masked_fill(mask, float("-inf")).softmax(-1) @ v


class GptBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.c_out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (part.view(B, T, self.heads, C // self.heads).transpose(1, 2)
                   for part in self.c_attn(self.ln_1(x)).split(C, 2))
        x = x + self.c_proj(attention(q, k, v).transpose(1, 2).reshape(B, T, C))
        return x + self.c_out(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, layers=4, width=128, heads=4, context=128, vocabulary=CHARACTERS):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(GptBlock(width, heads) for _ in range(layers)))
        self.ln_f = nn.LayerNorm(width)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        return F.linear(self.ln_f(self.blocks(x)), self.wte.weight)


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        if hasattr(F, "rms_norm"):
            return F.rms_norm(x, self.weight.shape, self.weight, 1e-5)
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * self.weight


class Swiglu(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.gate_up = nn.Linear(width, 2 * hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, -1)
        return self.down(F.silu(gate) * up)


class Mixture(nn.Module):
    def __init__(self, width, hidden, experts, chosen):
        super().__init__()
        self.gate = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(Swiglu(width, hidden) for _ in range(experts))
        self.chosen = chosen

    def forward(self, x):
        rows = x.reshape(-1, x.shape[-1])
        shares, choices = self.gate(rows).softmax(-1).topk(self.chosen, -1)
        gates = shares / shares.sum(-1, keepdim=True)
        y = torch.zeros_like(rows)
        for number, expert in enumerate(self.experts):
            row, choice = torch.where(choices == number)
            y.index_add_(0, row, expert(rows[row]) * gates[row, choice, None])
        return y.reshape(x.shape)


class LlamaBlock(nn.Module):
    def __init__(self, width, heads, kv_heads, mlp):
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads, width // heads
        self.norm1, self.norm2 = RmsNorm(width), RmsNorm(width)
        self.qkv = nn.Linear(width, (heads + 2 * kv_heads) * self.size, bias=False)
        self.o, self.mlp = nn.Linear(width, width, bias=False), mlp

    def forward(self, x, turn):
        B, T, C = x.shape
        qkv = self.qkv(self.norm1(x)).view(B, T, -1, self.size).transpose(1, 2)
        q, k, v = qkv.split((self.heads, self.kv_heads, self.kv_heads), 1)
        q, k = turn(q), turn(k)
        k, v = (part.repeat_interleave(self.heads // self.kv_heads, 1) for part in (k, v))
        x = x + self.o(attention(q, k, v).transpose(1, 2).reshape(B, T, C))
        return x + self.mlp(self.norm2(x))


class Llama(nn.Module):
    def __init__(self, layers=4, width=128, heads=4, kv_heads=2, hidden=384, context=128,
                 vocabulary=CHARACTERS, experts=0):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(
            LlamaBlock(width, heads, kv_heads,
                       Mixture(width, hidden, experts, 2) if experts else Swiglu(width, hidden))
            for _ in range(layers))
        self.norm = RmsNorm(width)
        size = width // heads
        angles = torch.outer(torch.arange(context, dtype=torch.float64),
                             10000 ** (-torch.arange(0, size, 2, dtype=torch.float64) / size))
        self.register_buffer("cos", angles.cos().float().repeat(1, 2))
        self.register_buffer("sin", angles.sin().float().repeat(1, 2))

    def turn(self, x):
        first, second = x.chunk(2, -1)
        return x * self.cos + torch.cat((-second, first), -1) * self.sin

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, self.turn)
        return F.linear(self.norm(x), self.embed.weight)


def mixture():
    return Llama(experts=8)


def llama124m():
    return Llama(layers=12, width=768, heads=12, kv_heads=4, hidden=2432, context=1024,
                 vocabulary=50257)


class Lstm(nn.Module):
    def __init__(self, layers=2, width=256):
        super().__init__()
        self.encoder = nn.Embedding(CHARACTERS, width)
        self.rnn = nn.LSTM(width, width, layers, batch_first=True)
        self.decoder = nn.Linear(width, CHARACTERS)

    def forward(self, tokens):
        return self.decoder(self.rnn(self.encoder(tokens))[0])


# network: how it is made, batch, shape of a sample ((T,) for tokens)
NETWORKS = {
    "mlp": (mlp, 128, (1, 28, 28)),
    "lenet5": (Lenet5, 128, (1, 28, 28)),
    "vgg": (vgg11, 64, (3, 32, 32)),
    "resnet": (resnet18, 64, (3, 32, 32)),
    "gpt": (Gpt, 16, (128,)),
    "llama": (Llama, 16, (128,)),
    "mixture": (mixture, 16, (128,)),
    "lstm": (Lstm, 32, (64,)),
}


# network: how it is made, batch, shape of a sample, classes
GPU_NETWORKS = {
    "resnet50": (resnet50, 256, (3, 224, 224), 1000),
    "gpt2": (gpt2, 12, (1024,), 50257),
    "llama": (llama124m, 12, (1024,), 50257),
}


class GpuLoop:
    """Best for PyTorch: channels last, the fastest of cuDNN's algorithms by trial, TF32 where bfloat16 is not."""

    def __init__(self, name, way):
        torch.backends.cudnn.benchmark = True
        torch.set_float32_matmul_precision("high")
        make, batch, sample, classes = GPU_NETWORKS[name]
        self.model = make().train().cuda()
        if len(sample) == 1:
            self.x = torch.randint(classes, (batch, *sample), device="cuda")
            self.labels = torch.randint(classes, (batch * sample[0],), device="cuda")
        else:
            self.model = self.model.to(memory_format=torch.channels_last)
            self.x = torch.randn(batch, *sample, device="cuda").to(
                memory_format=torch.channels_last)
            self.labels = torch.randint(classes, (batch,), device="cuda")
        self.run = torch.compile(self.model) if way == "compiled" else self.model
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9,
                                         foreach=True)

    def parameters(self):
        return sum(p.numel() for p in self.model.parameters())

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16):
            logits = self.run(self.x)
            loss = F.cross_entropy(logits.reshape(len(self.labels), -1), self.labels)
        loss.backward()
        self.optimizer.step()

    def seconds(self, steps):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(steps):
            self.step()
        torch.cuda.synchronize()
        return time.perf_counter() - start


class Loop:
    def __init__(self, name):
        make, batch, sample = NETWORKS[name]
        self.model = make().train()
        if len(sample) == 1:
            self.x = torch.randint(CHARACTERS, (batch, *sample))
            self.labels = torch.randint(CHARACTERS, (batch * sample[0],))
        else:
            self.x = torch.randn(batch, *sample)
            self.labels = torch.randint(10, (batch,))
        if name in ("vgg", "resnet"):
            self.model = self.model.to(memory_format=torch.channels_last)
            self.x = self.x.to(memory_format=torch.channels_last)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9,
                                         foreach=True)

    def parameters(self):
        return sum(p.numel() for p in self.model.parameters())

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        logits = self.model(self.x)
        F.cross_entropy(logits.reshape(len(self.labels), -1), self.labels).backward()
        self.optimizer.step()


def gradients(loop):
    loop.optimizer.zero_grad(set_to_none=True)
    F.cross_entropy(loop.model(loop.x), loop.labels).backward()


class Server:
    """The model that the workers share, in the process that is rank 0."""

    def __init__(self, network):
        self.loop = Loop(network)
        self.lock = threading.Lock()

    def push_and_pull(self, grads):
        with self.lock:
            for p, g in zip(self.loop.model.parameters(), grads):
                p.grad = g
            self.loop.optimizer.step()
            return [p.detach() for p in self.loop.model.parameters()]


server = None


def push_and_pull(grads):
    return server.push_and_pull(grads)


def hogwild_worker(loop, steps, barrier):
    for _ in range(WARM_UP):
        loop.step()
    barrier.wait()
    for _ in range(steps):
        loop.step()
    barrier.wait()


def rpc_process(rank, network, steps, barrier, meeting):
    import torch.distributed.rpc as rpc  # late: not every build of PyTorch has it
    warnings.simplefilter("ignore")  # of PyTorch about its own rpc
    global server
    if rank == 0:
        server = Server(network)
    rpc.init_rpc(f"process{rank}", rank=rank, world_size=3,
                 rpc_backend_options=rpc.TensorPipeRpcBackendOptions(
                     num_worker_threads=2, init_method=f"file://{meeting}"))
    if rank > 0:
        loop = Loop(network)

        def step():
            gradients(loop)
            weights = rpc.rpc_sync("process0", push_and_pull,
                                   args=([p.grad for p in loop.model.parameters()],))
            with torch.no_grad():
                for p, w in zip(loop.model.parameters(), weights):
                    p.copy_(w)

        for _ in range(WARM_UP):
            step()
        barrier.wait()
        for _ in range(steps):
            step()
        barrier.wait()
    rpc.shutdown()


def seconds_of_two(way, network, steps):
    context = mp.get_context("fork")
    barrier = context.Barrier(3, timeout=300)  # the two workers and this process
    with tempfile.TemporaryDirectory() as folder:
        if way == "hogwild":
            loop = Loop(network)
            loop.model.share_memory()
            processes = [context.Process(target=hogwild_worker, args=(loop, steps, barrier))
                         for _ in range(2)]
        else:
            meeting = os.path.join(folder, "meeting")
            processes = [context.Process(target=rpc_process,
                                         args=(rank, network, steps, barrier, meeting))
                         for rank in range(3)]
        for process in processes:
            process.start()
        barrier.wait()
        start = time.perf_counter()
        barrier.wait()
        took = time.perf_counter() - start
        for process in processes:
            process.join()
    return took


def main():
    print(f"torch {torch.__version__}", flush=True)
    name, loop = None, None
    for line in sys.stdin:
        *way, wanted, what = line.split()
        if way and way[0] == "gpu":
            if (*way, wanted) != name:
                name, loop = (*way, wanted), None  # the last one's memory first
                torch.cuda.empty_cache()
                loop = GpuLoop(wanted, way[1])
            print(loop.parameters() if what == "parameters" else loop.seconds(int(what)),
                  flush=True)
            continue
        if way:
            print(seconds_of_two(way[0], wanted, int(what)), flush=True)
            continue
        if wanted != name:
            name, loop = wanted, None  # the last one's memory first
            loop = Loop(name)
        if what == "parameters":
            print(loop.parameters(), flush=True)
            continue
        start = time.process_time()
        for _ in range(int(what)):
            loop.step()
        print(time.process_time() - start, flush=True)


main()
