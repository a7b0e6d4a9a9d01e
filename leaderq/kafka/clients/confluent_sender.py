"""A :class:`~leaderq.kafka.clients.sender.MessageSender` on confluent-kafka (librdkafka); needs
``leaderq[confluent]``.

Facts of librdkafka 2 that this file leans on (``CONFIGURATION.md``, ``INTRODUCTION.md``):

* ``message.timeout.ms`` 0 is for ever: an outage fails no message.
* A batch that a broker refuses for good leaves a gap, and what is behind it would be stored all the
  same; with ``enable.gapless.guarantee`` it is not: the producer has a fatal error, fails all it
  holds, and is over.
* Callbacks come from within ``poll`` and ``flush``; a flush does not wait for ``linger.ms``. A
  fatal error may be raised from within them as well.
* To ask for the metadata of one topic, or to send to it, creates it on brokers that are configured
  so; to ask for those of all topics does not.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

from leaderq.clock import now_s
from leaderq.errors import AccessRefused, LeaderqError, UnknownTopic
from leaderq.kafka.clients.confluent_connection import (
    ErrorCallback,
    opening_error,
    producer_base,
    require,
    translated,
)
from leaderq.kafka.clients.consumer import KafkaAway
from leaderq.kafka.clients.producer import Message, ProducerSettings
from leaderq.kafka.clients.sender import CLOSE_S, MessageInvalid

log = logging.getLogger(__name__)

_FLUSH_S = 0.005
_POLL_S = 0.1
_COUNT_KEPT_S = 300.0
_METADATA_S = 2.0
_INVALID = {"INVALID_RECORD", "INVALID_MSG", "INVALID_TIMESTAMP", "_INVALID_DIFFERENT_RECORD"}


def sender_options(settings: ProducerSettings, errors: ErrorCallback) -> dict[str, Any]:
    """Return what a librdkafka producer is made with, each with its reason."""
    return {
        **producer_base(settings, errors),
        "enable.idempotence": True,
        "enable.gapless.guarantee": True,
        # A message that the client gives up is one that we would send a second time.
        "message.timeout.ms": 0,
        # The buffer in front of it is what bounds memory.
        "queue.buffering.max.messages": 10_000_000,
        "queue.buffering.max.kbytes": 2_147_483_647,
        **settings.options,
    }


class _Receipt:
    """Told by the client, on the thread that polls."""

    __slots__ = ("error", "is_done", "stored")

    def __init__(self) -> None:
        self.is_done = False
        self.error: Any = None
        self.stored: Any = None

    def told(self, error: Any, message: Any) -> None:
        """Note what became of it."""
        self.error, self.stored = error, message
        self.is_done = True


class ConfluentSender:
    """See the module."""

    def __init__(self, settings: ProducerSettings) -> None:
        self._settings = settings
        self._confluent = require()
        self._errors = ErrorCallback()
        self._client: Any = None
        self._fatal: LeaderqError | None = None
        self._counts: dict[str, tuple[int, float]] = {}

    def open(self, timeout_s: float) -> None:
        """Connect."""
        settings, began_s = self._settings, now_s()
        wait_s = max(0.1, min(timeout_s, settings.open_timeout_s))
        try:
            self._client = self._confluent.Producer(sender_options(settings, self._errors))
            self._learn(self._client.list_topics(timeout=wait_s))
        except self._confluent.KafkaException as exc:
            found = self._translated(exc, "connecting")
            self.close()
            remedy = self._errors.remedy() or "is Kafka listening there?"
            raise opening_error(exc, found, settings.address, now_s() - began_s, remedy) from exc

    def partitions(self, topic: str) -> int:
        """Return how many partitions the topic has, as of five minutes ago."""
        count, known_s = self._counts.get(topic, (0, 0.0))
        if count and now_s() < known_s + _COUNT_KEPT_S:
            return count
        try:
            found = self._client.list_topics(*((topic,) if count else ()), timeout=_METADATA_S)
        except self._confluent.KafkaException as exc:
            if count:
                self._counts[topic] = (count, now_s())
                return count
            raise self._translated(exc, f"sending to {topic!r}") from exc
        self._learn(found)
        if topic not in self._counts:
            raise UnknownTopic(f"there is no topic {topic!r} on Kafka {self._settings.address!r}; create it")
        return self._counts[topic][0]

    def _learn(self, found: Any) -> None:
        now = now_s()
        for name, topic in found.topics.items():
            if topic.error is None and topic.partitions:
                self._counts[name] = (len(topic.partitions), now)
            elif topic.error is not None:
                refused = translated(topic.error, f"sending to {name!r}", self._settings.address)
                if isinstance(refused, AccessRefused):
                    raise refused

    def send(self, message: Message) -> Any:
        """Hand over a message."""
        topic, value, key, headers, partition, timestamp_ms = message
        receipt = _Receipt()
        try:
            if timestamp_ms is None and not headers:  # the usual message, at two thirds of the cost
                self._client.produce(topic, value, key, partition, receipt.told)
            else:
                self._client.produce(
                    topic,
                    value,
                    key,
                    partition,
                    receipt.told,
                    timestamp=timestamp_ms or 0,
                    headers=list(headers) or None,
                )
        except self._confluent.KafkaException as exc:
            raise self._translated(exc, f"sending to {topic!r}") from exc
        except BufferError as exc:
            raise KafkaAway(f"Kafka {self._settings.address!r} takes no more at present") from exc
        return receipt

    def wait(self, receipt: Any, until_s: float) -> None:
        """Wait until this one is done."""
        left_s = until_s - now_s()
        if left_s > 0 and not receipt.is_done:
            self._served(self._client.flush, min(left_s, _FLUSH_S))
        while not receipt.is_done:
            left_s = until_s - now_s()
            if left_s <= 0:
                return
            self._served(self._client.poll, min(left_s, _POLL_S))

    def _served(self, call: Any, timeout_s: float) -> None:
        try:
            call(timeout_s)
        except self._confluent.KafkaException as exc:
            self._fatal = self._translated(exc, "sending")
        except SystemError as exc:  # the same, raised between two callbacks
            cause = exc.__cause__ or exc
            self._fatal = self._translated(cause, "sending")

    def failure(self, receipt: Any, topic: str) -> LeaderqError | None:
        """Return why it has failed."""
        error = receipt.error
        if error is None:
            return None
        if error.name() in _INVALID:
            doing = f"sending to {topic!r} at Kafka {self._settings.address!r}"
            return MessageInvalid(f"{doing}: {error.name()}: {error.str()}")
        return self._translated(error, f"sending to {topic!r}")

    def offset(self, receipt: Any) -> int:
        """Return its offset."""
        return int(receipt.stored.offset())

    def trouble(self) -> LeaderqError | None:
        """Return the fatal error, or the refusal that is heard in passing."""
        if self._fatal is not None:
            return self._fatal
        refusal = self._errors.refusal
        return None if refusal is None else self._translated(refusal, "sending")

    def close(self) -> None:
        """Let go."""
        clients = [self._client]
        self._client = None
        if clients[0] is not None:
            # librdkafka's own clean-up happens when the object goes, and may wait for a broker.
            closer = threading.Thread(target=_drop, args=(clients,), name="leaderq-kafka-close", daemon=True)
            closer.start()
            closer.join(CLOSE_S)

    def _translated(self, exc: Any, doing: str) -> LeaderqError:
        return translated(exc, doing, self._settings.address, self._errors)


def _drop(clients: list[Any]) -> None:
    """Purge what is not sent, and let the last reference go."""
    try:
        clients[0].purge(in_queue=True, in_flight=True, blocking=False)
        clients[0].poll(0)
    except Exception:
        log.debug("closing a Kafka producer failed; it is dropped", exc_info=True)
    clients.clear()
