"""A life on a simulated cluster: two members of one name, transactions, a lossy network, brokers
that leave. Prints its history; run it to see.
"""

from __future__ import annotations

import random
import sys
from contextlib import suppress
from typing import Any

import pytest
from simulated_time import DrawnNetwork, ManualTime

from leaderq.errors import LeaderqError
from leaderq.kafka import Partition
from leaderq.kafka.clients.consumer import ConsumerSettings
from leaderq.kafka.clients.producer import Message, ProducerSettings
from leaderq.testing.simulation.kafka.cluster import ClusterSettings
from leaderq.testing.simulation.kafka.consumer import SimulatedConsumer
from leaderq.testing.simulation.kafka.network import SimulatedKafka
from leaderq.testing.simulation.kafka.producer import SimulatedIdempotentSender, SimulatedProducer


class KafkaLife:
    """Some hundred requests, drawn from a seed."""

    def __init__(self, seed: int, time: ManualTime) -> None:
        self.draw = random.Random(seed)
        self.time = time
        self.history: list[str] = []
        settings = ClusterSettings(brokers=3, initial_rebalance_delay_s=0.0)
        self.network = DrawnNetwork(seed)
        self.kafka = SimulatedKafka(settings, self.network, now=time)
        for topic, count in (("in", 3), ("out", 2)):
            self.kafka.cluster.create_topic(topic, count)
        self.leader: SimulatedConsumer | None = None
        self.producer: SimulatedProducer | None = None

    def note(self, what: str, value: Any) -> None:
        if isinstance(value, dict):
            value = sorted(value.items())
        self.history.append(f"{self.time.now_s:.6f} {what} {value}")

    def tried(self, what: str, act: Any) -> Any:
        try:
            value = act()
        except LeaderqError as exc:
            self.note(what, f"{type(exc).__name__}: {exc}")
            return None
        self.note(what, value)
        return value

    def lead(self) -> None:
        """A new leader, while the former one goes on."""
        consumer = SimulatedConsumer(
            self.kafka, ConsumerSettings(self.kafka.address, ("in",), "g", "leader")
        )
        settings = ProducerSettings(self.kafka.address, "id")
        producer = SimulatedProducer(self.kafka, settings)
        for client in (consumer, producer):
            self.tried("open", client.open)
        self.tried("fence", lambda: producer.fence(2.0))
        self.tried("join", lambda: consumer.join(lambda: None, 2.0))
        stored = self.tried("committed", lambda: consumer.committed(2.0)) or {}
        with suppress(LeaderqError):
            consumer.seek({where: stored.get(where, 0) for where in sorted(consumer.assigned())})
        self.leader, self.producer = consumer, producer

    def work(self, consumer: SimulatedConsumer, producer: SimulatedProducer) -> None:
        """One batch, in a transaction or with a plain commit."""
        polled = self.tried("poll", lambda: consumer.poll(0.2, 5)) or {}
        ends = {where: rows[-1].offset + 1 for where, rows in polled.items()}
        if self.draw.random() < 0.5:
            self.tried("commit", lambda: consumer.commit(ends, "note").done(2.0))
            return
        self.tried("begin", producer.begin)
        for rows in polled.values():
            for row in rows:
                self.tried("produce", lambda row=row: producer.produce(Message("out", row.value)))
        group = consumer.group_metadata()
        self.tried("transaction", lambda: producer.commit(ends, group, 2.0))
        self.tried("abort", lambda: producer.abort(1.0))

    def live(self, steps: int) -> list[str]:
        sender = SimulatedIdempotentSender(self.kafka, ProducerSettings(self.kafka.address))
        self.lead()
        leaders = [(self.leader, self.producer)]
        for number in range(steps):
            drawn = self.draw.random()
            if drawn < 0.05:
                self.lead()
                leaders.append((self.leader, self.producer))
            elif drawn < 0.1:
                broker = self.draw.randrange(3)
                doing = self.draw.choice(("stop", "freeze", "start", "start"))
                self.kafka.acts(lambda cluster, b=broker, d=doing: getattr(cluster, d)(b))
                self.note(doing, broker)
            elif drawn < 0.3:
                values = [Message("in", b"%d-%d" % (number, at)) for at in range(3)]
                self.tried("feed", lambda values=values: sender.send(values, 3.0))
            else:
                self.work(*self.draw.choice(leaders[-2:]))  # type: ignore[arg-type]
        for broker in range(3):
            self.kafka.acts(lambda cluster, b=broker: cluster.start(b))
        for topic in ("in", "out"):
            for number in range(self.kafka.cluster.topics()[topic].partitions):
                self.note("log", self.kafka.cluster.log_of(Partition(topic, number)).everything())
        return self.history


def life(seed: int, steps: int = 100) -> list[str]:
    """The history of the life of that seed."""
    with pytest.MonkeyPatch.context() as patch:
        time = ManualTime()
        time.install(patch)
        return KafkaLife(seed, time).live(steps)


if __name__ == "__main__":
    for each in range(3):
        sys.stdout.write("\n".join(life(each)) + "\n")
