"""A :class:`~leaderq.kafka.clients.producer.ProducerClient` on kafka-python.

Its sender is asked once for each step of a transaction, and each call waits for the same answer,
with a bound (B38); so a commit that was not answered can be completed later. Besides that it leans
on B6, B13, B14, B26 and B39.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, ClassVar

from kafka import KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka import errors as native

from leaderq.base import clock
from leaderq.errors import LeaderqError, UnknownTopic
from leaderq.kafka.clients import private_api
from leaderq.kafka.clients.client_options import for_client, in_kafka_pythons_names, producer_table
from leaderq.kafka.clients.consumer import KafkaAway, Offsets
from leaderq.kafka.clients.kafka_python_connection import (
    connected,
    connection_options,
    quiet_client_logs,
    translated,
)
from leaderq.kafka.clients.producer import (
    METADATA_S,
    ROOM_BYTES,
    Message,
    ProducerClient,
    ProducerSettings,
)
from leaderq.kafka.record import Partition, epoch_of

_FOR_EVER_MS = 2**31 - 1
_SEND_OFFSETS, _COMMIT, _ABORT = "send_offsets_to_transaction", "begin_commit", "begin_abort"
_CLOSE_S = 1.0
_place = lru_cache(maxsize=4096)(TopicPartition)


def producer_options(settings: ProducerSettings, open_timeout_s: float = 10.0) -> dict[str, Any]:
    return {
        **connection_options(settings.address, settings.security, open_timeout_s=open_timeout_s),
        **in_kafka_pythons_names(producer_table(settings)),
        # A message that the client gives up is one that we would send a second time.
        "delivery_timeout_ms": _FOR_EVER_MS,
        "metrics_enabled": False,  # costs time at every message, and nobody reads it
        "acks": "all",
        # Batches grow while the one before is on the wire, and a commit flushes.
        "linger_ms": 0,
        "batch_size": 262_144,  # 16 kB by default: one request for every 16 messages of 1 kB
        "max_request_size": max(1_048_576, settings.max_message_bytes + ROOM_BYTES),
        "max_block_ms": int(METADATA_S * 1000),
        "request_timeout_ms": int(settings.request_timeout_s * 1000),
        "allow_auto_create_topics": False,  # an unknown topic is an error here, not a wish
        **for_client(KafkaProducer, settings.options),
    }


class KafkaPythonProducer(ProducerClient):
    """See :class:`~leaderq.kafka.clients.producer.ProducerClient`. It uses private parts of the
    client, through ``private_api``.
    """

    _natives = (native.KafkaError,)
    # It sends a batch that is too large again in halves, by itself.
    _ONE_BY_ONE: ClassVar[Mapping[str, Any]] = {"max_in_flight_requests_per_connection": 1}

    def __init__(self, settings: ProducerSettings) -> None:
        super().__init__(settings)
        self.notes: Mapping[Partition, str] = {}  # what the next commit notes, if not the mark
        self._steps: dict[str, Any] = {}
        self._append: Any = None
        self._wake: Any = None

    def _connect(self, until_s: float) -> None:
        quiet_client_logs()
        settings = self._settings
        if settings.transactional_id is not None:
            private_api.require_the_version_that_was_read()
        options = producer_options(settings, until_s - clock.now_s())
        self._client = private_api.mended(connected(KafkaProducer, settings.address, options))
        self._append, self._wake = private_api.appender(self._client)
        self._steps = {}

    # ---- messages --------------------------------------------------------------------------------

    def partitions(self, topic: str) -> int:
        if known := private_api.cluster_of(self._client).partitions_for_topic(topic):
            return len(known)
        asked_s = clock.now_s()
        try:
            return len(self._client.partitions_for(topic))
        except native.KafkaError as exc:
            raise self._unsendable(exc, topic, asked_s) from exc

    def send_run(self, messages: Sequence[Message], partition: int, receipts: list[Any]) -> None:
        """Give the client messages, as its own ``send`` would, at half the cost."""
        for topic, value, key, headers, _, timestamp_ms in messages:
            fields = _place(topic, partition), timestamp_ms, key, value, list(headers)
            try:
                receipt, is_full, is_new, _ = self._append(*fields, abort_on_new_batch=False)
            except (native.KafkaError, ValueError, AssertionError) as exc:
                raise self._unsendable(exc, topic, clock.now_s()) from exc
            if is_full or is_new:
                self._wake()
            receipts.append(receipt)

    def wait(self, receipt: Any, until_s: float) -> None:
        left_s = until_s - clock.now_s()
        if left_s > 0 and not receipt.is_done:
            try:
                receipt.get(timeout=left_s)
            except Exception:  # noqa: BLE001 - see failure
                return

    def failure(self, receipt: Any, topic: str) -> LeaderqError | None:
        error = receipt.exception
        return None if error is None else self._translated(error, f"sending to {topic!r}")

    def offset(self, receipt: Any) -> int:
        return int(receipt.value.offset)

    # ---- transactions ----------------------------------------------------------------------------

    def fence(self, timeout_s: float) -> bool:
        deadline = clock.now_s() + timeout_s
        return self._is_taken("initialize_transactions", "fencing in a producer", deadline)

    def _begin(self) -> None:
        for step in (_SEND_OFFSETS, _COMMIT, _ABORT):
            self._steps.pop(step, None)
        with self._errors_translated("beginning a transaction"):
            private_api.forget_refused_offsets(self._producer)
            self._producer.begin_transaction()

    def produce(self, message: Message) -> None:
        topic, value, key, headers, partition, timestamp_ms = message
        asked_s, failed = clock.now_s(), self._failed
        try:
            more = list(headers), partition, timestamp_ms
            sent = self._producer.send(topic, value, key, *more)
        except (native.KafkaError, ValueError, AssertionError) as exc:
            raise self._unsendable(exc, topic, asked_s) from exc
        sent.add_errback(lambda error: failed.append((topic, error)))

    def _unsendable(self, exc: Exception, topic: str, asked_s: float) -> LeaderqError:
        is_late = isinstance(exc, native.KafkaTimeoutError)
        if is_late and private_api.metadata_came_after(self._client, asked_s):
            return UnknownTopic(f"there is no topic {topic!r}; create it, or correct the name")
        if isinstance(exc, native.KafkaError):
            return self._translated(exc, f"sending to {topic!r}")
        return UnknownTopic(f"sending to {topic!r}: {exc}")  # a partition that is not there

    def _acknowledged(self, deadline: float) -> bool:
        while private_api.has_unacknowledged(self._producer) and not self._failed:
            left_s = deadline - clock.now_s()
            if left_s <= 0:
                return False
            # A time-out; the other error is said of a batch that was too large and goes in halves.
            with suppress(native.KafkaTimeoutError, native.UnknownError):
                self._producer.flush(timeout=left_s)
        return True

    def _send_offsets(self, offsets: Offsets, group: Any, deadline: float) -> None:
        wanted = {
            TopicPartition(*where): OffsetAndMetadata(
                at, self.notes.get(where, self._settings.mark), epoch_of(at)
            )
            for where, at in offsets.items()
        }
        doing = "sending offsets to a transaction"
        self._take(_SEND_OFFSETS, doing, deadline, wanted, group)

    def _complete(self, deadline: float) -> None:
        self._take(_COMMIT, "committing a transaction", deadline)

    def _give_up(self, deadline: float) -> None:
        self._take(_ABORT, "aborting a transaction", deadline)

    def _take(self, step: str, doing: str, deadline: float, *args: Any) -> None:
        if not self._is_taken(step, doing, deadline, *args):
            raise KafkaAway(f"Kafka {self._settings.address!r} has not answered yet")

    def _is_taken(self, step: str, doing: str, deadline: float, *args: Any) -> bool:
        """Ask once for a step of the transaction, then wait until ``deadline``; returns whether it
        was taken. A repeated call only waits.
        """
        wait_ms = max(0.0, deadline - clock.now_s()) * 1000
        with self._errors_translated(doing):
            if step not in self._steps:
                self._steps[step] = private_api.started(self._producer, step, *args)
            return bool(self._steps[step].wait(timeout_ms=wait_ms))

    def _let_go(self) -> None:
        private_api.drop(self._client, _CLOSE_S)

    def _translated(self, exc: BaseException, doing: str) -> LeaderqError:
        """Return leaderq's error for ``exc``, or for the earlier error that ``exc`` refers to."""
        earlier = None if self._client is None else private_api.transaction_error(self._client)
        if type(exc) is native.KafkaError and isinstance(earlier, native.KafkaError):
            exc = earlier
        return translated(exc, doing, self._settings.address)
