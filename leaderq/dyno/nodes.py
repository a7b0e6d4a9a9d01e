"""How all parts of one queue reach its znodes, and what is left over among them."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from urllib.parse import unquote

from leaderq.dyno.bodies import Bodies
from leaderq.dyno.layout import (
    DynoPaths,
    MessageName,
    ShardPaths,
    kept_until_ms,
    parsed_name,
    parsed_rest,
)
from leaderq.dyno.shard_view import read_claims
from leaderq.dyno.transitions import Operations, absence
from leaderq.dyno.writes import apply_all
from leaderq.errors import LeaderqError, NoNode, QueueClosed
from leaderq.reading import SizedReader, children_of
from leaderq.retrying import RetryPolicy
from leaderq.writing import SequencedWriter
from leaderq.zookeeper import Check, Delete, Session

MayMatch = Callable[[str, MessageName], bool]
Named = tuple[str, bytes]


@dataclass(slots=True)
class QueueNodes:
    """One queue, as this process uses it: see :class:`DynoQueue`."""

    session: Session
    paths: DynoPaths
    shards: tuple[str, ...]
    bodies: Bodies
    now_ms: Callable[[], int]
    name: str
    current: str | None
    """The shard to serve first."""
    lease_s: float
    retry: RetryPolicy
    ageing_s: float | None
    is_closed: bool = False
    _pid: int = field(default_factory=os.getpid)
    _opening: threading.Lock = field(default_factory=threading.Lock)
    _writer: SequencedWriter | None = None

    def check_open(self) -> None:
        """:raises QueueClosed: it was closed, or belongs to the process that this is a fork of."""
        if os.getpid() != self._pid:
            raise QueueClosed(
                f"the queue {self.paths.root} belongs to process {self._pid}; make one after the"
                " fork"
            )
        if self.is_closed:
            raise QueueClosed(f"the queue {self.paths.root} was closed")

    def writer(self) -> SequencedWriter:
        """Of what is not a consumer's: its guard outlives the session."""
        self.check_open()
        with self._opening:
            if self._writer is None:
                writer = SequencedWriter(self.session, f"{self.paths.pushes}/{uuid.uuid4().hex}")
                writer.open()
                for shard in self.shards:
                    for parent in self.paths.shard(shard).parents:
                        self.session.ensure_path(parent)
                self.session.ensure_path(self.paths.ids)
                self._writer = writer
            return self._writer

    def close_writer(self, timeout_s: float) -> bool:
        with self._opening:
            return self._writer is None or self._writer.close(timeout_s)

    def apply(self, operations: Operations) -> LeaderqError | None:
        return apply_all(self.writer(), [operations], self.paths.root)[0]

    def messages(self, shard: str, may_match: MayMatch | None = None) -> Iterator[Named]:
        """Names and data of all messages there that may match, about a megabyte at a time."""
        path = self.paths.shard(shard).messages
        parsed = {name: parsed_name(name) for name in sorted(children_of(self.session, path))}
        names = [
            name
            for name, said in parsed.items()
            if said and (may_match is None or may_match(shard, said))
        ]
        for name, answer in SizedReader(self.session, path).read_all(names):
            if isinstance(answer, tuple):
                yield name, answer[0]


@dataclass(frozen=True, slots=True)
class Leftover:
    """A znode, ``why`` it is of no use, and what deletes it if that still holds."""

    path: str
    why: str
    operations: Operations


def leftovers(nodes: QueueNodes, place: Callable[[str], object]) -> Iterator[Leftover]:
    """Claims and markers without a message, markers that are not those of their claims, and ids
    without a message; each looked at again, as what is in use changes meanwhile."""
    session, paths = nodes.session, nodes.paths
    for shard in nodes.shards:
        yield from _in_shard(session, paths.shard(shard))
    for part in children_of(session, paths.ids):
        path = f"{paths.ids}/{part}"
        try:
            data, stat = session.get(path)
        except NoNode:
            continue
        if kept_until_ms(data) is None and place(unquote(part)) is None:
            yield Leftover(path, "no message has this id", (Delete(path, stat.version),))


def _in_shard(session: Session, paths: ShardPaths) -> Iterator[Leftover]:
    claims, markers = children_of(session, paths.claims), children_of(session, paths.rests)
    messages = set(children_of(session, paths.messages))  # last: what is new in the others is in it
    for marker in markers:
        rest = parsed_rest(marker)
        if rest is None:
            continue
        path, claim_path = paths.rest(marker), paths.claim(rest.name)
        if rest.name not in claims:
            gone = (*absence(claim_path), Delete(path))
        else:
            read = read_claims(session, paths, [rest.name])
            if not read or read[0].resting == marker:
                continue
            gone = (Check(claim_path, read[0].version), Delete(path))
        if session.exists(path) is not None:
            yield Leftover(path, "a marker that is not of its claim", gone)
    for name in claims:
        if name not in messages and parsed_name(name) is not None:
            for claim in read_claims(session, paths, [name]):
                gone = (*absence(paths.message(name)), Delete(paths.claim(name), claim.version))
                yield Leftover(paths.claim(name), "a claim without a message", gone)
