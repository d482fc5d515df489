#!/usr/bin/env python3
"""Writes tests/golden/adafactor.json: the weights of a matrix and of a vector after each of five steps of Adafactor, in
float64, with the relative rate of torch.optim.Adafactor and with a plain one.

Computed from the definition with the standard library alone. Where PyTorch is installed, the relative weights are compared
with those of torch.optim.Adafactor. From the repository root:  tests/golden/make_adafactor.py
"""
import json
import math
import pathlib
import random

STEPS = 5
SHAPES = {"matrix": (4, 6), "vector": (7,)}
LR, DECAY_RATE, EPS1, EPS2, CLIP, WEIGHT_DECAY = 0.3, 0.8, 1e-6, 1e-3, 0.7, 0.1


def numbers(seed, count, size=1.0):
    source = random.Random(seed)
    return [size * source.gauss(0, 1) for _ in range(count)]


def mean(values):
    return math.fsum(values) / len(values)


def rms(values):
    return math.sqrt(mean([v * v for v in values]))


def second_moment(shape, g, state, keep):
    """Estimates of the average of g^2, by element."""
    def average(name, now):
        before = state.get(name, [0.0] * len(now))
        state[name] = [keep * b + (1 - keep) * n for b, n in zip(before, now)]
        return state[name]

    if len(shape) == 1:
        return average("all", [v * v for v in g])
    rows, columns = shape
    r = average("rows", [mean([g[i * columns + j] ** 2 for j in range(columns)]) for i in range(rows)])
    c = average("columns", [mean([g[i * columns + j] ** 2 for i in range(rows)]) for j in range(columns)])
    return [r[i] * c[j] / max(mean(r), EPS1) for i in range(rows) for j in range(columns)]


def adafactor(shape, start, gradients, relative):
    p, state, result = list(start), {}, []
    for t, g in enumerate(gradients, 1):
        rate = max(EPS2, rms(p)) * min(LR, 1 / math.sqrt(t)) if relative else LR
        v = second_moment(shape, g, state, 1 - t ** -DECAY_RATE)
        u = [a / max(math.sqrt(b), EPS1) for a, b in zip(g, v)]
        rate /= max(1.0, rms(u) / CLIP)
        p = [(1 - LR * WEIGHT_DECAY) * a - rate * b for a, b in zip(p, u)]
        result.append(p)
    return result


def by_pytorch(torch, shape, start, gradients):
    weight = torch.tensor(start, dtype=torch.float64).reshape(shape).requires_grad_()
    optimizer = torch.optim.Adafactor([weight], lr=LR, beta2_decay=-DECAY_RATE, eps=(EPS1, EPS2), d=CLIP,
                                      weight_decay=WEIGHT_DECAY)
    result = []
    for g in gradients:
        weight.grad = torch.tensor(g, dtype=torch.float64).reshape(shape)
        optimizer.step()
        result.append(weight.flatten().tolist())
    return result


def main():
    out = {"lr": LR, "weight_decay": WEIGHT_DECAY, "decay": DECAY_RATE, "eps1": EPS1, "eps2": EPS2, "clip": CLIP, "cases": []}
    for name, shape in SHAPES.items():
        count = math.prod(shape)
        start = numbers(1, count)
        # Steps whose gradients grow and shrink, so that clipping changes some of them.
        gradients = [numbers(10 + t, count, 10.0 ** ((t * 3) % 4 - 2)) for t in range(STEPS)]
        for relative in (False, True):
            weights = adafactor(shape, start, gradients, relative)
            try:
                import torch
            except ImportError:
                torch = None
            if torch is not None and relative:
                expected = by_pytorch(torch, shape, start, gradients)
                worst = max(abs(a - b) for x, y in zip(weights, expected) for a, b in zip(x, y))
                assert worst < 1e-12, f"{name}: PyTorch differs by {worst}"
            out["cases"].append({"name": name, "shape": shape, "relative": relative, "start": start, "gradients": gradients,
                                 "weights": weights})
    path = pathlib.Path(__file__).parent / "adafactor.json"
    path.write_text(json.dumps(out) + "\n")


if __name__ == "__main__":
    main()
