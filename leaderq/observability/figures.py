"""Where a queue, a producer or a drain offers figures, for whatever reads them.

That costs one entry in a list: nothing is read, and nothing of metrics imported, until a scrape;
and no owner is kept alive by it. Their names are in :mod:`leaderq.observability.metrics`.
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
    """What has figures; the value is the label that tells objects of one kind apart."""

    DRAIN = "career"
    QUEUE = "queue"
    PRODUCER = "producer"
    SCHEDULE = "schedule"


_offers: list[tuple[FigureSource, str, weakref.ref[Any], Callable[[Any], Figures]]] = []
_offering = threading.Lock()


def offer_figures(
    source: FigureSource,
    name: str,
    owner: Owner,
    read: Callable[[Owner], Figures],
) -> None:
    """While ``owner`` lives, ``read(owner)`` is asked for its figures at each scrape.

    ``name`` is the value of the label. Figures of several owners with one name are added up.
    ``read`` must be fast: it asks no server. Figures that are in no table are ignored; an owner
    whose ``read`` raises is left out.
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
