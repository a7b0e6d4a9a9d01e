"""How fast records are drained: leaderq beside bare loops over the same client libraries,
interleaved in one run.

    python benchmarks/drain.py [--rounds 5] [--records 200000] [--confluent-records 1000000]
                               [--clients kafka-python,confluent] [--only plain,partitions]
                               [--stores kafka,zookeeper,external] [--cpu]

Batches of 1,000, and everything else of leaderq at its defaults. Every loop, and leaderq's handler,
reads key, value and offset of each record. leaderq commits every batch before it hands out the
next; so do the bare loops, as members of a group. *own settings* are the library's defaults, *our
settings* those that leaderq sets. The last row of each library is its fastest loop: without a
group, without a commit, with our settings, and with the garbage collector as under ``leaderq run``.
That is the most that the library can do.

``plain``: records of 1 KB in 4 partitions on one broker. The others differ from it in one thing:
``partitions``: 100 of them; ``small``: 100 bytes; ``lz4``: compressed with lz4; ``transactions``:
each batch is produced again in a transaction with its offsets, with the same settings on both
sides; ``workers``: 16 partitions, and a handler that waits 20 us for each record, with
``workers=8`` beside ``workers=1``, beside the same handler in a ``ThreadPoolExecutor`` of eight,
and beside a loop that does not wait at all; ``keys``: 400 keys in 4 partitions and a call of 50 ms
for each record, a hundred keys at a time and each in order, on threads and with coroutines
(8,000 records; the bare loop is kafka-python's; 2,000 a second are the most that a hundred calls
at a time can do); ``traced``: each record carries a trace context of its own, without and with
``tracing = true`` and OpenTelemetry's SDK, whose spans go nowhere.

All figures are records a second; ratios are of medians. With ``--cpu`` the second is one of this
process's CPU time, which can be compared on a busy machine, but does not show waiting.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import drain_bare as bare
from confluent_kafka import Producer
from drain_bare import Job, Stopwatch
from drain_career import Awaiting, Calling, Reading, Transforming, Waiting, drained
from figures import print_table, save, summary
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from leaderq import connect
from leaderq.kafka.topics import create_topics
from leaderq.observability import tracing
from leaderq.testing import KafkaBroker, ZooKeeperServer
from leaderq.zookeeper import Session

RUN = 500  # records of one partition in a row, as producers that batch send them
OWN, OURS, FASTEST = "bare, own settings", "bare, our settings", "bare, the fastest"
BARS = {OWN: 0.9, OURS: 0.8}

Rows = dict[str, Callable[[Job], float]]


@dataclass(frozen=True)
class Scenario:
    """What is read, and how."""

    name: str
    partitions: int = 4
    record_bytes: int = 1000
    compression: str = "none"
    keys: int | None = None
    most: int | None = None
    has_contexts: bool = False


SCENARIOS = {
    each.name: each
    for each in (
        Scenario("plain"),
        Scenario("partitions", partitions=100),
        Scenario("small", record_bytes=100),
        Scenario("lz4", compression="lz4"),
        Scenario("transactions"),
        Scenario("workers", partitions=16),
        Scenario("keys", keys=bare.KEYS, most=8000),
        Scenario("traced", has_contexts=True),
    )
}


def feed(address: str, scenario: Scenario, count: int) -> None:
    """Put records on the scenario's topic."""
    create_topics(
        address, {scenario.name: scenario.partitions, f"{scenario.name}-out": scenario.partitions}
    )
    options = {"linger.ms": 20, "batch.size": 500_000, "compression.type": scenario.compression}
    producer = Producer({"bootstrap.servers": address, **options})
    value = b"v" * scenario.record_bytes
    for number in range(count):
        while True:
            try:
                where, key = number // RUN % scenario.partitions, number
                if scenario.keys is not None:
                    key = random.randrange(scenario.keys // scenario.partitions)
                    key = key * scenario.partitions + where
                context = {"traceparent": b"00-%032x-%016x-01" % (number + 1, number + 1)}
                headers = context if scenario.has_contexts else None
                producer.produce(
                    scenario.name, value, b"key-%08d" % key, partition=where, headers=headers
                )
                break
            except BufferError:
                producer.poll(0.05)
    if producer.flush(60):
        raise SystemExit("the records were not produced in time")


def rows_of(client: str, scenario: Scenario, session: Session, stores: list[str]) -> Rows:
    """What is measured with one client, the bare loops first."""
    ours = partial(drained, session=session, client=client)
    read = bare.kafka_python if client == "kafka-python" else bare.confluent
    if scenario.name == "transactions":
        loop = (
            bare.kafka_python_transactions
            if client == "kafka-python"
            else bare.confluent_transactions
        )
        return {
            OURS: loop,
            f"{OURS}, our collector": partial(bare.collecting_as_ours, loop),
            "leaderq, transaction": partial(ours, kind=Transforming),
        }
    if scenario.has_contexts:
        return {"leaderq, not traced": ours, "leaderq, traced": partial(traced, ours)}
    if scenario.name == "keys":
        return {
            f"{OURS}, by key": bare.kafka_python_by_key,
            "leaderq, order='key'": partial(ours, kind=Calling),
            "leaderq, concurrency": partial(ours, kind=Awaiting),
        }
    if scenario.name == "workers":
        loop = bare.kafka_python_shared if client == "kafka-python" else bare.confluent_shared
        most = bare.SHARED_BY
        counts = {
            f"leaderq, workers={n}": partial(ours, kind=Waiting, workers=n) for n in (1, most)
        }
        return {
            f"{OURS}, {most} threads": partial(bare.collecting_as_ours, loop),
            f"{OURS}, no waiting": partial(read, commit=True, ours=True),
            **counts,
        }
    rows: Rows = {
        OWN: partial(read, commit=True),
        OURS: partial(read, commit=True, ours=True),
        FASTEST: partial(bare.collecting_as_ours, partial(read, commit=False, ours=True)),
    }
    for store in stores if scenario.name == "plain" else stores[:1]:
        rows[f"leaderq, {store}"] = partial(ours, kind=Reading, offsets=store)
    if "kafka" in stores:
        rows["leaderq, kafka, commit behind"] = partial(ours, kind=Reading, commit_behind=True)
    return rows


class Nowhere(SpanExporter):
    """Where traced rows send their spans."""

    def export(self, _spans: object) -> SpanExportResult:
        return SpanExportResult.SUCCESS


def traced(drained: Callable[[Job], float], job: Job) -> float:
    """The same with tracing on."""
    if not isinstance(trace.get_tracer_provider(), TracerProvider):
        provider = TracerProvider()
        provider.add_span_processor(BatchSpanProcessor(Nowhere()))
        trace.set_tracer_provider(provider)
    tracing.start()
    try:
        return drained(job)
    finally:
        tracing.stop()


def ratios(figures: dict[str, dict[str, Any]]) -> dict[str, dict[str, float]]:
    """leaderq's medians over those of the other rows of the same client and scenario."""
    medians = {name: row["median"] for name, row in figures.items()}
    ours = [name for name in medians if name.startswith("leaderq")]
    return {
        name: {
            other: round(medians[name] / medians[other], 3) for other in medians if other != name
        }
        for name in (ours[-1:] if len(ours) == len(medians) else ours)
    }


def tell(name: str, figures: dict[str, dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Print the figures of one scenario with one client, and where a bar is missed."""
    print_table(f"{name}: records a second", figures)
    found = ratios(figures)
    for ours, row in found.items():
        print(f"{ours}: {row}")
        for other, bar in BARS.items():
            if row.get(other, bar) < bar:
                print(f"  we lose: {ours} is {row[other]} of {other}, the bar is {bar}")
    return found


def measure(
    address: str,
    scenario: Scenario,
    client: str,
    arguments: argparse.Namespace,
    session: Session,
    numbers: Any,
) -> dict[str, dict[str, Any]]:
    """Each row of one scenario with one client, in turns."""
    count = arguments.records if client == "kafka-python" else arguments.confluent_records
    topic, count = scenario.name, min(count, scenario.most or count)
    job = Job(address, topic, scenario.partitions, count, arguments.batch, "", out=f"{topic}-out")
    rows = rows_of(client, scenario, session, arguments.stores.split(","))
    rates: dict[str, list[float]] = {name: [] for name in rows}
    for number in range(arguments.rounds):
        for name in rows if number % 2 else reversed(rows):  # so that no row always comes first
            rate = rows[name](replace(job, name=f"run-{next(numbers)}"))
            rates[name].append(rate)
            told = f"{number + 1}/{arguments.rounds} {topic}, {client}, {name}: {rate:,.0f}/s"
            print(f"\r{told:<90}", end="", file=sys.stderr, flush=True)
    return {name: summary(rates[name]) for name in rows}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--batch", type=int, default=1000, help="records of one poll, and of one batch"
    )
    parser.add_argument(
        "--records", type=int, default=200_000, help="to be read with kafka-python, each time"
    )
    parser.add_argument(
        "--confluent-records", type=int, default=1_000_000, help="the same with confluent"
    )
    parser.add_argument("--clients", default="kafka-python,confluent")
    parser.add_argument("--stores", default="kafka,zookeeper,external")
    parser.add_argument("--only", default=",".join(SCENARIOS), help="scenarios")
    parser.add_argument(
        "--cpu", action="store_true", help="a second of CPU time instead of one of the clock"
    )
    arguments = parser.parse_args()
    if arguments.cpu:
        Stopwatch.clock = staticmethod(time.process_time)
    figures, found, numbers = {}, {}, itertools.count(1)
    clients = arguments.clients.split(",")
    counts = {"kafka-python": arguments.records, "confluent": arguments.confluent_records}
    with ExitStack() as stack:
        session = connect(stack.enter_context(ZooKeeperServer()).address)
        stack.callback(session.close)
        for scenario in (SCENARIOS[name] for name in arguments.only.split(",")):
            with KafkaBroker(properties={"group.initial.rebalance.delay.ms": "0"}) as broker:
                feed(
                    broker.address,
                    scenario,
                    max(counts[client] for client in clients) + scenario.partitions * RUN,
                )
                for client in clients:
                    name = f"{scenario.name}, {client}"
                    figures[name] = measure(
                        broker.address, scenario, client, arguments, session, numbers
                    )
                    found[name] = tell(name, figures[name])
    print(
        "saved:",
        save("drain", {"parameters": vars(arguments), "figures_per_s": figures, "ratios": found}),
    )


if __name__ == "__main__":
    main()
