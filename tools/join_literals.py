#!/usr/bin/env python3
"""Joins adjacent string literals where a line holds no more than a few words, so that clang-format can break them anew.

    tools/join_literals.py FILE...            # rewrites the files; tools/format.sh calls clang-format after it
    tools/join_literals.py --check FILE...    # only names the places; exit status 1 if there are any

clang-format breaks long literals but never joins short ones, so edited messages decay into fragments.
"""
import re
import sys

ENDS = re.compile(r'"(?:[^"\\]|\\.)*"$')          # a line that ends with a literal
LINE = re.compile(r'\s*"((?:[^"\\]|\\.)*)"(.*)$')  # a line that begins with one: its text, and what follows
FRAGMENT = 32  # columns of a line in the middle of a message that a formatter would not leave so short


def runs(lines):
    """Ranges of lines that are one message: the first ends with a literal, the others begin with one."""
    i = 0
    while i + 1 < len(lines):
        j = i
        if ENDS.search(lines[i]) and "#include" not in lines[i]:
            while j + 1 < len(lines) and (j == i or LINE.match(lines[j])[2] == "") and LINE.match(lines[j + 1]):
                j += 1
        if j > i:
            yield i, j + 1
        i = max(j, i + 1)


def is_broken(run):
    """Whether a line in the middle is a fragment. Line ends of the text, raw literals and escapes in hexadecimal, which would
    swallow the digits after them, are left alone."""
    if any(line.endswith('\\n"') or 'R"' in line or re.search(r'\\x[0-9a-fA-F]+"$', line) for line in run[:-1]):
        return False
    return any(len(line.strip()) <= FRAGMENT for line in run[1:-1])


def join(run):
    text = run[0]
    for line in run[1:]:
        match = LINE.match(line)
        text = f'{text[:-1]}{match[1]}"{match[2]}'
    return text


def main(arguments):
    check = arguments[:1] == ["--check"]
    found = 0
    for path in arguments[check:]:
        with open(path, encoding="utf-8") as file:
            lines = file.read().split("\n")
        broken = [(a, b) for a, b in runs(lines) if is_broken(lines[a:b])]
        found += len(broken)
        if check:
            for a, _ in broken:
                print(f"{path}:{a + 1}: a message in fragments")
        elif broken:
            for a, b in reversed(broken):
                lines[a:b] = [join(lines[a:b])]
            with open(path, "w", encoding="utf-8") as file:
                file.write("\n".join(lines))
    return check and found > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
