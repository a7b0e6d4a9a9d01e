"""The narrow faces of producers, so that another client can stand behind them, and what is sent.

States of a :class:`TransactionalProducer`: new, open, fenced in, in a transaction, closed. The
broker is authoritative: it knows one *epoch* for each transactional id, the one given to the
producer that was fenced in last, and refuses all others.

A client's own exceptions never come out: what comes is one of

* :class:`~leaderq.errors.KafkaFenced`: a later producer of the same id, or a later member of the
  same name, exists; this producer is over for ever;
* :class:`~leaderq.kafka.clients.consumer.KafkaAway`: no answer yet; the *same* call may be
  repeated, and goes on where it was;
* :class:`~leaderq.kafka.clients.consumer.MembershipLost`: the group refused the offsets; nothing of
  the transaction was committed. Abort it;
* :class:`~leaderq.kafka.clients.consumer.BatchLost`: this producer cannot find out whether its
  transaction was committed. Discard it, fence in another (which settles the transaction one way or
  the other), then read the committed offsets: they tell;
* ``AccessRefused``, ``UnknownTopic``, ``KafkaError`` (a message that is too large, a client that is
  broken): nothing of the transaction was committed, trying again does not help. Abort it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from leaderq.clock import now_s
from leaderq.config import KafkaSecurity
from leaderq.errors import KafkaError, KafkaFenced, LeaderqError, MessageTooLarge
from leaderq.kafka.clients.consumer import Offsets

MAX_MESSAGE_BYTES = 1_000_000
"""What a topic accepts unless ``max.message.bytes`` was changed, less what the protocol adds."""
_KEYS = (bytes, type(None))
TRANSACTION_TIMEOUT_S = 60.0
"""How long a broker keeps an open transaction of a producer that is gone."""


class Message(NamedTuple):
    """One message to send. ``value`` and ``key`` are bytes or ``None`` (not both); ``headers``
    pairs of name and bytes. Without a ``partition`` the partitioner decides: all messages of one
    key in one partition, the same with all clients. ``timestamp_ms``: else the time of sending.
    """

    topic: str
    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes]] = ()
    partition: int | None = None
    timestamp_ms: int | None = None

    @property
    def size(self) -> int:
        parts = (self.key or b"", self.value or b"", *(part or b"" for _, part in self.headers))
        return sum(map(len, parts)) + sum(len(name.encode()) for name, _ in self.headers)


def checked(message: Message, limit: int = MAX_MESSAGE_BYTES) -> Message:
    """The message, if a client can send it, or a KafkaError: found out where it was made."""
    topic, value, key, headers, partition, _ = message
    # The usual message, at a fifth of the cost: this runs for each one.
    is_plain = type(topic) is str and type(value) is bytes and type(key) in _KEYS
    is_plain = is_plain and not headers and partition is None
    if is_plain and topic and len(value or b"") + len(key or b"") <= limit:
        return message
    if problem := _problem(message):
        raise KafkaError(f"a message to topic {message.topic!r} cannot be sent: {problem}")
    if message.size > limit:
        raise MessageTooLarge(
            f"a message to topic {message.topic!r} cannot be sent: it has {message.size} bytes, and"
            f" the limit is {limit}; send less, or raise max_message_bytes and the topic's"
        )
    return message


def _problem(message: Message) -> str | None:
    given: tuple[Any, ...] = message  # by a user who may not check types
    topic, value, key, headers, partition, _ = given
    if not isinstance(topic, str) or not topic:
        return "its topic must be a name"
    for what, part in (("value", value), ("key", key)):
        if part is not None and not isinstance(part, bytes):
            return f"its {what} is {type(part).__name__}, not bytes; serialize it first"
    if value is None and key is None:
        return "it has neither key nor value; a tombstone needs a key"
    if partition is not None and partition < 0:
        return f"its partition is {partition}; leave it out to have one chosen"
    for header in headers:
        if len(header) != 2 or not isinstance(header[0], str) or not isinstance(header[1], bytes):
            return f"header {header!r} is not a pair of str and bytes"
    return None


@dataclass(frozen=True)
class ProducerSettings:
    """How a producer is made; ``options`` are the client library's own, and go before all else.
    ``transactional_id`` is the name under which it fences, whoever leads. A transaction open for
    longer than ``transaction_timeout_s`` is refused, so that must exceed the longest commit.
    """

    address: str
    transactional_id: str | None = None
    client_id: str = "leaderq"
    security: KafkaSecurity = field(default_factory=KafkaSecurity)
    request_timeout_s: float = 10.0
    open_timeout_s: float = 10.0
    transaction_timeout_s: float = TRANSACTION_TIMEOUT_S
    max_message_bytes: int = MAX_MESSAGE_BYTES
    options: Mapping[str, Any] = field(default_factory=dict)

    def explained(self, error: LeaderqError, began_s: float | None) -> LeaderqError:
        """``error`` of a producer; a refusal may mean that its transaction was open too long."""
        open_s = 0.0 if began_s is None else now_s() - began_s
        if not isinstance(error, KafkaFenced) or open_s <= self.transaction_timeout_s:
            return error
        hint = f"the transaction was open for {open_s:.0f} s, longer than transaction_timeout_s"
        return KafkaFenced(f"{error}; or {hint}, and the broker has aborted it")


class TransactionalProducer(Protocol):
    """Sends messages and offsets together, or not at all. One thread, but for :meth:`produce`."""

    def open(self) -> None:
        """Connect, fencing nobody; raises also ``ServersUnreachable``, ``MissingPiece``."""

    def fence(self, timeout_s: float) -> bool:
        """Take the transactional id over; returns whether that has happened yet: then every earlier
        producer of the id is refused, and its open transaction aborted, or committed (KIP-98).
        """

    def begin(self) -> None:
        """Begin a transaction; costs no request."""

    def produce(self, message: Message) -> None:
        """Put a message into the transaction, on any thread; :meth:`commit` raises if it fails."""

    def commit(self, offsets: Offsets, group: Any, timeout_s: float) -> None:
        """Commit the transaction with these offsets of ``group`` (its ``group_metadata``), or
        nothing; refused if the group knows that membership no more (KIP-447).
        """

    def abort(self, timeout_s: float) -> None:
        """Drop the transaction, if there is one. If that fails, close the producer."""

    def close(self) -> None:
        """Free everything within a second or so; the next :meth:`fence` settles what is open."""


ProducerFactory = Callable[[ProducerSettings], TransactionalProducer]


class MessageInvalid(KafkaError):
    """The broker refuses a message for what it is, or the batch that it is part of."""


class MessageSender(Protocol):
    """An idempotent producer that sends and repeats by itself, on one thread: what is done without
    a failure is acknowledged by all replicas in sync. No message is given up for the time it takes;
    within a partition each is stored once, in order, for as long as the sender lives.
    """

    def open(self, timeout_s: float) -> None:
        """Connect; raises ``ServersUnreachable``, ``AccessRefused``, ``MissingPiece``, others."""

    def partitions(self, topic: str) -> int:
        """How many partitions it has, asked seldom; raises ``UnknownTopic``, ``KafkaAway``."""

    def send(self, message: Message, partition: int) -> Any:
        """Hand over a message for this partition; returns its receipt (``is_done``)."""

    def wait(self, receipt: Any, until_s: float) -> None:
        """Wait until this one is done, or until ``until_s`` of ``clock.now_s``."""

    def failure(self, receipt: Any, topic: str) -> LeaderqError | None:
        """Return why a message to ``topic`` that is done has failed; ``None``: it is acknowledged.

        ``MessageTooLarge`` and :class:`MessageInvalid` may be said of innocent messages beside the
        one at fault. After any failure but ``KafkaAway`` the sender's place in the sequence of its
        messages may be lost: close it.
        """

    def offset(self, receipt: Any) -> int:
        """Return the offset of an acknowledged message; -1 if the broker did not say."""

    def trouble(self) -> LeaderqError | None:
        """Return why messages are not acknowledged, if it is known and does not pass by itself."""

    def close(self) -> None:
        """Let go within about a second, and send nothing more. Never raises."""


SenderFactory = Callable[[ProducerSettings], MessageSender]
