#!/usr/bin/env python3
"""Measures Muon's part of a step compared with its FLOP floor; prints JSON.

    muon.py QUINTET RECIPE [--steps N] [--warm SECONDS] [--set KEY=VALUE ...]

Runs `QUINTET bench step RECIPE` with AdamW and with Muon. The floor is Newton-Schulz's FLOPs, 5 (4 m^2 n + 2 m^3) for each
matrix with m <= n as the plan counts them, at the peak of the device that `bench step` reports.
"""

import argparse
import json
import subprocess
import sys


def bench(tool, options, optimizer):
    command = [tool, "bench", "step", options.recipe, "--json", "--steps", str(options.steps), "--warm", str(options.warm)]
    for setting in [f'optimizer.name="{optimizer}"', *options.set]:
        command += ["--set", setting]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr}")
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("quintet")
    parser.add_argument("recipe")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warm", type=float, default=5)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    adamw, muon = (bench(options.quintet, options, name) for name in ("adamw", "muon"))
    # Newton-Schulz counts as matmul, the rest of Muon as optimizer: what they add to AdamW's step.
    before, after = ({c["class"]: c["s"] for c in run["op_classes"]} for run in (adamw, muon))
    flops = muon["program_flops_per_step"] - adamw["program_flops_per_step"]
    peak = muon["peak_tflops_per_device"] * 1e12
    own = after["matmul"] - before["matmul"]
    print(json.dumps({
        "recipe": muon["recipe"], "device": muon["device"], "dtype": muon["dtype"], "parameters": muon["parameters"],
        "adamw_step_s": adamw["step_s"], "muon_step_s": muon["step_s"], "newton_schulz_s": own,
        "other_updates_s": after["optimizer"] - before["optimizer"],
        "newton_schulz_flops": flops, "peak_tflops": peak * 1e-12, "floor_s": flops / peak if peak else None,
        "newton_schulz_over_floor": own * peak / flops if flops else None,
        "planned_bytes": {"adamw": adamw["planned_peak_bytes"], "muon": muon["planned_peak_bytes"]},
        "measured_bytes": {"adamw": adamw["measured_peak_bytes"], "muon": muon["measured_peak_bytes"]},
    }, indent=1))


if __name__ == "__main__":
    main()
