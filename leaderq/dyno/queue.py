"""Messages that must be worked on at least once: later, by priority, by many consumers.

See :class:`DynoQueue`. The layout and the reasons are in ``docs/design/dyno.md``.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple

from leaderq.clock import now_ms
from leaderq.dyno import transitions
from leaderq.dyno.bodies import Bodies, BodyStore, MissingBody
from leaderq.dyno.consumer import ConsumerOptions, DynoConsumer
from leaderq.dyno.dead_letters import DynoDeadLetters
from leaderq.dyno.delivery import Delivery, Receipt
from leaderq.dyno.ids import Ids, OnConflict, Pushed
from leaderq.dyno.keeper import Ending
from leaderq.dyno.layout import DynoPaths, group_of, name_prefix, parsed_name
from leaderq.dyno.message import (
    MAX_S,
    DeliveryState,
    DynoMessage,
    Fields,
    Frame,
    Seconds,
    checked_s,
    checked_type,
    frame_of,
)
from leaderq.dyno.shard_view import ClaimRead, children_of, read_claims
from leaderq.dyno.shards import FixedShards, ShardingStrategy, ShardSupplier, round_robin, shard_of
from leaderq.dyno.stale import Leftover, leftovers
from leaderq.dyno.transitions import Operations
from leaderq.dyno.writes import Outcome, apply_all, outcomes
from leaderq.errors import (
    BadVersion,
    ConfigurationError,
    ConnectionLost,
    CorruptItem,
    LeaderqError,
    NodeExists,
    NoNode,
    TooLarge,
)
from leaderq.reading import SizedReader
from leaderq.retrying import RetryPolicy
from leaderq.writing import SequencedWriter
from leaderq.writing.groups import batched
from leaderq.zookeeper import AnyClient, Create, Delete, Operation, SessionState, as_session
from leaderq.zookeeper.paths import name_of, validated_path

LETTER_BYTES = 16 * 1024
"""What a message leaves of the largest request, so that it fits into a dead letter too."""
_TRIES = 20
_AT_A_TIME = 250


@dataclass(frozen=True, slots=True)
class ShardFigures:
    """``due``: may be delivered now; ``delayed``: later; ``leased``: in flight; ``oldest_due_s``:
    how long the oldest of those due has been so.
    """

    due: int
    delayed: int
    leased: int
    dead: int
    oldest_due_s: float | None


class _Push(NamedTuple):
    shard: str
    frame: Frame
    create: Create

    def id_operations(self, paths: DynoPaths) -> Operations:
        return (Create(paths.id(self.frame.id), self.shard.encode()),) if self.frame.id else ()


class DynoQueue:
    """An acknowledged, sharded, delayed, prioritised queue of messages below one znode.

    ``lease_s``: how long a delivery belongs to its consumer, unless it is extended. ``shards``: a
    :class:`ShardSupplier`, or their names. ``strategy``: where a message goes. ``retry``: what
    becomes of messages that fail; of one that is leased when its consumer dies, or hangs past the
    lease, that counts as a failure. ``ageing_s``: see :class:`~leaderq.dyno.index.ShardIndex`.
    ``body_store``: where payloads of more than ``body_bytes`` go; see :class:`BodyStore`.

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
        ageing_s: Seconds | None = None,
        body_store: BodyStore | None = None,
        body_bytes: int = 64 * 1024,
        name: str = "",
        now_ms: Callable[[], int] = now_ms,
    ) -> None:
        checked_type("retry", retry, RetryPolicy | None)
        checked_type("body_store", body_store, BodyStore | None)
        names = (shards,) if isinstance(shards, str) else shards
        supplier = names if isinstance(names, ShardSupplier) else FixedShards(*names)
        self.root = root
        self._session = as_session(client)
        if validated_path(root) == "/":  # what is ours could not be told from what is the user's
            raise ConfigurationError("znode path '/' is everybody's: give the queue one of its own")
        self._paths = DynoPaths(root)
        self._shards = tuple(supplier.shards())
        self._strategy = strategy or round_robin()
        self._now_ms = now_ms
        self.lease_s = checked_s("lease_s", lease_s)
        self._bodies = Bodies(body_store, body_bytes)
        self._ids = Ids(self._session, self._paths, self._shards, self._all)
        self._pushes: SequencedWriter | None = None
        self._opening = threading.Lock()
        name = name or root.rpartition("/")[2]
        current = supplier.current_shard()
        ageing = None if ageing_s is None else checked_s("ageing_s", ageing_s)
        options = ConsumerOptions(
            name, current, self.lease_s, retry or RetryPolicy(), ageing, now_ms
        )
        self._consumer = DynoConsumer(
            self._session, self._paths, self._shards, options, self._ids, self._bodies
        )

    def __enter__(self) -> DynoQueue:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, _: TracebackType | None
    ) -> None:
        self.close()

    def close(self, timeout_s: float = 5.0) -> bool:
        """Leave; what is leased here and not settled is released. Returns whether all was written
        in ``timeout_s`` seconds."""
        is_clean = self._consumer.close(timeout_s)
        with self._opening:
            return (self._pushes is None or self._pushes.close(timeout_s)) and is_clean

    @property
    def is_over(self) -> bool:
        """Whether nothing will ever come of it any more: its session was closed."""
        return self._session.state is SessionState.CLOSED

    # -- pushing -----------------------------------------------------------------------------------

    def push(
        self, messages: DynoMessage | Iterable[DynoMessage], *, fence: Sequence[Operation] = ()
    ) -> list[str]:
        """Put these into the queue; returns their ids (``""``: not yours, and the answer was lost).

        ``fence``: operations that must hold for each, such as those of a ``Term``.

        *Guarantees:* each is there once, whatever happens to the answers. All are tried; if some
        fail, the error tells of the first.

        :raises Duplicate: a message of that id is in the queue; see :meth:`push_unique`.
        """
        out: list[str] = []
        for outcome in self.push_each(messages, fence=fence):
            if isinstance(outcome, LeaderqError):
                raise outcome
            out.append(outcome)
        return out

    def push_each(
        self, messages: DynoMessage | Iterable[DynoMessage], *, fence: Sequence[Operation] = ()
    ) -> list[str | LeaderqError]:
        """As :meth:`push`; returns for each its id, or its error in its place."""
        given = [messages] if isinstance(messages, DynoMessage) else list(messages)
        prepared: list[_Push | LeaderqError] = []
        for one in given:
            try:
                prepared.append(self._prepared(one))
            except (ConfigurationError, TooLarge) as exc:
                prepared.append(exc)
        pushes = [one for one in prepared if isinstance(one, _Push)]
        groups = [(*fence, one.create, *one.id_operations(self._paths)) for one in pushes]
        found = outcomes(self._writer(), groups, self._paths.root)
        pushed = (self._pushed(one, fence, said) for one, said in zip(pushes, found, strict=True))
        return [next(pushed) if isinstance(one, _Push) else one for one in prepared]

    def push_unique(
        self,
        message: DynoMessage,
        on_conflict: OnConflict = OnConflict.RAISE,
        *,
        fence: Sequence[Operation] = (),
    ) -> Pushed:
        """Push a message with an id of yours, or do what ``on_conflict`` says if the id is
        another's; returns which message has the id now.

        *Guarantees:* of any number of callers, and whatever consumers do, one message has the id;
        the one that is replaced vanishes as the new one appears.

        :raises Duplicate: nothing was pushed; it names the other message.
        """
        if not message.id:
            raise ConfigurationError("a message can be unique by an id of yours only")
        return self._resolved(self._prepared(message), fence, on_conflict)

    def _resolved(self, one: _Push, fence: Sequence[Operation], on_conflict: OnConflict) -> Pushed:
        try:
            pushed, former = self._ids.resolve(
                one.frame.id,
                (*fence, one.create),
                one.shard,
                on_conflict,
                self._now_ms(),
                self._writer(),
            )
        except LeaderqError as exc:
            if not isinstance(exc, ConnectionLost):  # else it may be there
                self._bodies.drop([one.frame.body])
            raise
        self._bodies.drop(
            [one.frame.body if not pushed.is_new else None if former is None else former.body]
        )
        return pushed

    def ensure(self, message: DynoMessage) -> bool:
        """Push it, unless a message of its id is in the queue; returns whether it was pushed. Of
        any number of callers one pushes.
        """
        return self.push_unique(message, OnConflict.DROP).is_new

    def _prepared(self, message: DynoMessage) -> _Push:
        checked_type("message", message, DynoMessage)
        shard = shard_of(message, self._shards, self._strategy)
        now_ms = self._now_ms()
        due_ms = now_ms + int(checked_s("timeout_s", message.timeout_s) * 1000)
        payload, body = self._bodies.put(message.payload)
        unique_s = checked_s("unique_s", message.unique_s)
        frame = Frame(
            payload,
            message.id,
            now_ms,
            message.headers,
            message.group,
            body,
            message.unique,
            unique_s,
        )
        data = frame.packed()
        if len(data) > (limit := self._session.max_request_bytes - LETTER_BYTES):
            raise TooLarge(
                f"message {message.id or len(message.payload)!r}", size=len(data), limit=limit
            )
        prefix = name_prefix(message.priority, due_ms, group_of(message.group))
        return _Push(
            shard, frame, Create(self._paths.shard(shard).message(prefix), data, sequential=True)
        )

    def _pushed(self, one: _Push, fence: Sequence[Operation], said: Outcome) -> str | LeaderqError:
        id, (results, error) = one.frame.id, said
        if isinstance(error, NodeExists) and id and error.path == self._paths.id(id):
            try:
                return self._resolved(one, fence, OnConflict.RAISE).id
            except LeaderqError as exc:
                return exc
        if error is not None:
            if not isinstance(error, ConnectionLost):  # else it may be there
                self._bodies.drop([one.frame.body])
            return error
        if results is None:  # it is there, and the answer was lost
            return id
        if not id:
            return f"{one.shard}/{name_of(results[-1])}"
        self._ids.note_place(id, one.shard, name_of(results[-2]))
        return id

    def _writer(self) -> SequencedWriter:
        self._consumer.check_open()
        with self._opening:
            if self._pushes is None:
                writer = SequencedWriter(self._session, f"{self._paths.pushes}/{uuid.uuid4().hex}")
                writer.open()
                for shard in self._shards:
                    for parent in self._paths.shard(shard).parents:
                        self._session.ensure_path(parent)
                self._session.ensure_path(self._paths.ids)
                self._pushes = writer
            return self._pushes

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
        checked_type("most", most, int)
        if most < 1:
            raise ConfigurationError(f"most={most!r}: give 1 or more")
        wait_s = None if timeout_s is None else checked_s("timeout_s", timeout_s)
        lease = self.lease_s if lease_s is None else checked_s("lease_s", lease_s)
        return self._consumer.pop(most, wait_s, min(most, least or most), lease)

    def pop_id(self, id: str, *, lease_s: Seconds | None = None) -> Delivery | None:
        """This message, if it is due and nobody has it."""
        place = self._ids.place(id)
        lease = self.lease_s if lease_s is None else checked_s("lease_s", lease_s)
        return None if place is None else self._consumer.claim_one(*place, lease)

    def redeem(self, receipt: Receipt | str) -> Delivery:
        """The delivery that a receipt names, to be settled or extended from here; whoever was given
        it first cannot settle it after that.

        :raises StaleLease: it is not valid any more.
        """
        return self._consumer.redeem(
            Receipt.parsed(receipt) if isinstance(receipt, str) else receipt
        )

    def __iter__(self) -> Iterator[Delivery]:
        """One message after another, for ever, as they come."""
        while True:
            yield from self.pop(1, None)

    def ack(self, deliveries: Iterable[Delivery]) -> list[LeaderqError | None]:
        """Acknowledge many; returns for each its error, or ``None``."""
        return self._consumer.acknowledge(list(deliveries))

    def keep(
        self,
        deliveries: Iterable[Delivery],
        *,
        most_s: Seconds | None = None,
        ending: Ending | None = None,
        ending_s: Seconds = 5.0,
    ) -> None:
        """Extend these leases before they end, until they are settled, let go, or ``most_s``
        seconds have passed (``None``: for ever; 0: never).

        ``ending(delivery)`` is called once, on a thread of its own, ``ending_s`` seconds before a
        lease that is not extended any more ends; not if the message is settled, or lost, before.
        """
        longest_s = None if most_s is None else checked_s("most_s", most_s)
        self._consumer.keeper.keep(deliveries, longest_s, ending, checked_s("ending_s", ending_s))

    def let_go(self, deliveries: Iterable[Delivery]) -> None:
        """Extend these leases no more."""
        self._consumer.keeper.let_go(deliveries)

    @property
    def dead_letters(self) -> DynoDeadLetters:
        """What is not delivered any more."""
        return DynoDeadLetters(
            self._session, self._paths, self._shards, self._apply, self._bodies, self._now_ms
        )

    def process_unacks(self) -> int:
        """Look now for leases that are over, in all shards; returns how many were found. A thread
        does this once a second."""
        self._consumer.membership()
        return self._consumer.look_at_leases()

    # -- looking -----------------------------------------------------------------------------------

    def get(self, id: str) -> DynoMessage | None:
        """The message of this id, in whatever state; ``None`` if there is none.

        :raises CorruptItem: it cannot be read.
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
        """The messages that would be delivered next; they stay where they are."""
        out: list[DynoMessage] = []
        now_ms = self._now_ms()
        for shard in self._shards:
            view = self._consumer.views[shard]
            view.refresh()
            with view.lock:
                names = view.index.peek(most - len(out), now_ms)
            for name in names:
                with suppress(NoNode, CorruptItem, MissingBody):
                    data, _ = self._session.get(view.paths.message(name))
                    out.append(self._message(shard, name, data))
        return out

    def size(self) -> int:
        """The messages that wait or rest: those in flight are not counted."""
        return sum(one["messages"] - one["leased"] for one in self.shard_sizes().values())

    def shard_sizes(self) -> dict[str, dict[str, int]]:
        """For each shard: ``messages`` (all), ``resting``, ``leased``, ``dead``; as the servers
        have them.
        """
        out = {}
        for shard in self._shards:
            paths = self._paths.shard(shard)
            stats = [self._session.exists(parent) for parent in paths.parents]
            messages, claims, rests, dead = (
                0 if one is None else one.num_children for one in stats
            )
            out[shard] = {
                "messages": messages,
                "resting": rests,
                "leased": max(0, claims - rests),
                "dead": dead,
            }
        return out

    def figures(self) -> dict[str, ShardFigures]:
        """For each shard, as this consumer sees it."""
        out = {}
        for shard, sizes in self.shard_sizes().items():
            view, now_ms = self._consumer.views[shard], self._now_ms()
            view.refresh()
            with view.lock:
                times_ms = view.index.due_times_ms(now_ms)
            due, leased, oldest_s = (
                len(times_ms),
                sizes["leased"],
                (now_ms - min(times_ms)) / 1000 if times_ms else None,
            )
            out[shard] = ShardFigures(
                due, max(0, sizes["messages"] - due - leased), leased, sizes["dead"], oldest_s
            )
        return out

    # -- changing one message ----------------------------------------------------------------------

    def remove(self, id: str) -> bool:
        """Delete a message, in whatever state; returns whether it was there. Who has it in flight
        finds out when it settles."""
        return self._end(id)

    def finish(self, id: str) -> bool:
        """Delete a message that nobody has in flight, as if it had been acknowledged: its id is
        kept for its ``unique_s``. Returns whether there was one.
        """
        return self._end(id, held_too=False, done_ms=self._now_ms())

    def _end(self, id: str, *, held_too: bool = True, done_ms: int | None = None) -> bool:
        body: list[str | None] = []

        def operations(shard: str, name: str, claim: ClaimRead | None) -> Operations | None:
            if claim is not None and claim.resting is None and not held_too:
                return None
            frame = frame_of(self._session.get(self._paths.shard(shard).message(name))[0])
            body[:] = [frame.body]
            return self._removal(shard, name, frame, claim, done_ms)

        is_removed = self._change(id, operations)
        if is_removed:
            self._bodies.drop(body)
        return is_removed

    def _removal(
        self,
        shard: str,
        name: str,
        frame: Frame,
        claim: ClaimRead | None,
        done_ms: int | None = None,
    ) -> Operations:
        version = None if claim is None else claim.version
        removed = transitions.removal(
            self._paths.shard(shard), name, version, None if claim is None else claim.resting
        )
        has_started = claim is not None and claim.state.deliveries > 0
        return *removed, *transitions.id_over(
            self._paths, frame, has_started=has_started, done_ms=done_ms
        )

    def set_timeout(self, id: str, timeout_s: Seconds) -> bool:
        """A message that nobody has is due in ``timeout_s`` seconds; it keeps its priority and its
        place among equals. Returns whether there was one."""
        seconds = checked_s("timeout_s", timeout_s)

        def operations(shard: str, name: str, claim: ClaimRead | None) -> Operations | None:
            paths, until_ms = self._paths.shard(shard), self._now_ms() + int(seconds * 1000)
            if claim is None:
                return transitions.first_rest(paths, name, DeliveryState(until_ms=until_ms))
            if claim.resting is None:
                return None  # in flight
            state = claim.state._replace(until_ms=until_ms)
            later = transitions.rest(paths, name, claim.version, state)
            return Delete(paths.rest(claim.resting)), *later

        return self._change(id, operations)

    def _change(
        self, id: str, operations: Callable[[str, str, ClaimRead | None], Operations | None]
    ) -> bool:
        """Write what follows from the state that the message has now; once more, if it has changed
        meanwhile."""
        for _ in range(_TRIES):
            place = self._ids.place(id)
            if place is None:
                return False
            shard, name = place
            read = read_claims(self._session, self._paths.shard(shard), [name])
            try:
                wanted = operations(shard, name, read[0] if read else None)
            except NoNode:
                continue
            if wanted is None:
                return False
            error = self._apply(wanted)
            if error is None:
                return True
            if not isinstance(error, NoNode | NodeExists | BadVersion):
                raise error
        raise ConnectionLost(
            f"message {id} changes too often to be changed queue={self._paths.root}"
        )

    def _apply(self, operations: Operations) -> LeaderqError | None:
        return apply_all(self._writer(), [operations], self._paths.root)[0]

    def _all(self, shard: str, wanted: Fields | None = None) -> Iterator[tuple[str, bytes]]:
        """All messages of a shard whose names may be ``wanted``, about a megabyte at a time."""
        paths = self._paths.shard(shard)
        parsed = {name: parsed_name(name) for name in children_of(self._session, paths.messages)}
        names = [
            name
            for name, said in parsed.items()
            if said and (wanted is None or wanted.may_match(shard, said))
        ]
        for name, answer in SizedReader(self._session, paths.messages).read_all(names):
            if isinstance(answer, tuple):
                yield name, answer[0]

    def all_messages(
        self, wanted: Callable[[DynoMessage], bool] | None = None
    ) -> Iterator[DynoMessage]:
        """All messages that are ``wanted``, in whatever state, shard by shard in the order of their
        names (see the layout). What cannot be read is left out."""
        by_fields = wanted if isinstance(wanted, Fields) else None
        for shard in self._shards:
            for name, data in self._all(shard, by_fields):
                with suppress(CorruptItem, MissingBody):
                    if by_fields is None or by_fields(
                        self._message(shard, name, data, is_whole=False)
                    ):
                        message = self._message(shard, name, data)
                        if by_fields is not None or wanted is None or wanted(message):
                            yield message

    def contains(self, wanted: Callable[[DynoMessage], bool]) -> bool:
        """Whether there is a message of which ``wanted(message)`` is true."""
        return self.find(wanted) is not None

    def find(self, wanted: Callable[[DynoMessage], bool]) -> DynoMessage | None:
        """The first message of which ``wanted(message)`` is true."""
        return next(self.all_messages(wanted), None)

    def pop_where(
        self, wanted: Callable[[DynoMessage], bool], *, lease_s: Seconds | None = None
    ) -> Delivery | None:
        """The best message that is due, that nobody has, and of which ``wanted(message)`` is
        true.
        """
        for message in sorted(self.all_messages(wanted), key=lambda one: one.priority):
            if (delivery := self.pop_id(message.id, lease_s=lease_s)) is not None:
                return delivery
        return None

    def clear(self, *, held_too: bool = True) -> int:
        """Remove all messages, in whatever state (but those in flight only if ``held_too``) and
        readable or not, but not the dead letters; returns how many. What is changed or comes
        meanwhile may stay.
        """
        count = 0
        for shard in self._shards:
            for batch in batched(
                ((name, frame_of(data)) for name, data in self._all(shard)), _AT_A_TIME
            ):
                read = read_claims(
                    self._session, self._paths.shard(shard), [name for name, _ in batch]
                )
                claims = {claim.name: claim for claim in read}
                held = {claim.name for claim in read if claim.resting is None and not held_too}
                wanted = [(name, frame) for name, frame in batch if name not in held]
                groups = [
                    self._removal(shard, name, frame, claims.get(name)) for name, frame in wanted
                ]
                errors = apply_all(self._writer(), groups, self._paths.root)
                count += errors.count(None)
                self._bodies.drop(
                    frame.body
                    for (_, frame), error in zip(wanted, errors, strict=True)
                    if error is None
                )
        return count

    def find_stale(self, *, repair: bool = False) -> list[Leftover]:
        """What is left over: claims, markers and ids without the message that they are about, and
        so of no use. The queue itself leaves none; ``repair`` deletes those found, if they are
        still of no use then. Reads all ids and, if an id's message is not where it says, its shard.
        """
        found = list(leftovers(self._session, self._paths, self._shards, self._ids.place))
        if repair:
            apply_all(self._writer(), [one.operations for one in found], self._paths.root)
        return found

    def sweep_bodies(self, *, older_s: Seconds = 24 * 3600.0) -> int:
        """Delete the bodies in the store, older than ``older_s`` seconds, of which no message and
        no dead letter knows; returns how many. That is to be longer than any push may take. Reads
        all messages; ask one process for it, and see that all shards are served from there.
        """
        return self._bodies.sweep(checked_s("older_s", older_s), self._used_bodies())

    def _used_bodies(self) -> Iterator[str | None]:
        # The dead are read last: what dies meanwhile is still among the messages, or already there.
        for shard in self._shards:
            yield from (frame_of(data).body for _, data in self._all(shard))
        yield from (frame_of(letter.data).body for letter in self.dead_letters.browse())
        # What was sent back meanwhile is among the messages again.
        for shard in self._shards:
            yield from (frame_of(data).body for _, data in self._all(shard))

    def _message(self, shard: str, name: str, data: bytes, *, is_whole: bool = True) -> DynoMessage:
        frame, parsed = Frame.read(data), parsed_name(name)
        return DynoMessage(
            id=frame.id or f"{shard}/{name}",
            payload=self._bodies.get(frame.payload, frame.body) if is_whole else b"",
            timeout_s=0.0
            if parsed is None
            else min(MAX_S, max(0.0, (parsed.due_ms - frame.enqueued_ms) / 1000)),
            priority=0 if parsed is None else parsed.priority,
            shard=shard,
            headers=frame.headers,
            group=frame.group,
            unique=frame.unique,
            unique_s=frame.unique_s,
        )
