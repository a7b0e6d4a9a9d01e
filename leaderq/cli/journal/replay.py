"""``leaderq journal replay``: the records of a journal go to standard output."""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from leaderq.cli.journal.directory import directory_argument, readable
from leaderq.cli.options import Verb, debug_option, json_option, number, switch
from leaderq.cli.output import json_value
from leaderq.errors import ConfigurationError, CorruptRecord

if TYPE_CHECKING:
    from leaderq.producing.journal import JournalRecord


@click.command(cls=Verb)
@directory_argument
@number("--after", "only records behind this id", least=0, default=0, metavar="ID")
@number("--limit", "N records at most")
@switch("--all", "all_too", help="also records that are acknowledged and not yet deleted")
@switch("--bad", help="also what can be read of the files set aside (.bad)")
@switch("--decode", help="write each request that a BufferedProducer put there, as JSON")
@json_option
@debug_option
def replay(
    directory: Path,
    after: int,
    limit: int | None,
    all_too: bool,
    bad: bool,
    decode: bool,
    as_json: bool,
) -> None:
    """Write the records of the journal in DIR that are not acknowledged to standard output, one a
    line and in their order.

    Changes nothing, acknowledges nothing, and may be used beside the process that has the journal
    open. What cannot be read is left out: leaderq journal verify names it. Records hold what the
    producer stored: a BufferedProducer its requests, as Python's pickle of plain values, unless it
    has a codec of its own. --decode writes these: bytes as text, or as an object with base64 if
    they are none.
    --json writes id, times and payload (base64), or with --decode the request.

    \b
    Examples:
      leaderq journal replay /var/lib/collector/journal --limit 10 --json
      leaderq journal replay /var/lib/collector/journal --decode | jq '.[0]'
      leaderq journal replay /var/lib/collector/journal --bad --after 1000 --json
    """
    from leaderq.producing.journal.inspection import entries

    out, count = sys.stdout.buffer, 0
    with readable(directory):
        for entry in entries(directory, after_id=after, done_too=all_too, bad_too=bad):
            if limit is not None and count >= limit:
                break
            out.write(_line(entry, decode=decode, as_json=as_json) + b"\n")
            count += 1
        out.flush()
    click.echo(f"{count} records written", err=True)


def _line(entry: JournalRecord, *, decode: bool, as_json: bool) -> bytes:
    if not (decode or as_json):
        return entry.payload
    found: dict[str, Any] = {
        "id": entry.id,
        "appended_at": entry.appended_at,
        "expires_at": entry.expires_at,
    }
    if not decode:
        return json.dumps({**found, "payload": base64.b64encode(entry.payload).decode()}).encode()
    request = _decoded(entry)
    return json.dumps({**found, "request": request} if as_json else request).encode()


def _decoded(entry: JournalRecord) -> Any:
    from leaderq.producing.codec import PLAIN

    try:
        return _plain(PLAIN.deserialize(entry.payload))
    except CorruptRecord as exc:
        raise ConfigurationError(
            f"record id={entry.id} cannot be decoded, since no BufferedProducer wrote it, or one"
            f" with a codec of its own: {exc}"
        ) from exc


def _plain(value: Any) -> Any:
    """A plain value as JSON knows it."""
    if isinstance(value, bytes):
        return json_value(value)
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {
            key if isinstance(key, str) else str(_plain(key)): _plain(one)
            for key, one in value.items()
        }
    return value
