"""Offsets in ZooKeeper: together with the user's own operations, once, whatever reply is lost."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from typing import Any

from driving import Driver, Recorder, new_term

from leaderq.errors import ConnectionLost
from leaderq.kafka import Partition, Record
from leaderq.kafka.stores.zookeeper_offsets import ZooKeeperOffsets
from leaderq.term import Term
from leaderq.testing import eventually
from leaderq.zookeeper import Create, Session, SetData, connect

Drive = Callable[..., Driver]
Feed = Callable[[int, int], list[bytes]]

MULTI = 14


class Counting(Recorder):
    """Writes what it has handled beside the offsets: the number of records in all, and a znode for
    each batch.
    """

    def inaugurate(self, term: Term) -> None:
        self.base = f"{self.settings.root}/results"
        self.session.ensure_path(self.base)

    def handle(self, records: Sequence[Record], term: Term) -> None:
        super().handle(records, term)
        self.write_with_offsets(
            SetData(self.base, b"%d" % len(self.seen)),
            Create(f"{self.base}/batch-", b"%d" % len(records), sequential=True),
        )

    def written(self) -> list[int]:
        names = sorted(self.session.children(self.base))
        return [int(self.session.get(f"{self.base}/{name}")[0]) for name in names]


def kept(session: Session, root: str, topic: str) -> dict[str, int]:
    found: dict[str, int] = json.loads(session.get(f"{root}/{topic}/offsets/{topic}")[0])["offsets"]
    return found


def test_offsets_and_the_users_operations_go_together(
    drive: Drive, feed: Feed, session: Session, znode_root: str, four_partitions: str
) -> None:
    feed(0, 300)
    leader = drive(Counting, offsets="zookeeper", max_records=40).begin()
    while len(leader.career.seen) < 300:
        leader.career.execute(leader.term)
        if leader.career.seen:
            assert sum(kept(session, znode_root, four_partitions).values()) == len(
                leader.career.seen
            )
            assert int(session.get(f"{znode_root}/results")[0]) == len(leader.career.seen)
    assert sum(leader.career.written()) == 300


def test_a_write_whose_answer_is_lost_is_neither_lost_nor_done_twice(
    drive: Drive, feed: Feed, zookeeper_server: Any, fault_proxy: Callable[[str], Any]
) -> None:
    proxy = fault_proxy(zookeeper_server.address)
    feed(0, 400)
    with connect(proxy.address, timeout_s=30.0) as behind:
        leader = drive(Counting, offsets="zookeeper", max_records=20)
        leader.career.session = behind
        leader.career.retire()
        leader.career.prepare()
        leader.begin()
        for target in range(50, 400, 50):
            proxy.drop_reply_to(
                lambda request: (
                    len(request) >= 8 and struct.unpack_from("!i", request, 4)[0] == MULTI
                )
            )
            leader.run_until(lambda target=target: len(leader.career.seen) >= target, within_s=60)
        leader.run_until(lambda: len(leader.career.seen) >= 400)
        assert proxy.dropped >= 5
        eventually(lambda: sum(leader.career.written()) == 400)
        assert len({(record.partition, record.offset) for record in leader.career.seen}) == len(
            leader.career.seen
        )


class Assigned:
    """What the store asks of a consumer."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition

    def join(self, allowed: Callable[[], None], timeout_s: float) -> bool:
        return True

    def existing(self) -> frozenset[Partition]:
        return frozenset({self._partition})


def begun(
    session: Session, root: str, write: Callable[[Any, Any], Any]
) -> tuple[Any, Callable[[int], bool]]:
    """A store in a term whose writes are ``write``'s; and a commit of an offset with one effect."""
    where = Partition("t", 0)
    consumer: Any = Assigned(where)
    store = ZooKeeperOffsets(session, f"{root}/offsets")
    term = new_term(session, write=write)
    session.ensure_path(f"{root}/offsets")
    assert store.load(consumer, term, 1.0) == {}

    def commit(offset: int) -> bool:
        store.add([Create(f"{root}/effect-", sequential=True)])
        return store.commit(consumer, term, {where: offset}).done(30.0)

    return store, commit


def effects(session: Session, root: str) -> int:
    return sum(name.startswith("effect-") for name in session.children(root))


def test_the_znode_tells_whether_a_write_without_an_answer_has_happened(
    session: Session, znode_root: str
) -> None:
    def write(_term: Any, operations: Any) -> Any:
        fate = next(fates)
        done = session.multi(operations) if "sent" in fate else None
        if "answered" not in fate:
            raise ConnectionLost("no answer")
        return done

    fates = iter(["sent, answered", "", "sent, answered", "sent", "sent, answered"])
    store, commit = begun(session, znode_root, write)
    for count in (1, 2, 3, 4):
        assert commit(count * 10)
        assert effects(session, znode_root) == count
        assert json.loads(session.get(f"{znode_root}/offsets/t")[0])["offsets"] == {"0": count * 10}
    store.close()
