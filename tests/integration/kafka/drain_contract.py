"""What every implementation of ``Drain`` must do on a real broker; inherit it and give a ``make_drain`` fixture."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from leaderq.errors import Deposed, KafkaFenced, UnknownTopic
from leaderq.kafka import Drain, Partition, Record
from leaderq.kafka.drain import DrainFactory, DrainSettings
from leaderq.term import Reason
from leaderq.testing import eventually

Make = Callable[..., Drain]
Feed = Callable[[int, int], list[bytes]]


def allowed() -> None:
    """May always join."""


class DrainContract:
    """One contract class for the port; each client inherits it."""

    factory: DrainFactory

    @pytest.fixture
    def make_drain(self, kafka_broker: Any, four_partitions: str) -> Any:
        """Open a drain of the test's topic; all are closed afterwards."""
        made: list[Drain] = []

        def make(**changes: Any) -> Drain:
            words = {"topics": (four_partitions,), "group": four_partitions, "member": "leader", **changes}
            drain = type(self).factory(DrainSettings(address=kafka_broker.address, **words))
            made.append(drain)
            drain.open()
            return drain

        yield make
        for drain in made:
            drain.close()

    @staticmethod
    def join(drain: Drain) -> Drain:
        eventually(lambda: drain.join(allowed, 1.0), message="the member is let in")
        stored = drain.committed(5.0)
        starts = drain.start_offsets(5.0)
        drain.seek({where: stored.get(where, starts[where]) for where in drain.assigned()})
        return drain

    @staticmethod
    def read(drain: Drain, count: int) -> dict[Partition, list[Record]]:
        found: dict[Partition, list[Record]] = {}

        def enough() -> bool:
            for where, records in drain.poll(0.5, 100).items():
                found.setdefault(where, []).extend(records)
            return sum(map(len, found.values())) >= count

        eventually(enough, message=f"{count} records are read")
        return found

    def test_opening_does_not_join(self, make_drain: Make) -> None:
        drain = make_drain()
        assert drain.assigned() == frozenset()
        assert drain.joins == 0
        assert len(drain.existing()) == 4

    def test_opening_does_not_fence_the_member(self, make_drain: Make, feed: Feed) -> None:
        leader = self.join(make_drain())
        make_drain().refresh(5.0)
        leader.commit(dict.fromkeys(leader.assigned(), 0), "", 5.0)

    def test_a_member_holds_all_partitions(self, make_drain: Make) -> None:
        drain = self.join(make_drain())
        assert drain.assigned() == drain.existing()

    def test_records_come_in_order_with_all_their_fields(self, make_drain: Make, feed: Feed) -> None:
        values = feed(0, 200)
        found = self.read(self.join(make_drain()), 200)
        for where, records in found.items():
            assert [record.offset for record in records] == list(range(len(records)))
            assert {(record.topic, record.partition) for record in records} == {where}
            assert all(record.timestamp_ms > 0 for record in records)
        assert sorted((r.value for rows in found.values() for r in rows), key=int) == values
        assert all(r.key == b"k%d" % (int(r.value) % 16) for rows in found.values() for r in rows)

    def test_no_poll_gives_more_than_asked_for(self, make_drain: Make, feed: Feed) -> None:
        feed(0, 200)
        drain = self.join(make_drain())
        assert all(sum(map(len, drain.poll(0.5, 7).values())) <= 7 for _ in range(10))

    def test_a_commit_is_read_back_by_the_next_member(self, make_drain: Make, feed: Feed) -> None:
        feed(0, 50)
        first = self.join(make_drain())
        ends = {where: rows[-1].offset + 1 for where, rows in self.read(first, 50).items()}
        first.commit(ends, "a note", 5.0)
        assert make_drain().committed(5.0) == ends

    def test_the_former_member_is_fenced(self, make_drain: Make) -> None:
        first = self.join(make_drain())
        self.join(make_drain())
        with pytest.raises(KafkaFenced):
            first.commit(dict.fromkeys(first.assigned(), 0), "", 5.0)

    def test_a_fenced_member_is_given_nothing_and_takes_nothing_back(self, make_drain: Make) -> None:
        first = self.join(make_drain())
        second = self.join(make_drain())
        for _ in range(5):
            assert first.poll(0.1, 10) == {}
        second.commit(dict.fromkeys(second.assigned(), 0), "", 5.0)

    def test_a_member_that_may_not_join_does_not(self, make_drain: Make) -> None:
        leader = self.join(make_drain())
        zombie = make_drain()

        def refuse() -> None:
            raise Deposed(term=1, reason=Reason.LEASE)

        with pytest.raises(Deposed):
            zombie.join(refuse, 5.0)
        leader.commit(dict.fromkeys(leader.assigned(), 0), "", 5.0)

    def test_seeking_back_reads_again(self, make_drain: Make, feed: Feed) -> None:
        feed(0, 40)
        drain = self.join(make_drain())
        self.read(drain, 40)
        drain.seek(dict.fromkeys(drain.assigned(), 0))
        assert sum(map(len, self.read(drain, 40).values())) == 40

    def test_positions_meet_the_ends_when_all_is_read(self, make_drain: Make, feed: Feed) -> None:
        feed(0, 40)
        drain = self.join(make_drain())
        self.read(drain, 40)
        assert drain.positions() == drain.end_offsets(5.0)

    def test_attending_reads_nothing(self, make_drain: Make, feed: Feed) -> None:
        feed(0, 10)
        drain = self.join(make_drain())
        before = drain.positions()
        drain.attend(0.5)
        assert drain.positions() == before

    def test_closing_leaves_the_member_in_the_group(self, make_drain: Make) -> None:
        first = self.join(make_drain())
        first.close()
        first.close()
        assert self.join(make_drain()).assigned()

    def test_an_unknown_topic_is_refused_by_name(self, make_drain: Make) -> None:
        with pytest.raises(UnknownTopic, match="no-such-topic"):
            make_drain(topics=("no-such-topic",))
