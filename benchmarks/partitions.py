"""What many partitions cost a leader: taking over, being idle, draining, handing over.

    python benchmarks/partitions.py [--partitions 1000,10000] [--records 200000] [--idle-s 20]
                                    [--clients kafka-python,confluent]

Records of 100 bytes, spread over all partitions of one broker, topics of 2,500 partitions each;
batches and all else at the defaults. Two candidates are warm. The first takes over and drains; its
successor takes over while some records wait. *open*: until a candidate is warm. *take over*: from
the beginning of a term to the first record handled and committed. *idle*: the share of a core that
the process takes while it leads and no record comes. *report*: the znode that ``leaderq status``
reads. The bare row is the same client with our settings, polled every 200 ms, and does nothing
else.
"""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import drain_bare as bare
from confluent_kafka import Producer
from drain_bare import Job, Stopwatch, collecting_seldom
from drain_career import Reading, drain, leading, prepared
from figures import print_table, save

from leaderq import connect
from leaderq.base.clock import now_s
from leaderq.kafka.topics import committed, create_topics
from leaderq.term import OpenTerm
from leaderq.testing import KafkaBroker, ZooKeeperServer
from leaderq.zookeeper import Session

TOPIC_PARTITIONS = 2500
WAITING = 100
SETTLE_S = 3.0
_GIVE_UP_S = 120.0


def topics_of(partitions: int) -> dict[str, int]:
    """Topics that have so many together."""
    sizes = [
        min(TOPIC_PARTITIONS, partitions - first)
        for first in range(0, partitions, TOPIC_PARTITIONS)
    ]
    return {f"records-{number}": size for number, size in enumerate(sizes)}


def feed(address: str, topics: dict[str, int], count: int) -> None:
    """Spread so many records over all partitions."""
    producer = Producer({"bootstrap.servers": address, "linger.ms": 50})
    where = [
        (topic, number) for topic, partitions in topics.items() for number in range(partitions)
    ]
    for number in range(count):
        topic, partition = where[number % len(where)]
        while True:
            try:
                producer.produce(topic, b"v" * 100, b"key-%08d" % number, partition=partition)
                break
            except BufferError:
                producer.poll(0.05)
    if producer.flush(_GIVE_UP_S):
        raise SystemExit("the records were not produced in time")


def handled(career: Any, term: OpenTerm, count: int) -> float:
    """Seconds until so many more are handled and committed."""
    began_s = now_s()
    career.watch = Stopwatch(count)
    drain(career, term)
    return now_s() - began_s


def idle_share(career: Any, term: OpenTerm, for_s: float) -> float:
    """The percentage of a core that this process takes while nothing comes."""
    until_s = now_s() + SETTLE_S  # what is busy only because something came has calmed down
    while now_s() < until_s:
        career.execute(term)
    began_s, cpu_s = now_s(), time.process_time()
    while now_s() < began_s + for_s:
        career.execute(term)
    return 100 * (time.process_time() - cpu_s) / (now_s() - began_s)


def lead(
    job: Job, topics: dict[str, int], session: Session, client: str, idle_s: float
) -> dict[str, Any]:
    """All of it with one client, the records fed already."""
    declared = {"topics": tuple(topics), "client": client}
    began_s = now_s()
    first = prepared(Reading, job, session, **declared)
    row: dict[str, Any] = {"open s": now_s() - began_s}
    second = prepared(Reading, job, session, **declared)
    began_s = now_s()
    with leading(first, job, session) as term:
        handled(first, term, 1)
        row["take over s"] = now_s() - began_s
        row["drained a s"] = (job.count - first.handled) / handled(
            first, term, job.count - first.handled
        )
        row["idle %"] = idle_share(first, term, idle_s)
        row["report KB"] = len(session.get(f"/leaderq/{job.name}/progress")[0]) / 1000
    feed(job.address, topics, WAITING)
    began_s = now_s()
    with leading(second, job, session) as term:
        handled(second, term, 1)
        row["succeeded s"] = now_s() - began_s
    return {name: round(value, 2) for name, value in row.items()}


def bare_idle(job: Job, topics: dict[str, int], client: str, idle_s: float) -> float:
    """The share of a core that the bare client takes, polled as leaderq polls."""
    settings = replace(job.settings, topics=tuple(topics))
    poll, close = (bare.kafka_python_polls if client == "kafka-python" else bare.confluent_polls)(
        settings
    )
    until_s = now_s() + SETTLE_S
    while poll() or now_s() < until_s:
        pass
    began_s, cpu_s = now_s(), time.process_time()
    while now_s() < began_s + idle_s:
        poll()
    share = 100 * (time.process_time() - cpu_s) / (now_s() - began_s)
    close()
    return round(share, 2)


def measure(arguments: argparse.Namespace, stack: ExitStack) -> dict[str, dict[str, Any]]:
    session = connect(stack.enter_context(ZooKeeperServer()).address)
    stack.callback(session.close)
    rows: dict[str, dict[str, Any]] = {}
    for partitions in map(int, arguments.partitions.split(",")):
        properties = {"group.initial.rebalance.delay.ms": "0"}
        with KafkaBroker(
            properties=properties, heap_mb=1024 if partitions > TOPIC_PARTITIONS else 512
        ) as broker:
            topics = topics_of(partitions)
            for topic, size in topics.items():
                create_topics(broker.address, {topic: size}, timeout_s=_GIVE_UP_S)
            feed(broker.address, topics, arguments.records)
            # A broker makes the topic of its groups when it is first asked, behind all these.
            committed(broker.address, "nobody", "records-0", timeout_s=_GIVE_UP_S)
            for number, client in enumerate(arguments.clients.split(",")):
                job = Job(
                    broker.address,
                    "",
                    partitions,
                    arguments.records + number * WAITING,
                    1000,
                    f"{client}-{partitions}",
                )
                name = f"{partitions} partitions, {client}"
                rows[name] = lead(job, topics, session, client, arguments.idle_s)
                rows[name]["bare idle %"] = bare_idle(
                    replace(job, name=f"bare-{client}"), topics, client, arguments.idle_s
                )
                print(f"{name}: {rows[name]}", file=sys.stderr, flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--partitions", default="1000,10000")
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--idle-s", type=float, default=20.0)
    parser.add_argument("--clients", default="kafka-python,confluent")
    arguments = parser.parse_args()
    with ExitStack() as stack, collecting_seldom():
        rows = measure(arguments, stack)
    print_table("a leader of many partitions", rows)
    print("saved:", save("partitions", {"parameters": vars(arguments), "rows": rows}))


if __name__ == "__main__":
    main()
