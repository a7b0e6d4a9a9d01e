"""``.. picture:: NAME``: a drawing made by code in this folder when the pages are built.

The SVG stands in the page itself, so it takes the colours of the theme, light and dark, and its
words can be found and read aloud.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from pictures import plots, scenes
from pictures.canvas import Canvas

DOCS = Path(__file__).parents[2]
PICTURES: dict[str, Callable[[], Canvas]] = {
    "line": scenes.line,
    "term": scenes.term,
    "deaths": scenes.deaths,
    "stores": scenes.stores,
    "failover": lambda: plots.failover(DOCS / "design" / "measured.md"),
    "drain": lambda: plots.drain(DOCS / "design" / "measured.md"),
    "messages": lambda: plots.messages(DOCS / "design" / "dyno.md"),
}


class Picture(SphinxDirective):
    """The picture that the argument names."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        draw = PICTURES.get(self.arguments[0])
        if draw is None:
            raise self.error(f"no picture {self.arguments[0]!r}; there are {', '.join(PICTURES)}")
        for page in ("design/measured", "design/dyno"):
            self.env.note_dependency(str(DOCS / f"{page}.md"))
        svg = draw().inline()
        return [
            nodes.raw(
                "", f'<div style="overflow-x:auto;margin:1.2rem 0">{svg}</div>', format="html"
            )
        ]


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("picture", Picture)
    return {"parallel_read_safe": True}
