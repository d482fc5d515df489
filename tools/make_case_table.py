#!/usr/bin/env python3
"""Writes src/chat/jinja/case_table.inc: what Python's str methods know about characters beyond their general category
and their one-to-one case mapping. Run it with a Python whose unicodedata has the version that the file names."""

import pathlib
import sys
import unicodedata

CODES = [c for c in range(sys.maxunicode + 1) if not 0xD800 <= c < 0xE000]


def runs(codes):
    out = []
    for code in codes:
        if out and out[-1][1] == code - 1:
            out[-1][1] = code
        else:
            out.append([code, code])
    return out


def lines(items):
    text, line = "", ""
    for item in items:
        if len(line) + len(item) > 105:
            text, line = text + line.rstrip() + "\n", ""
        line += item + " "
    return text + line.rstrip() + "\n"


def run_table(name, codes):
    return f"constexpr CaseRun {name}[] = {{\n" + lines(f"{{0x{a:x}, 0x{b:x}}}," for a, b in runs(codes)) + "};\n"


def map_table(name, change):
    entries = [(c, change(chr(c))) for c in CODES if len(change(chr(c))) > 1]
    def row(code, to):
        return "{0x%x, {%s}}," % (code, ", ".join("0x%x" % ord(x) for x in to))
    return f"constexpr CaseEntry {name}[] = {{\n" + lines(row(c, to) for c, to in entries) + "};\n"


def category(code):
    return unicodedata.category(chr(code))


text = f"// Python's str methods, Unicode {unicodedata.unidata_version}. Written by tools/make_case_table.py.\n"
text += map_table("kUpperEntries", str.upper)
text += map_table("kTitleEntries", str.title)
text += run_table("kOtherLowercase", [c for c in CODES if chr(c).islower() and category(c) != "Ll"])
text += run_table("kOtherUppercase", [c for c in CODES if chr(c).isupper() and category(c) != "Lu"])
text += run_table("kOtherDigit", [c for c in CODES if chr(c).isdigit() and category(c) != "Nd"])
text += run_table("kOtherNumeric", [c for c in CODES if chr(c).isnumeric() and category(c)[0] != "N"])
# Cased and case-ignorable characters decide how a final sigma is lowered; both show through it.
text += run_table("kCased", [c for c in CODES if ("x" + chr(c) + "Σ").lower()[-1] == "ς" and (chr(c) + "Σ").lower()[-1] == "ς"])
text += run_table("kCaseIgnorable", [c for c in CODES if ("x" + chr(c) + "Σ").lower()[-1] == "ς" and (chr(c) + "Σ").lower()[-1] != "ς"])
path = pathlib.Path(__file__).resolve().parent.parent / "src/chat/jinja/case_table.inc"
path.write_text(text)
