"""What every term of a career drains, and how: all that a drain thread is told when it is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from leaderq.events import EventBus
from leaderq.kafka.clients.drain import Drain
from leaderq.kafka.pumping import stall
from leaderq.kafka.pumping.reading import Shape
from leaderq.kafka.pumping.reporting import Reporting
from leaderq.kafka.stores.offsets import OffsetStore


@dataclass(frozen=True)
class Plan:
    """``make`` gives a new consumer; ``start`` is the career's ``auto_offset_reset``, ``None`` where it says nothing; ``gc_threshold``
    see :mod:`~leaderq.kafka.pumping.collecting`."""

    address: str
    make: Callable[[], Drain]
    store: OffsetStore
    events: EventBus
    career: str
    candidate: str
    shape: Shape = field(default_factory=Shape)
    start: str | None = None
    limits: stall.Limits = field(default_factory=stall.Limits)
    reporting: Reporting | None = None
    gc_threshold: int | None = None
