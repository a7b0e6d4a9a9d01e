"""A message that was handed out, the right to settle it, and all that one consumer has in hand.

The servers are authoritative: each transition names the version of the claim that it expects.
While a transition of a delivery is written, nobody else here writes another, so no heartbeat makes
a receipt stale that is being used.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from leaderq.base import clock
from leaderq.base.arguments import MAX_S, Seconds, in_seconds, instance, require
from leaderq.dyno import transitions
from leaderq.dyno.index import Choice
from leaderq.dyno.layout import parsed_name
from leaderq.dyno.message import DeliveryState, Frame
from leaderq.dyno.nodes import QueueNodes, apply_all
from leaderq.dyno.transitions import DeadMessage
from leaderq.engine.members import Membership
from leaderq.engine.serializers import value_of
from leaderq.engine.taken import Taken
from leaderq.errors import (
    ConfigurationError,
    FromOutside,
    LeaderqError,
    NoNode,
    SessionExpired,
    ZooKeeperError,
    told,
    with_cause,
)
from leaderq.threads import Retry, Service, primitives
from leaderq.zookeeper import Operation, SetData
from leaderq.zookeeper.writing import SequencedWriter
from leaderq.zookeeper.writing.groups import Operations, given_operations
from leaderq.zookeeper.writing.writer import OVERTAKEN

if TYPE_CHECKING:
    from types import TracebackType

log = logging.getLogger(__name__)
_LEAST_S = 0.01
_LONGEST_VERSION = 10


class StaleLease(LeaderqError):
    """The message is not this consumer's any more: its lease was over and somebody else took it, or
    it was settled before, or it was removed. Nothing was changed.
    """


class Receipt(NamedTuple):
    """Names one delivery: the shard, the message, and the version of its claim. The text of a
    receipt can be passed to another process, which may then settle the delivery.
    """

    shard: str
    name: str
    version: int

    def __str__(self) -> str:
        return f"{self.shard}/{self.name}/{self.version}"

    @classmethod
    def parsed(cls, text: str) -> Receipt:
        """Return the receipt whose text is ``text``. Raises ``ConfigurationError`` for any other
        text.
        """
        place, _, version = text.rpartition("/")
        shard, _, name = place.rpartition("/")
        is_version = version.isdecimal() and len(version) <= _LONGEST_VERSION
        if not shard or parsed_name(name) is None or not is_version:
            raise ConfigurationError(
                f"{text!r:.300} is not a receipt; give the text of Delivery.receipt"
            )
        return cls(shard, name, int(version))


class Delivery(Taken):
    """One message, leased to this consumer until ``until_s`` (by ``leaderq.base.clock.now_s``) or
    the end of its session, whichever is first.

    ``deliveries``: how often it was handed out, this time included; ``failures``: how many of the
    earlier ones failed. Settle it once: :meth:`ack`, :meth:`nack`, :meth:`release`,
    :meth:`postpone` or :meth:`kill`. As a context manager it is acknowledged at the end of the
    block, and nacked if the block raises. A block that ends after the lease was lost, or after the
    queue was closed, raises :class:`StaleLease`.

    *Guarantees:* each of these methods is all or nothing, and changes nothing if the lease has
    passed to somebody else (:class:`StaleLease`). *Not guaranteed:* that the lease still stands
    when your code does its work; see :attr:`left_s`, and :meth:`extend` the lease.
    """

    is_settled = False

    def __init__(
        self,
        hand: Hand,
        frame: Frame,
        state: DeliveryState,
        receipt: Receipt,
        lease_s: float,
        until_s: float,
    ) -> None:
        self.hand, self.frame, self.state = hand, frame, state
        self.shard, self.name, self.version = receipt
        self.lease_s, self.until_s = lease_s, until_s
        self.is_handed_out = self.is_lost = False
        self.due_ms = 0
        """When it is due again if it goes back without having been begun."""
        self._payload: bytes | None = None

    def __repr__(self) -> str:
        return f"Delivery({self.id!r}, shard={self.shard!r}, deliveries={self.deliveries})"

    @property
    def id(self) -> str:
        return self.frame.id or self.place

    @property
    def headers(self) -> Mapping[str, str]:
        return self.frame.headers

    @property
    def priority(self) -> int:
        return int(self.name[:2])

    @property
    def deliveries(self) -> int:
        return self.state.deliveries

    @property
    def failures(self) -> int:
        return self.state.failures

    @property
    def payload(self) -> bytes:
        """The payload that was pushed. At its first use, a large payload is read from the queue's
        store.

        :raises MissingBody: the store does not have the payload. Other errors of the store are
            raised unchanged.
        """
        if self._payload is None:
            bodies = self.hand.nodes.bodies
            self._payload = bodies.get(self.frame.payload, self.frame.body)
        return self._payload

    @property
    def value(self) -> Any:
        """The payload as a value, read by the ``serializer`` of the queue.

        :raises CorruptItem: the payload cannot be read. Raises also what :attr:`payload` raises.
        """
        return value_of(self.hand.nodes.serializer, self.payload)

    @property
    def place(self) -> str:
        """Where its message lies: ``<shard>/<name>``."""
        return f"{self.shard}/{self.name}"

    @property
    def left_s(self) -> float:
        """The seconds until the lease ends, by the clock of this host; below 0 if the lease is
        over.
        """
        return self.until_s - clock.now_s()

    @property
    def receipt(self) -> Receipt:
        """The receipt of this delivery; a new one after each extension."""
        return Receipt(self.shard, self.name, self.version)

    def ack(self, also: Sequence[Operation] = ()) -> None:
        """Acknowledge the message: the work is done, and the message is removed.

        ``also``: ZooKeeper operations of yours for the same multi: the result is written and the
        message is acknowledged, or neither. If one of them is refused, its error is raised
        (``index`` counts in ``also``), and the message is leased as before.
        """
        (error,) = self.hand.acknowledge([self], given_operations("also", also))
        if error is not None:
            raise error

    def nack(
        self,
        error: BaseException | str | None = None,
        *,
        delay_s: Seconds | None = None,
        retry: Retry | None = None,
    ) -> None:
        """Report a failure. The message is delivered again after ``delay_s`` seconds or, by
        default, after the back-off of ``retry`` (``None``: the queue's policy). It becomes a dead
        letter once it has failed as often as the policy allows.
        """
        require(instance("retry", retry, Retry | None))
        policy, former, failures = retry or self.hand.nodes.retry, self.state, self.failures + 1
        text = error if isinstance(error, str | None) else told(error)
        state = former._replace(failures=failures, error=text or former.error)
        if policy.is_exhausted(failures):
            self.hand.kill(self, "attempts", state)
        else:
            back_off_s = min(MAX_S, policy.delay_s(failures))
            self.hand.rest(self, back_off_s if delay_s is None else delay_s, state)

    def release(self) -> None:
        """Give the message back: it was not begun, and anybody may have it now. No failure is
        counted.
        """
        self.hand.rest(self, 0.0, self.state)

    def postpone(self, delay_s: Seconds) -> None:
        """Give the message back; it is delivered again in ``delay_s`` seconds. No failure is
        counted.
        """
        self.hand.rest(self, delay_s, self.state)

    def kill(self, reason: str = "killed") -> None:
        """Make the message a dead letter now, with this reason, a text."""
        require(instance("reason", reason, str))
        self.hand.kill(self, reason, self.state)

    def extend(self, lease_s: Seconds | None = None) -> None:
        """Let the lease end ``lease_s`` seconds from now (``None``: the queue's ``lease_s``), even
        if that is sooner than before; 0 is :meth:`release`.
        """
        seconds = self.hand.nodes.lease_s if lease_s is None else in_seconds("lease_s", lease_s)
        if not seconds:
            self.release()
            return
        with self.hand.writing([self]):
            error = self.hand.extend({self: seconds})[self]
        if error is not None:
            raise error

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.is_settled and error is None:
            with self.hand.writing([self]):  # whoever settled it may be about to say it was lost
                if self.is_lost:
                    why = "its lease was lost, or its queue was closed"
                    raise StaleLease(f"message {self.id} was not acknowledged: {why}")
        super().__exit__(kind, error, trace)

    _failed, _given_back = nack, release


OnLease = Callable[[Delivery], object]
"""Called with a delivery that is kept, when its lease was extended or is about to end."""
Errors = dict[Delivery, LeaderqError | None]
"""What became of each delivery's transition."""


@dataclass(slots=True)
class Kept:
    """How a lease is kept; see :meth:`DynoQueue.keep`. ``until_s``: it is not extended beyond
    that.
    """

    until_s: float
    ending: OnLease | None
    ending_s: float
    extended: OnLease | None


class Hand:
    """The deliveries of one consumer that are not settled; some have leases that are kept.

    ``member()`` returns the membership whose writer carries the transitions, or raises. ``wake``
    makes somebody call :meth:`extend_due` soon.
    """

    def __init__(
        self, nodes: QueueNodes, member: Callable[[], Membership], wake: Callable[[], object]
    ) -> None:
        self.nodes, self._member, self._wake = nodes, member, wake
        self.held: dict[Delivery, Kept | None] = nodes.held
        self._busy = set[Delivery]()
        """Those of which a transition is being written."""
        self._freed = primitives.Condition()

    @contextmanager
    def writing(
        self, deliveries: Iterable[Delivery], *, waits: bool = True
    ) -> Iterator[list[Delivery]]:
        """Within the block nobody else writes a transition of these. If somebody does now, this
        waits for that or, without ``waits``, leaves those out; yields the others.
        """
        wanted, mine = dict.fromkeys(deliveries), list[Delivery]()
        try:
            with self._freed:
                if waits:
                    self._freed.wait_for(lambda: self._busy.isdisjoint(wanted))
                mine = [one for one in wanted if one not in self._busy]
                self._busy.update(mine)
            yield mine
        finally:
            with self._freed:
                self._busy.difference_update(mine)
                self._freed.notify_all()

    def acknowledge(
        self, deliveries: Sequence[Delivery], also: Operations = ()
    ) -> list[LeaderqError | None]:
        """Acknowledge these deliveries, all under way together. Returns the error of each, or
        ``None``.
        """
        with self.writing(deliveries) as once:
            done_ms = self.nodes.now_ms()
            own = {one: self._end(one, one.state, done_ms=done_ms) for one in once}
            known = self._written(own, also)
            for one, error in known.items():
                if isinstance(error, ZooKeeperError) and error.index is not None:
                    error.index -= len(own[one])
            done = [one for one in once if known[one] is None]
            self._settled(done, are_gone=True)
        self.nodes.figures.add("acknowledged", len(done))
        self.nodes.bodies.drop(one.frame.body for one in done)
        later = StaleLease("the same delivery was acknowledged twice in one call")
        return [known.pop(one, later) for one in deliveries]

    def _end(self, one: Delivery, state: DeliveryState, **how: Any) -> Operations:
        choice = Choice(one.name, one.version)
        return transitions.end(self.nodes.paths, one.shard, choice, one.frame, state, **how)

    def rest(self, one: Delivery, delay_s: Seconds, state: DeliveryState) -> None:
        """Put the message back, in this state; it is due in ``delay_s`` seconds."""
        seconds = in_seconds("delay_s", delay_s)
        with self.writing([one]):
            self._settle(one, self._rest(one, seconds, state))
        self.nodes.figures.add("returned")

    def _rest(self, one: Delivery, delay_s: float, state: DeliveryState) -> Operations:
        until_ms = self.nodes.now_ms() + int(delay_s * 1000)
        state = state._replace(member="", until_ms=until_ms)
        return transitions.rest(self.nodes.paths.shard(one.shard), one.name, one.version, state)

    def kill(self, one: Delivery, reason: str, state: DeliveryState) -> None:
        nodes, (shard, name, _) = self.nodes, one.receipt
        paths = nodes.paths.shard(shard)
        with self.writing([one]):
            try:
                data = b"" if one.is_settled else nodes.session.get(paths.message(name))[0]
            except NoNode as exc:
                raise self._stale(one, exc) from exc
            letter = DeadMessage.of(shard, name, data, state, reason, nodes.now_ms())
            self._settle(one, self._end(one, state, letter=letter), is_gone=True)
        nodes.figures.add("dead_letters")

    def release(
        self, deliveries: Iterable[Delivery], writer: SequencedWriter, *, is_lost: bool = False
    ) -> None:
        """Put these messages back that were not settled; this does not count as a failure. A
        message that nobody has seen was not delivered either. ``is_lost``: whoever works on them
        has not asked for it.
        """
        with self.writing(deliveries, waits=False) as free:  # the others are being settled
            for one in free:
                if not one.is_settled:
                    count = one.state.deliveries - (not one.is_handed_out)
                    delay_s = max(0, one.due_ms - self.nodes.now_ms()) / 1000
                    state = one.state._replace(deliveries=count)
                    writer.submit(self._rest(one, delay_s, state))
                    one.is_lost = is_lost
                    self._settled([one])

    def extend(self, wanted: Mapping[Delivery, float]) -> Errors:
        """Extend each lease by the given seconds, counted from now. Called within
        :meth:`writing`.
        """
        mark, now_ms, now_s = self._member().mark, self.nodes.now_ms(), clock.now_s()
        groups: dict[Delivery, Operations] = {}
        for one, lease_s in wanted.items():
            claim = self.nodes.paths.shard(one.shard).claim(one.name)
            state = one.state.leased(mark, now_ms, lease_s)
            groups[one] = (SetData(claim, state.packed(), one.version),)
        known = self._written(groups)
        for one, lease_s in wanted.items():
            one.is_lost = isinstance(known[one], StaleLease)
            if known[one] is None:
                one.version += 1
                one.until_s = now_s + lease_s
                self.held.setdefault(one)
                if (view := self.nodes.views.get(one.shard)) is not None:
                    with view.lock:
                        view.index.extended(one.name, one.version, now_s, lease_s)
        return known

    def _settle(self, one: Delivery, operations: Operations, *, is_gone: bool = False) -> None:
        error = self._written({one: operations})[one]
        if error is not None:
            raise error
        self._settled([one], are_gone=is_gone)

    def _written(self, wanted: Mapping[Delivery, Operations], also: Operations = ()) -> Errors:
        """Write the transitions of these deliveries, each with the user's operations, and return
        the error of each. Called within :meth:`writing`.
        """
        root, known = self.nodes.paths.root, Errors()
        for one in wanted:
            if one.is_settled:
                known[one] = StaleLease(f"message {one.id} was settled before")
        if fresh := {one: group for one, group in wanted.items() if one not in known}:
            groups = [(*own, *also) for own in fresh.values()]
            errors = apply_all(self._member().writer, groups, root)
            for (one, own), error in zip(fresh.items(), errors, strict=True):
                # The user's znodes may be below the root too.
                is_overtaken = isinstance(error, OVERTAKEN) and (error.index or 0) < len(own)
                is_stale = is_overtaken or isinstance(error, SessionExpired)
                known[one] = self._stale(one, error) if is_stale else error
        return known

    def _stale(self, one: Delivery, error: LeaderqError | None) -> StaleLease:
        self._settled([one])
        self.nodes.figures.add("lost")
        stale = StaleLease(f"message {one.id} is not this consumer's any more: {error}")
        return with_cause(stale, error)

    def _settled(self, deliveries: Sequence[Delivery], *, are_gone: bool = False) -> None:
        for one in deliveries:
            one.is_settled = True
            self.held.pop(one, None)
            if are_gone and (view := self.nodes.views.get(one.shard)) is not None:
                with view.lock:
                    view.index.deleted(one.name)

    # -- leases that are kept ----------------------------------------------------------------------

    def keep(self, deliveries: Iterable[Delivery], kept: Kept) -> None:
        for one in deliveries:
            if not one.is_settled:
                self.held[one] = replace(kept)
        self._wake()

    def let_go(self, deliveries: Iterable[Delivery]) -> None:
        for one in deliveries:
            if one in self.held:
                self.held[one] = None

    def extend_due(self) -> float:
        """Extend the leases that are due, and warn of leases about to end; returns the seconds
        until the next call is due.
        """
        soonest_s = float("inf")
        wanted: dict[Delivery, float] = {}
        for one, kept in self.held.copy().items():
            left_s = one.left_s
            if kept is None or one.is_settled:  # perhaps while it was passed to keep()
                if left_s <= 0 or one.is_settled:
                    self.held.pop(one, None)
                continue
            most_s = kept.until_s - clock.now_s()
            told_in_s = max(left_s, most_s) - kept.ending_s
            if kept.ending is not None and told_in_s > 0:
                soonest_s = min(soonest_s, told_in_s)
            elif kept.ending is not None:
                self._tell(one, kept.ending)
                kept.ending = None
            if most_s > left_s + _LEAST_S:
                wait_s = left_s - one.lease_s / 3
                if wait_s <= 0:
                    wanted[one] = min(one.lease_s, most_s)
                    wait_s = one.lease_s / 3
                soonest_s = min(soonest_s, wait_s)
            elif kept.ending is None:
                self.let_go([one])
        self._extend_kept(wanted)
        return max(_LEAST_S, soonest_s)

    def _extend_kept(self, wanted: Mapping[Delivery, float]) -> None:
        with self.writing(wanted, waits=False) as free:  # the others are being settled
            kept_ones = {one: wanted[one] for one in free if self.held.get(one) is not None}
            errors = self.extend(kept_ones) if kept_ones else {}
        for one, error in errors.items():
            if isinstance(error, StaleLease):
                log.warning("lease lost message=%s error=%s", one.id, error)
            elif error is not None:
                log.debug("lease not extended, trying again message=%s error=%s", one.id, error)
            elif (kept := self.held.get(one)) is not None and kept.extended is not None:
                try:
                    kept.extended(one)
                except FromOutside:
                    raise
                except BaseException:
                    log.exception("extended() failed, leases are kept message=%s", one.id)

    def _tell(self, one: Delivery, ending: OnLease) -> None:
        if not one.is_settled:
            # On a thread of its own: whatever it does, the other leases are kept.
            Service("leaderq-dyno-ending", lambda _: ending(one)).start()
