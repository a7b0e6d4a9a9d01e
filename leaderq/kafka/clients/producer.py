"""The interface of a producer, which is implemented for each client library, and what it sends.

A :class:`ProducerClient` sends messages in transactions, if its settings have a transactional id,
or else each by itself. Its states: new, open, fenced in, in a transaction, closed. The broker is
authoritative: it knows one *epoch* for each transactional id, that of the producer that was fenced
in last, and refuses all others.

Errors are those of :mod:`leaderq.kafka.clients.consumer`. After ``KafkaAway`` the *same* call may
be repeated, and goes on where it was. After ``MembershipLost`` (the group refused the offsets) and
every error that a retry does not help (``EffectRefused``: a message is not accepted), nothing of
the transaction was committed: abort it. After ``BatchLost`` only the committed offsets tell what
happened, once another producer was fenced in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple, Protocol

from kafka.partitioner.default import murmur2  # type: ignore[import-untyped]

from leaderq.base import clock
from leaderq.errors import (
    KafkaError,
    KafkaFenced,
    LeaderqError,
    MessageTooLarge,
    UnknownTopic,
    with_cause,
)
from leaderq.kafka.clients.consumer import (
    BatchLost,
    ClientSettings,
    EffectRefused,
    KafkaAway,
    KafkaClient,
    MembershipLost,
    MessageInvalid,
    Offsets,
    OutOfOrder,
)

MAX_MESSAGE_BYTES = 1_000_000
"""The largest message of a topic with the default ``max.message.bytes``, less the overhead."""
ROOM_BYTES = 1024
"""Room for the bytes that the protocol adds to the largest message."""
METADATA_S = 2.0
"""How long a topic may be unknown."""
TRANSACTION_TIMEOUT_S = 60.0
"""How long a broker keeps an open transaction of a producer that is gone."""


class Message(NamedTuple):
    """One message to send. ``value`` and ``key`` are bytes, or one of them is ``None``; ``headers``
    are pairs of name and bytes (``None``: sent as ``b""``). Without a ``partition`` the partitioner
    chooses: all messages of one key go to one partition, the same with all clients.
    ``timestamp_ms``: milliseconds since the epoch; default: the time of sending, which librdkafka
    also takes for 0.
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
    """Return ``message``, its headers as a tuple, if a client can send it and it has at most
    ``limit`` bytes; else raise a KafkaError. Call it where the message is made, so that the error
    is raised there.
    """
    topic, value, key, headers, partition, timestamp_ms = message
    # The usual message, at a fifth of the cost: this runs for each one.
    is_usual = headers == () and partition is None and timestamp_ms is None
    if is_usual and type(value) is bytes and type(topic) is str:
        size = len(value) if key is None else len(value) + len(key) if type(key) is bytes else limit
        if size < limit and topic:
            return message
    try:
        message = message._replace(headers=tuple(map(_pair, headers or ())))
        problem = next(_problems(message), None)
    except (TypeError, ValueError) as exc:  # no sequence of headers, or no text in UTF-8
        problem = str(exc)
    if problem:
        raise KafkaError(f"a message to topic {topic!r} cannot be sent: {problem}")
    if message.size > limit:
        raise MessageTooLarge(
            f"a message to topic {topic!r} cannot be sent: it has {message.size} bytes, and"
            f" the limit is {limit}; send less, or raise max_message_bytes and the topic's"
        )
    return message


def _pair(header: Any) -> Any:
    """Return a header as every client takes it: a tuple. A value ``None``, which records may have,
    becomes ``b""``, because kafka-python sends no other.
    """
    match header:
        case [name, value]:
            return name, b"" if value is None else value
    return header


def _problems(message: Message) -> Iterator[str]:
    given: tuple[Any, ...] = message  # by a user who may not check types
    topic, value, key, headers, partition, timestamp_ms = given
    if not isinstance(topic, str) or not topic:
        yield "its topic must be a name"
    for what, part in (("value", value), ("key", key)):
        if part is not None and not isinstance(part, bytes):
            yield f"its {what} is {type(part).__name__}, not bytes; serialize it first"
    if value is None and key is None:
        yield "it has neither key nor value; a tombstone needs a key"
    for what, number, bits in (("partition", partition, 31), ("timestamp_ms", timestamp_ms, 63)):
        if number is not None and (not isinstance(number, int) or abs(number) >> bits):
            yield f"its {what} is {number!r}, not a whole number of {bits} bits"
    if isinstance(partition, int) and partition < 0:
        yield f"its partition is {partition}; leave it out to have one chosen"
    for header in headers:
        match header:
            case str() as name, bytes():
                name.encode()
            case _:
                yield f"header {header!r} is not a pair of str and bytes"


@dataclass(frozen=True)
class ProducerSettings(ClientSettings):
    """``transactional_id`` is the name by which producers fence each other, the same for all
    leaders. A transaction open for longer than ``transaction_timeout_s`` is refused, so that must
    exceed the longest commit.
    """

    transactional_id: str | None = None
    transaction_timeout_s: float = TRANSACTION_TIMEOUT_S
    max_message_bytes: int = MAX_MESSAGE_BYTES


class LibraryProducer(Protocol):
    """What each client library does in its own way for a :class:`ProducerClient`."""

    def produce(self, message: Message) -> None:
        """Send ``message``, in the transaction if there is one; any thread may call this. If it
        fails later, ``commit`` or ``send_all`` raises.
        """

    # ---- in transactions -------------------------------------------------------------------------

    def fence(self, timeout_s: float) -> bool:
        """Take the transactional id over; returns whether that has happened yet. From then on the
        broker refuses every earlier producer of the id, and their open transaction is settled
        (KIP-98).
        """

    # ---- each message by itself ------------------------------------------------------------------

    def partitions(self, topic: str) -> int:
        """Return how many partitions ``topic`` has; asks the cluster seldom. Raises
        ``UnknownTopic``, ``KafkaAway``.
        """

    def send_run(self, messages: Sequence[Message], partition: int, receipts: list[Any]) -> None:
        """Give the client messages for one topic and partition, in order; adds their receipts to
        ``receipts``. Once a receipt ``is_done`` and :meth:`failure` returns ``None``, all replicas
        in sync have the message. One receipt may stand for all: it is done when the last message is
        acknowledged; if it has failed, nothing is known of the other messages.
        """

    def wait(self, receipt: Any, until_s: float) -> None:
        """Wait until ``receipt`` is done, or the time ``until_s`` of ``clock.now_s`` has come."""

    def failure(self, receipt: Any, topic: str) -> LeaderqError | None:
        """Return why the message of ``receipt``, which is done, has failed; ``None``: it has not.

        ``MessageTooLarge`` and :class:`MessageInvalid` may also be told of innocent messages beside
        the one at fault. After any failure except ``KafkaAway`` the client's place in the sequence
        of its messages may be lost: close it.
        """

    def offset(self, receipt: Any) -> int:
        """Return the offset of an acknowledged message; -1 if the broker did not say."""

    # ---- steps, each of which may be repeated ----------------------------------------------------

    def _begin(self) -> None: ...

    def _acknowledged(self, deadline: float) -> bool:
        """Wait until every message is acknowledged, or one has failed; return whether nothing is in
        flight any more.
        """

    def _send_offsets(self, offsets: Offsets, group: Any, deadline: float) -> None: ...

    def _complete(self, deadline: float) -> None: ...

    def _give_up(self, deadline: float) -> None: ...


@lru_cache(maxsize=65_536)
def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition to which Java's and kafka-python's producers send this key."""
    return int(murmur2(key) & 0x7FFFFFFF) % partitions


def given_up(error: LeaderqError) -> LeaderqError:
    """Return the error to raise for a message that the client will not send any more: ``BatchLost``
    for ``KafkaAway``, because the transaction cannot be completed; any other as it is.
    """
    return BatchLost(str(error)) if isinstance(error, KafkaAway) else error


class TransactionStage(Enum):
    """How far a producer is with a transaction. ``ASKED``: its commit was asked for, and was
    neither acknowledged nor refused.
    """

    NONE = "none"
    OPEN = "open"
    ASKED = "asked"


class ProducerClient(KafkaClient, LibraryProducer):
    """An idempotent producer of a client library. Only one thread uses it, except for ``produce``.

    No message is given up because it takes long. Within a partition each message is stored once, in
    order, for as long as the client lives. What is not sent when it is closed is dropped; the next
    :meth:`fence` ends a transaction that is left open.
    """

    _settings: ProducerSettings
    _ONE_BY_ONE: ClassVar[Mapping[str, Any]] = {}
    """The library's options for :meth:`send_one_by_one`."""

    def __init__(self, settings: ProducerSettings) -> None:
        super().__init__(settings)
        self._stage = TransactionStage.NONE
        self._failed: list[tuple[str, BaseException]] = []  # messages, by their topics

    @property
    def _producer(self) -> Any:
        return self._opened("producer")

    def send_one_by_one(self) -> None:
        """Refuse no message for the size of its batch, and send no batch before the one in front of
        it was answered, so that the first refusal is heard first. Call it before :meth:`open`.
        """
        options = {**self._settings.options, **self._ONE_BY_ONE}
        self._settings = replace(self._settings, options=options)

    def send_all(self, messages: Iterable[Message], timeout_s: float) -> int:
        """Send all messages, outside transactions; connects first, if need be. Returns how many
        they are, once the cluster has them all. Raises if it has not ``timeout_s`` seconds after
        the last was sent (``KafkaAway``), or if one fails; then nothing is known about any of them.
        """
        limit, count = self._settings.max_message_bytes, 0
        self._failed = []
        try:
            for message in messages:
                wanted = checked(message, limit)
                if self._client is None:
                    self.open()
                self.produce(wanted)
                count += 1
            if count:
                self._flush(clock.now_s() + timeout_s)
            return count
        except BaseException:
            # messages it still holds must not be sent after the caller has seen an error
            self.close()
            raise

    def trouble(self) -> LeaderqError | None:
        """Return the known reason why messages are not acknowledged, if it does not pass by itself;
        else ``None``.
        """
        return None

    def _flush(self, deadline: float) -> None:
        is_done = self._acknowledged(deadline)
        if self._failed:
            raise self._failure()
        if not is_done:
            where = f"Kafka {self._settings.address!r}"
            raise self.trouble() or KafkaAway(f"{where} has not acknowledged all messages yet")

    def _failure(self) -> LeaderqError:
        """Return why the first message that was refused has failed, else the first that has failed:
        those behind it fail too, perhaps before it, because their place in the sequence of messages
        is lost.
        """
        found = [
            (self._translated(error, f"producing to {topic!r}"), error)
            for topic, error in self._failed
        ]
        told = next((one for one in found if isinstance(one[0], REFUSED_MESSAGES)), found[0])
        return with_cause(given_up(told[0]), told[1])

    def begin(self) -> None:
        """Begin a transaction; costs no request."""
        self._failed = []
        self._begin()
        self._stage = TransactionStage.OPEN

    def commit(self, offsets: Offsets, group: Any, timeout_s: float) -> None:
        """Commit the transaction together with ``offsets`` of ``group`` (a consumer's
        ``group_metadata``), or nothing. It is refused if the group does not know that membership
        (KIP-447). With kafka-python ``group`` may be a name: then only the transactional id fences.
        """
        deadline = clock.now_s() + timeout_s
        if self._stage is not TransactionStage.ASKED:
            try:
                self._flush(deadline)
            except (*REFUSED_MESSAGES, OutOfOrder) as exc:
                raise EffectRefused(exc) from exc
            if group is None:  # the broker accepts these offsets from anybody, whoever holds it
                raise MembershipLost("the consumer is not a member of its group at the moment")
            self._send_offsets(offsets, group, deadline)
        self._stage = TransactionStage.ASKED
        try:
            self._complete(deadline)
        except (KafkaAway, KafkaFenced, BatchLost):
            raise
        except LeaderqError as exc:
            raise BatchLost(f"{exc}; whether the transaction was committed is not known") from exc
        self._stage = TransactionStage.NONE

    def abort(self, timeout_s: float) -> None:
        """Drop the transaction, if there is one. If that fails, close the producer."""
        if self._stage is TransactionStage.NONE:
            return
        if self._stage is TransactionStage.ASKED:
            what = "a transaction whose commit was asked for cannot be aborted"
            raise KafkaError(f"{what}; close this producer")
        self._give_up(clock.now_s() + timeout_s)
        self._stage = TransactionStage.NONE


ProducerFactory = Callable[[ProducerSettings], ProducerClient]

REFUSED_MESSAGES = MessageTooLarge, MessageInvalid, UnknownTopic
"""Why a message is refused for what it is, or for where it is to go."""
