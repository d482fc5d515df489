#!/usr/bin/env python3
"""Computes the golden values: loss and every gradient of tiny models, in PyTorch float64.

    python3 tests/golden/make_golden.py [case...]  writes <case>.json next to this file

The models are written here straight from their definitions, one operation per line, with no parallelism, no fusion
and no library model; PyTorch supplies the arithmetic and the gradients. Weights are not stored: both sides compute
them from the parameter's name (see `weights`). Tokens, labels, positions and documents are in the file.
"""

import json
import math
import pathlib
import sys

import torch

FOLDER = pathlib.Path(__file__).resolve().parent
# Keys as in a recipe's [model], plus the batch.
LLAMA = {
    "family": "llama", "layers": 2, "embed": 16, "heads": 4, "kv_heads": 2, "head_dim": 4, "ffn": 24, "vocab": 37,
    "tied": False, "qkv_bias": False, "qk_norm": False, "sliding_window": 0, "norm_eps": 1e-5, "rope_theta": 10000.0,
    "rope_scaling": {"kind": "none"}, "max_positions": 0, "seq": 12, "batch": 2, "document_lengths": None,
}
LLAMA3_ROPE = {
    "kind": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_positions": 32,
}
YARN_ROPE = {"kind": "yarn", "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0, "original_positions": 32}
SMALL_THETA = {"heads": 2, "kv_heads": 1, "head_dim": 8, "rope_theta": 100.0}
# Keys as in a recipe's [model.moe]; `ffn` of the model itself is that of dense blocks.
MOE = {
    "experts": 4, "top_k": 2, "ffn": 10, "shared_ffn": 0, "shared_gate": False, "first_dense": 0, "every": 1,
    "score": "softmax", "order": "score_first", "normalise": True, "scale": 1.0, "groups": 1, "groups_kept": 1,
    "balance_loss": 0.0, "balance_scope": "micro_batch", "z_loss": 0.0, "capacity_factor": 0.0,
    "drop": "probability", "capacity_group": 1,
}
# What llama's relatives change; keys that a case does not name have these values.
PLAIN = {
    "norms": "pre", "norm_offset": 0.0, "activation": "silu", "qk_norm_over": "head", "full_attention_every": 0,
    "no_rope_every": 0, "rotary_dim": 0, "local_rope_theta": 0.0, "embed_scale": 1.0, "attention_scale": 0.0,
    "attention_soft_cap": 0.0, "logit_soft_cap": 0.0, "parallel_blocks": False,
}
# The scaled ropes use head_dim 8, so that their four frequencies fall into every band of the scaling.
CASES = {
    "llama": {},
    "llama3_rope_tied": {**SMALL_THETA, "tied": True, "rope_scaling": LLAMA3_ROPE},
    "yarn_rope": {**SMALL_THETA, "rope_scaling": YARN_ROPE},
    "qwen2": {"qkv_bias": True},
    "qwen3": {"qk_norm": True, "head_dim": 6, "norm_eps": 1e-6},
    "mistral": {"sliding_window": 5},
    "packed_documents": {"document_lengths": [[5, 7], [3, 1, 8]]},
    "gpt2": {"family": "gpt2", "kv_heads": 4, "tied": True, "max_positions": 16, "rope_theta": 0.0},
    "gemma2": {
        "tied": True, "norms": "both", "norm_offset": 1.0, "activation": "gelu", "sliding_window": 5,
        "full_attention_every": 2, "embed_scale": 4.0, "attention_scale": 0.4, "attention_soft_cap": 0.05,
        "logit_soft_cap": 0.3, "norm_eps": 1e-6,
    },
    "gemma3": {
        "tied": True, "norms": "both", "norm_offset": 1.0, "activation": "gelu", "sliding_window": 4, "layers": 3,
        "full_attention_every": 3, "embed_scale": 4.0, "qk_norm": True, "rope_theta": 1000.0,
        "local_rope_theta": 100.0, "norm_eps": 1e-6,
    },
    "olmo2": {"norms": "post", "qk_norm": True, "qk_norm_over": "all_heads", "norm_eps": 1e-6},
    "smollm3": {"tied": True, "layers": 3, "no_rope_every": 2, "head_dim": 6, "rotary_dim": 4},
    "neox": {
        "family": "neox", "kv_heads": 4, "head_dim": 8, "rotary_dim": 4, "parallel_blocks": True,
    },
    "neox_sequential": {"family": "neox", "kv_heads": 4},
    # An encoder: documents, token types, and labels that are not the tokens after the inputs.
    "bert": {
        "family": "bert", "kv_heads": 4, "tied": True, "max_positions": 16, "rope_theta": 0.0, "token_types": 2, "norm_eps": 1e-12,
        "document_lengths": [[12], [3, 1, 8]],
    },
    "bert_untied": {
        "family": "bert", "kv_heads": 4, "max_positions": 13, "rope_theta": 0.0, "token_types": 3, "norm_eps": 1e-12, "vocab": 38,
    },
    "mixtral": {"ffn": 10, "moe": {**MOE, "balance_loss": 0.3}},
    "top_k_first": {
        "ffn": 10, "moe": {**MOE, "order": "top_k_first", "balance_loss": 0.3, "balance_scope": "global", "z_loss": 0.2}
    },
    # Experts in the second block only, gated shared experts, and experts that are full.
    "qwen_moe": {
        "qkv_bias": True,
        "moe": {**MOE, "experts": 5, "shared_ffn": 6, "shared_gate": True, "every": 2, "normalise": False,
                "balance_loss": 0.3, "capacity_factor": 0.8},
    },
    "drop_by_position": {"ffn": 10, "moe": {**MOE, "capacity_factor": 0.7, "drop": "position"}},
    # One dense block, latent attention, groups of experts.
    "deepseek": {
        "kv_heads": 4, "head_dim": 8, "rope_theta": 100.0, "rope_scaling": YARN_ROPE, "norm_eps": 1e-6,
        "mla": {"kv_rank": 6, "q_rank": 9, "nope_dim": 4, "rope_dim": 4, "v_dim": 5},
        "moe": {**MOE, "experts": 8, "top_k": 3, "ffn": 6, "shared_ffn": 8, "first_dense": 1, "score": "sigmoid",
                "scale": 1.5, "groups": 4, "groups_kept": 2, "balance_loss": 0.3, "balance_scope": "sequence",
                "z_loss": 0.2},
    },
    "latent_without_q_rank": {
        "kv_heads": 4, "head_dim": 6, "mla": {"kv_rank": 5, "q_rank": 0, "nope_dim": 4, "rope_dim": 2, "v_dim": 3},
    },
}
# Multi-token prediction; no library has a model with it to compare with.
CASES["deepseek_mtp"] = {
    **CASES["deepseek"], "layers": 1, "mtp": {"layers": 1, "loss": 0.3}, "document_lengths": [[5, 7], [3, 1, 8]],
}
CASES["llama_mtp"] = {
    "layers": 1, "tied": True, "embed_scale": 2.0, "logit_soft_cap": 0.3, "mtp": {"layers": 1, "loss": 0.5},
}


def has_experts(g, block):
    m = g.get("moe")
    return bool(m) and block >= m["first_dense"] and (block - m["first_dense"] + 1) % m["every"] == 0


def latent_shapes(block, g):
    e, h, a = g["embed"], g["heads"], g["mla"]
    out = {}
    if a["q_rank"]:
        out[block + "attn.wq_down.weight"] = [a["q_rank"], e]
        out[block + "attn.q_norm.weight"] = [a["q_rank"]]
    out[block + "attn.wq_nope.weight"] = [h, a["nope_dim"], a["q_rank"] or e]
    out[block + "attn.wq_rope.weight"] = [h, a["rope_dim"], a["q_rank"] or e]
    out[block + "attn.wkv_down.weight"] = [a["kv_rank"], e]
    out[block + "attn.kv_norm.weight"] = [a["kv_rank"]]
    out[block + "attn.wk_nope.weight"] = [h, a["nope_dim"], a["kv_rank"]]
    out[block + "attn.wv.weight"] = [h, a["v_dim"], a["kv_rank"]]
    out[block + "attn.wk_rope.weight"] = [1, a["rope_dim"], e]
    out[block + "attn.wo.weight"] = [e, h, a["v_dim"]]
    return out


def expert_shapes(block, g):
    e, m = g["embed"], g["moe"]
    x, f, s = m["experts"], m["ffn"], m["shared_ffn"]
    out = {
        block + "ffn.router.weight": [x, e], block + "ffn.experts.gate.weight": [x, f, e],
        block + "ffn.experts.up.weight": [x, f, e], block + "ffn.experts.down.weight": [x, e, f],
    }
    if s:
        out[block + "ffn.shared.gate.weight"] = [s, e]
        out[block + "ffn.shared.up.weight"] = [s, e]
        out[block + "ffn.shared.down.weight"] = [e, s]
    if m["shared_gate"]:
        out[block + "ffn.shared_gate.weight"] = [1, e]
    return out


def shapes(g):
    """Parameter names and shapes in order."""
    e, h, kv, d, f = g["embed"], g["heads"], g["kv_heads"], g["head_dim"], g["ffn"]
    gpt2 = g["family"] != "llama"
    out = {"embed.weight": [g["vocab"], e]}
    if g["family"] in ("gpt2", "bert"):
        out["positions.weight"] = [g["max_positions"], e]
    if g["family"] == "bert":
        out.update({"token_types.weight": [g["token_types"], e], "embed_norm.weight": [e], "embed_norm.bias": [e]})
    for i in range(g["layers"] + ("mtp" in g)):
        block = f"blocks.{i}."
        if i == g["layers"]:
            out.update({block + f"{name}_norm.weight": [e] for name in ("embed", "hidden", "final")})
            out.update({block + f"join_{name}.weight": [e, e] for name in ("embed", "hidden")})
        if g["norms"] != "post":
            out[block + "attn_norm.weight"] = [e]
        if gpt2:
            out[block + "attn_norm.bias"] = [e]
        if "mla" in g:
            out.update(latent_shapes(block, g))
        else:
            for name, n in (("wq", h), ("wk", kv), ("wv", kv)):
                out[f"{block}attn.{name}.weight"] = [n, d, e]
                if gpt2 or g["qkv_bias"]:
                    out[f"{block}attn.{name}.bias"] = [n, d]
            if g["qk_norm"]:
                all_heads = g["qk_norm_over"] == "all_heads"
                out[block + "attn.q_norm.weight"] = [h * d] if all_heads else [d]
                out[block + "attn.k_norm.weight"] = [kv * d] if all_heads else [d]
            out[block + "attn.wo.weight"] = [e, h, d]
        if gpt2:
            out[block + "attn.wo.bias"] = [e]
        if g["norms"] != "pre":
            out[block + "attn_post_norm.weight"] = [e]
        if g["norms"] != "post":
            out[block + "ffn_norm.weight"] = [e]
        if has_experts(g, i):
            out.update(expert_shapes(block, g))
            continue
        if gpt2:
            out[block + "ffn_norm.bias"] = [e]
        else:
            out[block + "ffn.gate.weight"] = [f, e]
        out[block + "ffn.up.weight"] = [f, e]
        if gpt2:
            out[block + "ffn.up.bias"] = [f]
        out[block + "ffn.down.weight"] = [e, f]
        if gpt2:
            out[block + "ffn.down.bias"] = [e]
        if g["norms"] != "pre":
            out[block + "ffn_post_norm.weight"] = [e]
    if g["family"] == "bert":
        out.update({"head_transform.weight": [e, e], "head_transform.bias": [e], "head_norm.weight": [e], "head_norm.bias": [e],
                    "head.bias": [g["vocab"]]})
        if not g["tied"]:
            out["head.weight"] = [g["vocab"], e]
        return out
    out["final_norm.weight"] = [e]
    if gpt2:
        out["final_norm.bias"] = [e]
    if not g["tied"]:
        out["head.weight"] = [g["vocab"], e]
    return out


def weights(name, shape):
    """0.1 sin(0.37 (i + 1) + 1.3 h), i the flat index, h a hash of the name in [0, 1); plus 1 for norm weights."""
    h = sum((j + 1) * byte for j, byte in enumerate(name.encode())) % 1009 / 1009
    shift = 1.0 if name.endswith("norm.weight") else 0.0
    flat = [shift + 0.1 * math.sin(0.37 * (i + 1) + 1.3 * h) for i in range(math.prod(shape))]
    return torch.tensor(flat, dtype=torch.float64).reshape(shape).requires_grad_()


def batch(g):
    """Flat lists over batch x seq. A document's last token and every fifth token have no label (-1)."""
    count = g["batch"] * g["seq"]
    tokens = [(7 * t * t + 3 * t + 5) % g["vocab"] for t in range(count)]
    lengths = g["document_lengths"] or [[g["seq"]]] * g["batch"]
    positions, documents, labels = [], [], []
    for row in lengths:
        assert sum(row) == g["seq"]
        for document, length in enumerate(row):
            for position in range(length):
                t = len(labels)
                positions.append(position)
                documents.append(document)
                if g["family"] == "bert":
                    labels.append((5 * t + 2) % g["vocab"] if t % 3 == 1 else -1)
                    continue
                labels.append(-1 if position == length - 1 or t % 5 == 4 else tokens[t + 1])
    return tokens, labels, positions, documents


def next_rows(values, g, documents, none):
    """Of a flat list: the value of the next row of the same document, or `none`."""
    rows = range(len(values))
    same = [t % g["seq"] < g["seq"] - 1 and documents[t] == documents[t + 1] for t in rows]
    return [values[t + 1] if same[t] else none for t in rows]


def rms_norm(x, weight, eps, offset=0.0):
    """Over the last dim, or the last two if the weight has as many elements as both."""
    if weight.numel() != x.shape[-1]:
        return rms_norm(x.flatten(-2), weight, eps, offset).reshape(x.shape)
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * (offset + weight)


def layer_norm(x, weight, bias, eps):
    centered = x - x.mean(-1, keepdim=True)
    return centered / torch.sqrt((centered * centered).mean(-1, keepdim=True) + eps) * weight + bias


def gelu_tanh(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def gelu_exact(x):
    return x * (1 + torch.erf(x / math.sqrt(2))) / 2


def soft_capped(x, cap):
    return cap * torch.tanh(x / cap) if cap else x


def windowed(g, block):
    """Whether a block has the sliding window."""
    every = g["full_attention_every"]
    return bool(g["sliding_window"]) and not (every and (block + 1) % every == 0)


def rope_frequencies(theta, rope, head_dim):
    """The rotation frequency of each of the head_dim / 2 pairs, and the factor on cos and sin."""
    plain = [theta ** (-2 * j / head_dim) for j in range(head_dim // 2)]
    if rope["kind"] == "none":
        return plain, 1.0
    factor, original = rope["factor"], rope["original_positions"]
    if rope["kind"] == "llama3":
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        scaled = []
        for frequency in plain:
            turns = original * frequency / (2 * math.pi)  # full turns within the original context
            keep = min(max((turns - low) / (high - low), 0.0), 1.0)
            scaled.append(keep * frequency + (1 - keep) * frequency / factor)
        return scaled, 1.0
    assert rope["kind"] == "yarn"

    def pair_of(turns):  # the (fractional) pair that makes so many turns within the original context
        return head_dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))

    first = max(math.floor(pair_of(rope["beta_fast"])), 0)
    last = min(math.ceil(pair_of(rope["beta_slow"])), head_dim - 1)
    scaled = []
    for j, frequency in enumerate(plain):
        divide = min(max((j - first) / max(last - first, 0.001), 0.0), 1.0)
        scaled.append((1 - divide) * frequency + divide * frequency / factor)
    return scaled, 0.1 * math.log(factor) + 1.0


def rotate(x, positions, g):
    """x: [batch, seq, heads, head_dim]; pair j is (j, j + head_dim / 2)."""
    frequencies, magnitude = rope_frequencies(g["rope_theta"], g["rope_scaling"], x.shape[-1])
    angles = positions.double()[:, :, None, None] * torch.tensor(frequencies, dtype=torch.float64)
    if "mla" in g:  # the magnitude is a factor on the attention's scale instead
        magnitude = 1.0
    cos, sin = torch.cos(angles) * magnitude, torch.sin(angles) * magnitude
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


def rotate_first(x, positions, g):
    n = g["rotary_dim"] or x.shape[-1]
    return torch.cat([rotate(x[..., :n], positions, g), x[..., n:]], dim=-1)


def attention(x, p, i, g, positions, documents):
    block = f"blocks.{i}."
    q, k, v = (torch.einsum("bse,hde->bshd", x, p[f"{block}attn.{n}.weight"]) for n in ("wq", "wk", "wv"))
    if g["family"] != "llama" or g["qkv_bias"]:
        q, k, v = (y + p[f"{block}attn.{n}.bias"] for y, n in ((q, "wq"), (k, "wk"), (v, "wv")))
    if g["qk_norm"]:
        q = rms_norm(q, p[block + "attn.q_norm.weight"], g["norm_eps"], g["norm_offset"])
        k = rms_norm(k, p[block + "attn.k_norm.weight"], g["norm_eps"], g["norm_offset"])
    if g["family"] not in ("gpt2", "bert") and not (g["no_rope_every"] and (i + 1) % g["no_rope_every"] == 0):
        r = {**g, "rope_theta": g["local_rope_theta"]} if windowed(g, i) and g["local_rope_theta"] else g
        q, k = rotate_first(q, positions, r), rotate_first(k, positions, r)
    group = g["heads"] // g["kv_heads"]  # query heads h * group .. share KV head h
    k, v = k.repeat_interleave(group, dim=2), v.repeat_interleave(group, dim=2)
    divisor = 1 / g["attention_scale"] if g["attention_scale"] else math.sqrt(g["head_dim"])
    return mix(q, k, v, divisor, p[block + "attn.wo.weight"], i, g, positions, documents)


def latent_attention(x, p, i, g, positions, documents):
    block, a = f"blocks.{i}.", g["mla"]

    def weight(name):
        return p[f"{block}attn.{name}.weight"]

    q_in = rms_norm(x @ weight("wq_down").T, weight("q_norm"), g["norm_eps"]) if a["q_rank"] else x
    q_nope = torch.einsum("bsl,hdl->bshd", q_in, weight("wq_nope"))
    q_rope = rotate(torch.einsum("bsl,hdl->bshd", q_in, weight("wq_rope")), positions, g)
    latent = rms_norm(x @ weight("wkv_down").T, weight("kv_norm"), g["norm_eps"])
    k_nope = torch.einsum("bsl,hdl->bshd", latent, weight("wk_nope"))
    v = torch.einsum("bsl,hdl->bshd", latent, weight("wv"))
    k_rope = rotate(torch.einsum("bse,ode->bsod", x, weight("wk_rope")), positions, g)
    q = torch.cat([q_nope, q_rope], dim=-1)
    k = torch.cat([k_nope, k_rope.expand(-1, -1, g["heads"], -1)], dim=-1)
    factor = rope_frequencies(g["rope_theta"], g["rope_scaling"], a["rope_dim"])[1]
    divisor = math.sqrt(a["nope_dim"] + a["rope_dim"]) / factor**2
    return mix(q, k, v, divisor, weight("wo"), i, g, positions, documents)


def mix(q, k, v, divisor, wo, i, g, positions, documents):
    scores = soft_capped(torch.einsum("bqhd,bkhd->bhqk", q, k) / divisor, g["attention_soft_cap"])
    gap = positions[:, :, None] - positions[:, None, :]
    seen = ((gap >= 0) | (g["family"] == "bert")) & (documents[:, :, None] == documents[:, None, :])
    if windowed(g, i):
        seen &= gap < g["sliding_window"]  # a query sees itself and the window - 1 keys before it
    scores = scores.masked_fill(~seen[:, None], -math.inf)
    mixed = torch.einsum("bhqk,bkhd->bqhd", torch.softmax(scores, dim=-1), v)
    return torch.einsum("bqhd,ehd->bqe", mixed, wo)


def gated(x, p, name, activation):
    gate, up = x @ p[name + "gate.weight"].T, x @ p[name + "up.weight"].T
    act = gelu_tanh(gate) if activation == "gelu" else gate * torch.sigmoid(gate)
    return (act * up) @ p[name + "down.weight"].T


def best(values, count):
    """Indices of the largest, largest first. Which they are must not hang on the last bits."""
    order = sorted(range(len(values)), key=lambda i: (-values[i], i))
    if count < len(order):
        assert values[order[count - 1]] - values[order[count]] > 1e-6, "a tie"
    return order[:count]


def choose(scores, m):
    """The experts of one token."""
    size = m["experts"] // m["groups"]
    groups = [max(scores[i * size : (i + 1) * size]) for i in range(m["groups"])]
    kept = best(groups, m["groups_kept"])
    return best([s if i // size in kept else -math.inf for i, s in enumerate(scores)], m["top_k"])


def full_experts(chosen, weights, m, seq):
    """Pairs (row, choice) of one sequence that find their expert full."""
    capacity = max(1, math.ceil(m["capacity_factor"] * m["top_k"] * seq / m["experts"]))
    dropped = set()
    for expert in range(m["experts"]):
        pairs = [(s, c) for s in range(seq) for c in range(m["top_k"]) if chosen[s][c] == expert]
        if m["drop"] == "probability":
            pairs.sort(key=lambda pair: (-weights[pair[0]][pair[1]].item(), pair))
        dropped.update(pairs[capacity:])
    return dropped


def experts(x, p, block, g, losses):
    """x: [batch, seq, embed]. Every expert computes every row; what was not chosen has weight 0."""
    m, name = g["moe"], block + "ffn."
    batch_size, seq, _ = x.shape
    logits = x @ p[name + "router.weight"].T
    sigmoid = m["score"] == "sigmoid"
    scores = torch.sigmoid(logits) if sigmoid else torch.softmax(logits, dim=-1)
    chosen = [[choose(scores[b, s].tolist(), m) for s in range(seq)] for b in range(batch_size)]
    index = torch.tensor(chosen)
    if m["order"] == "top_k_first":
        weights = torch.softmax(logits.gather(-1, index), dim=-1)
    else:
        weights = scores.gather(-1, index)
        if m["normalise"]:
            weights = weights / weights.sum(-1, keepdim=True)
    weights = weights * m["scale"]

    keep = torch.ones_like(weights)
    if m["capacity_factor"]:
        assert m["capacity_group"] == 1
        for b in range(batch_size):
            for s, c in full_experts(chosen[b], weights[b], m, seq):
                keep[b, s, c] = 0
        assert keep.sum() < keep.numel(), "nothing is dropped"
    share = torch.zeros_like(logits).scatter(-1, index, weights * keep)
    gate = torch.einsum("bse,xfe->bsxf", x, p[name + "experts.gate.weight"])
    up = torch.einsum("bse,xfe->bsxf", x, p[name + "experts.up.weight"])
    each = torch.einsum("bsxf,xef->bsxe", gate * torch.sigmoid(gate) * up, p[name + "experts.down.weight"])
    y = torch.einsum("bsxe,bsx->bse", each, share)

    probabilities = scores / scores.sum(-1, keepdim=True)
    counts = torch.zeros_like(logits).scatter(-1, index, 1.0)
    dims = 1 if m["balance_scope"] == "sequence" else (0, 1)  # one micro-batch: "global" is the same
    f, mean = counts.mean(dims) / m["top_k"], probabilities.mean(dims)
    losses["balance_loss"] += m["balance_loss"] * m["experts"] * (f * mean).sum(-1).mean()
    losses["z_loss"] += m["z_loss"] * (torch.logsumexp(logits, -1) ** 2).mean()

    if m["shared_ffn"]:
        shared = gated(x, p, name + "shared.", g["activation"])
        if m["shared_gate"]:
            shared = torch.sigmoid(x @ p[name + "shared_gate.weight"].T) * shared
        y = y + shared
    return y


def forward(g, p, tokens, labels, positions, documents):
    """The loss over valid tokens, and the auxiliary losses."""
    gpt2 = g["family"] != "llama"  # or neox
    losses = {"balance_loss": torch.zeros((), dtype=torch.float64), "z_loss": torch.zeros((), dtype=torch.float64)}
    attend = latent_attention if "mla" in g else attention

    def norm(x, name):
        if gpt2:
            return layer_norm(x, p[name + ".weight"], p[name + ".bias"], g["norm_eps"])
        return rms_norm(x, p[name + ".weight"], g["norm_eps"], g["norm_offset"])

    def norm_before(x, name):
        return x if g["norms"] == "post" else norm(x, name + "_norm")

    def norm_after(x, name):
        return x if g["norms"] == "pre" else norm(x, name + "_post_norm")

    gelu = gelu_tanh if g["family"] == "gpt2" else gelu_exact
    x = p["embed.weight"][tokens] * g["embed_scale"]
    if g["family"] == "gpt2":
        x = x + p["positions.weight"][positions]

    def block_of(x, i):
        block = f"blocks.{i}."
        before = x
        y = attend(norm_before(x, block + "attn"), p, i, g, positions, documents)
        x = x + norm_after(y + p[block + "attn.wo.bias"] if gpt2 else y, block + "attn")
        y = norm_before(before if g["parallel_blocks"] else x, block + "ffn")
        if gpt2:
            hidden = gelu(y @ p[block + "ffn.up.weight"].T + p[block + "ffn.up.bias"])
            y = hidden @ p[block + "ffn.down.weight"].T + p[block + "ffn.down.bias"]
        elif has_experts(g, i):
            y = experts(y, p, block, g, losses)
        else:
            y = gated(y, p, block + "ffn.", g["activation"])
        return x + norm_after(y, block + "ffn")

    def loss_of(x, labels):
        """The sum over labels."""
        logits = soft_capped(x @ p["embed.weight" if g["tied"] else "head.weight"].T, g["logit_soft_cap"])
        each = torch.logsumexp(logits, -1) - logits.gather(-1, labels.clamp(min=0)[..., None])[..., 0]
        return (each * (labels >= 0)).sum()

    for i in range(g["layers"]):
        x = block_of(x, i)
    x = norm(x, "final_norm")
    count = (labels >= 0).sum()
    if "mtp" in g:
        last = f"blocks.{g['layers']}."
        flat = documents.flatten().tolist()
        following, further = (torch.tensor(next_rows(values.flatten().tolist(), g, flat, none)).reshape(tokens.shape)
                              for values, none in ((tokens, 0), (labels, -1)))
        e = norm(p["embed.weight"][following] * g["embed_scale"], last + "embed_norm")
        h = norm(x, last + "hidden_norm")
        y = torch.cat([e, h], -1) @ torch.cat([p[last + "join_embed.weight"], p[last + "join_hidden.weight"]], -1).T
        losses["next_token_loss"] = loss_of(norm(block_of(y, g["layers"]), last + "final_norm"), further)
        losses["next_token_loss"] = losses["next_token_loss"] * g["mtp"]["loss"] / count
    return loss_of(x, labels) / count, losses


def token_types(g):
    return [t // 2 % g["token_types"] for t in range(g["batch"] * g["seq"])]


def forward_bert(g, p, tokens, labels, positions, documents):
    def linear(x, name):
        return x @ p[name + ".weight"].T + p[name + ".bias"]

    def norm(x, name):
        return layer_norm(x, p[name + ".weight"], p[name + ".bias"], g["norm_eps"])

    types = torch.tensor(token_types(g)).reshape(tokens.shape)
    x = p["embed.weight"][tokens] + p["positions.weight"][positions] + p["token_types.weight"][types]
    x = norm(x, "embed_norm")
    for i in range(g["layers"]):
        block = f"blocks.{i}."
        x = norm(x + attention(x, p, i, g, positions, documents) + p[block + "attn.wo.bias"], block + "attn_norm")
        x = norm(x + linear(gelu_exact(linear(x, block + "ffn.up")), block + "ffn.down"), block + "ffn_norm")
    x = norm(gelu_exact(linear(x, "head_transform")), "head_norm")
    logits = x @ p["embed.weight" if g["tied"] else "head.weight"].T + p["head.bias"]
    each = torch.logsumexp(logits, -1) - logits.gather(-1, labels.clamp(min=0)[..., None])[..., 0]
    return (each * (labels >= 0)).sum() / (labels >= 0).sum(), {}


def compute(case):
    g = {**LLAMA, **PLAIN, **CASES[case]}
    p = {name: weights(name, shape) for name, shape in shapes(g).items()}
    flat = batch(g)
    loss, losses = (forward_bert if g["family"] == "bert" else forward)(g, p, *(torch.tensor(values).reshape(g["batch"], g["seq"]) for values in flat))
    (loss + sum(losses.values())).backward()
    return g, p, flat, loss, losses


def write(case):
    g, p, (tokens, labels, positions, documents), loss, losses = compute(case)
    model = {
        key: value for key, value in g.items()
        if key not in ("seq", "batch", "document_lengths") and value != PLAIN.get(key)
    }
    # Floats are printed with as many digits (up to 17) as it takes to read them back bit-equal.
    head = {
        "case": case, "model": model, "seq": g["seq"], "batch": g["batch"], "tokens": tokens,
        "labels": labels, "positions": positions, "documents": documents, "valid": sum(label >= 0 for label in labels), "loss": loss.item(),
    }
    if g["family"] == "bert":
        head["token_types"] = token_types(g)
    if "moe" in g:
        head.update({name: losses[name].item() for name in ("balance_loss", "z_loss")})
    if "mtp" in g:
        head["next_ids"], head["next_labels"] = next_rows(tokens, g, documents, 0), next_rows(labels, g, documents, -1)
        head["next_token_loss"] = losses["next_token_loss"].item() / g["mtp"]["loss"] * head["valid"]  # a sum
    lines = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
    entries = [
        json.dumps({"name": name, "shape": list(value.shape), "grad": value.grad.flatten().tolist()})
        for name, value in p.items()
    ]
    lines.append(' "parameters": [\n  ' + ",\n  ".join(entries) + "\n ]")
    path = FOLDER / f"{case}.json"
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"{case}: loss {loss.item():.17g}, {sum(v.numel() for v in p.values())} gradients, {path.stat().st_size} bytes")


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name in sys.argv[1:] or CASES:
        write(name)
