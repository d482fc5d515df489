#!/usr/bin/env python3
"""PyTorch as the GPU baseline: trains the Llama of a recipe in this folder on random tokens, prints one JSON line.

  torch_llama.py 1b.toml --mode whole
  torch_llama.py 125m.toml --micro 4 --mode graph --steps 50 --seconds 30
  torch_llama.py 1b.toml --documents documents/508.txt --attention flex

Modes: eager; block (torch.compile of every block); whole (of the model); graph (whole, with CUDA graphs); fsdp2 (fully
sharded over one rank, blocks compiled). bf16 autocast over f32 weights, fused AdamW with f32 moments, gradients clipped
to norm 1, every token counts; `--compiled-update` compiles clipping and AdamW together. Times are of single steps
between CUDA events, after `--seconds` of warm-up, without synchronising between steps; `tokens_per_s` is based on the
median; peak memory is as reported by PyTorch. With `--documents`, sequences are packed from documents of these lengths,
repeated cyclically and cut where a sequence ends, as `quintet bench step --documents` packs them; positions restart in
each document. Attention is then flex (one block mask for all steps) or varlen. `--float8` needs torchao; its head stays in
bf16 unless `--float8-head`. With `--turn`, processes that name one file use the GPU one at a time and compile meanwhile.

Initial weights and the tokens of every step are those of `quintet bench step` (Philox4x32-10, keyed by run.seed and a
parameter's name, and by the step), so that `losses`, of the first 20 steps, can be compared with its `first_losses`.
Later steps repeat the last tokens, which saves drawing them.
"""

import argparse
import fcntl
import json
import math
import os
import pathlib
import statistics
import time
import tomllib

import torch
import torch.nn as nn
import torch.nn.functional as F

EPS = 1e-5
SEED = 0  # run.seed unless a recipe has its own


class Block(nn.Module):
    def __init__(self, m, attend):
        super().__init__()
        self.attend = attend
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
        y = self.attend(rotate(q, cos, sin), rotate(k, cos, sin), v)
        x = x + self.wo(y.transpose(1, 2).reshape(batch, seq, -1))
        y = self.ffn_norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def rotate(x, cos, sin):
    a, b = x.float().chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1).to(x.dtype)


class Documents:
    """Of each token its document and its place in it, of a micro-batch of packed sequences."""

    def __init__(self, path, micro, seq):
        lengths = [int(word) for word in path.read_text().split()] if path else [seq]
        self.ids, self.places, self.starts, following = [], [], [], 0
        for sequence in range(micro):
            at, number = 0, 0
            while at < seq:
                length = min(lengths[following % len(lengths)], seq - at)
                following += 1
                self.starts.append(sequence * seq + at)
                self.ids += [number] * length
                self.places += range(length)
                at, number = at + length, number + 1
        self.longest = max(self.places) + 1


def attention_of(kind, m, micro, seq, documents):
    """A function of q, k and v, each [batch, heads, tokens, size]."""
    gqa = m["heads"] != m["kv_heads"]
    if kind == "flex":
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        ids = torch.tensor(documents.ids, device="cuda").view(micro, seq)
        mask = create_block_mask(lambda b, h, q, k: (q >= k) & (ids[b, q] == ids[b, k]), micro, None, seq, seq,
                                 device="cuda")
        return lambda q, k, v: flex_attention(q, k, v, block_mask=mask, enable_gqa=gqa)
    if kind == "varlen":
        from torch.nn.attention.varlen import varlen_attn

        ends = torch.tensor(documents.starts + [micro * seq], device="cuda", dtype=torch.int32)

        def attend(q, k, v):
            q, k, v = (t.transpose(1, 2).flatten(0, 1) for t in (q, k, v))
            most = documents.longest
            try:
                y = varlen_attn(q, k, v, ends, ends, most, most, is_causal=True)
            except TypeError:  # the signature from PyTorch 2.11 on
                y = varlen_attn(q, k, v, ends, ends, most, most, window_size=(-1, 0))
            return y.view(micro, seq, *y.shape[1:]).transpose(1, 2)

        return attend
    return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=gqa)


class Llama(nn.Module):
    def __init__(self, m, attend, places):
        super().__init__()
        self.embed = nn.Embedding(m["vocab"], m["embed"])
        self.blocks = nn.ModuleList(Block(m, attend) for _ in range(m["layers"]))
        self.final_norm = nn.RMSNorm(m["embed"], EPS)
        self.head = nn.Linear(m["embed"], m["vocab"], bias=False)
        head_dim = m["embed"] // m["heads"]
        frequencies = m["rope_theta"] ** (-torch.arange(0, head_dim, 2) / head_dim)
        angles = places[:, None, :, None].float() * frequencies  # [batch or 1, 1, tokens, half a head]
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return self.head(self.final_norm(x))


MASK = 0xFFFFFFFF
FIRST_LOSSES = 20


def philox(key, low, high=0):
    """Four 32-bit words, as int64 tensors, from a 64-bit key and a 128-bit counter (quintet's base/philox.h)."""
    k0, k1 = key & MASK, key >> 32 & MASK
    c = [low & MASK, low >> 32 & MASK, torch.full_like(low, high & MASK), torch.full_like(low, high >> 32)]
    for _ in range(10):
        p0, p1 = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57  # wrap around; only their bits count
        c = [(p1 >> 32 & MASK) ^ c[1] ^ k0, p1 & MASK, (p0 >> 32 & MASK) ^ c[3] ^ k1, p0 & MASK]
        k0, k1 = k0 + 0x9E3779B9 & MASK, k1 + 0xBB67AE85 & MASK
    return c


def stream_key(seed, name):
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = (h ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    signed = h - (1 << 64) if h >= 1 << 63 else h
    w = philox(seed, torch.tensor([signed]), len(name.encode()))
    return int(w[0]) << 32 | int(w[1])


@torch.no_grad()
def initialise(model, m, seed):
    """The weights that quintet draws: normal, 0.02, less in the projections that end a block's branches."""
    residual = 0.02 / math.sqrt(2.0 * m["layers"])
    for name, p in model.named_parameters():
        if p.dim() < 2:
            continue  # norms begin as ones
        for word, part in (("wq", "attn"), ("wk", "attn"), ("wv", "attn"), ("wo", "attn"), ("gate", "ffn"), ("up", "ffn"),
                           ("down", "ffn")):
            name = name.replace(f".{word}.", f".{part}.{word}.")
        key = stream_key(seed, name)
        stddev = residual if ".wo." in name or ".down." in name else 0.02
        flat = p.view(-1)
        for begin in range(0, flat.numel(), 1 << 26):
            at = torch.arange(begin, min(begin + (1 << 26), flat.numel()), device=p.device)
            w = philox(key, at)
            u1 = ((w[0] << 20 | w[1] >> 12).double() + 0.5) * 2.0**-52
            u2 = w[2].double() * 2.0**-32
            flat[at] = (stddev * (-2.0 * u1.log()).sqrt() * (2.0 * math.pi * u2).cos()).float()


def tokens_of(step, micro, seq, vocab):
    """Ids and labels of a step of `quintet bench step`: the label is the next id, across sequences too."""
    words = philox(step, torch.arange(micro * seq // 4 + 1, device="cuda"))
    drawn = torch.stack(words, dim=1).flatten() % vocab
    return drawn[:-4].view(micro, seq).clone(), drawn[1:-3].view(micro, seq).clone()


def loss_of(logits, labels):
    return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


class Turn:
    """Holds the lock of a file while this process uses the GPU, and gives it back while it compiles. No file: nothing."""

    def __init__(self, path):
        self.file, self.held = open(path, "a") if path else None, False
        if path:
            import torch._functorch.config

            torch._functorch.config.force_non_lazy_backward_lowering = True  # compile everything before the first launch

    def take(self):
        if self.file and not self.held:
            fcntl.flock(self.file, fcntl.LOCK_EX)
            self.held = True

    def give(self):
        if self.held:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            fcntl.flock(self.file, fcntl.LOCK_UN)
            self.held = False

    def compile(self, what):
        """torch.compile, beside another process that uses the GPU."""
        if not self.file:
            return torch.compile(what)
        from torch._inductor.compile_fx import compile_fx

        def backend(graph, inputs):
            self.give()
            compiled = compile_fx(graph, inputs)

            def run(*arguments):
                self.take()
                return compiled(*arguments)

            return run

        return torch.compile(what, backend=backend)


def prepare(model, mode, turn):
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
    return torch.compile(model, mode="reduce-overhead") if mode == "graph" else turn.compile(model), torch.compile(loss_of)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", type=pathlib.Path)
    parser.add_argument("--mode", choices=["eager", "block", "whole", "graph", "fsdp2"], default="whole")
    parser.add_argument("--seq", type=int, default=0, help="sequence length (data.seq_len of the recipe)")
    parser.add_argument("--micro", type=int, default=0, help="sequences per micro-batch (batch.micro of the recipe)")
    parser.add_argument("--documents", type=pathlib.Path, help="file with the lengths of documents, in tokens")
    parser.add_argument("--attention", choices=["flex", "varlen"], default="flex", help="attention with --documents")
    parser.add_argument("--compiled-update", action="store_true", help="compile clipping and AdamW")
    parser.add_argument("--float8", choices=["tensorwise", "rowwise", "rowwise_with_gw_hp"],
                        help="recipe of torchao's float8 training for the linear layers of the blocks")
    parser.add_argument("--float8-head", action="store_true", help="the head in float8 too")
    parser.add_argument("--turn", type=pathlib.Path, help="file whose lock a process holds while it uses the GPU")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=30, help="warm-up time")
    options = parser.parse_args()
    recipe = tomllib.loads(options.recipe.read_text())
    m, seq, micro = recipe["model"], options.seq or recipe["data"]["seq_len"], options.micro or recipe["batch"]["micro"]

    turn = Turn(options.turn)
    turn.take()
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(0)
    documents = Documents(options.documents, micro, seq)
    places = torch.tensor(documents.places, device="cuda").view(micro, seq)
    attention = options.attention if options.documents else "sdpa"
    with torch.device("cuda"):
        model = Llama(m, attention_of(attention, m, micro, seq, documents), places if options.documents else places[:1])
    parameters = sum(p.numel() for p in model.parameters())
    initialise(model, m, recipe.get("run", {}).get("seed", SEED))
    if options.float8:
        from torchao.float8 import Float8LinearConfig, convert_to_float8_training

        convert_to_float8_training(model, config=Float8LinearConfig.from_recipe_name(options.float8),
                                   module_filter_fn=lambda module, name: isinstance(module, nn.Linear)
                                   and (options.float8_head or name != "head"))
    run, loss_fn = prepare(model, options.mode, turn)
    compiled = options.compiled_update
    groups = [{"params": [p for p in model.parameters() if p.dim() >= 2], "weight_decay": 0.1},
              {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=recipe["optimizer"]["lr"], betas=(0.9, 0.95), eps=1e-8,
                                  fused=not compiled, foreach=True if compiled else None)
    tokens, labels = tokens_of(0, micro, seq, m["vocab"])

    def update():
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()

    if compiled:
        update = turn.compile(update)

    def step():
        with torch.autocast("cuda", torch.bfloat16, enabled=options.mode != "fsdp2"):
            loss = loss_fn(run(tokens), labels)
        loss.backward()
        update()
        optimizer.zero_grad(set_to_none=True)
        return loss

    begin = time.time()
    losses = [step().item()]
    first = time.time() - begin
    for number in range(1, FIRST_LOSSES):
        for mine, drawn in zip((tokens, labels), tokens_of(number, micro, seq, m["vocab"])):
            mine.copy_(drawn)
        losses.append(step().item())
    begin = time.time()
    while time.time() - begin < options.seconds:
        step().item()
    if options.mode != "graph":  # a graph's pool is counted during capture, not during replay
        torch.cuda.reset_peak_memory_stats()
    marks = [torch.cuda.Event(True) for _ in range(options.steps + 1)]
    marks[0].record()
    for mark in marks[1:]:
        loss = step()
        mark.record()
    torch.cuda.synchronize()
    times = [start.elapsed_time(end) / 1e3 for start, end in zip(marks, marks[1:])]
    median = statistics.median(times)
    print(json.dumps({
        "peer": "torch", "version": torch.__version__, "cudnn": torch.backends.cudnn.version(),
        "model": recipe["name"], "mode": options.mode, "attention": attention,
        "documents": options.documents.name if options.documents else "", "compiled_update": compiled, "float8": options.float8 or "", "float8_head": options.float8_head, "seq": seq, "micro": micro, "parameters": parameters,
        "steps": options.steps, "step_s_median": median, "step_s_min": min(times),
        "tokens_per_s": micro * seq / median, "first_step_s": first,
        "peak_bytes": torch.cuda.max_memory_allocated(), "loss": loss.item(), "losses": losses,
    }), flush=True)


if __name__ == "__main__":
    main()
