#!/usr/bin/env python3
"""Opens the tool's HTML pages in headless Chromium and looks at them as a reader would.

A run, two runs side by side and plans are drawn, then rendered at 1280 and 390 pixels, light and dark. Checked in the DOM
(check.js): nothing is wider than the window, no label wraps or overlaps another, every figure has a drawing, no script
fails, nothing is requested, pointers get answers. With --shots DIR the screenshots are kept.

  check_pages.py --quintet build/quintet [--shots DIR] [--self-test]
  check_pages.py --picture runs/tiny docs/images/report.png    the picture of README: the upper part of a run's page
"""

import argparse
import html
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
WIDTHS = (1280, 390)
THEMES = {"light": 1, "dark": 0}  # Chromium's preferredColorScheme
RUN_TITLES = {"Loss", "Throughput", "Gradient norm", "Learning rate", "Memory", "One step", "Mesh", "Provenance", "Recipe"}


def chromium(arguments, folder):
    tool = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if tool is None:
        raise SystemExit("check_pages.py: Chromium is not installed; run 'tools/setup.sh --pages'")
    command = [tool, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={folder}/profile",
               "--host-resolver-rules=MAP * ~NOTFOUND", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=180).stdout


def framed(page, width, height, folder):
    """A page that frames another one and keeps its message: windows of headless Chromium are at least 500 px wide."""
    frame = pathlib.Path(folder) / f"frame-{page.stem}-{width}.html"
    frame.write_text("<body style='margin:0'><script>addEventListener('message',e=>{const p=document.createElement('pre');p.id='found';"
                     "p.textContent=e.data;document.body.append(p)})</script>"
                     f"<iframe style='border:0;display:block' width={width} height={height} src='{page.as_uri()}'></iframe>", encoding="utf-8")
    return frame.as_uri()


def look(page, width, theme, folder):
    """What check.js finds in a page."""
    text = page.read_text(encoding="utf-8")
    early = "<script>window.foundErrors=[];addEventListener('error',e=>foundErrors.push('script: '+e.message));" \
            "addEventListener('securitypolicyviolation',e=>foundErrors.push('refused request: '+e.blockedURI));</script>"
    script = f"<script>{(HERE / 'check.js').read_text(encoding='utf-8')}</script>"
    copy = pathlib.Path(folder) / f"{page.stem}-{width}-{theme}.html"
    copy.write_text(text.replace("<meta charset=\"utf-8\">", "<meta charset=\"utf-8\">" + early, 1).replace("</body>", script + "</body>"), encoding="utf-8")
    dom = chromium([f"--blink-settings=preferredColorScheme={THEMES[theme]}", "--window-size=1400,1000", "--virtual-time-budget=3000",
                    "--dump-dom", framed(copy, width, 900, folder)], folder)
    found = re.findall(r'<pre id="found">(.*?)</pre>', dom, re.DOTALL)
    if not found:
        return {"problems": ["the page's script did not end"], "titles": [], "figures": [], "requests": [], "width": width, "paper": 0, "ink": 1}
    return json.loads(html.unescape(found[-1]))


def problems_of(page, titles, folder, shots):
    for width in WIDTHS:
        for theme in THEMES:
            found = look(page, width, theme, folder)
            where = f"{page.name} at {width} px, {theme}"
            yield from (f"{where}: {p}" for p in found["problems"])
            if found["width"] != width:
                yield f"{where}: the window is {found['width']} px wide"
            if found["requests"]:
                yield f"{where}: requests {found['requests']}"
            if missing := titles - set(found["titles"]):
                yield f"{where}: no part {sorted(missing)}"
            if (found["paper"] > 0.5) != (theme == "light") or abs(found["paper"] - found["ink"]) < 0.5:
                yield f"{where}: text of lightness {found['ink']:.2f} on {found['paper']:.2f}"
            if shots:
                height = 2200 if width > 500 else 4000
                chromium([f"--blink-settings=preferredColorScheme={THEMES[theme]}", f"--window-size={max(width, 500)},{height}",
                          f"--screenshot={shots}/{page.stem}-{width}-{theme}.png", framed(page, width, height, folder)], folder)


def draw(quintet, folder):
    """The pages, each with the titles that it must have."""
    def run(*arguments):
        done = subprocess.run([quintet, *arguments], capture_output=True, text=True, cwd=ROOT)
        if done.returncode != 0:
            raise SystemExit(f"check_pages.py: quintet {' '.join(arguments)}: {done.stderr or done.stdout}")
    one, two = f"{folder}/one", f"{folder}/two"
    small = ["recipes/tiny.toml", "--sample", "0", "--steps", "12", "--set", "eval.every=4"]
    run("train", *small, "--run-dir", one)
    run("train", *small, "--run-dir", two, "--set", "parallel.pp=2", "--set", "parallel.dp_shard=1", "--set", "optimizer.lr=0.001",
        "--set", "parallel.zero=0")
    run("report", one, two, "--out", f"{folder}/comparison.html")
    run("plan", "--model", "llama3.2-1b", "--cluster", "1x8 h100", "--seq-len", "2048", "--global-batch", "32", "--micro-batch", "1",
        "--set", "parallel.pp=4", "--set", "parallel.tp=2", "--html", f"{folder}/pipeline.html")
    run("plan", "--model", "llama3.2-1b", "--cluster", "1x8 h100", "--seq-len", "2048", "--global-batch", "32", "--search", "--plans", "8",
        "--scaling", "--tokens", "1T", "--html", f"{folder}/search.html")
    shutil.copy(f"{one}/report.html", f"{folder}/run.html")
    plan = {"Memory per device", "Time per step", "Assumptions", "Provenance"}
    yield pathlib.Path(folder, "run.html"), RUN_TITLES
    yield pathlib.Path(folder, "comparison.html"), RUN_TITLES | {"Results"}
    yield pathlib.Path(folder, "pipeline.html"), plan | {"Pipeline timeline", "Memory over the step", "Sent per device and step"}
    yield pathlib.Path(folder, "search.html"), plan | {"The fastest layouts found", "By strategy", "Scaling", "Cost"}


BROKEN = {
    "wide": ("<h2>", '<div style="width:3000px">x</div><h2>', "px wide"),
    "script": ("</body>", "<script>nothing.here()</script></body>", "script:"),
    "request": ("</main>", '<img src="https://example.com/x.png"></main>', "refused request"),
    "wrap": ('<div class="key">', '<div class="key"><span style="white-space:normal;width:9px">one two three</span>', "wraps"),
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quintet", default=str(ROOT / "build" / "quintet"))
    parser.add_argument("--shots")
    parser.add_argument("--picture", nargs=2, metavar=("RUN", "FILE"), help="draw the page of a run instead, light, at 1280 px")
    parser.add_argument("--self-test", action="store_true", help="break a page in each way and see that it is found")
    options = parser.parse_args()
    if options.shots:
        pathlib.Path(options.shots).mkdir(parents=True, exist_ok=True)
    if options.picture:
        page, file = (pathlib.Path(name).resolve() for name in options.picture)
        with tempfile.TemporaryDirectory() as folder:
            chromium(["--blink-settings=preferredColorScheme=1", "--window-size=1280,1525", f"--screenshot={file}", (page / "report.html").as_uri()], folder)
        return 0
    quintet = str(pathlib.Path(options.quintet).resolve())
    problems, count = [], 0
    with tempfile.TemporaryDirectory() as folder:
        for page, titles in draw(quintet, folder):
            count += 1
            problems += problems_of(page, titles, folder, options.shots and str(pathlib.Path(options.shots).resolve()))
            if options.self_test and page.name == "run.html":
                for name, (place, text, expected) in BROKEN.items():
                    broken = pathlib.Path(folder, f"broken-{name}.html")
                    broken.write_text(page.read_text(encoding="utf-8").replace(place, text, 1), encoding="utf-8")
                    if not any(expected in p for p in look(broken, 390, "light", folder)["problems"]):
                        problems.append(f"self-test: {name} was not found")
    print("\n".join(problems) if problems else f"pages: {count} pages at {len(WIDTHS)} widths in {len(THEMES)} themes, no problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
