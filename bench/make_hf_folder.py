#!/usr/bin/env python3
"""A Hugging Face folder of any size with random weights, to measure how fast Quintet loads it.

  bench/make_hf_folder.py FOLDER [--model llama3-8b|llama3-70b|tiny] [--layers N] [--shard-size 5000000000]

Writes safetensors shards in bf16, their index and config.json (no tokenizer: set data.tokenizer = "bytes"), at the speed of the disk and in a few MiB of memory. Then,
with the page cache dropped (echo 3 > /proc/sys/vm/drop_caches), a run's first lines say how long loading took:

  quintet train RECIPE --set model.hf=FOLDER --set run.steps=1
"""

import argparse
import json
import os
import pathlib
import random
import struct

MODELS = {  # layers, hidden, intermediate, heads, kv heads, vocabulary
    "llama3-8b": (32, 4096, 14336, 32, 8, 128256),
    "llama3-70b": (80, 8192, 28672, 64, 8, 128256),
    "tiny": (2, 256, 512, 4, 2, 1024),
}
BLOCK = 4 << 20


def tensors(layers, hidden, ffn, heads, kv_heads, vocabulary):
    head = hidden // heads
    yield "model.embed_tokens.weight", (vocabulary, hidden)
    for i in range(layers):
        block = f"model.layers.{i}."
        yield block + "input_layernorm.weight", (hidden,)
        yield block + "self_attn.q_proj.weight", (hidden, hidden)
        yield block + "self_attn.k_proj.weight", (kv_heads * head, hidden)
        yield block + "self_attn.v_proj.weight", (kv_heads * head, hidden)
        yield block + "self_attn.o_proj.weight", (hidden, hidden)
        yield block + "post_attention_layernorm.weight", (hidden,)
        yield block + "mlp.gate_proj.weight", (ffn, hidden)
        yield block + "mlp.up_proj.weight", (ffn, hidden)
        yield block + "mlp.down_proj.weight", (hidden, ffn)
    yield "model.norm.weight", (hidden,)
    yield "lm_head.weight", (vocabulary, hidden)


def random_block():
    """bf16 numbers of magnitude 2^-6 to 2^-5: finite, of either sign."""
    words = random.Random(1).randbytes(BLOCK)
    return b"".join(struct.pack("<H", (w & 0x807F) | 0x3C80) for (w,) in struct.iter_unpack("<H", words))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--model", choices=MODELS, default="llama3-8b")
    parser.add_argument("--layers", type=int, help="instead of the model's")
    parser.add_argument("--shard-size", type=int, default=5_000_000_000)
    options = parser.parse_args()
    layers, *sizes = MODELS[options.model]
    layers = options.layers or layers
    hidden, ffn, heads, kv_heads, vocabulary = sizes
    shards = [[]]
    for name, shape in tensors(layers, *sizes):
        size = 2
        for d in shape:
            size *= d
        if shards[-1] and sum(s for _, _, s in shards[-1]) + size > options.shard_size:
            shards.append([])
        shards[-1].append((name, shape, size))
    options.folder.mkdir(parents=True)
    block, index = random_block(), {}
    for i, shard in enumerate(shards):
        file = f"model-{i + 1:05}-of-{len(shards):05}.safetensors"
        header, at = {}, 0
        for name, shape, size in shard:
            header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
            index[name] = file
            at += size
        text = json.dumps(header).encode()
        with open(options.folder / file, "wb", buffering=0) as out:
            out.write(struct.pack("<Q", len(text)) + text)
            while at > 0:
                at -= out.write(block[:min(at, BLOCK)])
            os.fsync(out.fileno())
    total = sum(size for shard in shards for _, _, size in shard)
    (options.folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": total}, "weight_map": index}))
    (options.folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden, "intermediate_size": ffn,
        "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv_heads, "vocab_size": vocabulary,
        "max_position_embeddings": 8192, "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "tie_word_embeddings": False,
        "torch_dtype": "bfloat16"}, indent=2))
    print(f"{options.folder}: {total / 1e9:.1f} GB in {len(shards)} files")


main()
