#!/usr/bin/env python3
"""Saving and loading checkpoints beside what the disk sustains: the same bytes, files and flushes by fio.

    bench/checkpoints.py --quintet build/quintet [--dir FOLDER] [--ranks 2] [--rounds 5] [--saves 100] > figures.json

Quintet, fio through the system's cache, fio around it (O_DIRECT) and fio around it with eight blocks in flight per file (libaio)
alternate, each first in another round, so that all meet the same other load; shares are of the fastest fio. Cached loads are beside fio
that finds the files in the system's memory. The first save and load of a process does not count. Then 100 saves in one process, with
the resident memory during them.
Needs fio (tools/setup.sh --bench).
"""
import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

RECIPE = """name = "checkpoints"
[model]
family = "llama"
layers = {layers}
embed = 512
ffn = 2048
heads = 8
kv_heads = 8
vocab = 32000
[data]
seq_len = 64
[batch]
micro = 1
[parallel]
dp_shard = {ranks}
zero = 1
[optimizer]
lr = 1e-3
[run]
steps = 1
threads = 1
"""


IN_FLIGHT = 8
KINDS = {"fio": ["--ioengine=psync", "--direct=0"], "fio_direct": ["--ioengine=psync", "--direct=1"],
         "fio_queued": ["--ioengine=libaio", "--direct=1", f"--iodepth={IN_FLIGHT}"]}


def fio(folder, ranks, size, mode, kind, invalidate=True):
    """Seconds in which fio writes and flushes, or reads, one file of `size` bytes per rank, in blocks of 8 MiB, and its CPU seconds."""
    command = ["fio", "--name=shard", f"--directory={folder}", f"--rw={mode}", "--bs=8M", f"--size={size >> 12 << 12}",
               f"--numjobs={ranks}", "--group_reporting", "--output-format=json", "--fallocate=none", "--thread",
               f"--invalidate={int(invalidate)}"] + KINDS[kind]
    if mode == "write":
        command += ["--end_fsync=1", "--create_on_open=1", "--overwrite=0"]
    out = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    job = out["jobs"][0]
    seconds = job[mode]["runtime"] / 1e3
    return seconds, (job["usr_cpu"] + job["sys_cpu"]) / 100 * seconds * ranks


def warm(folder, size):
    """Writes and removes as many bytes: the pages that the system then gives out are memory that has been used before, which on a
    virtual machine is several times faster than memory that has not."""
    path = os.path.join(folder, "warm")
    with open(path, "wb") as file:
        for _ in range(size >> 23):
            file.write(bytes(1 << 23))
    os.unlink(path)


def resident(pid):
    try:
        with open(f"/proc/{pid}/status") as status:
            return int(re.search(r"VmRSS:\s+(\d+) kB", status.read())[1]) * 1024
    except (OSError, TypeError):
        return 0


def newest(folder):
    """The step of the newest checkpoint, finished or not; 0: none."""
    try:
        return max((int(name.split("-")[-1]) for name in os.listdir(folder) if name.startswith("step-")), default=0)
    except OSError:
        return 0


def memory_of_saves(options, work):
    """Resident memory while one process saves again and again. Shards are of several blocks, which are written past the cache."""
    small = os.path.join(work, "small.toml")
    with open(small, "w") as file:
        file.write(RECIPE.format(ranks=options.ranks, layers=1).replace("embed = 512", "embed = 256").replace("vocab = 32000", "vocab = 4096"))
    many = os.path.join(work, "many")
    process = subprocess.Popen([options.quintet, "bench", "checkpoint", small, "--dir", many, "--rounds",
                                str(options.saves), "--json"], stdout=subprocess.PIPE, text=True)
    memory = {}  # the most that was resident, by the save in progress
    while process.poll() is None:
        save, now = newest(many), resident(process.pid)
        memory[save] = max(now, memory.get(save, 0))
        time.sleep(0.02)
    size = json.loads(process.communicate()[0])["bytes"]
    fifth = options.saves // 5
    return {"count": options.saves, "bytes": size, "seen": len(memory),
            "resident_bytes_in_the_second_fifth": max(memory[n] for n in memory if fifth <= n < 2 * fifth),
            "resident_bytes_in_the_last_fifth": max(memory[n] for n in memory if n >= 4 * fifth),
            "peak_bytes": max(memory.values())}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quintet", default="build/quintet")
    parser.add_argument("--dir", default=".")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--saves", type=int, default=100)
    options = parser.parse_args()
    if options.rounds and shutil.which("fio") is None:
        sys.exit("checkpoints.py: fio was not found: tools/setup.sh --bench installs it")
    os.makedirs(options.dir, exist_ok=True)
    work = tempfile.mkdtemp(prefix="checkpoints-", dir=options.dir)
    try:
        if not options.rounds:  # only memory
            print(json.dumps({"saves": memory_of_saves(options, work)}, indent=1))
            return
        recipe = os.path.join(work, "recipe.toml")
        with open(recipe, "w") as file:
            file.write(RECIPE.format(ranks=options.ranks, layers=options.layers))
        bench = [options.quintet, "bench", "checkpoint", recipe, "--dir", os.path.join(work, "saved"), "--json"]
        rounds = []

        def save_and_load(row):
            # The first round touches memory for the first time: the second one counts.
            one = json.loads(subprocess.run(bench + ["--rounds", "2"], check=True, capture_output=True, text=True).stdout)
            row.update(one["rounds"][1])
            return one

        one = save_and_load({})
        size = one["bytes"]
        names = ["quintet", *KINDS]
        for number in range(options.rounds):
            row = {}
            # Another one is first in every round: a disk may allow a burst after a pause.
            for name in names[number % len(names):] + names[:number % len(names)]:
                warm(work, size)
                if name == "quintet":
                    one = save_and_load(row)
                    continue
                folder = os.path.join(work, "fio")
                os.mkdir(folder)
                for mode in ("write", "read"):
                    row[f"{name}_{mode}"], row[f"{name}_{mode}_cpu"] = fio(folder, options.ranks, size // options.ranks, mode, name)
                if name == "fio":  # what it has just read is in memory
                    row["fio_cached_read"], _ = fio(folder, options.ranks, size // options.ranks, "read", name, invalidate=False)
                shutil.rmtree(folder)
            row["load_average"] = os.getloadavg()[0]
            rounds.append(row)
            print({key: round(value, 3) for key, value in row.items()}, file=sys.stderr)
        median = {key: statistics.median(r[key] for r in rounds) for key in rounds[0]}
        result = {"date": time.strftime("%Y-%m-%d %H:%M", time.gmtime()), "cpus": os.cpu_count(), "kernel": os.uname().release.split("-")[0],
                  "bytes": size, "files": options.ranks, "rounds": rounds, "median_seconds": median, "bytes_per_s": {}, "share_of_fio": {},
                  "cpu_seconds_per_gb": {key: median[key] / size * 1e9 for key in median if key.endswith("_cpu")},
                  "stop_seconds": median["stop"], "memcpy_seconds": median["memcpy"],
                  "stop_beyond_memcpy_seconds": statistics.median(r["stop"] - r["memcpy"] for r in rounds), "copy_bytes_per_s_of_one_piece": one["link_bytes_per_s"]}
        for ours, theirs in (("save", "write"), ("load", "read")):
            fastest = min(median[f"{name}_{theirs}"] for name in KINDS)  # what the disk sustains
            result["bytes_per_s"][ours] = size / median[ours]
            result["bytes_per_s"][f"fio_{theirs}"] = size / fastest
            result["share_of_fio"][ours] = fastest / median[ours]
            # Both meet other load of the machine at the same time.
            result["share_of_fio"][f"{ours}_median_of_rounds"] = statistics.median(
                min(r[f"{name}_{theirs}"] for name in KINDS) / r[ours] for r in rounds)
        result["share_of_fio"]["load_cached"] = median["fio_cached_read"] / median["load_cached"]
        if options.saves:
            result["saves"] = memory_of_saves(options, work)
        print(json.dumps(result, indent=1))
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
