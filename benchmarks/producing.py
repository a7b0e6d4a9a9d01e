"""How fast messages are accepted, and confirmed: leaderq's buffered producer beside the bare client libraries, interleaved in one run.

    python benchmarks/producing.py [--rounds 5] [--messages 60000] [--bytes 256] [--outage 0] [--rate 20000]

Keyed messages into 4 partitions of one broker; idempotent producers, acks of all replicas, the same batch size and linger on all
sides. *Accepted* is over when the call for the last message has returned, *confirmed* when the broker has acknowledged all. Rows of
leaderq: without a journal; with one that only catches what does not fit (idle here); with every message written ahead; and the first
and the last with frames. All in messages a second. Ratios are medians, over the bare kafka-python with the same settings.

``--outage 60``: instead, the broker is killed for so long under ``--rate`` messages a second. Checked are what is lost or doubled, the
order within each key, how much memory it took, and how long catching up took after the broker was back, the load going on.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from figures import print_table, save, summary

from leaderq.kafka.sink import KafkaSink, unpacked
from leaderq.kafka.topics import create_topics
from leaderq.producing import EVERY_ITEM, BufferedProducer, Interval
from leaderq.testing import KafkaBroker

PARTITIONS = 4
KEYS = 1000
LINGER_MS = 5
BATCH_BYTES = 262_144
BUFFER_ITEMS = 20_000

Figure = tuple[float, float]
"""Accepted and confirmed messages a second."""


def bare_kafka_python(address: str, topic: str, messages: list[tuple[bytes, bytes]], **settings: Any) -> Figure:
    """kafka-python by itself."""
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=address, **settings)
    producer.partitions_for(topic)
    began = time.perf_counter()
    futures = [producer.send(topic, key=key, value=value) for key, value in messages]
    accepted = time.perf_counter()
    producer.flush()
    confirmed = time.perf_counter()
    assert all(future.succeeded() for future in futures)
    producer.close()
    return len(messages) / (accepted - began), len(messages) / (confirmed - began)


def bare_confluent(address: str, topic: str, messages: list[tuple[bytes, bytes]]) -> Figure:
    """confluent-kafka by itself; each acknowledgement is heard, as with the others."""
    count = itertools.count()
    producer = Producer(
        {
            "bootstrap.servers": address,
            "enable.idempotence": True,
            "linger.ms": LINGER_MS,
            "batch.size": BATCH_BYTES,
            "queue.buffering.max.messages": BUFFER_ITEMS,
            "partitioner": "murmur2_random",
        }
    )
    producer.list_topics(topic)

    def delivered(error: Any, message: Any) -> None:
        assert error is None
        next(count)

    began = time.perf_counter()
    for key, value in messages:
        while True:
            try:
                producer.produce(topic, value, key, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.01)
    accepted = time.perf_counter()
    producer.flush()
    confirmed = time.perf_counter()
    assert next(count) == len(messages)
    return len(messages) / (accepted - began), len(messages) / (confirmed - began)


def ours(
    address: str, topic: str, messages: list[tuple[bytes, bytes]], *, packing: str | None = None, journal: str | None = None
) -> Figure:
    """leaderq; ``journal`` is None, "idle", "interval" or "every item"."""
    folder = tempfile.mkdtemp()
    policy = {"interval": Interval(0.1), "every item": EVERY_ITEM}.get(journal or "")
    producer = BufferedProducer(
        KafkaSink(address, topic, packing=packing),
        journal=folder if journal else None,
        persistence=policy,
        max_items=BUFFER_ITEMS,
        batch_items=2000,
        linger_s=LINGER_MS / 1000,
    )
    try:
        producer.send((b"warm", b""))
        assert producer.flush(30)
        more: dict[str, Any] = {"on_durable": _heard} if policy is EVERY_ITEM else {}
        began = time.perf_counter()
        for message in messages:
            producer.send(message, **more)
        accepted = time.perf_counter()
        assert producer.flush(120)
        confirmed = time.perf_counter()
        assert producer.snapshot().balance.confirmed == len(messages) + 1
        return len(messages) / (accepted - began), len(messages) / (confirmed - began)
    finally:
        producer.close()
        shutil.rmtree(folder)


def _heard(error: BaseException | None) -> None:
    assert error is None


SAME = {"linger_ms": LINGER_MS, "batch_size": BATCH_BYTES}
ROWS: dict[str, Callable[..., Figure]] = {
    "bare kafka-python, its defaults": bare_kafka_python,
    "bare kafka-python, same settings": lambda *job: bare_kafka_python(*job, **SAME),
    "bare confluent, same settings": bare_confluent,
    "leaderq": ours,
    "leaderq, journal idle": lambda *job: ours(*job, journal="idle"),
    "leaderq, written ahead, 0.1 s": lambda *job: ours(*job, journal="interval"),
    "leaderq, written ahead, each": lambda *job: ours(*job, journal="every item"),
    "leaderq, frames": lambda *job: ours(*job, packing="frame"),
    "leaderq, frames, written ahead, each": lambda *job: ours(*job, packing="frame", journal="every item"),
}


def compare(arguments: argparse.Namespace, broker: KafkaBroker) -> dict[str, Any]:
    """All rows, round after round."""
    value = b"v" * arguments.bytes
    messages = [(b"key-%d" % (number % KEYS), value) for number in range(arguments.messages)]
    numbers = itertools.count()
    accepted: dict[str, list[float]] = {}
    confirmed: dict[str, list[float]] = {}
    for turn in range(arguments.rounds):
        rows = list(ROWS.items()) if turn % 2 else list(ROWS.items())[::-1]  # so that no row always comes first
        for name, measure in rows:
            topic = f"t-{next(numbers)}"
            create_topics(broker.address, {topic: PARTITIONS})
            rates = measure(broker.address, topic, messages)
            accepted.setdefault(name, []).append(rates[0])
            confirmed.setdefault(name, []).append(rates[1])
            print(f"\r{turn + 1}/{arguments.rounds} {name}: {rates[1]:,.0f}/s{'':<30}", end="", file=sys.stderr, flush=True)
    figures = {
        "accepted_per_s": {name: summary(accepted[name]) for name in ROWS},
        "confirmed_per_s": {name: summary(confirmed[name]) for name in ROWS},
    }
    base = figures["confirmed_per_s"]["bare kafka-python, same settings"]["median"]
    figures["ratios"] = {name: round(row["median"] / base, 2) for name, row in figures["confirmed_per_s"].items()}
    print_table("accepted messages a second", figures["accepted_per_s"])
    print_table("confirmed messages a second", figures["confirmed_per_s"])
    print("\nconfirmed, over bare kafka-python with the same settings:", figures["ratios"])
    return figures


def outage(arguments: argparse.Namespace, broker: KafkaBroker) -> dict[str, Any]:
    """Kill the broker under load for so long."""
    create_topics(broker.address, {"outage": PARTITIONS})
    folder = Path(tempfile.mkdtemp())
    sink = KafkaSink(broker.address, "outage", packing=arguments.packing or None)
    producer = BufferedProducer(
        sink, journal=folder, max_items=BUFFER_ITEMS, batch_items=2000, sink_timeout_s=2.0, key=lambda request: request[0]
    )
    watch = Watch(producer)
    rate, pad = arguments.rate, b"." * max(0, arguments.bytes - 12)
    try:
        began = time.perf_counter()
        sent, is_killed, starter = 0, False, None
        up_at = caught_up_s = 0.0
        while not caught_up_s:
            passed = time.perf_counter() - began
            for _ in range(max(0, int(passed * rate) - sent)):
                producer.send((b"key-%d" % (sent % KEYS), b"%012d" % sent + pad))
                sent += 1
            if passed > 5 and not is_killed:
                is_killed = True
                broker.kill()
            if passed > 5 + arguments.outage and starter is None:
                starter = threading.Thread(target=broker.start)
                starter.start()
            if starter is not None and not starter.is_alive():
                up_at = up_at or passed
                if producer.snapshot().journal_only == 0 or passed - up_at > 300:
                    caught_up_s = passed - up_at
            time.sleep(0.002)
        assert producer.flush(120), producer.snapshot()
        took_s = time.perf_counter() - began
        balance = producer.snapshot().balance
        producer.close()
        return {
            "sent": sent,
            "took_s": round(took_s, 1),
            "offered_per_s": round(sent / took_s),
            "caught_up_s_after_the_return": round(caught_up_s, 1),
            "confirmed": balance.confirmed,
            **watch.figures(),
            **audit(broker.address, sent),
        }
    finally:
        producer.close(0)
        watch.stop()
        shutil.rmtree(folder)


class Watch:
    """Notes the largest figures of the buffer, ten times a second."""

    def __init__(self, producer: BufferedProducer) -> None:
        self._producer = producer
        self._over = threading.Event()
        self._most = {"memory_items": 0, "memory_bytes": 0, "journal_only": 0, "journal_bytes": 0}
        self._resident = [_resident_bytes()]
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(0.1):
            snapshot = self._producer.snapshot()
            for name in self._most:
                self._most[name] = max(self._most[name], getattr(snapshot, name))
            self._resident.append(_resident_bytes())

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def figures(self) -> dict[str, Any]:
        most = {f"most_{name}": value for name, value in self._most.items()}
        return {**most, "resident_mb_before": self._resident[0] >> 20, "most_resident_mb": max(self._resident) >> 20}


def _resident_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    return 0


def audit(address: str, sent: int) -> dict[str, Any]:
    """What lies on the topic, compared with what was sent."""
    from kafka import KafkaConsumer, TopicPartition

    from leaderq.kafka.record import Record

    consumer = KafkaConsumer(bootstrap_servers=address)
    places = [TopicPartition("outage", number) for number in range(PARTITIONS)]
    consumer.assign(places)
    consumer.seek_to_beginning(*places)
    ends = consumer.end_offsets(places)
    seen = bytearray(sent)
    last: dict[bytes, int] = {}
    disorder = doubled = 0
    while any(consumer.position(place) < ends[place] for place in places):
        for records in consumer.poll(timeout_ms=500, max_records=10_000).values():
            rows = (Record(r.topic, r.partition, r.offset, r.timestamp, r.key, r.value, r.headers) for r in records)
            for record in unpacked(rows):
                number = int(record.value[:12])
                doubled += seen[number]
                seen[number] = 1
                disorder += number < last.get(record.key, -1)
                last[record.key] = number
    consumer.close()
    return {"lost": sent - sum(seen), "doubled": doubled, "out_of_order": disorder}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--messages", type=int, default=60_000, help="in each round, of each row")
    parser.add_argument("--bytes", type=int, default=256, help="of a message's value")
    parser.add_argument("--outage", type=float, default=0.0, help="kill the broker for so many seconds instead")
    parser.add_argument("--rate", type=int, default=20_000, help="messages a second during the outage")
    parser.add_argument("--packing", default="frame", help="of the outage: frame, or nothing")
    arguments = parser.parse_args()
    with KafkaBroker() as broker:
        name = "producing-outage" if arguments.outage else "producing"
        figures = outage(arguments, broker) if arguments.outage else compare(arguments, broker)
    if arguments.outage:
        print(*(f"{key}: {value:,}" for key, value in figures.items()), sep="\n")
    print("saved:", save(name, {"parameters": vars(arguments), **figures}))


if __name__ == "__main__":
    main()
