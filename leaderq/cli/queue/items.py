"""``leaderq queue ls``, ``peek``, ``stats``, ``ack``, ``purge``, ``rm``, ``pause`` and
``resume``.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from leaderq.cli.connecting import connected
from leaderq.cli.options import Given, Verb, json_option, needs_yes, number, switch, yes_option
from leaderq.cli.output import progress, write_json, write_table
from leaderq.cli.queue.options import (
    keeping,
    keeping_dyno,
    keeping_recipe,
    kind_option,
    lock_path_option,
    meta_path,
    meta_path_option,
    missing,
    operated,
    queue_argument,
    root_argument,
    takes_connection,
)
from leaderq.cli.queue.showing import (
    QUEUE_HEADINGS,
    item_headings,
    item_json,
    item_row,
    queue_json,
    queue_row,
    shard_row,
)
from leaderq.errors import ConfigurationError
from leaderq.exits import ExitCode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leaderq.queues.admin import Purged
    from leaderq.queues.wire.names import QueueKind
    from leaderq.zookeeper import Session


@click.command(cls=Verb)
@takes_connection
@root_argument
@meta_path_option
@kind_option
@lock_path_option
@json_option
def ls(
    given: Given, path: str, kind: QueueKind | None, lock_path: str | None, as_json: bool
) -> None:
    """Show the queue at PATH, or the queues directly below it, those of a sharder too.

    DEPTH counts items, HELD those being worked on (with --lock-path); DEAD are dead letters, NEXT
    is the number of the next item, CONSUMERS are those of leaderq; OLDEST is how long ago the
    oldest item was put there. Foreign znodes are those that no consumer touches.

    An empty queue that leaderq never consumed cannot be told from any other znode: it is shown if
    it is named, and not listed.

    \b
    Examples:
      leaderq queue ls /                            the queues at the top
      leaderq queue ls /orders --lock-path /orders-locks
      leaderq queue ls /orders --json | jq .depth
    """
    with connected(given) as (session, _):
        lines = _lines(session, path, kind, lock_path)
        if as_json:
            for _, said in lines:
                write_json(said)
        elif not write_table(QUEUE_HEADINGS, (row for row, _ in lines)):
            click.echo(f"no queues below {path}", err=True)


def _lines(
    session: Session, path: str, kind: QueueKind | None, lock_path: str | None
) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Each queue as a row, and as JSON says it."""
    from leaderq.cli.queue.dyno import DynoAdmin, dyno_below
    from leaderq.queues.admin import QueueAdmin, queues_below
    from leaderq.queues.wire.znodes import QueuePaths

    with operated(session, path, kind, lock_path) as own:
        if isinstance(own, DynoAdmin):
            yield own.line()
            return
        if (seen := own.overview()) is None:
            raise ConfigurationError(missing(session, path))
    below = (
        []
        if seen.depth
        else [
            QueueAdmin(session, QueuePaths(one, lock_path), kind)
            for one in queues_below(session, path)
        ]
    )
    others = [] if seen.depth else [one.line() for one in dyno_below(session, path)]
    is_queue = seen.depth or seen.shards or seen.dead or seen.consumers or seen.is_paused
    is_shown = is_queue or not (below or others or path == "/")
    for one in (seen if is_shown else None, *(one.overview() for one in below)):
        if one is not None:
            yield queue_row(one, time.time() * 1000), queue_json(one)
    yield from others


_DEFAULT = 20


@click.command(cls=Verb)
@takes_connection
@queue_argument
@kind_option
@lock_path_option
@number("--limit", "show N items at most, those that go next", default=_DEFAULT)
@switch("--all", "everything", help="show all items, however many there are")
@json_option
def peek(
    given: Given,
    path: str,
    kind: QueueKind | None,
    lock_path: str | None,
    limit: int,
    everything: bool,
    as_json: bool,
) -> None:
    """Show the items at PATH in the order in which they go; nothing is taken or changed.

    With --lock-path it says which of them a consumer holds. ATTEMPT is the number of the next
    attempt: 1 if it has not failed. Corrupt items are shown as such. In JSON, values that are no
    text in UTF-8 are {"base64": ...}.

    \b
    Examples:
      leaderq queue peek /orders
      leaderq queue peek /orders --all --json > orders.jsonl
    """
    with keeping(given, path, kind, lock_path) as (_, keeper):
        seen: Any = keeper.detect()
        known = seen.kind
        with_locks = lock_path is not None
        items = keeper.browse(None if everything else limit, seen=seen)
        if as_json:
            for one in items:
                write_json(item_json(one, known))
        elif not write_table(
            item_headings(known, with_locks=with_locks),
            (item_row(one, known, with_locks=with_locks) for one in items),
        ):
            click.echo(f"no items at {path}", err=True)


@click.command(cls=Verb)
@takes_connection
@queue_argument
@json_option
def stats(given: Given, path: str, as_json: bool) -> None:
    """Show the Dyno queue at PATH shard by shard: how many messages are DUE, DELAYED (or rest after
    a failure), HELD by consumers, and DEAD, and how long the OLDEST of those due has waited.

    \b
    Example:
      leaderq queue stats /jobs
    """
    with keeping_dyno(given, path) as keeper:
        figures = keeper.figures()
    if as_json:
        for one in figures:
            write_json(one)
    else:
        write_table(
            ("SHARD", "DUE", "DELAYED", "HELD", "DEAD", "OLDEST"),
            (shard_row(one) for one in figures),
        )


@click.command(cls=Verb)
@takes_connection
@queue_argument
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@switch("--held-too", help="also what a consumer is working on; its acknowledgement will fail")
@json_option
def ack(given: Given, path: str, names: tuple[str, ...], held_too: bool, as_json: bool) -> ExitCode:
    """Remove messages, by NAME or id, from the Dyno queue at PATH: they were done by other means.

    Each goes as if a consumer had acknowledged it: its id is free again, or kept for its window.
    One that a consumer holds is left to that consumer, which would go on working all the same. Exit
    code 1: some are held, or not there.

    \b
    Examples:
      leaderq queue ack /jobs order-17
      leaderq queue ack /jobs 0/05-1790000000000-00000000-0000000007
    """
    with keeping_dyno(given, path) as keeper:
        said = keeper.ack(names, held_too=held_too)
    if as_json:
        write_json(said)
    click.echo("; ".join(f"{len(some)} {what}" for what, some in said.items() if some), err=True)
    return ExitCode.FAILED if said["held"] or said["absent"] else ExitCode.OK


@click.command(cls=Verb)
@takes_connection
@queue_argument
@kind_option
@lock_path_option
@switch(
    "--held-too", help="also delete what a consumer is working on; its acknowledgement will fail"
)
@yes_option
@json_option
def purge(
    given: Given,
    path: str,
    kind: QueueKind | None,
    lock_path: str | None,
    held_too: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Delete all items that are at PATH now. Their data is gone; leaderq queue drain writes it out
    first.

    If consumers of the queue have a lock path, give it: what they are working on then stays.
    Foreign znodes stay, and so do dead letters and what is put meanwhile. Interrupted or killed,
    run it again: it goes on where it was.

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
            write_json(
                {"deleted": done.deleted, "held": done.held, "gone": done.gone, "stuck": done.stuck}
            )
        click.echo(_sentence(done, path), err=True)


def _sentence(done: Purged, path: str) -> str:
    parts = [f"{done.deleted} deleted from {path}"]
    if done.held:
        parts.append(
            f"{done.held} left, because consumers are working on them (--held-too deletes them)"
        )
    if done.gone:
        parts.append(f"{done.gone} taken by others meanwhile")
    if done.stuck:
        parts.append(f"{done.stuck} left, because they have children, which no item has")
    return "; ".join(parts)


@click.command(cls=Verb)
@takes_connection
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@meta_path_option
@lock_path_option
@switch("--force", help="also delete queues that hold items or dead letters, or have consumers")
@yes_option
@json_option
def rm(
    given: Given,
    paths: tuple[str, ...],
    lock_path: str | None,
    force: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Delete the queues at each PATH: the znode, the side data beside it, and an empty lock path.

    A queue that holds items or dead letters, or has consumers, is refused, unless you --force it.

    \b
    Examples:
      leaderq queue rm /orders --lock-path /orders-locks --yes
      leaderq queue rm /replies/a /replies/b --force --yes
    """
    if len(paths) > 1 and meta_path() is not None:
        raise ConfigurationError("--meta-path belongs to one queue; delete one at a time")
    needs_yes(yes, f"this deletes {', '.join(paths)}")
    deleted: dict[str, int] = {}
    for path in paths:
        with keeping(given, path, None, lock_path) as (_, admin):
            deleted[path] = admin.delete(force=force)
        click.echo(f"{path}: {deleted[path]} znodes deleted", err=True)
    if as_json:
        write_json({"deleted": deleted})


@click.command(cls=Verb)
@takes_connection
@queue_argument
def pause(given: Given, path: str) -> None:
    """Let the consumers of the queue at PATH begin no new item, until leaderq queue resume.

    What they have begun they finish. It holds for consumers that start later too. Java's consumers
    do not know of it. Producers go on. Dyno queues have no pause: stop their workers.

    \b
    Example:
      leaderq queue pause /orders
    """
    with keeping_recipe(given, path) as keeper:
        is_news = keeper.pause()
        click.echo(f"{path} is paused" + ("" if is_news else " already"), err=True)


@click.command(cls=Verb)
@takes_connection
@queue_argument
def resume(given: Given, path: str) -> None:
    """Let the consumers of the queue at PATH go on.

    \b
    Example:
      leaderq queue resume /orders
    """
    with keeping_recipe(given, path) as keeper:
        was_paused = keeper.resume()
        click.echo(f"{path} goes on" if was_paused else f"{path} was not paused", err=True)
