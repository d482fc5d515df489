#!/usr/bin/env python3
"""Encoding speed on one thread beside gigatoken and tokenizers from PyPI: ids only, CPU time, programs alternating.

  compare_tokenizers.py BENCH TOKENIZER.json TEXT OTHER_TEXT [--rounds 5] [--json FILE]

BENCH is build/bench/tokenizer_bench. Each program encodes TEXT for the first time, then OTHER_TEXT with what it has kept of the first, then
OTHER_TEXT again, each as one document. Prints the median of the rounds as a Markdown table; ids of all programs must agree in number.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys

PEERS = {
    "gigatoken": "import gigatoken; encode = gigatoken.Tokenizer(sys.argv[1]).encode",
    "tokenizers": "import tokenizers; t = tokenizers.Tokenizer.from_file(sys.argv[1])\n"
                  "encode = lambda text: t.encode_batch_fast(text.decode().splitlines(True), add_special_tokens=False)",
}
PROGRAM = """
import json, os, sys, time
os.environ["TOKENIZERS_PARALLELISM"] = "false"
{load}
texts = [open(path, "rb").read() for path in sys.argv[2:4]]
record = {{}}
for name, text in (("first", texts[0]), ("new", texts[1]), ("seen", texts[1])):
    start = time.process_time()
    ids = encode(text)
    record[name] = len(text) / (time.process_time() - start) / 1e6
record["ids"] = len(ids)
print(json.dumps(record))
"""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bench")
    parser.add_argument("files", nargs=3)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peers", nargs="*", default=["gigatoken"], choices=PEERS)
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
        cells = [f"{statistics.median(r[k] for r in records):.0f} ({min(r[k] for r in records):.0f} to {max(r[k] for r in records):.0f})"
                 for k in ("first", "new", "seen")]
        print(f"| {name} | {' | '.join(cells)} |")


main()
