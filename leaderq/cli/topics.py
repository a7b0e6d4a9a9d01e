"""``leaderq topics create``: topics for careers to read."""

from __future__ import annotations

import re

import click

from leaderq.cli.options import Given, Verb, number, takes_settings
from leaderq.cli.output import quiet
from leaderq.config import Section
from leaderq.errors import ConfigurationError

_NAME = re.compile("[A-Za-z0-9._-]{1,249}")


@click.command(cls=Verb)
@click.argument("names", metavar="TOPIC...", nargs=-1, required=True)
@number("--partitions", "partitions of each; default: the cluster's own")
@number("--replication", "copies of each partition; default: the cluster's own")
@click.option(
    "--topic-config",
    "configs",
    multiple=True,
    metavar="KEY=VALUE",
    help="a config of each, as retention.ms=86400000; may be given again",
)
@takes_settings(Section.KAFKA)
def create(
    given: Given,
    names: tuple[str, ...],
    partitions: int | None,
    replication: int | None,
    configs: tuple[str, ...],
) -> None:
    """Create topics, and return when each of their partitions has a leader.

    A topic that exists already is left as it is, and a line says so.

    \b
    Examples:
      leaderq topics create clicks --partitions 6
      leaderq topics create clicks clicks-dead --replication 3 --topic-config min.insync.replicas=2
    """
    if wrong := [name for name in names if name in (".", "..") or not _NAME.fullmatch(name)]:
        remedy = "use up to 249 letters, digits, '.', '_' and '-'"
        raise ConfigurationError(
            *(f"{name!r} cannot be the name of a topic; {remedy}" for name in wrong)
        )
    wanted = dict(_config(text) for text in configs)
    settings = given.load().settings
    quiet()
    from leaderq.kafka.topics import create_topics

    created = create_topics(
        settings.kafka,
        dict.fromkeys(names, partitions or -1),
        configs=wanted,
        replication=replication or -1,
        security=settings.kafka_security,
        timeout_s=settings.connect_timeout_s,
    )
    for name in dict.fromkeys(names):
        click.echo(f"{name} is {'created' if name in created else 'there already'}", err=True)


def _config(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise ConfigurationError(f"--topic-config {text!r} is not KEY=VALUE")
    return key, value
