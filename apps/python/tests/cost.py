"""cost.py [CASE ...]: processor time of an update of networks of torch modules beside a plain PyTorch loop, in turn.

Of each case: the plain loop in ms, then as shares of it `sim` in one stage and in four, and `run` in four, and what each module
costs beyond the loop in ms: medians of five. An update's time is the difference of a long run and a short one.
"""

import sys
import time

import numpy as np
import torch
from torch_test import SETS, Attention, block, images, plain
from torch import nn

import troupe
from troupe.torch import Network

ROUNDS = 5


class Embedding(nn.Module):
    def __init__(self, length, width):
        super().__init__()
        self.tokens, self.places = nn.Embedding(20, width), nn.Parameter(0.02 * torch.randn(length, width))

    def forward(self, x):
        return self.tokens(x) + self.places


def conv(width):
    random = np.random.default_rng(0)
    x, y = random.normal(size=(200, 3, 32, 32)).astype(np.float32), random.integers(0, 10, 200).astype(np.int32)
    return [block(3, width), block(width, width), nn.MaxPool2d(2), block(width, 2 * width), block(2 * width, 2 * width),
            nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * width, 10))], x, y


def transformer(width, length):
    x = np.cumsum(np.random.default_rng(0).integers(0, 3, (200, length + 1)), 1) % 20
    modules = [Embedding(length, width), *(Attention(width, 4) for _ in range(4)), nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 20))]
    return modules, x[:, :-1].astype(np.int32), x[:, 1:].astype(np.int32)


def small():
    return [block(3, 8), block(8, 8), block(8, 8), nn.Sequential(nn.Flatten(), nn.Linear(512, 10))], *images()


CASES = {"conv": (lambda: conv(32), 3, 18), "transformer": (lambda: transformer(64, 32), 5, 35), "small": (small, 20, 220)}


def ours(train, stages, modules, x, y, steps):
    train("teacher-mlp", {**SETS, "stop.updates": steps, "stop.epochs": 0, "pipeline.stages": stages, "pipeline.schedule": "one_f_one_b",
                          "pipeline.weights": "latest", "record.evaluate": False, "record.every": 100},
          data=troupe.arrays(x, y), network=Network(*modules), progress=False)


WAYS = [plain, lambda *case: ours(troupe.sim, 1, *case), lambda *case: ours(troupe.sim, 4, *case), lambda *case: ours(troupe.run, 4, *case)]


def seconds(way, case, steps):
    began = time.process_time()
    way(*case, steps)
    return time.process_time() - began


for name in sys.argv[1:] or CASES:
    make, few, many = CASES[name]
    torch.manual_seed(1)
    case = make()
    updates = np.array([[(seconds(way, case, many) - seconds(way, case, few)) / (many - few) for way in WAYS] for _ in range(ROUNDS)])
    shares = np.median(updates[:, 1:] / updates[:, :1], 0)
    beyond = np.median(updates[:, 1:] - updates[:, :1], 0) * 1e3 / len(case[0])
    print(name, f"{np.median(updates[:, 0]) * 1e3:.1f} ms", "shares", np.round(shares, 2), "ms a module", np.round(beyond, 3), flush=True)
