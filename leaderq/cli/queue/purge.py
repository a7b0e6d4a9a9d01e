"""``leaderq queue purge``: delete what lies in a queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from leaderq.cli.options import Given, Verb, json_option, takes_settings
from leaderq.cli.queue.options import (
    SECTIONS,
    keeping,
    kind_option,
    lock_path_option,
    needs_yes,
    queue_argument,
    switch,
    yes_option,
)
from leaderq.cli.queue.progress import progress
from leaderq.cli.writing import write_json

if TYPE_CHECKING:
    from leaderq.queues.admin import Purged
    from leaderq.queues.wire.names import QueueKind


@click.command(cls=Verb)
@takes_settings(*SECTIONS)
@queue_argument
@kind_option
@lock_path_option
@switch("--held-too", help="also delete what a consumer is working on; its acknowledgement will fail")
@yes_option
@json_option
def purge(
    given: Given, path: str, kind: QueueKind | None, lock_path: str | None, held_too: bool, yes: bool, as_json: bool
) -> None:
    """Delete all items that are at PATH now. Their data is gone; leaderq queue drain writes it out first.

    If consumers of the queue have a lock path, give it: what they are working on then stays. Foreign znodes stay, and so do dead
    letters and what is put meanwhile. Interrupted or killed, run it again: it goes on where it was.

    \b
    Examples:
      leaderq queue purge /orders --lock-path /orders-locks --yes
      leaderq queue purge /orders --lock-path /orders-locks --held-too --yes
    """
    needs_yes(yes, f"this deletes all items at {path}")
    with keeping(given, path, kind, lock_path) as (_, keeper):
        with progress(keeper.depth(), "deleting") as on_progress:
            done = keeper.purge(held_too=held_too, on_progress=on_progress)
        if as_json:
            write_json({"deleted": done.deleted, "held": done.held, "gone": done.gone, "stuck": done.stuck})
        click.echo(_sentence(done, path), err=True)


def _sentence(done: Purged, path: str) -> str:
    parts = [f"{done.deleted} deleted from {path}"]
    if done.held:
        parts.append(f"{done.held} left, for consumers are working on them (--held-too deletes them)")
    if done.gone:
        parts.append(f"{done.gone} taken by others meanwhile")
    if done.stuck:
        parts.append(f"{done.stuck} left, for they have children, which no item has")
    return "; ".join(parts)
