"""``leaderq journal replay``: the records of a journal go to standard output."""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from leaderq.cli.journal.directory import directory_argument, readable
from leaderq.cli.options import Verb, debug_option, json_option, switch
from leaderq.errors import ConfigurationError

if TYPE_CHECKING:
    from leaderq.producing.journal import JournalRecord


@click.command(cls=Verb)
@directory_argument
@click.option("--after", type=click.IntRange(min=0), default=0, metavar="ID", help="only records behind this id")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="N records at most")
@switch("--all", "all_too", help="also records that are acknowledged and not yet deleted")
@switch("--bad", help="also what can be read of the files set aside (*.bad)")
@switch("--null", help="end each record with a NUL instead of a line end")
@switch("--base64", "as_base64", help="write each record in base64")
@json_option
@debug_option
def replay(
    directory: Path,
    after: int,
    limit: int | None,
    all_too: bool,
    bad: bool,
    null: bool,
    as_base64: bool,
    as_json: bool,
) -> None:
    """Write the records of the journal in DIR that are not acknowledged to standard output, one a line and in their order.

    Changes nothing, acknowledges nothing, and may be used beside the process that has the journal open. What cannot be read is
    left out: leaderq journal verify names it. Records hold what the producer stored: a BufferedProducer puts a few bytes of its own in
    front of each. --json writes id, times and payload (base64).

    \b
    Examples:
      leaderq journal replay /var/lib/collector/journal --limit 10 --json
      leaderq journal replay /var/lib/collector/journal --base64 > records.txt
      leaderq journal replay /var/lib/collector/journal --bad --after 1000 --json
    """
    if as_json and (null or as_base64):
        raise ConfigurationError("--json stands alone: it needs neither --null nor --base64")
    from leaderq.producing.journal.inspection import entries

    out, count = sys.stdout.buffer, 0
    with readable(directory):
        for entry in entries(directory, after_id=after, done_too=all_too, bad_too=bad):
            if limit is not None and count >= limit:
                break
            out.write(_line(entry, null=null, as_base64=as_base64, as_json=as_json))
            count += 1
        out.flush()
    click.echo(f"{count} records written", err=True)


def _line(entry: JournalRecord, *, null: bool, as_base64: bool, as_json: bool) -> bytes:
    if as_json:
        return json.dumps(_object(entry)).encode() + b"\n"
    return (base64.b64encode(entry.payload) if as_base64 else entry.payload) + (b"\0" if null else b"\n")


def _object(entry: JournalRecord) -> dict[str, Any]:
    return {
        "id": entry.id,
        "appended_at": entry.appended_at,
        "expires_at": entry.expires_at,
        "payload": base64.b64encode(entry.payload).decode(),
    }
