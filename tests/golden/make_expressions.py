#!/usr/bin/env python3
"""Writes tests/golden/tokenizers/expressions.json: where random regular expressions match a text, as the `tokenizers` package has it.

Needs the PyPI package tokenizers (0.23.3). The expressions use everything that src/tokenizer/oniguruma.cc translates;
tests/hf/tokenizers_test.py takes more of them from here. Run from anywhere: tests/golden/make_expressions.py
"""

import json
import pathlib
import random

from tokenizers import Regex, pre_tokenizers

MEMBERS = ["a", "b", "z", "a-z", "A-Z", "0-9", r"\s", r"\S", r"\w", r"\W", r"\d", r"\D", r"\h", r"\H", r"\p{L}", r"\P{L}", r"\p{^N}", r"\p{Lu}", r"\p{M}", r"\p{Han}",
           r"\p{Hiragana}", r"\p{Word}", r"\r\n", "_", r"\-", "'", "\u00e9", r"\x{4e00}-\x{9fff}", r"\u0041-\u0045", r"\.", r"\]", r"\[",
           "[:alpha:]", "[:^space:]", "[:punct:]", "[:word:]"]
ATOMS = ["a", "b", " ", "'", "s", "t", "k", "\u00e9", "\u0414", "\u6f22", r"\n", r"\.", "_", "x{", "-", r"\s", r"\S", r"\w", r"\W", r"\d", r"\D", r"\h", r"\H",
         r"\p{L}", r"\p{N}", r"\p{Lu}", r"\p{Ll}", r"\P{L}", r"\p{^L}", ".", r"\R", r"\N", r"\O", r"\p{Han}", r"\p{Letter}", r"\p{Alpha}", r"\p{P}", r"\p{S}",
         "(?i:it|'s|[a-f])", "(?m:.)", "(?x: a b )", "(?>ab?)"]
ANCHORS = ["^", "$", r"\b", r"\B", r"\A", r"\z", r"\Z", "(?=a)", "(?!b)", r"(?<=\s)", r"(?<![a-z])", "(?#note)", r"(?=\p{L})"]
QUANTIFIERS = ["*", "+", "?", "*?", "+?", "??", "*+", "++", "?+", "{2}", "{1,3}", "{1,}", "{,2}", "{2}?", "{1,2}?", "{1,3}+", "{0,2}+"]
WORDS = ["hello", "HELLO", "it's", "IT'S", "123", "45678", " ", "  ", "\n", "\r\n", " \n ", "\t", "abc", "ABCdef", "aaa", "x-y", "[b]", "x{", "k\u212a", "s\u017f",
         "\u6f22\u5b57\u304b\u306a", "\u043f\u0440\u0438 \u041c", "a\u0301", "_", "\u00e9", "\u3000", ".", "\u00b2", "\U00010d50", "\u1c8a", "\U0001f600", "$"]


def bracket(pick, depth=0):
    text = "".join(f"[{m}]" if m.startswith("[:") else m for m in pick.choices(MEMBERS, k=pick.randint(1, 4)))
    if depth < 2 and pick.random() < 0.25:
        text += pick.choice(["&&", ""]) + bracket(pick, depth + 1)
    if pick.random() < 0.15:
        text += "&&" + pick.choice(["[^b]", r"\w", "a-z", r"\p{L}"])
    return "[" + pick.choice(["", "", "^"]) + text + "]"


def expression(pick, depth=0):
    branches = []
    for _ in range(pick.randint(1, 3)):
        branch = ""
        for _ in range(pick.randint(1, 3)):
            kind = pick.random()
            if kind < 0.1:
                branch += pick.choice(ANCHORS)
                continue
            if kind < 0.35:
                branch += bracket(pick)
            elif kind < 0.5 and depth < 2:
                branch += "(" + pick.choice(["", "?:", "?>", "?m:", "?-m:"]) + expression(pick, depth + 1) + ")"
            else:
                branch += pick.choice(ATOMS)
            if pick.random() < 0.4:
                branch += pick.choice(QUANTIFIERS)
        branches.append(branch)
    return "|".join(branches)


def matches(pattern, text):
    """Byte offsets where the matches that are not empty begin and end; nothing if the package refuses the expression."""
    try:
        pieces = pre_tokenizers.Split(Regex(pattern), "isolated").pre_tokenize_str(text)
        kept = {at for _, (begin, end) in pre_tokenizers.Split(Regex(pattern), "removed").pre_tokenize_str(text) for at in range(begin, end)}
    except BaseException:  # a panic of the package: too many steps
        return None
    at = [0]
    for c in text:
        at.append(at[-1] + len(c.encode()))
    return [at[i] for _, piece in pieces if piece[0] not in kept for i in piece]


if __name__ == "__main__":
    pick = random.Random(18)
    text = "".join(pick.choices(WORDS, k=60))
    found = []
    while len(found) < 250:
        pattern = expression(pick)
        where = matches(pattern, text) if len(pattern) < 120 and ")*" not in pattern else None
        if where is not None:
            found.append({"expression": pattern, "matches": where})
    out = pathlib.Path(__file__).parent / "tokenizers/expressions.json"
    out.write_text(json.dumps({"text": text, "expressions": found}, indent=None, separators=(",", ":")).replace('{"expression"', '\n{"expression"') + "\n")
