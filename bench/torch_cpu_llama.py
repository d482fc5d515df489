#!/usr/bin/env python3
"""PyTorch as the CPU baseline: trains a 25M-parameter Llama on random tokens and prints one JSON line.

  torch_cpu_llama.py --dtype f32                     one process, all cores
  torch_cpu_llama.py --dtype bf16 --compile          autocast over f32 master weights, torch.compile
  torch_cpu_llama.py --parallel ddp --ranks 2        one process per rank over Gloo, one thread each
  torch_cpu_llama.py --parallel fsdp2 --ranks 2

Uses the fastest stock paths: fused AdamW, scaled_dot_product_attention, fused rms_norm. The geometry is that of
recipes/bench/llama-25m.toml. `tokens_per_s` is based on the median measured step; `peak_rss_bytes` is per rank.
"""

import argparse
import contextlib
import json
import os
import resource
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F

LAYERS, EMBED, HEADS, HEAD_DIM, FFN, VOCAB = 6, 512, 8, 64, 1120, 8192
THETA, EPS = 10000.0, 1e-5


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(EMBED))

    def forward(self, x):
        return F.rms_norm(x, (EMBED,), self.weight.to(x.dtype), EPS)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn_norm, self.ffn_norm = Norm(), Norm()
        self.wqkv = nn.Linear(EMBED, 3 * HEADS * HEAD_DIM, bias=False)
        self.wo = nn.Linear(HEADS * HEAD_DIM, EMBED, bias=False)
        self.gate_up = nn.Linear(EMBED, 2 * FFN, bias=False)
        self.down = nn.Linear(FFN, EMBED, bias=False)

    def forward(self, x, cos, sin):
        batch, seq, _ = x.shape
        q, k, v = self.wqkv(self.attn_norm(x)).view(batch, seq, 3, HEADS, HEAD_DIM).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True)
        x = x + self.wo(y.transpose(1, 2).reshape(batch, seq, HEADS * HEAD_DIM))
        gate, up = self.gate_up(self.ffn_norm(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    cos, sin = cos.to(x.dtype), sin.to(x.dtype)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


class Llama(nn.Module):
    def __init__(self, seq):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, EMBED)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.final_norm = Norm()
        self.head = nn.Linear(EMBED, VOCAB, bias=False)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)
        frequencies = THETA ** (-torch.arange(0, HEAD_DIM, 2).float() / HEAD_DIM)
        angles = torch.arange(seq).float()[:, None] * frequencies
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, tokens, labels):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        logits = self.head(self.final_norm(x))
        return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


def shard(model, dtype):
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    policy = MixedPrecisionPolicy()
    if dtype == "bf16":
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32, cast_forward_inputs=False)
    mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model.blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    return model


def train(rank, options, results):
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    at_start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if options.parallel != "none":
        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        os.environ["MASTER_PORT"] = str(options.port)
        dist.init_process_group("gloo", rank=rank, world_size=options.ranks)
    model = Llama(options.seq)
    count = sum(p.numel() for p in model.parameters())
    if options.compile and options.parallel == "none":
        model.compile()
    elif options.compile:  # DDP and FSDP2 hook into modules; their guides recommend compiling each block
        for block in model.blocks:
            block.compile()
    if options.parallel == "fsdp2":
        model = shard(model, options.dtype)
    elif options.parallel == "ddp":
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1, fused=True)
    autocast = options.dtype == "bf16" and options.parallel != "fsdp2"

    local = options.sequences // options.ranks
    micro = options.micro or local
    generator = torch.Generator().manual_seed(rank)
    times, loss = [], None
    for step in range(options.warmup + options.steps):
        data = torch.randint(VOCAB, (local, options.seq + 1), generator=generator)
        if options.parallel != "none":
            dist.barrier()
        start = time.perf_counter()
        for first in range(0, local, micro):
            tokens, labels = data[first : first + micro, :-1], data[first : first + micro, 1:]
            last = first + micro >= local
            sync = contextlib.nullcontext() if options.parallel != "ddp" or last else model.no_sync()
            with sync:
                with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                    loss = model(tokens, labels) * (micro / local)
                loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
        if step >= options.warmup:
            times.append(time.perf_counter() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    results.put((rank, times, peak, at_start, count, loss.item() * local / micro))
    if options.parallel != "none":
        dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--parallel", choices=["none", "ddp", "fsdp2"], default="none")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--threads", type=int, default=0, help="threads per rank (all cores divided by the ranks)")
    parser.add_argument("--seq", type=int, default=256)
    parser.add_argument("--sequences", type=int, default=16, help="sequences per step, over all ranks")
    parser.add_argument("--micro", type=int, default=0, help="sequences per forward pass (all of a rank's)")
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--port", type=int, default=29531)
    options = parser.parse_args()
    if options.parallel == "none" and options.ranks != 1:
        parser.error(f"--ranks {options.ranks} needs --parallel ddp or fsdp2")
    if options.sequences % options.ranks or (options.micro and options.sequences // options.ranks % options.micro):
        parser.error(f"{options.sequences} sequences do not split over {options.ranks} ranks in micro-batches of {options.micro}")
    options.threads = options.threads or max(1, len(os.sched_getaffinity(0)) // options.ranks)

    results = mp.get_context("spawn").SimpleQueue()
    if options.ranks == 1:
        train(0, options, results)
    else:
        mp.spawn(train, (options, results), nprocs=options.ranks)
    ranks = sorted(results.get() for _ in range(options.ranks))
    step_s = [max(each) for each in zip(*(times for _, times, *_ in ranks))]
    median = statistics.median(step_s)
    print(json.dumps({
        "peer": "torch", "version": torch.__version__, "dtype": options.dtype, "compile": options.compile,
        "parallel": options.parallel, "ranks": options.ranks, "threads": options.threads, "parameters": ranks[0][4],
        "seq": options.seq, "sequences": options.sequences, "micro": options.micro or options.sequences // options.ranks,
        "steps": options.steps, "step_s_median": median, "step_s_min": min(step_s),
        "tokens_per_s": options.sequences * options.seq / median,
        "peak_rss_bytes": [peak for _, _, peak, *_ in ranks], "start_rss_bytes": [start for _, _, _, start, *_ in ranks],
        "loss": ranks[0][5],
    }))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
