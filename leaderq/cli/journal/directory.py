"""``leaderq journal inspect``, ``verify`` and ``truncate``; and what all verbs about journals
share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from leaderq.cli.options import Verb, debug_option, json_option, needs_yes, switch, yes_option
from leaderq.cli.output import write_json, write_rows
from leaderq.errors import ConfigurationError
from leaderq.exits import ExitCode

if TYPE_CHECKING:
    from leaderq.producing.journal import Damage
    from leaderq.producing.journal.inspection import JournalView, SegmentView

F = TypeVar("F", bound=Callable[..., Any])


_SET_ASIDE = "set aside"
directory_argument: Callable[[F], F] = click.argument(
    "directory", metavar="DIR", type=click.Path(path_type=Path)
)


@contextmanager
def readable(directory: Path) -> Iterator[None]:
    """Say which directory cannot be read, and why.

    :raises ConfigurationError: it cannot be.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as exc:
        raise ConfigurationError(f"journal {str(directory)!r} cannot be read: {exc}") from exc


def damage_json(damage: Damage) -> dict[str, Any]:
    """Damage as an object."""
    return {
        "what": "damage",
        "file": damage.file,
        "reason": damage.reason,
        "offset": damage.offset,
        "bytes": damage.size,
        "lost_ids": damage.lost_ids,
    }


def damage_sentence(damage: Damage) -> str:
    """Damage as a line."""
    ids = (
        f"; records {damage.lost_ids[0]} to {damage.lost_ids[1]} are lost"
        if damage.lost_ids
        else ""
    )
    return f"{damage.file}: {damage.reason} ({damage.size} bytes at {damage.offset}){ids}"


@click.command(cls=Verb)
@directory_argument
@json_option
@debug_option
def inspect(directory: Path, as_json: bool) -> None:
    """Show the segments of the journal in DIR: which records they hold, how many of these are
    acknowledged, and what is set aside.

    Changes nothing and may be used beside the process that has the journal open; what that one
    acknowledged in the last half second may still be shown as waiting. Records are not checked:
    leaderq journal verify does that. --json writes one object for the journal, then one for each
    segment, file set aside and damage.

    \b
    Examples:
      leaderq journal inspect /var/lib/clicks/journal
      leaderq journal inspect /var/lib/clicks/journal --json | jq 'select(.what == "journal")'
    """
    from leaderq.producing.journal.inspection import look

    with readable(directory):
        view = look(directory)
    if as_json:
        _write_whole(view)
    else:
        click.echo(_sentence(view))
    names = ("file", "first_id", "last_id", "records", "acknowledged", "bytes", "state")
    rows: list[tuple[Any, ...]] = [
        (each.file, each.first_id, each.last_id, each.records, each.done, each.size, _state(each))
        for each in view.segments
    ]
    rows += [(name, None, None, None, None, size, _SET_ASIDE) for name, size in view.bad]
    found = [dict(zip(names, row, strict=True)) for row in rows]
    if as_json:
        found = [
            {"what": _SET_ASIDE if one["state"] == _SET_ASIDE else "segment", **one}
            for one in found
        ]
    write_rows(found, as_json=as_json)
    for damage in view.damages:
        if as_json:
            write_json(damage_json(damage))
        else:
            click.echo(damage_sentence(damage), err=True)


def _write_whole(view: JournalView) -> None:
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


def _sentence(view: JournalView) -> str:
    opened = (
        "open in a process"
        if view.is_open
        else "closed"
        if view.is_clean
        else "not open, and was not closed properly"
    )
    return (
        f"{view.depth} records wait, in {view.bytes_used} bytes of {len(view.segments)} segments; "
        f"the next id is {view.next_id}; {opened}"
    )


def _state(segment: SegmentView) -> str:
    if segment.damages:
        return "damaged"
    return "written to" if segment.is_current else "complete"


@click.command(cls=Verb)
@directory_argument
@json_option
@debug_option
def verify(directory: Path, as_json: bool) -> ExitCode:
    """Read every byte of the journal in DIR and check every record. The exit code is 1 if anything
    is spoilt or missing.

    Changes nothing and may be used beside the process that has the journal open. What is set aside
    already (.bad) is not counted as damage. --json writes one object for each
    damaged place, then one for the whole.

    \b
    Examples:
      leaderq journal verify /var/lib/clicks/journal
      leaderq journal verify /var/lib/clicks/journal --json | jq 'select(.what == "damage")'
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
    slots = (
        f"; {view.cursor_slots_bad} of 2 cursor slots cannot be read"
        if view.cursor_slots_bad
        else ""
    )
    verdict = f"{len(view.damages)} damages" if view.damages else "sound"
    click.echo(f"{verdict}: {records} records in {view.bytes_used} bytes{slots}", err=True)
    return ExitCode.FAILED if view.damages else ExitCode.OK


@click.command(cls=Verb)
@directory_argument
@click.option(
    "--to",
    "to_id",
    type=click.IntRange(min=1),
    metavar="ID",
    help="give up the records up to this id",
)
@switch("--all", "everything", help="give up all records")
@switch("--bad", help="delete the files set aside (.bad)")
@yes_option
@json_option
@debug_option
def truncate(
    directory: Path, to_id: int | None, everything: bool, bad: bool, yes: bool, as_json: bool
) -> None:
    """Give up the oldest records of the journal in DIR as if they had been acknowledged, or delete
    what was set aside.

    Refused while a process has the journal open. Ids go on where they were. leaderq journal replay
    writes records out first.

    \b
    Examples:
      leaderq journal truncate /var/lib/clicks/journal --to 120000 --yes
      leaderq journal truncate /var/lib/clicks/journal --bad --yes
    """
    if bool(to_id) + everything + bad == 0 or (to_id and everything):
        raise ConfigurationError(
            "say what to give up: --to ID or --all for records, --bad for files set aside"
        )
    what = "files" if bad and not (to_id or everything) else "records"
    needs_yes(yes, f"this gives up {what} in {str(directory)!r}")
    from leaderq.producing.journal import Journal
    from leaderq.producing.journal.inspection import look

    with readable(directory):
        look(directory)  # refuses to make a journal where there is none
        given_up = left = files = 0
        with Journal(directory) as journal:
            if to_id or everything:
                given_up = journal.ack_to(to_id or journal.next_id - 1)
            left = journal.depth
        if bad:
            files = _delete([directory / name for name, _ in look(directory).bad])
    if as_json:
        write_json({"given_up": given_up, "left": left, "files_deleted": files})
    click.echo(f"{given_up} records given up, {left} left; {files} files deleted", err=True)


def _delete(paths: list[Path]) -> int:
    for path in paths:
        path.unlink()
    return len(paths)
