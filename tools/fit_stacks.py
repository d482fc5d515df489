#!/usr/bin/env python3
"""Fits the catalogue's terms to published runs and scores them on held-out runs.

    tools/fit_stacks.py build/quintet docs/reference/published_runs.csv --work DIR [--write src/hardware/catalogue]

The fit determines a small set of terms per software stack (stacks.toml) and the fraction of peak that a few
accelerators reach (ACCELERATORS below); no parameter belongs to a single row. Every fit starts from the same neutral
values, regardless of the catalogue. Four kinds of scores:

    in sample       fitted on every row; the values that --write stores in the catalogue
    configurations  all rows of one geometry on one kind of chip, of all stacks, are held out together, in five folds
    sources         for stacks with several sources, each source is held out in turn
    stacks          a whole family of software is held out; its rows are planned with the median terms of the others,
                    and accelerators fitted without it

Method: the time of a step is nearly a sum of parts that each grow with one term, so one simulation per term gives the
response of a row to it. A fit is coordinate descent on the sum of absolute log errors over these parts, regularised
towards the neutral values; then every row is simulated with the fitted terms, the parts are corrected by the result,
and this repeats for --rounds. Scores come from simulations, not from the parts. A term that no row determines keeps
its neutral value. Needs no packages; takes about fifteen minutes of CPU time.
"""
import argparse
import csv
import json
import math
import pathlib
import re
import statistics
import subprocess

# Term: neutral value, bounds, and the value at which responses are measured. Bounds reflect what software can do: none is
# much faster than the best known kernels, none moves bytes faster than the wire. A change of FACTORS counts by its
# logarithm, one of SHIFTS in its unit.
FACTORS = {  # name: (neutral, least, most, probe)
    "matmul": (0.92, 0.4, 1.05, 0.75),
    "attention": (0.85, 0.3, 1.25, 0.6),
    "memory": (1.5, 0.8, 3.5, 2.4),
    "network": (0.9, 0.3, 1.0, 0.6),
}
SHIFTS = {  # name: (neutral, least, most, probe, unit)
    "hidden": (0.8, 0.0, 1.0, 0.4, 0.5),
    "tensor_hidden": (0.0, 0.0, 0.9, 0.5, 0.5),
    "launch_us": (1.0, 0.0, 10.0, 4.0, 4.0),
    "route_us": (0.0, 0.0, 6000.0, 2000.0, 3000.0),
    "step_ms": (10.0, 0.0, 100.0, None, 20.0),  # added to the step time
}
INVERSE = {"matmul", "attention", "network"}  # time decreases as the term grows
NEUTRAL = {name: spec[0] for name, spec in (FACTORS | SHIFTS).items()}
PULL = 0.25  # penalty of a change by a factor of e, or by a unit: as much as an error of 25 % in one row

# A stack that differs from another only in the named terms shares the rest with it.
PARENTS = {
    "torchtitan": ("torchtitan-compile", ["memory"]),
    "torchtitan-rowwise": ("torchtitan-compile", ["matmul"]),
    "torchtitan-async-tp": ("torchtitan-compile", ["matmul", "tensor_hidden"]),
    "megatron-bridge-gpt-oss": ("megatron-bridge-26.02", ["matmul", "memory", "network"]),
}
FAMILIES = ("torchtitan", "megatron-bridge")  # held out together; every other stack is its own family

# The fraction of peak that an accelerator reaches in long steps under its power limit, where single kernels were not
# measured. Neutral values are those of the most similar measured accelerator; scales on them are limited to 0.65 to 1.06,
# and to 1 where that one has more power.
LIMITED = ("h100-96gb-500w", "b200-limited")
ACCELERATORS = {
    "h100-96gb-500w": {"matmul": 0.72, "matmul_fp8": 0.70, "attention_forward": 0.595, "attention_backward": 0.495},
    "b200-limited": {"matmul": 0.72, "matmul_fp8": 0.70, "matmul_fp4": 0.6, "attention_forward": 0.58,
                     "attention_backward": 0.45},
    "mi300x": {"matmul": 0.51, "matmul_fp8": 0.51, "attention_forward": 0.38, "attention_backward": 0.28},
}
for rack in ("gb200-nvl72", "b300", "gb300-nvl72"):
    ACCELERATORS[rack] = dict(ACCELERATORS["b200-limited"])
ACCELERATORS["b200"] = {"attention_forward": 0.58, "attention_backward": 0.45}  # its GEMMs were measured
ACCELERATOR_PULL = 0.5
PRODUCTS = {"bf16": "matmul", "f16": "matmul", "fp8": "matmul_fp8", "fp4": "matmul_fp4"}
SCALES = ("matmul", "matmul_fp8", "matmul_fp4", "attention")  # of an accelerator; attention scales both passes


def table(values):
    return "{ " + ", ".join(f"{name} = {value:.6g}" for name, value in values.items()) + " }"


class Terms:
    """Terms of every stack, and scales of accelerators relative to their neutral values."""

    def __init__(self, stacks):
        self.stacks = {name: dict(NEUTRAL) for name in stacks}
        self.scales = {name: dict.fromkeys(SCALES, 1.0) for name in ACCELERATORS}

    def toml(self, name, only=None):
        lines = ["[[set]]", f'name = "{name}"']
        if only:
            lines.append("only = [" + ", ".join(f'"{s}"' for s in only) + "]")
        for stack, terms in self.stacks.items():
            lines.append(f'stack."{stack}" = {table(terms)}')
        for accelerator, figures in self.figures().items():
            lines.append(f'accelerator."{accelerator}" = {table(figures)}')
        return "\n".join(lines) + "\n"

    def figures(self):
        return {a: {t: min(1.0, v * self.scales[a]["attention" if t.startswith("attention") else t])
                    for t, v in neutral.items()} for a, neutral in ACCELERATORS.items()}


def simulate(args, sets, title):
    """Seconds of every row with every set of terms, by row id."""
    work = pathlib.Path(args.work)
    (work / f"{title}.toml").write_text("\n".join(sets))
    with open(work / f"{title}.json", "w") as out:
        subprocess.run([args.quintet, "bench", "reference", args.table, "--terms", work / f"{title}.toml",
                        "--threads", str(args.threads)], stdout=out, check=True)
    return json.load(open(work / f"{title}.json"))


class Row:
    """A published run: its step time, and the response of its simulated step to the terms."""

    def __init__(self, record, probes, published):
        self.id, self.stack, self.accelerator = record["id"], record["stack"], record["accelerator"]
        self.source = self.id.split("-")[0]
        self.stated = record["stated"]
        self.product = PRODUCTS[record["arithmetic"]]
        self.experts = "experts" in published["ffn"]
        # One configuration: a geometry, under any name, on one kind of chip.
        self.group = tuple(published[k].replace(" ", "") for k in ("layers", "hidden", "ffn")) + (
            re.sub(r"-[48]0gb$", "", self.accelerator),)
        seconds = dict(zip(probes, record["seconds"]))
        self.base = seconds["neutral"]
        self.work = record["predicted"][0] * self.base  # tokens per step and device
        self.goal = self.work / record["published_tokens_per_s_per_gpu"]
        self.slope = {}
        for term, (neutral, _, _, probe) in FACTORS.items():
            change = neutral / probe if term in INVERSE else probe / neutral
            self.slope[term] = max(0.0, seconds[term] - self.base) / (change - 1)
        for term, (neutral, _, _, probe, _) in SHIFTS.items():
            self.slope[term] = 1e-3 if probe is None else (seconds[term] - self.base) / (probe - neutral)
        # GEMMs outside of blocks stay in bf16, regardless of those inside.
        wide = self.slope["matmul"]
        if self.product != "matmul":
            wide = min(wide, max(0.0, seconds["bf16"] - self.base) / (1 / BF16_PROBE - 1))
        self.wide, self.narrow = wide, self.slope["matmul"] - wide

    def seconds(self, terms, scales):
        total = self.base
        u = NEUTRAL["matmul"] / terms["matmul"]
        total += self.wide * (u / scales["matmul"] - 1) + self.narrow * (u / scales[self.product] - 1)
        u = NEUTRAL["attention"] / terms["attention"]
        total += self.slope["attention"] * (u / scales["attention"] - 1)
        total += self.slope["memory"] * (terms["memory"] / NEUTRAL["memory"] - 1)
        total += self.slope["network"] * (NEUTRAL["network"] / terms["network"] - 1)
        for term in SHIFTS:
            total += self.slope[term] * (terms[term] - NEUTRAL[term])
        return max(total, 0.05 * self.base)


BF16_PROBE = 0.7
NO_SCALES = dict.fromkeys(SCALES, 1.0)


class Fit:
    """Terms fitted on `train`; `ratio` is the simulated time over the sum of parts, by row."""

    def __init__(self, rows, train):
        self.train, self.rows = [rows[i] for i in train], rows
        self.terms = Terms(sorted({r.stack for r in rows.values()}))
        self.ratio = dict.fromkeys(rows, 1.0)

    def predicted(self, row, terms=None, scales=None):
        return self.ratio[row.id] * row.seconds(terms or self.terms.stacks[row.stack],
                                                scales or self.terms.scales.get(row.accelerator, NO_SCALES))

    def errors(self, rows, **changed):
        return sum(abs(math.log(self.predicted(r, **changed) / r.goal)) for r in rows)

    def descend(self, values, specs, cost):
        """Coordinate descent; `specs`: name -> (neutral, least, most, unit or None for factors)."""
        pull = lambda: sum(abs(math.log(values[t] / s[0])) if s[3] is None else abs(values[t] - s[0]) / s[3]
                           for t, s in specs.items())
        best, width = cost(pull()), 0.3
        while width > 0.004:
            moved = False
            for term, (_, least, most, unit) in specs.items():
                for sign in (1, -1):
                    before = values[term]
                    trial = before * math.exp(sign * width) if unit is None else before + sign * width * unit
                    values[term] = min(most, max(least, trial))
                    if values[term] != before and (now := cost(pull())) < best - 1e-9:
                        best, moved = now, True
                    else:
                        values[term] = before
            if not moved:
                width *= 0.6

    def fit(self):
        shared = [t for t in NEUTRAL]
        for _ in range(3):
            for stack in [s for s in self.terms.stacks if s not in PARENTS]:
                children = [c for c, (parent, _) in PARENTS.items() if parent == stack and c in self.terms.stacks]
                mine = [r for r in self.train if r.stack == stack or r.stack in children]
                self.fit_stack(stack, shared, mine, children)
                for child in children:
                    own = PARENTS[child][1]
                    self.fit_stack(child, own, [r for r in self.train if r.stack == child], [])
            for accelerator in ACCELERATORS:
                self.fit_accelerator(accelerator)

    def fit_stack(self, stack, names, mine, children):
        values = self.terms.stacks[stack]

        def cost(pull):
            for child in children:
                for t in NEUTRAL:
                    if t not in PARENTS[child][1]:
                        self.terms.stacks[child][t] = values[t]
            return self.errors(mine) + PULL * pull

        specs = {t: FACTORS[t][:3] + (None,) if t in FACTORS else SHIFTS[t][:3] + (SHIFTS[t][4],) for t in names}
        if mine:
            self.descend(values, specs, cost)
        cost(0)

    def fit_accelerator(self, accelerator):
        mine = [r for r in self.train if r.accelerator == accelerator]
        neutral = ACCELERATORS[accelerator]
        scales = self.terms.scales[accelerator]
        most = 1.0 if accelerator in LIMITED else 1.06
        specs = {t: (1.0, 0.65, most, None) for t in SCALES
                 if t in neutral or t == "attention" and "attention_forward" in neutral}
        if mine:
            self.descend(scales, specs, lambda pull: self.errors(mine, scales=scales) + ACCELERATOR_PULL * pull)

    def correct(self, simulated):
        for i, seconds in simulated.items():
            if seconds > 0:
                self.ratio[i] *= seconds / self.predicted(self.rows[i])


def generic(fit, rows, family):
    """The median terms of other families, and accelerators fitted without this one."""
    other = Fit(rows, [r.id for r in fit.train if family_of(r.stack) != family])
    other.ratio = fit.ratio
    other.terms.stacks = {s: dict(t) for s, t in fit.terms.stacks.items()}
    for accelerator in ACCELERATORS:
        other.fit_accelerator(accelerator)
    known = [t for s, t in fit.terms.stacks.items() if family_of(s) != family and s not in PARENTS]
    median = {t: statistics.median(k[t] for k in known) for t in NEUTRAL}
    for stack in other.terms.stacks:
        if family_of(stack) == family:
            other.terms.stacks[stack] = dict(median)
    return other.terms


def family_of(stack):
    return next((f for f in FAMILIES if stack.startswith(f)), stack)


def splits_of(rows, folds):
    """Name -> (rows that train, rows that are scored)."""
    everything = list(rows)
    out = {"in sample": (everything, everything)}
    # Groups, largest first, go to the fold with the fewest rows of their stacks, then the fewest rows.
    groups = {}
    for r in rows.values():
        groups.setdefault(r.group, []).append(r)
    parts = [[] for _ in range(folds)]
    for _, group in sorted(groups.items(), key=lambda g: (-len(g[1]), g[0])):
        stacks = {r.stack for r in group}
        min(parts, key=lambda p: (sum(r.stack in stacks for r in p), len(p))).extend(group)
    for k, part in enumerate(parts):
        held = {r.id for r in part}
        out[f"configurations {k + 1}"] = ([i for i in everything if i not in held], sorted(held))
    by_family = {}
    for r in rows.values():
        by_family.setdefault(family_of(r.stack), {}).setdefault(r.source, []).append(r.id)
    several = {f: s for f, s in by_family.items() if len(s) > 1}
    larger, smaller = set(), set()
    for sources in several.values():
        ordered = sorted(sources.values(), key=len, reverse=True)
        larger.update(ordered[0])
        for ids in ordered[1:]:
            smaller.update(ids)
    for name, held in (("sources, smaller", smaller), ("sources, larger", larger)):
        out[name] = ([i for i in everything if i not in held], sorted(held))
    return out


def quantile(values, share):
    values = sorted(values)
    at = share * (len(values) - 1)
    low = int(at)
    return values[low] + (values[min(low + 1, len(values) - 1)] - values[low]) * (at - low)


def score(errors):
    if not errors:
        return "| 0 | - | - | - |"
    size = [abs(e) for e in errors]
    return (f"| {len(errors)} | {100 * quantile(size, 0.5):.1f} % | {100 * quantile(size, 0.9):.1f} %"
            f" | {100 * quantile(errors, 0.5):+.1f} % |")


def error(row, seconds):
    return row.goal / seconds - 1


def write(catalogue, terms):
    """Writes the rounded terms into the catalogue's files."""
    path = catalogue / "stacks.toml"
    text = path.read_text()
    for stack, values in terms.stacks.items():
        header = f'["{stack}"]' if "." in stack else f"[{stack}]"
        start = text.index(header + "\n")
        end = text.find("\n\n", start)
        end = len(text) if end < 0 else end
        lines = [l for l in text[start:end].split("\n") if l.split(" =")[0] not in NEUTRAL]
        at = next(i for i, l in enumerate(lines) if l.startswith("title")) + 1
        default = {"matmul": 1, "attention": 1, "memory": 1, "network": 1, "hidden": 1}
        lines[at:at] = [f"{t} = {rounded(v)}" for t, v in values.items() if float(rounded(v)) != default.get(t, 0)]
        text = text[:start] + "\n".join(lines) + text[end:]
    path.write_text(text)
    path = catalogue / "accelerators.toml"
    text = path.read_text()
    for accelerator, figures in terms.figures().items():
        start = text.index(f"[{accelerator}]\n")
        at = text.index("efficiency = {", start)
        end = text.index("\n", at)
        line = text[at:end]
        for t, v in figures.items():
            line = re.sub(rf"\b{t} = [0-9.]+", f"{t} = {rounded(v)}", line)
        text = text[:at] + line + text[end:]
    path.write_text(text)


def rounded(value):
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("quintet")
    parser.add_argument("table")
    parser.add_argument("--work", required=True, help="folder for sets of terms and simulations")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--fold-rounds", type=int, default=1)
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", default="", help="only splits whose name starts with this, such as 'in sample'")
    parser.add_argument("--reuse", action="store_true", help="reuse the neutral simulations in --work")
    parser.add_argument("--write", metavar="FOLDER", type=pathlib.Path, help="write the terms into this catalogue")
    args = parser.parse_args()
    pathlib.Path(args.work).mkdir(parents=True, exist_ok=True)
    published = {r["id"]: r for r in csv.DictReader(open(args.table))}
    stacks = sorted(set(re.findall(r'^\["?([^"\]]+)"?\]', (pathlib.Path(__file__).parent.parent /
                    "src/hardware/catalogue/stacks.toml").read_text(), re.M)) - {"quintet"})

    probes = ["neutral"] + [t for t in FACTORS] + [t for t, s in SHIFTS.items() if s[3] is not None] + ["bf16"]
    sets = []
    for probe in probes:
        terms = Terms(stacks)
        for stack in terms.stacks.values():
            if probe in stack:
                stack[probe] = (FACTORS | SHIFTS)[probe][3]
        text = terms.toml(probe)
        if probe == "bf16":  # for every accelerator, including those that are not fitted
            for accelerator, figures in accelerators_of(args).items():
                text = re.sub(rf'accelerator\."{accelerator}" = .*\n', "", text)
                base = {**figures, **ACCELERATORS.get(accelerator, {})}
                base["matmul"] *= BF16_PROBE
                text += f'accelerator."{accelerator}" = {table(base)}\n'
        sets.append(text)
    neutral = pathlib.Path(args.work) / "neutral.json"
    record = json.load(open(neutral)) if args.reuse and neutral.exists() else simulate(args, sets, "neutral")
    rows = {r["id"]: Row(r, probes, published[r["id"]]) for r in record["rows"]}

    splits = {n: s for n, s in splits_of(rows, args.folds).items() if n.startswith(args.only) or n == "in sample"}
    fits = {name: Fit(rows, train) for name, (train, _) in splits.items()}
    simulated = {}

    def turn(names, title):
        for name in names:
            fits[name].fit()
        answer = simulate(args, [fits[n].terms.toml(n) for n in names], title)
        for k, name in enumerate(names):
            simulated[name] = {r["id"]: r["seconds"][k] for r in answer["rows"]}
            errors = [error(rows[i], simulated[name][i]) for i in splits[name][1]]
            print(f"{title} {name:24} {score(errors)}", flush=True)

    for k in range(args.rounds):
        turn(["in sample"], f"round-{k + 1}")
        if k + 1 < args.rounds:
            fits["in sample"].correct(simulated["in sample"])
    if args.write:
        write(args.write, fits["in sample"].terms)
    # The ratio of simulations to sums of parts does not depend on published values, so folds start from it.
    held_out = [n for n in fits if n != "in sample"]
    for name in held_out:
        fits[name].ratio = dict(fits["in sample"].ratio)
    for k in range(args.fold_rounds - 1 if held_out else 0):
        turn(held_out, f"folds-{k + 1}")
        for name in held_out:
            fits[name].correct(simulated[name])
    # The last simulation covers only the rows that are scored.
    for name in held_out:
        fits[name].fit()
    sets = [fits[n].terms.toml(n, splits[n][1]) for n in held_out]
    families = sorted({family_of(r.stack) for r in rows.values()}) if "stacks".startswith(args.only) else []
    sets += [generic(fits["in sample"], rows, f).toml(f, [r.id for r in rows.values() if family_of(r.stack) == f])
             for f in families]
    answer = simulate(args, sets, "held-out")["rows"] if sets else []
    held = {"in sample": simulated["in sample"], "configurations": {}, "sources": {}, "stacks": {}}
    for k, name in enumerate(held_out + families):
        kind = name.split(",")[0].split(" ")[0] if name in held_out else "stacks"
        scored = set(splits[name][1]) if name in held_out else {r.id for r in rows.values()
                                                                if family_of(r.stack) == name}
        held[kind] |= {r["id"]: r["seconds"][k] for r in answer if r["id"] in scored}
    report(rows, held)
    with open(pathlib.Path(args.work) / "scores.json", "w") as out:
        json.dump({k: {i: error(rows[i], s) for i, s in v.items()} for k, v in held.items()}, out, indent=1)


def accelerators_of(args):
    """Name -> its bf16 GEMM efficiency, from the catalogue."""
    text = (pathlib.Path(__file__).parent.parent / "src/hardware/catalogue/accelerators.toml").read_text()
    found = re.findall(r"^\[([^\]]+)\].*?^efficiency = \{ matmul = ([0-9.]+)", text, re.M | re.S)
    return {name: {"matmul": float(share)} for name, share in found}


def report(rows, held):
    kinds = [k for k, v in held.items() if v]
    for title, chosen in (("all", lambda r: True), ("stated", lambda r: r.stated),
                          ("dense", lambda r: not r.experts), ("experts", lambda r: r.experts)):
        for kind in kinds:
            errors = [error(rows[i], s) for i, s in held[kind].items() if chosen(rows[i])]
            print(f"| {title} | {kind} {score(errors)}")
    for key in ("source", "accelerator", "stack"):
        print()
        for value in sorted({getattr(r, key) for r in rows.values()}):
            cells = []
            for kind in kinds:
                errors = [abs(error(rows[i], s)) for i, s in held[kind].items() if getattr(rows[i], key) == value]
                cells.append(f"{100 * quantile(errors, 0.5):.1f} / {100 * quantile(errors, 0.9):.1f} %"
                             if errors else "-")
            count = sum(getattr(r, key) == value for r in rows.values())
            print(f"| {value} | {count} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
