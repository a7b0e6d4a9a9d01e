"""``leaderq dead show``: one letter, whole."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import click

from leaderq.cli.career_lookup import named_career
from leaderq.cli.dead.ls import as_dict, iso
from leaderq.cli.dead.options import SECTIONS, as_place, letters_topic, topic_option
from leaderq.cli.options import Given, Verb, json_option, takes_settings
from leaderq.cli.quiet import quiet
from leaderq.cli.writing import write_json
from leaderq.errors import CorruptRecord

if TYPE_CHECKING:
    from leaderq.kafka.record import Record


@click.command(cls=Verb)
@takes_settings(*SECTIONS)
@topic_option
@click.option(
    "--raw",
    is_flag=True,
    envvar="LEADERQ_DEAD_RAW",
    show_envvar=True,
    help="write the bytes of the record's value to standard output, and nothing else",
)
@json_option
@click.argument("place", callback=as_place, metavar="PARTITION:OFFSET")
def show(given: Given, topic: str | None, raw: bool, as_json: bool, place: tuple[int, int]) -> None:
    """Show one letter: what happened, and the record with key, value and all headers.

    What is no text in UTF-8 is shown in hexadecimal; in JSON as base64, under a name that ends in _base64.

    \b
    Examples:
      leaderq dead show --career ad-billing 0:41
      leaderq dead show --career ad-billing 0:41 --raw > order.bin
    """
    settings = given.load().settings
    named_career(settings)
    quiet()
    from leaderq.kafka.dead_letters.replay import replay_group
    from leaderq.kafka.dead_letters.topic import DeadLetterReader

    box = DeadLetterReader(
        settings.kafka,
        letters_topic(settings, topic),
        group=replay_group(named_career(settings)),
        security=settings.kafka_security,
        timeout_s=settings.connect_timeout_s,
    )
    with box:
        record = box.one(*place)
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
        return {"partition": record.partition, "offset": record.offset, "at": iso(record.timestamp_ms), "size": record.size}


def _json(record: Record) -> dict[str, Any]:
    headers = [{"name": name, **_as_json("value", value)} for name, value in record.headers]
    return {**_said(record), **_as_json("key", record.key), **_as_json("value", record.value), "headers": headers}


def _as_json(name: str, data: bytes | None) -> dict[str, str | None]:
    text = _text(data)
    if data is None or text is not None:
        return {name: text}
    return {f"{name}_base64": base64.b64encode(data).decode()}


def _text(data: bytes | None) -> str | None:
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError:
        return None


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
    text = _text(data)
    if data is None:
        return "(none)"
    if text is not None and all(letter.isprintable() or letter in "\n\t" for letter in text):
        return text
    return f"(hexadecimal) {data.hex(' ')}"
