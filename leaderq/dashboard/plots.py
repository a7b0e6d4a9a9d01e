"""Plots as SVG (pure): terms on a time axis, and a value over time. Widths are percentages: a plot
fits any screen, and its letters keep their size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from leaderq.admin.text import briefly, local
from leaderq.dashboard.markup import Markup, joined, tag

_BAR = 34
_BROKEN_MS = 15_000
_LABELLED = 5.0  # per cent of the width that a number fits into
_LEAST = 0.25  # per cent of the width: a short term is seen too


@dataclass(frozen=True)
class Stretch:
    """A term on the time axis. It lasts from ``began`` to ``ended`` (seconds since the epoch);
    ``label`` is its number. ``kind`` is how it is drawn: ``leads``, ``clean``, ``bad``, or
    ``unclean`` if its end is not known.
    """

    began: float
    ended: float
    label: str
    kind: str
    title: str


def time_axis(stretches: Sequence[Stretch], until: float, describes: str) -> Markup:
    """Draw each term as a bar, the oldest first, and each time in which nobody led as a gap. The
    clocks of their hosts may differ.
    """
    since = min(at for one in stretches for at in (one.began, one.ended))
    span = max(until - since, 0.001)

    def x(at: float) -> float:
        return round(min(100 * (at - since) / span, 100.0), 3)

    drawn, last = [], stretches[-1]
    now = [] if last.kind == "leads" else [replace(last, began=until)]
    for before, after in pairwise([*stretches, *now]):
        if (gap := after.began - before.ended) > 0:
            at, width = x(before.ended), max(x(after.began) - x(before.ended), _LEAST)
            drawn.append(_bar(at, width, "gap", f"nobody led for {briefly(gap)}"))
    for one in stretches:
        at = x(one.began)
        width = max(x(one.ended) - at, _LEAST)
        drawn.append(_bar(at, width, one.kind, one.title))
        if width > _LABELLED:
            middle = f"{at + width / 2:.3f}%"
            drawn.append(tag("text", one.label, x=middle, y=38, class_=f"number on-{one.kind}"))
    return joined(_figure(drawn, describes, 64), _range(since, until))


def _bar(x: float, width: float, kind: str, title: str) -> Markup:
    x = min(x, 100.0 - _LEAST)
    place = {"x": f"{x:.3f}%", "width": f"{width:.3f}%", "y": 16, "height": _BAR}
    return tag("rect", tag("title", title), class_=kind, **place)


def line_plot(
    points: Sequence[tuple[int, float]], until_ms: int, describes: str, every_s: float = 2.0
) -> Markup:
    """Plot a value over time; each point is milliseconds since the epoch and a value. The line is
    broken where nobody looked: who looks reads every ``every_s``.
    """
    if len(points) < 2:
        return tag("p", "A plot begins with the next reading.", class_="faint")
    since, top = points[0][0], max(value for _, value in points)
    span, scale = max(until_ms - since, 1), 90 / (top or 1)
    lines: list[list[str]] = [[]]
    former = since
    for at, value in points:
        if at - former > max(_BROKEN_MS, 2500 * every_s):
            lines.append([])
        lines[-1].append(f"{1000 * (at - since) / span:.1f},{95 - value * scale:.1f}")
        former = at
    drawn = [
        tag("polyline", points=" ".join(one if len(one) > 1 else one * 2), class_="line")
        for one in lines
        if one
    ]
    inner = tag("svg", *drawn, viewBox="0 0 1000 100", preserveAspectRatio="none", height=100)
    base = tag("line", x1="0", x2="100%", y1=95, y2=95, class_="base")
    figure = _figure([base, inner], describes)
    newest = points[-1][1]
    said = tag("p", f"now {newest:,.0f}, highest {top:,.0f}", class_="reading")
    return joined(said, figure, _range(since / 1000, until_ms / 1000))


def _figure(drawn: Sequence[Markup], describes: str, height: int = 104) -> Markup:
    attributes = {"aria_label": describes, "class_": "plot", "height": height, "width": "100%"}
    return tag("svg", *drawn, role="img", **attributes)


def _range(since: float, until: float) -> Markup:
    first, last = local(int(since * 1000)), local(int(until * 1000))
    return tag("p", tag("span", first), tag("span", f"{last} (now)"), class_="range")
