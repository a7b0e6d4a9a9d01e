"""An item that is this consumer's for now, and under what title."""

from __future__ import annotations

from dataclasses import dataclass

from leaderq.errors import CorruptItem
from leaderq.queues.places import Places
from leaderq.queues.tallying import Tally
from leaderq.queues.wire.note import Note
from leaderq.queues.wire.payload import Payload, decode, may_have_note


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


class Claim:
    """One item. ``created_ms``: of its znode; ``version``: of the data that was read.

    There may be thousands of them at a time, so they are small: what the data says is found out when it is asked for.
    """

    __slots__ = ("_payload", "created_ms", "data", "error", "hold", "is_settled", "name", "version")

    def __init__(self, name: str, data: bytes, created_ms: int, version: int, hold: Hold) -> None:
        self.name = name
        self.data = data
        self.created_ms = created_ms
        self.version = version
        self.hold = hold
        self.is_settled = False
        self.error: CorruptItem | None = None
        self._payload: Payload | None = None

    @property
    def payload(self) -> Payload | None:
        """What the data says; ``None`` if it cannot be understood, and then ``error`` says why."""
        if self._payload is None and self.error is None:
            try:
                self._payload = decode(self.data)
            except CorruptItem as exc:
                self.error = exc
        return self._payload

    def is_now(self, payload: Payload) -> None:
        """What is left of it, and what is known of it, has changed."""
        self._payload = payload

    @property
    def not_before_ms(self) -> int:
        """When it may be tried again; 0 if at any time."""
        return (self.note.not_before_ms or 0) if may_have_note(self.data) else 0

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
        return self.note.enqueued_ms or self.created_ms
