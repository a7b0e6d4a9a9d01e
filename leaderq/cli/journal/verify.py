"""``leaderq journal verify``: whether a journal is sound."""

from __future__ import annotations

from pathlib import Path

import click

from leaderq.cli.journal.options import damage_json, damage_sentence, directory_argument, readable
from leaderq.cli.options import Verb, debug_option, json_option
from leaderq.cli.writing import write_json
from leaderq.exits import ExitCode


@click.command(cls=Verb)
@directory_argument
@json_option
@debug_option
def verify(directory: Path, as_json: bool) -> ExitCode:
    """Read every byte of the journal in DIR and check every record. The exit code is 1 if anything is spoilt or missing.

    Changes nothing and may be used beside the process that has the journal open. What is set aside already (*.bad) is not counted as
    damage. --json writes one object a damage, then one for the whole.

    \b
    Examples:
      leaderq journal verify /var/lib/collector/journal
      leaderq journal verify /var/lib/collector/journal --json | jq 'select(.what == "damage") | .lost_ids'
    """
    from leaderq.producing.journal.inspection import look

    with readable(directory):
        view = look(directory, thorough=True)
    records = sum(segment.records for segment in view.segments)
    for damage in view.damages:
        if as_json:
            write_json(damage_json(damage))
        else:
            click.echo(damage_sentence(damage))
    if as_json:
        write_json(
            {
                "what": "journal",
                "directory": str(directory),
                "sound": not view.damages,
                "records": records,
                "lost": sum(damage.lost for damage in view.damages),
                "bytes": view.bytes_used,
                "set_aside": len(view.bad),
                "cursor_slots_bad": view.cursor_slots_bad,
            }
        )
    slots = f"; {view.cursor_slots_bad} of 2 cursor slots cannot be read" if view.cursor_slots_bad else ""
    verdict = f"{len(view.damages)} damages" if view.damages else "sound"
    click.echo(f"{verdict}: {records} records in {view.bytes_used} bytes{slots}", err=True)
    return ExitCode.FAILED if view.damages else ExitCode.OK
