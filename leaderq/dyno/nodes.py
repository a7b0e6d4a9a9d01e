"""How all parts of one queue reach its znodes, what became of each transition sent through an
idempotent writer, and what is left over among them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from urllib.parse import unquote

from leaderq import chance, host
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
from leaderq.dyno.transitions import Operations, absence, without_missing
from leaderq.errors import (
    BadVersion,
    LeaderqError,
    NodeExists,
    NoNode,
    QueueClosed,
    ZooKeeperError,
)
from leaderq.reading import SizedReader, children_of
from leaderq.retrying import retry_until_connected
from leaderq.threads import Retry, primitives
from leaderq.writing import SequencedWriter
from leaderq.writing.outcomes import outcomes
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
    retry: Retry
    ageing_s: float | None
    is_closed: bool = False
    _pid: int = field(default_factory=lambda: host.pid())
    _opening: primitives.Lock = field(default_factory=lambda: primitives.Lock())
    _writer: SequencedWriter | None = None

    def check_open(self) -> None:
        """:raises QueueClosed: it was closed, or belongs to the process that this is a fork of."""
        if host.pid() != self._pid:
            raise QueueClosed(
                f"the queue {self.paths.root} belongs to process {self._pid}; make one after the"
                " fork"
            )
        if self.is_closed:
            raise QueueClosed(f"the queue {self.paths.root} was closed")

    def writer(self) -> SequencedWriter:
        """The writer of anything but a consumer's writes: its guard outlives the session.

        :raises ConnectionLost: the servers were unreachable for 30 s when it was first needed.
        """
        self.check_open()
        with self._opening:
            if self._writer is None:
                writer = SequencedWriter(self.session, f"{self.paths.pushes}/{chance.uuid4().hex}")
                retry_until_connected(
                    self.session, partial(self._begin, writer), check=self.check_open
                )
                self._writer = writer
            return self._writer

    def _begin(self, writer: SequencedWriter) -> None:
        writer.open()
        for shard in self.shards:
            for parent in self.paths.shard(shard).parents:
                self.session.ensure_path(parent)
        self.session.ensure_path(self.paths.ids)

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


OVERTAKEN = (BadVersion, NoNode, NodeExists)
"""What the servers say of a transition from a state that is not that of the message any more."""


def apply_all(
    writer: SequencedWriter, groups: Sequence[Operations], path: str
) -> list[LeaderqError | None]:
    """Write these, each all or nothing; for each its error, or ``None``. What goes beside a message
    (its id, the marker of its rest) is left out if it was taken away by hand, or nobody could ever
    settle that message."""
    errors = [error for _, error in outcomes(writer, groups, path)]
    for at, group in enumerate(groups):
        while (error := errors[at]) is not None and within(error, path):
            fewer = without_missing(group, error)
            if fewer is None:
                break
            group = fewer
            errors[at] = outcomes(writer, [group], path)[0][1]
    return errors


def within(error: LeaderqError, path: str) -> bool:
    """Whether it is about a znode below ``path``, and not about one of the user's own."""
    return isinstance(error, ZooKeeperError) and (error.path or "").startswith(f"{path}/")


@dataclass(frozen=True, slots=True)
class Leftover:
    """A useless znode, ``why`` it is useless, and the operations that delete it if it still is."""

    path: str
    why: str
    operations: Operations


def leftovers(nodes: QueueNodes, place: Callable[[str], object]) -> Iterator[Leftover]:
    """Claims and markers without a message, markers that are not those of their claims, and ids
    without a message; each checked again, because znodes in use change meanwhile.
    """
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
    messages = set(children_of(session, paths.messages))  # last: it includes news of the others
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
