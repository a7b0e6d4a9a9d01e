"""The loops that ``drain.py`` compares leaderq with: a client library and nothing else."""

from __future__ import annotations

import gc
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition

from leaderq.base.clock import now_s
from leaderq.cli.run import GC_THRESHOLD
from leaderq.kafka.clients.confluent_connection import ConfluentConnection
from leaderq.kafka.clients.confluent_consumer import consumer_options as confluent_consumer_options
from leaderq.kafka.clients.confluent_producer import producer_options as confluent_producer_options
from leaderq.kafka.clients.consumer import ConsumerSettings
from leaderq.kafka.clients.kafka_python_consumer import consumer_options
from leaderq.kafka.clients.kafka_python_producer import producer_options
from leaderq.kafka.clients.producer import ProducerSettings

SHARED_BY = 8
WAIT_S = 20e-6  # for each record, where threads share them
KEYS, CALLS_AT_ONCE, CALL_S = 400, 100, 0.05
Parts = dict[Any, list[Any]]
_lock = threading.Lock()


@dataclass(frozen=True)
class Job:
    """What one measurement reads; ``name`` is its own group, member and transactional id."""

    address: str
    topic: str
    partitions: int
    count: int
    batch: int
    name: str
    out: str = ""

    @property
    def settings(self) -> ConsumerSettings:
        """As leaderq would read."""
        return ConsumerSettings(
            address=self.address, topics=(self.topic,), group=self.name, member=self.name
        )

    @property
    def producing(self) -> ProducerSettings:
        """As leaderq would produce."""
        return ProducerSettings(address=self.address, transactional_id=self.name)


class Stopwatch:
    """Counts records, from when the first batch was there to when the last was done."""

    clock: Callable[[], float] = staticmethod(now_s)

    def __init__(self, count: int) -> None:
        self._left = count
        self._records = 0
        self._began_s = self._ended_s = 0.0

    @property
    def is_running(self) -> bool:
        return self._left > 0

    def batch_came(self) -> None:
        self._began_s = self._began_s or self.clock()

    def batch_done(self, records: int) -> None:
        self._left -= records
        self._records += records
        self._ended_s = self.clock()

    @property
    def rate(self) -> float:
        """Records a second."""
        return self._records / (self._ended_s - self._began_s)


@contextmanager
def collecting_seldom() -> Iterator[None]:
    """As ``leaderq run`` has it."""
    before = gc.get_threshold()
    gc.set_threshold(GC_THRESHOLD, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def collecting_as_ours(loop: Callable[[Job], float], job: Job) -> float:
    """``loop``, while the garbage collector looks as seldom as leaderq has it look."""
    with collecting_seldom():
        return loop(job)


def kafka_python(job: Job, *, commit: bool, ours: bool = False) -> float:
    """``poll`` in a loop, key, value and offset of each record read; as a member of a group if it
    commits.
    """
    options: dict[str, Any] = {
        "bootstrap_servers": job.address,
        "group_id": job.name,
        "isolation_level": "read_committed",
    }
    if ours:
        options = consumer_options(job.settings)
    consumer = KafkaConsumer(
        **{**options, "enable_auto_commit": False, "auto_offset_reset": "earliest"}
    )
    if commit:
        consumer.subscribe([job.topic])
    else:
        consumer.assign([TopicPartition(job.topic, number) for number in range(job.partitions)])
    watch = Stopwatch(job.count)
    while watch.is_running:
        polled = consumer.poll(timeout_ms=1000, max_records=job.batch)
        if not polled:
            continue
        watch.batch_came()
        for rows in polled.values():
            for row in rows:
                row.key, row.value, row.offset  # noqa: B018
        if commit:
            consumer.commit(
                {
                    where: OffsetAndMetadata(rows[-1].offset + 1, "", -1)
                    for where, rows in polled.items()
                }
            )
        watch.batch_done(sum(map(len, polled.values())))
    consumer.close(autocommit=False)
    return watch.rate


def kafka_python_polls(settings: ConsumerSettings) -> tuple[Callable[[], bool], Callable[[], None]]:
    """A consumer with our settings: polls it for 200 ms and tells whether records came; closes
    it.
    """
    consumer = KafkaConsumer(**{**consumer_options(settings), "auto_offset_reset": "earliest"})
    consumer.subscribe(list(settings.topics))
    return lambda: bool(consumer.poll(timeout_ms=200)), lambda: consumer.close(autocommit=False)


def connection(settings: ConsumerSettings | ProducerSettings) -> ConfluentConnection:
    return ConfluentConnection(settings.address, settings.security)


def confluent_polls(settings: ConsumerSettings) -> tuple[Callable[[], bool], Callable[[], None]]:
    """The same with librdkafka."""
    options = confluent_consumer_options(settings, connection(settings))
    consumer = Consumer({**options, "auto.offset.reset": "earliest", "enable.partition.eof": False})
    consumer.subscribe(list(settings.topics))
    return lambda: bool(consumer.consume(1000, 0.2)), consumer.close


def confluent(job: Job, *, commit: bool, ours: bool = False) -> float:
    """``consume`` in a loop, key, value and offset of each record read; as a member of a group if
    it commits.
    """
    options: dict[str, Any] = {
        "bootstrap.servers": job.address,
        "group.id": job.name,
        "isolation.level": "read_committed",
    }
    if ours:
        options = {
            **confluent_consumer_options(job.settings, connection(job.settings)),
            "enable.partition.eof": False,
        }
    consumer = Consumer({**options, "enable.auto.commit": False, "auto.offset.reset": "earliest"})
    if commit:
        consumer.subscribe([job.topic])
    else:
        consumer.assign(
            [ConfluentPartition(job.topic, number, 0) for number in range(job.partitions)]
        )
    watch = Stopwatch(job.count)
    while watch.is_running:
        messages = consumer.consume(job.batch, 1.0)
        if not messages:
            continue
        watch.batch_came()
        for message in messages:
            message.key(), message.value(), message.offset()
        if commit:
            consumer.commit(offsets=_ends(messages), asynchronous=False)
        watch.batch_done(len(messages))
    consumer.close()
    return watch.rate


def _ends(messages: list[Any]) -> list[ConfluentPartition]:
    last = {(message.topic(), message.partition()): message.offset() for message in messages}
    return [
        ConfluentPartition(topic, number, offset + 1) for (topic, number), offset in last.items()
    ]


def kafka_python_shared(job: Job) -> float:
    """Batches with as much of each partition, shared by eight threads; each is committed."""
    options = consumer_options(job.settings)
    consumer = KafkaConsumer(**{**options, "auto_offset_reset": "earliest"})
    consumer.subscribe([job.topic])

    def commit(parts: Parts) -> None:
        ends = {at: OffsetAndMetadata(rows[-1].offset + 1, "", -1) for at, rows in parts.items()}
        consumer.commit(ends)

    def handle(rows: list[Any]) -> None:
        time.sleep(len(rows) * WAIT_S)
        with _lock:
            for row in rows:
                row.key, row.value, row.offset  # noqa: B018

    rate = _shared(job, lambda most: consumer.poll(50, max_records=most), commit, handle)
    consumer.close(autocommit=False)
    return rate


def confluent_shared(job: Job) -> float:
    """The same with librdkafka."""
    options = confluent_consumer_options(job.settings, connection(job.settings))
    more = {"enable.partition.eof": False, "auto.offset.reset": "earliest"}
    consumer = Consumer({**options, **more})
    consumer.subscribe([job.topic])

    def poll(most: int) -> Parts:
        found: Parts = {}
        for message in consumer.consume(most, 0.05):
            found.setdefault(message.partition(), []).append(message)
        return found

    def commit(parts: Parts) -> None:
        last = [rows[-1] for rows in parts.values()]
        consumer.commit(offsets=_ends(last), asynchronous=False)

    def handle(messages: list[Any]) -> None:
        time.sleep(len(messages) * WAIT_S)
        with _lock:
            for message in messages:
                message.key(), message.value(), message.offset()

    rate = _shared(job, poll, commit, handle)
    consumer.close()
    return rate


def kafka_python_by_key(job: Job) -> float:
    """The same, and a hundred keys at a time, with a call that waits for each record."""
    consumer = KafkaConsumer(**{**consumer_options(job.settings), "auto_offset_reset": "earliest"})
    consumer.subscribe([job.topic])

    def commit(parts: Parts) -> None:
        ends = {at: OffsetAndMetadata(rows[-1].offset + 1, "", -1) for at, rows in parts.items()}
        consumer.commit(ends)

    def handle(rows: list[Any]) -> None:
        for _ in rows:
            time.sleep(CALL_S)

    def chains(parts: Parts) -> list[list[Any]]:
        found: Parts = defaultdict(list)
        for rows in parts.values():
            for row in rows:
                found[row.key].append(row)
        return list(found.values())

    poll = lambda most: consumer.poll(50, max_records=most)  # noqa: E731
    rate = _shared(job, poll, commit, handle, split=chains, threads=CALLS_AT_ONCE)
    consumer.close(autocommit=False)
    return rate


def _shared(
    job: Job,
    poll: Callable[[int], Parts],
    commit: Callable[[Parts], None],
    handle: Callable[[list[Any]], None],
    split: Callable[[Parts], Iterable[list[Any]]] = dict.values,
    threads: int = SHARED_BY,
) -> float:
    watch, share = Stopwatch(job.count), job.batch // job.partitions
    ahead: Parts = defaultdict(list)
    with ThreadPoolExecutor(threads) as pool:
        while watch.is_running:
            # Clients return records in runs of one partition: ten batches have some of each.
            if sum(map(len, ahead.values())) < 10 * job.batch:
                for where, rows in poll(10 * job.batch).items():
                    ahead[where] += rows
            parts = {where: rows[:share] for where, rows in ahead.items() if rows}
            if not parts:
                continue
            watch.batch_came()
            list(pool.map(handle, split(parts)))
            commit(parts)
            for where, rows in parts.items():
                del ahead[where][: len(rows)]
            watch.batch_done(sum(map(len, parts.values())))
    return watch.rate


def kafka_python_transactions(job: Job) -> float:
    """Consume, transform, produce; a transaction for each batch."""
    consumer = KafkaConsumer(**{**consumer_options(job.settings), "auto_offset_reset": "earliest"})
    consumer.subscribe([job.topic])
    producer = KafkaProducer(**{**producer_options(job.producing), "transactional_id": job.name})
    producer.init_transactions()
    watch = Stopwatch(job.count)
    while watch.is_running:
        polled = consumer.poll(timeout_ms=1000, max_records=job.batch)
        if not polled:
            continue
        watch.batch_came()
        producer.begin_transaction()
        for rows in polled.values():
            for row in rows:
                producer.send(job.out, value=row.value, key=row.key)
        ends = {
            where: OffsetAndMetadata(rows[-1].offset + 1, "", -1) for where, rows in polled.items()
        }
        producer.send_offsets_to_transaction(ends, consumer.group_metadata())
        producer.commit_transaction()
        watch.batch_done(sum(map(len, polled.values())))
    producer.close()
    consumer.close(autocommit=False)
    return watch.rate


def confluent_transactions(job: Job) -> float:
    """Consume, transform, produce; a transaction for each batch."""
    consumer = Consumer(
        {
            **confluent_consumer_options(job.settings, connection(job.settings)),
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([job.topic])
    producer = Producer(confluent_producer_options(job.producing, connection(job.producing)))
    producer.init_transactions(10.0)
    watch = Stopwatch(job.count)
    while watch.is_running:
        messages = [
            message for message in consumer.consume(job.batch, 1.0) if message.error() is None
        ]
        if not messages:
            continue
        watch.batch_came()
        producer.begin_transaction()
        for message in messages:
            _produce(producer, job.out, message)
        producer.send_offsets_to_transaction(_ends(messages), consumer.consumer_group_metadata())
        producer.commit_transaction()
        watch.batch_done(len(messages))
    consumer.close()
    return watch.rate


def _produce(producer: Producer, topic: str, message: Any) -> None:
    while True:
        try:
            return producer.produce(topic, message.value(), message.key())
        except BufferError:
            producer.poll(0.01)
