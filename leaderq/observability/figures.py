"""Where a queue, a producer or a drain says that it has figures, for whoever wants to read them.

It is offered once, where the owner is made. That costs one entry in a list: nothing is read, and
nothing of metrics imported, until somebody scrapes; and no owner is kept alive by it. The names of
the figures are in the table of :mod:`leaderq.observability.metrics`.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, TypeVar

log = logging.getLogger(__name__)

Owner = TypeVar("Owner")
Figures = Mapping[str, float]


class FigureSource(str, Enum):
    """Who has figures; the value is the label that tells one of its kind from the others."""

    DRAIN = "career"
    QUEUE = "queue"
    PRODUCER = "producer"


_offers: list[tuple[FigureSource, str, weakref.ref[Any], Callable[[Any], Figures]]] = []
_offering = threading.Lock()


def offer_figures(
    source: FigureSource,
    name: str,
    owner: Owner,
    read: Callable[[Owner], Figures],
) -> None:
    """While ``owner`` lives, ``read(owner)`` is asked for its figures at each scrape.

    ``name`` is the value of the label: a career, the path of a queue, the name of a producer.
    Figures of several owners with one name are added up. ``read`` must be quick: it waits for
    nothing and asks no server. Figures that are in no table are ignored; an owner whose ``read``
    raises is left out.
    """
    global _offers
    with _offering:
        alive = [one for one in _offers if one[2]() is not None]
        _offers = [*alive, (source, name, weakref.ref(owner), read)]


def read_figures() -> dict[tuple[FigureSource, str], Figures]:
    """All figures that are offered now, by source and name."""
    found: dict[tuple[FigureSource, str], Counter[str]] = {}
    for source, name, reference, read in _offers:
        owner = reference()
        if owner is not None:
            try:
                figures = read(owner)
            except Exception:
                log.exception("figures cannot be read %s=%s", source.value, name)
            else:
                found.setdefault((source, name), Counter()).update(figures)
    return dict(found)
