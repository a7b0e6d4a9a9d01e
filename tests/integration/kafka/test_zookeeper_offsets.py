"""Offsets in ZooKeeper: together with the user's own operations, once, whatever reply is lost."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from driving import Driver, Recorder

from leaderq.kafka import Record
from leaderq.term import Term
from leaderq.zookeeper import Create, Session, SetData

Drive = Callable[..., Driver]
Feed = Callable[[int, int], list[bytes]]


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
