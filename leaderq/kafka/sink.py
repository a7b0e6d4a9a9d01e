"""Kafka as the sink of a :class:`~leaderq.producing.BufferedProducer`.

The broker is authoritative: confirmed is what all replicas in sync have acknowledged. One
idempotent client sends and repeats by itself, each message once and in order within its partition,
for as long as it lives. Records that it holds and that are not acknowledged in time are returned to
the producer as *again*, with ``SinkBusy``, and recognised when they come again. On each failure:

* **the brokers are unreachable**: the client goes on trying, and no message is sent twice;
* **a partition has no leader**: the sink waits for the other partitions, a second longer for this
  one, and after that not for it at all. Only records for that partition are delayed (if the
  producer is given the ``key``; otherwise all records are one line);
* **no broker at the first connection, or no metadata of a topic**: ``SinkAway``;
* **a message is larger than** ``max_message_bytes``, or than its topic accepts, or is invalid: that
  record is refused, the others are sent;
* **access is refused, a topic does not exist**: ``SinkBroken``, until somebody mends it; every
  record is kept;
* **the client itself fails** (its place in the sequence is lost): it is replaced, and records that
  were not confirmed are sent again; they may be stored twice, each time in order;
* **close, or the process is killed**: records that the client still holds are dropped. They may
  have reached the broker; if a journal sends them again, they are stored twice.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

from leaderq.base import clock
from leaderq.base.arguments import require, wanted
from leaderq.config import KafkaSecurity
from leaderq.errors import (
    AccessRefused,
    ConfigurationError,
    LeaderqError,
    MessageTooLarge,
    ServersUnreachable,
    SinkAway,
    SinkBroken,
    SinkBusy,
    UnknownTopic,
    with_cause,
)
from leaderq.kafka.clients import transport
from leaderq.kafka.clients.client_options import ClientLibrary, option_problems
from leaderq.kafka.clients.consumer import KafkaAway, MessageInvalid
from leaderq.kafka.clients.producer import (
    MAX_MESSAGE_BYTES,
    Message,
    ProducerClient,
    ProducerSettings,
    checked,
    partition_of,
)
from leaderq.kafka.record import TOPIC_RULE, is_topic_name
from leaderq.observability import tracing
from leaderq.producing.sinks import BatchOutcome

_LAG_S = 1.0
_GLANCE_S = 0.05
_LOOK_S = 0.1
_UNSENDABLE = KafkaAway | UnknownTopic | AccessRefused | None
_VERDICTS = (MessageTooLarge, MessageInvalid)
_NEW = tuple.__new__  # of a named tuple, without the call in Python that its own is
_Lane = tuple[list[int], list[Message]]


class KafkaPlace(NamedTuple):
    """Where a message is stored; ``offset`` is -1 if the broker did not say."""

    topic: str
    partition: int
    offset: int


class KafkaSink:
    """Sends records to a topic, or each to its own.

    A record is ``bytes`` (the value), ``(key, value)``, ``(key, value, headers)`` or a whole
    :class:`~leaderq.kafka.clients.producer.Message` (all six fields, also as a plain tuple, which
    is how it comes out of a journal). Key and value are ``bytes``, ``str`` (sent as UTF-8) or
    ``None``. All records of a key go to one partition, chosen as Java's and kafka-python's
    producers do.
    The future of :meth:`~leaderq.producing.BufferedProducer.submit` returns a :class:`KafkaPlace`.

    ``client``: ``"kafka-python"``, or ``"confluent"``, which is several times as fast (extra
    ``leaderq[confluent]``). ``options`` are its own, on top of ours (``compression_type="gzip"``;
    ``**{"compression.type": "lz4"}``); :mod:`leaderq.kafka.clients.client_options` says which are
    refused.

    *Guarantees:* confirmed means acknowledged by all replicas in sync; within a key the order is
    that of the batches.
    *Not guaranteed:* exactly once over a crash of the process or of the client.

    :raises ConfigurationError: ``client`` is not one of the two. MissingPiece: not installed.
    """

    def __init__(
        self,
        address: str,
        topic: str | None = None,
        *,
        client: str = "kafka-python",
        max_message_bytes: int = MAX_MESSAGE_BYTES,
        security: KafkaSecurity | None = None,
        client_id: str = "leaderq",
        open_timeout_s: float = 10.0,
        **options: Any,
    ) -> None:
        try:
            library = ClientLibrary(client)
        except ValueError:
            what = f"client={client!r}: give 'kafka-python' or 'confluent'"
            raise ConfigurationError(what) from None
        require(
            *option_problems(library, options, "the options of a KafkaSink"),
            wanted("topic", topic, not topic or is_topic_name(topic), TOPIC_RULE),
        )
        self._make = transport.producers_of(library)
        self._topic, self._largest = topic, max_message_bytes
        self._settings = ProducerSettings(
            address,
            client_id=client_id,
            security=security or KafkaSecurity(),
            open_timeout_s=open_timeout_s,
            max_message_bytes=max_message_bytes,
            options=options,
        )
        self._client: ProducerClient | None = None
        self._batches = itertools.count()
        self._kept: dict[int, list[_Kept]] = {}  # by the record's id; what the client still holds
        self._stuck: set[tuple[str, int]] = set()
        # How many records go together; fewer after a refusal, until the one at fault was alone.
        self._most: int | None = None

    def send(self, batch: Sequence[Any], timeout_s: float) -> BatchOutcome:
        return self.hand_over(batch, timeout_s)()

    def hand_over(self, batch: Sequence[Any], timeout_s: float) -> Callable[[], BatchOutcome]:
        deadline = clock.now_s() + timeout_s
        client = self._connected(timeout_s)
        part = batch if self._most is None else batch[: self._most]
        sending = _Sending(part, getattr(batch, "waited", range(len(part))))
        for topic, lanes in self._sorted(client, sending).items():
            for place, lane in enumerate(lanes):
                self._send_lane(client, sending, (topic, place), *lane)
        return partial(self._heard, client, sending, deadline, len(batch))

    def _heard(
        self, client: ProducerClient, sending: _Sending, deadline: float, count: int
    ) -> BatchOutcome:
        if client is self._client:
            self._wait(client, sending, deadline)
        outcome = self._outcome(client, sending)
        sent = len(sending.records)
        return outcome._replace(again=[*outcome.again, *range(sent, count)])

    def close(self, timeout_s: float) -> None:
        self._drop()

    def with_context(self, record: Any) -> Any:
        """Return the record as a message whose headers carry the context of a span of its own, a
        child of the current one. Return the record unchanged if :meth:`send` would refuse it, or
        that message.
        """
        try:
            message = self._message(record)
            headers = tracing.sent_record(message.topic, message.headers)
            return checked(message._replace(headers=headers), self._largest)
        except Exception:  # noqa: BLE001 - send refuses it, and says why
            return record

    def _connected(self, timeout_s: float) -> ProducerClient:
        if self._client is None:
            client = self._make(self._settings)
            try:
                client.open(timeout_s)
            except ServersUnreachable as exc:
                raise SinkAway(str(exc)) from exc
            except LeaderqError as exc:
                raise SinkBroken(str(exc)) from exc
            self._client = client
        return self._client

    def _drop(self) -> None:
        client, self._client = self._client, None
        self._kept.clear()
        self._stuck.clear()
        if client is not None:
            client.close()

    # ---- handing over ----------------------------------------------------------------------------

    def _sorted(self, client: ProducerClient, sending: _Sending) -> dict[str, list[_Lane]]:
        """Return the messages by topic and partition; of a topic that cannot be sent to now none,
        and no partition.
        """
        number = next(self._batches)
        topics: dict[str, list[_Lane]] = {}
        for at, record in enumerate(sending.records):
            if self._kept and self._is_kept(sending, at, record):
                continue
            try:
                message = self._message(record)
            except MemoryError:
                raise
            except Exception as exc:  # noqa: BLE001 - whatever a record raises is its own fault
                sending.refused[at] = exc
                continue
            topic, _, key, _, partition, _ = message
            if (lanes := topics.get(topic)) is None:
                lanes = topics[topic] = self._lanes(client, sending, topic)
            if not lanes:
                sending.left.append(at)
                continue
            if partition is None and key is not None:
                partition = partition_of(key, len(lanes))
            elif partition is None:
                partition = self._free(topic, len(lanes), number)
            elif partition >= len(lanes):
                what = f"topic {topic!r} has {len(lanes)} partitions, and no number {partition}"
                sending.refused[at] = ConfigurationError(what)
                continue
            lane = lanes[partition]
            lane[0].append(at)
            lane[1].append(message)
        return topics

    @staticmethod
    def _lanes(client: ProducerClient, sending: _Sending, topic: str) -> list[_Lane]:
        try:
            return [([], []) for _ in range(client.partitions(topic))]
        except LeaderqError as exc:
            sending.error = exc
            return []

    def _is_kept(self, sending: _Sending, at: int, record: Any) -> bool:
        """Whether the client still holds this record; then its receipt is noted."""
        kept = self._kept.get(id(record), [])
        if kept:
            _, sending.places[at], sending.receipts[at] = kept.pop(0)
        if not kept:
            self._kept.pop(id(record), None)
        return sending.receipts[at] is not None

    def _send_lane(
        self,
        client: ProducerClient,
        sending: _Sending,
        place: tuple[str, int],
        positions: list[int],
        messages: list[Message],
    ) -> None:
        """Give ``messages`` to one partition, in runs. A record for whose place somebody waits is
        the last of its run. After a refusal each message is a run, to find the one at fault.
        """
        last, ends = len(positions), [*range(1, len(positions) + 1)]
        if self._most is None:
            waited = sending.waited
            ends = [at for at in ends if positions[at - 1] in waited] if waited else []
            ends += [last] if last and last not in ends[-1:] else []
        receipts: list[Any] = []
        try:
            for end in ends:
                while len(receipts) < end:
                    try:
                        client.send_run(messages[len(receipts) : end], place[1], receipts)
                    except _VERDICTS as exc:
                        sending.refused[positions[len(receipts)]] = exc
                        receipts.append(None)
        except LeaderqError as exc:
            sending.error = exc  # what follows would overtake: it is left
        for at, receipt in zip(positions, receipts, strict=False):
            sending.places[at], sending.receipts[at] = place, receipt
        sending.left += positions[len(receipts) :]

    def _message(self, record: Any) -> Message:
        """Return the record as a message that a client can send; raise if it cannot be sent."""
        headers, partition, timestamp_ms = (), None, None
        if isinstance(record, tuple) and len(record) == 2:
            topic, (key, value) = self._topic, record
        elif isinstance(record, tuple) and len(record) == 3:
            topic, (key, value, headers) = self._topic, record
        elif isinstance(record, tuple) and len(record) == len(Message._fields):
            topic, value, key, headers, partition, timestamp_ms = record
        elif isinstance(record, bytes | str):
            topic, key, value = self._topic, None, record
        else:
            raise ConfigurationError(
                f"a {type(record).__name__} is not a Kafka record; send bytes, (key, value), "
                "(key, value, headers) or a Message"
            )
        if not (topic := topic or self._topic):
            raise ConfigurationError(
                "a record names no topic, and this KafkaSink has none; give KafkaSink(address,"
                " topic)"
            )
        if topic != self._topic and not is_topic_name(topic):
            raise ConfigurationError(f"{topic!r} cannot be the name of a topic; use {TOPIC_RULE}")
        key = key.encode() if isinstance(key, str) else key
        value = value.encode() if isinstance(value, str) else value
        message = _NEW(Message, (topic, value, key, headers, partition, timestamp_ms))
        return checked(message, self._largest)

    def _free(self, topic: str, count: int, number: int) -> int:
        """Return the partition to which all messages of a batch go that have neither partition nor
        key: one that is not stuck.
        """
        turns = ((number + more) % count for more in range(count))
        return next((one for one in turns if (topic, one) not in self._stuck), number % count)

    # ---- hearing of them -------------------------------------------------------------------------

    def _wait(self, client: ProducerClient, sending: _Sending, deadline: float) -> None:
        """Wait for all messages; if only some are for stuck partitions, only for the others."""
        undone = [one for one in dict.fromkeys(sending.receipts) if one is not None]
        if self._stuck:
            pairs = zip(sending.places, sending.receipts, strict=True)
            free = [one for place, one in pairs if one is not None and place not in self._stuck]
            if not free:
                deadline = min(deadline, clock.now_s() + _GLANCE_S)
            undone = free or undone
        count, heard_s = len(undone), float("inf")
        while undone := [one for one in undone if not one.is_done]:
            now = clock.now_s()
            if len(undone) < count or (heard_s > now and client.trouble() is not None):
                count, heard_s = len(undone), now
            until_s = min(deadline, heard_s + _LAG_S)
            if now >= until_s:
                return
            client.wait(undone[-1], min(until_s, now + _LOOK_S))

    def _outcome(self, client: ProducerClient, sending: _Sending) -> BatchOutcome:
        undone, failed = self._unconfirmed(client, sending)
        again = sorted({*undone, *failed, *sending.left})

        def place_of(at: int) -> KafkaPlace | None:
            receipt = sending.receipts[at]
            return (
                None if receipt is None else KafkaPlace(*sending.places[at], client.offset(receipt))
            )

        is_current = client is self._client
        if not again:
            if self._most is not None and is_current:
                self._most = 2 * self._most if self._most <= len(sending.records) else None
            return BatchOutcome(sending.refused, place_of=place_of)
        if not is_current:
            gone = SinkAway("the client that was given these was replaced, for those before them")
            return BatchOutcome(sending.refused, again, gone, place_of)
        verdicts = (error for error in failed.values() if isinstance(error, _VERDICTS))
        # An error of a message itself decides, if there is one.
        why = (
            next(verdicts, None)
            or next(iter(failed.values()), None)
            or (client.trouble() if undone or sending.left else None)
        )
        if isinstance(why, _VERDICTS):
            # The broker refuses a message; the client fails all behind it, and those beside it,
            # with the same error.
            self._drop()
            if len(again) == 1 and sending.receipts[again[0]] is not None:
                sending.refused[again.pop()] = why
            else:
                self._most = 1
            return BatchOutcome(sending.refused, again, place_of=place_of)
        if not isinstance(why, KafkaAway | None) or not isinstance(sending.error, _UNSENDABLE):
            self._drop()  # it may have lost its place in the sequence, or takes nothing any more
        else:
            self._keep(sending, undone)
        return BatchOutcome(
            sending.refused, again, self._told(why or sending.error, undone), place_of
        )

    @staticmethod
    def _unconfirmed(
        client: ProducerClient, sending: _Sending
    ) -> tuple[list[int], dict[int, LeaderqError]]:
        """Return the positions of records that are not acknowledged yet, and the errors of those
        that have failed, by position.
        """
        heard = dict(zip(sending.receipts, sending.places, strict=True))
        heard.pop(None, None)
        errors = {one: client.failure(one, to[0]) for one, to in heard.items() if one.is_done}
        if len(errors) == len(heard) and not any(errors.values()):
            return [], {}
        given = [(at, one) for at, one in enumerate(sending.receipts) if one is not None]
        failed = {at: why for at, one in given if (why := errors.get(one)) is not None}
        return [at for at, one in given if one not in errors], failed

    def _keep(self, sending: _Sending, undone: list[int]) -> None:
        """Remember the records at ``undone``, which the client still holds; their partitions are
        stuck, and others are not any more.
        """
        left = set(undone)
        for at, receipt in enumerate(sending.receipts):
            if receipt is not None and at not in left:
                self._stuck.discard(sending.places[at])
        for at in undone:
            kept = _Kept(sending.records[at], sending.places[at], sending.receipts[at])
            self._kept.setdefault(id(kept.record), []).append(kept)
            self._stuck.add(kept.place)

    def _told(self, why: LeaderqError | None, undone: list[int]) -> LeaderqError:
        if why is None:
            where = ", ".join(f"{topic}-{number}" for topic, number in sorted(self._stuck)[:5])
            return SinkBusy(
                f"Kafka {self._settings.address!r} has not acknowledged {len(undone)} messages yet,"
                f" to {where}; is it there?"
            )
        kind = SinkBroken if isinstance(why, UnknownTopic | AccessRefused) else SinkAway
        return with_cause(kind(str(why)), why)


class _Kept(NamedTuple):
    """A record that the client holds unacknowledged, with its topic and partition."""

    record: Any
    place: tuple[str, int]
    receipt: Any


class _Sending:
    """What has become of the records of one batch, by their positions in it."""

    def __init__(self, records: Sequence[Any], waited: Iterable[int]) -> None:
        self.records, self.waited = records, frozenset(waited)
        self.receipts: list[Any] = [None] * len(records)
        self.places: list[tuple[str, int]] = [("", 0)] * len(records)
        self.refused: dict[int, BaseException] = {}
        self.left: list[int] = []  # were not given to the client, because of ``error``
        self.error: LeaderqError | None = None
