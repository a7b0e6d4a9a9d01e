"""``leaderq servers up``: a ZooKeeper and a Kafka to try things on; ``leaderq topics create``:
topics for careers to read.
"""

from __future__ import annotations

import signal
import sys

import click

from leaderq.cli.options import JSON, Given, number, pairs, verb
from leaderq.cli.output import quiet, say, write_json
from leaderq.cli.signals import stop_early
from leaderq.config import Section
from leaderq.errors import ConfigurationError
from leaderq.threads import primitives


@verb(JSON)
def up(given: Given) -> None:
    """Start one ZooKeeper and one Kafka, print their addresses, stop them at Ctrl-C or SIGTERM.

    Needs nothing but Python with leaderq[servers]: the servers are fetched once and kept. Their
    data is thrown away at the end. They listen on 2181 and 9092, which are leaderq's defaults, if
    these ports are free. A server named by LEADERQ_ZOOKEEPER or LEADERQ_KAFKA is used as it is and
    not started.

    \b
    Example, in two terminals:
      leaderq servers up
      export LEADERQ_ZOOKEEPER=... LEADERQ_KAFKA=...      (as printed by the first, if other ports)
    """
    from leaderq.testing.provision import ServerPair

    signal.signal(signal.SIGTERM, stop_early)
    with ServerPair(usual_ports=True) as pair:
        told = primitives.Event()
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, lambda *_: told.set())
        zookeeper, kafka = pair.zookeeper_address, pair.kafka_address
        if given.as_json:
            write_json({"zookeeper": zookeeper, "kafka": kafka})
        else:
            click.echo(f"export LEADERQ_ZOOKEEPER={zookeeper} LEADERQ_KAFKA={kafka}")
        sys.stdout.flush()
        say("running; Ctrl-C stops them")
        # In slices: on some platforms a wait without end lets no signal handler of Python's run.
        while not told.wait(0.5):
            pass
        say("stopping...")


@verb(
    click.Argument(["names"], metavar="TOPIC...", nargs=-1, required=True),
    number("--partitions", "partitions of each; default: the cluster's own"),
    number("--replication", "copies of each partition; default: the cluster's own"),
    pairs("--topic-config", "configs", "config of each, such as retention.ms=86400000; repeatable"),
    Section.KAFKA,
)
def create(given: Given) -> None:
    """Create topics, and return when each of their partitions has a leader.

    A topic that exists already is left as it is, and a line says so.

    \b
    Examples:
      leaderq topics create clicks --partitions 6
      leaderq topics create clicks clicks-dead --replication 3 --topic-config min.insync.replicas=2
    """
    quiet()
    from leaderq.kafka.record import TOPIC_NAME
    from leaderq.kafka.topics import create_topics

    if wrong := [name for name in given.names if not TOPIC_NAME.fullmatch(name)]:
        remedy = "use up to 249 letters, digits, '.', '_' and '-'"
        raise ConfigurationError(
            *(f"{name!r} cannot be the name of a topic; {remedy}" for name in wrong)
        )
    settings = given.settings
    created = create_topics(
        settings.kafka,
        dict.fromkeys(given.names, given.partitions or -1),
        configs=given.configs,
        replication=given.replication or -1,
        security=settings.kafka_security,
        timeout_s=settings.connect_timeout_s,
    )
    for name in dict.fromkeys(given.names):
        say(f"{name} is {'created' if name in created else 'there already, and left as it is'}")
