"""A message that was handed out, and the right to settle it."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from leaderq.dyno.layout import parsed_name
from leaderq.errors import ConfigurationError, LeaderqError

if TYPE_CHECKING:
    from types import TracebackType


class StaleLease(LeaderqError):
    """The message is not this consumer's any more: its lease was over and somebody took it, it was
    settled already, or removed. Nothing was changed."""


class Receipt(NamedTuple):
    """Names one delivery: the shard, the message, and the version of its claim. As text it can be
    handed to another process, which may settle the delivery too."""

    shard: str
    name: str
    version: int

    def __str__(self) -> str:
        return f"{self.shard}/{self.name}/{self.version}"

    @classmethod
    def parsed(cls, text: str) -> Receipt:
        """Undo ``str``.

        :raises ConfigurationError: it is not a receipt.
        """
        shard, _, rest = text.partition("/")
        name, _, version = rest.partition("/")
        if not shard or parsed_name(name) is None or not version.isdecimal():
            raise ConfigurationError(f"{text!r} is not a receipt; give the text of Delivery.receipt")
        return cls(shard, name, int(version))


@dataclass(frozen=True, slots=True)
class DeliveryRecord:
    """What is known of a delivery at the moment at which it is made. Times are milliseconds since
    the epoch."""

    id: str
    payload: bytes
    headers: Mapping[str, str]
    priority: int
    group: str | None
    shard: str
    name: str
    deliveries: int
    failures: int
    enqueued_ms: int
    first_ms: int
    given_id: str
    body: str | None
    last_error: str


class SettlesDeliveries(Protocol):
    """What a delivery needs of its queue; each writes one transition, or raises."""

    def settle_ack(self, delivery: Delivery) -> None: ...

    def settle_rest(
        self, delivery: Delivery, *, delay_s: float, error: BaseException | str | None, is_failure: bool
    ) -> None: ...

    def settle_kill(self, delivery: Delivery, reason: str, error: BaseException | str | None = None) -> None: ...

    def settle_extension(self, delivery: Delivery, lease_s: float | None) -> None: ...

    def retry_delay_s(self, failures: int, error: BaseException | str | None) -> float | None: ...


class Delivery:
    """One message, leased to this consumer until ``until_ms`` or the end of its session, whichever
    is first.

    Settle it once: :meth:`ack`, :meth:`nack`, :meth:`release`, :meth:`postpone` or :meth:`kill`. As
    a context manager it is acknowledged at the end of the block, and nacked if the block raises.

    *Guarantees:* each of these is all or nothing, and changes nothing if the lease has passed to
    somebody else (:class:`StaleLease`). *Not guaranteed:* that the lease is not over by the time at
    which your code does its work; ask :meth:`remaining_s`, or :meth:`extend` it.
    """

    def __init__(
        self, queue: SettlesDeliveries, record: DeliveryRecord, version: int, until_ms: int, lease_s: float
    ) -> None:
        self._queue = queue
        self.record = record
        self.version = version
        self.until_ms = until_ms
        self.lease_s = lease_s
        self.is_settled = False
        self.lock = threading.Lock()
        """Held while it is being settled or extended."""

    def __repr__(self) -> str:
        return f"Delivery({self.id!r}, shard={self.record.shard!r}, deliveries={self.deliveries})"

    @property
    def id(self) -> str:
        """The message's id."""
        return self.record.id

    @property
    def payload(self) -> bytes:
        """What was pushed."""
        return self.record.payload

    @property
    def headers(self) -> Mapping[str, str]:
        """The texts that travel beside it."""
        return self.record.headers

    @property
    def priority(self) -> int:
        """0 (first) to 99."""
        return self.record.priority

    @property
    def deliveries(self) -> int:
        """How often it was handed out, this time included."""
        return self.record.deliveries

    @property
    def failures(self) -> int:
        """How many of the earlier deliveries failed."""
        return self.record.failures

    @property
    def receipt(self) -> Receipt:
        """What names this delivery; another one after each extension."""
        return Receipt(self.record.shard, self.record.name, self.version)

    def ack(self) -> None:
        """It is done, and gone.

        :raises StaleLease: it is somebody else's, or settled already.
        """
        self._queue.settle_ack(self)

    def nack(self, error: BaseException | str | None = None, *, delay_s: float | None = None) -> None:
        """It failed: it comes again after the back-off of the queue's policy, or ``delay_s``
        seconds, or is dead if it has failed as often as the policy says.

        :raises StaleLease: as :meth:`ack`.
        """
        wait_s = self._queue.retry_delay_s(self.failures + 1, error)
        if wait_s is None:
            self._queue.settle_kill(self, "attempts", error)
            return
        self._queue.settle_rest(self, delay_s=wait_s if delay_s is None else delay_s, error=error, is_failure=True)

    def release(self) -> None:
        """It was not begun: whoever wants it may have it now. No failure is counted.

        :raises StaleLease: as :meth:`ack`.
        """
        self._queue.settle_rest(self, delay_s=0.0, error=None, is_failure=False)

    def postpone(self, delay_s: float) -> None:
        """It comes again in ``delay_s`` seconds. No failure is counted.

        :raises StaleLease: as :meth:`ack`.
        """
        self._queue.settle_rest(self, delay_s=delay_s, error=None, is_failure=False)

    def kill(self, reason: str = "killed") -> None:
        """It goes to the dead letters now.

        :raises StaleLease: as :meth:`ack`.
        """
        self._queue.settle_kill(self, reason)

    def extend(self, lease_s: float | None = None) -> None:
        """The lease ends ``lease_s`` seconds from now (the queue's own if ``None``), not later and
        not sooner.

        :raises StaleLease: as :meth:`ack`.
        """
        self._queue.settle_extension(self, lease_s)

    def __enter__(self) -> Delivery:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, _: TracebackType | None) -> None:
        if self.is_settled:
            return
        if exc is None:
            self.ack()
        elif isinstance(exc, Exception):
            self.nack(exc)
        else:  # the process is being ended: that is not the message's fault
            self.release()


def bounded_error(error: BaseException | str | None) -> str:
    """The text of an error, as a claim keeps it."""
    if error is None:
        return ""
    return error if isinstance(error, str) else f"{type(error).__name__}: {error}"
