"""``leaderq topics``: topics for careers to read, and a few records to see careers work."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click

from leaderq.admin.text import iso
from leaderq.cli.options import JSON, Given, number, pairs, switch, verb, without_mark
from leaderq.cli.output import conclude, json_value, quiet, say, write_rows
from leaderq.config import Section
from leaderq.errors import ConfigurationError

# The Kafka client takes half a second to import, which --help should not.
if TYPE_CHECKING:
    from leaderq.kafka.record import Record

_TOPIC = click.Argument(["topic"], metavar="TOPIC")
_SHOWN = 10
_MOST_COPIES = 2**15 - 1  # as Kafka's requests can say


@verb(
    click.Argument(["names"], metavar="TOPIC...", nargs=-1, required=True),
    number("--partitions", "partitions of each; default: the cluster's own"),
    number(
        "--replication", "copies of each partition; default: the cluster's own", most=_MOST_COPIES
    ),
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
    from leaderq.kafka.topics import create_topics

    check_topics(given.names)
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


@verb(JSON, Section.KAFKA)
def ls(given: Given) -> None:
    """List topics: how many partitions and records each has, and the number of replicas of the
    partition that has fewest. Records of aborted transactions are counted, too, until Kafka removes
    them.

    \b
    Example:
      leaderq topics ls
    """
    quiet()
    from leaderq.kafka.topics import bounds, describe_topics, existing_topics

    address, access = given.settings.kafka, _access(given)
    names = sorted(existing_topics(address, **access))
    views = describe_topics(address, names, **access)
    held = dict.fromkeys(names, 0)
    for partition, (first, end) in bounds(address, names, **access).items():
        held[partition.topic] += end - first
    write_rows(
        (
            {
                "topic": name,
                "partitions": views[name].partitions,
                "records": held[name],
                "replicas": views[name].replicas,
            }
            for name in names
        ),
        given.as_json,
        f"there are no topics on {address}",
    )


@verb(
    _TOPIC,
    click.Argument(["values"], nargs=-1, metavar="[VALUE]..."),
    click.Option(["--key"], metavar="KEY", help="key of the records; default: none"),
    switch("--keyed", help="each line of standard input is a key, a tab and a value"),
    JSON,
    Section.KAFKA,
)
def put(given: Given) -> None:
    """Send VALUEs to TOPIC as records, in their order; without any VALUE, the lines of standard
    input.

    If the exit code is 0, each record is stored once. If a line is refused, none is sent. This verb
    is for trying things, and holds its input in memory; programs send with leaderq.producing.

    \b
    Examples:
      leaderq topics put clicks '{"page": "/", "by": "anna"}'
      leaderq topics put clicks --keyed < clicks.tsv
    """
    quiet()
    from leaderq.kafka.topics import MOST_FED_BYTES, end_offsets, produce

    check_topics([given.topic])
    if given.keyed and (given.key is not None or given.values):
        raise ConfigurationError("--keyed is for standard input, whose lines have keys; leave it")
    if not given.values and sys.stdin is None:
        raise ConfigurationError("no values were given, and standard input is closed")
    address, access = given.settings.kafka, _access(given)
    end_offsets(address, given.topic, **access)  # no topic is made by writing to it
    records = list(_records(given))  # nothing is sent if one line is refused
    for at, (key, value) in enumerate(records, 1):
        if (size := len(key or b"") + len(value)) > MOST_FED_BYTES:
            what = f"record {at} has {size} bytes, and this verb sends {MOST_FED_BYTES} at most"
            raise ConfigurationError(f"{what}; nothing was sent")
    sent = produce(address, given.topic, records, security=access["security"])
    conclude(f"{sent} sent to {given.topic}", given.as_json, sent=sent)


@verb(
    _TOPIC,
    number("--last", f"how many records; default: {_SHOWN}"),
    JSON,
    Section.KAFKA,
)
def show(given: Given) -> None:
    """Show the newest records of TOPIC, beginning with the oldest of them. No group commits an
    offset.

    \b
    Examples:
      leaderq topics show clicks
      leaderq topics show invoices --last 100 --json | jq .value
    """
    quiet()
    from leaderq.kafka.topics import newest_records

    check_topics([given.topic])
    found = newest_records(
        given.settings.kafka, given.topic, given.last or _SHOWN, **_access(given)
    )
    write_rows(
        found,
        given.as_json,
        f"{given.topic} holds no records",
        said=_said,
        columns=("PARTITION", "OFFSET", "TIME", "KEY", "VALUE"),
        row=lambda one: [_text(each) for each in _said(one).values()],
    )


def _access(given: Given) -> dict[str, Any]:
    settings = given.settings
    return {"security": settings.kafka_security, "timeout_s": settings.connect_timeout_s}


def check_topics(names: Iterable[str]) -> None:
    """Raise ConfigurationError if one of ``names`` cannot be the name of a topic."""
    from leaderq.kafka.record import TOPIC_RULE, is_topic_name

    if wrong := [name for name in names if not is_topic_name(name)]:
        raise ConfigurationError(
            *(f"{name!r} cannot be the name of a topic; use {TOPIC_RULE}" for name in wrong)
        )


def _records(given: Given) -> Iterator[tuple[bytes | None, bytes]]:
    key = None if given.key is None else _bytes(given.key)
    if given.values:
        yield from ((key, _bytes(value)) for value in given.values)
        return
    for number_, line in enumerate(sys.stdin.buffer, 1):
        value = (without_mark(line) if number_ == 1 else line).rstrip(b"\n")
        if given.keyed:
            own, tab, value = value.partition(b"\t")
            if not tab:
                raise ConfigurationError(
                    f"line {number_} has no tab; with --keyed each is a key, a tab and a value"
                )
            key = own
        yield key, value


def _bytes(argument: str) -> bytes:
    return argument.encode(errors="surrogateescape")  # as the shell has given it


def _said(record: Record) -> dict[str, Any]:
    return {
        "partition": record.partition,
        "offset": record.offset,
        "time": iso(record.timestamp_ms),
        "key": json_value(record.key),
        "value": json_value(record.value),
    }


def _text(value: object) -> str:
    return "-" if value is None else str(value)
