"""A queue of messages that are worked on at least once: delayed, by priority, by many consumers.

See :class:`DynoQueue`. The layout and the reasons are in ``docs/design/dyno.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

from leaderq.base import clock
from leaderq.base.arguments import (
    MAX_S,
    Seconds,
    at_least,
    in_seconds,
    instance,
    is_number,
    is_text,
    method_problem,
    plain_function,
    require,
    several,
    wanted,
)
from leaderq.base.timeouts import Deadline
from leaderq.dyno import transitions
from leaderq.dyno.bodies import Bodies, BodyStore, MissingBody
from leaderq.dyno.consumer import DynoConsumer
from leaderq.dyno.dead_letters import DynoDeadLetters
from leaderq.dyno.delivery import Delivery, Kept, OnLease, Receipt
from leaderq.dyno.ids import Ids, OnConflict, Push, Pushed
from leaderq.dyno.layout import (
    MAX_DUE_MS,
    MESSAGES,
    DynoPaths,
    MessageName,
    escaped,
    group_of,
    name_prefix,
    parsed_name,
)
from leaderq.dyno.message import (
    DynoMessage,
    Frame,
    frame_of,
    is_wanted,
    wrong_id,
)
from leaderq.dyno.nodes import (
    Leftover,
    QueueNodes,
    ShardFigures,
    apply_all,
    leftovers,
    shard_figures,
    shard_sizes,
)
from leaderq.dyno.shard_view import read_claims
from leaderq.dyno.shards import (
    QueueSettings,
    ShardingStrategy,
    round_robin,
    shard_of,
)
from leaderq.engine.serializers import BYTES, QueueSerializer, serializer_problem
from leaderq.errors import (
    ConfigurationError,
    ConnectionLost,
    CorruptItem,
    LeaderqError,
    NodeExists,
    NoNode,
    QueueFull,
    TooLarge,
)
from leaderq.observability import tracing
from leaderq.threads import Retry
from leaderq.zookeeper import AnyClient, Create, Delete, Operation, SessionState, as_session
from leaderq.zookeeper.paths import name_of, own_path
from leaderq.zookeeper.reading import SizedReader
from leaderq.zookeeper.retrying import ITEM_RETRY
from leaderq.zookeeper.writing.groups import Operations, batched, given_operations
from leaderq.zookeeper.writing.writer import OVERTAKEN, Outcome, outcomes

LETTER_BYTES = 16 * 1024
"""The bytes that a message leaves free in the largest request, to fit into a dead letter too."""
LEAST_LEASE_S = 0.1
"""A lease must outlast the way to the servers and back, or nothing is ever handed out."""
_COUNT_S = 0.2
"""How often a producer counts the messages of a queue that has a limit."""
_TRIES = 20
_AT_A_TIME = 250
_Errors = list[LeaderqError | None]


def _message_problem(given: object) -> str | None:
    if isinstance(given, DynoMessage):
        return None
    return wanted("message", given, False, "a Message, as message(value) of this queue makes")


class DynoQueue:
    """An acknowledged, sharded, delayed, prioritised queue of messages below one znode.

    ``shards``, ``lease_s`` and ``ageing_s`` are stored in the queue's root. A process that gives
    none uses the stored ones, and :meth:`configure` changes them for all. ``shards``: names; those
    that are missing are added. Every consumer serves every shard, as soon as the shard exists.
    ``lease_s``: how long a delivery belongs to its consumer, unless it is extended (60 s).
    ``ageing_s``: see :class:`~leaderq.dyno.index.ShardIndex`. ``strategy``: where a message goes.
    ``retry``: what becomes of messages that fail; the death of a consumer, or its hanging past the
    lease, counts as a failure of its message. ``serializer``: what :meth:`message` and
    :attr:`Delivery.value` use: ``BYTES``, ``TEXT``, ``JSON`` or another. ``body_store``: where
    payloads of more than ``body_bytes`` go; see :class:`BodyStore`.

    *Guarantees:* a message that was pushed is delivered until it is acknowledged, killed, removed,
    or has failed as often as ``retry`` says; it is in exactly one place at any time, whoever dies.
    No message is delivered to another consumer while its lease and its session stand. Among the
    messages of a shard that are due, the one with the best priority is delivered next, and of these
    the one that was pushed first, with any number of consumers. *Not guaranteed:* that a message is
    worked on once: a consumer that hangs past its lease may wake later, and finds out when it
    settles (:class:`StaleLease`). An order between shards.
    """

    def __init__(
        self,
        client: AnyClient,
        root: str,
        *,
        shards: Sequence[str] | None = None,
        strategy: ShardingStrategy | None = None,
        lease_s: Seconds | None = None,
        retry: Retry | None = None,
        serializer: QueueSerializer[Any] = BYTES,
        ageing_s: Seconds | None = None,
        body_store: BodyStore | None = None,
        body_bytes: int = 64 * 1024,
        name: str = "",
        now_ms: Callable[[], float] | None = None,
    ) -> None:
        require(
            instance("retry", retry, Retry | None),
            instance("body_store", body_store, BodyStore | None),
            method_problem("body_store", body_store, "put", "get", "delete")
            if body_store is not None
            else None,
            instance("name", name, str),
            plain_function("strategy", strategy, or_none=True),
            plain_function("now_ms", now_ms, or_none=True),
            at_least("body_bytes", body_bytes, 0, "bytes"),
            serializer_problem(serializer),
        )
        self.root = own_path(root)
        self._session, self._paths = as_session(client), DynoPaths(root)
        self._now_ms = clock.now_ms if now_ms is None else partial(_whole_ms, now_ms)
        self._bodies = Bodies(body_store, body_bytes)
        self._strategy = strategy or round_robin()
        self._nodes = QueueNodes(
            self._session,
            self._paths,
            self._bodies,
            self._now_ms,
            name=name or root.rpartition("/")[2],
            retry=retry or ITEM_RETRY,
            serializer=serializer,
            given_shards=_names(shards),
            given_lease_s=_lease_s(lease_s),
            given_ageing_s=None if ageing_s is None else in_seconds("ageing_s", ageing_s),
        )
        self._counted_s, self._left = -_COUNT_S, 0
        self._ids = Ids(self._nodes)
        self._consumer = DynoConsumer(self._nodes, self._ids)
        self._hand = self._consumer.hand

    def __enter__(self) -> DynoQueue:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self, timeout_s: float = 5.0) -> bool:
        """Leave the queue and release unsettled messages; returns whether everything was written
        within ``timeout_s`` seconds.
        """
        deadline = Deadline(in_seconds("timeout_s", timeout_s))
        is_clean = self._consumer.close(deadline)
        return self._nodes.close_writer(deadline.left_s(MAX_S)) and is_clean

    @property
    def lease_s(self) -> float:
        """How many seconds a delivery belongs to its consumer, unless its lease is extended."""
        return self._nodes.lease_s

    def configure(
        self,
        *,
        shards: Sequence[str] | None = None,
        lease_s: Seconds | None = None,
        ageing_s: Seconds | None = None,
        max_messages: int | None = None,
    ) -> QueueSettings:
        """Change the settings that are given, for all processes while they run; returns all
        settings.

        ``shards``: the shards to push to from now on. Other shards are served until they are empty,
        and then vanish; a process that is started with such a shard brings it back. ``ageing_s``: 0
        makes priorities strict. ``max_messages``: a push is refused (``QueueFull``) while the queue
        has this many messages; 0: no limit; several producers may exceed the limit a little. A
        process that was given values of its own uses these instead.

        *Guarantees:* a queue that grows keeps the order in its groups. *Not guaranteed:* that order
        across the change, if shards are taken away.
        """
        names = _names(shards)
        require(at_least("max_messages", max_messages, 0, or_none=""))
        changes: dict[str, Any] = {"lease_s": _lease_s(lease_s), "max_messages": max_messages}
        changes = {name: value for name, value in changes.items() if value is not None}
        if ageing_s is not None:
            changes["ageing_s"] = in_seconds("ageing_s", ageing_s) or None
        return self._nodes.change(
            lambda former: replace(former.with_shards(names) if names else former, **changes)
        )

    @property
    def is_over(self) -> bool:
        """Whether the queue can never be used again, because its session was closed."""
        return self._session.state is SessionState.CLOSED

    def message(self, value: Any, **fields: Any) -> DynoMessage:
        """Return a message with this value as its payload, written by the ``serializer``.
        ``fields``: other fields of :class:`DynoMessage`. Raises what the serializer raises.
        """
        return DynoMessage(payload=self._nodes.serializer.serialize(value), **fields)

    def push(
        self, messages: DynoMessage | Iterable[DynoMessage], *, fence: Sequence[Operation] = ()
    ) -> list[str]:
        """Put these messages into the queue; returns their ids (``""``: the queue chose the id, and
        the answer was lost).

        ``fence``: operations that are added to each push and must succeed, such as those of a
        ``Term``.

        *Guarantees:* each message is stored once, whatever happens to the answers. All pushes are
        tried; if some fail, the error of the first is raised.

        :raises Duplicate: a message with that id is in the queue; see :meth:`push_unique`.
        """
        out: list[str] = []
        for outcome in self.push_each(messages, fence=fence):
            if isinstance(outcome, Exception):
                raise outcome
            out.append(outcome)
        return out

    def push_each(
        self, messages: DynoMessage | Iterable[DynoMessage], *, fence: Sequence[Operation] = ()
    ) -> list[str | Exception]:
        """As :meth:`push`, but returns for each message its id, or the error that it met, whatever
        that is.
        """
        if isinstance(messages, DynoMessage):
            messages = [messages]
        given = list(several("messages", messages, "messages"))
        fence = given_operations("fence", fence)
        writer = self._nodes.writer()
        prepared: list[Push | Exception] = []
        room = self._room(len(given))
        for one in given:
            try:
                prepared.append(self._prepared(one) if room else self._full())
                room -= isinstance(prepared[-1], Push)
            except Exception as exc:  # noqa: BLE001 - of the strategy's, or the store's
                prepared.append(exc)
        pushes = [one for one in prepared if isinstance(one, Push)]
        groups = [(*fence, push.create, *self._id_of(push)) for push in pushes]
        found = outcomes(writer, groups, self._paths.root)
        pushed = (self._pushed(one, fence, said) for one, said in zip(pushes, found, strict=True))
        told = [next(pushed) if isinstance(one, Push) else one for one in prepared]
        self._nodes.figures.add("put", sum(isinstance(one, str) for one in told))
        return told

    def push_unique(
        self,
        message: DynoMessage,
        on_conflict: OnConflict = OnConflict.RAISE,
        *,
        fence: Sequence[Operation] = (),
    ) -> Pushed:
        """Push a message with an id of yours, or do what ``on_conflict`` says if another message
        has the id; returns which message has it now.

        *Guarantees:* however many callers there are, and whatever consumers do, one message has the
        id; a replaced message vanishes as the new one appears.

        :raises Duplicate: nothing was pushed; the error names the other message.
        """
        require(
            _message_problem(message),
            instance("on_conflict", on_conflict, OnConflict),
        )
        if not message.id:
            raise ConfigurationError("a message can be unique by an id of yours only")
        fence = given_operations("fence", fence)
        if not self._room(1):
            raise self._full()
        pushed = self._ids.resolve(self._prepared(message), fence, on_conflict)
        self._nodes.figures.add("put", pushed.is_new)
        return pushed

    def push_operations(self, message: DynoMessage) -> list[Operation]:
        """Return the operations that push a message, for a multi of your own: all of it is written,
        or nothing. The first operation's result is the path of the message. If an id of yours is
        taken, the multi is refused (``NodeExists``).
        """
        self._nodes.writer()  # so that the znodes above it are there
        push = self._prepared(message)
        return [push.create, *self._id_of(push)]

    def pause(self) -> bool:
        """Let nobody begin a message until :meth:`resume`; returns ``False`` if the queue was
        paused before. Messages in flight are finished. Consumers of older versions do not know of a
        pause.
        """
        return self._paused(True)

    def resume(self) -> bool:
        """End a pause; returns whether the queue was paused."""
        return self._paused(False)

    @property
    def is_paused(self) -> bool:
        return self._nodes.settings().is_paused

    def _paused(self, is_paused: bool) -> bool:
        was_paused = self._nodes.open().is_paused
        self._nodes.change(lambda former: replace(former, is_paused=is_paused))
        return was_paused is not is_paused

    def ensure(self, message: DynoMessage) -> bool:
        """Push the message unless its id is in the queue; returns whether it was pushed."""
        return self.push_unique(message, OnConflict.DROP).is_new

    def _full(self) -> QueueFull:
        most = self._nodes.settings().max_messages
        return QueueFull(self.root, capacity=most, waited_s=0.0)

    def _room(self, wanted: int) -> int:
        """For how many of ``wanted`` messages there is room. Messages are counted once in
        a while.
        """
        if not (most := self._nodes.open().max_messages):
            return wanted
        if (now_s := clock.now_s()) >= self._counted_s + _COUNT_S:
            self._counted_s = now_s
            sizes = shard_sizes(self._nodes).values()
            self._left = max(0, most - sum(one["messages"] for one in sizes))
        granted = min(wanted, self._left)
        self._left -= granted
        return granted

    def _id_of(self, push: Push) -> Operations:
        id = push.frame.id
        return (Create(self._paths.id(id), push.shard.encode()),) if id else ()

    def _prepared(self, one: DynoMessage) -> Push:
        require(_message_problem(one))
        if one.id:  # that of a message that was read may be a place, longer than an id may be
            require(wrong_id(one.id))
        shard, now_ms = shard_of(one, self._nodes.open(), self._strategy), self._now_ms()
        due_ms = now_ms + int(in_seconds("timeout_s", one.timeout_s) * 1000)
        unique_s, lives_s = in_seconds("unique_s", one.unique_s), one.expires_s
        expires_ms = 0 if lives_s is None else now_ms + int(in_seconds("", lives_s) * 1000)
        headers = tracing.sent_message(self.root, one.headers)
        payload, body = self._bodies.put(one.payload)
        frame = Frame(
            payload, one.id, now_ms, headers, one.group, body, one.unique, unique_s, expires_ms
        )
        try:
            data = self._packed(frame)
        except BaseException:
            self._bodies.drop([body])
            raise
        prefix = name_prefix(one.priority, due_ms, group_of(one.group))
        path = self._paths.shard(shard).message(prefix)
        return Push(shard, frame, Create(path, data, sequential=True))

    def _packed(self, frame: Frame) -> bytes:
        """The bytes of a frame; raises ``TooLarge`` if they would not fit into a dead letter."""
        data, limit = frame.packed(), self._session.max_request_bytes - LETTER_BYTES
        if len(data) > limit:
            what = f"message {frame.id!r}" if frame.id else "message without an id"
            raise TooLarge(what, size=len(data), limit=limit)
        return data

    def _pushed(self, one: Push, fence: Sequence[Operation], said: Outcome) -> str | LeaderqError:
        id, (results, error) = one.frame.id, said
        if isinstance(error, NodeExists) and id and error.path == self._paths.id(id):
            try:
                return self._ids.resolve(one, fence, OnConflict.RAISE).id
            except LeaderqError as exc:
                return exc
        if error is not None:
            if not isinstance(error, ConnectionLost):  # otherwise it may be there
                self._bodies.drop([one.frame.body])
            return error
        if results is None:  # it is there, and the answer was lost
            return id
        if not id:
            return f"{one.shard}/{name_of(results[-1])}"
        self._ids.note_place(one.frame, one.shard, name_of(results[-2]))
        return id

    def pop(
        self,
        most: int = 1,
        timeout_s: Seconds | None = 0.0,
        *,
        least: int = 1,
        lease_s: Seconds | None = None,
    ) -> list[Delivery]:
        """Return the next messages, leased to this consumer: from its own shard first, then the
        others.

        Returns as soon as there are ``least`` messages. It returns fewer when ``timeout_s`` seconds
        have passed (``None``: never), or a third of the first message's lease. Wakes within
        milliseconds of a message's arrival or due time.

        :raises ConnectionLost: there was no connection.
        """
        require(
            instance("most", most, int) or at_least("most", most, 1),
            instance("least", least, int) or at_least("least", least, 1),
        )
        wait_s = None if timeout_s is None else in_seconds("timeout_s", timeout_s)
        return self._consumer.pop(most, wait_s, min(most, least), _lease_s(lease_s))

    def pop_id(self, id: str, *, lease_s: Seconds | None = None) -> Delivery | None:
        """Return the message with this id, leased to this consumer, if it is due and nobody has it;
        ``None`` otherwise.
        """
        place = self._ids.place(id)
        return None if place is None else self._consumer.claim_one(*place, _lease_s(lease_s))

    def redeem(self, receipt: Receipt | str) -> Delivery:
        """Return the delivery that a receipt names, so that it can be settled or extended from
        here. Its former owner cannot settle it after that.

        :raises StaleLease: the receipt is not valid any more.
        """
        require(instance("receipt", receipt, Receipt | str))
        named = Receipt.parsed(receipt) if isinstance(receipt, str) else receipt
        return self._consumer.redeem(named)

    def __iter__(self) -> Iterator[Delivery]:
        """Iterate for ever over the messages, in the order in which they are popped."""
        while True:
            yield from self.pop(1, None)

    def ack(self, deliveries: Iterable[Delivery]) -> list[LeaderqError | None]:
        """Acknowledge many deliveries; returns the error of each, or ``None``."""
        return self._hand.acknowledge(self._checked(deliveries))

    def keep(
        self,
        deliveries: Iterable[Delivery],
        *,
        most_s: Seconds | None = None,
        ending: OnLease | None = None,
        ending_s: Seconds = 5.0,
        extended: OnLease | None = None,
    ) -> None:
        """Extend these leases before they end, until they are settled, passed to :meth:`let_go`, or
        ``most_s`` seconds have passed (``None``: for ever; 0: never).

        ``ending(delivery)`` is called once, on a thread of its own, ``ending_s`` seconds before a
        lease that is not extended any more ends; it is not called if the message was settled or
        lost before. ``extended(delivery)`` is called after each extension, and must not block.
        """
        require(
            plain_function("ending", ending, or_none=True),
            plain_function("extended", extended, or_none=True),
        )
        until_s = math.inf if most_s is None else clock.now_s() + in_seconds("most_s", most_s)
        kept = Kept(until_s, ending, in_seconds("ending_s", ending_s), extended)
        self._hand.keep(self._checked(deliveries), kept)

    def let_go(self, deliveries: Iterable[Delivery]) -> None:
        """Extend these leases no more."""
        self._hand.let_go(self._checked(deliveries))

    def take_out(self, places: Iterable[str]) -> list[Delivery]:
        """Lease those of the messages at these places that nobody has, due or not, even during a
        pause. Acknowledge them, or pass them to :meth:`put_back`. Of a group, only the first
        message can be taken.
        """
        found: list[Delivery] = []
        names: dict[str, list[str]] = {}
        for place in dict.fromkeys(places):
            shard, _, name = place.rpartition("/")
            names.setdefault(shard, []).append(name)
        for shard, of_one in names.items():
            found += self._consumer.take_out(shard, of_one)
        return found

    def put_back(self, deliveries: Iterable[Delivery]) -> None:
        """Give back messages that :meth:`take_out` returned, as they were: with their due times,
        and without counting a delivery. When the queue is closed, this happens to those that are
        left.
        """
        self._hand.release(self._checked(deliveries), self._consumer.membership().writer)

    def _checked(self, deliveries: Iterable[Delivery]) -> list[Delivery]:
        given: list[Any] = list(several("deliveries", deliveries, "deliveries"))
        wrong = [one for one in given if not isinstance(one, Delivery)]
        require(*(instance("delivery", one, Delivery) for one in wrong))
        if [one for one in given if one.hand is not self._hand]:
            raise ConfigurationError("a delivery can be settled by the queue that popped it only")
        return given

    @property
    def dead_letters(self) -> DynoDeadLetters:
        """The dead letters: messages that are not delivered any more."""
        return DynoDeadLetters(self._nodes)

    def get(self, id: str) -> DynoMessage | None:
        """Return the message with this id, in whatever state; ``None`` if there is none.

        :raises CorruptItem: the message cannot be read.
        :raises MissingBody: its payload is not in the store.
        """
        place = self._ids.place(id)
        if place is None:
            return None
        try:
            data, _ = self._session.get(self._paths.shard(place[0]).message(place[1]))
        except NoNode:
            return None
        return self._message(place[0], place[1], data)

    def peek(self, most: int = 1) -> list[DynoMessage]:
        """Return the messages that would be delivered next, without taking them."""
        require(at_least("most", most, 0))
        out: list[DynoMessage] = []
        for shard in self._nodes.shards():
            view = self._nodes.view(shard)
            view.refresh()
            for *_, name in islice(view.upcoming(), most - len(out)):
                with suppress(NoNode, CorruptItem, MissingBody):
                    data, _ = self._session.get(view.paths.message(name))
                    out.append(self._message(shard, name, data))
        return out

    def size(self) -> int:
        """How many messages wait or rest. Messages in flight are not counted: nothing is left when
        ``messages`` of each of :meth:`shard_sizes` is 0.
        """
        return sum(one["messages"] - one["leased"] for one in self.shard_sizes().values())

    def shard_sizes(self) -> dict[str, dict[str, int]]:
        """Return the sizes of each shard, as the servers have them: ``messages`` (all),
        ``resting``, ``leased``, ``dead``.
        """
        return shard_sizes(self._nodes)

    def figures(self) -> dict[str, ShardFigures]:
        """Return the figures of each shard, as this consumer sees them."""
        return shard_figures(self._nodes)

    def remove(self, id: str) -> bool:
        """Delete a message in any state; returns whether it existed. A consumer that has it finds
        out when it settles the message.
        """
        return self._end(id)

    def finish(self, id: str) -> bool:
        """Delete a message that nobody has in flight, as if it had been acknowledged: its id stays
        reserved for its ``unique_s``. Returns whether a message was deleted.
        """
        return self._end(id, held_too=False, done_ms=self._now_ms())

    def _end(self, id: str, *, held_too: bool = True, done_ms: int | None = None) -> bool:
        def end(shard: str, name: str) -> _Errors:
            data, _ = self._session.get(self._paths.shard(shard).message(name))
            return self._ended(shard, {name: frame_of(data)}, held_too=held_too, done_ms=done_ms)

        return self._change(id, end)

    def _ended(
        self,
        shard: str,
        frames: Mapping[str, Frame],
        *,
        held_too: bool,
        done_ms: int | None = None,
    ) -> _Errors:
        """End these messages, except those in flight unless ``held_too``; return the error of each
        that was to end.
        """
        claims = read_claims(self._session, self._paths.shard(shard), list(frames))
        groups: list[Operations] = []
        bodies: list[str | None] = []
        for name, frame in frames.items():
            choice, state = claims[name]
            if held_too or not choice.is_held:
                end = transitions.end(self._paths, shard, choice, frame, state, done_ms=done_ms)
                groups.append(end)
                bodies.append(frame.body)
        errors = apply_all(self._nodes.writer(), groups, self._paths.root)
        self._bodies.drop(body for body, error in zip(bodies, errors, strict=True) if error is None)
        return errors

    def set_timeout(self, id: str, timeout_s: Seconds) -> bool:
        """Make a message due in ``timeout_s`` seconds, if nobody has it in flight. It keeps its
        priority and its place among equals. Returns whether a message was changed.
        """
        seconds = in_seconds("timeout_s", timeout_s)

        def rest(shard: str, name: str) -> _Errors:
            paths = self._paths.shard(shard)
            (_, version, marker), state = read_claims(self._session, paths, [name])[name]
            state = state._replace(until_ms=self._now_ms() + int(seconds * 1000))
            if version is None:
                later = transitions.first_rest(paths, name, state)
            elif marker is None:
                return []  # in flight
            else:
                later = transitions.rest(paths, name, version, state)
                later = (Delete(paths.rest(marker)), *later)
            return apply_all(self._nodes.writer(), [later], self._paths.root)

        return self._change(id, rest)

    def _change(self, id: str, write: Callable[[str, str], _Errors]) -> bool:
        """Let ``write(shard, name)`` write what follows from the message's state, and try again if
        the state changed meanwhile. Returns whether anything was written.
        """
        for _ in range(_TRIES):
            if (place := self._ids.place(id)) is None:
                return False
            try:
                errors = write(*place)
            except NoNode:
                continue
            if (error := next(iter(errors), None)) is None:
                return bool(errors)
            if not isinstance(error, OVERTAKEN):
                raise error
        raise ConnectionLost(f"message changes too often id={id} queue={self._paths.root}")

    def all_messages(
        self, wanted: Callable[[DynoMessage], bool] | None = None
    ) -> Iterator[DynoMessage]:
        """Yield all messages that are ``wanted`` (all by default), in any state, shard by shard, by
        name. Unreadable messages are left out.
        """
        for shard in self._nodes.shards():
            for name, data in self._nodes.messages(shard):
                message = self._readable(shard, name, data)
                if message is not None and is_wanted(message, wanted):
                    yield message

    def find(self, wanted: Callable[[DynoMessage], bool]) -> DynoMessage | None:
        """Return the first message for which ``wanted(message)`` is true; ``None`` without one."""
        return next(self.all_messages(wanted), None)

    def pop_where(
        self, wanted: Callable[[DynoMessage], bool], *, lease_s: Seconds | None = None
    ) -> Delivery | None:
        """Find the best message that is ``wanted``, due, and held by nobody, and lease it to this
        consumer; ``None`` without one. Of equally good messages, the one pushed first is taken.
        Reads all messages that go before it.
        """
        lease = _lease_s(lease_s)
        for places in batched(self._consumer.in_order(), _AT_A_TIME):
            paths = [f"{escaped(shard)}/{MESSAGES}/{name}" for shard, name in places]
            answers = SizedReader(self._session, self._paths.shards).read_all(paths)
            for (shard, name), (_, answer) in zip(places, answers, strict=True):
                if not isinstance(answer, tuple):
                    continue
                message = self._readable(shard, name, answer[0])
                if message is None or not is_wanted(message, wanted):
                    continue
                if (one := self._consumer.claim_one(shard, name, lease)) is not None:
                    return one
        return None

    def clear(self, *, held_too: bool = True, older_s: Seconds | None = None) -> int:
        """Remove all messages, readable or not, except dead letters; returns their number. Messages
        in flight are removed only if ``held_too``. Messages that change or arrive meanwhile may
        stay. ``older_s``: remove only readable messages that were first pushed more than so many
        seconds ago.
        """
        count, before_ms = 0, None
        if older_s is not None:
            before_ms = self._now_ms() - int(in_seconds("older_s", older_s) * 1000)
        for shard in self._nodes.shards():
            for batch in batched(self._nodes.messages(shard), _AT_A_TIME):
                frames = {name: frame_of(data) for name, data in batch}
                if before_ms is not None:
                    old = [one for one in frames.items() if 0 < one[1].enqueued_ms < before_ms]
                    frames = dict(old)
                count += self._ended(shard, frames, held_too=held_too).count(None)
        return count

    def find_stale(self, *, repair: bool = False) -> list[Leftover]:
        """Return claims, markers and ids whose message does not exist. The queue itself leaves
        none. ``repair`` deletes those found, if they are still useless then. Reads all ids, and the
        whole shard of an id whose message is not at its noted place.
        """
        found = list(leftovers(self._nodes, self._ids.place))
        if repair:
            apply_all(self._nodes.writer(), [one.operations for one in found], self._paths.root)
        return found

    def sweep_bodies(self, *, older_s: Seconds = 24 * 3600.0) -> int:
        """Delete the bodies older than ``older_s`` seconds to which no message and no dead letter
        refers; returns their number. ``older_s`` must be longer than any push may take. Reads all
        messages; let one process do this that serves all shards.
        """
        return self._bodies.sweep(in_seconds("older_s", older_s), self._used_bodies())

    def _used_bodies(self) -> Iterator[str | None]:
        # The dead are read last: a message that dies meanwhile was read among the messages, or is
        # there already.
        for shard in self._nodes.shards():
            yield from (frame_of(data).body for _, data in self._nodes.messages(shard))
        yield from (frame_of(letter.data).body for letter in self.dead_letters.browse())
        # Letters sent back meanwhile are among the messages again.
        for shard in self._nodes.shards():
            yield from (frame_of(data).body for _, data in self._nodes.messages(shard))

    def _readable(self, shard: str, name: str, data: bytes) -> DynoMessage | None:
        try:
            return self._message(shard, name, data)
        except (CorruptItem, MissingBody):
            return None

    def _message(self, shard: str, name: str, data: bytes) -> DynoMessage:
        frame, said = Frame.read(data), parsed_name(name) or MessageName(0, 0, "", 0)
        payload = self._bodies.get(frame.payload, frame.body)
        try:
            return DynoMessage(
                id=frame.id or f"{shard}/{name}",
                payload=payload,
                timeout_s=min(MAX_S, max(0.0, (said.due_ms - frame.enqueued_ms) / 1000)),
                priority=said.priority,
                shard=shard,
                headers=frame.headers,
                group=frame.group,
                unique=frame.unique,
                unique_s=frame.unique_s,
                expires_s=min(MAX_S, max(0.0, (frame.expires_ms - frame.enqueued_ms) / 1000))
                if frame.expires_ms
                else None,
                place=f"{shard}/{name}",
            )
        except ConfigurationError as exc:  # not what we would have pushed
            raise CorruptItem(f"message {shard}/{name} is not one: {exc}") from exc


def _whole_ms(now_ms: Callable[[], float]) -> int:
    """The time by the user's calendar: names hold it, and nobody would find one with a fraction."""
    at_ms = now_ms()
    is_time = is_number(at_ms) and 0 <= at_ms <= MAX_DUE_MS
    require(wanted("now_ms()", at_ms, is_time, "milliseconds since 1970"))
    return int(at_ms)


def _names(shards: Sequence[str] | None) -> tuple[str, ...]:
    """The shards that were given; none if the choice is left to the queue."""
    given: Any = (shards,) if isinstance(shards, str) else shards or ()
    names = tuple(given) if isinstance(given, Iterable) else ()
    are_texts = all(map(is_text, names))
    is_list = shards is None or (are_texts and 0 < len(names) == len(set(names)))
    require(
        wanted("shards", shards, is_list, "one or more different names"),
        *(wrong_id(name) for name in names if are_texts),
    )
    return names


def _lease_s(seconds: Seconds | None) -> float | None:
    if seconds is None:
        return None
    lease_s = in_seconds("lease_s", seconds)
    require(at_least("lease_s", lease_s, LEAST_LEASE_S, "seconds"))
    return lease_s
