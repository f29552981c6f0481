"""The site of these pages, as Sphinx builds it: `make docs`. A warning, such as a link that leads nowhere, ends it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[1]

project = "Coset"
copyright = "the authors of Coset"
extensions = ["myst_parser", "sphinx_copybutton"]
# The clone is the source, so that links lead where they lead there.
include_patterns = ["README.md", "CONTRIBUTING.md", "docs/**.md"]
root_doc = "docs/README"
suppress_warnings = ["misc.highlighting_failure"]  # output of commands is not always what its fence says

myst_heading_anchors = 4
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

html_theme = "furo"
html_title = "Coset"
html_static_path = ["site"]
html_css_files = ["site.css"]
html_additional_pages = {"index": "begin.html"}
templates_path = ["site"]
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False


def _with_contents(app: Any, page: str, source: list[str]) -> None:
    """Give the index the order of all pages, which is that of its tables; decisions follow by their numbers."""
    if page != root_doc:
        return
    listed = re.findall(r"^\| \[.*?\]\(((?:guide|how-to|internals)/.*?)\.md\)", source[0], re.M)
    decisions = [f"decisions/{path.stem}" for path in sorted((_ROOT / "docs" / "decisions").glob("*.md"))]
    for caption, folder in (
        ("Guide", "guide/"),
        ("How to", "how-to/"),
        ("Internals", "internals/"),
        ("Decisions", "decisions/"),
    ):
        pages = "\n".join(each for each in (*listed, *decisions) if each.startswith(folder))
        source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{pages}\n```\n"
    more = "The README </README>\nContributing </CONTRIBUTING>"
    source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: The clone\n\n{more}\n```\n"


def setup(app: Any) -> None:
    """What Sphinx calls."""
    app.connect("source-read", _with_contents)
