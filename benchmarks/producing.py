"""How fast messages are accepted, and confirmed: leaderq's buffered producer beside the bare client
libraries, interleaved in one run.

    python benchmarks/producing.py [--rounds 5] [--messages 60000] [--bytes 256] [--only TEXT ...]
    python benchmarks/producing.py --outage 60 [--rate 20000] [--client confluent]

Keyed messages into 4 partitions of one broker; idempotent producers, acks of all replicas, the same
batch size and linger on all sides. *Accepted* counts until the call for the last message has
returned, *confirmed* until the broker has acknowledged all; both in messages a second. *CPU* is
what this process used for a million messages, in seconds. Rows of leaderq: without a journal; with
one that only catches what does not fit (idle here); with every message written ahead. Ratios are
medians, over the bare loop with the same client and settings; ``BARS`` has what is asked of them.

``--outage 60``: instead, the broker is killed for so long under ``--rate`` messages a second, or
half of what this machine confirms in the first seconds, if that is less (no producer catches up
under more than that). It checks what is lost or doubled, the order within each key, how much
memory it took, and how long it took to catch up after the broker was back, while the load continues
for two minutes at most. The exit code is 1 if anything is lost, doubled or out of order.
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
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from figures import percentile, print_table, save

from leaderq.kafka.sink import KafkaSink
from leaderq.kafka.topics import create_topics
from leaderq.producing import EVERY_ITEM, BufferedProducer, Interval
from leaderq.testing import KafkaBroker

PARTITIONS = 4
KEYS = 1000
LINGER_MS = 5
BATCH_BYTES = 262_144
BUFFER_ITEMS = 20_000
WARM_UP_S = 4.0
CATCH_UP_S = 120.0

BARS = {
    "leaderq on kafka-python": 1.0,
    "leaderq on kafka-python, journal idle": 0.8,
    "leaderq on confluent": 0.5,
    "leaderq on confluent, journal idle": 0.35,
}
PLAIN, CONFLUENT = "bare kafka-python", "bare confluent"

Figure = tuple[float, float]
"""Accepted and confirmed messages a second."""


def bare_kafka_python(
    address: str, topic: str, messages: list[tuple[bytes, bytes]], **settings: Any
) -> Figure:
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
    address: str,
    topic: str,
    messages: list[tuple[bytes, bytes]],
    *,
    client: str = "kafka-python",
    journal: str | None = None,
) -> Figure:
    """leaderq; ``journal`` is None, "idle", "interval" or "every item"."""
    folder = tempfile.mkdtemp()
    policy = {"interval": Interval(0.1), "every item": EVERY_ITEM}.get(journal or "")
    producer = BufferedProducer(
        KafkaSink(address, topic, client=client),
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
    f"{PLAIN}, its defaults": bare_kafka_python,
    PLAIN: lambda *job: bare_kafka_python(*job, **SAME),
    "leaderq on kafka-python": ours,
    "leaderq on kafka-python, journal idle": lambda *job: ours(*job, journal="idle"),
    "leaderq on kafka-python, written ahead, 0.1 s": lambda *job: ours(*job, journal="interval"),
    "leaderq on kafka-python, written ahead, each": lambda *job: ours(*job, journal="every item"),
    CONFLUENT: bare_confluent,
    "leaderq on confluent": partial(ours, client="confluent"),
    "leaderq on confluent, journal idle": partial(ours, client="confluent", journal="idle"),
    "leaderq on confluent, written ahead, 0.1 s": partial(
        ours, client="confluent", journal="interval"
    ),
    "leaderq on confluent, written ahead, each": partial(
        ours, client="confluent", journal="every item"
    ),
}


def compare(arguments: argparse.Namespace, broker: KafkaBroker) -> dict[str, Any]:
    """All rows, round after round."""
    value = b"v" * arguments.bytes
    messages = [(b"key-%d" % (number % KEYS), value) for number in range(arguments.messages)]
    chosen = {
        name: measure
        for name, measure in ROWS.items()
        if not arguments.only or any(text in name for text in arguments.only)
    }
    numbers = itertools.count()
    taken: dict[str, list[tuple[float, float, float]]] = {}
    for turn in range(arguments.rounds):
        rows = list(chosen.items())
        for name, measure in rows if turn % 2 else rows[::-1]:  # so that none always comes first
            topic = f"t-{next(numbers)}"
            create_topics(broker.address, {topic: PARTITIONS})
            began_s = time.process_time()
            rates = measure(broker.address, topic, messages)
            cpu_s = (time.process_time() - began_s) * 1e6 / len(messages)
            taken.setdefault(name, []).append((*rates, cpu_s))
            print(
                f"\r{turn + 1}/{arguments.rounds} {name}: {rates[1]:,.0f}/s{'':<30}",
                end="",
                file=sys.stderr,
            )
    rows_of = {name: _row(name, taken) for name in chosen}
    print_table("messages a second, and CPU for a million of them", rows_of)
    return {"rows": rows_of}


def _row(name: str, taken: dict[str, list[tuple[float, float, float]]]) -> dict[str, Any]:
    accepted, confirmed, cpu_s = (
        percentile(list(each), 0.5) for each in zip(*taken[name], strict=True)
    )
    row: dict[str, Any] = {
        "accepted": round(accepted),
        "confirmed": round(confirmed),
        "CPU s": round(cpu_s, 1),
    }
    bare = CONFLUENT if "confluent" in name else PLAIN
    if bare in taken:
        # Of each round by itself: the machine may be slower in one than in another.
        pairs = zip(taken[name], taken[bare], strict=True)
        ratio = percentile([ours[1] / theirs[1] for ours, theirs in pairs], 0.5)
        row["over bare"] = round(ratio, 2)
        if (bar := BARS.get(name)) is not None:
            row["bar"] = f">= {bar}"
            row["met"] = "yes" if ratio >= bar else "NO"
    return row


def outage(arguments: argparse.Namespace, broker: KafkaBroker) -> dict[str, Any]:
    """Kill the broker under load for so long."""
    create_topics(broker.address, {"outage": PARTITIONS})
    folder = Path(tempfile.mkdtemp())
    producer = BufferedProducer(
        KafkaSink(broker.address, "outage", client=arguments.client),
        journal=folder,
        max_items=BUFFER_ITEMS,
        batch_items=2000,
        sink_timeout_s=2.0,
        key=lambda request: request[0],
    )
    watch = Watch(producer)
    numbers, pad = itertools.count(), b"." * max(0, arguments.bytes - 12)

    def send() -> None:
        number = next(numbers)
        producer.send((b"key-%d" % (number % KEYS), b"%012d" % number + pad))

    try:
        most = _confirmed_per_s(producer, send)
        rate = min(arguments.rate, most // 2)
        warm_up = sent = producer.snapshot().balance.accepted
        began = time.perf_counter()
        is_killed, starter = False, None
        up_at = caught_up_s = 0.0
        while not up_at or time.perf_counter() - began < up_at + CATCH_UP_S:
            passed = time.perf_counter() - began
            for _ in range(max(0, int(passed * rate) - (sent - warm_up))):
                send()
                sent += 1
            if passed > 5 and not is_killed:
                is_killed = True
                broker.kill()
            if passed > 5 + arguments.outage and starter is None:
                starter = threading.Thread(target=broker.start)
                starter.start()
            if starter is not None and not starter.is_alive():
                up_at = up_at or passed
                if producer.snapshot().journal_only == 0:
                    caught_up_s = passed - up_at
                    break
            time.sleep(0.002)
        offered = (sent - warm_up) / (time.perf_counter() - began)
        assert producer.flush(300), producer.snapshot()
        took_s = time.perf_counter() - began
        balance = producer.snapshot().balance
        producer.close()
        return {
            "sent": sent,
            "took_s": round(took_s, 1),
            "confirmed_per_s_before": most,
            "offered_per_s": round(offered),
            "caught_up_s_after_the_return": round(caught_up_s, 1) or f"not within {CATCH_UP_S:g}",
            "confirmed": balance.confirmed,
            **watch.figures(),
            **audit(broker.address, sent),
        }
    finally:
        producer.close(0)
        watch.stop()
        shutil.rmtree(folder)


def _confirmed_per_s(producer: BufferedProducer[Any], send: Callable[[], None]) -> int:
    """How many a second this machine confirms, with all that is sent written and read again."""
    began = time.perf_counter()
    while time.perf_counter() - began < WARM_UP_S:
        send()
    assert producer.flush(120), producer.snapshot()
    return int(producer.snapshot().balance.confirmed / (time.perf_counter() - began))


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
        return {
            **most,
            "resident_mb_before": self._resident[0] >> 20,
            "most_resident_mb": max(self._resident) >> 20,
        }


def _resident_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    return 0


def audit(address: str, sent: int) -> dict[str, Any]:
    """What lies on the topic, compared with what was sent."""
    from kafka import KafkaConsumer, TopicPartition

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
            for record in records:
                number = int(record.value[:12])
                doubled += seen[number]
                seen[number] = 1
                disorder += number < last.get(record.key, -1)
                last[record.key] = number
    consumer.close()
    return {"lost": sent - sum(seen), "doubled": doubled, "out_of_order": disorder}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--messages", type=int, default=60_000, help="in each round, of each row")
    parser.add_argument("--bytes", type=int, default=256, help="of a message's value")
    parser.add_argument(
        "--outage", type=float, default=0.0, help="kill the broker for so many seconds instead"
    )
    parser.add_argument(
        "--rate", type=int, default=20_000, help="messages a second during the outage"
    )
    parser.add_argument(
        "--only", nargs="+", metavar="TEXT", help="rows whose name contains one of these"
    )
    parser.add_argument(
        "--client", default="confluent", help="of the outage: confluent or kafka-python"
    )
    arguments = parser.parse_args()
    with KafkaBroker() as broker:
        name = "producing-outage" if arguments.outage else "producing"
        figures = outage(arguments, broker) if arguments.outage else compare(arguments, broker)
    if arguments.outage:
        print(*(f"{key}: {value}" for key, value in figures.items()), sep="\n")
    print("saved:", save(name, {"parameters": vars(arguments), **figures}))
    if arguments.outage and (figures["lost"] or figures["doubled"] or figures["out_of_order"]):
        sys.exit(1)


if __name__ == "__main__":
    main()
