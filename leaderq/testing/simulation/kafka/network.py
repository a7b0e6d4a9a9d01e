"""The way between simulated clients and a simulated cluster: how long requests take, which are
lost, and how a client waits.

The cluster keeps its own time; a client waits by its process's clock. So waits are given to the
clock as durations, never as moments; a client whose clock runs fast comes too early, and waits
again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from math import inf
from typing import Any, Protocol

from leaderq.base import clock
from leaderq.kafka.clients.consumer import KafkaAway
from leaderq.kafka.record import Partition
from leaderq.testing.simulation.kafka.cluster import (
    AT_ONCE,
    BrokerCluster,
    BrokerRequest,
    BrokerState,
    ClusterSettings,
    Passage,
)
from leaderq.testing.simulation.kafka.error_codes import ErrorCode
from leaderq.threads import primitives

_LEAST_WAIT_S = 1e-6
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.005, 0.25


class KafkaNetwork(Protocol):
    """The hook for delays and faults."""

    def request(self, client: str, broker: int) -> Passage:
        """Return the passage of one request; called by the process that sends it. May sleep."""


class SimulatedKafka:
    """A cluster, the network in front of it, and the clients that wait for it to change.

    ``lock`` is needed only if clients run on several real threads: give a ``threading.Lock``.
    ``now`` is the cluster's own time; by default, this process's clock. Without a ``network``
    everything arrives at once.
    """

    def __init__(
        self,
        settings: ClusterSettings | None = None,
        network: KafkaNetwork | None = None,
        *,
        now: Callable[[], float] | None = None,
        lock: AbstractContextManager[Any] | None = None,
        address: str = "simulated-kafka:9092",
    ) -> None:
        self.address = address
        self.network = network
        self.cluster = BrokerCluster(now or (lambda: clock.now_s()), settings)
        self.lock: AbstractContextManager[Any] = lock or nullcontext()
        self._waiting: dict[int, Any] = {}
        self._tickets = 0
        self._seen = -1

    def acts(self, act: Callable[[BrokerCluster], Any]) -> Any:
        """Do something to the cluster from outside (stop a broker, delete a topic), and wake the
        clients that wait for a change.
        """
        with self.lock:
            self.cluster.advance()
            result = act(self.cluster)
            self.wake_if_changed()
            return result

    def wake_if_changed(self) -> None:
        """Wake all waiting clients if the cluster has changed; the caller holds the lock."""
        cluster = self.cluster
        seen = cluster.log_changes + cluster.late_answers
        if seen != self._seen:
            self._seen = seen
            for event in list(self._waiting.values()):  # who is woken may run at once
                event.set()

    def await_change(self, event: Any, seen: Callable[[], bool], wait_s: float) -> None:
        """Wait until the cluster has changed, ``wait_s`` at most. ``seen``, called under the lock,
        says whether the awaited thing has already happened.
        """
        with self.lock:
            if seen():
                return
            event.clear()
            self._tickets += 1
            ticket = self._tickets
            self._waiting[ticket] = event
            due_s = self.cluster.next_due_s - self.cluster.time_s
        try:
            event.wait(max(_LEAST_WAIT_S, min(wait_s, due_s)))
        finally:
            with self.lock:
                del self._waiting[ticket]


class BrokerLink:
    """One client's connections to all brokers. For one thread at a time."""

    def __init__(self, kafka: SimulatedKafka, client: str, request_timeout_s: float) -> None:
        self.kafka = kafka
        self.cluster = kafka.cluster
        self._client = client
        self._request_timeout_s = request_timeout_s
        self._event: Any = None
        self._first_broker = sum(client.encode())

    def send(self, broker: int, work: Callable[[BrokerRequest], Any]) -> BrokerRequest:
        """Send, and do not wait."""
        network = self.kafka.network
        way = AT_ONCE if network is None else network.request(self._client, broker)
        way = way._replace(breaks_s=min(way.breaks_s, self._request_timeout_s))
        with self.kafka.lock:
            self.cluster.advance()
            request = self.cluster.send(broker, work, way)
            self.kafka.wake_if_changed()
        return request

    def look(self) -> None:
        """Let everything happen that is due, before the cluster is asked who leads what."""
        with self.kafka.lock:
            self.cluster.advance()
            self.kafka.wake_if_changed()

    def coordinator_of(self, name: str) -> int | None:
        """The broker that coordinates a group or a transactional id now."""
        self.look()
        return self.cluster.coordinator_of(name)

    def leader_of(self, where: Partition) -> int | None:
        """The broker that leads a partition now."""
        self.look()
        return self.cluster.leader_of(where)

    def is_late(self, sent: BrokerRequest) -> bool:
        """Whether the request was not answered within its time-out."""
        self.look()
        now_s = self.cluster.time_s
        return sent.heard_s > now_s >= sent.sent_s + self._request_timeout_s

    def late_in_s(self, sent: Iterable[BrokerRequest]) -> float:
        """In how many seconds the first of these requests is late."""
        first_s = min((each.sent_s for each in sent), default=inf)
        return max(_LEAST_WAIT_S, first_s + self._request_timeout_s - self.cluster.time_s)

    def is_answered(self, sent: BrokerRequest) -> bool:
        """Whether the answer has arrived, or the connection is known to be broken."""
        self.look()
        return sent.heard_s <= self.cluster.time_s

    def wait(self, sent: Iterable[BrokerRequest], until_s: float) -> bool:
        """Wait until one of these requests is answered; return whether one is by ``until_s`` of
        this process's clock.
        """
        requests = list(sent)
        while True:
            self.look()
            now_s = self.cluster.time_s
            if any(each.heard_s <= now_s for each in requests):
                return True
            left_s = until_s - clock.now_s()
            if left_s <= 0:
                return False
            due_s = min((each.due_s for each in requests), default=inf) - self.cluster.time_s
            if due_s == inf and any(each.waits and not each.is_done for each in requests):
                self.await_change(lambda: any(each.is_done for each in requests), left_s)
            else:
                clock.sleep(max(_LEAST_WAIT_S, min(left_s, due_s)))

    def await_change(self, seen: Callable[[], bool], wait_s: float) -> None:
        """Wait for the cluster to change, ``wait_s`` at most."""
        if self._event is None:
            self._event = primitives.Event()
        self.kafka.await_change(self._event, seen, wait_s)

    def require_address(self, address: str, wait_s: float) -> None:
        """Return if ``address`` is the cluster's; else raise ``KafkaAway`` after ``wait_s``."""
        if address != self.kafka.address:
            clock.sleep(max(0.0, wait_s))
            raise KafkaAway(f"nothing listens at {address!r}")

    def any_broker(self) -> int | None:
        """A broker that can be asked about what all brokers know; ``None`` if all are down."""
        self.look()
        brokers = self.cluster.brokers
        for more in brokers:
            broker = (self._first_broker + more) % len(brokers)
            if self.cluster.state_of(broker) is not BrokerState.DOWN:
                return broker
        return None

    def ask(
        self,
        doing: str,
        broker_of: Callable[[], int | None],
        work: Callable[[int], Any],
        until_s: float,
    ) -> Any:
        """Return the answer of ``work`` at the broker that ``broker_of`` returns. If that fails and
        can help, ask again, until ``until_s``. Raises the errors of leaderq's clients.
        """
        pause_s = _FIRST_PAUSE_S
        while True:
            broker = broker_of()
            code, what = ErrorCode.COORDINATOR_NOT_AVAILABLE, "no broker leads it now"
            if broker is not None:
                sent = self.send(broker, lambda _, at=broker: work(at))  # type: ignore[misc]
                if not self.wait([sent], min(until_s, clock.now_s() + self._request_timeout_s)):
                    self._first_broker += 1
                    if clock.now_s() < until_s:
                        continue
                    raise KafkaAway(f"{self.told(doing)}: no answer")
                if sent.error is None:
                    return sent.result
                code, what = sent.error.code, str(sent.error)
            if not code.is_retriable:
                raise code.failure.error(f"{self.told(doing)}: {what}")
            if clock.now_s() + pause_s > until_s:
                raise KafkaAway(f"{self.told(doing)}: {what}")
            clock.sleep(pause_s)
            pause_s = min(_LONGEST_PAUSE_S, pause_s * 2)

    def told(self, doing: str) -> str:
        return f"{doing} at Kafka {self.kafka.address!r}"
