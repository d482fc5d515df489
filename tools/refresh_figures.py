#!/usr/bin/env python3
"""Rewrites the figures in README.md and docs/ that come from tables of docs/benchmarks.

A region is the lines between `<!-- figures: NAME -->` and `<!-- end of figures -->`. REGIONS below makes the text of each name
from the tables; nobody edits a region by hand.

  refresh_figures.py             rewrite every region
  refresh_figures.py --check     change nothing; list regions that are out of date, exit status 1 if there are any
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
REGION = re.compile(r"(<!-- figures: ([\w-]+) -->\n)(.*?)(<!-- end of figures -->)", re.DOTALL)


def tables(page, heading):
    """The tables under a heading of a page of docs/benchmarks: lists of rows of cells, the header first."""
    text = (ROOT / "docs" / "benchmarks" / page).read_text(encoding="utf-8")
    at = text.find(f"\n## {heading}\n") if heading else 0
    if at < 0:
        raise SystemExit(f"refresh_figures: docs/benchmarks/{page} has no heading '## {heading}'")
    end = text.find("\n## ", at + 1)
    for found in re.finditer(r"(?:^\|.*\|\n)+", text[at : end if end >= 0 else None], re.MULTILINE):
        rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in found.group(0).splitlines()]
        yield [row for row in rows if not set("".join(row)) <= set("-: ")]


def number(cell):
    return float(re.sub(r"[^\d.+-]", "", cell))


def h200():
    # One table for each version of the code, the newest first: figures of different versions are never mixed.
    head, *rows = next(tables("training-gpu.md", "How fast is it, compared with PyTorch?"))
    column = {name: head.index(name) for name in ("tokens/s", "MFU", "PyTorch tokens/s", "GiB", "PyTorch GiB")}
    yield "| model, sequence x batch | Quintet tokens/s | MFU | PyTorch 2.11 compiled | ratio | Quintet GiB | PyTorch GiB |"
    yield "|---|---|---|---|---|---|---|"
    for row in rows:
        cell = lambda name: row[column[name]]
        ratio = number(cell("tokens/s")) / number(cell("PyTorch tokens/s"))
        yield (
            f"| {row[0]} | {cell('tokens/s')} | {cell('MFU')} | {cell('PyTorch tokens/s')} | **{ratio:.2f}** "
            f"| {cell('GiB')} | {cell('PyTorch GiB')} |"
        )


def headline():
    head, *rows = next(tables("training-gpu.md", "How fast is it, compared with PyTorch?"))
    column = lambda name: [number(row[head.index(name)]) for row in rows]
    pairs = lambda ours, theirs: sorted(a / b for a, b in zip(column(ours), column(theirs)))
    speed, memory = pairs("tokens/s", "PyTorch tokens/s"), pairs("GiB", "PyTorch GiB")
    yield f"On one H200, training runs at {speed[0]:.2f} to {speed[-1]:.2f} times the speed of compiled PyTorch 2.11, in"
    yield (
        f"{100 * memory[0]:.0f} to {100 * memory[-1]:.0f} % of its memory (dense Llamas; the table is [below](#a-tour), the conditions are in the"
    )
    yield "[benchmarks](docs/benchmarks/training-gpu.md))."


def planner():
    found = tables("training-gpu.md", "How good is the plan?")
    errors = [cell for rows in found for row in rows if row[0] == "error" for cell in row[1:]]
    low, high = min(map(number, errors)), max(map(number, errors))
    head, *rows = next(tables("reference-runs.md", None))
    everything = next(row for row in rows if row[0] == "all")
    cell = lambda name: everything[head.index(name)].rstrip(" %").split(" / ")
    sample, held_out = cell("in sample"), cell("configurations left out")
    yield f"- {len(errors)} benchmark steps on one H200: errors of {low:+.1f} to {high:+.1f} %."
    yield (
        f"- {everything[1]} published runs of other software, tokens/s per device: median error {sample[0]} %, nine in ten within "
        f"{sample[1]} %;"
    )
    yield f"  {held_out[0]} % and {held_out[1]} % for configurations left out of the fit."


REGIONS = {"h200": h200, "headline": headline, "planner": planner}


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        raise SystemExit(__doc__)
    stale = []
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        text = page.read_text(encoding="utf-8")

        def fresh(match):
            if match.group(2) not in REGIONS:
                raise SystemExit(f"{page.relative_to(ROOT)}: no figures '{match.group(2)}'; known: {', '.join(REGIONS)}")
            return match.group(1) + "\n".join(["", *REGIONS[match.group(2)](), "", ""]) + match.group(4)

        new = REGION.sub(fresh, text)
        if new != text:
            stale.append(page.relative_to(ROOT))
            if not sys.argv[1:]:
                page.write_text(new, encoding="utf-8")
    for page in stale:
        print(f"{page}: figures {'are out of date; run tools/refresh_figures.py' if sys.argv[1:] else 'rewritten'}")
    print(f"figures: {len(stale)} page{'' if len(stale) == 1 else 's'} {'out of date' if sys.argv[1:] else 'rewritten'}")
    return 1 if stale and sys.argv[1:] else 0


if __name__ == "__main__":
    sys.exit(main())
