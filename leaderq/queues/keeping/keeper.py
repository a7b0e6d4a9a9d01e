"""One queue in an operator's hands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from leaderq.queues.keeping import control
from leaderq.queues.keeping.browsing import Browsed, browse
from leaderq.queues.keeping.draining import Draining
from leaderq.queues.keeping.letters import DeadLetters
from leaderq.queues.keeping.overview import Overview, is_there, look, names_at, overview, refuse_sharder
from leaderq.queues.keeping.perseverance import PATIENCE_S, answered
from leaderq.queues.keeping.purging import Purged, purge
from leaderq.queues.keeping.survey import Survey, sequence_after
from leaderq.queues.places import Places
from leaderq.queues.wire.kinds import Kind
from leaderq.zookeeper import Session, Stat


class Keeper:
    """See the package. Without ``kind`` the names of the items tell it, each time anew. May be used from any thread.

    *Guarantees:* looking changes nothing; no call waits for longer than ``patience_s`` without an answer.
    *Not guaranteed:* that a queue in use is still as it was seen.
    """

    def __init__(
        self, session: Session, places: Places, kind: Kind | None = None, *, patience_s: float = PATIENCE_S
    ) -> None:
        self.places = places
        self.letters = DeadLetters(session, places, patience_s=patience_s)
        self._session = session
        self._kind = kind
        self._patience_s = patience_s

    def depth(self) -> int:
        """How many children the queue has, without listing them: items, those being worked on included, and foreign ones if any.
        0 if the path is not there."""
        stat = self._stat()
        return stat.num_children if stat else 0

    def next_sequence(self) -> int:
        """The number that the next item will get; it ends at 2^31 - 1. 0 if the path is not there."""
        stat = self._stat()
        return sequence_after(stat) if stat else 0

    def is_there(self) -> bool:
        """Whether there is a znode at its path, or side data of it."""
        return is_there(self._session, self.places, patience_s=self._patience_s)

    def overview(self) -> Overview | None:
        """All about it; ``None`` if there is nothing at its path nor beside it."""
        return overview(self._session, self.places, self._kind, patience_s=self._patience_s)

    def detect(self) -> Survey:
        """List the children, and tell kind, items and foreign ones.

        :raises ConfigurationError: the names are those of several kinds, and none was told.
        """
        return look(self._session, self.places.path, self._kind, self._patience_s)

    def names(self) -> list[str]:
        """The names of all children, in no order; none if the path is not there."""
        return names_at(self._session, self.places.path, self._patience_s)

    def browse(self, limit: int | None = None, *, seen: Survey | None = None) -> Iterator[Browsed]:
        """The items that lie there now, in the order in which they go, ``limit`` of them at most; nothing is taken.

        ``seen``: what :meth:`detect` gave, so as not to list again. Items that vanish before they are read are left out. Memory: the
        names of all, the data of a batch.

        :raises ConfigurationError: as :meth:`detect`; or the path is that of a sharder, whose queues are below it.
        """
        return islice(self._each(self._own(seen)), limit)

    def purge(self, *, held_too: bool = False, on_progress: Callable[[int], None] | None = None) -> Purged:
        """Delete the items that lie there now; with a lock path those being worked on stay, unless ``held_too``.

        Foreign children stay. What is put meanwhile stays. Interrupted, it is begun again. ``on_progress`` is told how many more have
        been dealt with.

        :raises ConfigurationError: as :meth:`browse`.
        """
        seen = self._own()
        places = Places(self.places.path) if seen.kind is Kind.SIMPLE else self.places
        return purge(
            self._session, places, seen.items, held_too=held_too, on_progress=on_progress, patience_s=self._patience_s
        )

    def drain(self) -> Draining:
        """Empty it with care; see :class:`~leaderq.queues.keeping.draining.Draining`."""
        return Draining(self._session, self.places, self._kind, patience_s=self._patience_s)

    def pause(self) -> bool:
        """Ask all consumers of leaderq, those to come too, to begin no new item; whether that is news."""
        return control.set_paused(self._session, self.places, True, patience_s=self._patience_s)

    def resume(self) -> bool:
        """End a pause; whether there was one."""
        return control.set_paused(self._session, self.places, False, patience_s=self._patience_s)

    def is_paused(self) -> bool:
        """Whether consumers are asked to pause."""
        return control.is_paused(self._session, self.places, patience_s=self._patience_s)

    def _stat(self) -> Stat | None:
        return answered(self._session, lambda: self._session.exists(self.places.path), self._patience_s)

    def _own(self, seen: Survey | None = None) -> Survey:
        seen = seen or self.detect()
        refuse_sharder(seen, self.places)
        return seen

    def _each(self, seen: Survey) -> Iterator[Browsed]:
        is_framed = seen.kind is not Kind.SIMPLE
        batches = browse(
            self._session,
            self.places.path,
            seen.items,
            framed=is_framed,
            lock_path=self.places.lock_path if is_framed else None,
            patience_s=self._patience_s,
        )
        return (one for batch in batches for one in batch)
