"""An item that is this consumer's for now, and under what title."""

from __future__ import annotations

from dataclasses import dataclass

from leaderq.queues.places import Places
from leaderq.queues.tallying import Tally
from leaderq.queues.wire.note import Note
from leaderq.queues.wire.payload import Payload
from leaderq.zookeeper import Stat


@dataclass(frozen=True, eq=False)
class Hold:
    """One consumer, as long as its session lasts.

    ``member``: its ephemeral znode, which others see. With a lock path that znode is the tally itself, so that nothing can be claimed or
    acknowledged once the session is over; without one, the tally outlives the session.
    """

    places: Places
    tally: Tally
    member: str

    @property
    def is_locking(self) -> bool:
        """Whether items are locked while they are worked on, and deleted afterwards; else they are deleted first."""
        return self.places.lock_path is not None


@dataclass(slots=True, eq=False)
class Claim:
    """``payload`` is ``None`` if the data cannot be understood; ``error`` says why. ``failures``: of former attempts."""

    name: str
    data: bytes
    stat: Stat
    hold: Hold
    payload: Payload | None = None
    error: Exception | None = None
    is_settled: bool = False

    @property
    def note(self) -> Note:
        """What former consumers left about it."""
        return (self.payload.note if self.payload else None) or Note()

    @property
    def failures(self) -> int:
        """How often a consumer has failed at it."""
        return self.note.attempt

    @property
    def enqueued_ms(self) -> int:
        """When it was first put."""
        return self.note.enqueued_ms or self.stat.ctime_ms
