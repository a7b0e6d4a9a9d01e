"""The narrow face of an idempotent producer that sends and repeats by itself, so that more than one
client can stand behind :class:`~leaderq.kafka.sink.KafkaSink`.

The broker is authoritative: done without a failure means acknowledged by all replicas in sync. A
sender never gives a message up for the time it takes; within a partition it stores them in the
order in which they were handed over, each once, for as long as it lives. A client's own exceptions
never come out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from leaderq.errors import KafkaError, LeaderqError
from leaderq.kafka.clients.producer import Message, ProducerSettings

CLOSE_S = 1.0


class MessageInvalid(KafkaError):
    """The broker refuses a message for what it is, or the batch that it is part of."""


class SendReceipt(Protocol):
    """What was heard of one message."""

    is_done: bool
    """Whether it is acknowledged, or has failed."""


class MessageSender(Protocol):
    """Used by one thread at a time."""

    def open(self, timeout_s: float) -> None:
        """Connect.

        :raises ServersUnreachable: no broker answered. AccessRefused, MissingPiece,
            ConfigurationError: see there.
        """

    def partitions(self, topic: str) -> int:
        """Return how many partitions the topic has; asks the brokers seldom.

        :raises UnknownTopic: there is none of that name. KafkaAway: no answer. AccessRefused.
        """

    def send(self, message: Message) -> Any:
        """Hand over a message that names its partition; return its :class:`SendReceipt`.

        :raises MessageTooLarge: for the client. UnknownTopic: there is no such partition.
        """

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
