"""Keeps the list of waiting names current.

**Plain and id queues** are listed when the last listing is used up: the deeper a queue, the dearer
its listing, and every delete of our own would call for another. One-shot watches tell when there is
something to list again. **Priority and delay queues** need to know of each newcomer, because it may
go before the names that wait: a persistent watch tells every name made and deleted, so they are
listed once, and again when the session was away or the path was deleted.

One change of the path wakes every idle consumer, and most changes concern one of them. So who was
beaten to the last items waits a moment, then asks for the children alone, and for nothing more if
the others have taken all.

With a lock path, its children are read as well. Locked items are left alone. The end of such a lock
is news, because its consumer has died (F7); other locks come and go unnoticed. Whatever happened to
the queue's path (F13), the next look makes it again and watches it. Plain and id queues are listed
every :data:`SCAN_S` seconds in any case.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from weakref import WeakMethod

from leaderq.base import clock
from leaderq.engine.reading_ahead import RowsAhead
from leaderq.errors import ConnectionLost, NoNode
from leaderq.queues.consuming.pending import PendingNames
from leaderq.queues.wire.names import QueueKind, is_item
from leaderq.queues.wire.znodes import QueuePaths
from leaderq.threads import primitives
from leaderq.zookeeper import Session, Subscription, WatchEvent, WatchKind
from leaderq.zookeeper.paths import name_of, parent_of

log = logging.getLogger(__name__)

SCAN_S = 10.0
_ANSWER_S = 10.0
_GUESSES = 4


def _weakly(method: Callable[[WatchEvent], object]) -> Callable[[WatchEvent], object]:
    """Return a one-shot watch that does not keep the method's object alive: the session keeps the
    watch until it fires, which may be never.
    """
    reference = WeakMethod(method)

    def heard(event: WatchEvent) -> None:
        if (still_there := reference()) is not None:
            still_there(event)

    return heard


class QueueListing:
    """Keeps :class:`PendingNames` current; see the module. Used by the engine's thread; watches are
    called on the session's thread. ``notify`` is called at news, ``created`` with each new name.
    """

    def __init__(
        self,
        session: Session,
        paths: QueuePaths,
        kind: QueueKind,
        waiting: PendingNames,
        ahead: RowsAhead,
        notify: Callable[[], object],
        created: Callable[[str], object],
    ) -> None:
        self._session, self._paths, self._kind = session, paths, kind
        self._waiting, self._ahead = waiting, ahead
        self._notify, self._created = notify, created
        self._wants_names = kind in (QueueKind.PRIORITY, QueueKind.DELAY)
        self._names: Subscription | None = None
        self._news: deque[WatchEvent] = deque()
        self._held: set[str] = set()
        self._stale_s = 0.0
        """From when on the listing is too old."""
        self.is_lock_changed = False
        """Whether any lock was made or deleted since they were read."""
        self._foreign: set[str] = set()
        self._is_path_watched = self._is_path_new = False
        self._on_children, self._on_path = _weakly(self._changed), _weakly(self._path_changed)
        self._on_locks = _weakly(self._locks_changed)

    @property
    def stale_in_s(self) -> float:
        """In how many seconds only a new listing can tell that the queue is empty: 0 or less if it
        is so now, infinite if nothing has changed.
        """
        return self._stale_s - clock.now_s()

    @property
    def has_news(self) -> bool:
        return bool(self._news) or (self.is_lock_changed and bool(self._held))

    def invalidate(self) -> None:
        """Treat everything known as unreliable, so that the queue is listed again."""
        self._stale_s, self._is_path_watched = 0.0, False
        self._ahead.forget()

    def note_locked(self, names: Sequence[str]) -> None:
        self._waiting.drop(names)
        self._held.update(names)
        self.is_lock_changed = True

    def look(self, *, is_second: bool) -> None:
        """List the queue again, and read the likely next names. ``is_second``: others were left to
        take what came, and mostly have. Raises what the session raises.
        """
        if self._wants_names and self._names is None:
            self._names = self._session.watch_tree(self._paths.path, self._named)
        # before reading: later news makes it stale again
        self._stale_s = math.inf if self._wants_names else clock.now_s() + SCAN_S
        self.is_lock_changed = False
        self._news.clear()
        try:
            names = self._list(is_second=is_second)
        except BaseException:
            self.invalidate()
            raise
        items = [name for name in names if is_item(self._kind, name)]
        if len(items) < len(names):
            self._tell_foreign(set(names).difference(items))
        self._waiting.replace(items, self._held, clock.now_ms())

    def _list(self, *, is_second: bool) -> list[str]:
        """The children of the queue; sets ``_held`` to the names that others have locked. All
        requests are sent at once, and answered in this order.
        """
        paths, session, waiting = self._paths, self._session, self._waiting
        # Where each name is told, the path is too; and a one-shot watch on it could take the place
        # of that watch, without a word (Z21).
        watch = None if self._names is not None else self._on_children
        if watch is not None and not self._is_path_watched:
            self._is_path_watched = True
            # This watch, unlike the one on the children, sleeps until the path is deleted or made
            # again.
            session.exists_async(paths.path, self._on_path)
        self._ahead.forget()
        if is_second:
            with suppress(NoNode):
                names = session.children(paths.path, watch)
                self._note_held(None if waiting.in_hand.issuperset(names) else self.ask_locks())
                return names
        guesses = waiting.guesses(_GUESSES)
        while True:
            # Locks are read first: an item that is acknowledged between the two is then in neither.
            # The other way round it would be claimed although it is done (the claim would fail, at
            # a cost).
            locks = self.ask_locks()
            reading = self._ahead.reader.read_few(guesses) if guesses else None
            try:
                names = session.children(paths.path, watch)
            except NoNode:
                if self._kind is not QueueKind.SIMPLE:
                    session.ensure_path(paths.path)
                elif session.exists(paths.path, self._on_children) is None:
                    # it comes with the next offer
                    return []
                continue
            self._note_held(locks)
            if reading is not None:
                found = zip(guesses, reading.result(_ANSWER_S), strict=False)
                self._ahead.note({name: row for name, row in found if isinstance(row, tuple)})
            return names

    def ask_locks(self) -> primitives.Future[list[str]] | None:
        path = self._paths.lock_path
        return None if path is None else self._session.children_async(path, self._on_locks)

    def _note_held(self, answer: primitives.Future[list[str]] | None) -> None:
        self._held = self.locked(answer) - self._waiting.in_hand

    def locked(self, answer: primitives.Future[list[str]] | None) -> set[str]:
        """The names in the answer to :meth:`ask_locks`, those of this consumer among them."""
        while answer is not None:
            try:
                return set(answer.result(_ANSWER_S))
            except NoNode:
                self._session.ensure_path(self._paths.lock_path or "")
                answer = self.ask_locks()
            except primitives.FutureTimeout:
                raise ConnectionLost("locks were not listed in time") from None
        return set()

    def apply_events(self) -> None:
        if self._is_path_new:
            self._is_path_new = False
            self._waiting.restart()
        while self._news:
            event = self._news.popleft()
            if event.kind is WatchKind.CREATED:
                self._waiting.add(name_of(event.path))
            else:
                self._waiting.discard(name_of(event.path))
        if not self.is_lock_changed or not self._held:
            return  # nothing that could be released
        self.is_lock_changed = False
        if self._names is None:
            self._stale_s = 0.0
            return
        held = self._held
        self._note_held(self.ask_locks())
        for name in held - self._held:
            self._waiting.add(name)

    def close(self) -> None:
        if self._names is not None:
            self._names.close()
            self._names = None

    def _changed(self, _event: WatchEvent) -> None:
        self._stale_s = min(self._stale_s, clock.now_s())
        self._notify()

    def _path_changed(self, event: WatchEvent) -> None:
        self._is_path_watched, self._is_path_new = False, True
        self._ahead.forget()
        self._changed(event)

    def _locks_changed(self, _event: WatchEvent) -> None:
        self.is_lock_changed = True
        if self._held:
            self._notify()

    def _named(self, event: WatchEvent) -> None:
        if event.kind is WatchKind.SESSION:
            self._changed(event)
            return
        if event.path == self._paths.path:
            self._path_changed(event)
            return
        name = name_of(event.path)
        if parent_of(event.path) != self._paths.path or not is_item(self._kind, name):
            return
        if event.kind is WatchKind.CREATED:
            self._news.append(event)
            self._created(name)
            self._notify()
        elif event.kind is WatchKind.DELETED and name not in self._waiting.in_hand:
            self._news.append(event)

    def _tell_foreign(self, names: set[str]) -> None:
        if new := names - self._foreign:
            self._foreign |= new
            log.warning(
                "not items of this kind of queue, left alone queue=%s kind=%s count=%d names=%s",
                self._paths.path,
                self._kind.value,
                len(new),
                ",".join(sorted(new)[:5]),
            )
