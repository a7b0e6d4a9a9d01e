"""A message that was handed out: the right to settle it, and the extension of its lease."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from leaderq.base import clock
from leaderq.base.arguments import Seconds
from leaderq.dyno.bodies import Bodies
from leaderq.dyno.layout import parsed_name
from leaderq.dyno.message import DeliveryState, Frame
from leaderq.engine.serializers import QueueSerializer, value_of
from leaderq.errors import ConfigurationError, LeaderqError, told
from leaderq.threads import Retry, Service, primitives
from leaderq.zookeeper import Operation

if TYPE_CHECKING:
    from types import TracebackType

log = logging.getLogger(__name__)
_LEAST_S = 0.01


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
        if not shard or parsed_name(name) is None or not version.isdecimal():
            raise ConfigurationError(
                f"{text!r} is not a receipt; give the text of Delivery.receipt"
            )
        return cls(shard, name, int(version))


class SettlesDeliveries(Protocol):
    """The methods of its queue that a delivery needs. Each writes one transition, or raises."""

    bodies: Bodies
    retry: Retry
    serializer: QueueSerializer[Any]

    def acknowledge(
        self, deliveries: Sequence[Delivery], also: tuple[Operation, ...] = ()
    ) -> list[LeaderqError | None]: ...

    def settle_rest(self, delivery: Delivery, delay_s: Seconds, state: DeliveryState) -> None: ...

    def settle_kill(self, delivery: Delivery, reason: str, state: DeliveryState) -> None: ...

    def settle_extension(self, delivery: Delivery, lease_s: Seconds | None) -> None: ...


class Delivery:
    """One message, leased to this consumer until ``until_s`` (by ``leaderq.base.clock.now_s``) or
    the end of its session, whichever is first.

    ``deliveries``: how often it was handed out, this time included; ``failures``: how many of the
    earlier ones failed. Settle it once: :meth:`ack`, :meth:`nack`, :meth:`release`,
    :meth:`postpone` or :meth:`kill`. As a context manager it is acknowledged at the end of the
    block, and nacked if the block raises.

    *Guarantees:* each of these methods is all or nothing, and changes nothing if the lease has
    passed to somebody else (:class:`StaleLease`). *Not guaranteed:* that the lease still stands
    when your code does its work; see :attr:`left_s`, and :meth:`extend` the lease.
    """

    def __init__(
        self,
        queue: SettlesDeliveries,
        frame: Frame,
        state: DeliveryState,
        receipt: Receipt,
        lease_s: float,
        until_s: float,
    ) -> None:
        self.queue, self.frame, self.state = queue, frame, state
        self.shard, self.name, self.version = receipt
        self.id = frame.id or self.place
        self.headers = frame.headers
        self.priority = int(self.name[:2])
        self.deliveries, self.failures = state.deliveries, state.failures
        self.lease_s, self.until_s = lease_s, until_s
        self.is_handed_out = self.is_settled = False
        self.due_ms = 0
        """When it is due again if it goes back without having been handed out."""
        self._payload: bytes | None = None
        self.lock = primitives.Lock()
        """Held while it is being settled or extended."""

    def __repr__(self) -> str:
        return f"Delivery({self.id!r}, shard={self.shard!r}, deliveries={self.deliveries})"

    @property
    def payload(self) -> bytes:
        """The payload that was pushed. At its first use, a large payload is read from the queue's
        store.

        :raises MissingBody: the store does not have the payload. Other errors of the store are
            raised unchanged.
        """
        if self._payload is None:
            self._payload = self.queue.bodies.get(self.frame.payload, self.frame.body)
        return self._payload

    @property
    def value(self) -> Any:
        """The payload as a value, read by the ``serializer`` of the queue.

        :raises CorruptItem: the payload cannot be read. Raises also what :attr:`payload` raises.
        """
        return value_of(self.queue.serializer, self.payload)

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
        (error,) = self.queue.acknowledge([self], tuple(also))
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
        policy, former, failures = retry or self.queue.retry, self.state, self.failures + 1
        text = error if isinstance(error, str | None) else told(error)
        state = former._replace(failures=failures, error=text or former.error)
        if policy.is_exhausted(failures):
            self.queue.settle_kill(self, "attempts", state)
        else:
            wait_s = policy.delay_s(failures) if delay_s is None else delay_s
            self.queue.settle_rest(self, wait_s, state)

    def release(self) -> None:
        """Give the message back: it was not begun, and anybody may have it now. No failure is
        counted.
        """
        self.queue.settle_rest(self, 0.0, self.state)

    def postpone(self, delay_s: Seconds) -> None:
        """Give the message back; it is delivered again in ``delay_s`` seconds. No failure is
        counted.
        """
        self.queue.settle_rest(self, delay_s, self.state)

    def kill(self, reason: str = "killed") -> None:
        """Make the message a dead letter now, with this reason."""
        self.queue.settle_kill(self, reason, self.state)

    def extend(self, lease_s: Seconds | None = None) -> None:
        """Let the lease end ``lease_s`` seconds from now (``None``: the queue's ``lease_s``), even
        if that is sooner than before; 0 is :meth:`release`.
        """
        self.queue.settle_extension(self, lease_s)

    def __enter__(self) -> Delivery:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, _: TracebackType | None
    ) -> None:
        if self.is_settled:
            return
        if exc is None:
            self.ack()
            return
        try:
            if isinstance(exc, Exception):
                self.nack(exc)
            else:  # the process is being ended: that is not the message's fault
                self.release()
        except LeaderqError as error:  # the caller must hear what the block raised
            log.warning(
                "not released, its lease ends by itself message=%s error=%s", self.id, error
            )


Ending = Callable[[Delivery], object]
"""Called with a delivery that is kept, when its lease was extended or is about to end."""
Known = dict[Delivery, LeaderqError | None]
"""The errors, one for each delivery."""
Wanted = Sequence[tuple[Delivery, float]]
"""The deliveries to extend, and by how many seconds from now."""


@dataclass(slots=True)
class _Kept:
    until_s: float | None
    ending: Ending | None
    ending_s: float
    extended: Ending | None


class LeaseKeeper:
    """Extends the leases of the deliveries that are kept, until each is settled or let go.

    ``extend_all`` extends many leases together; this class holds the deliveries' locks meanwhile.
    ``wake`` makes somebody call :meth:`extend_due` soon.
    """

    def __init__(self, extend_all: Callable[[Wanted], Known], wake: Callable[[], object]) -> None:
        self._extend_all, self._wake = extend_all, wake
        self._kept: dict[Delivery, _Kept] = {}

    def keep(
        self,
        deliveries: Iterable[Delivery],
        most_s: float | None,
        ending: Ending | None,
        ending_s: float,
        extended: Ending | None = None,
    ) -> None:
        until_s = None if most_s is None else clock.now_s() + most_s
        for one in deliveries:
            if not one.is_settled:
                self._kept[one] = _Kept(until_s, ending, ending_s, extended)
        self._wake()

    def let_go(self, deliveries: Iterable[Delivery]) -> None:
        for one in deliveries:
            self._kept.pop(one, None)

    def extend_due(self) -> float:
        """Extend the leases that are due, and warn of leases about to end; returns the seconds
        until the next call is due.
        """
        soonest_s = float("inf")
        wanted: list[tuple[Delivery, float]] = []
        for one, kept in list(self._kept.items()):
            left_s = one.until_s - clock.now_s()
            most_s = float("inf") if kept.until_s is None else kept.until_s - clock.now_s()
            told_in_s = max(left_s, most_s) - kept.ending_s
            if kept.ending is not None and told_in_s > 0:
                soonest_s = min(soonest_s, told_in_s)
            elif kept.ending is not None:
                self._tell(one, kept.ending)
                kept.ending = None
            if most_s > left_s + _LEAST_S:
                wait_s = left_s - one.lease_s / 3
                if wait_s <= 0:
                    wanted.append((one, min(one.lease_s, most_s)))
                    wait_s = one.lease_s / 3
                soonest_s = min(soonest_s, wait_s)
            elif kept.ending is None:
                self._kept.pop(one, None)
        self._extend(wanted)
        return max(_LEAST_S, soonest_s)

    def _extend(self, wanted: Wanted) -> None:
        with ExitStack() as locks:
            free = []
            for one, lease_s in wanted:
                if one.lock.acquire(blocking=False):  # else it is being settled
                    locks.callback(one.lock.release)
                    if one in self._kept:
                        free.append((one, lease_s))
            for one, error in (self._extend_all(free) if free else {}).items():
                if isinstance(error, StaleLease):
                    log.warning("lease lost message=%s error=%s", one.id, error)
                elif error is None and (kept := self._kept.get(one)) is not None and kept.extended:
                    kept.extended(one)
                elif error is not None:
                    log.debug("lease not extended, trying again message=%s error=%s", one.id, error)

    def _tell(self, one: Delivery, ending: Ending) -> None:
        if not one.is_settled:
            # On a thread of its own: whatever it does, the other leases are kept.
            Service("leaderq-dyno-ending", lambda _: ending(one)).start()
