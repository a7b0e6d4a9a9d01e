"""A career with every delivery, error policy and batch shape, on a real broker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import confluent_kafka
import pytest
from driving import Driver, Recorder
from reading_topics import read_all

from leaderq.events import RecordDeadLettered
from leaderq.kafka import KafkaLeaderCareer, PoisonRecord, Record, dead_letter
from leaderq.kafka.dead_letters.format import DeadLetter, read_dead_letter
from leaderq.kafka.topics import create_topics, end_offsets, produce
from leaderq.term import Term
from leaderq.testing import eventually

POISON = (b"13", b"57")


class Fussy(Recorder):
    name_it: ClassVar[bool] = False

    def handle(self, records: Sequence[Record], term: Term) -> None:
        for at, record in enumerate(records):
            if record.value in POISON:
                error = ValueError(f"cannot do {record.value!r}")
                if not self.name_it:
                    raise error
                self.seen.extend(records[:at])
                raise PoisonRecord(record) from error
        super().handle(records, term)


class Refusing(Recorder):
    def handle(self, records: Sequence[Record], term: Term) -> None:
        super().handle(records, term)
        raise ValueError("x" * 1000)


def letters_on(address: str, topic: str, count: int) -> list[DeadLetter]:
    found = eventually(
        lambda: len(rows := read_all(address, topic, isolation="read_committed")) >= count and rows
    )
    return [read_dead_letter(record) for record in found]


@pytest.mark.parametrize(("offsets", "name_it"), [("kafka", True), ("transaction", False)])
def test_poison_goes_to_the_dead_letters_and_everything_else_is_handled_once(
    drive, feed, kafka_broker, four_partitions, offsets, name_it
):
    dead = f"{four_partitions}-dead"
    create_topics(kafka_broker.address, {dead: 1})
    values = feed(0, 200)
    words = {"offsets": offsets, "name_it": name_it, "on_error": dead_letter(dead)}
    leader = drive(Fussy, max_records=40, **words).begin()
    set_aside: list[RecordDeadLettered] = []
    leader.career.events.subscribe(RecordDeadLettered, set_aside.append)
    ends = end_offsets(kafka_broker.address, four_partitions)
    leader.run_until(lambda: len(set(leader.career.values())) >= 198)
    eventually_done(leader, ends)
    letters = letters_on(kafka_broker.address, dead, 2)
    assert {letter.record.value for letter in letters} == set(POISON)
    assert {letter.origin.topic for letter in letters} == {four_partitions}
    assert all("cannot do" in letter.text for letter in letters)
    assert set(leader.career.values()) == set(values) - set(POISON)
    assert len(set_aside) == 2


def eventually_done(leader: Driver, ends: dict[int, int]) -> None:
    def held() -> bool:
        draining = leader.career._assembly.consumer.loaded
        return {where.number: offset for where, offset in draining.items()} == ends

    leader.run_until(held)


@pytest.mark.parametrize("size", [None, 1_048_000], ids=["nothing", "nearly too large"])
def test_a_record_of_any_size_can_be_set_aside(drive, kafka_broker, four_partitions, size):
    dead = f"{four_partitions}-dead"
    create_topics(kafka_broker.address, {dead: 1})
    # not kafka-python's, which refuses a record without key and value
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": kafka_broker.address, "message.max.bytes": 2_000_000}
    )
    producer.produce(four_partitions, None if size is None else b"x" * size)
    assert producer.flush(20) == 0
    leader = drive(Refusing, on_error=dead_letter(dead)).begin()
    ends = end_offsets(kafka_broker.address, four_partitions)
    eventually_done(leader, ends)
    (letter,) = letters_on(kafka_broker.address, dead, 1)
    assert len(letter.record.value) == (size or 0)


class Timing(Recorder):
    """Sends each record on, one of them with a time that no broker takes, or too large."""

    offsets = "transaction"
    out = ""
    is_large = False

    def handle(self, records: Sequence[Record], term: Term) -> None:
        for record in records:
            is_bad = record.value == POISON[0]
            at_ms = 2**62 if is_bad and not self.is_large else None
            value = record.value * 10_000 if is_bad and self.is_large else record.value
            self.produce(self.out, value, timestamp_ms=at_ms)
        super().handle(records, term)


@pytest.mark.parametrize("is_large", [False, True])
@pytest.mark.parametrize("client", ["kafka-python", "confluent"])
def test_b43_a_message_that_the_broker_refuses_is_the_fault_of_its_record_and_costs_no_other(
    drive, feed, kafka_broker, four_partitions, client, is_large
):
    """A client that was refused a batch refuses the next ones: it has lost its place. And a batch
    of what is not too large may be.
    """
    out, dead = f"{four_partitions}-out", f"{four_partitions}-dead"
    create_topics(kafka_broker.address, {dead: 1})
    create_topics(kafka_broker.address, {out: 2}, configs={"max.message.bytes": "1000"})
    values = feed(0, 400)
    words = {"out": out, "is_large": is_large, "on_error": dead_letter(dead)}
    leader = drive(Timing, client=client, **words).begin()
    eventually_done(leader, end_offsets(kafka_broker.address, four_partitions))
    (letter,) = letters_on(kafka_broker.address, dead, 1)
    assert letter.record.value == POISON[0]
    sent = read_all(kafka_broker.address, out, isolation="read_committed")
    assert sorted(record.value for record in sent) == sorted({*values} - {POISON[0]})


class NoText(str):
    """A text that is not UTF-8 on the wire."""

    __slots__ = ()

    def encode(self, *_: str) -> bytes:
        return b"\xff\xfe"


class ReadingHeaders(Recorder):
    handle = KafkaLeaderCareer.handle

    def handle_record(self, record: Record, term: Term) -> None:
        for _ in range(100):  # as in a process that has read many: calls are specialised by then
            assert len(record.headers) == (record.value == b"1")
        self.seen.append(record)


@pytest.mark.parametrize("client", ["kafka-python", "confluent"])
def test_b42_a_header_with_a_name_that_is_no_text_stops_nothing(
    drive, kafka_broker, four_partitions, client
):
    dead = f"{four_partitions}-dead"
    create_topics(kafka_broker.address, {dead: 1})
    odd = [(NoText("x"), b"v")]
    rows = [(b"k", b"0", []), (b"k", b"1", odd), (b"k", b"2", [])]
    produce(kafka_broker.address, four_partitions, rows)
    leader = drive(ReadingHeaders, client=client, on_error=dead_letter(dead)).begin()
    eventually_done(leader, end_offsets(kafka_broker.address, four_partitions))
    if client == "kafka-python":
        assert leader.career.values() == [b"0", b"1", b"2"]
        assert leader.career.seen[1].headers == [("\\xff\\xfe", b"v")]
        return
    (letter,) = letters_on(kafka_broker.address, dead, 1)
    assert (letter.record.value, leader.career.values()) == (b"1", [b"0", b"2"])
    assert "has a name that is not UTF-8" in letter.text
