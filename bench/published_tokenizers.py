#!/usr/bin/env python3
"""Published vocabularies as tokenizer.json, for bench/compare_tokenizers.py: Llama 3, Qwen 3, cl100k and o200k as quicktok-v1 (PyPI) ships them.

  published_tokenizers.py FOLDER

The merges are derived from the ranks: the last pair that the ranks below a token's own leave of it.
"""

import json
import pathlib
import re
import sys

import quicktok

EXPRESSIONS = pathlib.Path(__file__).resolve().parent.parent / "src/tokenizer/expressions.h"
PUBLISHED = {"llama3": "Llama3", "qwen3": "Qwen2", "cl100k_base": "Llama3", "o200k_base": "O200k"}  # and their expressions


def spellings():
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = (byte for byte in range(256) if byte not in visible)
    return {byte: chr(byte) for byte in visible} | {byte: chr(256 + i) for i, byte in enumerate(others)}


def last_pair(token, rank, ranks):
    parts = [bytes([byte]) for byte in token]
    while len(parts) > 2:
        found = [(ranks[a + b], i) for i, (a, b) in enumerate(zip(parts, parts[1:])) if ranks.get(a + b, rank) < rank]
        if not found:
            return None
        i = min(found)[1]
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
    return parts


def main():
    folder = pathlib.Path(sys.argv[1])
    spelled = spellings()
    source = EXPRESSIONS.read_text()
    for name, expression in PUBLISHED.items():
        encoding = quicktok.get_encoding(name)
        ranks = {}
        for i in range(encoding.n_vocab):
            if not encoding.is_special_token(i):
                try:
                    ranks.setdefault(encoding.decode_single_token_bytes(i), i)
                except KeyError:
                    pass  # a gap before the special tokens
        text = re.search(rf'k{expression} =((?:\s*R"\(.*?\)")+);', source, re.S).group(1)
        pattern = "".join(re.findall(r'R"\((.*?)\)"', text, re.S))
        spell = lambda token: "".join(spelled[byte] for byte in token)
        pairs = [last_pair(t, r, ranks) for t, r in sorted(ranks.items(), key=lambda item: item[1]) if len(t) > 1]
        byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
        split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                 "fuse_unk": False, "byte_fallback": False, "ignore_merges": name == "llama3",
                 "vocab": {spell(token): rank for token, rank in ranks.items()},
                 "merges": [[spell(a), spell(b)] for a, b in filter(None, pairs)]}
        file = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
                "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]}, "post_processor": None,
                "decoder": byte_level, "model": model}
        (folder / f"{name}.json").write_text(json.dumps(file))
        print(f"{name}.json: {len(ranks)} tokens, {len(model['merges'])} merges")


main()
