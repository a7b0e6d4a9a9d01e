"""``leaderq queue put``: puts items, from arguments or standard input, into a queue."""

from __future__ import annotations

import base64
import binascii
import json
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import Any, Protocol, cast

import click

from leaderq.admin.dyno_queues import DynoAdmin
from leaderq.base import clock
from leaderq.base.arguments import is_text, require, unless
from leaderq.base.exits import ExitCode
from leaderq.cli.connecting import connected
from leaderq.cli.options import JSON, Given, number, pairs, switch, without_mark
from leaderq.cli.output import conclude, progress, say
from leaderq.cli.queue.options import KIND, QUEUE, operated, queue_verb, told_kind
from leaderq.cli.signals import Stopping
from leaderq.dyno import DynoQueue, Message
from leaderq.errors import ConfigurationError, ConnectionLost, LeaderqError, NodeExists, TooLarge
from leaderq.queues import PutListener, SimpleDistributedQueue
from leaderq.queues.admin import QueueAdmin
from leaderq.queues.admin.contents import agreed, contents_of, refuse_sharder
from leaderq.queues.consumers import QueueOptions
from leaderq.queues.putting import Putter
from leaderq.queues.wire.names import ITEM_PREFIX, QueueKind, prefix_for
from leaderq.queues.wire.znodes import QueuePaths
from leaderq.zookeeper import Session
from leaderq.zookeeper.retrying import retry_until_connected

_PATIENCE_S = 30.0
_SLICE_S = 0.2
_FLUSH_S = 1.0
_SHOWN = 10
_REFUSED = (TooLarge, ConfigurationError)  # errors of an entry, and not of the queue
_NEEDED = {QueueKind.ID: "--id", QueueKind.PRIORITY: "--priority", QueueKind.DELAY: "--delay-s"}


@queue_verb(
    *QUEUE,
    click.Argument(["items"], nargs=-1, metavar="[ITEM]..."),
    KIND,
    click.Option(["--id"], metavar="ID", help="id of the items (id or Dyno queue)"),
    click.Option(
        ["--priority"],
        type=int,
        metavar="N",
        help="priority of the items (priority or Dyno queue); lower goes first",
    ),
    number(
        "--delay-s",
        "items are due this long after they were read (delay or Dyno queue)",
        least=0.0,
        metavar="SECONDS",
    ),
    click.Option(["--shard"], metavar="NAME", help="shard of the messages (Dyno queue)"),
    click.Option(
        ["--group"], metavar="NAME", help="group of the messages, done one by one (Dyno queue)"
    ),
    pairs("--header", "headers", "header of the messages (Dyno queue); repeatable"),
    number("--multi", "put N items in one znode", default=1),
    switch("--null", help="items on standard input end with a NUL instead of a line end"),
    switch("--base64", "as_base64", help="items are in base64"),
    switch(
        "--from-json",
        "as_objects",
        help="each line is an object as leaderq queue drain or peek --json writes it",
    ),
    JSON,
)
def put(given: Given) -> ExitCode:
    """Put ITEMs into the queue at PATH, in their order; without any ITEM, the lines of standard
    input.

    The items in the queue tell its kind. If it is empty or new, --id, --priority, --delay-s or
    --kind tell the kind; without them, it is a plain queue. A Dyno queue takes all of these
    together; it refuses a message with the id of another one.

    Each line is an item, also an empty line. A byte-order mark before the first line is left out,
    except with --null.

    If the exit code is 0, all items are stored, each once, even if the connection broke. If this is
    interrupted or killed, the first items are stored, without gaps: as many as it says, or as NEXT
    of leaderq queue ls shows.

    \b
    Examples:
      leaderq queue put /orders < orders.txt
      leaderq queue put /mails --priority -5 urgent
      leaderq queue put /jobs --kind dyno --id order-17 --delay-s 60 --header by=anna '{}'
      leaderq queue drain /old --json --yes > old.jsonl
      leaderq queue put /new --from-json < old.jsonl
    """
    _check(given)
    refusals, store = Refusals(), None
    with (
        Stopping() as stopping,
        connected(given) as session,
        operated(session, given, given.path, may_be_new=True) as keeper,
    ):
        kind = _kind(keeper, given) if isinstance(keeper, QueueAdmin) else None
        try:
            with _input(given, stopping) as batches:
                entries = _entries(given, batches, refusals)
                first = next(filter(None, entries), [])
                store = _store(session, keeper, kind, first, refusals)
                with closing(store):
                    store.take(chain([first], entries))
        finally:
            stored = 0 if store is None else store.stored
            what = "stored" if given.multi == 1 else f"znodes of up to {given.multi} items stored"
            refused = f"; {refusals.count} refused" if refusals.count else ""
            conclude(
                f"{stored} {what} in {given.path}{refused}",
                given.as_json,
                stored=stored,
                refused=refusals.count,
            )
    return ExitCode.FAILED if refusals.count else ExitCode.OK


def _check(given: Given) -> None:
    alone = _keys_given(given) or given.multi > 1 or given.null or given.as_base64
    both = given.null and given.items
    has_input = bool(given.items) or sys.stdin is not None
    require(
        unless(
            not (given.as_objects and alone), "--from-json stands alone: the lines say everything"
        ),
        unless(not both, "--null is for standard input, and items were given as arguments"),
        unless(has_input, "no items were given, and standard input is closed"),
    )


def _keys_given(given: Given) -> list[str]:
    """The options that were given and that only some kinds of queue have."""
    names = {"--id": given.id, "--priority": given.priority, "--delay-s": given.delay_s}
    names |= {"--shard": given.shard, "--group": given.group, "--header": given.headers or None}
    return [name for name, value in names.items() if value is not None]


@contextmanager
def _input(given: Given, stopping: Stopping) -> Iterator[Iterable[list[bytes]]]:
    """Yield the input in batches of pieces; show a progress bar if the input is a file."""
    if given.items:
        yield [[item.encode("utf-8", "surrogateescape") for item in given.items]]
        return
    if sys.stdin.isatty():
        say("one item a line; Ctrl-D ends")
    with progress(_stdin_bytes(), "bytes read") as on_read:
        yield pieces(_Stdin(stopping), b"\0" if given.null else b"\n", on_read)


class _Stdin:
    """Standard input; Ctrl-C ends a read that waits."""

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
    given: Given, batches: Iterable[list[bytes]], refusals: Refusals
) -> Iterator[list[Entry]]:
    """Yield the entries to put, each time as many as the input has brought."""
    lines, values, first = count(1), list[bytes](), 0

    def entry() -> Entry:
        due_ms = None
        if given.delay_s is not None:
            due_ms = max(1, int((clock.calendar_s() + given.delay_s) * 1000))
        dyno = {"shard": given.shard, "group": given.group, "headers": given.headers}
        return Entry(first, tuple(values), Keys(given.id, given.priority, due_ms, **dyno))

    for batch in batches:
        found = []
        for text, line in zip(batch, lines, strict=False):
            if line == 1 and not (given.items or given.null):
                text = without_mark(text)
            try:
                if given.as_objects:
                    found.append(from_json(line, text))
                    continue
                values.append(from_base64(text) if given.as_base64 else text)
            except BadEntry as exc:
                refusals.note(line, exc)
                continue
            first = line if len(values) == 1 else first
            if len(values) == given.multi:
                found.append(entry())
                values = []
        yield found
    if values:
        yield [entry()]


class Refusals:
    """Entries that cannot be put: the first ones are shown, all are counted."""

    def __init__(self) -> None:
        self.count = 0

    def note(self, number: int, why: object) -> None:
        self.count += 1
        if self.count <= _SHOWN:
            say(f"item {number}: {why}")
        elif self.count == _SHOWN + 1:
            say("and more")


def _wanted(given: Given) -> QueueKind | None:
    keys, told = _keys_given(given), told_kind(given)
    if not keys:
        return told
    for_dyno = [key for key in keys if key not in _NEEDED.values()]
    if for_dyno or len(keys) > 1:
        said = "are for different kinds of queue, or together for a Dyno queue"
        said = "is for Dyno queues" if for_dyno else said
        raise ConfigurationError(f"{' and '.join(for_dyno or keys)} {said}; --kind dyno makes one")
    (implied,) = (kind for kind, key in _NEEDED.items() if key == keys[0])
    if told not in (None, implied):
        raise ConfigurationError(
            f"{keys[0]} is for {implied.value} queues, and another --kind was given"
        )
    return implied


def _kind(admin: QueueAdmin, given: Given) -> QueueKind | None:
    """Return the kind of the queue: the one that the options tell, if the items agree; else the one
    that the items tell; ``None`` if neither options nor items tell it.

    :raises ConfigurationError: options and items do not agree.
    """
    wanted, keys, path, names = _wanted(given), _keys_given(given), given.path, admin.names()
    refuse_sharder(contents_of(names, QueueKind.PLAIN), admin.paths)
    found = contents_of(names).kind
    if keys and given.kind is None and found is QueueKind.PLAIN:
        raise ConfigurationError(
            f"the items below {path} are those of a plain queue, and {keys[0]} was given; "
            f"if they are what Java has requeued, say so with --kind"
        )
    kind = agreed(wanted, found, path)
    if kind in _NEEDED and _NEEDED[kind] not in keys and not given.as_objects:
        raise ConfigurationError(f"{path} is of the kind {kind.value}: give {_NEEDED[kind]}")
    return kind


def _store(
    session: Session,
    keeper: DynoAdmin | QueueAdmin,
    kind: QueueKind | None,
    first: Sequence[Entry],
    refusals: Refusals,
) -> Store:
    """The store for this queue. The keys of the first entries tell the kind of an empty queue."""
    if isinstance(keeper, DynoAdmin):
        _tell_if_new(keeper, keeper.path, "dyno")
        return DynoStore(refusals, keeper.queue)
    paths = keeper.paths
    if kind is None:
        said = next((one.keys.kind for one in first), None) or "plain"
        if said == "dyno":
            remedy = "--kind dyno makes one"
            raise ConfigurationError(f"the first item is a message of a Dyno queue; {remedy}")
        _tell_if_new(keeper, paths.path, said)
        kind = QueueKind(said)
    if kind is QueueKind.SIMPLE:
        return SimpleStore(refusals, session, paths)
    return FramedStore(refusals, session, paths, kind)


def _tell_if_new(keeper: DynoAdmin | QueueAdmin, path: str, kind: str) -> None:
    if not keeper.is_there():
        say(f"{path} is new: taken for a {kind} queue (--kind says otherwise)")


class Store:
    """Puts entries into a queue, in order. ``stored``: znodes that are certainly stored."""

    def __init__(self, refusals: Refusals) -> None:
        self.stored = 0
        self._refusals = refusals

    def take(self, batches: Iterable[list[Entry]]) -> None:
        """Store all that is valid, and note the rest as refused; raise what prevents storing."""
        for entries in batches:
            for entry in entries:
                try:
                    self._put(entry)
                except _REFUSED as exc:
                    self._refusals.note(entry.number, exc)
            self._pause()
        self._finish()

    def close(self) -> None:
        """Entries that were not sent yet will not be sent."""

    def _put(self, entry: Entry) -> None:
        """Accept this entry for sending; raise one of ``_REFUSED`` if the queue cannot take it."""
        raise NotImplementedError

    def _pause(self) -> None:
        """Send the entries accepted so far, because no more input has come."""

    def _finish(self) -> None:
        """Wait until all entries are stored."""


class FramedStore(Store, PutListener):
    """Puts into queues of all recipes except the simple one; entries are sent at once."""

    def __init__(
        self, refusals: Refusals, session: Session, places: QueuePaths, kind: QueueKind
    ) -> None:
        super().__init__(refusals)
        self._kind = kind
        self._failure: LeaderqError | None = None
        options: QueueOptions[bytes] = QueueOptions(put_in_background=True)
        self._putter = Putter(session, places, options)
        retry_until_connected(self._putter.start)
        self._putter.add_listener(self)

    def _put(self, entry: Entry) -> None:
        prefix = _prefix(self._kind, entry.keys)
        if not self._putter.put_multi(entry.values, prefix, _PATIENCE_S):
            raise ConnectionLost(
                f"nothing was stored for {_PATIENCE_S:.0f} s, and no more items fit in memory"
            )
        self._raise()

    def _finish(self) -> None:
        seen, deadline = self.stored, clock.now_s() + _PATIENCE_S
        while not self._putter.flush(_SLICE_S):
            if self.stored > seen:
                seen, deadline = self.stored, clock.now_s() + _PATIENCE_S
            if clock.now_s() >= deadline:
                raise ConnectionLost(
                    f"{self._putter.unsettled} items were not answered for {_PATIENCE_S:.0f} s"
                )
        self._raise()

    def close(self) -> None:
        self._putter.close(_FLUSH_S)

    # On the thread of the listeners.
    def put_completed(self, item: Any) -> None:
        self.stored += 1

    def put_multi_completed(self, items: Sequence[Any]) -> None:
        self.stored += 1

    def put_failed(self, items: Sequence[Any], error: LeaderqError) -> None:
        self._failure = self._failure or error

    def _raise(self) -> None:
        if self._failure is not None:
            raise self._failure


def _prefix(kind: QueueKind, keys: Keys) -> str:
    if keys.is_bare:
        return ITEM_PREFIX
    _agrees(kind, keys)
    return prefix_for(kind, id=keys.id, priority=keys.priority, due_ms=keys.due_ms)


def _agrees(kind: QueueKind, keys: Keys) -> None:
    if keys.kind not in (None, kind.value):
        raise ConfigurationError(
            f"it is an item of a queue of the kind {keys.kind}, and this one is {kind.value}"
        )


def _only_value(entry: Entry, holder: str) -> bytes:
    if len(entry.values) != 1:
        raise ConfigurationError(f"it has {len(entry.values)} values, and {holder} holds one")
    return entry.values[0]


class SimpleStore(Store):
    """Puts into a simple queue: no frame, one value a znode."""

    def __init__(self, refusals: Refusals, session: Session, places: QueuePaths) -> None:
        super().__init__(refusals)
        self._queue = SimpleDistributedQueue(session, places.path, meta_path=places.meta_path)
        self._gathered: list[bytes] = []

    def _put(self, entry: Entry) -> None:
        value = _only_value(entry, "a znode of a simple queue")
        _agrees(QueueKind.SIMPLE, entry.keys)
        self._gathered.append(value)
        if len(self._gathered) >= 1000:
            self._pause()

    def _pause(self) -> None:
        gathered, self._gathered = self._gathered, []
        if gathered:
            self._queue.offer_many(gathered, _PATIENCE_S)
            self.stored += len(gathered)

    def close(self) -> None:
        self._queue.close()


class DynoStore(Store):
    """Puts into a Dyno queue, a message for each value. The verb closes the queue."""

    def __init__(self, refusals: Refusals, queue: DynoQueue) -> None:
        super().__init__(refusals)
        self._queue = queue
        self._gathered: list[tuple[int, Message]] = []

    def _put(self, entry: Entry) -> None:
        payload, keys = _only_value(entry, "a message of a Dyno queue"), entry.keys
        delay_s = 0.0 if keys.due_ms is None else max(0.0, keys.due_ms / 1000 - clock.calendar_s())
        place = (delay_s, keys.priority or 0, keys.shard)
        message = Message(keys.id or "", payload, *place, keys.headers or {}, keys.group)
        self._gathered.append((entry.number, message))
        if len(self._gathered) == 250 or len(payload) > 16 * 1024:
            self._pause()

    def _pause(self) -> None:
        gathered, self._gathered = self._gathered, []
        outcomes = self._queue.push_each([message for _, message in gathered])
        for (line, _), outcome in zip(gathered, outcomes, strict=True):
            if isinstance(outcome, (*_REFUSED, NodeExists)):
                self._refusals.note(line, outcome)
            elif isinstance(outcome, str):
                self.stored += 1
            else:
                raise outcome


# -- what is to be put, out of arguments or a stream (pure, but for reading the stream) ------------

_CHUNK = 1 << 16
_LAST = 2**63 - 1
LONGEST = 4 << 20
"""Bytes of one line: four times what ZooKeeper takes by default; whatever is longer is not an item
but the wrong file.
"""


class Source(Protocol):
    """A binary stream that returns what has come, and does not wait for more."""

    def read1(self, size: int = -1, /) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Keys:
    """The parts of an item's name besides its number; the kind of the queue decides which are
    needed. ``is_bare``: the name has no other part, as for an item that Java has requeued. Shard,
    group and headers are for Dyno queues, whose messages may have all keys.
    """

    id: str | None = None
    priority: int | None = None
    due_ms: int | None = None
    is_bare: bool = False
    shard: str | None = None
    group: str | None = None
    headers: Mapping[str, str] | None = None

    @property
    def kind(self) -> str | None:
        """The kind of queue whose items have such keys; ``None`` if no key is set."""
        said = {"id": self.id, "priority": self.priority, "delay": self.due_ms}
        kinds = [kind for kind, value in said.items() if value is not None]
        is_dyno = len(kinds) > 1 or self.shard or self.group or self.headers
        return "dyno" if is_dyno else next(iter(kinds), None)


@dataclass(frozen=True, slots=True)
class Entry:
    """The values and keys of one znode. ``number``: its first line or argument, from 1."""

    number: int
    values: tuple[bytes, ...]
    keys: Keys


class BadEntry(Exception):  # one line of many: counted and told, the others go on
    """A line that cannot be put."""


def pieces(
    source: Source, end: bytes, on_bytes: Callable[[int], object] = lambda _: None
) -> Iterator[list[bytes]]:
    """Split the input at ``end``; yield the pieces in batches, as soon as they have come. What
    follows the last ``end`` is a piece, too, unless it is empty.

    :raises ConfigurationError: a piece is longer than any item can be.
    """
    rest = bytearray()
    number = 0
    while chunk := source.read1(_CHUNK):
        on_bytes(len(chunk))
        rest += chunk
        if end in chunk:
            *whole, last = bytes(rest).split(end)
            rest = bytearray(last)
            number += len(whole)
            yield whole
        if len(rest) > LONGEST:
            raise ConfigurationError(
                f"item {number + 1} is longer than {LONGEST} bytes, and has no end yet; is this the"
                " right file?"
            )
    if rest:
        yield [bytes(rest)]


def from_base64(text: bytes) -> bytes:
    """Return the bytes that ``text`` stands for.

    :raises BadEntry: it is not base64.
    """
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise BadEntry("is not base64") from None


def from_json(number: int, line: bytes) -> Entry:
    """Return the entry of an object that ``leaderq queue peek --json`` or ``drain --json`` has
    written. It has ``values`` (or ``value``), and ``id``, ``priority`` or ``due_ms``.

    :raises BadEntry: the line is not such an object.
    """
    try:
        said = json.loads(line)
    except (ValueError, RecursionError) as exc:
        raise BadEntry(f"is not JSON: {exc}") from None
    if not isinstance(said, dict):
        raise BadEntry("is not a JSON object")
    if "corrupt" in said:
        raise BadEntry("was a corrupt item")
    values = said.get("values", [said["value"]] if "value" in said else None)
    if not isinstance(values, list):
        raise BadEntry('has neither "values", a list, nor "value"')
    return Entry(number, tuple(_value(one) for one in values), _keys(said))


def _keys(said: dict[str, Any]) -> Keys:
    if ("priority" in said and said["priority"] is None) or said.get("due_ms") == 0:
        return Keys(is_bare=True)
    keys = _typed(said, "id", str), _typed(said, "priority", int), _typed(said, "due_ms", int)
    return Keys(*keys, group=_typed(said, "group", str), headers=_typed(said, "headers", dict))


def _typed(said: dict[str, Any], name: str, kind: type) -> Any:
    value = said.get(name)
    if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
        words = {str: "text", int: "a whole number", dict: "an object"}
        raise BadEntry(f'has a "{name}" that is not {words[kind]}')
    if kind is int and isinstance(value, int) and abs(value) > _LAST:
        raise BadEntry(f'has a "{name}" of more than 64 bits')
    return value


def _value(value: object) -> bytes:
    if isinstance(value, str) and is_text(value):
        return value.encode()
    if isinstance(value, dict) and set(value) == {"base64"} and isinstance(value["base64"], str):
        return from_base64(value["base64"].encode())
    raise BadEntry('has a value that is neither text in UTF-8 nor {"base64": ...}')
