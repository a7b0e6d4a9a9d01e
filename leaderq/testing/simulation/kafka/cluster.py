"""A simulated Kafka cluster: a deterministic state machine (pure). It has no thread, clock, socket
or chance of its own, and does not depend on the order of a set.

A function tells it the time, and it acts only when it is called. Whatever was due before (a request
arrives, a session ends, a transaction is too old, a leader is elected) happens first, in the order
of the times. So it does not matter who calls it when.

A request is :meth:`sent <BrokerCluster.send>` to a broker and arrives there after a time, even if
its sender has died. The broker carries it out at once, except that a *frozen* broker waits until it
thaws, a broker that is *down* never does, and a coordinator may let a member wait.

A partition is led by one broker. If that broker is down, or frozen for long, the next replica leads
after a while, under the next epoch; without another replica the partition waits for its leader.
Coordinators of groups and of transactional ids are the leaders of partitions of their own, and move
in the same way. What was acknowledged is never lost.

Not simulated: disks, unclean elections, retention, ISR and ``min.insync.replicas``, quotas, access
control, compaction, the protocol of KIP-848, and clients' stale metadata: clients know each leader
when it is elected.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import inf
from typing import Any, NamedTuple
from zlib import crc32

from leaderq.kafka.record import Partition, Record
from leaderq.testing.simulation.kafka.consumer_group import (
    ConsumerGroup,
    GroupMembership,
    StoredOffset,
)
from leaderq.testing.simulation.kafka.error_codes import ErrorCode, RefusedByBroker
from leaderq.testing.simulation.kafka.partition_log import FetchedPart, PartitionLog, ProducerStamp
from leaderq.testing.simulation.kafka.transactions import ProducerIdentity, TransactionCoordinator

_COORDINATORS = "__coordinators"
_COORDINATOR_PARTITIONS = 4
_REPLICATION = 3
_MAX_MESSAGE_BYTES = 1_048_588  # of a topic that does not set it


@dataclass(frozen=True)
class ClusterSettings:
    """How large a cluster is, and how fast; times are in seconds.

    ``failover_s``: the time from a broker's end until others lead in its place.
    ``broker_session_s``: the time that is added if the broker is only frozen.
    ``initial_rebalance_delay_s``: how long an empty group waits for more members.
    """

    brokers: int = 1
    failover_s: float = 0.5
    broker_session_s: float = 9.0
    initial_rebalance_delay_s: float = 3.0


class Passage(NamedTuple):
    """The times of one request's way to a broker, and of its answer's way back; in seconds.

    ``there_s`` infinite: the request never arrives. ``back_s`` infinite: the request is carried
    out, and its sender does not hear of it. ``breaks_s``: if the request or answer is lost, when
    its sender notices that its connection is broken; infinite: when its request time-out is over.
    """

    there_s: float = 0.0
    back_s: float = 0.0
    breaks_s: float = inf

    @property
    def is_lost(self) -> bool:
        return self.there_s == inf or self.back_s == inf


AT_ONCE = Passage()


class BrokerState(Enum):
    """Whether a broker answers, lets its clients wait, or does not exist at the moment."""

    UP = "up"
    FROZEN = "frozen"
    DOWN = "down"


class BrokerRequest:
    """A request on its way, at a broker, or answered; ``back_s`` and ``breaks_s`` as in
    :meth:`BrokerCluster.send`.
    """

    __slots__ = (
        "arrives_s",
        "back_s",
        "breaks_at_s",
        "broker",
        "done_s",
        "is_done",
        "result",
        "sent_s",
        "waits",
        "work",
    )

    def __init__(
        self, broker: int, work: Callable[[BrokerRequest], Any], sent_s: float, way: Passage
    ) -> None:
        self.broker, self.work, self.sent_s = broker, work, sent_s
        self.arrives_s, self.back_s = sent_s + way.there_s, way.back_s
        self.breaks_at_s = sent_s + way.breaks_s if way.is_lost else inf
        self.is_done = False
        self.waits = False  # at the broker, for something else to happen
        self.done_s = inf
        self.result: Any = None  # the broker's answer, or its refusal

    # ---- as the sender sees it

    @property
    def heard_s(self) -> float:
        """When the sender hears of the answer, by the cluster's clock; ``inf`` if that is not
        known.
        """
        return min(self.done_s + self.back_s, self.breaks_at_s)

    @property
    def due_s(self) -> float:
        """When there is news of the request next; ``inf`` if that is not known."""
        if self.is_done or self.waits:
            return self.heard_s
        return min(self.arrives_s, self.breaks_at_s)

    @property
    def error(self) -> RefusedByBroker | None:
        """Why there is no answer, once the sender has heard; ``None`` if there is one."""
        if not self.is_done or self.back_s == inf:
            return RefusedByBroker(ErrorCode.CONNECTION_BROKEN)
        return self.result if isinstance(self.result, RefusedByBroker) else None


WAITS = object()
"""What a request's work returns when its answer comes later."""


class TopicFacts(NamedTuple):
    """The facts that the metadata tell of a topic."""

    id: str
    partitions: int


@dataclass(eq=False)
class _Place:
    """A partition: its log, and the broker that leads it (``None``: no broker does now)."""

    log: PartitionLog
    replicas: tuple[int, ...]
    leader: int | None


@dataclass(eq=False)
class _SimulatedTopic:
    id: str
    places: list[_Place]
    configs: dict[str, str]


@dataclass(eq=False)
class _Broker:
    state: BrokerState = BrokerState.UP
    inbox: list[BrokerRequest] = field(default_factory=list)
    round: int = 0  # counts changes, so that what was due under a former state is not done


@dataclass(eq=False)
class ProducedPart:
    """Records for one partition, from one producer, in one request."""

    where: Partition
    rows: Sequence[Record]
    who: ProducerIdentity
    sequence: int


class BrokerCluster:
    """The cluster; see the module. Not thread-safe. ``now`` returns seconds, and never goes
    back.
    """

    def __init__(self, now: Callable[[], float], settings: ClusterSettings | None = None) -> None:
        self.settings = settings = settings or ClusterSettings()
        self.time_s = now()
        self.log_changes = 0
        """Counts what readers may see: records, markers, topics, leaders."""
        self.late_answers = 0
        """Counts answers of requests that had to wait at their brokers."""
        self._now = now
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = 0
        self._brokers = [_Broker() for _ in range(settings.brokers)]
        self._topics: dict[str, _SimulatedTopic] = {}
        self._groups: dict[str, ConsumerGroup] = {}
        self._topics_made = 0
        self._transactions = TransactionCoordinator(self, self._write_markers)
        self._coordinators = self._made_places(_COORDINATORS, _COORDINATOR_PARTITIONS)

    # ---- time ------------------------------------------------------------------------------------

    def at(self, due_s: float, work: Callable[[], None]) -> None:
        """Call ``work`` when the time is ``due_s``."""
        self._numbers += 1
        heapq.heappush(self._due, (due_s, self._numbers, work))

    def advance(self) -> float:
        """Let everything happen that is due by now; return the time."""
        now_s = self._now()
        due = self._due
        while due and due[0][0] <= now_s:
            self.time_s, _, work = heapq.heappop(due)
            work()
        self.time_s = now_s
        return now_s

    @property
    def next_due_s(self) -> float:
        """The time at which something happens next without a call, as far as is known; ``inf``:
        never.
        """
        return self._due[0][0] if self._due else inf

    # ---- requests --------------------------------------------------------------------------------

    def send(
        self, broker: int, work: Callable[[BrokerRequest], Any], way: Passage
    ) -> BrokerRequest:
        """Send a request. ``work`` returns the answer, raises a refusal, or returns WAITS."""
        request = BrokerRequest(broker, work, self.time_s, way)
        if way.there_s <= 0:
            self._arrive(request)
        elif way.there_s < inf:
            self.at(request.arrives_s, lambda: self._arrive(request))
        return request

    def _arrive(self, request: BrokerRequest) -> None:
        broker = self._brokers[request.broker]
        if broker.state is BrokerState.FROZEN:
            request.waits = True
            broker.inbox.append(request)
        elif broker.state is BrokerState.DOWN:
            self.answer(request, ErrorCode.CONNECTION_BROKEN)
        else:
            try:
                answer = request.work(request)
            except RefusedByBroker as exc:
                answer = exc
            if answer is WAITS:
                request.waits = True
            else:
                self.answer(request, answer)

    def answer(self, request: BrokerRequest, answer: Any) -> None:
        """Answer a request, unless it was answered before."""
        if request.is_done:
            return
        request.result = RefusedByBroker(answer) if isinstance(answer, ErrorCode) else answer
        request.is_done, request.done_s = True, self.time_s
        self.late_answers += request.waits

    # ---- brokers ---------------------------------------------------------------------------------

    @property
    def brokers(self) -> range:
        return range(len(self._brokers))

    def state_of(self, broker: int) -> BrokerState:
        return self._brokers[broker].state

    def stop(self, broker: int) -> None:
        """Let the broker die: requests that wait there are lost, and other brokers soon lead."""
        self.advance()
        self._into(broker, BrokerState.DOWN)
        waiting, self._brokers[broker].inbox = self._brokers[broker].inbox, []
        for request in waiting:
            self.answer(request, ErrorCode.CONNECTION_BROKEN)
        self._lose_waiting_members(broker)
        for place in self._led_by(broker):
            place.leader = None
        self._elect_later(broker, self.settings.failover_s)

    def freeze(self, broker: int) -> None:
        """Let the broker neither answer nor break connections, until it thaws."""
        self.advance()
        self._into(broker, BrokerState.FROZEN)
        self._elect_later(broker, self.settings.broker_session_s + self.settings.failover_s)

    def start(self, broker: int) -> None:
        """Thaw or start the broker; it leads the partitions that no other broker leads."""
        self.advance()
        self._into(broker, BrokerState.UP)
        waiting, self._brokers[broker].inbox = self._brokers[broker].inbox, []
        for request in waiting:
            self._arrive(request)
        for place in self._places():
            if place.leader is None and broker in place.replicas:
                self._lead(place, broker)

    def _into(self, broker: int, state: BrokerState) -> None:
        self._brokers[broker].state = state
        self._brokers[broker].round += 1
        self.log_changes += 1

    def _elect_later(self, broker: int, wait_s: float) -> None:
        number = self._brokers[broker].round

        def elect() -> None:
            if self._brokers[broker].round != number:
                return
            for place in self._places():
                if place.leader in (broker, None):
                    alive = [
                        each
                        for each in place.replicas
                        if self._brokers[each].state is BrokerState.UP
                    ]
                    if alive:
                        self._lead(place, alive[0])

        self.at(self.time_s + wait_s, elect)

    def _lead(self, place: _Place, broker: int) -> None:
        place.leader = broker
        place.log.epoch += 1
        self.log_changes += 1
        if place.log.topic == _COORDINATORS:
            for name, group in self._groups.items():
                if self._coordinator_place(name) is place:
                    group.coordinator_moved()

    def _lose_waiting_members(self, broker: int) -> None:
        for name, group in self._groups.items():
            if self._coordinator_place(name).leader == broker:
                group.coordinator_moved()

    def _led_by(self, broker: int) -> list[_Place]:
        return [place for place in self._places() if place.leader == broker]

    def _places(self) -> Iterable[_Place]:
        yield from self._coordinators
        for topic in self._topics.values():
            yield from topic.places

    def leader_of(self, where: Partition) -> int | None:
        """The broker that leads a partition; ``None`` if no broker does now, or it does not
        exist.
        """
        place = self._place_of(where)
        return None if place is None else place.leader

    def coordinator_of(self, name: str) -> int | None:
        """The broker that coordinates a group or a transactional id; ``None`` if no broker does
        now.
        """
        return self._coordinator_place(name).leader

    def _coordinator_place(self, name: str) -> _Place:
        return self._coordinators[crc32(name.encode()) % len(self._coordinators)]

    # ---- topics ----------------------------------------------------------------------------------

    def create_topic(
        self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        if topic in self._topics:
            raise RefusedByBroker(ErrorCode.TOPIC_ALREADY_EXISTS, topic)
        self._topics_made += 1
        places = self._made_places(topic, partitions)
        identity = f"id-{self._topics_made}"
        self._topics[topic] = _SimulatedTopic(identity, places, dict(configs or {}))
        self.log_changes += 1

    def add_partitions(self, topic: str, count: int) -> None:
        """Let the topic have ``count`` partitions."""
        places = self._known_topic(topic).places
        places += self._made_places(topic, count - len(places), first=len(places))
        self.log_changes += 1

    def delete_topic(self, topic: str) -> None:
        """Delete the topic, and the offsets that were committed for it."""
        self._known_topic(topic)
        del self._topics[topic]
        for group in self._groups.values():
            group.forget_topic(topic)
        self._transactions.forget_topic(topic)
        self.log_changes += 1

    def topics(self) -> dict[str, TopicFacts]:
        """All topics, in the order in which they were made."""
        return {name: TopicFacts(each.id, len(each.places)) for name, each in self._topics.items()}

    def log_of(self, where: Partition) -> PartitionLog:
        """The log of a partition, for judges and scenarios."""
        return self._led(where).log

    def _made_places(self, topic: str, partitions: int, first: int = 0) -> list[_Place]:
        count = len(self._brokers)
        places = []
        for number in range(first, first + partitions):
            replicas = tuple((number + more) % count for more in range(min(_REPLICATION, count)))
            up = [each for each in replicas if self._brokers[each].state is BrokerState.UP]
            places.append(_Place(PartitionLog(topic, number), replicas, up[0] if up else None))
        return places

    def _known_topic(self, topic: str) -> _SimulatedTopic:
        found = self._topics.get(topic)
        if found is None:
            raise RefusedByBroker(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic)
        return found

    def _place_of(self, where: Partition) -> _Place | None:
        topic = self._topics.get(where.topic)
        if topic is None or not 0 <= where.number < len(topic.places):
            return None
        return topic.places[where.number]

    def _led(self, where: Partition) -> _Place:
        place = self._place_of(where)
        if place is None:
            raise RefusedByBroker(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, where)
        return place

    # ---- what brokers are asked: reading ---------------------------------------------------------

    def _log_at(self, broker: int, where: Partition) -> PartitionLog:
        place = self._led(where)
        if place.leader != broker:
            raise RefusedByBroker(ErrorCode.NOT_LEADER_OR_FOLLOWER, where)
        return place.log

    def fetch(
        self, broker: int, wanted: Mapping[Partition, int], most: int
    ) -> tuple[int, dict[Partition, FetchedPart | ErrorCode]]:
        """Return committed records, beginning at each offset, and how many changes the cluster had
        made by then.
        """
        found: dict[Partition, FetchedPart | ErrorCode] = {}
        for where, offset in wanted.items():
            try:
                part = self._log_at(broker, where).read(offset, most)
            except RefusedByBroker as exc:
                found[where] = exc.code
            else:
                if part.next_offset > offset:
                    found[where] = part
        return self.log_changes, found

    def ends(self, broker: int, asked: Iterable[Partition]) -> dict[Partition, tuple[int, int]]:
        """The last stable offset and the end of each partition."""
        logs = {where: self._log_at(broker, where) for where in asked}
        return {where: (log.stable_end, log.end) for where, log in logs.items()}

    # ---- what brokers are asked: groups ----------------------------------------------------------

    def group_at(self, broker: int, name: str) -> ConsumerGroup:
        """The group, if ``broker`` coordinates it; else raises COORDINATOR_NOT_AVAILABLE."""
        if self.coordinator_of(name) != broker:
            raise RefusedByBroker(ErrorCode.COORDINATOR_NOT_AVAILABLE, name)
        return self.group(name)

    def group(self, name: str) -> ConsumerGroup:
        """The group, whichever broker coordinates it: for judges and scenarios."""
        found = self._groups.get(name)
        if found is None:
            delay_s = self.settings.initial_rebalance_delay_s
            found = self._groups[name] = ConsumerGroup(name, self, delay_s)
        return found

    def commit(
        self, broker: int, who: GroupMembership, offsets: Mapping[Partition, StoredOffset]
    ) -> None:
        group = self.group_at(broker, who.group_id)
        for where in offsets:
            self._led(where)
        group.commit(who, offsets)

    # ---- what brokers are asked: producing -------------------------------------------------------

    def initialize_producer(
        self, broker: int, name: str | None, timeout_s: float
    ) -> ProducerIdentity:
        """Give a producer its id and epoch; earlier producers of the same name are fenced."""
        self._require_coordinator(broker, name)
        return self._transactions.initialize(name, timeout_s)

    def produce(self, broker: int, part: ProducedPart) -> int:
        """Append records; return the offset of the first one. For a producer with a transaction,
        add the partition to the transaction if it is not in it yet (KIP-890).
        """
        log = self._log_at(broker, part.where)
        who = part.who
        if who.name is not None:
            self._transactions.begin_in(who, partition=part.where)
        limit = self._limit_of(part.where.topic)
        if any(row.size > limit for row in part.rows):
            raise RefusedByBroker(ErrorCode.MESSAGE_TOO_LARGE, part.where)
        stamp = ProducerStamp(who.producer_id, who.epoch, part.sequence, who.name is not None)
        first = log.append(part.rows, stamp)
        self.log_changes += 1
        return first

    def add_offsets(
        self,
        broker: int,
        producer: ProducerIdentity,
        who: GroupMembership,
        offsets: Mapping[Partition, StoredOffset],
    ) -> None:
        """Add offsets of a group to the transaction; they count when it is committed."""
        self._require_coordinator(broker, producer.name)
        if self.coordinator_of(who.group_id) is None:
            raise RefusedByBroker(ErrorCode.COORDINATOR_NOT_AVAILABLE, who.group_id)
        group = self.group(who.group_id)
        self._transactions.begin_in(producer, group=who.group_id)
        group.commit_in_transaction(who, producer.producer_id, offsets)

    def end_transaction(self, broker: int, who: ProducerIdentity, *, is_committed: bool) -> None:
        self._require_coordinator(broker, who.name)
        self._transactions.end(who, is_committed=is_committed)

    def _require_coordinator(self, broker: int, name: str | None) -> None:
        if name is not None and self.coordinator_of(name) != broker:
            raise RefusedByBroker(ErrorCode.COORDINATOR_NOT_AVAILABLE, name)

    def _limit_of(self, topic: str) -> int:
        told = self._known_topic(topic).configs.get("max.message.bytes")
        return _MAX_MESSAGE_BYTES if told is None else int(told)

    def _write_markers(
        self,
        producer_id: int,
        epoch: int,
        is_committed: bool,
        partitions: dict[Partition, None],
        groups: dict[str, None],
    ) -> bool:
        for name in list(groups):
            if self.coordinator_of(name) is not None:
                self.group(name).end_transaction(producer_id, is_committed=is_committed)
                del groups[name]
        for where in list(partitions):
            place = self._place_of(where)
            if place is None or place.leader is not None:
                if place is not None:
                    place.log.end_transaction(producer_id, epoch, is_committed=is_committed)
                del partitions[where]
        self.log_changes += 1
        return not partitions and not groups
