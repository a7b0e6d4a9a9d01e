"""A producer on a simulated cluster, for transactions, and for dead letters.

Messages are sent while they are produced, with one request for each partition at a time; messages
that come meanwhile are in the next request. A request whose answer was lost is sent again, with the
same sequence number, so nothing is stored twice. There is no thread: requests are repeated only
while the owner produces, commits or waits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from leaderq.base import clock
from leaderq.errors import (
    KafkaError,
    KafkaFenced,
    LeaderqError,
    UnknownTopic,
)
from leaderq.kafka.clients.consumer import KafkaAway, Offsets
from leaderq.kafka.clients.producer import (
    METADATA_S,
    Message,
    ProducerClient,
    ProducerSettings,
    TransactionStage,
    partition_of,
)
from leaderq.kafka.record import Partition, Record, epoch_of
from leaderq.testing.simulation.kafka.cluster import BrokerRequest, ProducedPart
from leaderq.testing.simulation.kafka.consumer_group import GroupMembership, StoredOffset
from leaderq.testing.simulation.kafka.network import BrokerLink, SimulatedKafka
from leaderq.testing.simulation.kafka.transactions import ProducerIdentity
from leaderq.threads import primitives

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.005, 0.25
_BATCH = 1000


class SentMessage:
    """The fate of one message; ``offset`` is -1 until the message is stored."""

    __slots__ = ("error", "is_done", "offset")

    def __init__(self) -> None:
        self.is_done = False
        self.error: LeaderqError | None = None
        self.offset = -1


class _Outgoing:
    """The messages to one partition that are not acknowledged yet, in order."""

    __slots__ = ("part", "receipts", "rows", "sent", "sequence", "under_way", "where")

    def __init__(self, where: Partition) -> None:
        self.where = where
        self.rows: list[Record] = []
        self.receipts: list[SentMessage] = []
        self.under_way: list[SentMessage] = []
        self.part: ProducedPart | None = None
        self.sent: BrokerRequest | None = None
        self.sequence = 0


class SimulatedProducer(ProducerClient):
    """See :class:`~leaderq.kafka.clients.producer.ProducerClient`."""

    _over: KafkaFenced | None = None
    _has_begun = False

    def __init__(self, kafka: SimulatedKafka, settings: ProducerSettings) -> None:
        super().__init__(settings)
        self._kafka = kafka
        self._lock = primitives.Lock()
        self._counts: dict[str, int] = {}
        self._identity: ProducerIdentity | None = None
        self._outgoing: dict[Partition, _Outgoing] = {}
        self._turn = 0

    def _connect(self, until_s: float) -> None:
        settings = self._settings
        self._client = BrokerLink(self._kafka, settings.client_id, settings.request_timeout_s)
        self._client.require_address(settings.address, until_s - clock.now_s())
        self._learn(until_s)

    @property
    def _link(self) -> BrokerLink:
        link: BrokerLink = self._producer
        return link

    def _let_go(self) -> None:
        self._outgoing = {}
        if self._settings.transactional_id is None:
            self._identity = None

    # ---- topics ----------------------------------------------------------------------------------

    def _learn(self, until_s: float) -> None:
        link = self._link
        told = "asking for topics", link.any_broker, lambda _: link.cluster.topics(), until_s
        found = link.ask(*told)
        self._counts = {name: each.partitions for name, each in found.items()}

    def partitions(self, topic: str) -> int:
        if (count := self._counts.get(topic)) is None:
            self._learn(clock.now_s() + METADATA_S)
            count = self._counts.get(topic)
        if count is None:
            raise UnknownTopic(f"there is no topic {topic!r}; create it, or correct the name")
        return count

    def _place_of(self, message: Message) -> Partition:
        topic, _, key, _, number, _ = message
        count = self.partitions(topic)
        if number is None:
            self._turn += 1
            number = self._turn % count if key is None else partition_of(key, count)
        if number >= count:
            raise UnknownTopic(f"topic {topic!r} has {count} partitions, and no number {number}")
        return Partition(topic, number)

    # ---- sending ---------------------------------------------------------------------------------

    def _identified(self, until_s: float) -> ProducerIdentity:
        """The identity of this producer, which the brokers are asked for once."""
        if self._identity is None:
            link = self._link
            self._identity = link.ask(
                "beginning to produce",
                link.any_broker,
                lambda broker: link.cluster.initialize_producer(broker, None, 0.0),
                until_s,
            )
        return self._identity

    def _hand_over(self, message: Message, where: Partition) -> SentMessage:
        topic, value, key, headers, _, timestamp_ms = message
        when_ms = clock.now_ms() if timestamp_ms is None else timestamp_ms
        row = Record(topic, where.number, -1, when_ms, key, value, list(headers))
        receipt = SentMessage()
        with self._lock:
            outgoing = self._outgoing.get(where)
            if outgoing is None:
                outgoing = self._outgoing[where] = _Outgoing(where)
            outgoing.rows.append(row)
            outgoing.receipts.append(receipt)
            self._serve(outgoing)
        return receipt

    def _serve(self, outgoing: _Outgoing) -> bool:
        """Take in the answer to the present request, and send the next one. Return whether the
        answer was an error after which the same request must be sent again.
        """
        link, is_repeated = self._link, False
        if outgoing.sent is not None and link.is_answered(outgoing.sent):
            sent, outgoing.sent = outgoing.sent, None
            if sent.error is None:
                self._stored(outgoing, sent.result)
            elif sent.error.code.is_retriable:
                is_repeated = True
            else:
                code = sent.error.code
                told = f"{link.told(f'producing to {outgoing.where.topic!r}')}: {sent.error}"
                self._refused(outgoing, code.failure.error(told))
        if outgoing.sent is None and not is_repeated:
            self._send_next(outgoing)
        return is_repeated

    def _send_next(self, outgoing: _Outgoing) -> None:
        if self._failed or self._identity is None:
            return
        if outgoing.part is None and outgoing.rows:
            rows, outgoing.rows = outgoing.rows[:_BATCH], outgoing.rows[_BATCH:]
            outgoing.under_way = outgoing.receipts[:_BATCH]
            outgoing.receipts = outgoing.receipts[_BATCH:]
            which = outgoing.where, rows, self._identity, outgoing.sequence
            outgoing.part = ProducedPart(*which)
        if outgoing.part is not None:
            leader = self._link.leader_of(outgoing.where)
            if leader is not None:
                work = partial(_produce, self._link.cluster, leader, outgoing.part)
                outgoing.sent = self._link.send(leader, work)

    def _stored(self, outgoing: _Outgoing, first: int) -> None:
        for offset, receipt in enumerate(outgoing.under_way, first):
            receipt.offset, receipt.is_done = offset, True
        outgoing.sequence += len(outgoing.under_way)
        outgoing.part, outgoing.under_way = None, []

    def _refused(self, outgoing: _Outgoing, error: LeaderqError) -> None:
        """Fail all messages of the refused request and all after them, because a gap must not be
        stored.
        """
        self._failed.append((outgoing.where.topic, error))
        if isinstance(error, KafkaFenced):
            self._over = self._over or error
        for receipt in (*outgoing.under_way, *outgoing.receipts):
            receipt.error, receipt.is_done = error, True
        outgoing.part, outgoing.under_way = None, []
        outgoing.rows, outgoing.receipts = [], []

    def _settle(self, until_s: float, is_over: Callable[[], bool]) -> bool:
        """Hear answers and repeat requests until ``is_over`` or ``until_s``; return whether it is
        over.
        """
        pause_s = _FIRST_PAUSE_S
        while True:
            with self._lock:
                repeated = [self._serve(each) for each in list(self._outgoing.values())]
                under_way = [each.sent for each in self._outgoing.values() if each.sent is not None]
            if is_over():
                return True
            left_s = until_s - clock.now_s()
            if left_s <= 0:
                return False
            if under_way and not any(repeated):
                self._link.wait(under_way, min(until_s, clock.now_s() + self._timeout_s))
                self._give_up_late(under_way)
            else:
                clock.sleep(min(left_s, pause_s))
                pause_s = min(_LONGEST_PAUSE_S, pause_s * 2)

    @property
    def _timeout_s(self) -> float:
        return self._settings.request_timeout_s

    def _give_up_late(self, under_way: list[BrokerRequest]) -> None:
        """Let the requests be sent again that were not answered within their time-out."""
        if any(self._link.is_answered(each) for each in under_way):
            return
        with self._lock:
            for each in self._outgoing.values():
                if each.sent is not None and self._link.is_late(each.sent):
                    each.sent = None

    @property
    def _has_unacknowledged(self) -> bool:
        return any(each.part is not None or each.rows for each in self._outgoing.values())

    def send_run(self, messages: Sequence[Message], partition: int, receipts: list[Any]) -> None:
        self._identified(clock.now_s() + METADATA_S)
        for message in messages:
            receipts.append(self._hand_over(message, Partition(message.topic, partition)))

    def wait(self, receipt: SentMessage, until_s: float) -> None:
        self._settle(until_s, lambda: receipt.is_done)

    def failure(self, receipt: SentMessage, topic: str) -> LeaderqError | None:
        return receipt.error

    def offset(self, receipt: SentMessage) -> int:
        return receipt.offset

    def fence(self, timeout_s: float) -> bool:
        settings, link = self._settings, self._link
        name = settings.transactional_id or ""
        try:
            self._identity = link.ask(
                "fencing in a producer",
                partial(link.coordinator_of, name),
                lambda broker: link.cluster.initialize_producer(
                    broker, name, settings.transaction_timeout_s
                ),
                clock.now_s() + timeout_s,
            )
        except KafkaAway:
            return False
        return True

    def _begin(self) -> None:
        self._require_life()
        if self._identity is None:
            raise KafkaError("this producer was not fenced in")
        if self._stage is not TransactionStage.NONE:
            raise KafkaError("a transaction is open already")
        self._has_begun = False

    def produce(self, message: Message) -> None:
        self._require_life()
        if self._settings.transactional_id is None:
            self._identified(clock.now_s() + self._settings.open_timeout_s)
        elif self._stage is TransactionStage.NONE:
            raise KafkaError("no transaction is open")
        where = self._place_of(message)
        self._has_begun = True
        self._hand_over(message, where)

    def _require_life(self) -> None:
        _ = self._link
        if self._over is not None:
            raise KafkaFenced(str(self._over))

    def _acknowledged(self, deadline: float) -> bool:
        self._require_life()
        self._settle(deadline, lambda: bool(self._failed) or not self._has_unacknowledged)
        return not self._has_unacknowledged

    def _translated(self, exc: Any, doing: str) -> LeaderqError:
        error: LeaderqError = exc
        return error

    def _send_offsets(self, offsets: Offsets, group: Any, deadline: float) -> None:
        who = GroupMembership(group) if isinstance(group, str) else group
        mark = self._settings.mark
        stored = {at: StoredOffset(int(to), epoch_of(to), mark) for at, to in offsets.items()}
        cluster, identity = self._link.cluster, self._identity
        if identity is None or self._stage is TransactionStage.NONE:
            raise KafkaError("no transaction is open")
        self._has_begun = True
        self._ask(
            "sending offsets to a transaction",
            lambda broker: cluster.add_offsets(broker, identity, who, stored),
            deadline,
        )

    def _complete(self, deadline: float) -> None:
        self._end("committing a transaction", deadline, is_committed=True)

    def _give_up(self, deadline: float) -> None:
        for each in self._outgoing.values():
            each.rows, each.receipts = [], []
        # What is under way may still be stored, and would be taken into the next transaction.
        is_settled = self._settle(deadline, lambda: not self._has_unacknowledged)
        if not is_settled:
            raise KafkaAway(f"{self._link.told('aborting')}: a message may be under way")
        self._end("aborting a transaction", deadline, is_committed=False)

    def _end(self, doing: str, deadline: float, *, is_committed: bool) -> None:
        cluster, identity = self._link.cluster, self._identity
        if self._has_begun and identity is not None:
            self._ask(
                doing,
                lambda broker: cluster.end_transaction(broker, identity, is_committed=is_committed),
                deadline,
            )

    def _ask(self, doing: str, work: Callable[[int], Any], deadline: float) -> None:
        self._require_life()
        link, name = self._link, self._settings.transactional_id or ""
        try:
            link.ask(doing, partial(link.coordinator_of, name), work, deadline)
        except KafkaFenced as exc:
            if "FENCED_INSTANCE_ID" not in str(exc):
                self._over = exc
            raise


def _produce(cluster: Any, leader: int, part: ProducedPart, _request: BrokerRequest) -> Any:
    return cluster.produce(leader, part)
