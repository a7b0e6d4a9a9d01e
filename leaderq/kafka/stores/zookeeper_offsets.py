"""Offsets in ZooKeeper, one znode per topic, written through the term's fence.

``<root>/<career>/offsets/<topic>`` holds JSON: ``{"epochs": {"0": 5, ...}, "offsets": {"0": 17,
...}, "term": 3, "write": "3-81"}``. All topics of a batch, and the operations that the user's code
added to it, are one multi; so they happen together, or not at all, and only while this leader's
candidate znode exists.

*The answer to a write was lost*: the znode tells. ``write`` is unique to each write: if the znode
has it, the multi happened; if not, the multi is sent again (only the leader writes, so nothing else
can have come between). *Deposed*: the error of ``term.write``. *An operation of the user's is
refused*: ``EffectRefused``; nothing of the multi has happened.

The partitions are assigned, not subscribed, so Kafka's group decides nothing here. The offsets are
also committed to the group, for tools that display lag.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from functools import partial
from itertools import islice

from leaderq.base import clock
from leaderq.errors import (
    BadVersion,
    ConnectionLost,
    CorruptRecord,
    NodeExists,
    NoNode,
    NotEmpty,
    RequestRefused,
    TooLarge,
)
from leaderq.kafka.clients.consumer import (
    CommitFuture,
    ConsumerClient,
    EffectRefused,
    Offsets,
)
from leaderq.kafka.groups import OffsetAdmin
from leaderq.kafka.record import Offset, Partition, epoch_of
from leaderq.kafka.stores.offset_store import (
    DeliveryPromise,
    KeepsEffects,
    StoreAway,
    StoreContext,
    Uncommitted,
)
from leaderq.term import Term
from leaderq.threads import SerialExecutor
from leaderq.zookeeper import Check, Create, Operation, Session, SetData

REFUSED_OPERATIONS = NodeExists, NoNode, BadVersion, NotEmpty, TooLarge
"""What ZooKeeper says of an operation, or of a whole multi, for what it is."""


@dataclass(frozen=True)
class TopicOffsets:
    """What the znode of one topic holds. An offset's epoch is stored beside it, if it is known."""

    offsets: dict[str, int]
    term: int
    write: str

    def encoded(self) -> bytes:
        epochs = {number: epoch_of(at) for number, at in self.offsets.items() if epoch_of(at) >= 0}
        rows = {**vars(self), "epochs": epochs}
        return json.dumps(rows, sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def decoded(cls, data: bytes, path: str) -> TopicOffsets:
        """Parse ``data``, read from ``path``; fields of newer versions are ignored."""
        try:
            found = json.loads(data)
            epochs = found.get("epochs", {})
            offsets: dict[str, int] = {
                str(int(number)): Offset(int(offset), int(epochs.get(number, -1)))
                for number, offset in found["offsets"].items()
            }
            return cls(offsets, int(found["term"]), str(found["write"]))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as exc:
            raise CorruptRecord(
                f"{path} holds {data[:200]!r}, which leaderq did not write ({exc}); put the offsets"
                " right by hand, or delete it to begin again as auto_offset_reset says"
            ) from exc


class ZooKeeperOffsets(KeepsEffects):
    """Offsets in ZooKeeper, below the career's znode. They are written together with the operations
    added for their batch, once, and only by the newest leader: the term fences all others.
    """

    word = "zookeeper"
    promises = (
        DeliveryPromise.EXACTLY_ONCE,
        DeliveryPromise.AT_LEAST_ONCE,
        DeliveryPromise.AT_MOST_ONCE,
    )
    remedy = (
        "set the offsets (leaderq offsets set), or put back the znodes that hold them, below"
        " 'offsets' of the career, from a backup"
    )
    offers = "write_with_offsets"

    _session: Session

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[str, TopicOffsets] = {}
        self._numbers = itertools.count(1)
        self._background = SerialExecutor("leaderq-offsets")

    def attach(self, context: StoreContext) -> None:
        assert context.session is not None
        self._session, self._path = context.session, context.folder

    def look_up(self, admin: OffsetAdmin) -> dict[Partition, int]:
        found = {topic: self._read(topic) for topic in admin.topics}
        return {
            Partition(topic, int(number)): offset
            for topic, kept in found.items()
            if kept is not None
            for number, offset in kept.offsets.items()
        }

    def require_settable(self, admin: OffsetAdmin) -> None:
        if admin.is_led:
            raise RequestRefused(
                "a leader reads its offsets from ZooKeeper when its term begins, and not again;"
                " stop all candidates before they are set"
            )

    def put(self, admin: OffsetAdmin, offsets: Offsets) -> None:
        self.require_settable(admin)
        self._session.ensure_path(self._path)
        puts: list[Operation] = []
        for topic in sorted({where.topic for where in offsets}):
            kept = self._read(topic)
            before = kept or TopicOffsets({}, 0, "")
            new = {str(where.number): at for where, at in offsets.items() if where.topic == topic}
            mark = f"operator-{clock.calendar_s():.3f}"
            data = TopicOffsets({**before.offsets, **new}, before.term, mark).encoded()
            puts.append((Create if kept is None else SetData)(self._node(topic), data))
        # Whoever begins to lead meanwhile may have loaded what was there before.
        fence = [] if admin.term_version is None else [Check(admin.term, admin.term_version)]
        try:
            self._session.multi([*fence, *puts])
        except (BadVersion, NodeExists) as exc:
            what = "somebody began to lead meanwhile, and nothing was set; stop all candidates"
            raise RequestRefused(what) from exc

    def load(self, consumer: ConsumerClient, term: Term, timeout_s: float) -> dict[Partition, int]:
        topics = sorted({partition.topic for partition in consumer.existing()})
        try:
            found = {topic: self._read(topic) for topic in topics}
        except ConnectionLost as exc:
            raise StoreAway(f"the offsets cannot be read from ZooKeeper: {exc}") from exc
        self._known = {topic: kept for topic, kept in found.items() if kept is not None}
        return {
            Partition(topic, int(number)): offset
            for topic, kept in self._known.items()
            for number, offset in kept.offsets.items()
        }

    def commit(self, consumer: ConsumerClient, term: Term, offsets: Offsets) -> CommitFuture:
        wanted = self._to_commit(Uncommitted, offsets)
        return self._background.submit(partial(self._write, term, wanted))

    def commit_positions(
        self, consumer: ConsumerClient, term: Term, offsets: Offsets
    ) -> CommitFuture:
        return self._background.submit(partial(self._write, term, Uncommitted([], dict(offsets))))

    def close(self) -> None:
        """Drop waiting operations. A write under way is either done, or refused by the fence."""
        self.undo()
        self._background.close()

    def _node(self, topic: str) -> str:
        return f"{self._path}/{topic}"

    def _read(self, topic: str) -> TopicOffsets | None:
        try:
            data, _ = self._session.get(self._node(topic))
        except NoNode:
            return None
        return TopicOffsets.decoded(data, self._node(topic))

    def _write(self, term: Term, wanted: Uncommitted) -> None:
        new = self._changed(term, wanted.offsets)
        while True:
            try:
                puts = [
                    (SetData if topic in self._known else Create)(self._node(topic), kept.encoded())
                    for topic, kept in new.items()
                ]
                term.write([*puts, *wanted.effects])
                break
            except ConnectionLost:
                if self._happened(term, new):
                    break
            except REFUSED_OPERATIONS as exc:
                topic = None if exc.index is None else next(islice(new, exc.index, None), None)
                if topic is None and wanted.effects:
                    raise EffectRefused(exc) from exc
                if topic is None or not isinstance(exc, NoNode):
                    raise
                self._known.pop(topic, None)  # deleted by somebody: it is made again
                self._session.ensure_path(self._path)
        self._known.update(new)
        wanted.effects.clear()  # if it is asked for again, because nobody had waited
        self._settled(wanted)

    def _changed(self, term: Term, offsets: Offsets) -> dict[str, TopicOffsets]:
        write = f"{term.number}-{next(self._numbers)}"
        new: dict[str, TopicOffsets] = {}
        for (topic, number), offset in offsets.items():
            if topic not in new:
                known = self._known[topic].offsets if topic in self._known else {}
                new[topic] = TopicOffsets(dict(known), term.number, write)
            new[topic].offsets[str(number)] = offset
        return new

    def _happened(self, term: Term, new: dict[str, TopicOffsets]) -> bool:
        topic, kept = next(iter(new.items()))
        while True:
            term.check()
            try:
                found = self._read(topic)
                return found is not None and found.write == kept.write
            except ConnectionLost:
                clock.sleep(0.05)  # term.wait returns at once in a term that is to end
