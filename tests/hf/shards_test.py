#!/usr/bin/env python3
"""Shards of a checkpoint, opened by the safetensors package: every tensor that its header names, with the elements that
`quintet export` writes for the same parameter.

    shards_test.py QUINTET --work FOLDER        (make test-hf)
"""
import argparse
import json
import os
import shutil
import subprocess

import numpy
from safetensors import safe_open
from safetensors.numpy import load_file

RECIPE = """name = "shards"
[model]
family = "llama"
layers = 2
embed = 64
ffn = 128
heads = 4
kv_heads = 2
vocab = 256
[data]
path = "text"
tokenizer = "bytes"
seq_len = 32
[batch]
global = 4
micro = 1
[parallel]
dp_shard = 2
zero = 1
[optimizer]
lr = 1e-3
groups = [{ match = "*ffn*", update = false }]
[run]
steps = 2
threads = 1
"""


def elements(region, shape):
    """The flat indices of a region's elements, in their order in the shard (docs/formats/checkpoint.md)."""
    shape = region.get("shape", shape)
    begin, size = region.get("begin", [0] * len(shape)), region.get("size", shape)
    index = numpy.arange(int(numpy.prod(shape))).reshape(shape)[tuple(slice(b, b + s) for b, s in zip(begin, size))].reshape(-1)
    first, count = region.get("range", [0, index.size])
    return index[first:first + count]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("quintet")
    parser.add_argument("--work", required=True)
    options = parser.parse_args()
    quintet, work = os.path.abspath(options.quintet), options.work
    shutil.rmtree(work, ignore_errors=True)
    os.makedirs(os.path.join(work, "text"))
    with open(os.path.join(work, "text", "a.txt"), "w") as file:
        file.write("every shard is a file that any reader opens. " * 400)
    with open(os.path.join(work, "recipe.toml"), "w") as file:
        file.write(RECIPE)
    subprocess.run([quintet, "train", "recipe.toml", "--run-dir", "run", "--sample", "0"], cwd=work, check=True, stdout=subprocess.DEVNULL)
    subprocess.run([quintet, "export", "run", "--to", "hf", "whole"], cwd=work, check=True, stdout=subprocess.DEVNULL)
    folder = os.path.join(work, "run", "checkpoints", "step-00000002")
    with open(os.path.join(folder, "manifest.json")) as file:
        manifest = json.load(file)
    whole = {}
    for shard in manifest["files"]:
        with safe_open(os.path.join(folder, shard["name"]), "np") as file:
            pieces = json.loads(file.metadata()["quintet.pieces"])
            assert sorted(file.keys()) == sorted(piece["key"] for piece in pieces), shard["name"]
            for piece in pieces:
                tensor = file.get_tensor(piece["key"]).reshape(-1)
                to = whole.setdefault(piece["name"], numpy.full(int(numpy.prod(piece["shape"])), numpy.nan))
                at = elements(piece["region"], piece["shape"])
                assert numpy.isnan(to[at]).all(), f"{piece['name']} is stored twice"
                to[at] = tensor
    assert len(whole) == len(manifest["tensors"]) and len(manifest["files"]) == 4, (len(whole), len(manifest["files"]))
    for name, values in whole.items():
        assert not numpy.isnan(values).any(), f"{name} is not whole"
    exported = [tensor.astype(numpy.float64).reshape(-1) for name in sorted(os.listdir(os.path.join(work, "whole")))
                if name.endswith(".safetensors") for tensor in load_file(os.path.join(work, "whole", name)).values()]
    parameters = {numpy.sort(v).tobytes() for n, v in whole.items() if "/" not in n}
    for tensor in exported:
        assert numpy.sort(tensor).tobytes() in parameters, "an exported tensor is in no shard"
    print(f"shards: {len(whole)} tensors in {len(manifest['files'])} files, {len(exported)} of them compared with an export")


if __name__ == "__main__":
    main()
