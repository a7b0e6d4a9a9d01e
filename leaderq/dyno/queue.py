"""Messages that must be worked on at least once: later, by priority, by many consumers.

See :class:`DynoQueue`. The layout and the reasons are in ``docs/design/dyno.md``.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from types import TracebackType
from typing import Any

from leaderq.dyno import transitions
from leaderq.dyno.consumer import ANSWER_S, DynoConsumer
from leaderq.dyno.dead_letters import DynoDeadLetters
from leaderq.dyno.delivery import Delivery
from leaderq.dyno.layout import DynoPaths, RestName, group_of, name_prefix, parsed_name, parsed_rest
from leaderq.dyno.message import DeliveryState, Frame, Message
from leaderq.dyno.shard_view import ClaimRead
from leaderq.dyno.shards import FixedShards, ShardingStrategy, ShardSupplier, round_robin, shard_of
from leaderq.errors import (
    BadVersion,
    ConfigurationError,
    ConnectionLost,
    CorruptItem,
    LeaderqError,
    NodeExists,
    NoNode,
    QueueClosed,
)
from leaderq.reading import SizedReader
from leaderq.retrying import RetryPolicy
from leaderq.writing import SequencedWriter
from leaderq.zookeeper import AnyClient, Create, Delete, Operation, SetData, as_session

Seconds = float | timedelta
Operations = tuple[Operation, ...]
_TRIES = 20


@dataclass(frozen=True, slots=True)
class ShardFigures:
    """``due``: may be delivered now; ``delayed``: later; ``leased``: in flight; ``oldest_due_s``: how
    long the oldest of those due has been so."""

    due: int
    delayed: int
    leased: int
    dead: int
    oldest_due_s: float | None


class DynoQueue:
    """An acknowledged, sharded, delayed, prioritised queue of messages below one znode.

    ``lease_s``: how long a delivery belongs to its consumer, unless it is extended. ``shards``: a
    :class:`ShardSupplier`, or their names. ``strategy``: where a message goes. ``retry``: what
    becomes of messages that fail. ``ageing_s``: see :class:`~leaderq.dyno.index.ShardIndex`.

    *Guarantees:* a message that was pushed is delivered until it is acknowledged, killed, removed,
    or has failed as often as ``retry`` says; it is in exactly one place at any time, whoever dies.
    Nobody's message is delivered to another while its lease and its session stand. Among the
    messages of a shard that are due, the one with the best priority is delivered next, and of these
    the one that was pushed first, with any number of consumers.
    *Not guaranteed:* that a message is worked on only once: who hangs past a lease may wake up, and
    finds out when it settles (:class:`StaleLease`). An order between shards.
    """

    def __init__(
        self,
        client: AnyClient,
        root: str,
        *,
        shards: ShardSupplier | Sequence[str] = ("0",),
        strategy: ShardingStrategy | None = None,
        lease_s: Seconds = 60.0,
        retry: RetryPolicy | None = None,
        ageing_s: float | None = None,
        name: str = "",
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        supplier = shards if isinstance(shards, ShardSupplier) else FixedShards(*shards)
        self._session = as_session(client)
        self._paths = DynoPaths(root)
        self._shards = tuple(supplier.shards())
        self._strategy = strategy or round_robin()
        self._now_ms = now_ms
        self.lease_s = checked_s("lease_s", lease_s)
        self._pushes: SequencedWriter | None = None
        self._is_closed = False
        self._consumer = DynoConsumer(
            self._session,
            self._paths,
            self._shards,
            name=name or root.rpartition("/")[2],
            current=supplier.current_shard(),
            lease_s=self.lease_s,
            retry=retry or RetryPolicy(),
            ageing_s=ageing_s,
            now_ms=now_ms,
            id_over=self._id_over,
        )

    def __enter__(self) -> DynoQueue:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    def close(self, timeout_s: float = 5.0) -> bool:
        """Leave; what is leased here and not settled may pass to others at once. Returns whether all
        was written."""
        self._is_closed = True
        is_clean = self._consumer.close(timeout_s)
        return (self._pushes is None or self._pushes.close(timeout_s)) and is_clean

    # -- pushing -----------------------------------------------------------------------------------

    def push(self, messages: Message | Iterable[Message], *, fence: Sequence[Operation] = ()) -> list[str]:
        """Put these into the queue; returns their ids, when they are there.

        ``fence``: operations that must hold for each, such as those of a ``Term``.

        *Guarantees:* each is there once, whatever happens to the answers. All are tried; if some
        fail, the error tells of the first.

        :raises NodeExists: a message of that id is in the queue.
        """
        out: list[str] = []
        for outcome in self.push_each(messages, fence=fence):
            if isinstance(outcome, LeaderqError):
                raise outcome
            out.append(outcome)
        return out

    def push_each(
        self, messages: Message | Iterable[Message], *, fence: Sequence[Operation] = ()
    ) -> list[str | LeaderqError]:
        """As :meth:`push`; returns for each its id, or its error in its place."""
        given = [messages] if isinstance(messages, Message) else list(messages)
        prepared = [self._push_operations(one) for one in given]
        writer = self._writer()
        futures = writer.submit_all([(*fence, *operations) for _, _, operations in prepared])
        out: list[str | LeaderqError] = []
        for one, (shard, prefix, _), future in zip(given, prepared, futures, strict=True):
            error = self._outcome(future)
            out.append(self._pushed(one, shard, prefix, future.result()) if error is None else error)
        return out

    def ensure(self, message: Message) -> bool:
        """Push it, unless a message of its id is in the queue; returns whether it was pushed. Of any
        number of callers one pushes."""
        if not message.id:
            raise ConfigurationError("ensure() needs a message with an id of yours")
        try:
            self.push(message)
        except NodeExists:
            return False
        return True

    def _push_operations(self, message: Message) -> tuple[str, str, tuple[Operation, ...]]:
        shard = shard_of(message, self._shards, self._strategy)
        now_ms = self._now_ms()
        prefix = name_prefix(message.priority, now_ms + int(message.timeout_s * 1000), group_of(message.group))
        frame = Frame(message.payload, message.id, now_ms, message.headers, message.group)
        create = Create(self._paths.shard(shard).message(prefix), frame.packed(), sequential=True)
        if not message.id:
            return shard, prefix, (create,)
        return shard, prefix, (create, Create(self._paths.id(message.id), shard.encode()))

    def _pushed(self, message: Message, shard: str, prefix: str, results: list[Any] | None) -> str:
        if message.id:
            if results is not None:
                name = results[-2].rpartition("/")[2]
                # A hint only: who misses it looks for the message in its shard.
                self._session.set_async(self._paths.id(message.id), f"{shard}/{name}".encode())
            return message.id
        if results is None:  # it is there, and the answer was lost
            return ""
        return f"{shard}/{results[-1].rpartition('/')[2]}"

    def _writer(self) -> SequencedWriter:
        if self._is_closed:
            raise QueueClosed(f"the queue {self._paths.root} was closed")
        if self._pushes is None:
            writer = SequencedWriter(self._session, f"{self._paths.root}/pushes/{uuid.uuid4().hex}")
            writer.open()
            for shard in self._shards:
                for parent in self._paths.shard(shard).parents:
                    self._session.ensure_path(parent)
            self._session.ensure_path(self._paths.ids)
            self._pushes = writer
        return self._pushes

    def _outcome(self, future: Future[Any]) -> LeaderqError | None:
        try:
            error = future.exception(ANSWER_S)
        except TimeoutError:
            future.cancel()
            return ConnectionLost(f"no answer within {ANSWER_S:g} s: the outcome is unknown", path=self._paths.root)
        if error is not None and not isinstance(error, LeaderqError):
            raise error
        return error

    # -- consuming ---------------------------------------------------------------------------------

    def pop(
        self,
        most: int = 1,
        timeout_s: Seconds | None = 0.0,
        *,
        least: int | None = None,
        lease_s: Seconds | None = None,
    ) -> list[Delivery]:
        """The next messages, leased to this consumer: own shard first, then the others.

        Returns as soon as there are ``least`` (default: ``most``) of them, or ``timeout_s`` is over
        (``None``: never), with what there is. Wakes within milliseconds of a message's arrival or
        due time.

        :raises ConnectionLost: not connected.
        """
        if most < 1:
            raise ConfigurationError(f"most={most!r}: give 1 or more")
        wait_s = None if timeout_s is None else checked_s("timeout_s", timeout_s)
        lease = None if lease_s is None else checked_s("lease_s", lease_s)
        return self._consumer.pop(most, wait_s, min(most, least or most), lease)

    def pop_id(self, id: str, *, lease_s: Seconds | None = None) -> Delivery | None:
        """This message, if it is due and nobody has it."""
        place = self._place(id)
        lease = None if lease_s is None else checked_s("lease_s", lease_s)
        return None if place is None else self._consumer.claim_one(*place, lease)

    def __iter__(self) -> Iterator[Delivery]:
        """One message after another, for ever, as they come."""
        while True:
            yield from self.pop(1, None)

    def ack(self, deliveries: Iterable[Delivery]) -> list[LeaderqError | None]:
        """Acknowledge many; returns for each its error, or ``None``."""
        return self._consumer.acknowledge(list(deliveries))

    def keep(self, deliveries: Iterable[Delivery], *, most_s: float | None = None) -> None:
        """Extend these leases before they end, until they are settled, let go, or ``most_s`` seconds
        have passed."""
        self._consumer.keep(deliveries, most_s)

    def let_go(self, deliveries: Iterable[Delivery]) -> None:
        """Extend these leases no more."""
        self._consumer.let_go(deliveries)

    @property
    def dead_letters(self) -> DynoDeadLetters:
        """What is not delivered any more."""
        submit = lambda operations: self._writer().submit(operations)  # noqa: E731
        return DynoDeadLetters(self._session, self._paths, self._shards, submit, self._outcome, self._now_ms)

    def process_unacks(self) -> int:
        """Look now for leases that are over, in all shards; returns how many were found. A thread
        does this once a second."""
        self._consumer.membership()
        return self._consumer.look_at_leases()

    # -- looking -----------------------------------------------------------------------------------

    def get(self, id: str) -> Message | None:
        """The message of this id, in whatever state; ``None`` if there is none."""
        place = self._place(id)
        if place is None:
            return None
        try:
            data, _ = self._session.get(self._paths.shard(place[0]).message(place[1]))
        except NoNode:
            return None
        return self._message(place[0], place[1], data)

    def peek(self, most: int = 1) -> list[Message]:
        """The messages that would be delivered next; they stay where they are."""
        out: list[Message] = []
        now_ms = self._now_ms()
        for shard in self._shards:
            view = self._consumer.views[shard]
            view.refresh()
            with view.lock:
                names = view.index.peek(most - len(out), now_ms)
            for name in names:
                with suppress(NoNode, CorruptItem):
                    data, _ = self._session.get(view.paths.message(name))
                    out.append(self._message(shard, name, data))
        return out

    def size(self) -> int:
        """The messages that wait or rest: those in flight are not counted."""
        return sum(one["messages"] - one["leased"] for one in self.shard_sizes().values())

    def shard_sizes(self) -> dict[str, dict[str, int]]:
        """For each shard: ``messages`` (all), ``resting``, ``leased``, ``dead``; as the servers have
        them."""
        out = {}
        for shard in self._shards:
            paths = self._paths.shard(shard)
            messages, claims, rests, dead = (self._count(parent) for parent in paths.parents)
            out[shard] = {"messages": messages, "resting": rests, "leased": max(0, claims - rests), "dead": dead}
        return out

    def figures(self) -> dict[str, ShardFigures]:
        """For each shard, as this consumer sees it."""
        out = {}
        for shard, sizes in self.shard_sizes().items():
            view, now_ms = self._consumer.views[shard], self._now_ms()
            view.refresh()
            with view.lock:
                due, oldest_ms = view.index.due_count(now_ms), view.index.oldest_due_ms(now_ms)
            leased, oldest_s = sizes["leased"], None if oldest_ms is None else (now_ms - oldest_ms) / 1000
            out[shard] = ShardFigures(due, max(0, sizes["messages"] - due - leased), leased, sizes["dead"], oldest_s)
        return out

    def _count(self, path: str) -> int:
        stat = self._session.exists(path)
        return 0 if stat is None else stat.num_children

    # -- changing one message ----------------------------------------------------------------------

    def remove(self, id: str) -> bool:
        """Delete a message, in whatever state; returns whether it was there. Who has it in flight
        finds out when it settles."""

        def operations(shard: str, name: str, claim: ClaimRead | None, resting: RestName | None) -> Operations:
            paths = self._paths.shard(shard)
            frame = Frame.read(self._session.get(paths.message(name))[0])
            removed = transitions.removal(paths, name, None if claim is None else claim.version, resting)
            return (*removed, Delete(self._paths.id(frame.id))) if frame.id else removed

        return self._change(id, operations)

    def set_timeout(self, id: str, timeout_s: Seconds) -> bool:
        """A message that nobody has is due in ``timeout_s`` seconds; it keeps its priority and its
        place among equals. Returns whether there was one."""
        seconds = checked_s("timeout_s", timeout_s)

        def operations(shard: str, name: str, claim: ClaimRead | None, resting: RestName | None) -> Operations | None:
            paths, until_ms = self._paths.shard(shard), self._now_ms() + int(seconds * 1000)
            if claim is None:
                return transitions.first_rest(paths, name, DeliveryState(until_ms=until_ms))
            if resting is None:
                return None  # in flight
            return transitions.another_rest(paths, resting, replace(claim.state, until_ms=until_ms))

        return self._change(id, operations)

    def _change(self, id: str, operations: Callable[..., Operations | None]) -> bool:
        """Write what follows from the state that the message has now; once more, if it has changed
        meanwhile."""
        writer = self._writer()
        for _ in range(_TRIES):
            place = self._place(id)
            if place is None:
                return False
            shard, name = place
            read = self._consumer.views[shard].read_claims([name])
            try:
                wanted = operations(shard, name, read[0] if read else None, self._resting(shard, name))
            except NoNode:
                continue
            if wanted is None:
                return False
            error = self._outcome(writer.submit(wanted))
            if error is None:
                return True
            if not isinstance(error, NoNode | NodeExists | BadVersion):
                raise error
        raise ConnectionLost(f"message {id} changes too often to be changed queue={self._paths.root}")

    def _resting(self, shard: str, name: str) -> RestName | None:
        parent = self._paths.shard(shard).rests
        try:
            markers = self._session.children(parent)
        except NoNode:
            return None
        found = [rest for marker in markers if (rest := parsed_rest(marker)) and rest.name == name]
        return found[0] if found else None

    # -- ids ---------------------------------------------------------------------------------------

    def _place(self, id: str) -> tuple[str, str] | None:
        """The shard and the name of the message of this id, if there is one."""
        shard, _, name = id.rpartition("/")
        if shard in self._shards and parsed_name(name) is not None:
            return (shard, name) if self._session.exists(self._paths.shard(shard).message(name)) else None
        try:
            data, stat = self._session.get(self._paths.id(id))
        except NoNode:
            return None
        shard, _, name = data.decode(errors="replace").partition("/")
        if name:
            return shard, name
        return self._searched(id, shard, stat.version)

    def _searched(self, id: str, shard: str, version: int) -> tuple[str, str] | None:
        """Its place was never written down: look for it, and write it down."""
        for name, data in self._all(shard):
            if _frame(data).id == id:
                self._session.multi_async([SetData(self._paths.id(id), f"{shard}/{name}".encode(), version)])
                return shard, name
        return None

    def _all(self, shard: str) -> Iterator[tuple[str, bytes]]:
        """All messages of a shard, about a megabyte at a time."""
        paths = self._paths.shard(shard)
        try:
            names = sorted(self._session.children(paths.messages))
        except NoNode:
            return
        reader = SizedReader(self._session, paths.messages)
        while names:
            answers = reader.read_now(names)
            for name, answer in zip(names, answers, strict=False):
                if isinstance(answer, tuple):
                    yield name, answer[0]
            names = names[len(answers) :]

    def all_messages(self, wanted: Callable[[Message], bool] | None = None) -> Iterator[Message]:
        """All messages that are ``wanted``, in whatever state, shard by shard in their order. What
        cannot be read is left out."""
        for shard in self._shards:
            for name, data in self._all(shard):
                try:
                    message = self._message(shard, name, data)
                except CorruptItem:
                    continue
                if wanted is None or wanted(message):
                    yield message

    def contains(self, wanted: Callable[[Message], bool]) -> bool:
        """Whether there is a message of which ``wanted(message)`` is true."""
        return next(self.all_messages(wanted), None) is not None

    def find(self, wanted: Callable[[Message], bool]) -> Message | None:
        """The first message of which ``wanted(message)`` is true."""
        return next(self.all_messages(wanted), None)

    def pop_where(self, wanted: Callable[[Message], bool], *, lease_s: Seconds | None = None) -> Delivery | None:
        """The best message that is due, that nobody has, and of which ``wanted(message)`` is true."""
        for message in sorted(self.all_messages(wanted), key=lambda one: one.priority):
            if (delivery := self.pop_id(message.id, lease_s=lease_s)) is not None:
                return delivery
        return None

    def clear(self) -> int:
        """Remove all messages, in whatever state, but not the dead letters; returns how many."""
        return sum(self.remove(message.id) for message in list(self.all_messages()))

    def _id_over(self, id: str) -> tuple[Operation, ...]:
        """What goes with a message that is done or dead; ``id`` is ``""`` if nobody gave it one."""
        return (Delete(self._paths.id(id)),) if id else ()

    def _message(self, shard: str, name: str, data: bytes) -> Message:
        frame, parsed = Frame.read(data), parsed_name(name)
        return Message(
            id=frame.id or f"{shard}/{name}",
            payload=frame.payload,
            timeout_s=0.0 if parsed is None else max(0.0, (parsed.due_ms - frame.enqueued_ms) / 1000),
            priority=0 if parsed is None else parsed.priority,
            shard=shard,
            headers=frame.headers,
            group=frame.group,
        )


def _frame(data: bytes) -> Frame:
    try:
        return Frame.read(data)
    except CorruptItem:
        return Frame(b"")


def checked_s(what: str, value: Seconds) -> float:
    """A time in seconds.

    :raises ConfigurationError: it is negative, or not a time.
    """
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not seconds >= 0:
        raise ConfigurationError(f"{what}={value!r}: give 0 or more seconds")
    return float(seconds)
