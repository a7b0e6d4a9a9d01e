"""The figures that queues, coordinators, producers and drains offer to whatever reads them.

An offer costs one entry in a list: until a scrape, nothing is read and no library for metrics is
imported. An offer does not keep its owner alive. The names of the figures are in
:mod:`leaderq.observability.metrics`.
"""

from __future__ import annotations

import logging
import math
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, TypeVar

log = logging.getLogger(__name__)

_DEPTHS_S = 10.0
COUNTED = (
    *("put", "taken", "redelivered", "acknowledged", "returned", "dead_letters"),
    *("timeouts", "lost"),
)
"""What :class:`QueueFigures` counts."""
DEPTHS = frozenset({"ready", "delayed", "in_flight", "dead", "oldest_due_s"})
"""Figures of the whole queue. Each of its consumers sees the same ones, so they are not added
up.
"""
Owner = TypeVar("Owner")
Figures = Mapping[str, float]


class FigureSource(str, Enum):
    """A kind of object that offers figures. The value is the name of the label that tells such
    objects apart.
    """

    DRAIN = "career"
    QUEUE = "queue"
    PRODUCER = "producer"
    COALESCING = "coordinator"
    SINGULAR = "writer"
    SCHEDULE = "schedule"


_offers: list[tuple[FigureSource, str, weakref.ref[Any], Callable[[Any], Figures]]] = []
_offering = threading.Lock()
_most = 64
"""At this many offers, the offers of owners that no longer exist are removed."""


def offer_figures(
    source: FigureSource,
    name: str,
    owner: Owner,
    read: Callable[[Owner], Figures],
) -> None:
    """Offer the figures of ``owner``: while it lives, each scrape calls ``read(owner)``.

    ``name`` is the value of the label; what UTF-8 cannot encode is replaced. If several owners have
    one name, their figures are added up. ``read`` must be fast, so it asks no server. Figures that
    no metric uses are ignored; an owner whose ``read`` raises, or returns something else, is left
    out.
    """
    global _offers, _most
    name = name.encode(errors="replace").decode()  # one bad label would spoil a whole scrape
    with _offering:
        _offers.append((source, name, weakref.ref(owner), read))
        if len(_offers) > _most:
            _offers = [one for one in _offers if one[2]() is not None]
            _most = 2 * len(_offers) + 64


def read_figures() -> dict[tuple[FigureSource, str], Figures]:
    """All figures that are offered now, by source and name."""
    found: dict[tuple[FigureSource, str], Counter[str]] = {}
    for source, name, reference, read in list(_offers):
        owner = reference()
        if owner is not None:
            try:
                figures = {what: float(value) for what, value in read(owner).items()}
            except Exception:
                log.exception("figures cannot be read %s=%s", source.value, name)
            else:
                known = found.setdefault((source, name), Counter())
                seen = {one: max(figures[one], known[one]) for one in DEPTHS & figures.keys()}
                known.update(figures)
                dict.update(known, seen)
    return dict(found)


class QueueFigures:
    """The figures of one queue: counts of what happened to its items in this process, what its
    consumer here has now (``live``), and how deep the queue is.

    A scrape asks no server; it gets the depths of the last look. The queue's own thread looks only
    if a scrape has come since (:meth:`is_asked`), at most every ten seconds, and calls
    :meth:`note`. So a queue that is not scraped never looks.
    """

    def __init__(self, name: str, live: Callable[[Counter[str]], Figures]) -> None:
        self._live = live
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter(dict.fromkeys(COUNTED, 0))
        self._depths: Figures = {}
        self._was_read = False
        self._noted_s = -math.inf
        offer_figures(FigureSource.QUEUE, name, self, QueueFigures.read)

    def add(self, what: str, number: int = 1) -> None:
        with self._lock:
            self._counts[what] += number

    def read(self) -> Figures:
        self._was_read = True
        counts = self._counts.copy()
        return {**counts, **self._live(counts), **self._depths}

    def is_asked(self, now_s: float) -> bool:
        """Whether the queue should look at its depths now."""
        return self._was_read and now_s >= self._noted_s + _DEPTHS_S

    def note(self, now_s: float, depths: Figures) -> None:
        self._was_read, self._noted_s, self._depths = False, now_s, depths
