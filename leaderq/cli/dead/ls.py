"""``leaderq dead ls``: the letters there are."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import click

from leaderq.cli.career_lookup import named_career
from leaderq.cli.dead.options import SECTIONS, error_option, letters_topic, origin_option, topic_option
from leaderq.cli.options import Given, Verb, json_option, takes_settings
from leaderq.cli.quiet import quiet
from leaderq.cli.writing import write_json, write_table
from leaderq.errors import CorruptRecord

if TYPE_CHECKING:
    from leaderq.kafka.dead_letters.format import DeadLetter
    from leaderq.kafka.dead_letters.replay import DeadLetterFilter
    from leaderq.kafka.dead_letters.topic import DeadLetterReader
    from leaderq.kafka.record import Record

_HEADINGS = ("PARTITION", "OFFSET", "TIME", "ORIGIN", "ATTEMPTS", "ERROR")
_FOREIGN = "(not written by leaderq)"
_WIDEST_ERROR = 100


@click.command(cls=Verb)
@takes_settings(*SECTIONS)
@topic_option
@error_option
@origin_option
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    envvar="LEADERQ_DEAD_LIMIT",
    show_envvar=True,
    help="show N letters at most, the oldest of each partition first",
)
@json_option
def ls(given: Given, topic: str | None, error: str | None, origin: str | None, limit: int | None, as_json: bool) -> None:
    """List the letters on the dead-letter topic as it is now, replayed ones too.

    ORIGIN is topic-partition@offset of the record that could not be handled; a TIME is when it was given up.

    \b
    Examples:
      leaderq dead ls --career ad-billing
      leaderq dead ls --career ad-billing --error timeout --limit 20
      leaderq dead ls --career ad-billing --json | jq -r .error | sort | uniq -c
    """
    settings = given.load().settings
    named_career(settings)
    quiet()
    from leaderq.kafka.dead_letters.replay import DeadLetterFilter, replay_group
    from leaderq.kafka.dead_letters.topic import DeadLetterReader

    where = letters_topic(settings, topic)
    box = DeadLetterReader(
        settings.kafka,
        where,
        group=replay_group(named_career(settings)),
        security=settings.kafka_security,
        timeout_s=settings.connect_timeout_s,
    )
    with box:
        found = _rows(box, DeadLetterFilter(error=error, origin=origin), limit)
        shown = _write_json(found) if as_json else _write_table(found)
    if not shown:
        click.echo(f"no dead letters {'of that kind ' if error or origin else ''}on topic {where!r}", err=True)


def _write_json(rows: Iterator[dict[str, Any]]) -> int:
    """Write each as it comes; gives how many."""
    count = 0
    for count, row in enumerate(rows, 1):  # noqa: B007  (the last one is the answer)
        write_json(row)
    return count


def _write_table(rows: Iterator[dict[str, Any]]) -> int:
    found = sorted(rows, key=lambda row: (row["partition"], row["offset"]))
    if found:
        write_table(_HEADINGS, [_cells(row) for row in found])
    return len(found)


def _rows(box: DeadLetterReader, selection: DeadLetterFilter, limit: int | None) -> Iterator[dict[str, Any]]:
    shown = 0
    for record in box.read():
        row = _row(record, selection)
        if row is not None:
            yield row
            shown += 1
            if shown == limit:
                return


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
        "origin": {"topic": letter.origin.topic, "partition": letter.origin.number, "offset": letter.offset},
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


def iso(at_ms: int) -> str | None:
    """An instant in milliseconds since the epoch as ISO 8601 in UTC; ``None`` if it is unknown."""
    return datetime.fromtimestamp(at_ms / 1000, timezone.utc).isoformat(timespec="milliseconds") if at_ms >= 0 else None


def _foreign(record: Record) -> dict[str, Any]:
    return {
        "partition": record.partition,
        "offset": record.offset,
        "at": iso(record.timestamp_ms),
        "origin": None,
        "error": None,
        "size": record.size,
    }


def _cells(row: dict[str, Any]) -> tuple[Any, ...]:
    at = row["at"] and f"{datetime.fromisoformat(row['at']).astimezone():%Y-%m-%d %H:%M:%S}"
    if row["origin"] is None:
        return (row["partition"], row["offset"], at, None, None, _FOREIGN)
    origin = "{topic}-{partition}@{offset}".format(**row["origin"])
    error = " ".join(": ".join(part for part in (row["error"], row["text"]) if part).split())
    shown = error if len(error) <= _WIDEST_ERROR else error[: _WIDEST_ERROR - 1] + "…"
    return (row["partition"], row["offset"], at, origin, row["attempts"], shown)
