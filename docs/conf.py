"""Sphinx configuration of the documentation site: `make docs` builds the repository's Markdown into build/docs.

The source folder is the repository itself, so that README.md, CONTRIBUTING.md and CHANGELOG.md are pages as well and the
links between files mean the same on the site as in a checkout. Warnings are errors.
"""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent
CMAKE = (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")

project = "Quintet"
author = "the Quintet authors"
copyright = "the Quintet authors. Apache License 2.0"
version = re.search(r"project\(quintet VERSION ([\d.]+)", CMAKE).group(1)
release = version + re.search(r'set\(QUINTET_VERSION_SUFFIX "([^"]*)"\)', CMAKE).group(1)

extensions = ["myst_parser", "sphinx_copybutton"]
source_suffix = {".md": "markdown"}
root_doc = "docs/index"
include_patterns = ["docs/**", "README.md", "CONTRIBUTING.md", "CHANGELOG.md"]
exclude_patterns = ["build*", "runs", "src", "tests", "tools", "bench", "cmake", "docs/decisions/template.md"]

# Headings down to this level can be linked to, by the names that GitHub gives them.
myst_heading_anchors = 3
# Transcripts and the sources of other languages are not highlighted: a wrong guess is worse than none.
highlight_language = "none"

html_theme = "furo"
html_title = f"Quintet {release}"
html_static_path = ["site"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
templates_path = ["site"]
html_additional_pages = {"index": "redirect.html"}


def link_pages(app, docname, source):
    """Makes a link of every page that is named by its path: `docs/planning.md` in text, outside code blocks."""
    parts = re.split(r"(^```.*?^```$)", source[0], flags=re.MULTILINE | re.DOTALL)
    for i in range(0, len(parts), 2):
        parts[i] = re.sub(
            r"(?<!\[)`((?:docs/[\w/.-]+|README|CONTRIBUTING|CHANGELOG)\.md)`(?!\])",
            lambda match: f"[{match.group(0)}](/{match.group(1)})" if (ROOT / match.group(1)).is_file() else match.group(0),
            parts[i],
        )
    source[0] = "".join(parts)


def setup(app):
    app.connect("source-read", link_pages)
