"""A drawing of boxes, arrows and words, as SVG that is legible on light and on dark paper."""

from __future__ import annotations

from html import escape

# Within a page the colours are Furo's. A file of its own has these, by what the reader prefers.
_LIGHT = {"text": "#1f2328", "quiet": "#59636e", "rule": "#b4bcc5", "paper": "#f5f7f9"}
_DARK = {"text": "#e6edf3", "quiet": "#9aa4af", "rule": "#57606a", "paper": "#1c2128"}
_FURO = {
    "text": "foreground-primary",
    "quiet": "foreground-secondary",
    "rule": "foreground-border",
    "paper": "background-secondary",
}
_STYLE = """
.p{font:13px system-ui,sans-serif;color-scheme:light dark}
.p text{fill:var(--p-text);stroke:none}.p .quiet{fill:var(--p-quiet)}
.p .strong{font-weight:600}.p .small{font-size:11.5px}
.p .code{font-family:ui-monospace,monospace;font-size:12px}
.p .box{fill:var(--p-paper);stroke:var(--p-rule)}
.p .good{stroke:#1a9a6c}.p .bad{stroke:#d1603d}.p .lead{stroke:#3b82c4}
.p .box.good{fill:#1a9a6c26}.p .box.bad{fill:#d1603d26}.p .box.lead{fill:#3b82c426}
.p .bar{stroke:none;fill:#3b82c4}.p .bar.other{fill:#98a1ab}.p .bar.good{fill:#1a9a6c}
.p .line{fill:none;stroke:var(--p-quiet);stroke-width:1.5}
.p .line.good{stroke:#1a9a6c}.p .line.bad{stroke:#d1603d}.p .line.lead{stroke:#3b82c4}
.p .dashed{stroke-dasharray:4 4}.p .rule{stroke:var(--p-rule);stroke-width:1;fill:none}
""".replace("\n", "")


class Canvas:
    """What is drawn, from the top left; ``title`` says in a sentence what is to be seen."""

    def __init__(self, width: int, height: int, title: str, style: str = "") -> None:
        self.width, self.height, self.title, self.style = width, height, title, style
        self.parts: list[str] = []

    def text(self, x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> None:
        """One line of words; ``y`` is where its letters stand."""
        size = 11.5 if "small" in kind else 13.0
        long = _length(words, kind, size)
        left = x - {"start": 0.0, "middle": 0.5, "end": 1.0}[anchor] * long
        if not (left >= 0 and left + long <= self.width and size <= y <= self.height):
            raise ValueError(f"{words!r} at {x:g}, {y:g} leaves the picture")
        where = f'x="{x:g}" y="{y:g}" text-anchor="{anchor}" xml:space="preserve"'
        self.parts.append(f'<text class="{kind}" {where}>{escape(words)}</text>')

    def box(
        self, x: float, y: float, width: float, height: float, kind: str = "", *words: str
    ) -> None:
        """A box with lines of words in its middle, the first of them strong."""
        where = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"'
        self.parts.append(f'<rect class="box {kind}" {where} rx="6"/>')
        top = y + height / 2 - 8.5 * (len(words) - 1) + 4.5
        for number, line in enumerate(words):
            style, size = ("strong", 13) if number == 0 else ("small quiet", 11.5)
            if _length(line, style, size) > width:
                raise ValueError(f"{line!r} does not fit into its box")
            self.text(x + width / 2, top + 17 * number, line, style, "middle")

    def bar(self, x: float, y: float, width: float, height: float, kind: str = "") -> None:
        where = f'x="{x:g}" y="{y:g}" width="{max(width, 1.5):g}" height="{height:g}"'
        self.parts.append(f'<rect class="bar {kind}" {where} rx="2"/>')

    def line(self, *points: tuple[float, float], kind: str = "line") -> None:
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        self.parts.append(f'<polyline class="{kind}" points="{path}"/>')

    def arrow(self, *points: tuple[float, float], kind: str = "") -> None:
        """A line whose last point has a head."""
        self.line(*points, kind=f"line {kind}")
        (x0, y0), (x, y) = points[-2:]
        long = ((x - x0) ** 2 + (y - y0) ** 2) ** 0.5
        dx, dy = (x - x0) / long * 8, (y - y0) / long * 8
        wings = ((x - dx - dy / 2, y - dy + dx / 2), (x, y), (x - dx + dy / 2, y - dy - dx / 2))
        self.line(*wings, kind=f"line {kind.replace('dashed', '')}".strip())

    def inline(self) -> str:
        """For a page: the theme's colours; as wide as the text, and on a phone it can be moved."""
        names = "".join(f"--p-{ours}:var(--color-{furos});" for ours, furos in _FURO.items())
        return self._svg(f"max-width:{self.width}px;width:100%;min-width:34rem;{names}", "")

    def file(self) -> str:
        """For where no page gives it colours, a README for instance."""
        light, dark = (
            "".join(f"--p-{name}:{colour};" for name, colour in colours.items())
            for colours in (_LIGHT, _DARK)
        )
        style = f".p{{{light}}}@media(prefers-color-scheme:dark){{.p{{{dark}}}}}"
        return self._svg("", style) + "\n"

    def _svg(self, own: str, style: str) -> str:
        title = escape(self.title, quote=True)
        size = f'viewBox="0 0 {self.width} {self.height}"'
        if not own:
            size += f' width="{self.width}" height="{self.height}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" class="p" {size} style="{own}" role="img"'
        parts = "\n".join(self.parts)
        return (
            f'{head} aria-label="{title}">\n<title>{title}</title>'
            f"<style>{_STYLE}{style}{self.style}</style>\n{parts}\n</svg>"
        )


def _length(words: str, kind: str, size: float) -> float:
    """How long they are in the usual fonts, which no browser has been asked for."""
    if "code" in kind:
        size = 12.0
    letter = 0.61 if "code" in kind else 0.57 if "strong" in kind else 0.52
    return len(words) * size * letter
