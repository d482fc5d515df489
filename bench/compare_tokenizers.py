#!/usr/bin/env python3
"""Encoding speed on one thread beside gigatoken, fastokens, quicktok and tokenizers from PyPI: ids only, CPU time, programs alternating.

  compare_tokenizers.py BENCH TOKENIZER.json TEXT OTHER_TEXT [--rounds 5] [--json FILE]

BENCH is build/bench/tokenizer_bench. Each program encodes TEXT for the first time, then OTHER_TEXT with what it has kept of the first, then
OTHER_TEXT again, each as one document. Prints the median of the rounds as a Markdown table; ids of all programs must agree in number.
Rates are of the CPU time of the whole process: some packages work in a second thread beside the calling one, whose time alone is the
second row. quicktok takes its vocabulary from its own package, by the name of TOKENIZER.json (bench/published_tokenizers.py).
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys

PEERS = {
    "fastokens": "import fastokens; t = fastokens.Tokenizer.from_file(sys.argv[1]); encode = lambda text: t.encode(text.decode()).ids",
    "quicktok": "import pathlib, quicktok; t = quicktok.get_encoding(pathlib.Path(sys.argv[1]).stem)\n"
                "encode = lambda text: t.encode(text.decode())",
    "gigatoken": "import gigatoken; encode = gigatoken.Tokenizer(sys.argv[1]).encode",
    "tokenizers": "import tokenizers; t = tokenizers.Tokenizer.from_file(sys.argv[1])\n"
                  "encode = lambda text: t.encode_batch_fast(text.decode().splitlines(True), add_special_tokens=False)",
}
PROGRAM = """
import json, os, sys, time
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
{load}
texts = [open(path, "rb").read() for path in sys.argv[2:4]]
record = {{}}
for name, text in (("first", texts[0]), ("new", texts[1]), ("seen", texts[1])):
    start, thread = time.process_time(), time.thread_time()
    ids = encode(text)
    record[name] = len(text) / (time.process_time() - start) / 1e6
    record[name + "_calling_thread"] = len(text) / (time.thread_time() - thread) / 1e6
record["ids"] = len(ids)
print(json.dumps(record))
"""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bench")
    parser.add_argument("files", nargs=3)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peers", nargs="*", default=["gigatoken", "fastokens"], choices=PEERS)
    parser.add_argument("--json")
    options = parser.parse_args()
    commands = {"quintet": [options.bench, *options.files]}
    for peer in options.peers:
        commands[peer] = [sys.executable, "-c", PROGRAM.format(load=PEERS[peer]), *options.files]
    rounds = {name: [] for name in commands}
    for _ in range(options.rounds):
        for name, command in commands.items():
            rounds[name].append(json.loads(subprocess.run(command, capture_output=True, check=True).stdout))
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps({"files": options.files, "rounds": rounds}, indent=1) + "\n")
    counts = {name: records[0]["ids"] for name, records in rounds.items() if name != "tokenizers"}  # it has lists of lines
    if len(set(counts.values())) > 1:
        sys.exit(f"compare: the numbers of ids differ: {counts}")
    print("| MB/s of CPU time | first pass | new text, warm | text seen before |\n|---|---|---|---|")
    for name, records in rounds.items():
        for ending in ("", "_calling_thread"):
            if "first" + ending not in records[0]:
                continue
            rates = [[record[key + ending] for record in records] for key in ("first", "new", "seen")]
            cells = [f"{statistics.median(each):.0f} ({min(each):.0f} to {max(each):.0f})" for each in rates]
            print(f"| {name}{', calling thread' if ending else ''} | {' | '.join(cells)} |")


main()
