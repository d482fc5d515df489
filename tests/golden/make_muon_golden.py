#!/usr/bin/env python3
"""Computes tests/golden/muon.json: weights of a tiny mixture of experts after three steps of torch.optim.Muon.

    python3 tests/golden/make_muon_golden.py        (PyTorch 2.9 or later)

Model, weights and batch are those of the case `mixtral` of make_golden.py; every step sees the same batch. Weights of
linear layers are given to torch.optim.Muon as [out, in], every expert's as a parameter of its own; all others to
torch.optim.AdamW. PyTorch casts directions to bf16 before Newton-Schulz: here the cast is left out, so that everything
is float64.
"""

import json
import sys

import torch
import torch.optim._muon

import make_golden

CASE = "mixtral"
STEPS, LR, DECAY, MOMENTUM = 3, 0.02, 0.1, 0.95
COLUMNS = {"wo": 2}  # trailing dims that are columns, where it is not one


class InFloat64:
    """The module `torch` as torch.optim.Muon sees it, with bf16 replaced."""

    bfloat16 = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


def is_matrix(name):
    return name.startswith("blocks.") and "norm" not in name and "router" not in name


def train(scale, nesterov):
    g = {**make_golden.LLAMA, **make_golden.CASES[CASE]}
    flat = make_golden.batch(g)
    inputs = [torch.tensor(values).reshape(g["batch"], g["seq"]) for values in flat]
    shapes = make_golden.shapes(g)
    matrices, others = {}, {}
    for name, shape in shapes.items():
        value = make_golden.weights(name, shape).detach()
        if not is_matrix(name):
            others[name] = value.clone().requires_grad_()
            continue
        each = list(value) if "experts" in name else [value]
        columns = 1
        for d in shape[-COLUMNS.get(name.split(".")[-2], 1):]:
            columns *= d
        matrices[name] = [m.reshape(-1, columns).clone().requires_grad_() for m in each]
    decayed = [v for n, v in others.items() if "norm" not in n]
    plain = [v for n, v in others.items() if "norm" in n]
    muon = torch.optim.Muon([m for list in matrices.values() for m in list], lr=LR, weight_decay=DECAY,
                            momentum=MOMENTUM, nesterov=nesterov, adjust_lr_fn=scale)
    adamw = torch.optim.AdamW([{"params": decayed, "weight_decay": DECAY}, {"params": plain, "weight_decay": 0.0}],
                              lr=LR, betas=(0.9, 0.95), eps=1e-8)
    for _ in range(STEPS):
        p = {n: torch.stack(list).reshape(shapes[n]) for n, list in matrices.items()} | others
        loss, losses = make_golden.forward(g, p, *inputs)
        muon.zero_grad(), adamw.zero_grad()
        (loss + sum(losses.values())).backward()
        muon.step(), adamw.step()
    final = {n: torch.stack(list).flatten() for n, list in matrices.items()} | {n: v.flatten() for n, v in others.items()}
    return g, flat, shapes, final


def main():
    torch.set_num_threads(1)
    torch.Tensor.bfloat16 = lambda self: self.clone()  # PyTorch 2.9
    torch.optim._muon.torch = InFloat64()              # later
    runs = []
    for scale, nesterov in (("original", True), ("match_rms_adamw", False)):
        g, (tokens, labels, positions, documents), shapes, final = train(scale, nesterov)
        names = [n for n in shapes if scale == "original" or n.startswith("blocks.0.") or n == "final_norm.weight"]
        runs.append({"scale": scale, "nesterov": nesterov,
                     "parameters": [{"name": n, "values": final[n].tolist()} for n in names]})
    model = {key: value for key, value in g.items() if key not in ("seq", "batch", "document_lengths")}
    head = {"torch": torch.__version__, "model": model, "seq": g["seq"], "batch": g["batch"], "tokens": tokens,
            "labels": labels, "positions": positions, "documents": documents,
            "steps": STEPS, "lr": LR, "weight_decay": DECAY, "momentum": MOMENTUM}
    lines = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
    lines.append(' "runs": [\n  ' + ",\n  ".join(json.dumps(r) for r in runs) + "\n ]")
    path = make_golden.FOLDER / "muon.json"
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"{path.stat().st_size} bytes")


if __name__ == "__main__":
    sys.exit(main())
