#!/usr/bin/env python3
"""Wall time of tokenising with 1, 2, 4, ... threads: `quintet prepare --threads N` and `quintet tokenizer count` on N cores.

  bench/threads.py [TEXT...] [--quintet build/quintet] [--megabytes 200] [--threads 1 2 4 8 16] [--rounds 3] [--json FILE]

TEXT are text files or folders (default: the documentation of the machine and of this repository). A tokenizer is trained on them, and a
file of JSON lines is made of their paragraphs in random order, with one word in ten replaced by a new one, so that not every word has been
seen before. Programs alternate over the rounds; the table has medians. Prints one Markdown table.
"""

import argparse
import json
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
DEFAULT_TEXT = ["/usr/share/doc", "/usr/share/common-licenses", "/usr/share/perl", "/usr/include", str(ROOT / "docs"), str(ROOT / "src")]
SOURCE_BYTES = 16 << 20  # enough for a tokenizer and for variety; more only takes time
ENDINGS = {"", ".txt", ".md", ".h", ".hpp", ".cc", ".py", ".pm", ".pod", ".pl", ".html", ".xml", ".rst", ".copyright"}


def read_sources(paths):
    files = []
    for path in map(pathlib.Path, paths):
        found = sorted(path.rglob("*")) if path.is_dir() else [path]
        files += [f for f in found if f.is_file() and not f.is_symlink() and (not path.is_dir() or f.suffix in ENDINGS)]
    random.Random(1).shuffle(files)
    texts, size = [], 0
    for file in files:
        try:
            text = file.read_bytes().decode()
        except (OSError, UnicodeDecodeError):
            continue
        if "\0" in text or len(text) < 200:
            continue
        texts.append(text[: 256 << 10])
        size += len(texts[-1])
        if size >= SOURCE_BYTES:
            break
    return texts, size


def vary(paragraph, rng, words):
    pieces = re.split(r"(\w+)", paragraph)  # words at odd places
    for i in range(1, len(pieces), 2):
        if rng.random() < 0.1:
            pieces[i] = rng.choice(words)[:4] + rng.choice(words)[-3:]
    return "".join(pieces)


def write_corpus(texts, path, size):
    rng = random.Random(2)
    paragraphs = [p for text in texts for p in text.split("\n\n") if p.strip()]
    words = sorted({w for p in paragraphs[:5000] for w in re.findall(r"[a-z]{4,}", p)})
    written = 0
    with open(path, "w", encoding="utf-8") as out:
        while written < size:
            document = "\n\n".join(vary(rng.choice(paragraphs), rng, words) for _ in range(rng.randint(2, 30)))
            line = json.dumps({"text": document}, ensure_ascii=False)
            out.write(line + "\n")
            written += len(line.encode()) + 1


def timed(command, cores=None):
    if cores is not None:  # `tokenizer count` takes as many threads as it may use cores
        command = ["taskset", "-c", ",".join(map(str, cores)), *command]
    start = time.monotonic()
    before = os.times()
    done = subprocess.run(command, capture_output=True, text=True)
    seconds = time.monotonic() - start
    after = os.times()
    if done.returncode:
        sys.exit(f"threads: {' '.join(command)} failed:\n{done.stderr}")
    return {"wall_s": seconds,
            "cpu_s": after.children_user + after.children_system - before.children_user - before.children_system}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", nargs="*", default=DEFAULT_TEXT)
    parser.add_argument("--quintet", default=str(ROOT / "build" / "quintet"))
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--vocab", type=int, default=32000)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scratch", help="folder for the corpus and the results; a temporary one when not given")
    parser.add_argument("--json", help="file for the raw figures")
    a = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    threads = [n for n in a.threads if n <= len(cores)]
    for n in sorted(set(a.threads) - set(threads)):
        print(f"threads: {n} left out: {len(cores)} cores here", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=a.scratch) as name:
        folder = pathlib.Path(name)
        texts, size = read_sources(a.text)
        if size < 1 << 20:
            sys.exit(f"threads: only {size} characters of text found: name files or folders with at least 1 MiB")
        (folder / "source.txt").write_text("\n\n".join(texts), encoding="utf-8")
        tokenizer = str(folder / "tokenizer.json")
        subprocess.run([a.quintet, "tokenizer", "train", str(folder / "source.txt"), "--vocab", str(a.vocab), "--out", tokenizer],
                       check=True, stdout=sys.stderr)
        corpus = folder / "corpus.jsonl"
        write_corpus(texts, corpus, a.megabytes * 1_000_000)
        corpus.read_bytes()  # in the page cache from the first run on
        size = corpus.stat().st_size
        rows = {n: {"prepare": [], "count": []} for n in threads}
        sums = set()
        for turn in range(a.rounds):
            for n in threads:
                out = folder / f"out{turn}-{n}"
                rows[n]["prepare"].append(timed([a.quintet, "prepare", str(corpus), "--tokenizer", tokenizer, "--out", str(out),
                                                 "--threads", str(n)]))
                sums.add(subprocess.run(["sha256sum", str(out / "tokens.bin")], capture_output=True, text=True, check=True).stdout.split()[0])
                subprocess.run(["rm", "-r", str(out)], check=True)
                rows[n]["count"].append(timed([a.quintet, "tokenizer", "count", "--tokenizer", tokenizer, str(corpus)], cores[:n]))
        if len(sums) != 1:
            sys.exit("threads: the tokens depend on the number of threads")
    if a.json:
        pathlib.Path(a.json).write_text(json.dumps({"bytes": size, "vocab": a.vocab, "load": os.getloadavg(), "cores": len(cores),
                                                    "threads": rows}, indent=1) + "\n")
    print(f"{size / 1e6:.0f} MB of JSON lines, vocabulary {a.vocab}, {len(cores)} cores, median of {a.rounds}; load average "
          f"{os.getloadavg()[0]:.1f} at the end\n")
    print("| threads | prepare, s | MB/s | speed-up | CPU s | tokenizer count, s | MB/s | speed-up | CPU s |")
    print("|---|---|---|---|---|---|---|---|---|")
    for n in threads:
        cells = [str(n)]
        for verb in ("prepare", "count"):
            wall = statistics.median(r["wall_s"] for r in rows[n][verb])
            base = statistics.median(r["wall_s"] for r in rows[threads[0]][verb])
            cpu = statistics.median(r["cpu_s"] for r in rows[n][verb])
            cells += [f"{wall:.2f}", f"{size / wall / 1e6:.0f}", f"{base / wall:.2f}", f"{cpu:.1f}"]
        print(f"| {' | '.join(cells)} |")


main()
