"""``leaderq servers up``: a ZooKeeper and a Kafka to try things on."""

from __future__ import annotations

import signal
import sys

import click

from leaderq.cli.options import JSON, Given, verb
from leaderq.cli.output import say, write_json
from leaderq.cli.signals import stop_early
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
