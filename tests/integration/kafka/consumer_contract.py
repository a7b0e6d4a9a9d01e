"""What every implementation of ``ConsumerClient`` must do on a real broker; inherit it and give a
``make_consumer`` fixture.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from threading import Timer
from typing import Any

import pytest
from surroundings import RealKafka

from leaderq.errors import Deposed, KafkaError, KafkaFenced, UnknownTopic
from leaderq.kafka import ConsumerClient, Partition, Record
from leaderq.kafka.clients.consumer import ConsumerFactory, ConsumerSettings, KafkaAway, Offsets
from leaderq.term import Reason
from leaderq.testing.waiting import eventually, patience


def allowed() -> None:
    """May always join."""


def commit(consumer: ConsumerClient, offsets: Offsets, note: str = "") -> None:
    committing = consumer.commit(offsets, note)
    assert committing.done(30.0)
    assert committing.done(0.0)


class ConsumerContract:
    factory: ConsumerFactory
    kafka: type[RealKafka] = RealKafka
    frozen_s = 5.0
    session_s = 4.0

    @pytest.fixture
    def make_consumer(self, kafka_broker, four_partitions):
        made: list[ConsumerClient] = []

        def make(**changes: Any) -> ConsumerClient:
            own = {"topics": (four_partitions,), "group": four_partitions, "member": "leader"}
            words = {**own, "open_timeout_s": 10.0 * patience(), **changes}
            consumer = type(self).factory(ConsumerSettings(address=kafka_broker.address, **words))
            made.append(consumer)
            consumer.open()
            return consumer

        yield make
        for consumer in made:
            consumer.close()

    @staticmethod
    def join(consumer: ConsumerClient) -> ConsumerClient:
        eventually(lambda: consumer.join(allowed, 1.0), message="the member is let in")
        stored = consumer.committed(20.0)
        starts = consumer.start_offsets(20.0)
        consumer.seek({where: stored.get(where, starts[where]) for where in consumer.assigned()})
        return consumer

    @staticmethod
    def read(consumer: ConsumerClient, count: int) -> dict[Partition, list[Record]]:
        found: dict[Partition, list[Record]] = {}

        def enough() -> bool:
            for where, records in consumer.poll(0.5, 100).items():
                found.setdefault(where, []).extend(records)
            return sum(map(len, found.values())) >= count

        eventually(enough, message=f"{count} records are read")
        return found

    @staticmethod
    def attend_until(consumer: ConsumerClient, fact: Callable[[], object]) -> None:
        eventually(lambda: (consumer.attend(0.2), fact())[1], timeout_s=60)

    def test_opening_neither_joins_nor_fences_and_a_member_that_is_asked_to_join_is_one_already(
        self, make_consumer
    ):
        leader = self.join(make_consumer())
        other = make_consumer()
        other.refresh(20.0)
        assert (other.assigned(), other.joins, len(other.existing())) == (frozenset(), 0, 4)
        joins = leader.joins
        assert leader.join(allowed, 5.0)  # what followed the first time has failed
        assert leader.joins == joins
        commit(leader, dict.fromkeys(leader.assigned(), 0))

    @pytest.mark.parametrize("membership", [True, False])
    def test_a_member_that_may_not_join_does_not(self, make_consumer, membership):
        leader = self.join(make_consumer())
        zombie = make_consumer(membership=membership)

        def refuse() -> None:
            raise Deposed(term=1, reason=Reason.LEASE)

        with pytest.raises(Deposed):
            zombie.join(refuse, 5.0)
        assert zombie.assigned() == frozenset()
        commit(leader, dict.fromkeys(leader.assigned(), 0))

    def test_records_come_in_order_with_all_their_fields_and_attending_between_polls_costs_none(
        self, make_consumer, feed
    ):
        values = feed(0, 3000)
        consumer = self.join(make_consumer())
        found: dict[Partition, list[Record]] = {}

        def all_came() -> bool:
            for _ in range(3):
                consumer.attend(0.1)
            for where, rows in consumer.poll(0.5, 70).items():
                found.setdefault(where, []).extend(rows)
            return sum(map(len, found.values())) >= len(values)

        eventually(all_came, timeout_s=60, message="all records are read")
        assert consumer.positions() == consumer.end_offsets(20.0)
        for where, records in found.items():
            assert [record.offset for record in records] == list(range(len(records)))
            assert {(record.topic, record.partition) for record in records} == {where}
            assert all(record.timestamp_ms > 0 for record in records)
            assert all(list(record.headers) == [("n", record.value)] for record in records)
            assert all(record.key == b"k%d" % (int(record.value) % 16) for record in records)
        assert sorted((r.value for rows in found.values() for r in rows), key=int) == values

    @pytest.mark.parametrize("wait_s", [0.0, 0.5])
    def test_a_poll_returns_what_has_come_and_no_more_than_asked_for(
        self, make_consumer, feed, wait_s
    ):
        consumer = self.join(make_consumer())
        assert consumer.poll(0.0, 100) == {}
        feed(0, 100)
        counts: list[int] = []

        def all_came() -> bool:
            counts.append(sum(map(len, consumer.poll(wait_s, 7).values())))
            return sum(counts) == 100

        eventually(all_came, message="all records come")
        assert max(counts) <= 7

    def test_closing_leaves_the_member_in_the_group_and_the_next_reads_what_it_committed(
        self, make_consumer, feed
    ):
        feed(0, 50)
        first = self.join(make_consumer())
        ends = {where: rows[-1].offset + 1 for where, rows in self.read(first, 50).items()}
        commit(first, ends, "a note")
        first.close()
        first.close()
        second = self.join(make_consumer())
        assert (second.assigned(), second.committed(20.0)) == (second.existing(), ends)

    def test_a_commit_of_nothing_is_done_and_a_consumer_that_is_closed_answers_nothing(
        self, make_consumer, feed
    ):
        feed(0, 50)
        consumer = self.join(make_consumer())
        commit(consumer, {})
        assert consumer.group_metadata() is not None
        consumer.attend(0.5)  # some records may wait in the client
        consumer.close()
        for act in (
            lambda: consumer.poll(0.0, 1),
            lambda: consumer.attend(0.0),
            lambda: consumer.committed(1.0, [Partition("t", 0)]),
            lambda: consumer.commit({Partition("t", 0): 1}, ""),
        ):
            with pytest.raises(KafkaError, match="not open"):
                act()

    def test_neither_reading_nor_attending_waits_for_a_commit(
        self, make_consumer, feed, kafka_broker
    ):
        feed(0, 40)
        consumer = self.join(make_consumer())
        ends = {where: rows[-1].offset + 1 for where, rows in self.read(consumer, 40).items()}
        # who waits for the commit waits until then
        thawing = Timer(self.frozen_s, kafka_broker.thaw)
        kafka_broker.freeze()
        thawing.start()
        try:
            under_way = consumer.commit(ends, "")
            consumer.poll(0.0, 100)
            consumer.attend(0.1)
            assert not under_way.done(0.0)
        finally:
            thawing.cancel()
            thawing.join()
            kafka_broker.thaw()
        eventually(lambda: under_way.done(0.1), message="the commit is carried out after all")
        feed(40, 80)
        assert sum(map(len, self.read(consumer, 40).values())) == 40

    def test_a_fenced_member_takes_nothing_back_and_commits_nothing(self, make_consumer, feed):
        first = self.join(make_consumer())
        second = self.join(make_consumer())
        feed(0, 40)
        # a fence stops commits, not fetches: some clients are told, some go on reading
        with suppress(KafkaFenced):
            for _ in range(20):
                first.poll(0.2, 10)
        with pytest.raises(KafkaFenced):
            commit(first, dict.fromkeys(second.assigned(), 1))
        self.read(second, 40)
        commit(second, second.positions())

    def test_an_unknown_topic_is_refused_by_name(self, make_consumer):
        with pytest.raises(UnknownTopic, match="no-such-topic"):
            make_consumer(topics=("no-such-topic",))

    def test_seeking_while_records_wait_returns_none_of_them_and_one_partition_leaves_the_others(
        self, make_consumer, feed
    ):
        feed(0, 400)
        consumer = self.join(make_consumer())
        self.read(consumer, 20)
        consumer.attend(0.1)
        consumer.seek(dict.fromkeys(consumer.assigned(), 5))
        found = self.read(consumer, sum(consumer.end_offsets(20.0).values()) - 20)
        assert all(rows[0].offset == 5 for rows in found.values())
        one = min(consumer.assigned())
        consumer.seek({one: 0})
        assert set(self.read(consumer, consumer.end_offsets(20.0)[one])) == {one}
        assert consumer.poll(0.5, 100) == {}

    def test_a_partition_that_rests_is_not_read_before_the_next_seek(self, make_consumer, feed):
        feed(0, 400)
        consumer = self.join(make_consumer())
        # a part of what was fetched of it waits in the client
        resting = max(self.read(consumer, 1), key=str)
        for _ in range(3):
            consumer.seek(dict.fromkeys(consumer.assigned(), 0), (resting,))
            rest = sum(end for where, end in consumer.end_offsets(20.0).items() if where != resting)
            assert resting not in self.read(consumer, rest)
            assert consumer.positions()[resting] == 0
            consumer.seek(dict.fromkeys(consumer.assigned(), 0))
            assert resting in self.read(consumer, 400)

    def test_a_member_is_joining_until_the_group_has_assigned_again(self, make_consumer):
        consumer = self.join(make_consumer(session_timeout_s=self.session_s))
        assert not consumer.is_joining
        other = make_consumer(member="other", session_timeout_s=self.session_s)
        eventually(lambda: (consumer.attend(0.1), other.join(allowed, 0.5))[1], timeout_s=60)
        self.attend_until(consumer, lambda: not consumer.is_joining)
        other.close()  # it stays in the group, which waits for it until its session is over
        joins = consumer.joins
        consumer.rejoin()
        self.attend_until(consumer, lambda: consumer.is_joining)
        assert not consumer.join(allowed, 0.0)
        assert consumer.joins == joins
        self.attend_until(consumer, lambda: not consumer.is_joining)
        assert consumer.joins > joins
        assert consumer.assigned() == consumer.existing()

    def test_the_end_is_the_last_stable_offset(self, make_consumer, feed, kafka_broker):
        consumer = self.join(make_consumer())
        where = min(consumer.assigned())
        with self.kafka.transaction(kafka_broker.address, where.topic) as transaction:
            transaction.send(where, b"value")
            assert consumer.end_offsets(20.0)[where] == 0
            assert consumer.poll(0.5, 10) == {}
            # what is not stable lies before the end of the log
            eventually(lambda: consumer.poll(0.2, 10) == {} and consumer.log_ends().get(where) == 1)
            assert consumer.end_offsets(20.0)[where] == 0
            transaction.abort()
        # the aborted record and its marker lie before the end
        eventually(lambda: consumer.end_offsets(20.0)[where] == 2)
        eventually(
            lambda: (consumer.poll(0.2, 10), consumer.positions() == consumer.end_offsets(20.0))[1]
        )

    def test_bug_23_offsets_of_an_open_transaction_are_waited_for_and_opening_is_not_held_up(
        self, make_consumer, kafka_broker
    ):
        first = self.join(make_consumer())
        where = min(first.assigned())
        commit(first, {where: 0})
        with self.kafka.transaction(kafka_broker.address, where.topic) as transaction:
            transaction.send_offset(where, 7, group=where.topic)
            # opening is for the next leader, who then fences the producer
            consumer = make_consumer(open_timeout_s=2.0)
            consumer.refresh(20.0)
            with pytest.raises(KafkaAway):
                consumer.committed(2.0)
            consumer.close()
            # a plain consumer has the bug
            assert self.kafka.plain_committed(kafka_broker.address, where.topic, where) == 0
            transaction.commit()
        assert make_consumer().committed(20.0)[where] == 7

    def test_topics_made_again_have_other_ids(self, make_consumer, kafka_broker, four_partitions):
        before = make_consumer().topic_ids()
        self.kafka.delete_topic(kafka_broker.address, four_partitions)
        self.kafka.create_topics(kafka_broker.address, {four_partitions: 4})
        after = make_consumer().topic_ids()
        assert set(before) == set(after) == {four_partitions}
        assert before != after

    def test_added_partitions_are_noticed_and_taken(
        self, make_consumer, feed, kafka_broker, monkeypatch
    ):
        monkeypatch.setattr("leaderq.kafka.clients.kafka_python_consumer.TOPICS_KNOWN_MS", 300)
        consumer = self.join(make_consumer())
        self.kafka.add_partitions(kafka_broker.address, min(consumer.assigned()).topic, 6)

        def noticed() -> bool:
            consumer.poll(0.2, 10)
            consumer.attend(0.1)
            return len(consumer.existing()) == 6

        eventually(noticed, timeout_s=60, message="the new partitions are known")
        consumer.rejoin()
        self.attend_until(consumer, lambda: len(consumer.assigned()) == 6)

    def test_without_membership_all_partitions_are_taken_and_nobody_is_fenced(
        self, make_consumer, feed
    ):
        feed(0, 40)
        leader = self.join(make_consumer())
        apart = self.join(make_consumer(membership=False))
        assert apart.assigned() == apart.existing()
        assert apart.joins == 1
        assert sum(map(len, self.read(apart, 40).values())) == 40
        apart.attend(0.1)
        commit(leader, dict.fromkeys(leader.assigned(), 0))

    def test_without_membership_offsets_can_be_told_to_an_empty_group(self, make_consumer):
        apart = self.join(make_consumer(membership=False))
        commit(apart, dict.fromkeys(apart.assigned(), 3), "for information")
        assert set(make_consumer(membership=False).committed(20.0).values()) == {3}
