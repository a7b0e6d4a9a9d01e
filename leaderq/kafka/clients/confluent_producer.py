"""A :class:`~leaderq.kafka.clients.producer.ProducerClient` on confluent-kafka (librdkafka); needs
``leaderq[confluent]``.

A call that may never return (B20) runs on a thread of its own; if it is late, it is given up
together with its producer. It cannot commit later, because only ``commit_transaction`` does. The
rest leans on B33, B34 and B35.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from leaderq.base import clock
from leaderq.errors import AccessRefused, LeaderqError, UnknownTopic
from leaderq.kafka.clients.client_options import producer_table
from leaderq.kafka.clients.confluent_connection import ConfluentConnection
from leaderq.kafka.clients.consumer import BatchLost, KafkaAway, Offsets
from leaderq.kafka.clients.producer import (
    METADATA_S,
    ROOM_BYTES,
    Message,
    ProducerClient,
    ProducerSettings,
    TransactionStage,
    given_up,
)
from leaderq.kafka.record import epoch_of
from leaderq.threads import SerialExecutor

log = logging.getLogger(__name__)

_CLOSE_S = 1.0
_LATE_S = 5.0
_FLUSH_S = 0.001
_POLL_S = 0.1
_COUNT_KEPT_S = 300.0
_PURGED = {"_PURGE_QUEUE", "_PURGE_INFLIGHT"}


def producer_options(settings: ProducerSettings, connection: ConfluentConnection) -> dict[str, Any]:
    one_by_one = {
        # If the client gave a message up, we would send it a second time.
        "message.timeout.ms": 0,
        "enable.gapless.guarantee": True,
        # The buffer in front of it bounds memory.
        "queue.buffering.max.messages": 10_000_000,
        "queue.buffering.max.kbytes": 2_147_483_647,
    }
    is_transactional = settings.transactional_id is not None
    return {
        **connection.options(),
        **producer_table(settings),
        **({"delivery.report.only.error": True} if is_transactional else one_by_one),
        "socket.timeout.ms": int(settings.request_timeout_s * 1000),
        "linger.ms": 5,  # a flush does not wait for it
        "message.max.bytes": settings.max_message_bytes + ROOM_BYTES,
        # 30 s by default
        "topic.metadata.propagation.max.ms": int(METADATA_S * 1000),
        # the same as Java's and kafka-python's: a key keeps its partition whatever the client
        "partitioner": "murmur2_random",
        **settings.options,
    }


class ConfluentProducer(ProducerClient):
    """See :class:`~leaderq.kafka.clients.producer.ProducerClient`."""

    _ONE_BY_ONE: ClassVar[Mapping[str, Any]] = {"batch.num.messages": 1, "max.in.flight": 1}

    def __init__(self, settings: ProducerSettings) -> None:
        super().__init__(settings)
        self._connection = ConfluentConnection(settings.address, settings.security)
        self._on_delivery = self._delivered  # one object for all messages
        self._calls = SerialExecutor("leaderq-confluent-transaction")
        self._ended: LeaderqError | None = None
        self._counts: dict[str, tuple[int, float]] = {}

    def _connect(self, until_s: float) -> None:
        options = producer_options(self._settings, self._connection)
        self._client = self._connection.made(Producer, options)
        self._learn(self._topics_told("connecting", _left_s(until_s)))

    def _remedy(self) -> str:
        return self._connection.remedy()

    def _translated(self, exc: Any, doing: str) -> LeaderqError:
        found = self._connection.error(exc, doing)
        error = exc.args[0] if isinstance(exc, KafkaException) else exc
        return (
            given_up(found)
            if isinstance(error, KafkaError) and error.txn_requires_abort()
            else found
        )

    def _let_go(self) -> None:
        self._calls.close()
        clients, self._client = [self._client], None
        # librdkafka's own clean-up happens when the object goes, and may wait for a broker.
        closing = SerialExecutor("leaderq-kafka-close")
        closing.submit(partial(_drop, clients))
        closing.close(_CLOSE_S)

    # ---- in transactions -------------------------------------------------------------------------

    def fence(self, timeout_s: float) -> bool:
        deadline, init = clock.now_s() + timeout_s, self._producer.init_transactions
        try:
            self._call_bounded("fencing in a producer", deadline, init)
        except KafkaAway:
            return False
        except BatchLost as exc:  # of no batch
            raise KafkaAway(str(exc)) from exc
        return True

    def _begin(self) -> None:
        self._call("beginning a transaction", self._producer.begin_transaction)

    def produce(self, message: Message) -> None:
        deadline = None
        while True:
            try:
                number = -1 if message.partition is None else message.partition
                return self._give((message,), number, self._on_delivery)
            except BufferError as exc:  # its buffer is full: wait until some of it is delivered
                deadline = deadline or clock.now_s() + self._settings.request_timeout_s
                if clock.now_s() > deadline:
                    raise KafkaAway(
                        f"Kafka {self._settings.address!r} accepts no messages at the moment"
                    ) from exc
                self._call("producing", self._producer.poll, 0.05)
            except KafkaException as exc:
                self._call("producing", self._producer.poll, 0)
                if self._failed:  # what it says is only that an earlier message has failed
                    raise self._failure() from exc
                fatal = self._fatal() or exc
                raise self._translated(fatal, f"producing to {message.topic!r}") from exc

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            # What is purged was behind a message that failed, and may be told before it.
            at = len(self._failed) if error.name() in _PURGED else 0
            self._failed.insert(at, (message.topic(), KafkaException(error)))

    def _give(self, messages: Sequence[Message], number: int, told: Any) -> None:
        """Produce messages to the partition ``number``; when the last is stored or has failed,
        ``told`` is called. Raises ``BufferError`` and the client's own errors.
        """
        produce = self._producer.produce
        for left, message in enumerate(messages, 1 - len(messages)):
            topic, value, key, headers, _, timestamp_ms = message
            on_delivery = None if left else told
            if timestamp_ms is None and not headers:  # the usual message, at two thirds of the cost
                produce(topic, value, key, number, on_delivery)
            else:
                more = {"timestamp": timestamp_ms or 0, "headers": list(headers) or None}
                produce(topic, value, key, number, on_delivery, **more)

    def _acknowledged(self, deadline: float) -> bool:
        while True:
            left = self._call("producing", self._producer.flush, _left_s(deadline))
            is_purged = self._failed and self._failed[0][1].args[0].name() in _PURGED
            if not left or not is_purged or not _left_s(deadline):
                return not left

    def _send_offsets(self, offsets: Offsets, group: Any, deadline: float) -> None:
        mark, doing = self._settings.mark, "sending offsets to a transaction"
        wanted = [TopicPartition(*at, to, mark, epoch_of(to)) for at, to in offsets.items()]
        send = self._producer.send_offsets_to_transaction
        self._call_bounded(doing, deadline, send, wanted, group)

    def _complete(self, deadline: float) -> None:
        commit = self._producer.commit_transaction
        self._call_bounded("committing a transaction", deadline, commit)

    def _give_up(self, deadline: float) -> None:
        self._call_bounded("aborting a transaction", deadline, self._producer.abort_transaction)

    def _call(self, doing: str, function: Any, *args: Any) -> Any:
        try:
            return function(*args)
        except KafkaException as exc:
            raise self._translated(exc, doing) from exc
        except SystemError as exc:
            # Raised between two callbacks, which confuses Python: what was raised may be lost.
            cause = exc.__cause__
            told = cause if isinstance(cause, KafkaException) else self._fatal()
            if told is None:
                raise
            raise self._translated(told, doing) from told

    def _call_bounded(self, doing: str, deadline: float, function: Any, *args: Any) -> None:
        """Call a function that may never return. Raises ``BatchLost`` if it has not returned 5 s
        after ``deadline``; the producer cannot be used after that.
        """
        left_s = _left_s(deadline)
        work = self._calls.submit(partial(function, *args, left_s))
        if not self._call(doing, work.done, left_s + _LATE_S):
            where = f"Kafka {self._settings.address!r}"
            raise BatchLost(f"{doing} at {where} takes too long; its producer is given up")

    def _fatal(self) -> Any:
        """Return the error that ended this client for good, or ``None``. The client tells it only
        when a transaction is begun, so this tries to begin one.
        """
        if self._stage is TransactionStage.NONE:
            return None
        try:
            self._producer.begin_transaction()
        except KafkaException as exc:
            return exc if exc.args[0].fatal() else None
        return None

    # ---- each message by itself ------------------------------------------------------------------

    def partitions(self, topic: str) -> int:
        """Return how many partitions the topic has; asks the broker again after five minutes."""
        count, known_s = self._counts.get(topic, (0, 0.0))
        if count and clock.now_s() < known_s + _COUNT_KEPT_S:
            return count
        try:
            asked = (topic,) if count else ()
            found = self._topics_told(f"sending to {topic!r}", METADATA_S, *asked)
        except LeaderqError:
            if not count:
                raise
            self._counts[topic] = (count, clock.now_s())
            return count
        self._learn(found)
        if topic not in self._counts:
            raise UnknownTopic(
                f"there is no topic {topic!r} on Kafka {self._settings.address!r}; create it"
            )
        return self._counts[topic][0]

    def _topics_told(self, doing: str, timeout_s: float, *topic: str) -> Any:
        try:
            return self._client.list_topics(*topic, timeout=timeout_s)
        except KafkaException as exc:
            self._client.poll(0)  # tells why nobody has answered
            raise self._translated(exc, doing) from exc

    def _learn(self, found: Any) -> None:
        now = clock.now_s()
        for name, topic in found.topics.items():
            if topic.error is None and topic.partitions:
                self._counts[name] = (len(topic.partitions), now)
            elif topic.error is not None:
                refused = self._translated(topic.error, f"sending to {name!r}")
                if isinstance(refused, AccessRefused):
                    raise refused

    def send_run(self, messages: Sequence[Message], partition: int, receipts: list[Any]) -> None:
        """Send the messages with one callback, for the last of them: a callback takes Python's lock
        from the thread that works, and costs more than all the rest. One is enough, because a
        partition acknowledges messages in order, and a failure ends the client, with all messages
        after the one that failed.
        """
        receipt = _Receipt()
        receipts += [receipt] * len(messages)
        try:
            self._give(messages, partition, receipt)
        except KafkaException as exc:
            receipt(exc.args[0], None)
        except BufferError as exc:
            receipt(KafkaError(KafkaError._FAIL, str(exc)), None)

    def wait(self, receipt: Any, until_s: float) -> None:
        left_s = until_s - clock.now_s()
        if left_s > 0 and not receipt.is_done:
            self._served(self._client.flush, min(left_s, _FLUSH_S))
        while not receipt.is_done:
            left_s = until_s - clock.now_s()
            if left_s <= 0:
                return
            self._served(self._client.poll, min(left_s, _POLL_S))

    def _served(self, call: Any, timeout_s: float) -> None:
        try:
            self._call("sending", call, timeout_s)
        except (LeaderqError, SystemError) as exc:
            self._ended = exc if isinstance(exc, LeaderqError) else self._translated(exc, "sending")

    def failure(self, receipt: Any, topic: str) -> LeaderqError | None:
        error = receipt.error
        return None if error is None else self._translated(error, f"sending to {topic!r}")

    def offset(self, receipt: Any) -> int:
        return int(receipt.stored.offset())

    def trouble(self) -> LeaderqError | None:
        """Return the error that ended the client, or else the last refusal (of a login or a right)
        that librdkafka has told; ``None``: neither.
        """
        if self._ended is not None:
            return self._ended
        refusal = self._connection.refusal
        return None if refusal is None else self._translated(refusal, "sending")


class _Receipt:
    is_done = False
    error: Any = None
    stored: Any = None

    def __call__(self, error: Any, message: Any) -> None:
        self.error, self.stored = error, message
        self.is_done = True


def _drop(clients: list[Any]) -> None:
    try:
        clients[0].purge(in_queue=True, in_flight=True, blocking=False)
        clients[0].poll(0)
    except Exception:
        log.debug("closing a Kafka producer failed, it is dropped", exc_info=True)
    clients.clear()


def _left_s(deadline: float) -> float:
    return max(0.0, deadline - clock.now_s())
