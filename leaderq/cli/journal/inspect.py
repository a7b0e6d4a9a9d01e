"""``leaderq journal inspect``: what is in a journal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from leaderq.cli.journal.options import damage_json, damage_sentence, directory_argument, readable
from leaderq.cli.options import Verb, debug_option, json_option
from leaderq.cli.writing import write_json, write_table

if TYPE_CHECKING:
    from leaderq.producing.journal.inspection import JournalView, SegmentView


@click.command(cls=Verb)
@directory_argument
@json_option
@debug_option
def inspect(directory: Path, as_json: bool) -> None:
    """Show the segments of the journal in DIR: which records they hold, how many of these are acknowledged, and what is set aside.

    Changes nothing and may be used beside the process that has the journal open; what that one acknowledged in the last half second
    may still be shown as waiting. Records are not checked: leaderq journal verify does that. --json writes one object for the journal, then
    one for each segment, file set aside and damage.

    \b
    Examples:
      leaderq journal inspect /var/lib/collector/journal
      leaderq journal inspect /var/lib/collector/journal --json | jq 'select(.what == "journal") | .waiting'
    """
    from leaderq.producing.journal.inspection import look

    with readable(directory):
        view = look(directory)
    if as_json:
        _write_objects(view)
        return
    click.echo(_sentence(view))
    headings = ("SEGMENT", "FIRST ID", "LAST ID", "RECORDS", "ACKNOWLEDGED", "BYTES", "STATE")
    rows: list[tuple[Any, ...]] = [
        (each.file, each.first_id, each.last_id, each.records, each.done, each.size, _state(each)) for each in view.segments
    ]
    rows += [(name, None, None, None, None, size, "set aside") for name, size in view.bad]
    write_table(headings, rows)
    for damage in view.damages:
        click.echo(damage_sentence(damage), err=True)


def _write_objects(view: JournalView) -> None:
    write_json(
        {
            "what": "journal",
            "directory": str(view.directory),
            "open": view.is_open,
            "clean": view.is_clean,
            "waiting": view.depth,
            "bytes": view.bytes_used,
            "next_id": view.next_id,
            "cursor_slots_bad": view.cursor_slots_bad,
        }
    )
    for each in view.segments:
        write_json(
            {
                "what": "segment",
                "file": each.file,
                "first_id": each.first_id,
                "last_id": each.last_id,
                "records": each.records,
                "acknowledged": each.done,
                "bytes": each.size,
                "state": _state(each),
            }
        )
    for name, size in view.bad:
        write_json({"what": "set aside", "file": name, "bytes": size})
    for damage in view.damages:
        write_json(damage_json(damage))


def _sentence(view: JournalView) -> str:
    opened = "open in a process" if view.is_open else "closed" if view.is_clean else "not open, and was not closed properly"
    return (
        f"{view.depth} records wait, in {view.bytes_used} bytes of {len(view.segments)} segments; "
        f"the next id is {view.next_id}; {opened}"
    )


def _state(segment: SegmentView) -> str:
    if segment.damages:
        return "damaged"
    return "written to" if segment.is_current else "complete"
