"""Offsets in ZooKeeper, one znode per topic, written through the term's fence.

``<root>/<career>/offsets/<topic>`` holds JSON: ``{"epochs": {"0": 5, ...}, "offsets": {"0": 17,
...}, "term": 3, "write": "3-81"}``. All topics of a batch, and the operations that the user's code
added to it, are one multi; so they happen together, or not at all, and only while this leader's
candidate znode exists.

*The answer to a write was lost*: the multi is sent again. Each znode is written under the version
that it had, so a multi that has happened is refused; then ``write``, unique to each, shows whose
write came before. (A read alone would not do: the server that is reached next may not know of the
write yet, Z5.) *The znode was deleted, or written by hand*: it is read, and the multi is sent
again. *Deposed*: the error of ``term.write``. *An operation of the user's is refused*:
``EffectRefused``; nothing of the multi has happened.

The partitions are assigned, not subscribed, so Kafka's group decides nothing here. The offsets are
also committed to the group, for tools that display lag.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

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
    ZooKeeperError,
    told,
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
from leaderq.zookeeper import Check, Create, Delete, Operation, Session, SetData
from leaderq.zookeeper.paths import validated_path
from leaderq.zookeeper.wire import Multi

REFUSED_OPERATIONS = NodeExists, NoNode, BadVersion, NotEmpty, TooLarge
"""What ZooKeeper says of an operation, or of a whole multi, for what it is."""
_AGAIN_S = 0.05


@dataclass(frozen=True)
class TopicOffsets:
    """What the znode of one topic holds, and the znode's ``version``; ``None``: there is no znode.
    An offset's epoch is stored beside it, if it is known.
    """

    offsets: dict[str, int]
    term: int
    write: str
    version: int | None = None

    def encoded(self) -> bytes:
        epochs = {number: epoch_of(at) for number, at in self.offsets.items() if epoch_of(at) >= 0}
        rows = {"epochs": epochs, "offsets": self.offsets, "term": self.term, "write": self.write}
        return json.dumps(rows, separators=(",", ":")).encode()

    @classmethod
    def decoded(cls, data: bytes, path: str, version: int | None = None) -> TopicOffsets:
        """Parse ``data``, read from ``path``; fields of newer versions are ignored."""
        remedy = "put them right, or delete it to begin again as auto_offset_reset says"
        with CorruptRecord.unless("the offsets of a topic", path, data, remedy):
            found = json.loads(data)
            epochs = found.get("epochs", {})
            offsets: dict[str, int] = {
                str(int(number)): Offset(int(offset), int(epochs.get(number, -1)))
                for number, offset in found["offsets"].items()
            }
            return cls(offsets, int(found["term"]), str(found["write"]), version)


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
        # Not from 1: a store that hangs may have one after it in the same term.
        self._numbers = itertools.count(int(clock.now_s() * 1000))
        self._background = SerialExecutor("leaderq-offsets")

    def attach(self, context: StoreContext) -> None:
        assert context.session is not None
        self._session, self._path = context.session, context.folder

    def add(self, effects: Iterable[Any]) -> None:
        """Add operations. One that cannot be sent raises here, where its record is known."""
        operations = tuple(effects)
        try:
            Multi(operations, lambda path, ends: validated_path(path, open_ended=ends), ())
        except Exception as exc:
            what = f"{operations!r:.200} cannot be written with offsets"
            raise ZooKeeperError(f"{what}: {told(exc)}") from exc
        super().add(operations)

    def look_up(self, admin: OffsetAdmin) -> dict[Partition, int]:
        return _offsets(self._read(admin.topics))

    def require_settable(self, admin: OffsetAdmin) -> None:
        if admin.is_led:
            raise RequestRefused(
                "a leader reads its offsets from ZooKeeper when its term begins, and not again;"
                " stop all candidates before they are set"
            )

    def put(self, admin: OffsetAdmin, offsets: Offsets) -> None:
        self.require_settable(admin)
        self._session.ensure_path(self._path)
        known = self._read({where.topic for where in offsets})
        new = _changed(known, offsets, None, f"operator-{clock.calendar_s():.3f}")
        # Whoever begins to lead meanwhile may have loaded what was there before.
        fence: list[Operation] = [Create(admin.term), Delete(admin.term)]  # nobody has ever led
        if admin.term_version is not None:
            fence = [Check(admin.term, admin.term_version)]
        try:
            self._session.multi([*fence, *self._puts(new)])
        except (BadVersion, NodeExists) as exc:
            what = "somebody began to lead, or set them, meanwhile; nothing was set here"
            raise RequestRefused(f"{what}: stop all candidates, and try again") from exc

    def load(self, consumer: ConsumerClient, term: Term, timeout_s: float) -> dict[Partition, int]:
        try:
            self._known = self._read({partition.topic for partition in consumer.existing()})
        except ConnectionLost as exc:
            raise StoreAway(f"the offsets cannot be read from ZooKeeper: {exc}") from exc
        return _offsets(self._known)

    def commit(self, consumer: ConsumerClient, term: Term, offsets: Offsets) -> CommitFuture:
        wanted = self._to_commit(offsets)
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

    def _read(self, topics: Iterable[str]) -> dict[str, TopicOffsets]:
        found = {}
        for topic in sorted(topics):
            with suppress(NoNode):
                data, stat = self._session.get(self._node(topic))
                found[topic] = TopicOffsets.decoded(data, self._node(topic), stat.version)
        return found

    def _puts(self, new: Mapping[str, TopicOffsets]) -> list[Operation]:
        return [
            Create(self._node(topic), kept.encoded())
            if kept.version is None
            else SetData(self._node(topic), kept.encoded(), kept.version)
            for topic, kept in new.items()
        ]

    def _write(self, term: Term, wanted: Uncommitted) -> None:
        mark = f"{term.number}-{next(self._numbers)}"
        while True:
            try:
                if self._is_written(term, wanted, mark):
                    break
            except ConnectionLost:
                clock.sleep(_AGAIN_S)  # term.wait returns at once in a term that is to end
        wanted.effects.clear()  # if it is asked for again, because nobody had waited
        self._settled(wanted)

    def _is_written(self, term: Term, wanted: Uncommitted, mark: str) -> bool:
        """Write what is ``wanted``, unless that has happened; ``False``: it is to be tried again,
        because a znode is not as it was known to be.
        """
        new = _changed(self._known, wanted.offsets, term.number, mark)
        try:
            results = term.write([*self._puts(new), *wanted.effects])
        except REFUSED_OPERATIONS as exc:
            if exc.index is None or exc.index >= len(new):
                if wanted.effects:
                    raise EffectRefused(exc) from exc
                raise
            self._session.ensure_path(self._path)
            # What was refused was a write, so this read shows all that happened before it.
            found = self._read(new)
            others = {topic: it for topic, it in self._known.items() if topic not in new}
            self._known = {**others, **found}
            return any(kept.write == mark for kept in found.values())
        for (topic, kept), result in zip(new.items(), results, strict=False):
            version = 0 if kept.version is None else result.version
            self._known[topic] = replace(kept, version=version)
        return True


def _offsets(found: Mapping[str, TopicOffsets]) -> dict[Partition, int]:
    return {
        Partition(topic, int(number)): offset
        for topic, kept in found.items()
        for number, offset in kept.offsets.items()
    }


def _changed(
    known: Mapping[str, TopicOffsets], offsets: Offsets, term: int | None, write: str
) -> dict[str, TopicOffsets]:
    """Return what to store of each topic. ``term``: ``None`` leaves what is stored."""
    new: dict[str, TopicOffsets] = {}
    for (topic, number), offset in offsets.items():
        if topic not in new:
            before = known.get(topic, TopicOffsets({}, 0, ""))
            by = before.term if term is None else term
            new[topic] = TopicOffsets(dict(before.offsets), by, write, before.version)
        new[topic].offsets[str(number)] = offset
    return new
