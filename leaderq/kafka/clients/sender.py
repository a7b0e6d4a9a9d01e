"""Sending messages apart from any transaction: dead letters of careers whose offsets are kept
elsewhere.

One producer on kafka-python, idempotent (each message once, as long as this process lives) and
acknowledged by all replicas in sync; connected with the first message, then kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kafka import KafkaProducer
from kafka import errors as native

from leaderq.clock import now_s
from leaderq.config import KafkaSecurity
from leaderq.errors import KafkaError, UnknownTopic
from leaderq.kafka.clients.client_options import quiet_client_logs
from leaderq.kafka.clients.connecting import connected
from leaderq.kafka.clients.kafka_python_producer import dropped, mended, producer_options
from leaderq.kafka.clients.producer import MAX_MESSAGE_BYTES, Message, ProducerSettings, checked
from leaderq.kafka.clients.translation import translated


class Sender:
    """Sends messages and waits until they are acknowledged. One thread at a time.

    *Guarantees:* when :meth:`send` has returned, all its messages are stored, each once.
    *Not guaranteed:* anything about messages of a :meth:`send` that raised: some may be stored, or
    be stored later. Sending them again may store them twice.
    """

    def __init__(
        self,
        address: str,
        security: KafkaSecurity | None = None,
        *,
        client_id: str = "leaderq",
        open_timeout_s: float = 10.0,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
    ) -> None:
        self._settings = ProducerSettings(
            address=address,
            transactional_id="",
            client_id=client_id,
            security=security or KafkaSecurity(),
            open_timeout_s=open_timeout_s,
            max_message_bytes=max_message_bytes,
        )
        self._client: Any = None

    def send(self, messages: Iterable[Message], timeout_s: float) -> None:
        """Send all, and return when the cluster has them all.

        :raises KafkaAway: not within ``timeout_s``.
        :raises ServersUnreachable: no broker answered when connecting; AccessRefused: nor let this
        user in.
        :raises UnknownTopic: a topic does not exist.
        :raises KafkaError: a message is too large, or not one.
        """
        deadline = now_s() + timeout_s
        wanted = [checked(message, self._settings.max_message_bytes) for message in messages]
        client = self._connected()
        try:
            futures = [(message.topic, self._sent(client, message)) for message in wanted]
            for topic, future in futures:
                self._await(topic, future, max(0.0, deadline - now_s()))
        except BaseException:
            self.close()  # what it still holds must not be sent behind the caller's back, nor before what comes next
            raise

    def _sent(self, client: Any, message: Message) -> Any:
        topic, value, key, headers, partition, timestamp_ms = message
        asked_s = now_s()
        try:
            return client.send(
                topic, value=value, key=key, headers=list(headers), partition=partition, timestamp_ms=timestamp_ms
            )
        except native.KafkaTimeoutError as exc:
            if client._metadata._last_successful_refresh_ms > asked_s * 1000:
                raise UnknownTopic(f"there is no topic {topic!r} on Kafka {self._settings.address!r}; create it") from exc
            raise translated(exc, f"sending to {topic!r}", self._settings.address) from exc
        except native.KafkaError as exc:
            raise translated(exc, f"sending to {topic!r}", self._settings.address) from exc
        except ValueError as exc:
            raise UnknownTopic(f"sending to {topic!r} at Kafka {self._settings.address!r}: {exc}") from exc

    def _await(self, topic: str, future: Any, wait_s: float) -> None:
        doing = f"sending to {topic!r}"
        try:
            future.get(timeout=wait_s)
        except native.KafkaError as exc:
            raise translated(exc, doing, self._settings.address) from exc
        except Exception as exc:
            raise KafkaError(f"{doing} at Kafka {self._settings.address!r}: {exc}") from exc

    def _connected(self) -> Any:
        if self._client is None:
            quiet_client_logs()
            options = {**producer_options(self._settings), "enable_idempotence": True}
            self._client = mended(connected(KafkaProducer, self._settings.address, options))
        return self._client

    def close(self) -> None:
        """Disconnect, within about a second; the next message connects again. Never raises."""
        client, self._client = self._client, None
        if client is not None:
            dropped(client)
