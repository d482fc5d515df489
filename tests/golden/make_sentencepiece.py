#!/usr/bin/env python3
"""Writes tests/golden/tokenizers/sp_*.model: small models that SentencePiece trains, and the ids that it gives for the texts of
make_tokenizers.py.

Needs the PyPI package sentencepiece (0.2.1, as make test-hf installs it). Run from anywhere: tests/golden/make_sentencepiece.py
"""

import json
import pathlib
import tempfile

import sentencepiece

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / "tests/golden/tokenizers"
texts = json.loads((OUT / "texts.json").read_text())
plain = [(ROOT / name).read_text() for name in ("docs/architecture.md", "docs/training.md", "CONTRIBUTING.md")]

with tempfile.TemporaryDirectory() as work:
    corpus = pathlib.Path(work) / "corpus.txt"
    corpus.write_text("\n".join(plain + [text for text in texts if text.isascii()]))
    for name, more in {
        "sp_unigram": {"model_type": "unigram", "byte_fallback": True},
        "sp_bpe": {"model_type": "bpe", "byte_fallback": True, "split_digits": True, "normalization_rule_name": "identity"},
        "sp_plain": {"model_type": "unigram", "normalization_rule_name": "identity", "add_dummy_prefix": False,
                     "user_defined_symbols": ["[MASK]", "don't"]},
    }.items():
        sentencepiece.SentencePieceTrainer.train(
            input=str(corpus), model_prefix=str(pathlib.Path(work) / name), vocab_size=700, character_coverage=0.98,
            max_sentence_length=100000, minloglevel=2, **more)
        (OUT / f"{name}.model").write_bytes((pathlib.Path(work) / f"{name}.model").read_bytes())
        t = sentencepiece.SentencePieceProcessor(model_file=str(OUT / f"{name}.model"))
        ids = [[t.bos_id()] + ids for ids in t.encode(texts)]
        decoded = t.decode([each[1:] for each in ids])
        changed = {str(i): d for i, (text, d) in enumerate(zip(texts, decoded)) if text != d}
        (OUT / f"{name}.expected.json").write_text(json.dumps({"ids": ids, "decoded_otherwise": changed}, separators=(",", ":")) + "\n")
