"""Troupe's update rules as PyTorch optimizers, and its rates by their formulas."""

import math

import torch
from torch import nn

DEFAULTS = {"learning_rate": 0.05, "momentum": 0.9, "beta2": 0.999, "epsilon": 1e-8, "weight_decay": 0.0}


class Muon(torch.optim.Optimizer):
    """Jordan et al. 2024 scaled as in Liu et al. 2025. By the formula in the weights' own type:
    torch.optim.Muon orthogonalises in bfloat16, whose rounding would hide everything else."""

    def __init__(self, matrices, lr, momentum, weight_decay):
        super().__init__(matrices, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @staticmethod
    def orthogonalised(x):
        rows, columns = x.shape
        x = x / max(float(x.norm()), 1e-7)
        x = x.T if rows > columns else x
        for _ in range(5):
            a = x @ x.T
            x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
        return x.T if rows > columns else x

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for w in group["params"]:
                velocity = self.state[w].setdefault("velocity", torch.zeros_like(w))
                velocity.mul_(group["momentum"]).add_(w.grad)
                ahead = (w.grad + group["momentum"] * velocity).flatten(1)
                scale = 0.2 * math.sqrt(max(ahead.shape))
                w.mul_(1 - group["lr"] * group["weight_decay"])
                w.sub_(group["lr"] * scale * self.orthogonalised(ahead).view_as(w))


def optimizers(module, options):
    """What PyTorch has for these options of an experiment; muon is two."""
    o = {**DEFAULTS, **options}
    weights = list(module.parameters())
    rate, gamma, decay = o["learning_rate"], o["momentum"], o["weight_decay"]
    adam = {"lr": rate, "betas": (gamma, o["beta2"]), "eps": o["epsilon"], "weight_decay": decay}
    rule = o["rule"]
    if rule == "sgd":
        return [torch.optim.SGD(weights, rate, weight_decay=decay)]
    if rule in ("momentum", "nesterov"):
        return [torch.optim.SGD(weights, rate, gamma, weight_decay=decay, nesterov=rule == "nesterov")]
    if rule == "adam":
        return [torch.optim.Adam(weights, **adam)]
    if rule == "adamw":
        return [torch.optim.AdamW(weights, **adam)]
    if rule in ("nadam", "nadamw"):
        return [torch.optim.NAdam(weights, **adam, decoupled_weight_decay=rule == "nadamw")]
    if rule == "adagrad":
        return [torch.optim.Adagrad(weights, rate, eps=o["epsilon"], weight_decay=decay)]
    if rule == "rmsprop":
        return [
            torch.optim.RMSprop(
                weights, rate, o["beta2"], o["epsilon"], weight_decay=decay, momentum=gamma
            )
        ]
    if rule == "muon":  # hidden matrices; the head is the last, or is tied to an embedding
        kinds = (nn.Linear, nn.Conv2d, nn.LSTM)
        hidden = [m for m in module.modules() if isinstance(m, kinds)]
        layers = [w for m in hidden for w in m.parameters() if w.dim() > 1]
        tied = getattr(module, "lm_head", module) is None
        matrices = layers if tied else layers[:-1]
        rest = [w for w in weights if all(w is not m for m in matrices)]
        return [Muon(matrices, rate, gamma, decay), torch.optim.AdamW(rest, **adam)]
    raise SystemExit(f"no rule {rule}")


def rate_at(step, updates, options):
    """The rate of update `step` of `updates`: constant, or a cosine; with warm-up."""
    rate = options.get("learning_rate", DEFAULTS["learning_rate"])
    if options.get("schedule") == "{ cosine {} }" and updates > 1:
        rate *= 0.5 * (1 + math.cos(math.pi * step / (updates - 1)))
    warm_up = options.get("warm_up", 0)
    return rate * (step + 1) / warm_up if step < warm_up else rate


def clip(module, largest):
    """Scales all gradients so that their norm is at most `largest`."""
    nn.utils.clip_grad_norm_(module.parameters(), largest)
