#!/usr/bin/env python3
"""Installs the public headers: include/quintet/*.h and, under include/quintet/internal, the headers of the rooms
that they need and no other. Includes of rooms are rewritten, so that a consumer's include path holds nothing but
<quintet/...>.

public_headers.py --list               what would be installed
public_headers.py --install FOLDER     write it below FOLDER (the prefix's include folder)
"""
import argparse
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^(\s*#\s*include\s*)"([^"]+)"', re.MULTILINE)


def closure():
    """Room headers that the public ones reach, as paths below src."""
    wanted, todo = set(), sorted((ROOT / "include/quintet").glob("*.h"))
    while todo:
        for name in INCLUDE.findall(todo.pop().read_text()):
            path = ROOT / "src" / name[1]
            if not path.is_file():
                sys.exit(f"public_headers: {name[1]} is not a header below src")
            if path not in wanted:
                wanted.add(path)
                todo.append(path)
    return sorted(wanted)


def install(folder):
    public = sorted((ROOT / "include/quintet").glob("*.h"))
    targets = [(p, folder / "quintet" / p.name) for p in public]
    targets += [(p, folder / "quintet/internal" / p.relative_to(ROOT / "src")) for p in closure()]
    for source, target in targets:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(INCLUDE.sub(r"\1<quintet/internal/\2>", source.read_text()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--install", type=pathlib.Path, metavar="FOLDER")
    args = parser.parse_args()
    if args.list:
        for path in closure():
            print(path.relative_to(ROOT / "src"))
    if args.install:
        install(args.install)


if __name__ == "__main__":
    main()
