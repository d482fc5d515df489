"""Golden values of optimizers: the weights of one parameter after each of five steps, from PyTorch in float64 where it
has the optimizer, otherwise from the paper's formula. Needs PyTorch; tests do not. From the repository root:

  python3 tests/golden/make_optimizers.py > tests/golden/optimizers.json
"""

import json
import math
import random

import torch

STEPS, SIZE = 5, 9
LR, DECAY, BETAS, EPS, MOMENTUM, TRUST = 0.01, 0.1, (0.9, 0.95), 1e-8, 0.9, 0.001
LIMITS = {"lamb_limits": (1.2, 1.7), "lars_limits": (0.00096, 0.001)}  # each is met at both ends


def numbers(seed):
    source = random.Random(seed)
    return [source.gauss(0, 1) for _ in range(SIZE)]


START = numbers(1)
GRADIENTS = [numbers(10 + step) for step in range(STEPS)]


def pytorch(make, decay_before=0.0):
    """`decay_before`: decoupled weight decay for optimizers in which PyTorch couples it to the gradient."""
    weight = torch.tensor(START, dtype=torch.float64, requires_grad=True)
    optimizer = make([weight])
    result = []
    for gradient in GRADIENTS:
        with torch.no_grad():
            weight.mul_(1 - LR * decay_before)
        weight.grad = torch.tensor(gradient, dtype=torch.float64)
        optimizer.step()
        result.append(weight.tolist())
    return result


def norm(x):
    return math.sqrt(math.fsum(v * v for v in x))


def lion():
    """Chen et al., 2023, algorithm 2: p -= lr (sign(b1 m + (1 - b1) g) + wd p), then m = b2 m + (1 - b2) g."""
    weight, m, result = list(START), [0.0] * SIZE, []
    for gradient in GRADIENTS:
        for i, g in enumerate(gradient):
            u = BETAS[0] * m[i] + (1 - BETAS[0]) * g
            sign = math.copysign(1, u) if u != 0 else 0
            weight[i] -= LR * (sign + DECAY * weight[i])
            m[i] = BETAS[1] * m[i] + (1 - BETAS[1]) * g
        result.append(list(weight))
    return result


def limited(ratio, limits):
    return min(max(ratio, limits[0]), limits[1])


def lamb(limits=(0, math.inf)):
    """You et al., 2020, algorithm 2, phi the identity: r = m^ / (sqrt(v^) + eps), p -= lr |p| / |r + wd p| (r + wd p)."""
    weight, m, v, result = list(START), [0.0] * SIZE, [0.0] * SIZE, []
    for t, gradient in enumerate(GRADIENTS, 1):
        m = [BETAS[0] * a + (1 - BETAS[0]) * g for a, g in zip(m, gradient)]
        v = [BETAS[1] * a + (1 - BETAS[1]) * g * g for a, g in zip(v, gradient)]
        update = [a / (1 - BETAS[0] ** t) / (math.sqrt(b / (1 - BETAS[1] ** t)) + EPS) + DECAY * p
                  for a, b, p in zip(m, v, weight)]
        ratio = limited(norm(weight) / norm(update), limits)
        weight = [p - LR * ratio * u for p, u in zip(weight, update)]
        result.append(weight)
    return result


def lars(momentum, limits=(0, math.inf)):
    """You et al., 2017, algorithm 1: v = mu v + lr trust |p| / (|g| + wd |p|) (g + wd p), p -= v."""
    weight, velocity, result = list(START), [0.0] * SIZE, []
    for gradient in GRADIENTS:
        ratio = limited(TRUST * norm(weight) / (norm(gradient) + DECAY * norm(weight)), limits)
        velocity = [momentum * v + LR * ratio * (g + DECAY * p) for v, g, p in zip(velocity, gradient, weight)]
        weight = [p - v for p, v in zip(weight, velocity)]
        result.append(weight)
    return result


OPTIMIZERS = {
    "adamw": lambda: pytorch(lambda w: torch.optim.AdamW(w, lr=LR, betas=BETAS, eps=EPS, weight_decay=DECAY)),
    "adam": lambda: pytorch(lambda w: torch.optim.Adam(w, lr=LR, betas=BETAS, eps=EPS, weight_decay=DECAY)),
    "sgd": lambda: pytorch(lambda w: torch.optim.SGD(w, lr=LR), DECAY),
    "sgd_momentum": lambda: pytorch(lambda w: torch.optim.SGD(w, lr=LR, momentum=MOMENTUM), DECAY),
    "sgd_nesterov": lambda: pytorch(lambda w: torch.optim.SGD(w, lr=LR, momentum=MOMENTUM, nesterov=True), DECAY),
    "lion": lion,
    "lamb": lamb,
    "lars": lambda: lars(0.0),
    "lars_momentum": lambda: lars(MOMENTUM),
    "lamb_limits": lambda: lamb(LIMITS["lamb_limits"]),
    "lars_limits": lambda: lars(0.0, LIMITS["lars_limits"]),
}

print(json.dumps({
    "lr": LR, "weight_decay": DECAY, "betas": BETAS, "eps": EPS, "momentum": MOMENTUM, "trust": TRUST,
    "ratio_limits": LIMITS,
    "start": START, "gradients": GRADIENTS,
    "weights": {name: make() for name, make in OPTIMIZERS.items()},
}, indent=1))
