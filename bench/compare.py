#!/usr/bin/env python3
"""Compares Quintet with PyTorch on this machine: same model, batch, dtype, ranks and threads, interleaved runs.

Prints a Markdown table (the one in docs/) and, with --json FILE, writes every measurement. Each value is the median
step of a run after its warm-up, then the median over --rounds runs. PyTorch is measured eager and compiled; the faster
one counts. Memory is the peak resident size of the largest rank.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PEER = ROOT / "bench" / "torch_cpu_llama.py"
RECIPE = ROOT / "recipes" / "bench" / "llama-25m.toml"
WARMUP = 2
MPIRUN = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np"]
MPI_ENV = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

# name, ranks, options of the peer, overrides of the recipe, target ratio
CASES = [
    ("one rank, f32", 1, ["--dtype", "f32"], ["precision.compute=f32"], 1.2),
    ("one rank, bf16", 1, ["--dtype", "bf16"], ["precision.compute=bf16"], 1.0),
    ("two ranks, DDP, f32", 2, ["--parallel", "ddp", "--ranks", "2"], ["parallel.dp_replicate=2"], 1.3),
    ("two ranks, ZeRO 3 / FSDP2, f32", 2, ["--parallel", "fsdp2", "--ranks", "2"],
     ["parallel.dp_shard=2", "parallel.zero=3"], 1.3),
]


def run(command):
    """Runs the command; returns its output and the peak resident bytes of its largest process."""
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, env={**os.environ, **MPI_ENV})
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        text = output.read()
    if process.returncode != 0:
        sys.exit(f"compare: {' '.join(map(str, command))} failed with exit code {process.returncode}\n{text[-2000:]}")
    return text, usage.ru_maxrss * 1024


def run_peer(options, steps, compiled):
    command = [sys.executable, PEER, "--warmup", str(WARMUP), "--steps", str(steps), *options]
    text, _ = run(command + (["--compile"] if compiled else []))
    record = json.loads(next(line for line in reversed(text.splitlines()) if line.startswith("{")))
    return record["tokens_per_s"], max(record["peak_rss_bytes"])


def run_quintet(tool, ranks, overrides, steps):
    with tempfile.TemporaryDirectory() as folder:
        threads = max(1, len(os.sched_getaffinity(0)) // ranks)
        command = [tool, "train", RECIPE, "--run-dir", folder, "--steps", str(WARMUP + steps)]
        for override in [*overrides, f"run.threads={threads}"]:
            command += ["--set", override]
        _, peak = run((MPIRUN + [str(ranks)] if ranks > 1 else []) + command)
        lines = (pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines()
        rates = [record["tokens_per_s"] for record in map(json.loads, lines) if "tokens_per_s" in record]
        return statistics.median(rates[WARMUP:]), peak


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quintet", type=pathlib.Path, default=ROOT / "build" / "quintet")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    tool = options.quintet.resolve()
    if not tool.is_file():
        parser.error(f"no tool at {tool}; run 'make build'")

    records = []
    print("| case | Quintet tokens/s | PyTorch tokens/s | ratio | target | Quintet peak MiB | PyTorch peak MiB |")
    print("|---|---|---|---|---|---|---|")
    for name, ranks, peer_options, overrides, wanted in CASES:
        runs = {"quintet": [], "eager": [], "compiled": []}
        for _ in range(options.rounds):
            runs["quintet"].append(run_quintet(tool, ranks, overrides, options.steps))
            runs["eager"].append(run_peer(peer_options, options.steps, compiled=False))
            runs["compiled"].append(run_peer(peer_options, options.steps, compiled=True))
        speed = {who: statistics.median(rate for rate, _ in each) for who, each in runs.items()}
        peak = {who: max(rss for _, rss in each) / 2**20 for who, each in runs.items()}
        best = max(("eager", "compiled"), key=speed.get)
        ratio = speed["quintet"] / speed[best]
        print(f"| {name} | {speed['quintet']:.0f} | {speed[best]:.0f} ({best}) | {ratio:.2f} | {wanted} "
              f"| {peak['quintet']:.0f} | {peak[best]:.0f} |", flush=True)
        records.append({"case": name, "ranks": ranks, "wanted": wanted, "ratio": ratio, "runs": runs})
    if options.json:
        options.json.write_text(json.dumps(records, indent=1) + "\n")


if __name__ == "__main__":
    main()
