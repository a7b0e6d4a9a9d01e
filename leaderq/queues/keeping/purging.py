"""Deleting what lies in a queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from leaderq.queues.keeping.applying import Group, Outcome, apply_each
from leaderq.queues.keeping.perseverance import PATIENCE_S
from leaderq.queues.places import Places
from leaderq.zookeeper import Create, Delete, Session


@dataclass(frozen=True, slots=True)
class Purged:
    """``deleted`` by us; ``held``: left alone, for somebody works on them; ``gone``: taken by somebody else meanwhile; ``stuck``: left
    alone, for they have children."""

    deleted: int
    held: int = 0
    gone: int = 0
    stuck: int = 0


def purge(
    session: Session,
    places: Places,
    names: Sequence[str],
    *,
    held_too: bool = False,
    on_progress: Callable[[int], None] | None = None,
    patience_s: float = PATIENCE_S,
) -> Purged:
    """Delete these items, the last ones first: so consumers, who begin at the other end, get in the way as late as can be.

    With a lock path each is deleted under its own lock, in one transaction, so that an item which a consumer holds stays; not so with
    ``held_too``: then that consumer's acknowledgement will fail. ``on_progress`` is told how many more have been dealt with.
    """
    guard = places.lock_path is not None and not held_too
    counts: Counter[Outcome] = Counter()
    for outcome in apply_each(session, (_group(places, name, guard) for name in reversed(names)), patience_s=patience_s):
        counts[outcome] += 1
        if on_progress is not None:
            on_progress(1)
    return Purged(counts[Outcome.DONE], counts[Outcome.HELD], counts[Outcome.GONE], counts[Outcome.STUCK])


def _group(places: Places, name: str, guard: bool) -> Group:
    item = Delete(places.item(name))
    if not guard:
        return [item]
    lock = places.lock(name)
    return [Create(lock, ephemeral=True), item, Delete(lock)]
