#!/usr/bin/env python3
"""Ids, texts and trained vocabularies against the PyPI packages tokenizers, tiktoken and sentencepiece (make test-hf).

  tokenizers_test.py QUINTET [--lines N] [--work FOLDER] [--only NAME ...]

Trains tokenizers of every kind with the packages on text of this repository and random text of many scripts, then compares
`quintet tokenizer encode` with them on N lines (1,000,000) and on one long text. Also: the class of every code point, our trainer against
theirs, normal forms, and the rate of encoding on one thread. Prints a table; exit status 1 if anything differs. --only compares
the kinds of these names (as in the table) and nothing else.
"""

import argparse
import array
import base64
import json
import os
import pathlib
import random
import re
import resource
import subprocess
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
import sentencepiece
import tiktoken
from tokenizers import AddedToken, Regex, Tokenizer, decoders as D, models, normalizers as N, pre_tokenizers as P, processors as Q, trainers

ROOT = pathlib.Path(__file__).resolve().parents[2]
parser = argparse.ArgumentParser()
parser.add_argument("quintet")
parser.add_argument("--lines", type=int, default=1_000_000)
parser.add_argument("--work", default="build/hf-tokenizers")
parser.add_argument("--only", nargs="+", default=[])
options = parser.parse_args()
work = pathlib.Path(options.work)
work.mkdir(parents=True, exist_ok=True)
random.seed(20261116)
failed = 0

RANGES = [(0x20, 0x7E), (0xA0, 0x24F), (0x370, 0x3FF), (0x400, 0x4FF), (0x590, 0x5FF), (0x600, 0x6FF), (0x900, 0x97F), (0xE00, 0xE7F),
          (0x1100, 0x11FF), (0x2000, 0x206F), (0x20A0, 0x20CF), (0x2190, 0x21FF), (0x2460, 0x24FF), (0x3040, 0x30FF), (0x4E00, 0x4FFF),
          (0xAC00, 0xACFF), (0xFB00, 0xFB4F), (0xFF00, 0xFFEF), (0x1F300, 0x1F64F), (0x1D400, 0x1D4FF), (0x10000, 0x107FF),
          (0x1E900, 0x1E95F), (0x300, 0x36F), (0x1, 0x10FFFF)]
PARTS = [" ", "  ", "   ", "\t", "'s", "'LL", "'\u017f", "1234567", "don't", "  x", "\u00e9", "e\u0301", "", "", "<|endoftext|>", "[MASK]", " [MASK] ",
         "</s>", "\u00a0", "\u3000", "\r", "/ /", "..."]


def random_line():
    text = ""
    for _ in range(random.randint(1, 12)):
        low, high = random.choice(RANGES)
        codes = [random.randint(low, high) for _ in range(random.randint(1, 8))]
        text += "".join(chr(c) for c in codes if not 0xD800 <= c < 0xE000 and c != 10) + random.choice(PARTS)
    return text.encode()


def broken(line):
    data = bytearray(line[:200])
    for _ in range(random.randint(1, 4)):
        data[random.randrange(len(data))] = random.choice([0x80, 0xFF, 0xC0, 0xE2, 0xF0, 0xED, 0xA0, 0xF4, 0x90])
    return bytes(data)


files = [p for folder in ("docs", "src", "tests", "tools") for p in sorted((ROOT / folder).rglob("*")) if p.suffix in (".md", ".cc", ".h", ".py", ".cu")]
documents = [p.read_text() for p in files]
plain = [line.encode() for text in documents for line in text.split("\n") if line.strip()]
lines = [random_line() for _ in range(options.lines // 2)] + random.choices(plain, k=options.lines // 2 - options.lines // 50)
lines += [broken(random.choice(lines)) for _ in range(options.lines // 50)]
lines += [b"a" * 5000, "\u6f22\u5b57".encode() * 2000, b" " * 3000 + b"x", b"ab" * 300 + b" " + b"9" * 777, b"~" * 171]
lines = [line for line in lines if line]
random.shuffle(lines)
(work / "lines.txt").write_bytes(b"\n".join(lines) + b"\n")
texts = [line.decode("utf8", "replace") for line in lines]
BETWEEN = ["\n", "\n", "\n\n", " \n  ", "\r\n", "\n \n\t", "\t", "    "]
whole_text = "".join(t + random.choice(BETWEEN) for t in documents + texts[:10000])[: 8 << 20]
(work / "whole.txt").write_bytes(whole_text.encode())
corpus = documents[:200] + [t for t in texts[:20000]]


def wanted(name):
    return not options.only or name in options.only


def run(*arguments):
    return subprocess.run([options.quintet, "tokenizer", *map(str, arguments)], capture_output=True, check=True).stdout


def compare(name, path, expected):
    """`expected`: a list of ids for each line."""
    global failed
    rows = run("encode", "--tokenizer", path, "--lines", work / "lines.txt").decode().split("\n")
    wrong = [i for i, ids in enumerate(expected) if array.array("i", map(int, rows[i].split())) != array.array("i", ids)]
    print(f"{name:12} {len(expected):>9,} lines  {len(wrong):>5} differ", flush=True)
    for i in wrong[:3]:
        print("   ", repr(texts[i][:100]), "ours", rows[i][:100], "theirs", " ".join(map(str, expected[i]))[:100])
    failed += bool(wrong)


def compare_whole(name, path, expected):
    """The ids of one long text, where line breaks and long distances matter."""
    global failed
    ours = list(map(int, run("encode", "--tokenizer", path, work / "whole.txt").split()))
    same = ours == expected
    print(f"{name:12} {len(expected):>9,} tokens {'equal' if same else 'DIFFER'} in one text", flush=True)
    if not same:
        at = next((i for i, (a, b) in enumerate(zip(ours, expected)) if a != b), min(len(ours), len(expected)))
        print("    token", at, "ours", ours[at : at + 5], "theirs", expected[at : at + 5])
    failed += not same


def against_package(name, tokenizer):
    path = work / f"{name}.json"
    tokenizer.save(str(path))
    if not wanted(name):
        return
    tokenizer = Tokenizer.from_file(str(path))  # numbers of a file are rounded when they are read
    expected = []
    for start in range(0, len(texts), 20000):
        expected += [array.array("i", e.ids) for e in tokenizer.encode_batch_fast(texts[start : start + 20000])]
    compare(name, path, expected)
    compare_whole(name, path, tokenizer.encode(whole_text).ids)


def expressions():
    source = (ROOT / "src/tokenizer/expressions.h").read_text()
    found = re.findall(r'string_view k(\w+) =((?:\s*R"\((?:.|\n)*?\)")+);', source)
    return {name: "".join(re.findall(r'R"\((.*?)\)"', text, re.S)) for name, text in found}


def byte_level(expression=None, prefix=False, normalizer=None, ignore_merges=False):
    t = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer:
        t.normalizer = normalizer
    t.pre_tokenizer = P.ByteLevel(add_prefix_space=prefix)
    if expression:
        t.pre_tokenizer = P.Sequence([P.Split(Regex(expression), "isolated"), P.ByteLevel(add_prefix_space=prefix, use_regex=False)])
    t.decoder = D.ByteLevel()
    t.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=8000, special_tokens=["<|endoftext|>"], initial_alphabet=P.ByteLevel.alphabet(), show_progress=False))
    t.add_tokens([AddedToken("[MASK]", lstrip=True, normalized=True), AddedToken("don't", single_word=True, normalized=False)])
    return t


known = expressions()
for name, expression in known.items():
    against_package(name, byte_level(expression, normalizer=N.NFC() if name == "Qwen2" else None, ignore_merges=name == "Llama3"))
against_package("prefix space", byte_level(prefix=True))

t = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
t.normalizer = N.Sequence([N.Prepend("\u2581"), N.Replace(" ", "\u2581")])
t.pre_tokenizer = P.Metaspace(prepend_scheme="never", split=True)
t.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=6000, special_tokens=["<unk>", "<s>", "</s>"] + ["<0x%02X>" % i for i in range(256)], limit_alphabet=1000, show_progress=False))
whole = json.loads(t.to_str())
whole["pre_tokenizer"] = None
whole["added_tokens"] = [a for a in whole["added_tokens"] if not a["content"].startswith("<0x")]
against_package("Llama2", Tokenizer.from_str(json.dumps(whole)))

t = Tokenizer(models.Unigram())
t.normalizer = N.Sequence([N.Nmt(), N.NFKC(), N.Replace(Regex(" {2,}"), " ")])
t.pre_tokenizer = P.Metaspace(prepend_scheme="first")
t.train_from_iterator(documents, trainers.UnigramTrainer(vocab_size=6000, special_tokens=["<unk>", "</s>"], unk_token="<unk>", show_progress=False))
against_package("Unigram", t)

t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
t.normalizer = N.BertNormalizer(lowercase=True)
t.pre_tokenizer = P.BertPreTokenizer()
t.train_from_iterator(corpus, trainers.WordPieceTrainer(vocab_size=5000, special_tokens=["[UNK]", "[CLS]", "[SEP]", "[MASK]"], show_progress=False))
t.post_processor = Q.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
against_package("WordPiece", t)

# Expressions that are not known ones: everything that is translated for PCRE2, and properties over every code point.
if wanted("expressions"):
    sys.path.insert(0, str(ROOT / "tests/golden"))
    from make_expressions import WORDS, expression, matches

    plain_bpe = Tokenizer(models.BPE())
    plain_bpe.pre_tokenizer = P.ByteLevel(add_prefix_space=False, use_regex=False)
    plain_bpe.train_from_iterator(corpus[:100], trainers.BpeTrainer(vocab_size=2000, initial_alphabet=P.ByteLevel.alphabet(), show_progress=False))
    mixed = [t for t in ("".join(random.choices(WORDS, k=40)).replace("\n", " ").replace("\r", " ") for _ in range(150))] + texts[:150]
    (work / "mixed.txt").write_text("\n".join(mixed) + "\n", newline="\n")
    codes = [f"a{chr(c)}1{chr(c)}. {chr(c)}b" for c in range(0x20, 0x110000) if not 0xD800 <= c < 0xE000 and c != 0x85]
    (work / "codes.txt").write_text("\n".join(codes) + "\n")
    picked = [e for e in (expression(random) for _ in range(120)) if matches(e, "a") is not None]
    classes = [r"\p{L}+|\p{N}+", r"\w+|\s+", r"[\p{Han}\p{Hiragana}]+", r"[[:alpha:]&&[^\p{Latin}]]+|\p{Latin}+", r"[\p{Lu}\p{Lt}\p{M}]+|\p{S}+", r"(?i:[a-z]+)|\P{L}"]
    wrong = []
    for pattern, rows, name in [(e, mixed, "mixed.txt") for e in picked] + [(e, codes, "codes.txt") for e in classes]:
        plain_bpe.pre_tokenizer = P.Sequence([P.Split(Regex(pattern), "isolated"), P.ByteLevel(add_prefix_space=False, use_regex=False)])
        plain_bpe.save(str(work / "expression.json"))
        done = subprocess.run([options.quintet, "tokenizer", "encode", "--tokenizer", work / "expression.json", "--lines", work / name], capture_output=True, text=True)
        if done.returncode == 2 and ("is not supported" in done.stderr or "too many steps" in done.stderr):
            continue
        ours = [list(map(int, row.split())) for row in done.stdout.split("\n")[:-1]]
        theirs = [e.ids for e in plain_bpe.encode_batch_fast(rows)]
        if ours != theirs:
            wrong.append(pattern)
    print(f"{'expressions':12} {len(picked) + len(classes):>9,}        {len(wrong):>5} differ", wrong[:3], flush=True)
    failed += bool(wrong)

every = [chr(c) for c in range(0x20, 0x110000) if not 0xD800 <= c < 0xE000 and chr(c) not in "\x85"]
# The class of every code point, one per line: words of each class split alone.
if wanted("code points"):
    (work / "codes.txt").write_text("".join(f"a{c}1{c}.{c} {c}\n" for c in every))
    t = Tokenizer.from_file(str(work / "O200k.json"))
    rows = run("encode", "--tokenizer", work / "O200k.json", "--lines", work / "codes.txt").decode().split("\n")
    wrong = [c for c, row, e in zip(every, rows, t.encode_batch([f"a{c}1{c}.{c} {c}" for c in every])) if list(map(int, row.split())) != e.ids]
    print(f"{'code points':12} {len(every):>9,}        {len(wrong):>5} differ")
    failed += bool(wrong)

# The four normal forms of every code point, alone and beside others that may compose with it.
neighbours = ["{0}\u0301 e{0} \uac00{0} \u1100{0}", "{0}\u0327\u0301 {0}\u11a8 {0}\u1161 {0}\u3099"]
for form in filter(wanted, ("NFC", "NFD", "NFKC", "NFKD")):
    t = Tokenizer(models.BPE())
    t.normalizer = getattr(N, form)()
    t.pre_tokenizer = P.ByteLevel(add_prefix_space=False, use_regex=False)
    t.train_from_iterator([], trainers.BpeTrainer(vocab_size=256, initial_alphabet=P.ByteLevel.alphabet(), show_progress=False))
    t.save(str(work / f"{form}.json"))
    wrong = []
    for pattern in neighbours:
        rows = [pattern.format(c) for c in every]
        (work / "codes.txt").write_text("\n".join(rows) + "\n")
        ours = run("encode", "--tokenizer", work / f"{form}.json", "--lines", work / "codes.txt").decode().split("\n")
        for start in range(0, len(rows), 20000):
            for c, row, e in zip(every[start:], ours[start:], t.encode_batch_fast(rows[start : start + 20000])):
                if list(map(int, row.split())) != e.ids:
                    wrong.append(c)
    print(f"{form:12} {len(every):>9,} code points with neighbours {len(wrong):>5} differ", " ".join(f"{ord(c):x}" for c in wrong[:20]), flush=True)
    failed += bool(wrong)

if options.only and not set(options.only) & {"trainer", "tiktoken", "sentencepiece", "sentencepiece-bpe"}:
    sys.exit(1 if failed else 0)

# Our trainer against theirs, and tiktoken and SentencePiece files.
(work / "corpus.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in corpus))
run("train", work / "corpus.jsonl", "--vocab", 8000, "--pattern", "llama3", "--out", work / "ours.json")
ours = json.loads((work / "ours.json").read_text())["model"]
theirs = json.loads((work / "Llama3.json").read_text())["model"]
same = ours["merges"] == theirs["merges"] and ours["vocab"] == theirs["vocab"]
print(f"{'trainer':12} {len(theirs['merges']):>9,} merges {'equal' if same else 'DIFFER'}")
failed += not same

vocabulary = Tokenizer.from_file(str(work / "ours.json")).get_vocab()
alphabet = {}
codes = list(range(0x21, 0x7F)) + list(range(0xA1, 0xAD)) + list(range(0xAE, 0x100))
for byte in range(256):
    alphabet[chr(byte if byte in codes else 256 + sum(1 for b in range(byte) if b not in codes))] = byte
ranks = {bytes(alphabet[c] for c in token): rank - 1 for token, rank in vocabulary.items() if token != "<|endoftext|>"}
(work / "cl100k_base.tiktoken").write_text("".join(f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in sorted(ranks.items(), key=lambda kv: kv[1])))
cl100k = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
special = {"<|endoftext|>": 100257, "<|fim_prefix|>": 100258, "<|fim_middle|>": 100259, "<|fim_suffix|>": 100260, "<|endofprompt|>": 100276}
t = tiktoken.Encoding("test", pat_str=cl100k, mergeable_ranks=ranks, special_tokens=special)
if wanted("tiktoken"):
    compare("tiktoken", work / "cl100k_base.tiktoken", [t.encode(text, allowed_special="all") for text in texts])
    compare_whole("tiktoken", work / "cl100k_base.tiktoken", t.encode(whole_text, allowed_special="all"))

(work / "corpus.txt").write_text("\n".join(t.replace("\n", " ") for t in documents))
sentencepiece.SentencePieceTrainer.train(input=str(work / "corpus.txt"), model_prefix=str(work / "sp"), vocab_size=4000, byte_fallback=True, minloglevel=2, max_sentence_length=100000)
t = sentencepiece.SentencePieceProcessor(model_file=str(work / "sp.model"))
if wanted("sentencepiece"):
    compare("sentencepiece", work / "sp.model", [[t.bos_id()] + ids for ids in t.encode(texts)])
sentencepiece.SentencePieceTrainer.train(input=str(work / "corpus.txt"), model_prefix=str(work / "sp_bpe"), model_type="bpe", vocab_size=4000, byte_fallback=True, minloglevel=2, max_sentence_length=100000)
t = sentencepiece.SentencePieceProcessor(model_file=str(work / "sp_bpe.model"))
if wanted("sentencepiece-bpe"):
    compare("sentencepiece-bpe", work / "sp_bpe.model", [[t.bos_id()] + ids for ids in t.encode(texts)])

if options.only:
    sys.exit(1 if failed else 0)

# One thread, ids only. CPU time on both sides, so that other work on the machine does not count.
size = sum(len(text.encode()) for text in documents)
t = Tokenizer.from_file(str(work / "Llama3.json"))
rates = {}
start = time.process_time()
t.encode_batch_fast(documents, add_special_tokens=False)
rates["tokenizers"] = size / (time.process_time() - start) / 1e6
tik = tiktoken.Encoding("test", pat_str=known["Llama3"], mergeable_ranks=ranks, special_tokens={})
start = time.process_time()
for text in documents:
    tik.encode_ordinary(text)
rates["tiktoken"] = size / (time.process_time() - start) / 1e6
before = resource.getrusage(resource.RUSAGE_CHILDREN)
result = json.loads(run("count", "--tokenizer", work / "Llama3.json", "--json", work / "corpus.txt"))
after = resource.getrusage(resource.RUSAGE_CHILDREN)
rates["quintet, with start and reading"] = result["bytes"] / (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / 1e6
print("MB/s of CPU time:", ", ".join(f"{name} {rate:.1f}" for name, rate in rates.items()))
sys.exit(1 if failed else 0)
