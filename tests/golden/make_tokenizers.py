#!/usr/bin/env python3
"""Writes tests/golden/tokenizers: small tokenizers trained by the `tokenizers` package, and the ids it gives for texts.

Needs the PyPI package tokenizers (0.23.3). The texts are of many scripts and hard cases; tests/tokenizer reads both. Run
from anywhere: tests/golden/make_tokenizers.py
"""

import json
import pathlib
import random

from tokenizers import AddedToken, Regex, Tokenizer, decoders as D, models, normalizers as N, pre_tokenizers as P, processors as Q, trainers

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / "tests/golden/tokenizers"
random.seed(18)

RANGES = [(0x20, 0x7E), (0xA0, 0x24F), (0x370, 0x3FF), (0x400, 0x4FF), (0x590, 0x5FF), (0x600, 0x6FF), (0x900, 0x97F),
          (0xE00, 0xE7F), (0x1100, 0x11FF), (0x2000, 0x206F), (0x2190, 0x21FF), (0x2460, 0x24FF), (0x3040, 0x30FF),
          (0x4E00, 0x4FFF), (0xAC00, 0xACFF), (0xFB00, 0xFB4F), (0xFF00, 0xFFEF), (0x1F300, 0x1F64F), (0x1D400, 0x1D4FF),
          (0x1E900, 0x1E95F), (0x300, 0x36F), (0x1, 0x10FFFF)]
PARTS = [" ", "  ", "\n", "\r\n", " \n\n ", "\t", "'s", "'LL", "'\u017f", "1234567", "don't", "  x", "\u00e9", "e\u0301", "", "",
         "<|endoftext|>", "[MASK]", " [MASK] ", "</s>", "\u00a0", "\u3000", "//\n", "...\n\n"]


def random_text():
    text = ""
    for _ in range(random.randint(1, 9)):
        low, high = random.choice(RANGES)
        codes = [random.randint(low, high) for _ in range(random.randint(1, 6))]
        text += "".join(chr(code) for code in codes if not 0xD800 <= code < 0xE000) + random.choice(PARTS)
    return text


plain = [(ROOT / name).read_text() for name in ("docs/architecture.md", "docs/training.md", "CONTRIBUTING.md", "src/graph/autodiff.cc")]
texts = [random_text() for _ in range(160)]
texts += [line for text in plain for line in text.split("\n") if line.strip()][:60]
texts += ["a" * 300, "\u6f22\u5b57" * 90, " " * 200 + "x", "ab" * 60 + " " + "9" * 77, "~" * 71, "HelloWORLDAgain it's IT'S", ""]
corpus = plain + texts[:150]


def expressions():
    """The expressions of src/tokenizer/expressions.h."""
    import re

    source = (ROOT / "src/tokenizer/expressions.h").read_text()
    found = re.findall(r'string_view k(\w+) =((?:\s*R"\((?:.|\n)*?\)")+);', source)
    return {name: "".join(re.findall(r'R"\((.*?)\)"', text, re.S)) for name, text in found}


def save(name, tokenizer):
    tokenizer.save(str(OUT / f"{name}.json"), pretty=False)
    ids = [e.ids for e in tokenizer.encode_batch(texts)]
    decoded = tokenizer.decode_batch(ids, skip_special_tokens=True)
    changed = {str(i): d for i, (t, d) in enumerate(zip(texts, decoded)) if t != d}
    (OUT / f"{name}.expected.json").write_text(json.dumps({"ids": ids, "decoded_otherwise": changed}, separators=(",", ":")) + "\n")


def byte_level(name, expression=None, prefix=False, normalizer=None, ignore_merges=False, frame=False):
    t = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer:
        t.normalizer = normalizer
    if expression:
        t.pre_tokenizer = P.Sequence([P.Split(Regex(expression), "isolated"), P.ByteLevel(add_prefix_space=prefix, use_regex=False)])
    else:
        t.pre_tokenizer = P.ByteLevel(add_prefix_space=prefix)
    t.decoder = D.ByteLevel()
    t.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=700, special_tokens=["<|endoftext|>"], initial_alphabet=P.ByteLevel.alphabet(), show_progress=False))
    t.add_tokens([AddedToken("[MASK]", lstrip=True, normalized=True), AddedToken("don't", single_word=True, normalized=False)])
    if frame:
        t.post_processor = Q.TemplateProcessing(single="<|endoftext|> $A", pair="$A $B", special_tokens=[("<|endoftext|>", 0)])
    save(name, t)


known = expressions()
byte_level("gpt2", prefix=True)
byte_level("llama3", known["Llama3"], ignore_merges=True, frame=True)
byte_level("qwen2", known["Qwen2"], normalizer=N.NFC())
byte_level("o200k", known["O200k"])
byte_level("tekken", known["Tekken"])
byte_level("other", r"\p{N}{1,3}|\p{L}+\p{M}*|[\p{P}\p{S}]+[\r\n]*|\s+")

t = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
t.normalizer = N.Sequence([N.Prepend("\u2581"), N.Replace(" ", "\u2581")])
t.pre_tokenizer = P.Metaspace(prepend_scheme="never", split=True)
t.decoder = D.Sequence([D.Replace("\u2581", " "), D.ByteFallback(), D.Fuse(), D.Strip(" ", 1, 0)])
t.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=900, special_tokens=["<unk>", "<s>", "</s>"] + ["<0x%02X>" % i for i in range(256)], limit_alphabet=150, show_progress=False))
whole = json.loads(t.to_str())
whole["pre_tokenizer"] = None  # as Llama 2's file: the text is one word
whole["added_tokens"] = [a for a in whole["added_tokens"] if not a["content"].startswith("<0x")]
save("llama2", Tokenizer.from_str(json.dumps(whole)))

t = Tokenizer(models.Unigram())
t.normalizer = N.Sequence([N.Nmt(), N.NFKC(), N.Replace(Regex(" {2,}"), " ")])
t.pre_tokenizer = P.Metaspace(prepend_scheme="first")
t.decoder = D.Metaspace(prepend_scheme="first")
t.train_from_iterator(plain, trainers.UnigramTrainer(vocab_size=700, special_tokens=["<unk>", "</s>"], unk_token="<unk>", show_progress=False))
save("unigram", t)

t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
t.normalizer = N.BertNormalizer(lowercase=True)
t.pre_tokenizer = P.BertPreTokenizer()
t.decoder = D.WordPiece()
t.train_from_iterator(plain, trainers.WordPieceTrainer(vocab_size=700, special_tokens=["[UNK]", "[CLS]", "[SEP]", "[MASK]"], show_progress=False))
t.post_processor = Q.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
save("wordpiece", t)

t = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
t.normalizer = N.Sequence([N.NFD(), N.StripAccents(), N.Lowercase(), N.Strip()])
t.pre_tokenizer = P.Sequence([P.Whitespace(), P.Digits(individual_digits=True)])
t.decoder = D.BPEDecoder()
t.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=700, special_tokens=["<unk>"], end_of_word_suffix="</w>", limit_alphabet=150, show_progress=False))
save("suffix", t)

t = Tokenizer(models.BPE(unk_token="<unk>", continuing_subword_prefix="##", fuse_unk=True))
t.pre_tokenizer = P.Sequence([P.Punctuation("merged_with_previous"), P.WhitespaceSplit(), P.Split("e", "merged_with_next"), P.Digits()])
t.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=600, special_tokens=["<unk>"], continuing_subword_prefix="##", limit_alphabet=120, show_progress=False))
save("prefix", t)
(OUT / "texts.json").write_text(json.dumps(texts, separators=(",", ":")) + "\n")
print("wrote", len(texts), "texts for each of", len(list(OUT.glob("*.expected.json"))), "tokenizers")
