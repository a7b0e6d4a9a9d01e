"""Kafka as the sink of a :class:`~leaderq.producing.BufferedProducer`, and the reader of what it
packs.

The broker is authoritative: confirmed is what all replicas in sync have acknowledged. One
idempotent producer of kafka-python sends and repeats by itself, each message once and in order
within its partition, for as long as it lives. It buffers without a bound of its own; so it is never
given more than the batch in hand, and the next only when that is settled. On each failure:

* **the brokers are away**: *busy*; the batch stays with the client, which goes on trying (no
  time-out of its own ends that), and no message is sent twice;
* **no broker can be found at the first connection, or a topic's metadata cannot be had**: *away*;
  the batch is given again;
* **a message is larger than** ``max_message_bytes``, or than its topic accepts, or is no message:
  that record is refused, the others are sent;
* **access is refused, a topic does not exist**: *broken*, until somebody mends it; nothing is given
  up;
* **the client itself fails** (its place in the sequence is lost): it is replaced, and what it had
  not seen confirmed is sent again, so that may be there twice, each time in order;
* **close, or the process is killed**: what the client still holds is dropped. It may have reached
  the broker: sent again from a journal, it is there twice.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from kafka import TopicPartition
from kafka import errors as native
from kafka.partitioner.default import murmur2  # type: ignore[import-untyped]

from leaderq.clock import now_s
from leaderq.config import KafkaSecurity
from leaderq.errors import (
    AccessRefused,
    ConfigurationError,
    KafkaError,
    LeaderqError,
    MessageTooLarge,
    ServersUnreachable,
    SinkAway,
    SinkBroken,
    SinkBusy,
    UnknownTopic,
)
from leaderq.kafka.clients import private_api
from leaderq.kafka.clients.client_options import ClientLibrary, option_problems
from leaderq.kafka.clients.consumer import KafkaAway
from leaderq.kafka.clients.kafka_python_connection import translated
from leaderq.kafka.clients.kafka_python_producer import connected_producer, dropped, send_error, sent_by
from leaderq.kafka.clients.producer import MAX_MESSAGE_BYTES, Message, ProducerSettings, checked
from leaderq.kafka.record import Record
from leaderq.producing.frame import EMPTY_BYTES, FRAME_HEADER, Packed, pack_frame, unpack_frame
from leaderq.producing.sinks.sink import ALL_CONFIRMED, BatchOutcome

FRAME_BYTES = 256 << 10
"""How large a frame grows, unless told otherwise."""
_FOR_EVER_MS = 2**31 - 1
_SPOILT = tuple(getattr(native, name) for name in ("InvalidRecordError", "CorruptRecordError", "InvalidTimestampError"))


class KafkaSink:
    """Sends records to a topic, or each to its own.

    A record is ``bytes`` (the value), ``(key, value)``, ``(key, value, headers)`` or a whole
    :class:`~leaderq.kafka.clients.producer.Message` (all six fields, also as a plain tuple, which
    is how it comes out of a journal). Key and value are ``bytes``, ``str`` (sent as UTF-8) or
    ``None``. All of one key go to one partition, as Java's and kafka-python's producers place them.

    ``packing="frame"``: the records of a batch that go to one partition are packed into messages of
    up to ``frame_bytes`` each, with the header ``leaderq-frame``; one acknowledgement confirms them
    all. Readers use :func:`~leaderq.kafka.sink.unpacked`. A frame has no key: it is not for
    compacted topics. ``options`` are kafka-python's own, on top of ours
    (``compression_type="gzip"``); :mod:`leaderq.kafka.clients.client_options` says which are refused.

    *Guarantees:* confirmed means acknowledged by all replicas in sync; within a key the order is
    that of the batches.
    *Not guaranteed:* exactly once over a crash of the process or of the client.
    """

    def __init__(
        self,
        address: str,
        topic: str | None = None,
        *,
        packing: str | None = None,
        frame_bytes: int = FRAME_BYTES,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
        security: KafkaSecurity | None = None,
        client_id: str = "leaderq",
        open_timeout_s: float = 10.0,
        **options: Any,
    ) -> None:
        if packing not in (None, "frame"):
            raise ConfigurationError(f"packing={packing!r}: there is only 'frame', or None")
        if not 0 < frame_bytes <= max_message_bytes:
            raise ConfigurationError(f"frame_bytes={frame_bytes!r}: give 1 to max_message_bytes, {max_message_bytes}")
        self._topic = topic
        self._is_packing = packing == "frame"
        self._frame_bytes = frame_bytes
        if problems := list(option_problems(ClientLibrary.KAFKA_PYTHON, options, "the options of a KafkaSink")):
            raise ConfigurationError(*problems)
        self._settings = ProducerSettings(
            address,
            client_id=client_id,
            security=security or KafkaSecurity(),
            open_timeout_s=open_timeout_s,
            max_message_bytes=max_message_bytes,
            options=options,
        )
        self._client: Any = None
        self._batches = itertools.count()
        self._current: SendBatch | None = None
        self._suspects = 0  # so many records are sent one by one

    def send(self, batch: Sequence[Any], timeout_s: float) -> BatchOutcome:
        """See :class:`~leaderq.producing.Sink`."""
        deadline = now_s() + timeout_s
        part = batch[:1] if self._suspects else batch
        sending = self._current
        if sending is None or not sending.is_of(part):
            client = self._connected(timeout_s)
            sending = self._current = self._packed(part)
            self._hand_over(client, sending)
        if not sending.wait(deadline):
            raise SinkBusy(
                f"Kafka {self._settings.address!r} has not acknowledged {sending.open} messages yet; is it there?"
            )
        self._current = None
        outcome = self._outcome(sending)
        if len(part) == len(batch):
            return outcome
        return outcome._replace(again=[*outcome.again, *range(1, len(batch))])

    def close(self, timeout_s: float) -> None:
        """See :class:`~leaderq.producing.Sink`."""
        self._drop()

    # ---- a batch as messages ---------------------------------------------------------------------

    def _packed(self, batch: Sequence[Any]) -> SendBatch:
        sending = SendBatch(batch)
        limit = self._settings.max_message_bytes
        groups: dict[tuple[str, int], list[tuple[int, Packed]]] = {}
        number = next(self._batches)
        for position, record in enumerate(batch):
            try:
                message = checked(self._message(record), limit)
                if not self._is_packing:
                    sending.messages.append(OutgoingMessage(self._placed(message), [position]))
                    continue
                where = (message.topic, self._partition(message, number))
                piece = Packed(message.key, message.value, message.headers, message.timestamp_ms or -1)
                groups.setdefault(where, []).append((position, piece))
            except (KafkaAway, UnknownTopic, AccessRefused) as exc:
                sending.break_off(position, exc)
                break
            except (KafkaError, ConfigurationError, TypeError) as exc:
                sending.refused[position] = exc
        for where, pieces in groups.items():
            sending.messages += self._frames(where, pieces)
        return sending

    def _message(self, record: Any) -> Message:
        if type(record) is Message:
            return record if record.topic else record._replace(topic=self._named())
        if isinstance(record, tuple):
            if len(record) == len(Message._fields):
                topic, value, key, headers, partition, timestamp_ms = record
                return Message(topic or self._named(), _raw(value), _raw(key), headers, partition, timestamp_ms)
            if len(record) in (2, 3):
                key, value, *more = record
                return Message(self._named(), _raw(value), _raw(key), *more)
        if isinstance(record, bytes | str):
            return Message(self._named(), _raw(record))
        raise ConfigurationError(
            f"a {type(record).__name__} is no Kafka record; send bytes, (key, value), (key, value, headers) or a Message, or give "
            "BufferedProducer a process step that makes one"
        )

    def _named(self) -> str:
        if self._topic is None:
            raise ConfigurationError("a record names no topic, and this KafkaSink has none; give KafkaSink(address, topic)")
        return self._topic

    def _placed(self, message: Message) -> Message:
        """With its partition, if its key says which: the client would work it out from each key,
        again and again.
        """
        count = self._partitions(message.topic)
        if message.partition is not None:
            self._require(message, count)
        elif message.key is not None:
            return message._replace(partition=_partition_of(message.key, count))
        return message

    def _require(self, message: Message, count: int) -> None:
        if message.partition is not None and message.partition >= count:
            raise ConfigurationError(f"topic {message.topic!r} has {count} partitions, and no number {message.partition}")

    def _partition(self, message: Message, number: int) -> int:
        count = self._partitions(message.topic)
        if message.partition is not None:
            self._require(message, count)
            return message.partition
        return number % count if message.key is None else _partition_of(message.key, count)

    def _partitions(self, topic: str) -> int:
        client = self._client
        if known := private_api.partition_count(client, topic):
            return known
        asked_s = now_s()
        try:
            return len(client.partitions_for(topic))
        except native.KafkaError as exc:
            raise send_error(client, exc, topic, asked_s, self._translated) from exc

    def _frames(self, where: tuple[str, int], pieces: Iterable[tuple[int, Packed]]) -> Iterator[OutgoingMessage]:
        size, group = EMPTY_BYTES, list[tuple[int, Packed]]()
        for position, piece in pieces:
            more = piece.frame_bytes
            if group and size + more > self._frame_bytes:
                yield framed(where, group)
                size, group = EMPTY_BYTES, []
            group.append((position, piece))
            size += more
        if group:
            yield framed(where, group)

    # ---- the client ------------------------------------------------------------------------------

    def _hand_over(self, client: Any, sending: SendBatch) -> None:
        append, wake = private_api.appender(client)
        for outgoing in sending.messages:
            topic, value, key, headers, partition, timestamp_ms = outgoing.message
            asked_s = now_s()
            try:
                if partition is None:
                    outgoing.future = sent_by(client, outgoing.message, self._translated)
                    continue
                # What its send() comes to once topic, partition and size are known to be right, at
                # half the cost.
                outgoing.future, is_full, is_new, _ = append(
                    _place(topic, partition), timestamp_ms, key, value, list(headers), abort_on_new_batch=False
                )
                if is_full or is_new:
                    wake()
                continue
            except LeaderqError as exc:
                error = exc
            except (native.KafkaError, ValueError, AssertionError) as exc:
                error = send_error(client, exc, topic, asked_s, self._translated)
            if not isinstance(error, MessageTooLarge):
                # What comes after it would overtake it.
                sending.break_off(min(outgoing.positions), error)
                return
            sending.refused |= dict.fromkeys(outgoing.positions, error)

    def _outcome(self, sending: SendBatch) -> BatchOutcome:
        failed = [outgoing for outgoing in sending.messages if outgoing.future is not None and outgoing.future.failed()]
        if not failed and sending.error is None:
            self._suspects = max(0, self._suspects - 1)
            return BatchOutcome(sending.refused) if sending.refused else ALL_CONFIRMED
        errors = [self._explained(outgoing.future.exception, outgoing.message.topic) for outgoing in failed]
        if any(isinstance(error, MessageTooLarge) for error in errors):
            return self._too_large(sending, failed, errors)
        refused, again, why = sending.refused, list(sending.left), sending.error
        for outgoing, error in zip(failed, errors, strict=True):
            if isinstance(outgoing.future.exception, _SPOILT):
                refused |= dict.fromkeys(outgoing.positions, error)
            else:
                again += outgoing.positions
                why = error
        if why is None:
            return BatchOutcome(refused)
        return BatchOutcome(refused, sorted(set(again) - set(refused)), self._judged(why))

    def _too_large(
        self, sending: SendBatch, failed: Sequence[OutgoingMessage], errors: Sequence[BaseException]
    ) -> BatchOutcome:
        """The broker found a message too large for its topic; the client fails all that were behind
        it with the same error.

        So those that failed are sent again one by one, in order, until the one at fault is alone;
        frames are made smaller first.
        """
        self._drop()
        again = sorted({*sending.left, *(position for outgoing in failed for position in outgoing.positions)})
        largest = max(failed, key=lambda outgoing: outgoing.message.size)
        if len(largest.positions) > 1:
            self._frame_bytes = max(1, largest.message.size // 2)
        elif len(sending.messages) == 1:
            self._suspects = 0
            return BatchOutcome({**sending.refused, **dict.fromkeys(again, errors[0])})
        else:
            self._suspects = len(again)
        return BatchOutcome(sending.refused, again)

    def _judged(self, error: BaseException) -> SinkAway | SinkBroken:
        """What the producer is told. After all but a plain absence the client may have lost its
        place: it is replaced.
        """
        told: SinkAway | SinkBroken
        if isinstance(error, KafkaAway | ServersUnreachable):
            told = SinkAway(str(error))
        else:
            told = SinkBroken(str(error)) if isinstance(error, UnknownTopic | AccessRefused) else SinkAway(str(error))
            self._drop()
        told.__cause__ = error
        return told

    def _explained(self, error: BaseException, topic: str) -> LeaderqError:
        doing = f"sending to {topic!r}"
        if isinstance(error, native.KafkaError):
            return self._translated(error, doing)
        return KafkaError(f"{doing} at Kafka {self._settings.address!r}: {error}")

    def _translated(self, error: native.KafkaError, doing: str) -> LeaderqError:
        return translated(error, doing, self._settings.address)

    def _connected(self, timeout_s: float) -> Any:
        if self._client is None:
            wait_s = max(0.1, min(timeout_s, self._settings.open_timeout_s))
            try:
                self._client = connected_producer(
                    self._settings,
                    # A message that the client gives up is one that we would send a second time.
                    delivery_timeout_ms=_FOR_EVER_MS,
                    bootstrap_timeout_ms=int(wait_s * 1000),
                )
            except ServersUnreachable as exc:
                raise SinkAway(str(exc)) from exc
            except LeaderqError as exc:
                raise SinkBroken(str(exc)) from exc
        return self._client

    def _drop(self) -> None:
        client, self._client, self._current = self._client, None, None
        if client is not None:
            dropped(client)


def _raw(part: Any) -> Any:
    return part.encode() if isinstance(part, str) else part


_place = lru_cache(maxsize=4096)(TopicPartition)


@lru_cache(maxsize=65_536)
def _partition_of(key: bytes, partitions: int) -> int:
    return int(murmur2(key) & 0x7FFFFFFF) % partitions


class OutgoingMessage:
    """One Kafka message, and the positions in the batch of the records that it carries."""

    __slots__ = ("future", "message", "positions")

    def __init__(self, message: Message, positions: list[int]) -> None:
        self.message = message
        self.positions = positions
        self.future: Any = None


class SendBatch:
    """A batch on its way."""

    def __init__(self, batch: Sequence[Any]) -> None:
        self._batch = batch
        self.messages: list[OutgoingMessage] = []
        self.refused: dict[int, BaseException] = {}
        self.left: list[int] = []
        self.error: BaseException | None = None

    def is_of(self, batch: Sequence[Any]) -> bool:
        """Whether it is of these very records."""
        return len(batch) == len(self._batch) and all(a is b for a, b in zip(batch, self._batch, strict=True))

    def break_off(self, position: int, error: BaseException) -> None:
        """Nothing from this position on is sent."""
        self.error = error
        self.left = [at for at in range(position, len(self._batch)) if at not in self.refused]
        self.messages = [outgoing for outgoing in self.messages if outgoing.positions[0] < position]
        for outgoing in self.messages:
            self.left = [at for at in self.left if at not in outgoing.positions]

    @property
    def open(self) -> int:
        """Messages not acknowledged yet."""
        return sum(outgoing.future is not None and not outgoing.future.is_done for outgoing in self.messages)

    def wait(self, deadline: float) -> bool:
        """Until all are acknowledged or have failed; ``False`` if that did not come in time."""
        for outgoing in self.messages:
            future = outgoing.future
            while future is not None and not future.is_done:
                left_s = deadline - now_s()
                if left_s <= 0:
                    return False
                try:
                    future.get(timeout=left_s)
                except Exception:  # noqa: BLE001, S110 - looked at when all are there
                    pass
        return True


def framed(where: tuple[str, int], group: Sequence[tuple[int, Packed]]) -> OutgoingMessage:
    """One message that carries all of ``group``, each with its position in the batch, to that topic
    and partition.
    """
    topic, partition = where
    headers = [(FRAME_HEADER, b"%d" % len(group))]
    message = Message(topic, pack_frame([piece for _, piece in group]), None, headers, partition)
    return OutgoingMessage(message, [position for position, _ in group])


class UnpackedRecord(Record):
    """A record that came in a frame: topic, partition and offset are the frame's; ``frame_index``
    is its place in it, from 0."""

    frame_index: int

    def __reduce__(self) -> Any:
        return _unpacked_record, (*self.as_dict().values(), self.frame_index)


def _unpacked_record(*fields: Any) -> UnpackedRecord:
    *values, index = fields
    record = tuple.__new__(UnpackedRecord, values)
    record.frame_index = index
    return record


def unpacked(records: Iterable[Record]) -> Iterator[Record]:
    """``records`` with each frame replaced by the records in it, in order; others pass as they are.

    For a handler of :class:`~leaderq.kafka.KafkaLeaderCareer` whose topic is fed with
    ``packing="frame"``. A handler that tells records by their offset must add
    :attr:`UnpackedRecord.frame_index`.

    :raises CorruptRecord: a frame is not what was packed.
    """
    for record in records:
        if not any(name == FRAME_HEADER for name, _ in record.headers):
            yield record
            continue
        for index, piece in enumerate(unpack_frame(record.value)):
            timestamp_ms = record.timestamp_ms if piece.timestamp_ms < 0 else piece.timestamp_ms
            yield _unpacked_record(
                record.topic, record.partition, record.offset, timestamp_ms, piece.key, piece.value, piece.headers, index
            )
