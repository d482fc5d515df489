#!/usr/bin/env python3
"""GFLOP/s of Quintet's CPU matmul compared with PyTorch and oneDNN, interleaved shape by shape, as a Markdown table.

    bench/gemm_vs_torch.py build/bench/gemm_bench [--cpu-time] [--seconds S] [--threads N] [--types f32 bf16 f64]

Needs a Python with torch. oneDNN is measured in f32 if libdnnl is installed. Weight gradients accumulate into f32 in
Quintet; PyTorch has no such bf16 matmul and writes bf16 instead, which is less work.
"""
import argparse
import ctypes
import ctypes.util
import os
import subprocess
import sys
import time

# OpenMP reads this when it is loaded; torch and oneDNN may each load their own copy.
if "--threads" in sys.argv:
    os.environ["OMP_NUM_THREADS"] = sys.argv[sys.argv.index("--threads") + 1]
else:
    os.environ["OMP_NUM_THREADS"] = "1"

import torch  # noqa: E402

TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f64": torch.float64}


def best_seconds(call, budget, clock, share):
    best, begin, count = 1e30, time.monotonic(), 0
    while count < 3 or time.monotonic() - begin < budget:
        start = clock()
        call()
        best = min(best, (clock() - start) / share)
        count += 1
    return best


def torch_product(dtype, m, n, k, trans_a, trans_b, gradient):
    a = torch.rand((k, m) if trans_a else (m, k)).to(dtype)
    b = torch.rand((n, k) if trans_b else (k, n)).to(dtype)
    c = torch.zeros((m, n), dtype=dtype)
    left, right = a.t() if trans_a else a, b.t() if trans_b else b
    if gradient and dtype != torch.bfloat16:
        return lambda: torch.addmm(c, left, right, out=c)
    return lambda: torch.mm(left, right, out=c)


def onednn_product(library, m, n, k, trans_a, trans_b, gradient):
    a = torch.rand((k, m) if trans_a else (m, k))
    b = torch.rand((n, k) if trans_b else (k, n))
    c = torch.zeros((m, n))
    i64, f32 = ctypes.c_int64, ctypes.c_float
    pointer = lambda t: ctypes.c_void_p(t.data_ptr())
    flag = lambda t: ctypes.c_char(b"T" if t else b"N")
    keep = (a, b, c)

    def call(keep=keep):
        status = library.dnnl_sgemm(flag(trans_a), flag(trans_b), i64(m), i64(n), i64(k), f32(1), pointer(a),
                                    i64(a.shape[1]), pointer(b), i64(b.shape[1]), f32(1 if gradient else 0),
                                    pointer(c), i64(n))
        assert status == 0
    return call


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench")
    parser.add_argument("--cpu-time", action="store_true", help="report CPU time / threads instead of wall time")
    parser.add_argument("--seconds", type=float, default=0.3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--types", nargs="+", default=list(TYPES))
    args = parser.parse_args()
    clock = time.process_time if args.cpu_time else time.monotonic
    found = ctypes.util.find_library("dnnl")
    shapes = subprocess.run([args.bench, "--list"], check=True, capture_output=True, text=True).stdout.splitlines()
    threads = args.threads
    torch.set_num_threads(threads)
    library = ctypes.CDLL(found) if found else None
    for kind in args.types:
        print(f"\n{kind}, {threads} thread{'s' * (threads > 1)}, GFLOP/s\n")
        print("| matmul | m x n x k | quintet | torch | onednn | quintet / torch |\n|---|---|---|---|---|---|")
        for line in shapes:
            name, *numbers = line.split(",")
            m, n, k, ta, tb, gradient = map(int, numbers)
            command = [args.bench, "--csv", "--shape", name, "--type", kind, "--threads", str(threads),
                       "--seconds", str(args.seconds)] + ["--cpu-time"] * args.cpu_time
            ours = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split(",")[-1])
            rate = lambda call: 2e-9 * m * n * k / best_seconds(call, args.seconds, clock,
                                                               threads if args.cpu_time else 1)
            theirs = rate(torch_product(TYPES[kind], m, n, k, ta, tb, gradient))
            dnnl = "" if kind != "f32" or not library else \
                f"{rate(onednn_product(library, m, n, k, ta, tb, gradient)):.0f}"
            print(f"| {' '.join(name.split())} | {m} x {n} x {k} | {ours:.0f} | {theirs:.0f} | {dnnl} | "
                  f"{ours / theirs:.2f} |", flush=True)


if __name__ == "__main__":
    main()
