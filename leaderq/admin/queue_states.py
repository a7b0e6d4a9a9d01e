"""Reads queues of all kinds for operators. The number of requests depends on how many queues and
shards there are, not on what they hold.

The counts that the servers keep (depth, dead letters, consumers) are read each time. The kind of a
queue and its oldest item need a list of all names, which is one request with much data. So a list
is read again only if something has changed, never for a queue with more than ``MOST_LISTED`` items,
and so seldom that it takes at most a twentieth of the time. The first items of a queue are read
while somebody looks at the queue.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, NamedTuple, cast

from leaderq.admin.dyno_queues import DYNO, DynoAdmin, DynoContents
from leaderq.admin.text import Row, Toned, duration
from leaderq.base import clock
from leaderq.dyno.layout import PARTS, SHARD_PARTS, DynoPaths
from leaderq.errors import ConfigurationError, CorruptItem, NoNode, NoPermission
from leaderq.queues.admin import Browsed, DeadItem, QueueAdmin, QueueContents
from leaderq.queues.admin.contents import DEAD, META
from leaderq.queues.wire.names import QueueKind, due_ms_of, sequence_of
from leaderq.queues.wire.znodes import QueuePaths, wants_pause
from leaderq.zookeeper import GetChildren, GetData, Read, Session, Stat
from leaderq.zookeeper.paths import join
from leaderq.zookeeper.reading import children_of

MOST_LISTED = 250_000
SHOWN_ITEMS, SHOWN_LETTERS = 25, 50
_TOGETHER = 250  # reads a request
_SHARE = 20  # one part of the time is for listings
_AT_ONCE_S = 0.5  # of listings; the other queues' wait for the next reading
_OLD_S = 15.0  # what is due changes by itself
_PAUSE_S = 100.0  # a reader of the slowest pace reads every minute
_OF_ONE_QUEUE = (ConfigurationError, CorruptItem, NoNode, NoPermission)


@dataclass(frozen=True)
class Listing:
    """The facts that the names of a queue's items told at ``at_ms``. ``oldest_ms``: when the oldest
    due item became due. ``due`` and ``delayed`` are counts, which only Dyno queues and queues with
    due times have. ``problem``: why the names cannot be read.
    """

    at_ms: int
    kind: str | None
    oldest_ms: int | None = None
    due: int | None = None
    delayed: int | None = None
    problem: str | None = None


@dataclass(frozen=True)
class QueueState:
    """A queue as the servers count it. ``listing`` may be older than the counts; it is ``None``
    while the names were never listed. ``too_many``: the queue has too many items for a list.
    """

    path: str
    is_dyno: bool
    depth: int = 0
    held: int | None = None
    dead: int = 0
    consumers: int = 0
    is_paused: bool = False
    listing: Listing | None = None
    too_many: bool = False


@dataclass(frozen=True)
class Contents:
    """The first items and dead letters of a queue that somebody looks at; ``problem``: why there
    are none.
    """

    items: tuple[Browsed, ...] = ()
    letters: tuple[DeadItem, ...] = ()
    problem: str | None = None


class _Counted(NamedTuple):
    """A queue as the servers count it. ``stamp`` changes whenever the items of the queue do."""

    state: QueueState
    stamp: tuple[int, ...]


@dataclass(frozen=True)
class _Listed:
    """The last list of a queue's items, read at ``at_s``. ``first``: the names of the first items.
    ``again_at_s``: when the queue may be listed again.
    """

    stamp: tuple[int, ...]
    listing: Listing
    first: Any
    at_s: float
    again_at_s: float


class QueueStates:
    """Reads the queues that ``patterns`` name. A pattern is the path of a queue; or ``PATH/``, for
    the queues directly below it that are Dyno queues or have side data of leaderq. For one thread.
    """

    def __init__(self, session: Session, patterns: Sequence[str]) -> None:
        self._session, self._patterns = session, patterns
        self._listed: dict[str, _Listed] = {}
        self._read_at_s = float("-inf")

    def read(self, wanted: Collection[str]) -> tuple[list[QueueState], dict[str, Contents]]:
        """Return all queues, sorted by path, and the contents of those in ``wanted``. The first
        call, and the first after a pause, list only the wanted queues, so that it is fast even if
        the others are large.
        """
        counted = self._counted()
        # Those that are looked at first, then those whose listing is the oldest.
        counted.sort(key=lambda one: (one.state.path not in wanted, self._listed_at(one)))
        now_s = clock.now_s()
        until_s = now_s + (_AT_ONCE_S if now_s < self._read_at_s + _PAUSE_S else 0.0)
        self._read_at_s = now_s
        queues = [self._with_listing(one, until_s, one.state.path in wanted) for one in counted]
        contents = {path: Contents(problem="there is no such queue") for path in wanted}
        contents |= {one.path: self._contents(one) for one in queues if one.path in wanted}
        return sorted(queues, key=lambda one: one.path), contents

    # -- which queues there are, and what the servers count ----------------------------------------

    def _all(self, reads: Sequence[Read]) -> list[Any]:
        answers: list[Any] = []
        for at in range(0, len(reads), _TOGETHER):
            answers += self._session.multi_read(reads[at : at + _TOGETHER])
        return answers

    def _paths(self) -> list[str]:
        found = [path for path in self._patterns if not path.endswith("/")]
        for pattern in self._patterns:
            if pattern.endswith("/"):
                parent = pattern.removesuffix("/") or "/"
                try:
                    found += self._below(parent, children_of(self._session, parent))
                except NoPermission:
                    found.append(parent)  # its row says so
        return list(dict.fromkeys(found))

    def _below(self, parent: str, names: Sequence[str]) -> Iterator[str]:
        sided = {
            name.removesuffix(end) for name in names for end in (META, DEAD) if name.endswith(end)
        }
        yield from (join(parent, name) for name in sorted(sided - {""}))
        others = [join(parent, name) for name in sorted(names) if name not in sided]
        below = self._all([GetChildren(path) for path in others])
        yield from (
            path
            for path, inner in zip(others, below, strict=True)
            if isinstance(inner, list) and "shards" in inner and PARTS.issuperset(inner)
        )

    def _counted(self) -> list[_Counted]:
        paths = self._paths()
        wanted = [[GetData(one) for one in _side(path)] for path in paths]
        answers = iter(self._all([read for reads in wanted for read in reads]))
        nodes = [list(islice(answers, len(reads))) for reads in wanted]
        shards = self._shards([p for p, n in zip(paths, nodes, strict=True) if _there(n[-1])])
        return [
            _dyno(path, nodes, shards[path]) if path in shards else _curator(path, nodes)
            for path, nodes in zip(paths, nodes, strict=True)
        ]

    def _shards(self, paths: Sequence[str]) -> dict[str, list[list[Stat]]]:
        """For each Dyno queue and each of its shards, the znodes whose children are counted:
        messages, claims, rests, dead letters. The names of shards are taken as they are: somebody
        else may have made one.
        """
        shards = [DynoPaths(path).shards for path in paths]
        names = self._all([GetChildren(one) for one in shards])
        parents = {
            path: [[f"{base}/{one}/{part}" for part in SHARD_PARTS] for one in found]
            for path, base, found in zip(paths, shards, names, strict=True)
            if isinstance(found, list)
        }
        reads = [GetData(one) for each in parents.values() for four in each for one in four]
        answers = iter(self._all(reads))
        return {
            path: [[_stat(one) for one in islice(answers, 4)] for _ in each]
            for path, each in parents.items()
        }

    # -- what takes a listing ----------------------------------------------------------------------

    def _listed_at(self, one: _Counted) -> float:
        listed = self._listed.get(one.state.path)
        return float("-inf") if listed is None else listed.at_s

    def _with_listing(self, one: _Counted, until_s: float, is_wanted: bool) -> QueueState:
        state, known, now_s = one.state, self._listed.get(one.state.path), clock.now_s()
        if state.listing is not None:
            return state  # why it cannot be read
        if state.depth > MOST_LISTED:
            return replace(state, too_many=True)
        is_old = known is None or known.stamp != one.stamp
        if known is not None and known.listing.due is not None:
            is_old |= now_s > known.at_s + _OLD_S
        may_be_now = (is_wanted or now_s < until_s) and (not known or now_s >= known.again_at_s)
        if is_old and may_be_now:
            known = self._list(one, now_s)
        return state if known is None else replace(state, listing=known.listing)

    def _list(self, one: _Counted, now_s: float) -> _Listed:
        path, first = one.state.path, cast(Any, None)
        try:
            listing, first = (_list_dyno if one.state.is_dyno else _list_items)(self._session, path)
        except _OF_ONE_QUEUE as error:
            listing = Listing(clock.now_ms(), None, problem=str(error))
        took_s = clock.now_s() - now_s
        listed = _Listed(one.stamp, listing, first, now_s, now_s + _SHARE * took_s)
        self._listed[path] = listed
        return listed

    def _contents(self, state: QueueState) -> Contents:
        listed = self._listed.get(state.path)
        if state.too_many or listed is None or listed.first is None:
            why = listed.listing.problem if listed else None
            return Contents(problem=why or "it has too many items to be listed")
        try:
            return (_dyno_contents if state.is_dyno else _item_contents)(
                self._session, state.path, listed.first
            )
        except _OF_ONE_QUEUE as error:
            return Contents(problem=str(error))


def _side(path: str) -> list[str]:
    """The paths that are read for each queue, whatever its kind."""
    paths, dyno = QueuePaths(path), DynoPaths(path)
    return [path, paths.dead, paths.control, paths.members, dyno.members, dyno.shards]


def _there(answer: Any) -> bool:
    return isinstance(answer, tuple)


_NOTHING = Stat(*[0] * 11)


def _stat(answer: Any) -> Stat:
    return answer[1] if isinstance(answer, tuple) else _NOTHING


def _dyno(path: str, nodes: Sequence[Any], shards: Sequence[Sequence[Stat]]) -> _Counted:
    messages, claims, rests, dead = (sum(one[at].num_children for one in shards) for at in range(4))
    state = QueueState(
        *(path, True, messages, max(0, claims - rests), dead),
        consumers=_stat(nodes[4]).num_children,
        is_paused=_there(nodes[0]) and wants_pause(nodes[0][0]),
    )
    return _Counted(state, tuple(one.cversion for four in shards for one in four))


def _curator(path: str, nodes: Sequence[Any]) -> _Counted:
    queue, dead = _stat(nodes[0]), _stat(nodes[1])
    refused = isinstance(nodes[0], NoPermission)
    state = QueueState(
        *(path, False, queue.num_children, None, dead.num_children),
        consumers=_stat(nodes[3]).num_children,
        is_paused=_there(nodes[2]) and wants_pause(nodes[2][0]),
        listing=Listing(clock.now_ms(), None, problem=str(nodes[0])) if refused else None,
    )
    return _Counted(state, (queue.czxid, queue.cversion, dead.cversion))


def _list_items(session: Session, path: str) -> tuple[Listing, QueueContents]:
    seen, now_ms = QueueAdmin(session, QueuePaths(path)).detect(), clock.now_ms()
    kind = "sharder" if seen.shards else seen.kind.value if seen.kind else None
    first = replace(seen, items=seen.items[:SHOWN_ITEMS], foreign=[], shards=[])
    listing = Listing(now_ms, kind)
    if seen.kind is QueueKind.DELAY:
        due = sum(due_ms_of(name) <= now_ms for name in seen.items)
        listing = replace(listing, due=due, delayed=len(seen.items) - due)
        if due and (due_ms := due_ms_of(seen.items[0])):
            return replace(listing, oldest_ms=due_ms), first
        if not due:
            return listing, first
    if seen.items:
        oldest = session.exists(join(path, min(seen.items, key=sequence_of)))
        listing = replace(listing, oldest_ms=oldest.ctime_ms if oldest else None)
    return listing, first


def _list_dyno(session: Session, path: str) -> tuple[Listing, DynoContents]:
    with closing(DynoAdmin(session, path)) as admin:
        places = admin.detect().places
    ranks = [one.rank for one in places]
    oldest_ms = min((one.due_ms for one in places if one.rank == 0), default=None)
    listing = Listing(clock.now_ms(), DYNO, oldest_ms, ranks.count(0), ranks.count(1))
    return listing, DynoContents(places[:SHOWN_ITEMS])


def _item_contents(session: Session, path: str, first: QueueContents) -> Contents:
    admin = QueueAdmin(session, QueuePaths(path))
    letters = admin.dead_letters
    names = letters.names()[:SHOWN_LETTERS]
    return Contents(tuple(admin.browse(seen=first)), tuple(letters.browse(names)))


def _dyno_contents(session: Session, path: str, first: DynoContents) -> Contents:
    with closing(DynoAdmin(session, path)) as admin:
        letters = tuple(islice(admin.dead_letters.browse(), SHOWN_LETTERS))
        return Contents(tuple(admin.browse(SHOWN_ITEMS, seen=first)), letters)


# -- how it is shown -------------------------------------------------------------------------------


def queue_row(one: QueueState, now_ms: int) -> Row:
    listing = one.listing or Listing(now_ms, None)
    return {
        "Queue": one.path,
        "Kind": listing.kind or (DYNO if one.is_dyno else None),
        "Depth": f"{one.depth:,}",
        "Due": listing.due,
        "Held": one.held,
        "Oldest due": listing.oldest_ms and duration((now_ms - listing.oldest_ms) / 1000),
        "Dead": Toned(one.dead, "bad" if one.dead else ""),
        "Consumers": one.consumers,
        "Remarks": "; ".join(_remarks(one, listing)),
    }


def _remarks(one: QueueState, listing: Listing) -> Iterator[str]:
    if one.is_paused:
        yield "paused"
    if one.depth and not one.consumers:
        yield "nobody consumes it"
    if one.too_many:
        yield "too many to be listed"
    if listing.problem:
        yield listing.problem
