"""``leaderq dead ls`` and ``dead show``; and what the verbs about dead letters share: options, and
which topic the letters of a career are on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import click

from leaderq.cli.completion import ONE_CAREER
from leaderq.cli.connecting import named_career, open_session
from leaderq.cli.options import CONNECTION, Given, Verb, json_option, number, switch, takes_settings
from leaderq.cli.output import iso, json_value, quiet, write_json, write_rows
from leaderq.config import Section, Settings
from leaderq.errors import CorruptRecord, NoNode

if TYPE_CHECKING:
    from leaderq.kafka.dead_letters.format import DeadLetter
    from leaderq.kafka.dead_letters.replay import DeadLetterFilter, ReplayProgress
    from leaderq.kafka.dead_letters.topic import DeadLetterReader
    from leaderq.kafka.record import Record

F = TypeVar("F", bound=Callable[..., Any])

SECTIONS = (Section.CAREER, Section.KAFKA, *CONNECTION)

topic_option: Callable[[F], F] = click.option(
    "--topic",
    metavar="TOPIC",
    help="topic of the letters; default: the one its leader last reported, else CAREER-dead",
)
error_option: Callable[[F], F] = click.option(
    "--error",
    metavar="TEXT",
    help="only letters whose error class or text contains TEXT; case is ignored",
)
origin_option: Callable[[F], F] = click.option(
    "--origin",
    metavar="TOPIC",
    help="only letters about records of TOPIC",
)


def as_place(ctx: click.Context, param: click.Parameter, value: str) -> tuple[int, int]:
    """``PARTITION:OFFSET`` as two numbers: a callback of an argument."""
    partition, _, offset = value.partition(":")
    if not (partition.isdecimal() and offset.isdecimal()):
        raise click.BadParameter(
            f"{value!r} is not PARTITION:OFFSET, as 0:41; leaderq dead ls lists both", ctx, param
        )
    return int(partition), int(offset)


def as_places(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> frozenset[tuple[int, int]]:
    """The same of an option given several times."""
    return frozenset(as_place(ctx, param, value) for value in values)


def letters_topic(settings: Settings, topic: str | None) -> str:
    """Where the letters of the career are: as told, else as its leader published last, else its
    name with ``-dead``.

    Raises :class:`~leaderq.errors.ConfigurationError` where no career is named, and what reading
    from ZooKeeper raises.
    """
    career = named_career(settings)
    if topic is not None:
        return topic
    from leaderq.election.layout import Layout
    from leaderq.kafka.consuming.report import decode
    from leaderq.kafka.handling.on_error import dead_letter_topic

    path = Layout(settings.root, career).progress
    with open_session(settings) as session:
        try:
            published = decode(session.get(path)[0], path=path).dead_letters
        except NoNode:
            published = None
    return published or dead_letter_topic(career)


_FOREIGN = "(not written by leaderq)"
_WIDEST_ERROR = 100


@click.command(cls=Verb)
@takes_settings(*SECTIONS, career=ONE_CAREER)
@topic_option
@error_option
@origin_option
@switch("--pending", help="only letters that no replay has sent back yet")
@number("--limit", "show N letters at most, the oldest of each partition first")
@json_option
def ls(
    given: Given,
    topic: str | None,
    error: str | None,
    origin: str | None,
    pending: bool,
    limit: int | None,
    as_json: bool,
) -> None:
    """List the letters on the dead-letter topic as it is now.

    ORIGIN is topic-partition@offset of the record that could not be handled; a TIME is when it was
    given up. REPLAYED says whether leaderq dead replay has sent it back; if its record dies again,
    that is another letter.

    \b
    Examples:
      leaderq dead ls --career ad-billing --pending
      leaderq dead ls --career ad-billing --error timeout --limit 20
      leaderq dead ls --career ad-billing --json | jq -r .error | sort | uniq -c
    """
    settings = given.load().settings
    from leaderq.kafka.dead_letters.replay import DeadLetterFilter, replay_progress

    with _reader(settings, topic) as reader:
        done = replay_progress(reader)
        every = _rows(reader, DeadLetterFilter(error=error, origin=origin), done)
        found = islice((row for row in every if not (pending and row["replayed"])), limit)
        rows = (
            found
            if as_json
            else map(_cells, sorted(found, key=lambda row: (row["partition"], row["offset"])))
        )
        shown = write_rows(rows, as_json=as_json)
    if not shown:
        kind = "of that kind " if error or origin or pending else ""
        click.echo(f"no dead letters {kind}on topic {reader.topic!r}", err=True)


def _reader(settings: Settings, topic: str | None) -> DeadLetterReader:
    career = named_career(settings)
    quiet()
    from leaderq.kafka.dead_letters.replay import replay_group
    from leaderq.kafka.dead_letters.topic import DeadLetterReader

    return DeadLetterReader(
        settings.kafka,
        letters_topic(settings, topic),
        group=replay_group(career),
        security=settings.kafka_security,
        timeout_s=settings.connect_timeout_s,
    )


def _rows(
    reader: DeadLetterReader, selection: DeadLetterFilter, done: Mapping[int, ReplayProgress]
) -> Iterator[dict[str, Any]]:
    for record in reader.read():
        if (row := _row(record, selection)) is not None:
            yield {**row, "replayed": record.offset in done[record.partition]}


def _row(record: Record, selection: DeadLetterFilter) -> dict[str, Any] | None:
    from leaderq.kafka.dead_letters.format import read_dead_letter

    try:
        letter = read_dead_letter(record)
    except CorruptRecord:
        return None if selection.error or selection.origin else _foreign(record)
    return as_dict(letter) if letter in selection else None


def as_dict(letter: DeadLetter) -> dict[str, Any]:
    """A letter without key, value and headers, as JSON says it."""
    return {
        "partition": letter.record.partition,
        "offset": letter.record.offset,
        "at": iso(letter.at_ms),
        "origin": {
            "topic": letter.origin.topic,
            "partition": letter.origin.number,
            "offset": letter.offset,
        },
        "origin_at": iso(letter.timestamp_ms),
        "error": letter.error,
        "text": letter.text,
        "where": letter.where or None,
        "attempts": letter.attempts,
        "term": letter.term,
        "career": letter.career,
        "times": letter.times,
        "size": letter.record.size,
    }


def _foreign(record: Record) -> dict[str, Any]:
    return {
        "partition": record.partition,
        "offset": record.offset,
        "at": iso(record.timestamp_ms),
        "origin": None,
        "error": None,
        "size": record.size,
    }


def _cells(row: dict[str, Any]) -> dict[str, Any]:
    at = row["at"] and f"{datetime.fromisoformat(row['at']).astimezone():%Y-%m-%d %H:%M:%S}"
    error, origin = _FOREIGN, None
    if row["origin"] is not None:
        origin = "{topic}-{partition}@{offset}".format(**row["origin"])
        error = " ".join(": ".join(part for part in (row["error"], row["text"]) if part).split())
    shown = error if len(error) <= _WIDEST_ERROR else error[: _WIDEST_ERROR - 1] + "…"
    replayed = "yes" if row["replayed"] else None
    first = {"partition": row["partition"], "offset": row["offset"], "time": at}
    return {
        **first,
        "origin": origin,
        "attempts": row.get("attempts"),
        "replayed": replayed,
        "error": shown,
    }


@click.command(cls=Verb)
@takes_settings(*SECTIONS, career=ONE_CAREER)
@topic_option
@switch("--raw", help="write the bytes of the record's value to standard output, and nothing else")
@json_option
@click.argument("place", callback=as_place, metavar="PARTITION:OFFSET")
def show(given: Given, topic: str | None, raw: bool, as_json: bool, place: tuple[int, int]) -> None:
    """Show one letter: what happened, and the record with key, value and all headers.

    What is not text in UTF-8 is shown in hexadecimal; in JSON as {"base64": ...}.

    \b
    Examples:
      leaderq dead show --career ad-billing 0:41
      leaderq dead show --career ad-billing 0:41 --raw > order.bin
    """
    with _reader(given.load().settings, topic) as reader:
        record = reader.one(*place)
    if raw:
        click.echo(record.value or b"", nl=False)
    elif as_json:
        write_json(_json(record))
    else:
        _write(record)


def _said(record: Record) -> dict[str, Any]:
    from leaderq.kafka.dead_letters.format import read_dead_letter

    try:
        return as_dict(read_dead_letter(record))
    except CorruptRecord as exc:
        click.echo(str(exc), err=True)
        return {
            "partition": record.partition,
            "offset": record.offset,
            "at": iso(record.timestamp_ms),
            "size": record.size,
        }


def _json(record: Record) -> dict[str, Any]:
    headers = [{"name": name, "value": json_value(value)} for name, value in record.headers]
    return {
        **_said(record),
        "key": json_value(record.key),
        "value": json_value(record.value),
        "headers": headers,
    }


def _write(record: Record) -> None:
    said = _said(record)
    if origin := said.get("origin"):
        said["origin"] = "{topic}-{partition}@{offset}".format(**origin)
    for name, value in said.items():
        click.echo(f"{name:<10}{'-' if value is None else value}")
    click.echo("headers")
    for name, value in record.headers:
        click.echo(f"  {name}: {_shown(value)}")
    click.echo(f"key       {_shown(record.key)}")
    click.echo("value")
    click.echo(_shown(record.value))


def _shown(data: bytes | None) -> str:
    """Text if it is some that does no harm to a terminal, else hexadecimal."""
    text = json_value(data)
    if data is None:
        return "(none)"
    if isinstance(text, str) and all(letter.isprintable() or letter in "\n\t" for letter in text):
        return text
    return f"(hexadecimal) {data.hex(' ')}"
