#!/usr/bin/env python3
"""Computes reference values of learning-rate schedules and weight-decay ramps.

    python3 tests/golden/make_schedules.py  writes schedules.json beside this file

The formulas are those of Megatron-LM's OptimizerParamScheduler, written from its documentation; what it calls
`num_steps` is the number of steps (or of tokens) at the end of the step. Every case lists the rate of each step as a
fraction of the full rate. Only the standard library is needed.
"""

import json
import math
import pathlib


def rate(case, num_steps):
    warmup, total, floor = case["warmup"], case["total"], case["min_lr_ratio"]
    if num_steps <= warmup:
        return num_steps / warmup
    kind = case["kind"]
    if kind == "constant":
        return 1.0
    if kind == "inverse_sqrt":
        return max(floor, math.sqrt(warmup) / math.sqrt(num_steps))
    if kind == "wsd":
        start = total - case["decay"]
        if num_steps <= start:
            return 1.0
        ratio = (num_steps - start) / case["decay"]
    else:
        ratio = min((num_steps - warmup) / case["decay"], 1.0)
    coefficient = {
        "linear": lambda: 1.0 - ratio,
        "cosine": lambda: 0.5 * (math.cos(math.pi * ratio) + 1.0),
        "exponential": lambda: 2.0 * math.pow(0.5, ratio) - 1.0,
        "1-sqrt": lambda: 1.0 - math.sqrt(ratio),
    }[case.get("shape", kind)]()
    return floor + coefficient * (1.0 - floor)


def decay_ratio(case, num_steps):
    ratio = num_steps / case["total"]
    coefficient = {
        "constant": lambda: 0.0,
        "linear": lambda: ratio,
        "cosine": lambda: 0.5 * (math.cos(math.pi * (1.0 - ratio)) + 1.0),
    }[case["kind"]]()
    return case["start_ratio"] + coefficient * (case["final_ratio"] - case["start_ratio"])


RATES = [
    {"kind": "constant", "warmup": 4, "decay": 0, "total": 10, "min_lr_ratio": 0.0},
    {"kind": "linear", "warmup": 2, "decay": 10, "total": 12, "min_lr_ratio": 0.1},
    {"kind": "linear", "warmup": 0, "decay": 6, "total": 12, "min_lr_ratio": 0.0},
    {"kind": "cosine", "warmup": 3, "decay": 13, "total": 16, "min_lr_ratio": 0.1},
    {"kind": "cosine", "warmup": 0, "decay": 9, "total": 9, "min_lr_ratio": 0.0},
    {"kind": "inverse_sqrt", "warmup": 4, "decay": 0, "total": 30, "min_lr_ratio": 0.5},
    {"kind": "wsd", "shape": "linear", "warmup": 2, "decay": 1, "total": 10, "min_lr_ratio": 0.0},
    {"kind": "wsd", "shape": "linear", "warmup": 2, "decay": 4, "total": 14, "min_lr_ratio": 0.05},
    {"kind": "wsd", "shape": "cosine", "warmup": 2, "decay": 5, "total": 14, "min_lr_ratio": 0.1},
    {"kind": "wsd", "shape": "exponential", "warmup": 0, "decay": 8, "total": 14, "min_lr_ratio": 0.0},
    {"kind": "wsd", "shape": "1-sqrt", "warmup": 1, "decay": 6, "total": 14, "min_lr_ratio": 0.2},
]
RAMPS = [
    {"kind": "constant", "start_ratio": 1.0, "final_ratio": 1.0, "total": 5},
    {"kind": "linear", "start_ratio": 0.25, "final_ratio": 2.0, "total": 8},
    {"kind": "cosine", "start_ratio": 1.0, "final_ratio": 0.0, "total": 9},
]

if __name__ == "__main__":
    out = {
        "rates": [{**c, "values": [rate(c, s) for s in range(1, c["total"] + 1)]} for c in RATES],
        "weight_decay_ramps": [{**c, "values": [decay_ratio(c, s) for s in range(1, c["total"] + 1)]} for c in RAMPS],
    }
    path = pathlib.Path(__file__).resolve().parent / "schedules.json"
    path.write_text(json.dumps(out, indent=1) + "\n")
