"""What check_layers.py, check_status.py and check_docs.py share: the command line, and tests of themselves on planted faults."""

import argparse
import pathlib
import tempfile


def self_test(check, clean, planted):
    """Checks a clean tree ({path: text}), then the tree with each (fault, path, text, expected part of a message)."""
    failures = 0
    for what, name, text, message in [("nothing", None, None, None), *planted]:
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for path, contents in {**clean, **({name: text} if name else {})}.items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(contents, encoding="utf-8")
            problems = list(check(root))
        good = not problems if message is None else any(message in problem for problem in problems)
        failures += not good
        print(f"{'ok    ' if good else 'FAILED'} {what}: {problems[0] if problems else 'no problem found'}")
    return 1 if failures else 0


def main(name, doc, check, clean, planted, remark=lambda root: ""):
    """Runs a script: one line per problem of the tree, then their number; exit status 1 if there is any."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--self-test", action="store_true")
    arguments = parser.parse_args()
    if arguments.self_test:
        return self_test(check, clean(), planted)
    root = arguments.root.resolve()
    problems = list(check(root))
    for problem in problems:
        print(problem)
    print(f"{name}: {len(problems)} problem{'' if len(problems) == 1 else 's'}{remark(root)}")
    return 1 if problems else 0
