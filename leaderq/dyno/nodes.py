"""How all parts of one queue reach its znodes, what became of each transition that a writer sent,
and which useless znodes are left over.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from leaderq.base import chance, host
from leaderq.dyno.bodies import Bodies
from leaderq.dyno.layout import (
    DynoPaths,
    ShardPaths,
    kept_until_ms,
    parsed_name,
    parsed_rest,
    unescaped,
)
from leaderq.dyno.shard_view import ShardView, read_claims, shards_below
from leaderq.dyno.shards import LEASE_S, QueueSettings
from leaderq.dyno.transitions import absence, without_missing
from leaderq.engine.members import ReadAfterNews
from leaderq.engine.serializers import QueueSerializer
from leaderq.errors import (
    BadVersion,
    ConfigurationError,
    LeaderqError,
    NoNode,
    NoPermission,
    QueueClosed,
    ZooKeeperError,
)
from leaderq.observability.figures import QueueFigures
from leaderq.threads import Retry, primitives
from leaderq.zookeeper import Check, Delete, Session
from leaderq.zookeeper.reading import SizedReader, children_of
from leaderq.zookeeper.retrying import retry_until_connected
from leaderq.zookeeper.writing import SequencedWriter
from leaderq.zookeeper.writing.groups import Operations
from leaderq.zookeeper.writing.writer import outcomes

log = logging.getLogger(__name__)
TOGETHER = 25
"""Transitions that are written all or none: with the longest errors in them, 128 KB."""


@dataclass(slots=True)
class QueueNodes(ReadAfterNews):
    """One queue, as this process uses it: see :class:`DynoQueue`."""

    session: Session
    paths: DynoPaths
    bodies: Bodies
    now_ms: Callable[[], int]
    name: str
    retry: Retry
    serializer: QueueSerializer[Any]
    given_shards: tuple[str, ...]
    """The shards that this process wants to be there."""
    given_lease_s: float | None
    given_ageing_s: float | None
    changed: Callable[[], object] = lambda: None
    """Called on the thread of watches when the settings, the shards or what is in them have
    changed."""
    views: dict[str, ShardView] = field(default_factory=dict)
    """Of the shards that are there, in their order; replaced when others are."""
    held: dict[Any, Any] = field(default_factory=dict)
    """The deliveries that this process has in hand, each with how its lease is kept, if it is."""
    figures: QueueFigures = field(init=False)
    _settings: QueueSettings | None = None
    _pid: int = field(default_factory=lambda: host.pid())
    _opening: primitives.Lock = field(default_factory=lambda: primitives.Lock())
    _writer: SequencedWriter = field(init=False)
    _has_begun: bool = False

    def __post_init__(self) -> None:
        watched = self.paths.root, self.paths.shards
        ReadAfterNews.__init__(self, self.session, watched, lambda: self.changed())
        self.figures = QueueFigures(self.paths.root, self._live)
        self._writer = SequencedWriter(self.session, f"{self.paths.pushes}/{chance.uuid4().hex}")

    def _live(self, _counts: object) -> dict[str, float]:
        return {"held": len(self.held), "pending_puts": self._writer.unsettled}

    def check_open(self) -> None:
        """Raise an error unless this process may use the queue.

        :raises QueueClosed: the queue was closed, or was made before this process was forked.
        """
        if host.pid() != self._pid:
            raise QueueClosed(
                f"the queue {self.paths.root} belongs to process {self._pid}; make one after the"
                " fork"
            )
        if self.is_closed:
            raise QueueClosed(f"the queue {self.paths.root} was closed")

    def settings(self) -> QueueSettings:
        """Return the settings last known here. If the queue has none yet: those that it
        would get.
        """
        known = self._settings
        return self._found()[0] if known is None else known

    @property
    def lease_s(self) -> float:
        return self.settings().lease_s if self.given_lease_s is None else self.given_lease_s

    @property
    def ageing_s(self) -> float | None:
        return self.settings().ageing_s if self.given_ageing_s is None else self.given_ageing_s

    def shards(self) -> tuple[str, ...]:
        """Return all shards that exist, and all to which messages are pushed."""
        found = shards_below(self.session, self.paths)
        return tuple(dict.fromkeys([*self.settings().shards, *found]))

    def _found(self) -> tuple[QueueSettings, int | None]:
        """Return the queue's settings, or those that it would get, and the version of its root if
        settings must be written there: it has none yet, or lacks a shard that is wanted.
        """
        try:
            data, stat = self.session.get(self.paths.root)
        except NoNode:
            data, stat = b"", None
        found, version = QueueSettings.read(data), None if stat is None else stat.version
        if found is None:
            there = shards_below(self.session, self.paths)
            shards = tuple(dict.fromkeys([*self.given_shards, *there])) or ("0",)
            lease_s = LEASE_S if self.given_lease_s is None else self.given_lease_s
            found = QueueSettings(shards, len(shards), lease_s, self.given_ageing_s)
            return found, None if data else version  # foreign data are left as they are
        if self._settings is not None or set(self.given_shards) <= set(found.shards):
            return found, None  # or what was taken away since would come back
        return found.with_shards([*found.shards, *self.given_shards]), version

    def open(self) -> QueueSettings:
        """Create the queue, its settings and the shards wanted here, as far as they are missing,
        and watch for changes; returns the settings. Raises what the session raises.

        :raises ConfigurationError: the path has items of another kind of queue.
        """
        self.refresh()
        return self.settings()

    def _read(self) -> None:
        session, paths, known = self.session, self.paths, self._settings
        session.ensure_path(paths.shards)
        self._listen()
        found, version = self._found()
        if version is not None:
            self._refuse_others()
            try:
                session.set(paths.root, found.packed(), version)
            except BadVersion:
                self._read()
                return
            except NoPermission as exc:  # all shards are served nevertheless
                said = "settings cannot be written, others do not know them queue=%s error=%s"
                log.warning(said, paths.root, exc)
        if found != known:
            self._settings = found
            self._compare(found)
        former, self.views = self.views, {shard: self.view(shard) for shard in self.shards()}
        for shard, view in former.items():
            if shard not in self.views:
                view.close()
            else:
                view.age_by(self.ageing_s)

    def view(self, shard: str) -> ShardView:
        """Return this process's view of a shard, which is made if there is none."""
        if (known := self.views.get(shard)) is None:
            paths = self.paths.shard(shard)
            known = ShardView(self.session, paths, self._notify, self.ageing_s, self.now_ms)
            self.views = {**self.views, shard: known}
        return known

    def _compare(self, found: QueueSettings) -> None:
        for name, mine, queues in (
            ("lease_s", self.given_lease_s, found.lease_s),
            ("ageing_s", self.given_ageing_s, found.ageing_s),
        ):
            if mine not in (None, queues):
                said = "setting differs, the one given is used queue=%s name=%s given=%s theirs=%s"
                log.warning(said, self.paths.root, name, mine, queues)

    def _refuse_others(self) -> None:
        others = [one for one in self.session.children(self.paths.root) if one.startswith("queue-")]
        if others:
            raise ConfigurationError(
                f"{self.paths.root} is a queue of Curator's recipes (it has {others[0]});"
                " give the messages a root of their own"
            )

    def change(self, change: Callable[[QueueSettings], QueueSettings]) -> QueueSettings:
        """Change the settings for all processes, while they run."""
        while True:
            self.open()
            data, stat = self.session.get(self.paths.root)
            found = QueueSettings.read(data)
            if data and found is None:
                what = f"{self.paths.root} holds {data[:60]!r}, which are not settings of a queue"
                raise ConfigurationError(f"{what}; they are left alone, so nothing can be changed")
            wanted = change(found or self.settings())
            self.make(wanted.shards)
            try:
                self.session.set(self.paths.root, wanted.packed(), stat.version)
            except BadVersion:
                continue
            self.is_stale = True
            return self.open()

    def make(self, shards: Iterable[str]) -> None:
        for shard in shards:
            for parent in self.paths.shard(shard).parents:
                self.session.ensure_path(parent)

    def writer(self) -> SequencedWriter:
        """Return the writer for everything except a consumer's writes; its guard outlives the
        session.

        :raises ConnectionLost: the servers were unreachable for 30 s when the writer was first
            needed.
        """
        self.check_open()
        with self._opening:
            if not self._has_begun:
                retry_until_connected(self._begin, check=self.check_open)
                self._has_begun = True
            return self._writer

    def _begin(self) -> None:
        self.make(self.open().shards)
        self._writer.open()
        self.session.ensure_path(self.paths.ids)

    def close_writer(self, timeout_s: float) -> bool:
        with self._opening:
            self.close()
            return self._writer.close(timeout_s)

    def messages(self, shard: str) -> Iterator[tuple[str, bytes]]:
        """Yield names and data of all messages in ``shard``. Reads about a megabyte at a time."""
        path = self.paths.shard(shard).messages
        names = sorted(filter(parsed_name, children_of(self.session, path)))
        for name, answer in SizedReader(self.session, path).read_all(names):
            if isinstance(answer, tuple):
                yield name, answer[0]


def apply_all(
    writer: SequencedWriter, groups: Sequence[Operations], path: str
) -> list[LeaderqError | None]:
    """Write these groups, each all or nothing, and return the error of each, or ``None``. An
    error's ``index`` counts in the group as it was given. An id or the marker of a rest that was
    deleted by hand is left out of its group; otherwise nobody could ever settle the message. In
    each group the user's own operations come last.
    """
    errors = [error for _, error in outcomes(writer, groups, path)]
    for at, given in enumerate(groups):
        group = given
        while (error := errors[at]) is not None and within(error, path):
            fewer = without_missing(group, error)
            if fewer is None:
                break
            group = fewer
            errors[at] = outcomes(writer, [group], path)[0][1]
        if isinstance(error, ZooKeeperError) and error.index is not None:
            error.index += len(given) - len(group)
    return errors


def within(error: LeaderqError, path: str) -> bool:
    """Whether the error is about a znode below ``path``, and not about one of the user's own."""
    return isinstance(error, ZooKeeperError) and (error.path or "").startswith(f"{path}/")


@dataclass(frozen=True, slots=True)
class Leftover:
    """A useless znode, ``why`` it is useless, and the operations that delete it if it still is."""

    path: str
    why: str
    operations: Operations


def leftovers(nodes: QueueNodes, place: Callable[[str], object]) -> Iterator[Leftover]:
    """Yield claims and markers without a message, markers that do not belong to their claims, and
    ids without a message. Each is checked again, because znodes in use change meanwhile.
    """
    session, paths = nodes.session, nodes.paths
    for shard in nodes.shards():
        yield from _in_shard(session, paths.shard(shard))
    for part in children_of(session, paths.ids):
        path = f"{paths.ids}/{part}"
        try:
            data, stat = session.get(path)
        except NoNode:
            continue
        id = unescaped(part)
        if id is None or kept_until_ms(data) is not None or place(id) is not None:
            continue
        again = session.exists(path)  # it may have gone with its message, and be another's
        if again is not None and again.czxid == stat.czxid:
            yield Leftover(path, "no message has this id", (Delete(path, stat.version),))


def _in_shard(session: Session, paths: ShardPaths) -> Iterator[Leftover]:
    claims, markers = children_of(session, paths.claims), children_of(session, paths.rests)
    messages = set(children_of(session, paths.messages))  # last: it includes news of the others
    for marker in markers:
        rest = parsed_rest(marker)
        if rest is None:
            continue
        path, claim_path = paths.rest(marker), paths.claim(rest.name)
        if rest.name not in claims:
            gone = (*absence(claim_path), Delete(path))
        else:
            claim, _ = read_claims(session, paths, [rest.name])[rest.name]
            if claim.version is None or claim.rest == marker:
                continue
            gone = (Check(claim_path, claim.version), Delete(path))
        if session.exists(path) is not None:
            yield Leftover(path, "a marker that is not of its claim", gone)
    for name in claims:
        if name not in messages and parsed_name(name) is not None:
            claim, _ = read_claims(session, paths, [name])[name]
            if claim.version is not None:
                gone = (*absence(paths.message(name)), Delete(paths.claim(name), claim.version))
                yield Leftover(paths.claim(name), "a claim without a message", gone)


@dataclass(frozen=True, slots=True)
class ShardFigures:
    """How many messages of a shard are in which state. ``due``: may be delivered now; ``delayed``:
    due later; ``leased``: in flight; ``oldest_due_s``: how long the oldest due message has been
    due.
    """

    due: int
    delayed: int
    leased: int
    dead: int
    oldest_due_s: float | None


def shard_sizes(nodes: QueueNodes) -> dict[str, dict[str, int]]:
    """Return the sizes of each shard, as the servers have them: ``messages`` (all), ``resting``,
    ``leased``, ``dead``.
    """
    out = {}
    for shard in nodes.shards():
        stats = map(nodes.session.exists, nodes.paths.shard(shard).parents)
        messages, claims, rests, dead = (one.num_children if one else 0 for one in stats)
        leased = max(0, claims - rests)
        out[shard] = {"messages": messages, "resting": rests, "leased": leased, "dead": dead}
    return out


def shard_figures(nodes: QueueNodes) -> dict[str, ShardFigures]:
    """Return the figures of each shard, as this consumer sees them."""
    out = {}
    for shard, sizes in shard_sizes(nodes).items():
        view, now_ms = nodes.view(shard), nodes.now_ms()
        view.refresh()
        with view.lock:
            times_ms = view.index.due_times_ms(now_ms)
        due, leased = len(times_ms), sizes["leased"]
        delayed = max(0, sizes["messages"] - due - leased)
        oldest_s = (now_ms - min(times_ms)) / 1000 if times_ms else None
        out[shard] = ShardFigures(due, delayed, leased, sizes["dead"], oldest_s)
    return out


def depths(shards: Mapping[str, ShardFigures]) -> dict[str, float]:
    """Return the figures of the whole queue, by the names of its metrics."""
    every = shards.values()
    return {
        "ready": sum(one.due for one in every),
        "delayed": sum(one.delayed for one in every),
        "in_flight": sum(one.leased for one in every),
        "dead": sum(one.dead for one in every),
        "oldest_due_s": max((one.oldest_due_s or 0.0 for one in every), default=0.0),
    }
