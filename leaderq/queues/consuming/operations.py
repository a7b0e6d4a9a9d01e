"""What is written for each thing that can become of an item (pure). All or none of it, through the tally of the item's hold.

With a lock path the item's znode stands until then: it is deleted together with its lock. Without one it was deleted when it was
claimed, and what is to survive is created again.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from leaderq.queues.consuming.claim import Claim
from leaderq.queues.wire.names import prefix_of
from leaderq.queues.wire.note import Note
from leaderq.queues.wire.payload import encode, is_compressed
from leaderq.zookeeper import Check, Create, Delete, Operation, SetData

MAX_ERROR = 1000


def now_ms() -> int:
    """Milliseconds since the epoch, by this host's clock."""
    return time.time_ns() // 1_000_000


def claiming(claim: Claim) -> tuple[Operation, ...]:
    """Make it ours, if it is still what was read."""
    path, places = claim.hold.places.item(claim.name), claim.hold.places
    if not claim.hold.is_locking:
        return (Delete(path, claim.version),)
    who = claim.hold.member.rpartition("/")[2].encode()
    return Create(places.lock(claim.name), who, ephemeral=True), Check(path, claim.version)


def acknowledged(claim: Claim) -> tuple[Operation, ...]:
    """It is done."""
    if not claim.hold.is_locking:
        return ()
    places = claim.hold.places
    return Delete(places.item(claim.name)), Delete(places.lock(claim.name))


def released(claim: Claim) -> tuple[Operation, ...]:
    """It was not begun: whoever wants it may have it."""
    if claim.hold.is_locking:
        return (Delete(claim.hold.places.lock(claim.name)),)
    note = replace(claim.note, enqueued_ms=claim.enqueued_ms)
    return (_again(claim, claim.payload.items if claim.payload else (), note),)


def requeued(claim: Claim, items: Sequence[bytes], *, failures: int, wait_s: float) -> tuple[Operation, ...]:
    """These of its items go to the tail, with its id, priority or due time, to be tried again after ``wait_s``."""
    return *acknowledged(claim), _again(claim, items, _tried(claim, failures, wait_s))


def kept(claim: Claim, items: Sequence[bytes], *, failures: int, wait_s: float) -> tuple[Operation, ...]:
    """It stays where it is, with what is left of it, and is still ours; only a new consumer needs to know."""
    if not claim.hold.is_locking:
        return ()
    data = encode(items, _tried(claim, failures, wait_s), compress=is_compressed(claim.data))
    return (SetData(claim.hold.places.item(claim.name), data),)


def buried(
    claim: Claim, items: Sequence[bytes], *, reason: str, error: BaseException, failures: int
) -> tuple[Operation, ...]:
    """It goes to the dead letters, with the reason."""
    note = Note(
        attempt=failures,
        enqueued_ms=claim.enqueued_ms,
        reason=reason,
        error=f"{type(error).__name__}: {error}"[:MAX_ERROR],
        origin=claim.name,
        died_ms=now_ms(),
        raw=claim.payload is None,
    )
    data = encode([claim.data] if claim.payload is None else items, note, compress=is_compressed(claim.data))
    dead = f"{claim.hold.places.dead}/{prefix_of(claim.name)}"
    return *acknowledged(claim), Create(dead, data, sequential=True)


def _again(claim: Claim, items: Sequence[bytes], note: Note) -> Create:
    data = encode(items, note, compress=is_compressed(claim.data))
    return Create(claim.hold.places.item(prefix_of(claim.name)), data, sequential=True)


def _tried(claim: Claim, failures: int, wait_s: float) -> Note:
    until = now_ms() + int(wait_s * 1000) if wait_s > 0 else None
    return Note(attempt=failures, enqueued_ms=claim.enqueued_ms, not_before_ms=until)
