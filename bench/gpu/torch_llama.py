#!/usr/bin/env python3
"""PyTorch as the GPU baseline: trains the Llama of a recipe in this folder on random tokens, prints one JSON line.

  torch_llama.py 1b.toml --mode whole
  torch_llama.py 125m.toml --micro 4 --mode graph --steps 50 --seconds 30

Modes: eager; block (torch.compile of every block); whole (of the model); graph (whole, with CUDA graphs); fsdp2 (fully
sharded over one rank, blocks compiled). bf16 autocast over f32 weights, fused AdamW with f32 moments, gradients clipped
to norm 1, every token counts. Times are of single steps between CUDA events, after `--seconds` of warm-up;
`tokens_per_s` is based on the median; peak memory is as reported by PyTorch.
"""

import argparse
import json
import os
import pathlib
import statistics
import time
import tomllib

import torch
import torch.nn as nn
import torch.nn.functional as F

EPS = 1e-5


class Block(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = m["heads"], m["kv_heads"], m["embed"] // m["heads"]
        linear = lambda out, inner: nn.Linear(inner, out, bias=False)
        self.attn_norm, self.ffn_norm = nn.RMSNorm(m["embed"], EPS), nn.RMSNorm(m["embed"], EPS)
        self.wq = linear(m["embed"], m["embed"])
        self.wk, self.wv = (linear(self.kv_heads * self.head_dim, m["embed"]) for _ in range(2))
        self.wo = linear(m["embed"], m["embed"])
        self.gate, self.up = (linear(m["ffn"], m["embed"]) for _ in range(2))
        self.down = linear(m["embed"], m["ffn"])

    def forward(self, x, cos, sin):
        batch, seq, _ = x.shape
        y = self.attn_norm(x)
        q = self.wq(y).view(batch, seq, self.heads, self.head_dim).transpose(1, 2)
        k, v = (w(y).view(batch, seq, self.kv_heads, self.head_dim).transpose(1, 2) for w in (self.wk, self.wv))
        y = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True,
                                           enable_gqa=self.heads != self.kv_heads)
        x = x + self.wo(y.transpose(1, 2).reshape(batch, seq, -1))
        y = self.ffn_norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def rotate(x, cos, sin):
    a, b = x.float().chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1).to(x.dtype)


class Llama(nn.Module):
    def __init__(self, m, seq):
        super().__init__()
        self.embed = nn.Embedding(m["vocab"], m["embed"])
        self.blocks = nn.ModuleList(Block(m) for _ in range(m["layers"]))
        self.final_norm = nn.RMSNorm(m["embed"], EPS)
        self.head = nn.Linear(m["embed"], m["vocab"], bias=False)
        head_dim = m["embed"] // m["heads"]
        angles = torch.outer(torch.arange(seq).float(), m["rope_theta"] ** (-torch.arange(0, head_dim, 2) / head_dim))
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return self.head(self.final_norm(x))


def loss_of(logits, labels):
    return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


def prepare(model, mode):
    """The model and the loss function of the mode."""
    if mode == "eager":
        return model, loss_of
    if mode in ("block", "fsdp2"):
        for block in model.blocks:
            block.compile()
        if mode == "fsdp2":
            import torch.distributed as dist
            from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

            os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="29541")
            dist.init_process_group("nccl")
            policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
            for block in model.blocks:
                fully_shard(block, mp_policy=policy)
            fully_shard(model, mp_policy=policy)
        return model, torch.compile(loss_of)
    return torch.compile(model, mode="reduce-overhead" if mode == "graph" else "default"), torch.compile(loss_of)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", type=pathlib.Path)
    parser.add_argument("--mode", choices=["eager", "block", "whole", "graph", "fsdp2"], default="whole")
    parser.add_argument("--seq", type=int, default=0, help="sequence length (data.seq_len of the recipe)")
    parser.add_argument("--micro", type=int, default=0, help="sequences per micro-batch (batch.micro of the recipe)")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=30, help="warm-up time")
    options = parser.parse_args()
    recipe = tomllib.loads(options.recipe.read_text())
    m, seq, micro = recipe["model"], options.seq or recipe["data"]["seq_len"], options.micro or recipe["batch"]["micro"]

    torch.set_float32_matmul_precision("high")
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = Llama(m, seq)
    parameters = sum(p.numel() for p in model.parameters())
    run, loss_fn = prepare(model, options.mode)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1, fused=True)
    tokens, labels = (torch.randint(m["vocab"], (micro, seq), device="cuda") for _ in range(2))

    def step():
        with torch.autocast("cuda", torch.bfloat16, enabled=options.mode != "fsdp2"):
            loss = loss_fn(run(tokens), labels)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    begin = time.time()
    step().item()
    first = time.time() - begin
    begin = time.time()
    while time.time() - begin < options.seconds:
        step().item()
    if options.mode != "graph":  # a graph's pool is counted during capture, not during replay
        torch.cuda.reset_peak_memory_stats()
    times = []
    for _ in range(options.steps):
        start, end = torch.cuda.Event(True), torch.cuda.Event(True)
        start.record()
        loss = step()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) / 1e3)
    median = statistics.median(times)
    print(json.dumps({
        "peer": "torch", "version": torch.__version__, "cudnn": torch.backends.cudnn.version(),
        "model": recipe["name"], "mode": options.mode, "seq": seq, "micro": micro, "parameters": parameters,
        "steps": options.steps, "step_s_median": median, "step_s_min": min(times),
        "tokens_per_s": micro * seq / median, "first_step_s": first,
        "peak_bytes": torch.cuda.max_memory_allocated(), "loss": loss.item(),
    }), flush=True)


if __name__ == "__main__":
    main()
