"""A :class:`~leaderq.kafka.clients.sender.MessageSender` on kafka-python."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from kafka import TopicPartition
from kafka import errors as native

from leaderq.clock import now_s
from leaderq.errors import KafkaError, LeaderqError, UnknownTopic
from leaderq.kafka.clients import private_api
from leaderq.kafka.clients.consumer import KafkaAway
from leaderq.kafka.clients.kafka_python_connection import translated
from leaderq.kafka.clients.kafka_python_producer import connected_producer, dropped
from leaderq.kafka.clients.producer import Message, ProducerSettings
from leaderq.kafka.clients.sender import MessageInvalid

_FOR_EVER_MS = 2**31 - 1
_INVALID = tuple(getattr(native, name) for name in ("InvalidRecordError", "CorruptRecordError", "InvalidTimestampError"))
_place = lru_cache(maxsize=4096)(TopicPartition)


class KafkaPythonSender:
    """See the module."""

    def __init__(self, settings: ProducerSettings) -> None:
        self._settings = settings
        self._client: Any = None  # what is private of it is used through private_api
        self._append: Any = None
        self._wake: Any = None

    def open(self, timeout_s: float) -> None:
        """Connect."""
        wait_s = max(0.1, min(timeout_s, self._settings.open_timeout_s))
        self._client = connected_producer(
            self._settings,
            # A message that the client gives up is one that we would send a second time.
            delivery_timeout_ms=_FOR_EVER_MS,
            bootstrap_timeout_ms=int(wait_s * 1000),
        )
        self._append, self._wake = private_api.appender(self._client)

    def partitions(self, topic: str) -> int:
        """Return how many partitions the topic has."""
        if known := private_api.partition_count(self._client, topic):
            return known
        address, asked_s = self._settings.address, now_s()
        try:
            return len(self._client.partitions_for(topic))
        except native.KafkaTimeoutError as exc:
            if private_api.metadata_came_after(self._client, asked_s):
                raise UnknownTopic(f"there is no topic {topic!r} on Kafka {address!r}; create it") from exc
            raise KafkaAway(f"Kafka {address!r} does not say where topic {topic!r} is") from exc
        except native.KafkaError as exc:
            raise translated(exc, f"sending to {topic!r}", address) from exc

    def send(self, message: Message) -> Any:
        """Hand over a message: what the client's own ``send`` comes to once topic, partition and
        size are known to be right, at half the cost."""
        topic, value, key, headers, partition, timestamp_ms = message
        try:
            receipt, is_full, is_new, _ = self._append(
                _place(topic, partition),
                timestamp_ms,
                key,
                value,
                list(headers),
                abort_on_new_batch=False,
            )
        except native.KafkaError as exc:
            raise self._translated(exc, topic) from exc
        except (ValueError, AssertionError) as exc:
            raise UnknownTopic(f"{self._doing(topic)}: {exc}") from exc
        if is_full or is_new:
            self._wake()
        return receipt

    def wait(self, receipt: Any, until_s: float) -> None:
        """Wait until this one is done."""
        left_s = until_s - now_s()
        if left_s > 0 and not receipt.is_done:
            try:
                receipt.get(timeout=left_s)
            except Exception:  # noqa: BLE001 - see failure
                return

    def failure(self, receipt: Any, topic: str) -> LeaderqError | None:
        """Return why it has failed."""
        error = receipt.exception
        if error is None:
            return None
        if isinstance(error, _INVALID):
            return MessageInvalid(f"{self._doing(topic)}: {error}")
        if isinstance(error, native.KafkaError):
            return self._translated(error, topic)
        return KafkaError(f"{self._doing(topic)}: {error}")

    def offset(self, receipt: Any) -> int:
        """Return its offset."""
        return int(receipt.value.offset)

    def trouble(self) -> LeaderqError | None:
        """Return nothing: here the messages themselves fail."""
        return None

    def close(self) -> None:
        """Let go."""
        client, self._client = self._client, None
        if client is not None:
            dropped(client)

    def _translated(self, exc: native.KafkaError, topic: str) -> LeaderqError:
        return translated(exc, f"sending to {topic!r}", self._settings.address)

    def _doing(self, topic: str) -> str:
        return f"sending to {topic!r} at Kafka {self._settings.address!r}"
