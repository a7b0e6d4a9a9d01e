"""``leaderq queue put``: items from arguments or standard input go into a queue."""

from __future__ import annotations

import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from leaderq.cli.options import Given, Verb, json_option, number, switch
from leaderq.cli.output import progress, write_json
from leaderq.cli.queue.entries import (
    BadEntry,
    Entry,
    Keys,
    from_base64,
    from_json,
    grouped,
    numbered,
    pieces,
)
from leaderq.cli.queue.options import keeping, kind_option, queue_argument, takes_connection
from leaderq.cli.signals import Stopping
from leaderq.errors import ConfigurationError
from leaderq.exits import ExitCode

if TYPE_CHECKING:
    from leaderq.cli.queue.entries import Source
    from leaderq.cli.queue.storing import Refusals, Store
    from leaderq.queues.wire.names import QueueKind

Batches = Iterable[list[bytes]]


@click.command(cls=Verb)
@takes_connection
@queue_argument
@click.argument("items", nargs=-1, metavar="[ITEM]...")
@kind_option
@click.option("--id", metavar="ID", help="the id of the items, for an id or Dyno queue")
@click.option(
    "--priority",
    type=int,
    metavar="N",
    help="of the items, for a priority or Dyno queue; lower goes first",
)
@number(
    "--delay-s",
    "how long after it was read an item is due, for a delay or Dyno queue",
    least=0.0,
    metavar="SECONDS",
)
@click.option(
    "--shard", metavar="NAME", help="where the messages go, for a Dyno queue; else in turn"
)
@click.option("--group", metavar="NAME", help="work on them one after the other, for a Dyno queue")
@click.option(
    "--header",
    "headers",
    metavar="KEY=VALUE",
    multiple=True,
    help="of the messages, for a Dyno queue; repeatable",
)
@click.option(
    "--multi", type=click.IntRange(min=1), metavar="N", default=1, help="put N items in one znode"
)
@switch("--null", help="items on standard input end with a NUL instead of a line end")
@switch("--base64", "as_base64", help="items are in base64")
@switch(
    "--from-json",
    "objects",
    help="each line is an object as leaderq queue drain or peek --json writes it",
)
@json_option
def put(
    given: Given,
    path: str,
    items: tuple[str, ...],
    kind: QueueKind | None,
    id: str | None,
    priority: int | None,
    delay_s: float | None,
    shard: str | None,
    group: str | None,
    headers: tuple[str, ...],
    multi: int,
    null: bool,
    as_base64: bool,
    objects: bool,
    as_json: bool,
) -> ExitCode:
    """Put ITEMs, or without any the lines of standard input, into the queue at PATH, in their
    order.

    The kind of the queue is told by what lies in it. For an empty or new one it is told by --id,
    --priority or --delay-s, or by --kind; else it is a plain one. To a Dyno queue all of these may
    be given together; a message whose id another one has is refused. Each line is an item, an empty
    one too. All are stored when this ends with 0, each once, even if the connection breaks.
    If it is interrupted or killed, the first ones are stored, without gaps: as many as it says, or
    as leaderq queue ls shows by NEXT.

    \b
    Examples:
      leaderq queue put /orders first second
      leaderq queue put /orders < orders.txt
      leaderq queue put /mails --priority -5 urgent
      leaderq queue put /jobs --kind dyno --id order-17 --delay-s 60 --header by=anna '{}'
      leaderq queue drain /old --json --yes > old.jsonl
      leaderq queue put /new --from-json < old.jsonl
    """
    options = {"--id": id, "--priority": priority, "--delay-s": delay_s}
    dyno_options = {"--shard": shard, "--group": group, "--header": headers or None}
    with_keys = [name for name, value in (options | dyno_options).items() if value is not None]
    _check(
        with_keys,
        multi=multi,
        null=null,
        as_base64=as_base64,
        objects=objects,
        has_items=bool(items),
    )
    pairs = dict(_pair(one) for one in headers)

    def keys() -> Keys:
        due_ms = None if delay_s is None else max(1, int((time.time() + delay_s) * 1000))
        return Keys(id, priority, due_ms, shard=shard, group=group, headers=pairs)

    with Stopping() as stopping, keeping(given, path, kind, may_be_new=True) as (session, keeper):
        from leaderq.cli.queue.storing import PutWish, Refusals, way_into

        refusals = Refusals(lambda text: click.echo(text, err=True))
        way_in = way_into(session, keeper, PutWish(kind, with_keys, objects), refusals)
        store: Store | None = None
        try:
            with _input(items, null, stopping) as batches:
                first, entries = _first(
                    _entries(
                        batches, refusals, keys, multi, as_base64=as_base64, as_objects=objects
                    )
                )
                store = way_in(first)
                with closing(store):
                    _run(store, refusals, entries)
        finally:
            _sum_up(path, 0 if store is None else store.stored, refusals.count, multi, as_json)
    return ExitCode.FAILED if refusals.count else ExitCode.OK


def _pair(text: str) -> tuple[str, str]:
    key, found, value = text.partition("=")
    if not key or not found:
        raise ConfigurationError(f"--header {text!r}: give KEY=VALUE")
    return key, value


def _sum_up(path: str, stored: int, refused: int, multi: int, as_json: bool) -> None:
    """The last line; also of a put that was interrupted."""
    if as_json:
        write_json({"stored": stored, "refused": refused})
    what = "stored" if multi == 1 else f"znodes of up to {multi} items stored"
    click.echo(f"{stored} {what} in {path}" + (f"; {refused} refused" if refused else ""), err=True)


def _check(
    with_keys: list[str], *, multi: int, null: bool, as_base64: bool, objects: bool, has_items: bool
) -> None:
    problems = []
    if objects and (with_keys or multi > 1 or null or as_base64):
        problems.append("--from-json stands alone: the lines say everything")
    if null and has_items:
        problems.append("--null is for standard input, and items were given as arguments")
    if not has_items and sys.stdin is None:
        problems.append("no items were given, and standard input is closed")
    if problems:
        raise ConfigurationError(*problems)


def _first(entries: Iterator[Entry | None]) -> tuple[Entry | None, Iterator[Entry | None]]:
    """The first one, and all."""
    before: list[Entry | None] = []
    for one in entries:
        before.append(one)
        if one is not None:
            break
    return (before[-1] if before else None), chain(before, entries)


@contextmanager
def _input(items: tuple[str, ...], null: bool, stopping: Stopping) -> Iterator[Batches]:
    """What to put; shows a bar if it is a file."""
    if items:
        yield [[item.encode("utf-8", "surrogateescape") for item in items]]
        return
    if sys.stdin.isatty():
        click.echo("one item a line; Ctrl-D ends", err=True)
    with progress(_stdin_bytes(), "bytes read") as on_read:
        yield pieces(_Stdin(stopping), b"\0" if null else b"\n", on_read)


class _Stdin:
    """Standard input, which may be left at Ctrl-C."""

    def __init__(self, stopping: Stopping) -> None:
        self._source = cast("Source", sys.stdin.buffer)
        self._stopping = stopping

    def read1(self, size: int = -1, /) -> bytes:
        with self._stopping.safely():
            return self._source.read1(size)


def _stdin_bytes() -> int | None:
    try:
        found = Path(f"/dev/fd/{sys.stdin.fileno()}").stat()
    except (OSError, ValueError):
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def _entries(
    batches: Batches,
    refusals: Refusals,
    keys: Callable[[], Keys],
    multi: int,
    *,
    as_base64: bool,
    as_objects: bool,
) -> Iterator[Entry | None]:
    """What is to be put, and ``None`` where nothing more has come so far."""

    def read(number: int, text: bytes) -> Any:
        if as_objects:
            return from_json(number, text)
        return number, from_base64(text) if as_base64 else text

    def parsed() -> Iterator[Any]:
        for one in numbered(batches):
            try:
                yield None if one is None else read(*one)
            except BadEntry as exc:
                refusals.note(one[0] if one else 0, exc)

    return parsed() if as_objects else grouped(parsed(), multi, keys)


def _run(store: Store, refusals: Refusals, entries: Iterator[Entry | None]) -> None:
    from leaderq.cli.queue.storing import REFUSED

    for entry in entries:
        if entry is None:
            store.pause()
            continue
        try:
            store.put(entry)
        except REFUSED as exc:
            refusals.note(entry.number, exc)
    store.finish()
