"""How ``make docs`` builds the documentation."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from importlib.metadata import version as version_of
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "leaderq"
copyright = "2026, the founders of leaderq"
release = version = version_of("leaderq")
extensions = [
    "myst_parser",
    "settings_table",
    "sphinx.ext.autodoc",
    "sphinx.ext.intersphinx",
    "sphinx_click",
]
html_theme = "furo"
html_title = f"leaderq {release}"
exclude_patterns = ["_build"]
smartquotes = False  # "--json" is an option, not a dash

# Designs link to files of the repository, which are not pages.
suppress_warnings = ["myst.xref_missing"]
myst_heading_anchors = 3

autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
autodoc_preserve_defaults = True

# Names of these packages are loaded when first used; autodoc looks at what is there already.
for package in ("leaderq", "leaderq.coalescing", "leaderq.testing", "leaderq.zookeeper"):
    loaded = import_module(package)
    vars(loaded).update({name: getattr(loaded, name) for name in loaded.__all__})


def setup(app: object) -> None:
    """Let ``"0 2 * * *"`` and ``'team-*'`` in the help of a verb be read as they stand."""

    def escaped(_app: object, _context: object, lines: list[str]) -> None:
        lines[:] = [
            line.replace("*", "\\*") if "* *" in line else re.sub(r"(?<=[-/])\*", r"\\*", line)
            for line in lines
        ]

    for part in ("description", "options"):
        app.connect(f"sphinx-click-process-{part}", escaped)  # type: ignore[attr-defined]
