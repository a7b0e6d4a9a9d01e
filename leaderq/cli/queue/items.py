"""The verbs of ``leaderq queue`` except ``put`` and ``drain``: they show and delete items and dead
letters, send letters back, and pause consumers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from operator import itemgetter
from typing import Any

import click

from leaderq.admin.dyno_queues import DynoAdmin, dyno_below
from leaderq.base import clock
from leaderq.base.exits import ExitCode
from leaderq.cli.connecting import connected
from leaderq.cli.options import JSON, YES, Given, letters_with_error, needs_yes, number, switch
from leaderq.cli.output import conclude, progress, say, write_json, write_rows
from leaderq.cli.queue.options import (
    KIND,
    LOCK_PATH,
    META_PATH,
    PATH,
    PATHS,
    QUEUE,
    ROOT,
    Operated,
    keeping,
    keeping_only,
    missing,
    operated,
    queue_verb,
    told_kind,
)
from leaderq.cli.queue.showing import (
    LETTER_HEADINGS,
    QUEUE_HEADINGS,
    dyno_row,
    item_headings,
    item_json,
    item_row,
    letter_json,
    letter_row,
    queue_json,
    queue_row,
    shard_row,
)
from leaderq.errors import ConfigurationError, NoNode, NoPermission
from leaderq.queues.admin import DeadItem, Moved, Overview, QueueAdmin, queues_below
from leaderq.queues.wire.znodes import QueuePaths
from leaderq.zookeeper import Session

# -- queues ----------------------------------------------------------------------------------------


@queue_verb(ROOT, META_PATH, KIND, LOCK_PATH, JSON)
def ls(given: Given) -> None:
    """Show the queue at PATH, or the queues directly below PATH, including those of a sharder.

    DEPTH counts items, HELD those that consumers are working on (needs --lock-path), DEAD dead
    letters. NEXT is the number of the next item. CONSUMERS counts consumers of leaderq. OLDEST is
    how long ago the oldest item was put there. Foreign znodes are those that no consumer touches.

    An empty queue that leaderq never consumed looks like any other znode: it is shown only if PATH
    names it. A queue that cannot be read is named on standard error, and left out.

    \b
    Examples:
      leaderq queue ls /
      leaderq queue ls /orders --lock-path /orders-locks
      leaderq queue ls /orders --json | jq .depth
    """
    with connected(given) as session:
        write_rows(
            _lines(session, given),
            given.as_json,
            f"no queues below {given.path}",
            said=itemgetter(1),
            columns=QUEUE_HEADINGS,
            row=itemgetter(0),
        )


def _lines(session: Session, given: Given) -> Iterator[tuple[Sequence[Any], dict[str, Any]]]:
    """Yield each queue as a row of the table, and as JSON."""
    path = given.path
    with operated(session, given, path, may_be_new=True) as own:
        if isinstance(own, DynoAdmin):
            said = own.overview()
            yield dyno_row(said), said
            return
        if (seen := own.overview()) is None:
            raise ConfigurationError(missing(session, path))
    found: list[Overview | dict[str, Any]] = []
    if seen.exists and not seen.depth:
        found += _overviews(session, given)
    is_queue = seen.depth or seen.shards or seen.dead or seen.consumers or seen.is_paused
    for each in [seen, *found] if is_queue or not (found or path == "/") else found:
        if isinstance(each, Overview):
            yield queue_row(each, clock.calendar_s() * 1000), queue_json(each)
        else:
            yield dyno_row(each), each


def _overviews(session: Session, given: Given) -> Iterator[Overview | dict[str, Any]]:
    """Yield the state of each queue below the path; say of which queues it cannot be told."""
    kind, names = told_kind(given), queues_below(session, given.path)
    queues = (QueueAdmin(session, QueuePaths(one, given.lock_path), kind) for one in names)
    for keeper in chain[Operated](queues, dyno_below(session, given.path)):
        try:
            seen = keeper.overview()
        except (ConfigurationError, NoNode, NoPermission) as exc:
            where = keeper.path if isinstance(keeper, DynoAdmin) else keeper.paths.path
            say(f"{where} is not shown: {exc}")
            continue
        if seen is not None:
            yield seen


@queue_verb(PATH, JSON)
def stats(given: Given) -> None:
    """Show the Dyno queue at PATH shard by shard: how many messages are DUE, DELAYED (not due, or
    resting after a failure), HELD by consumers, and DEAD, and how long the OLDEST due message has
    waited.

    \b
    Example:
      leaderq queue stats /jobs
    """
    with keeping_only(DynoAdmin, given) as keeper:
        figures = keeper.figures()
    headings = ("SHARD", "DUE", "DELAYED", "HELD", "DEAD", "OLDEST")
    write_rows(figures, given.as_json, columns=headings, row=shard_row)


@queue_verb(
    PATHS,
    META_PATH,
    LOCK_PATH,
    switch("--force", help="also delete queues that hold items or dead letters, or have consumers"),
    YES,
    JSON,
)
def rm(given: Given) -> None:
    """Delete the queue at each PATH: its znode, its side data, and its lock path if that is empty.

    A queue that holds items, dead letters or foreign znodes, or has consumers, is refused, unless
    --force is given.

    \b
    Examples:
      leaderq queue rm /orders --lock-path /orders-locks --yes
      leaderq queue rm /replies/a /replies/b --force --yes
    """
    if len(given.paths) > 1 and given.meta_path is not None:
        raise ConfigurationError("--meta-path belongs to one queue; delete one at a time")
    needs_yes(given, f"this deletes {', '.join(given.paths)}")
    deleted: dict[str, int] = {}
    try:
        for path in given.paths:
            with keeping(given, path) as keeper:
                deleted[path] = keeper.delete(force=given.force)
            say(f"{path}: {deleted[path]} znodes deleted")
    finally:
        if given.as_json:
            write_json({"deleted": deleted})


@queue_verb(*QUEUE)
def pause(given: Given) -> None:
    """Stop the consumers of the queue at PATH from beginning new items, until leaderq queue resume.

    They finish the items that they have begun. Consumers that start later are paused, too. Java's
    consumers do not know of a pause. Producers are not paused.

    \b
    Example:
      leaderq queue pause /orders
    """
    with keeping(given) as keeper:
        say(f"{given.path} is paused{'' if keeper.pause() else ' already'}")


@queue_verb(*QUEUE)
def resume(given: Given) -> None:
    """Let the consumers of the queue at PATH continue.

    \b
    Example:
      leaderq queue resume /orders
    """
    with keeping(given) as keeper:
        say(f"{given.path} {'resumes' if keeper.resume() else 'was not paused'}")


# -- items -----------------------------------------------------------------------------------------


@queue_verb(
    *QUEUE,
    KIND,
    LOCK_PATH,
    number("--limit", "show N items at most, those that go next", default=20),
    switch("--all", "everything", help="show all items, however many there are"),
    JSON,
)
def peek(given: Given) -> None:
    """Show the items at PATH in the order in which consumers get them; nothing is taken or changed.

    With --lock-path, it says which items a consumer holds. ATTEMPT is the number of the next
    attempt: 1 if the item has not failed. Corrupt items are shown as such. In JSON, values that are
    not UTF-8 text are {"base64": ...}.

    \b
    Examples:
      leaderq queue peek /orders --all --json > orders.jsonl
    """
    with keeping(given) as keeper:
        seen: Any = keeper.detect()
        with_locks = given.lock_path is not None
        write_rows(
            keeper.browse(None if given.everything else given.limit, seen=seen),
            given.as_json,
            f"no items at {given.path}",
            said=lambda one: item_json(one, seen.kind),
            columns=item_headings(seen.kind, with_locks=with_locks),
            row=lambda one: item_row(one, seen.kind, with_locks=with_locks),
        )


@queue_verb(
    PATH,
    click.Argument(["names"], nargs=-1, required=True, metavar="NAME..."),
    switch("--held-too", help="also what a consumer is working on; its acknowledgement will fail"),
    JSON,
)
def ack(given: Given) -> ExitCode:
    """Remove messages, by NAME or id, from the Dyno queue at PATH, because their work was done by
    other means. The effect is the same as if a consumer had acknowledged them: an id is free again,
    or remembered for its window. A message that a consumer holds stays, unless --held-too is given.
    The exit code is 1 if some messages are held or absent.

    \b
    Examples:
      leaderq queue ack /jobs order-17
      leaderq queue ack /jobs 0/05-1790000000000-00000000-0000000007
    """
    with keeping_only(DynoAdmin, given) as keeper:
        said = keeper.ack(given.names, held_too=given.held_too)
    counts = "; ".join(f"{len(some)} {what}" for what, some in said.items() if some)
    conclude(counts, given.as_json, **said)
    return ExitCode.FAILED if said["held"] or said["absent"] else ExitCode.OK


@queue_verb(
    *QUEUE,
    KIND,
    LOCK_PATH,
    switch("--held-too", help="also what a consumer is working on; its acknowledgement will fail"),
    number(
        "--older-than",
        "only what was first put more than so many seconds ago",
        least=0.0,
        metavar="SECONDS",
    ),
    YES,
    JSON,
)
def purge(given: Given) -> None:
    """Delete all items that are at PATH now. Their data is lost; leaderq queue drain writes it out
    instead.

    If consumers of the queue have a lock path, give it: items that they are working on then stay.
    Foreign znodes stay, and so do dead letters, and items that are put meanwhile. If a purge was
    interrupted or killed, run it again: it continues where it stopped.

    \b
    Examples:
      leaderq queue purge /orders --lock-path /orders-locks --yes
      leaderq queue purge /jobs --older-than 86400 --yes
    """
    old = "" if given.older_than is None else f" older than {given.older_than:g} s"
    needs_yes(given, f"this deletes all items{old} at {given.path}")
    with keeping(given) as keeper, progress(keeper.depth(), "deleting") as on_progress:
        how = {"held_too": given.held_too, "older_s": given.older_than}
        done = keeper.purge(**how, on_progress=on_progress)
    held = "left, because consumers are working on them (--held-too deletes them)"
    left = {
        held: done.held,
        "taken by others meanwhile": done.gone,
        "left, because they have children, which no item has": done.stuck,
    }
    parts = [f"{done.deleted} deleted from {given.path}"]
    conclude(
        "; ".join([*parts, *(f"{count} {what}" for what, count in left.items() if count)]),
        given.as_json,
        deleted=done.deleted,
        held=done.held,
        gone=done.gone,
        stuck=done.stuck,
    )


# -- dead letters ----------------------------------------------------------------------------------

_NAMES = click.Argument(["names"], nargs=-1, metavar="[NAME]...")
_ERROR = letters_with_error("reason or error")


@queue_verb(
    *QUEUE,
    _NAMES,
    _ERROR,
    number("--limit", "N letters at most, those that died first; in a Dyno queue, the urgent ones"),
    switch("--drop", help="delete the letters instead of showing them"),
    YES,
    JSON,
)
def dead(given: Given) -> None:
    """Show the dead letters of the queue at PATH, or only those with these NAMEs; with --drop,
    delete them.

    A letter is an item that failed too often (REASON attempts), could not be read (corrupt), or
    killed too many consumers (died). ERROR is its last error. ORIGIN is the name that the item had,
    or its id; in a Dyno queue the id may be given as NAME. A letter stays at PATH-dead, or in the
    Dyno queue, until it is sent back (leaderq queue requeue) or dropped.

    \b
    Examples:
      leaderq queue dead /orders --error timeout
      leaderq queue dead /orders --json | jq -r .error | sort | uniq -c
      leaderq queue dead /orders queue-0000000007 --drop --yes
    """
    if given.drop:
        needs_yes(given, f"this deletes dead letters of {given.path}")
    with keeping(given) as keeper:
        letters = _chosen(keeper, given)
        if not given.drop:
            nothing = f"no dead letters {'of that kind ' if given.error else ''}of {given.path}"
            write_rows(
                letters,
                given.as_json,
                nothing,
                said=letter_json,
                columns=LETTER_HEADINGS,
                row=letter_row,
            )
            return
        total = len(given.names) or keeper.dead_letters.count()
        with progress(total, "dropping") as on_progress:
            done = keeper.dead_letters.drop(letters, on_progress=on_progress)
    rest = _not_moved(done)
    conclude(f"{done.moved} dropped{rest}", given.as_json, dropped=done.moved, gone=done.gone)


@queue_verb(
    *QUEUE,
    _NAMES,
    switch("--all", "everything", help="send all letters back"),
    _ERROR,
    number("--limit", "send N letters back at most, those that queue dead shows first"),
    number("--rate", "send N letters a second back at most"),
    switch("--dry-run", help="only say how many would be sent back"),
    YES,
    JSON,
)
def requeue(given: Given) -> None:
    """Send dead letters of the queue at PATH back to the queue: those with these NAMEs, those with
    an --error, or --all.

    Each letter goes behind all items or, in a priority or delay queue, behind those of the same
    priority or due time. It keeps its id, priority or due time, and has all its attempts again. It
    leaves the dead letters and appears in the queue in one transaction, so it is never lost, and
    never there twice. If this was interrupted or killed, run it again.

    \b
    Examples:
      leaderq queue requeue /orders queue-0000000007 --yes
      leaderq queue requeue /orders --error timeout --dry-run
      leaderq queue requeue /orders --all --rate 50 --yes
    """
    if not (given.names or given.everything or given.error is not None):
        raise ConfigurationError("say which letters: by NAME, with --error TEXT, or --all")
    if given.names and given.everything:
        raise ConfigurationError("give either NAMEs or --all")
    if not given.dry_run:
        needs_yes(given, f"this sends dead letters back to {given.path}")
    path, as_json = given.path, given.as_json
    with keeping(given) as keeper:
        letters, dead_letters = _chosen(keeper, given), keeper.dead_letters
        if given.dry_run:
            count = sum(1 for _ in letters)
            conclude(f"{count} would be sent back to {path}", as_json, would_requeue=count)
            return
        total = len(given.names) or min(given.limit or 2**31, dead_letters.count())
        done = Moved(0)
        with progress(total, "sending back") as on_progress:
            for some in _paced(letters, given.rate):
                done += dead_letters.requeue(some, on_progress=on_progress)
        remain = dead_letters.count()
    sentence = f"{done.moved} sent back to {path}{_not_moved(done)}; {remain} remain"
    conclude(sentence, as_json, requeued=done.moved, gone=done.gone, remain=remain)


def _not_moved(done: Moved) -> str:
    """What a sentence says of the letters that were not moved."""
    gone = f"; {done.gone} already gone" if done.gone else ""
    why = "left, because their ids are those of other messages, or they have children"
    return f"{gone}; {done.left} {why}" if done.left else gone


def _chosen(keeper: Operated, given: Given) -> Iterator[DeadItem]:
    """The letters with the given names (without names: all) that have the given error, at most
    ``--limit`` of them.

    :raises ConfigurationError: there is no letter of a given name.
    """
    names, error, wanted = given.names, given.error, None
    if names:
        known = keeper.dead_letters.names()
        if absent := sorted(set(names) - set(known)):
            lists = f"leaderq queue dead {given.path} lists them"
            raise ConfigurationError(
                f"there is no dead letter {absent[0]} of {given.path}; {lists}"
            )
        wanted = [name for name in known if name in names]
    letters = keeper.dead_letters.browse(wanted)
    return islice((one for one in letters if error is None or one.says(error)), given.limit)


def _paced(letters: Iterator[DeadItem], rate: int | None) -> Iterator[Iterable[DeadItem]]:
    if rate is None:
        yield letters
        return
    while some := list(islice(letters, rate)):
        yield some
        clock.sleep(1.0)
