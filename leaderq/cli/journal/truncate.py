"""``leaderq journal truncate``: records, or files set aside, are given up."""

from __future__ import annotations

from pathlib import Path

import click

from leaderq.cli.journal.options import directory_argument, option, readable, switch, yes_option
from leaderq.cli.options import Verb, debug_option, json_option
from leaderq.cli.writing import write_json
from leaderq.errors import ConfigurationError


@click.command(cls=Verb)
@directory_argument
@option("--to", "to_id", type=click.IntRange(min=1), metavar="ID", help="give up the records up to this id")
@switch("--all", "everything", help="give up all records")
@switch("--bad", help="delete the files set aside (*.bad)")
@yes_option
@json_option
@debug_option
def truncate(directory: Path, to_id: int | None, everything: bool, bad: bool, yes: bool, as_json: bool) -> None:
    """Give up the oldest records of the journal in DIR as if they had been acknowledged, or delete what was set aside.

    Refused while a process has the journal open. Ids go on where they were. leaderq journal replay writes records out first.

    \b
    Examples:
      leaderq journal truncate /var/lib/collector/journal --to 120000 --yes
      leaderq journal truncate /var/lib/collector/journal --bad --yes
    """
    if bool(to_id) + everything + bad == 0 or (to_id and everything):
        raise ConfigurationError("say what to give up: --to ID or --all for records, --bad for files set aside")
    if not yes:
        what = "files" if bad and not (to_id or everything) else "records"
        raise ConfigurationError(f"this gives up {what} in {str(directory)!r}; give --yes if that is what you want")
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
