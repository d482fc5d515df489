#!/usr/bin/env python3
"""Fits the terms of software stacks (src/hardware/catalogue/stacks.toml) to published runs.

    quintet bench reference docs/reference/published_runs.csv --json > before.json
    tools/fit_stacks.py before.json [--train TT,MOS,...] [--even MOS,...] [--terms matmul,attention,...]

Reads what each predicted step is made of and proposes, for every stack, the factors on its terms that make the
errors of its training rows small: coordinate descent on the mean absolute log error, with a pull towards no
change, so that a term that the rows do not determine stays where it is. Rows of other sources only score. A
step's parts are scaled, not simulated again, so run the tool, put the terms in, and repeat until it proposes
nothing. The last lines are the errors as they stand: of the rows that were fitted on, of other rows of the same
sources (--even: only rows with an even number train), and of sources that were never fitted on.
"""
import argparse
import json
import math
import statistics

TERMS = {  # term -> the shares of time that it scales, and the sign of the exponent
    "matmul": (lambda w: w == "matmul", -1),
    "attention": (lambda w: w == "attention", -1),
    "memory": (lambda w: w in ("other kernels", "optimizer"), +1),
    "network": (lambda w: w.startswith("wait ") and w != "wait pp", -1),
}
PULL = 0.03  # a change by a factor of e costs as much as an error of 3 % on every row


def parts_of(row):
    """Seconds by term; a bubble grows with all computing."""
    parts = dict.fromkeys(TERMS, 0.0)
    rest = bubble = 0.0
    for share in row["shares"]:
        what, seconds = share["what"], share["seconds"]
        for term, (mine, _) in TERMS.items():
            if mine(what):
                parts[term] += seconds
                break
        else:
            if what in ("bubble", "wait pp"):
                bubble += seconds
            else:
                rest += seconds
    return parts, rest, bubble


def step(row, factors):
    parts, rest, bubble = row["parts"]
    total, before = 0.0, sum(parts.values())
    for term, seconds in parts.items():
        total += seconds * factors.get(term, 1.0) ** TERMS[term][1]
    return total + rest + bubble * (total / before if before else 1)


def log_error(row, factors):
    speed = row["predicted_tokens_per_s_per_gpu"] * row["step_seconds"] / step(row, factors)
    return math.log(speed / row["published_tokens_per_s_per_gpu"])


def cost(rows, factors):
    return (statistics.fmean(abs(log_error(r, factors)) for r in rows)
            + PULL * sum(abs(math.log(f)) for f in factors.values()))


def fit(rows, terms):
    factors = dict.fromkeys(terms, 1.0)
    width = 1.5
    best = cost(rows, factors)
    while width > 1.002:
        moved = False
        for term in terms:
            for f in (width, 1 / width):
                trial = dict(factors)
                trial[term] *= f
                if not 0.2 < trial[term] < 5:
                    continue
                if (c := cost(rows, trial)) < best - 1e-9:
                    best, factors, moved = c, trial, True
        if not moved:
            width = math.sqrt(width)
    return factors


def quantiles(rows, factors):
    errors = sorted(abs(math.exp(log_error(r, factors)) - 1) for r in rows)
    if not errors:
        return "      -        -"
    at = lambda q: errors[min(len(errors) - 1, int(q * (len(errors) - 1) + 0.5))]
    return f"{100 * at(0.5):6.1f} % {100 * at(0.9):6.1f} %"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report")
    parser.add_argument("--train", help="collections to fit on; all when not given", default="")
    parser.add_argument("--even", help="collections of which only rows with an even number are fitted on", default="")
    parser.add_argument("--terms", default=",".join(TERMS))
    parser.add_argument("--stack", help="only this one", default="")
    args = parser.parse_args()
    rows = [r for r in json.load(open(args.report))["rows"] if "error" in r]
    train, even = (set(filter(None, names.split(","))) for names in (args.train, args.even))
    for r in rows:
        r["parts"] = parts_of(r)
        source, number = r["id"].split("-")
        known = not train or source in train
        r["role"] = ("fitted" if int(number) % 2 == 0 or source not in even else "same source") if known else "other"
        r["trains"] = r["role"] == "fitted"
    for stack in sorted({r["stack"] for r in rows}):
        if args.stack and stack != args.stack:
            continue
        mine = [r for r in rows if r["stack"] == stack]
        fitted, held = [r for r in mine if r["trains"]], [r for r in mine if not r["trains"]]
        factors = fit(fitted, args.terms.split(",")) if fitted else {}
        text = "  ".join(f"{t} x{f:.3f}" for t, f in factors.items())
        print(f"{stack:24} {len(fitted):4} rows {quantiles(fitted, {})} -> {quantiles(fitted, factors)}"
              f" | held out {len(held):4} {quantiles(held, {})} -> {quantiles(held, factors)} | {text}")
    for role, title in (("fitted", "rows fitted on"), ("same source", "other rows of these sources"),
                        ("other", "sources never fitted on")):
        mine = [r for r in rows if r["role"] == role]
        print(f"{title:30} {len(mine):4} rows {quantiles(mine, {})}")


if __name__ == "__main__":
    main()
