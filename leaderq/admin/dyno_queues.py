"""Administers a Dyno queue, with the methods that :class:`~leaderq.queues.admin.QueueAdmin` has for
other queues, and some that only a Dyno queue has.

The administrator is a consumer only while it drains the queue. It cannot read payloads that are in
a ``BodyStore``. The programs that use the queue delete stored payloads that have no message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple, cast

from leaderq.admin.text import iso
from leaderq.base import clock
from leaderq.base.arguments import require
from leaderq.dyno import DeadMessage, Delivery, DynoQueue, MissingBody, StaleLease
from leaderq.dyno.index import ShardIndex
from leaderq.dyno.layout import PARTS, DynoPaths, escaped, parsed_name
from leaderq.dyno.message import Frame, frame_of, wrong_id
from leaderq.dyno.shard_view import read_claims, shards_below
from leaderq.engine.dead_letters import Moved, OnProgress
from leaderq.errors import CorruptItem, RequestRefused
from leaderq.queues.admin import Browsed, DeadItem, Purged
from leaderq.queues.admin.contents import delete_tree
from leaderq.queues.wire.payload import Note
from leaderq.zookeeper import GetData, Session
from leaderq.zookeeper.paths import join
from leaderq.zookeeper.reading import SizedReader, children_of
from leaderq.zookeeper.writing.groups import batched

_AT_A_TIME = 250
_HELD = 2
"""The rank of those that somebody has."""
DYNO = "dyno"
"""The kind of a queue that has none of Curator's recipes."""


def is_dyno(session: Session, path: str) -> bool:
    """Whether ``path`` is a Dyno queue: it has shards, and no child that a Dyno queue does not
    have.
    """
    has_shards = session.exists(join(path, "shards")) is not None
    return has_shards and set(session.children(path)) <= PARTS


def dyno_below(session: Session, path: str) -> Iterator[DynoAdmin]:
    """The Dyno queues directly below ``path``."""
    for some in batched(sorted(session.children(path)), _AT_A_TIME):
        paths = [join(path, name) for name in some]
        answers = session.multi_read([GetData(join(one, "shards")) for one in paths])
        for one, answer in zip(paths, answers, strict=True):
            if isinstance(answer, tuple) and is_dyno(session, one):
                yield DynoAdmin(session, one)


@dataclass(frozen=True)
class BrowsedMessage(Browsed):
    """A message, shown as the items of other queues are. ``said``: the fields that only messages
    have.
    """

    said: dict[str, Any] = field(default_factory=dict)


def _browsed(
    shard: str, name: str, data: bytes, note: Note, is_held: bool | None = None, **said: Any
) -> BrowsedMessage:
    """Return a message, or a dead letter, in the form in which items are shown."""
    items: Sequence[bytes] | None = None
    frame, problem = frame_of(data), None
    try:
        items = [Frame.read(data).payload] if frame.body is None else []
    except CorruptItem as exc:
        problem = str(exc)
    said = {"id": frame.id or None, "priority": int(name[:2]), **said}
    said |= {"group": frame.group, "headers": dict(frame.headers)}
    said |= {} if frame.body is None else {"body": frame.body}
    since_ms = frame.enqueued_ms
    return BrowsedMessage(f"{shard}/{name}", data, items, note, problem, since_ms, 0, is_held, said)


class _Place(NamedTuple):
    """The place of a message in the order of display: first those that are due, by priority; then
    those due later, by time; then those that are held.
    """

    rank: int
    order: int
    sequence: int
    shard: str
    name: str
    due_ms: int


class DynoContents(NamedTuple):
    """The contents of a Dyno queue."""

    places: list[_Place]
    kind: str = DYNO


class DynoAdmin:
    """The actions of an operator on a Dyno queue. The caller closes it at the end."""

    def __init__(self, session: Session, path: str) -> None:
        self.path = path
        self._session = session
        self._paths = DynoPaths(path)
        self._shards = shards_below(session, self._paths)
        self.queue = DynoQueue(session, path)
        self.dead_letters = DynoLetters(self.queue)

    def close(self) -> None:
        self.queue.close()

    def pause(self) -> bool:
        return self.queue.pause()

    def resume(self) -> bool:
        return self.queue.resume()

    def is_there(self) -> bool:
        return is_dyno(self._session, self.path)

    def overview(self) -> dict[str, Any]:
        """The facts that ``leaderq queue ls --json`` tells about the queue, and whether it is
        ``paused``.
        """
        figures = self.figures()
        counts = {
            what: sum(one[what] for one in figures) for what in ("due", "delayed", "held", "dead")
        }
        depth = counts["due"] + counts["delayed"] + counts["held"]
        consumers = len(children_of(self._session, self._paths.members))
        ages = [one["oldest_due_s"] for one in figures if one["oldest_due_s"] is not None]
        said = {"queue": self.path, "kind": DYNO, "depth": depth, **counts, "consumers": consumers}
        said |= {"oldest_due_s": max(ages, default=None), "shards": self._shards}
        return said | {"paused": self.queue.is_paused}

    def figures(self) -> list[dict[str, Any]]:
        return [
            {
                "shard": shard,
                "due": one.due,
                "delayed": one.delayed,
                "held": one.leased,
                "dead": one.dead,
                "oldest_due_s": one.oldest_due_s,
            }
            for shard, one in (self.queue.figures() if self._shards else {}).items()
        ]

    def detect(self) -> DynoContents:
        return DynoContents(sorted(place for one in self._shards for place in self._places(one)))

    def _places(self, shard: str) -> Iterator[_Place]:
        paths, at_ms, index = self._paths.shard(shard), clock.now_ms(), ShardIndex()
        claims = children_of(self._session, paths.claims)
        markers = children_of(self._session, paths.rests)
        names = [
            one for one in sorted(children_of(self._session, paths.messages)) if parsed_name(one)
        ]
        index.replace(names, markers, at_ms)
        index.claims_listed(claims, at_ms)
        held = set(index.to_look_at(at_ms, everything=True))
        due = set(index.upcoming(len(names), at_ms))
        for name in names:
            due_ms = index.due_ms_of(name)
            rank = _HELD if name in held else 0 if name in due else 1
            order = due_ms if rank == 1 else int(name[:2])
            yield _Place(rank, order, int(name[-10:]), shard, name, due_ms)

    def browse(self, limit: int | None = None, *, seen: Any) -> Iterator[BrowsedMessage]:
        """Read the messages of ``seen``, at most ``limit``. Messages that have vanished are left
        out.
        """
        reader = SizedReader(self._session, self._paths.shards)
        for some in batched(islice(seen.places, limit), _AT_A_TIME):
            claims = {
                (shard, choice.name): state
                for shard in {one.shard for one in some}
                for choice, state in read_claims(
                    self._session,
                    self._paths.shard(shard),
                    [one.name for one in some if one.shard == shard],
                ).values()
            }
            answers = reader.read_all([f"{escaped(one.shard)}/messages/{one.name}" for one in some])
            for one, (_, answer) in zip(some, answers, strict=True):
                if not isinstance(answer, tuple):
                    continue
                claim, is_held = (
                    claims[one.shard, one.name],
                    one.rank == _HELD,
                )
                due_ms = claim.until_ms if is_held else one.due_ms
                said = {"due": iso(due_ms), "due_ms": due_ms, "deliveries": claim.deliveries}
                note = Note(attempt=claim.failures)
                yield _browsed(one.shard, one.name, answer[0], note, is_held, **said)

    def depth(self) -> int:
        return sum(one["messages"] for one in self.queue.shard_sizes().values())

    def ack(self, names: Sequence[str], *, held_too: bool) -> dict[str, list[str]]:
        """Delete these messages; return the names that were ``acknowledged``, those that a consumer
        has (``held``, which ``held_too`` deletes as well), and those that are ``absent``.
        """
        said: dict[str, list[str]] = {"acknowledged": [], "held": [], "absent": []}
        require(*(wrong_id(name) for name in names if "/" not in name))  # before any is deleted
        for name in names:
            is_done = (self.queue.remove if held_too else self.queue.finish)(name)
            outcome = "acknowledged" if is_done else "held" if self._is_there(name) else "absent"
            said[outcome].append(name)
        return said

    def _is_there(self, name: str) -> bool:
        try:
            return self.queue.get(name) is not None
        except (CorruptItem, MissingBody):
            return True

    def purge(
        self,
        *,
        held_too: bool = False,
        older_s: float | None = None,
        on_progress: Callable[[int], None] | None = None,
    ) -> Purged:
        deleted = self.queue.clear(held_too=held_too, older_s=older_s)
        return Purged(deleted, sum(one["leased"] for one in self.queue.shard_sizes().values()))

    def drain(self) -> DynoDrain:
        return DynoDrain(self)

    def delete(self, *, force: bool = False) -> int:
        found = {"messages": self.depth(), "dead letters": self.dead_letters.count()}
        found["consumers"] = len(children_of(self._session, self._paths.members))
        said = ", ".join(f"{count} {what}" for what, count in found.items() if count)
        if said and not force:
            remedy = "purge it first, or force its deletion"
            raise RequestRefused(f"{self.path} is in use: {said}; {remedy}")
        return delete_tree(self._session, self.path)


class DynoDrain:
    """Takes messages out, as :class:`~leaderq.queues.admin.QueueDrain` does: due or not, also while
    the queue is paused. Messages that others have stay, and so do those whose payloads are in a
    ``BodyStore``.

    *Guarantees:* a message is in the queue until it was passed to :meth:`keep`; a message that was
    not passed to it goes back unchanged. *Not guaranteed:* that each message comes out only once.
    If the process is killed, or its session ends, before the next batch, the messages are delivered
    again, as those of a dead consumer are.
    """

    kind = DYNO

    def __init__(self, keeper: DynoAdmin) -> None:
        self._keeper, self._queue = keeper, keeper.queue
        self._open: dict[str, Delivery] = {}
        self._kept: list[Delivery] = []

    def __enter__(self) -> DynoDrain:
        return self

    def __exit__(self, *_: object) -> None:
        self._next()

    def batches(
        self, limit: int | None = None, *, corrupt_too: bool = True
    ) -> Iterator[list[BrowsedMessage]]:
        """Yield the messages in batches, at most ``limit`` messages in all. Unreadable messages
        become dead letters, whatever ``corrupt_too`` says.
        """
        given, before = 0, -1
        while before != given != limit:
            before = given
            for some in batched(self._keeper.detect().places, _AT_A_TIME):
                free = [f"{one.shard}/{one.name}" for one in some if one.rank < _HELD]
                while free and given != limit:
                    # some of these may have to stay: then those behind them count instead
                    most = len(free) if limit is None else limit - given
                    wanted, free = free[:most], free[most:]
                    found = self._queue.take_out(wanted)
                    self._queue.keep(found)
                    self._open = {one.place: one for one in found}
                    order = map(self._open.get, wanted)
                    mine = [one for one in order if one is not None and one.frame.body is None]
                    given += len(mine)
                    if mine:
                        yield list(map(_taken_out, mine))
                    self._next()

    def keep(self, one: Browsed) -> None:
        if (kept := self._open.pop(one.name, None)) is not None:
            self._kept.append(kept)

    def settle(self) -> None:
        kept, self._kept = self._kept, []
        for error in self._queue.ack(kept):
            if error is not None and not isinstance(error, StaleLease):
                raise error

    def _next(self) -> None:
        self.settle()
        left, self._open = self._open, {}
        self._queue.put_back(left.values())


def _taken_out(one: Delivery) -> BrowsedMessage:
    said = {"due": iso(one.due_ms), "due_ms": one.due_ms, "deliveries": one.deliveries}
    note = Note(attempt=one.failures)
    return _browsed(one.shard, one.name, one.frame.packed(), note, False, **said)


@dataclass(frozen=True)
class DynoLetter(DeadItem):
    """A dead letter, in the form in which those of other queues are shown."""

    message: DeadMessage


class DynoLetters:
    """The dead letters of a Dyno queue, as :class:`~leaderq.queues.admin.ItemLetters`. A letter may
    be named by its own name or by the id of its message.
    """

    def __init__(self, queue: DynoQueue) -> None:
        self._letters = queue.dead_letters
        self.count = self._letters.count

    def names(self) -> list[str]:
        """All words that name a letter: the letters' names and the ids of their messages."""
        names = (name for one in self.browse() for name in (one.name, one.note.origin))
        return [name for name in names if name is not None]

    def browse(self, names: Iterable[str] | None = None) -> Iterator[DynoLetter]:
        wanted = None if names is None else set(names)
        for one in self._letters.browse():
            frame = frame_of(one.data)
            id, since_ms = frame.id or None, frame.enqueued_ms or None
            if wanted is None or not wanted.isdisjoint((f"{one.shard}/{one.name}", id)):
                error, died_ms = one.error or None, one.died_ms
                note = Note(
                    attempt=one.failures,
                    enqueued_ms=since_ms,
                    reason=one.reason,
                    error=error,
                    origin=id,
                    died_ms=died_ms,
                )
                yield DynoLetter(_browsed(one.shard, one.name, one.data, note), one)

    def requeue(
        self, letters: Iterable[DeadItem], *, on_progress: OnProgress | None = None
    ) -> Moved:
        return self._letters.requeue(map(_message_of, letters), on_progress=on_progress)

    def drop(self, letters: Iterable[DeadItem], *, on_progress: OnProgress | None = None) -> Moved:
        return self._letters.drop(map(_message_of, letters), on_progress=on_progress)


def _message_of(letter: DeadItem) -> DeadMessage:
    return cast("DynoLetter", letter).message
