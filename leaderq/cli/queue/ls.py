"""``leaderq queue ls``: which queues there are, and how they are."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from leaderq.cli.connecting import open_session
from leaderq.cli.options import Given, Verb, json_option, takes_settings
from leaderq.cli.queue.options import SECTIONS, kind_option, lock_path_option, missing, root_argument
from leaderq.cli.queue.showing import QUEUE_HEADINGS, queue_json, queue_row
from leaderq.cli.quiet import quiet
from leaderq.cli.writing import write_json, write_table
from leaderq.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leaderq.queues.admin import Overview
    from leaderq.queues.wire.names import QueueKind
    from leaderq.zookeeper import Session


@click.command(cls=Verb)
@takes_settings(*SECTIONS)
@root_argument
@kind_option
@lock_path_option
@json_option
def ls(given: Given, path: str, kind: QueueKind | None, lock_path: str | None, as_json: bool) -> None:
    """Show the queue at PATH, or the queues directly below it, those of a sharder too.

    DEPTH counts items, HELD those being worked on (with --lock-path); DEAD are dead letters, NEXT is the number of the next item,
    CONSUMERS are those of leaderq; OLDEST is how long ago the oldest item was put there. Foreign znodes are those that no consumer
    touches.

    An empty queue that leaderq never consumed cannot be told from any other znode: it is shown if it is named, and not listed.

    \b
    Examples:
      leaderq queue ls /                            the queues at the top
      leaderq queue ls /orders --lock-path /orders-locks
      leaderq queue ls /orders --json | jq .depth
    """
    settings = given.load().settings
    quiet()
    with open_session(settings) as session:
        found = _overviews(session, path, kind, lock_path)
        if as_json:
            for seen in found:
                write_json(queue_json(seen))
        elif rows := [queue_row(seen, time.time() * 1000) for seen in found]:
            write_table(QUEUE_HEADINGS, rows)
            return
        else:
            click.echo(f"no queues below {path}", err=True)


def _overviews(session: Session, path: str, kind: QueueKind | None, lock_path: str | None) -> Iterator[Overview]:
    from leaderq.queues.admin import overview, queues_below
    from leaderq.queues.wire.znodes import QueuePaths

    own = overview(session, QueuePaths(path, lock_path), kind)
    if own is None:
        raise ConfigurationError(missing(session, path))
    is_queue = own.depth or own.shards or own.dead or own.consumers or own.is_paused
    if is_queue:
        yield own
    below = 0
    if not own.depth:
        for one in queues_below(session, path):
            seen = overview(session, QueuePaths(one, lock_path), kind)
            if seen is not None:
                below += 1
                yield seen
    if not (is_queue or below or path == "/"):
        yield own
