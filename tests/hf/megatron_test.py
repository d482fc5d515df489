#!/usr/bin/env python3
"""Token files against megatron-core's own reader and writer from PyPI (make test-hf).

  megatron_test.py BUILD [--work FOLDER]     both directions, on fresh random documents
  megatron_test.py --write FOLDER            only write pairs with megatron-core, and the ids they hold as JSON; this made
                                             tests/golden/megatron

`quintet prepare` writes documents in both of its widths, and megatron-core's IndexedDataset must give the same ids. Then
megatron-core's builder writes pairs in each integer type, documents of several sequences among them, and our reader
(MegatronFile.ReadsWhatMegatronCoreWrites of test_data) must give the same ids.
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys

import numpy
import torch
from megatron.core.datasets.indexed_dataset import IndexedDataset, IndexedDatasetBuilder

parser = argparse.ArgumentParser()
parser.add_argument("build", nargs="?")
parser.add_argument("--work", default="build/hf-megatron")
parser.add_argument("--write")
options = parser.parse_args()
failed = 0


def write_pairs(folder, seed):
    random.seed(seed)
    folder.mkdir(parents=True, exist_ok=True)
    expected = {}
    for dtype, vocab in [(numpy.uint8, 256), (numpy.uint16, 65000), (numpy.int32, 200000)]:
        prefix = folder / dtype.__name__
        builder = IndexedDatasetBuilder(f"{prefix}.bin", dtype=dtype)
        documents = []
        for _ in range(20):
            lengths = [random.randint(1, 9) for _ in range(random.randint(1, 3))]
            ids = [random.randrange(vocab) for _ in range(sum(lengths))]
            builder.add_document(torch.tensor(ids), lengths)
            documents.append(ids)
        builder.finalize(f"{prefix}.idx")
        expected[dtype.__name__] = {"vocab": vocab, "documents": documents}
    (folder / "ids.json").write_text(json.dumps(expected))


def check(name, good):
    global failed
    print(f"{name:60} {'ok' if good else 'DIFFERS'}", flush=True)
    failed += not good


if options.write:
    write_pairs(pathlib.Path(options.write), 20261118)
    sys.exit()
if not options.build:
    sys.exit("megatron_test.py: the build folder is missing")
work = pathlib.Path(options.work)
shutil.rmtree(work, ignore_errors=True)
work.mkdir(parents=True)

# Ours, read by megatron-core: the byte tokenizer (16 bits), and one of more than 65,500 ids (32 bits).
texts = ["".join(chr(random.randint(32, 0x24F)) for _ in range(random.randint(1, 400))) for _ in range(500)]
(work / "in.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
vocab = {token: i for i, token in enumerate([f"unused{i}" for i in range(70000)] + [chr(c) for c in range(32, 0x250)])}
large = {"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": None, "post_processor": None, "decoder": None,
         "model": {"type": "BPE", "vocab": vocab, "merges": []}}
(work / "large.json").write_text(json.dumps(large))
for tokenizer, encode, dtype in [("bytes", lambda t: list(t.encode()), numpy.uint16),
                                 (work / "large.json", lambda t: [vocab[c] for c in t], numpy.int32)]:
    out = work / f"ours-{dtype.__name__}"
    subprocess.run([f"{options.build}/quintet", "prepare", work / "in.jsonl", "--tokenizer", tokenizer, "--out", out, "--shard", "20000"],
                   check=True, stdout=subprocess.DEVNULL)
    read = IndexedDataset(str(out / "tokens"))
    same = len(read) == len(texts) and all(numpy.array_equal(read[i], encode(t)) for i, t in enumerate(texts))
    check(f"megatron-core reads ours, {dtype.__name__}", same and read[0].dtype == dtype)
    check(f"  its documents, {dtype.__name__}", list(read.document_indices) == list(range(len(texts) + 1)))

# Theirs, read by us.
write_pairs(work / "theirs", random.randrange(1 << 30))
done = subprocess.run([f"{options.build}/tests/test_data", "--gtest_filter=MegatronFile.ReadsWhatMegatronCoreWrites"],
                      env={**os.environ, "QUINTET_MEGATRON_FILES": str((work / "theirs").resolve())}, capture_output=True, text=True)
check("ours reads megatron-core's, uint8, uint16, int32", done.returncode == 0 and "[  PASSED  ] 1 test" in done.stdout)
if done.returncode != 0:
    print(done.stdout)
sys.exit(1 if failed else 0)
