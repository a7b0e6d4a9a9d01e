"""What every implementation of ``ConsumerClient`` must do on a real broker; inherit it and give a ``make_drain`` fixture."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.structs import ConsumerGroupMetadata

from leaderq.errors import Deposed, KafkaFenced, ServersUnreachable, UnknownTopic
from leaderq.kafka import ConsumerClient, Partition, Record
from leaderq.kafka.clients.consumer import ConsumerFactory, ConsumerSettings, KafkaAway, Offsets
from leaderq.kafka.topics import create_topics
from leaderq.term import Reason
from leaderq.testing import eventually

Make = Callable[..., ConsumerClient]
Feed = Callable[[int, int], list[bytes]]


def allowed() -> None:
    """May always join."""


def commit(drain: ConsumerClient, offsets: Offsets, note: str = "") -> None:
    """Commit, and wait until the broker has acknowledged it."""
    saving = drain.commit(offsets, note)
    assert saving.done(30.0)
    assert saving.done(0.0)


def transactional(address: str, name: str) -> KafkaProducer:
    """A producer whose transactions are initialised."""
    producer = KafkaProducer(bootstrap_servers=address, transactional_id=name)
    producer.init_transactions()
    return producer


def make_warm(factory: ConsumerFactory, address: str, topic: str) -> ConsumerClient:
    """A drain that gives up soon."""
    settings = ConsumerSettings(address=address, topics=(topic,), group=topic, member="leader", open_timeout_s=2.0)
    return factory(settings)


def _administrated(address: str, act: Callable[[KafkaAdminClient], Any]) -> None:
    admin = KafkaAdminClient(bootstrap_servers=address)
    try:
        act(admin)
    finally:
        admin.close()


def delete_topic(address: str, topic: str) -> None:
    """Delete it, and return when it is gone."""
    _administrated(address, lambda admin: admin.delete_topics([topic]))
    eventually(lambda: not _has_topic(address, topic), timeout_s=30, message="the topic is gone")


def _has_topic(address: str, topic: str) -> bool:
    found: list[str] = []
    _administrated(address, lambda admin: found.extend(admin.list_topics()))
    return topic in found


def add_partitions(address: str, topic: str, count: int) -> None:
    """Let the topic have so many."""
    _administrated(address, lambda admin: admin.create_partitions({topic: count}))


class DrainContract:
    """One contract class for the port; each client inherits it."""

    factory: ConsumerFactory

    @pytest.fixture
    def make_drain(self, kafka_broker: Any, four_partitions: str) -> Any:
        """Open a drain of the test's topic; all are closed afterwards."""
        made: list[ConsumerClient] = []

        def make(**changes: Any) -> ConsumerClient:
            words = {"topics": (four_partitions,), "group": four_partitions, "member": "leader", **changes}
            drain = type(self).factory(ConsumerSettings(address=kafka_broker.address, **words))
            made.append(drain)
            drain.open()
            return drain

        yield make
        for drain in made:
            drain.close()

    @staticmethod
    def join(drain: ConsumerClient) -> ConsumerClient:
        eventually(lambda: drain.join(allowed, 1.0), timeout_s=30, message="the member is let in")
        stored = drain.committed(20.0)
        starts = drain.start_offsets(20.0)
        drain.seek({where: stored.get(where, starts[where]) for where in drain.assigned()})
        return drain

    @staticmethod
    def read(drain: ConsumerClient, count: int) -> dict[Partition, list[Record]]:
        found: dict[Partition, list[Record]] = {}

        def enough() -> bool:
            for where, records in drain.poll(0.5, 100).items():
                found.setdefault(where, []).extend(records)
            return sum(map(len, found.values())) >= count

        eventually(enough, timeout_s=30, message=f"{count} records are read")
        return found

    def test_opening_does_not_join(self, make_drain: Make) -> None:
        drain = make_drain()
        assert drain.assigned() == frozenset()
        assert drain.joins == 0
        assert len(drain.existing()) == 4

    def test_opening_does_not_fence_the_member(self, make_drain: Make, feed: Feed) -> None:
        leader = self.join(make_drain())
        make_drain().refresh(20.0)
        commit(leader, dict.fromkeys(leader.assigned(), 0))

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
        commit(first, ends, "a note")
        assert make_drain().committed(20.0) == ends

    def test_the_former_member_is_fenced(self, make_drain: Make) -> None:
        first = self.join(make_drain())
        self.join(make_drain())
        with pytest.raises(KafkaFenced):
            commit(first, dict.fromkeys(first.assigned(), 0))

    def test_a_fenced_member_takes_nothing_back_and_saves_nothing(self, make_drain: Make, feed: Feed) -> None:
        first = self.join(make_drain())
        second = self.join(make_drain())
        feed(0, 40)
        with suppress(KafkaFenced):  # a fence stops commits, not fetches: some clients are told, some go on reading
            for _ in range(20):
                first.poll(0.2, 10)
        with pytest.raises(KafkaFenced):
            commit(first, dict.fromkeys(second.assigned(), 1))
        self.read(second, 40)
        commit(second, second.positions())

    def test_a_member_that_may_not_join_does_not(self, make_drain: Make) -> None:
        leader = self.join(make_drain())
        zombie = make_drain()

        def refuse() -> None:
            raise Deposed(term=1, reason=Reason.LEASE)

        with pytest.raises(Deposed):
            zombie.join(refuse, 5.0)
        commit(leader, dict.fromkeys(leader.assigned(), 0))

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
        assert drain.positions() == drain.end_offsets(20.0)

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

    def test_a_poll_that_may_not_wait_gives_what_has_come(self, make_drain: Make, feed: Feed) -> None:
        drain = self.join(make_drain())
        assert drain.poll(0.0, 100) == {}
        feed(0, 40)
        found: list[Record] = []

        def all_came() -> bool:
            found.extend(record for rows in drain.poll(0.0, 100).values() for record in rows)
            return len(found) == 40

        eventually(all_came, timeout_s=30, message="records come to polls that do not wait")

    def test_attending_between_polls_loses_and_repeats_nothing(self, make_drain: Make, feed: Feed) -> None:
        values = feed(0, 3000)
        drain = self.join(make_drain())
        found: dict[Partition, list[Record]] = {}

        def all_came() -> bool:
            for _ in range(3):
                drain.attend(0.1)
            for where, rows in drain.poll(0.5, 70).items():
                found.setdefault(where, []).extend(rows)
            return sum(map(len, found.values())) >= len(values)

        eventually(all_came, timeout_s=60, message="all records are read")
        assert all([record.offset for record in rows] == list(range(len(rows))) for rows in found.values())
        assert drain.positions() == drain.end_offsets(20.0)

    def test_a_member_that_attends_for_long_reads_on_where_it_was(self, make_drain: Make, feed: Feed) -> None:
        feed(0, 400)
        drain = self.join(make_drain())
        first = self.read(drain, 10)
        for _ in range(250):
            drain.attend(0.1)
        rest = self.read(drain, 400 - sum(map(len, first.values())))
        for where in drain.assigned():
            offsets = [record.offset for part in (first, rest) for record in part.get(where, [])]
            assert offsets == list(range(len(offsets)))

    def test_seeking_while_records_wait_gives_none_of_them(self, make_drain: Make, feed: Feed) -> None:
        feed(0, 400)
        drain = self.join(make_drain())
        self.read(drain, 20)
        drain.attend(0.1)
        drain.seek(dict.fromkeys(drain.assigned(), 5))
        found = self.read(drain, 100)
        assert all(rows[0].offset == 5 for rows in found.values())

    def test_seeking_one_partition_leaves_the_others(self, make_drain: Make, feed: Feed) -> None:
        feed(0, 400)
        drain = self.join(make_drain())
        self.read(drain, 400)
        one = min(drain.assigned())
        drain.seek({one: 0})
        found = self.read(drain, drain.end_offsets(20.0)[one])
        assert set(found) == {one}
        assert drain.poll(0.5, 100) == {}

    def test_partitions_taken_again_and_again_are_all_read_each_time(self, make_drain: Make, feed: Feed) -> None:
        feed(0, 400)
        drain = make_drain(membership=False)
        for round_ in range(60):
            self.join(drain)
            seen: set[Partition] = set()
            eventually(
                lambda seen=seen: (seen.update(drain.poll(0.2, 400)), seen == drain.assigned())[1],
                timeout_s=30,
                message=f"every partition is read in round {round_}",
            )

    def test_joining_again_sets_no_position_by_itself_twice(self, make_drain: Make, feed: Feed) -> None:
        feed(0, 40)
        drain = self.join(make_drain())
        self.read(drain, 40)
        joins = drain.joins
        drain.rejoin()
        eventually(lambda: (drain.attend(1.0), drain.joins > joins)[1], timeout_s=30, message="the group has assigned again")
        drain.seek(dict.fromkeys(drain.assigned(), 0))
        assert sum(map(len, self.read(drain, 40).values())) == 40
        commit(drain, drain.positions())

    def test_records_of_every_client_are_equal(self, make_drain: Make, feed: Feed) -> None:
        feed(0, 10)
        found = self.read(self.join(make_drain()), 10)
        for record in (record for rows in found.values() for record in rows):
            assert isinstance(record, Record)
            copy = pickle.loads(pickle.dumps(record))
            assert type(copy) is Record
            assert (copy, repr(copy), hash(copy), tuple(copy)) == (record, repr(record), hash(record), tuple(record))
            assert record.replace(value=1).value == 1
            assert record.replace(value=1) != record
            assert record.size == len(record.key) + len(record.value)

    def test_what_a_poll_gives_is_a_sequence(self, make_drain: Make, feed: Feed) -> None:
        feed(0, 100)
        drain = self.join(make_drain())
        polled = eventually(lambda: drain.poll(0.5, 100), timeout_s=30, message="records come")
        rows = max(polled.values(), key=len)
        assert list(rows) == [rows[index] for index in range(len(rows))]
        assert list(rows[1:]) == list(rows)[1:]
        assert rows[-1].offset == rows[0].offset + len(rows) - 1

    def test_the_end_is_the_last_stable_offset(self, make_drain: Make, feed: Feed, kafka_broker: Any) -> None:
        drain = self.join(make_drain())
        where = min(drain.assigned())
        producer = transactional(kafka_broker.address, where.topic)
        try:
            producer.begin_transaction()
            producer.send(where.topic, b"value", partition=where.number).get(timeout=30)
            assert drain.end_offsets(20.0)[where] == 0
            assert drain.poll(0.5, 10) == {}
            producer.abort_transaction()
        finally:
            producer.close()
        eventually(
            lambda: drain.end_offsets(20.0)[where] == 2,
            timeout_s=30,
            message="the aborted record and its marker lie before the end",
        )
        eventually(
            lambda: (drain.poll(0.2, 10), drain.positions() == drain.end_offsets(20.0))[1],
            timeout_s=30,
            message="the position has passed what is not read",
        )

    def test_bug_23_offsets_of_an_open_transaction_are_waited_for(self, make_drain: Make, kafka_broker: Any) -> None:
        first = self.join(make_drain())
        where = min(first.assigned())
        commit(first, {where: 0})
        producer = transactional(kafka_broker.address, where.topic)
        try:
            producer.begin_transaction()
            producer.send_offsets_to_transaction(
                {TopicPartition(*where): OffsetAndMetadata(7, "", -1)}, ConsumerGroupMetadata(where.topic)
            )
            drain = make_warm(type(self).factory, kafka_broker.address, where.topic)
            with pytest.raises((KafkaAway, ServersUnreachable)):
                drain.open()
            with closing(KafkaConsumer(bootstrap_servers=kafka_broker.address, group_id=where.topic)) as plain:
                assert plain.committed(TopicPartition(*where)) == 0  # a plain consumer has the bug
            producer.commit_transaction()
        finally:
            producer.close()
        assert make_drain().committed(20.0)[where] == 7

    def test_topics_made_again_have_other_ids(self, make_drain: Make, kafka_broker: Any, four_partitions: str) -> None:
        before = make_drain().topic_ids()
        delete_topic(kafka_broker.address, four_partitions)
        create_topics(kafka_broker.address, {four_partitions: 4})
        after = make_drain().topic_ids()
        assert set(before) == set(after) == {four_partitions}
        assert before != after

    def test_added_partitions_are_noticed_and_taken(self, make_drain: Make, feed: Feed, kafka_broker: Any) -> None:
        drain = self.join(make_drain())
        add_partitions(kafka_broker.address, min(drain.assigned()).topic, 6)

        def noticed() -> bool:
            drain.poll(0.2, 10)
            drain.attend(0.1)
            return len(drain.existing()) == 6

        eventually(noticed, timeout_s=60, message="the new partitions are known")
        drain.rejoin()
        eventually(
            lambda: (drain.attend(1.0), len(drain.assigned()) == 6)[1], timeout_s=30, message="the new partitions are held"
        )

    def test_without_membership_all_partitions_are_taken_and_nobody_is_fenced(self, make_drain: Make, feed: Feed) -> None:
        feed(0, 40)
        leader = self.join(make_drain())
        apart = self.join(make_drain(membership=False))
        assert apart.assigned() == apart.existing()
        assert apart.joins == 1
        assert sum(map(len, self.read(apart, 40).values())) == 40
        apart.attend(0.1)
        commit(leader, dict.fromkeys(leader.assigned(), 0))

    def test_without_membership_offsets_can_be_told_to_an_empty_group(self, make_drain: Make) -> None:
        apart = self.join(make_drain(membership=False))
        commit(apart, dict.fromkeys(apart.assigned(), 3), "for information")
        assert set(make_drain(membership=False).committed(20.0).values()) == {3}

    def test_without_membership_nothing_is_taken_if_it_is_not_allowed(self, make_drain: Make) -> None:
        apart = make_drain(membership=False)

        def refuse() -> None:
            raise Deposed(term=1, reason=Reason.LEASE)

        with pytest.raises(Deposed):
            apart.join(refuse, 1.0)
        assert apart.assigned() == frozenset()
