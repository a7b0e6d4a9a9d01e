"""One shard, as this process knows it: its index, kept current by watches, and the reads.

Who is authoritative: the servers. The watches of ``messages`` and ``rests`` feed the index; a new
listing is made whenever they may have missed something. ``claims`` is not watched, because every
delivery changes it; it is listed when the index needs it (:meth:`ShardView.look_at_claims`).

On failure: what the session raises passes to the caller, and the index is listed again later.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import takewhile
from typing import Any

from leaderq.base import clock
from leaderq.dyno.index import LONGEST_S, Choice, ShardIndex
from leaderq.dyno.layout import NO_GROUP, DynoPaths, ShardPaths, rest_name, unescaped
from leaderq.dyno.message import DeliveryState
from leaderq.engine.members import ReadAfterNews
from leaderq.engine.reading_ahead import RowsAhead
from leaderq.errors import LeaderqError, NoNode
from leaderq.threads import primitives
from leaderq.zookeeper import GetData, Session, WatchEvent, WatchKind
from leaderq.zookeeper.paths import name_of, parent_of
from leaderq.zookeeper.reading import SizedReader, children_of
from leaderq.zookeeper.writing.groups import batched
from leaderq.zookeeper.writing.writer import OVERTAKEN

_READ_AT_A_TIME = 250
_NEXT_ONES = 256
"""How many of the next messages are looked at first, where one is looked for."""
_NO_GROUP = f"-{NO_GROUP}-"


class ShardView(ReadAfterNews):
    """What this process knows of one shard; see the module. May be used from any thread.
    ``changed`` is called, under no lock, when there may be more to deliver than before.
    """

    def __init__(
        self,
        session: Session,
        paths: ShardPaths,
        changed: Callable[[], object],
        ageing_s: float | None,
        now_ms: Callable[[], int],
    ) -> None:
        self.paths = paths
        self.index = ShardIndex(ageing_s)
        self.lock = primitives.Lock()
        """Held for every use of the index, and for nothing that waits."""
        super().__init__(session, (paths.messages, paths.rests), changed, is_tree=True)
        self._now_ms = now_ms
        reader = SizedReader(session, paths.messages)
        self.ahead = RowsAhead(reader, lambda: self.is_closed)
        self._news: list[WatchEvent] | None = None
        self._next_listing_s = 0.0

    def refresh(self) -> bool:
        was_read = super().refresh()
        if was_read:
            self._notify()  # under no lock
        return was_read

    def _read(self) -> None:
        """List the shard."""
        for parent in () if self.is_closed else self.paths.parents:
            self._session.ensure_path(parent)
        self._listen()
        with self.lock:
            self._news = []
        try:
            names = self._session.children(self.paths.messages)
            claims = self._session.children(self.paths.claims)
            # after the claims: resting messages are not leased
            markers = self._session.children(self.paths.rests)
        except BaseException:
            with self.lock:
                self._news = None
            raise
        with self.lock:
            self.index.replace(names, markers, self._now_ms())
            # News that came while it was listed may be older or newer than the listing.
            for event in self._news or ():
                self._apply(event.kind, parent_of(event.path), name_of(event.path))
            self._news = None
            self.index.claims_listed(claims, clock.now_s())

    def _heard(self, event: WatchEvent) -> None:
        """On the thread of watches."""
        parent, _, name = event.path.rpartition("/")
        is_child = parent in self._watched
        # Nobody who waits need hear of done messages, unless the next of a group may go now.
        is_done = is_child and event.kind is WatchKind.DELETED and _NO_GROUP in name
        with self.lock:
            if event.kind is WatchKind.SESSION or (
                not is_child and event.kind is not WatchKind.CHILDREN
            ):
                self.is_stale = True
            elif is_child:
                if self._news is not None:
                    self._news.append(event)
                self._apply(event.kind, parent, name)
        if not is_done:
            self._notify()

    def _apply(self, kind: WatchKind, parent: str, name: str) -> None:
        is_message = parent == self.paths.messages
        if kind is WatchKind.CREATED:
            (self.index.created if is_message else self.index.rested)(name)
        elif kind is WatchKind.DELETED and is_message:
            self.index.deleted(name)
        elif kind is WatchKind.DELETED:
            self.index.rest_over(name, clock.now_s())

    def age_by(self, ageing_s: float | None) -> None:
        with self.lock:
            if ageing_s != self.index.ageing_s:
                self.index.ageing_s = ageing_s
                self.is_stale = True  # a new listing orders all again

    def read(self, names: Sequence[str]) -> list[Any]:
        """Return what the messages ``names`` hold, in order, up to the first that does not fit into
        one read. Some were read ahead, because messages never change. Raises what
        :meth:`SizedReader.read_now` raises.
        """
        rows = self.ahead.read(names)
        return [rows[name] for name in takewhile(rows.__contains__, names)]

    def read_ahead(self, count: int) -> None:
        """Begin to read the next ``count`` messages while the present ones are claimed and worked
        on.
        """
        self.ahead.forget()  # others have taken what was not wanted
        with self.lock:
            names = self.index.upcoming(min(count, self.ahead.room), self._now_ms())
        self.ahead.begin(names)

    def upcoming(self) -> Iterator[tuple[int, int, str, str]]:
        """Yield the messages that may be delivered now, in order: the sort key, the shard and the
        name of each.
        """
        now_ms, shard, most = self._now_ms(), self.paths.shard, _NEXT_ONES
        told: set[str] = set()
        while True:
            with self.lock:
                names = self.index.upcoming(most, now_ms)
                fresh = [
                    (*self.index.order_of(one), shard, one) for one in names if one not in told
                ]
            yield from sorted(fresh)
            if len(names) < most:
                return
            told.update(names)
            most *= 4

    def look_at_claims(
        self, members: Callable[[], Collection[str]], *, has_lost_member: bool = False
    ) -> None:
        """Learn which messages are leased, and which leases are over.

        ``members()`` is asked after the claims were read: a claim's owner that is missing then has
        left, and is not a new member. If a member has left (``has_lost_member``), all leases are
        looked at. The longer the listing, the less often it is read.
        """
        names, now_s = None, clock.now_s()
        if has_lost_member or now_s >= self._next_listing_s:
            try:
                names = self._session.children(self.paths.claims)
            except NoNode:  # deleted by hand
                self.is_stale = True
                return
            self._next_listing_s = now_s + min(LONGEST_S, len(names) / 20_000)
        now_s = clock.now_s()
        with self.lock:
            if names is not None:
                self.index.claims_listed(names, now_s)
            wanted = self.index.to_look_at(now_s, everything=has_lost_member)
        found = read_claims(self._session, self.paths, wanted)
        there = members() if found else ()
        now_s = clock.now_s()  # later than anything that was read
        with self.lock:
            for (name, version, rest), state in found.values():
                if rest is not None:  # its watch is late, or its marker was deleted by hand
                    self.index.rested(rest)
                elif version is not None:
                    lease_s = state.lease_ms / 1000 if state.member in there else 0.0
                    self.index.observed(name, version, lease_s, now_s)
        if found:
            self._notify()

    def next_look_s(self) -> float:
        with self.lock:
            return self.index.next_look_s()

    def not_claimed(self, name: str, error: LeaderqError | None = None) -> bool:
        """Note that the message was not claimed; returns whether another consumer was faster, which
        is to be expected.
        """
        with self.lock:
            if isinstance(error, NoNode) and error.path != self.paths.claim(name):
                self.index.deleted(name)
            else:
                self.index.lost(name, clock.now_s())
        return error is None or isinstance(error, OVERTAKEN)

    def overtaken(self, name: str, error: LeaderqError) -> None:
        """As :meth:`not_claimed`; raises an error that is not to be expected."""
        if not self.not_claimed(name, error):
            raise error

    def release(self, names: Sequence[str]) -> None:
        with self.lock:
            self.index.release(names)
        self._notify()


def shards_below(session: Session, paths: DynoPaths) -> list[str]:
    """Return the names of the shards that a queue has; a znode that cannot be one of leaderq's is
    left alone.
    """
    return sorted(filter(None, map(unescaped, children_of(session, paths.shards))))


Claim = tuple[Choice, DeliveryState]
"""A message as it may be claimed, and the state of its deliveries."""


def read_claims(session: Session, paths: ShardPaths, names: Sequence[str]) -> dict[str, Claim]:
    """Return the claims of these messages, by name. Raises what the session raises."""
    found: dict[str, Claim] = {}
    for some in batched(names, _READ_AT_A_TIME):
        answers = session.multi_read([GetData(paths.claim(name)) for name in some])
        for name, answer in zip(some, answers, strict=True):
            if isinstance(answer, tuple):
                state, version = DeliveryState.read(answer[0]), answer[1].version
                rest = None if state.member else rest_name(state.until_ms, version, name)
                found[name] = Choice(name, version, rest), state
            elif isinstance(answer, LeaderqError) and not isinstance(answer, NoNode):
                raise answer
            else:
                found[name] = Choice(name), DeliveryState()
    return found
