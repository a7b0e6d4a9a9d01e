"""``leaderq servers up``: a ZooKeeper and a Kafka to try things on."""

from __future__ import annotations

import signal
import sys
import threading

import click

from leaderq.cli.options import Verb, debug_option, json_option
from leaderq.cli.output import write_json
from leaderq.cli.signals import stop_early


@click.command(cls=Verb)
@debug_option
@json_option
def up(as_json: bool) -> None:
    """Start one ZooKeeper and one Kafka, print their addresses, stop them at Ctrl-C or SIGTERM.

    Needs nothing but Python with leaderq[servers]: the servers are fetched once and kept. Their
    data is thrown away at the end. They answer on 2181 and 9092, which are leaderq's defaults, if
    these ports are free. A server named by LEADERQ_ZOOKEEPER or LEADERQ_KAFKA is taken as it is and
    not started.

    \b
    Example, in two terminals:
      leaderq servers up
      export LEADERQ_ZOOKEEPER=... LEADERQ_KAFKA=...      (as printed by the first, if other ports)
    """
    from leaderq.testing.provision import ServerPair

    signal.signal(signal.SIGTERM, stop_early)
    with ServerPair(usual_ports=True) as pair:
        told = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: told.set())
        if as_json:
            write_json({"zookeeper": pair.zookeeper_address, "kafka": pair.kafka_address})
        else:
            click.echo(
                f"export LEADERQ_ZOOKEEPER={pair.zookeeper_address}"
                f" LEADERQ_KAFKA={pair.kafka_address}"
            )
        sys.stdout.flush()
        click.echo("running; Ctrl-C stops them", err=True)
        # In slices: a wait without end would not let Python's signal handlers run on every
        # platform.
        while not told.wait(0.5):
            pass
        click.echo("stopping...", err=True)
