"""What is known of the topics: their partitions and ids, asked in the background, for a consumer of
confluent-kafka.

The consumer keeps that knowledge to itself, so an admin client (a connection and a few threads of
librdkafka more) asks instead: once at the beginning, and then no more than every 10 s, without
anybody waiting for the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient

from leaderq.clock import now_s
from leaderq.errors import UnknownTopic
from leaderq.kafka.clients.confluent_options import Heard, confluent_speaking, translated
from leaderq.kafka.clients.drain import KafkaAway
from leaderq.kafka.record import Partition

ASK_EVERY_S = 10.0
_LOOK_S = 0.05


class ConfluentTopics:
    """Partitions and ids of some topics. Not thread-safe."""

    def __init__(
        self, options: dict[str, Any], address: str, topics: Sequence[str], heard: Heard, request_timeout_s: float
    ) -> None:
        self._admin = AdminClient(options)
        self._address = address
        self._topics = topics
        self._heard = heard
        self._request_timeout_s = request_timeout_s
        self._asked: dict[str, Future[Any]] = {}
        self._asked_at = 0.0
        self.partitions: dict[str, frozenset[Partition]] = {}
        self.ids: dict[str, str] = {}

    def learn(self, timeout_s: float) -> None:
        """Ask, and wait for the answer.

        Raises :class:`~leaderq.errors.UnknownTopic`, :class:`~leaderq.errors.AccessRefused` or
        :class:`~leaderq.kafka.clients.drain.KafkaAway`.
        """
        end = now_s() + timeout_s
        self._ask(timeout_s)
        for topic, answer in self._asked.items():
            while not answer.done():
                if self._heard.refusal is not None:  # known at once, while the question would go on until its time is up
                    raise translated(self._heard.refusal, "connecting", self._address)
                if now_s() > end:
                    raise KafkaAway(f"asking for the topic {topic!r} at Kafka {self._address!r}: no answer")
                self._admin.poll(_LOOK_S)  # also lets the errors be heard of
            with confluent_speaking(f"asking for the topic {topic!r}", self._address, self._heard):
                self._note(topic, answer.result())
        self._asked = {}

    def keep_known(self) -> None:
        """Take in what was answered, and ask again from time to time; waits for nothing."""
        for topic, answer in list(self._asked.items()):
            if answer.done():
                del self._asked[topic]
                error = answer.exception()
                if error is None:
                    self._note(topic, answer.result())
                elif isinstance(translated(error, "asking for topics", self._address), UnknownTopic):
                    self.partitions.pop(topic, None)
                    self.ids.pop(topic, None)
        if not self._asked and now_s() > self._asked_at + ASK_EVERY_S:
            self._ask(self._request_timeout_s)

    def hurry(self) -> None:
        """Ask at the next :meth:`keep_known`."""
        self._asked_at = 0.0

    def _ask(self, timeout_s: float) -> None:
        wanted = TopicCollection(list(self._topics))
        self._asked_at = now_s()
        self._asked = self._admin.describe_topics(wanted, request_timeout=timeout_s)

    def _note(self, topic: str, found: Any) -> None:
        self.partitions[topic] = frozenset(Partition(topic, partition.id) for partition in found.partitions)
        self.ids[topic] = str(found.topic_id)
