"""How fast records are drained: leaderq beside bare loops over the same client libraries, interleaved in one run.

    python benchmarks/drain.py [--rounds 5] [--batch 1000] [--records 200000] [--confluent-records 1500000]
                               [--clients kafka-python,confluent] [--stores kafka,zookeeper,external] [--transactions]

Records of 1 KB in 4 partitions on one broker. Every loop, and leaderq's handler, reads key, value and offset of each record; all use
the same batch size. leaderq saves every batch before it hands out the next; of each bare loop there is one that commits each batch
and one that never does. *own settings* are the library's defaults, *same settings* those that leaderq gives to the library; in *same
collector* also Python's garbage collector looks as seldom as while a term of leaderq drains, which no loop does by itself.
``--transactions``: each batch is produced again in a transaction with its offsets, with the same settings on both sides.
All in records a second. Ratios are medians: leaderq's over the fastest bare loops of the same client.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import drain_bare as bare
from confluent_kafka import Producer
from drain_bare import Job
from drain_career import drained
from figures import print_table, save, summary

from leaderq import connect
from leaderq.kafka.topics import create_topics
from leaderq.testing import KafkaBroker, ZooKeeperServer
from leaderq.zookeeper import Session

PARTITIONS = 4
COLLECTOR = "same collector"
RECORD_BYTES = 1000
RUN = 500  # records of one partition in a row, as producers that batch send them

Rows = dict[str, Callable[[Job], float]]


def feed(address: str, topic: str, count: int) -> None:
    """Put records on the topic."""
    create_topics(address, {topic: PARTITIONS})
    producer = Producer({"bootstrap.servers": address, "linger.ms": 20, "batch.size": 500_000})
    value = b"v" * RECORD_BYTES
    for number in range(count):
        while True:
            try:
                producer.produce(topic, value, b"key-%08d" % number, partition=number // RUN % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.05)
    if producer.flush(60):
        raise SystemExit("the records were not produced in time")


def rows_of(client: str, session: Session, stores: list[str], transactions: bool) -> Rows:
    """What is measured with one client, the bare loops first."""
    if transactions:
        loop = bare.kafka_python_transactions if client == "kafka-python" else bare.confluent_transactions
        ours = partial(drained, session=session, client=client, offsets="transaction", transform=True)
        return {
            f"bare {client}, transactions": loop,
            f"bare {client}, transactions, {COLLECTOR}": partial(bare.collecting_as_ours, loop),
            f"leaderq, {client}, transaction": ours,
        }
    read = bare.kafka_python if client == "kafka-python" else bare.confluent
    rows: Rows = {
        f"bare {client}, assign": partial(read, group=False, commit=False),
        f"bare {client}, assign, same settings": partial(read, group=False, commit=False, ours=True),
        f"bare {client}, group": partial(read, group=True, commit=False),
        f"bare {client}, assign, same settings, {COLLECTOR}": partial(
            bare.collecting_as_ours, partial(read, group=False, commit=False, ours=True)
        ),
        f"bare {client}, assign, commits": partial(read, group=False, commit=True),
        f"bare {client}, assign, same settings, commits": partial(read, group=False, commit=True, ours=True),
        f"bare {client}, group, commits": partial(read, group=True, commit=True),
    }
    for store in stores:
        rows[f"leaderq, {client}, {store}"] = partial(drained, session=session, client=client, offsets=store)
    return rows


def ratios(client: str, figures: dict[str, dict[str, Any]]) -> dict[str, dict[str, float]]:
    """leaderq's medians over those of the bare loops of the same client."""
    bares = {name: row["median"] for name, row in figures.items() if name.startswith(f"bare {client}")}
    ours = {name: row["median"] for name, row in figures.items() if name.startswith(f"leaderq, {client}")}
    if not bares:
        return {}
    groups = {
        "to the fastest bare loop": [rate for name, rate in bares.items() if COLLECTOR not in name],
        "to the fastest that commits": [rate for name, rate in bares.items() if name.endswith("commits")],
        "to the fastest with our collector": [rate for name, rate in bares.items() if COLLECTOR in name],
    }
    return {
        name: {what: round(rate / max(rates), 3) for what, rates in groups.items() if rates} for name, rate in ours.items()
    }


def run(arguments: argparse.Namespace, stack: ExitStack) -> dict[str, dict[str, Any]]:
    session = connect(stack.enter_context(ZooKeeperServer()).address)
    stack.callback(session.close)
    broker = stack.enter_context(KafkaBroker(properties={"group.initial.rebalance.delay.ms": "0"}))
    counts = {"kafka-python": arguments.records, "confluent": arguments.confluent_records}
    clients = arguments.clients.split(",")
    feed(broker.address, "records", max(counts[client] for client in clients) + PARTITIONS * RUN)
    create_topics(broker.address, {"results": PARTITIONS})
    numbers = itertools.count(1)
    rates: dict[str, list[float]] = {}
    for number in range(arguments.rounds):
        for client in clients:
            job = Job(broker.address, "records", PARTITIONS, counts[client], arguments.batch, "", out="results")
            rows = rows_of(client, session, arguments.stores.split(","), arguments.transactions)
            turned = list(rows.items()) if number % 2 else list(rows.items())[::-1]  # so that no row always comes first
            for name, measure in turned:
                rate = measure(replace(job, name=f"run-{next(numbers)}"))
                rates.setdefault(name, []).append(rate)
                print(
                    f"\r{number + 1}/{arguments.rounds} {name}: {rate:,.0f}/s{'':<30}", end="", file=sys.stderr, flush=True
                )
    return {name: summary(rates[name]) for name in sorted(rates)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, default=1000, help="records of one poll, and of one batch")
    parser.add_argument("--records", type=int, default=200_000, help="to be read with kafka-python, each time")
    parser.add_argument(
        "--confluent-records", type=int, default=1_500_000, help="to be read with confluent-kafka, each time"
    )
    parser.add_argument("--clients", default="kafka-python,confluent")
    parser.add_argument("--stores", default="kafka,zookeeper,external")
    parser.add_argument("--transactions", action="store_true", help="consume, transform and produce instead of reading only")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        figures = run(arguments, stack)
    print_table(f"records a second, batches of {arguments.batch}", figures)
    found = {client: ratios(client, figures) for client in arguments.clients.split(",")}
    for rows in found.values():
        for name, row in rows.items():
            print(f"{name}: {row}")
    name = "drain-transactions" if arguments.transactions else "drain"
    print("saved:", save(name, {"parameters": vars(arguments), "figures_per_s": figures, "ratios": found}))


if __name__ == "__main__":
    main()
