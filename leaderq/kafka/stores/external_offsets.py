"""Offsets that the user's own store keeps, beside the results of the records:
``offsets="external"``.

Who is authoritative: the user's store. ``handle`` writes a batch's results and its offsets in one
transaction there, and ``load_offsets(term)`` says where to read on. leaderq only seeks.

The fence is the user's too: the broker refuses nobody, since the group is not joined. So
``load_offsets`` **fences first, then reads**: it makes the store refuse lower term numbers, in the
same transaction in which it reads the offsets, and every later write compares its own number.
:class:`~leaderq.kafka.stores.database_offsets.DatabaseOffsets` does both for any DB-API connection.

Threads: ``load_offsets`` is called on the career thread, where ``handle`` is called as well (a
``sqlite3`` connection refuses any other); its answer is kept here for the drain thread.

What happens on each failure: ``load_offsets`` raises: so does :meth:`ExternalOffsets.begin`, and
the term fails, or is deposed.
``handle`` raises: its transaction was rolled back with it, so the batch is done again from its
beginning. The drain is made anew within a term: it reads on after the last batch whose ``handle``
returned.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from leaderq.errors import ConfigurationError
from leaderq.kafka.clients.drain import Drain, KafkaAway, Offsets
from leaderq.kafka.record import Partition
from leaderq.kafka.stores.offsets import Saved
from leaderq.term import Term

LoadOffsets = Callable[[Term], Mapping[Any, int]]
"""From a term to the offset at which to read on, by ``Partition`` or ``(topic, number)``; an absent
partition was never read.
"""


class ExternalOffsets:
    """An :class:`~leaderq.kafka.stores.offsets.OffsetStore` whose offsets are the user's; ``where``
    names their class in messages.

    *Guarantees:* no record of a term is read before ``load`` has returned for that term.
    *Not guaranteed:* anything against a zombie whose writes the user's store does not compare; that
    ``auto_offset_reset="latest"`` means the same place to the next leader, if this one ends before
    the first batch of a partition.
    """

    in_group = False
    undoes = True
    is_silent = False

    def __init__(self, load: LoadOffsets, where: str = "this career") -> None:
        self._load = load
        self._where = where
        self._lock = threading.Lock()
        self._term: str | None = None
        self._offsets: dict[Partition, int] = {}

    def begin(self, term: Term) -> None:
        """Ask the user's code for its offsets; on the career thread, before the drain begins to
        read for ``term``.

        Raises whatever ``load_offsets`` raises, and :class:`~leaderq.errors.ConfigurationError` if
        its answer is unusable.
        """
        self.set_loaded(term, self._load(term))

    def set_loaded(self, term: Term, offsets: Mapping[Any, int]) -> None:
        """From now on these are the offsets of ``term``; raises
        :class:`~leaderq.errors.ConfigurationError` if they are unusable.
        """
        checked = checked_offsets(offsets, self._where)
        with self._lock:
            self._term, self._offsets = term.id, checked

    def open(self) -> None:
        """Nothing to connect: the store is the user's."""

    def fence(self, drain: Drain, term: Term, allowed: Callable[[], None], timeout_s: float) -> bool:
        """Take all partitions. The former leader was fenced by ``load_offsets``, which has returned
        when :meth:`load` gives.
        """
        term.check()
        return drain.join(allowed, timeout_s)

    def load(self, drain: Drain, term: Term, timeout_s: float) -> dict[Partition, int]:
        """The user's offsets, and what was saved since.

        Raises :class:`~leaderq.kafka.clients.drain.KafkaAway` as long as none are known.
        """
        with self._lock:
            if self._term != term.id:
                raise KafkaAway(f"'load_offsets' of {self._where} has not answered for term {term.number} yet")
            return dict(self._offsets)

    def save(self, drain: Drain, term: Term, offsets: Offsets) -> Saved:
        """Note how far the user's store has come: ``handle`` has returned, and had stored these
        offsets by then.
        """
        with self._lock:
            if self._term == term.id:
                self._offsets.update(offsets)
        return Saved()

    def place(self, drain: Drain, term: Term, offsets: Offsets) -> Saved:
        """Note where a partition begins; the user's store learns of it with the first batch."""
        return self.save(drain, term, offsets)

    def undo(self) -> None:
        """Nothing to do: the user's transaction was rolled back by the exception that failed the
        batch.
        """

    def close(self) -> None:
        """Nothing is held; what is known stands under its term's id, so the next term does not see
        it.
        """


def checked_offsets(offsets: Mapping[Any, int], where: str) -> dict[Partition, int]:
    """What ``load_offsets`` of ``where`` returned, as offsets; raises
    :class:`~leaderq.errors.ConfigurationError` with all problems.
    """
    if not isinstance(offsets, Mapping):
        raise ConfigurationError(
            f"'load_offsets' of {where} returned {type(offsets).__name__}; "
            "it must return a mapping of (topic, partition) to the offset to read next, {} if there is none yet"
        )
    problems = [problem for key, value in offsets.items() for problem in (_problem(key, value, where),) if problem]
    if problems:
        raise ConfigurationError(*problems)
    return {Partition(*key): int(value) for key, value in offsets.items()}


def _problem(key: Any, value: Any, where: str) -> str | None:
    is_pair = isinstance(key, tuple) and len(key) == 2 and isinstance(key[0], str) and _is_count(key[1])
    if not is_pair:
        return f"'load_offsets' of {where} returned the key {key!r}; keys are (topic, partition), such as ('clicks', 0)"
    if not _is_count(value):
        return f"'load_offsets' of {where} returned the offset {value!r} for {key!r}; it must be a whole number, 0 or more"
    return None


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
