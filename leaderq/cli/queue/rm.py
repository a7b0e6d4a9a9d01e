"""``leaderq queue rm``: delete queues with everything beside them."""

from __future__ import annotations

import click

from leaderq.cli.options import Given, Verb, json_option, takes_settings
from leaderq.cli.queue.options import SECTIONS, keeping, lock_path_option, needs_yes, switch, yes_option
from leaderq.cli.writing import write_json


@click.command(cls=Verb)
@takes_settings(*SECTIONS)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@lock_path_option
@switch("--force", help="also delete queues that hold items or dead letters, or have consumers")
@yes_option
@json_option
def rm(given: Given, paths: tuple[str, ...], lock_path: str | None, force: bool, yes: bool, as_json: bool) -> None:
    """Delete the queues at each PATH: the znode, the side data beside it, and an empty lock path.

    A queue that holds items or dead letters, or has consumers, is refused, unless you --force it.

    \b
    Examples:
      leaderq queue rm /orders --lock-path /orders-locks --yes
      leaderq queue rm /replies/a /replies/b --force --yes
    """
    needs_yes(yes, f"this deletes {', '.join(paths)}")
    deleted: dict[str, int] = {}
    for path in paths:
        with keeping(given, path, None, lock_path) as (_, admin):
            deleted[path] = admin.delete(force=force)
        click.echo(f"{path}: {deleted[path]} znodes deleted", err=True)
    if as_json:
        write_json({"deleted": deleted})
