"""``leaderq queue peek``: the items of a queue, without taking them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from leaderq.cli.options import Given, Verb, json_option, takes_settings
from leaderq.cli.queue.options import SECTIONS, keeping, kind_option, limit_option, lock_path_option, queue_argument, switch
from leaderq.cli.queue.showing import item_headings, item_json, item_row
from leaderq.cli.queue.streaming import write_long_table
from leaderq.cli.writing import write_json

if TYPE_CHECKING:
    from leaderq.queues.wire.names import QueueKind

_DEFAULT = 20


@click.command(cls=Verb)
@takes_settings(*SECTIONS)
@queue_argument
@kind_option
@lock_path_option
@limit_option("show N items at most, those that go next", _DEFAULT)
@switch("--all", "everything", help="show all items, however many there are")
@json_option
def peek(
    given: Given, path: str, kind: QueueKind | None, lock_path: str | None, limit: int, everything: bool, as_json: bool
) -> None:
    """Show the items at PATH in the order in which they go; nothing is taken or changed.

    With --lock-path it is said which of them are held by a consumer. ATTEMPT is the one an item waits for: 1 if it has not failed.
    Corrupt items are shown as such. In JSON, values that are no text in UTF-8 are {"base64": ...}.

    \b
    Examples:
      leaderq queue peek /orders
      leaderq queue peek /orders --all --json > orders.jsonl
    """
    with keeping(given, path, kind, lock_path) as (_, keeper):
        seen = keeper.detect()
        known = seen.kind
        with_locks = lock_path is not None
        items = keeper.browse(None if everything else limit, seen=seen)
        if as_json:
            for one in items:
                write_json(item_json(one, known))
        elif not write_long_table(
            item_headings(known, with_locks=with_locks), (item_row(one, known, with_locks=with_locks) for one in items)
        ):
            click.echo(f"no items at {path}", err=True)
