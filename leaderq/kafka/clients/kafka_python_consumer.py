"""A :class:`~leaderq.kafka.clients.consumer.ConsumerClient` on kafka-python.

Only :meth:`KafkaPythonConsumer.attend` begins a join, never a short ``poll`` (B12), and the
assignor is the gate before each request to join (B36). Besides these it leans on B3, B22 and B37.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kafka import KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka import errors as native
from kafka.consumer.fetcher import ConsumerRecord
from kafka.coordinator.assignors.range import RangePartitionAssignor

from leaderq.base import clock
from leaderq.errors import LeaderqError
from leaderq.kafka.clients import private_api
from leaderq.kafka.clients.client_options import consumer_table, for_client, in_kafka_pythons_names
from leaderq.kafka.clients.consumer import (
    CommitFuture,
    ConsumerClient,
    ConsumerSettings,
    KafkaAway,
    Offsets,
    TopicPattern,
)
from leaderq.kafka.clients.kafka_python_connection import (
    connected,
    connection_options,
    quiet_client_logs,
    translated,
)
from leaderq.kafka.record import Offset, Partition, Record, epoch_of
from leaderq.threads import primitives

# How long a broker may keep a fetch open that finds nothing. One fetch is in flight per broker:
# while it waits for records of quiet partitions, a busy partition on the same broker cannot be
# fetched, and one busy partition among quiet ones is read at 4 MB/s with kafka-python's default of
# 500 ms. Short waits cost an idle leader 2 % of a core more. So there are two. Each fetch also
# names all partitions: with thousands of them the quiet wait is longer, up to a third of the
# request time-out, because the broker answers nothing else on that connection.
BUSY_FETCH_MS, QUIET_FETCH_MS, LONGEST_FETCH_MS = 10, 500, 2000
_FETCH_MS_A_PARTITION = 0.25

TOPICS_KNOWN_MS = 10_000
"""How long a new partition may go unnoticed."""

# How long one commit may look for a coordinator and repeat itself.
_COMMIT_MS = 1000
_JOIN_S = 1.0
_SEND_S = 0.0005
_QUIET_AFTER_S = 1.0


def require_same_log(
    settings: ConsumerSettings, offsets: Offsets, epochs: Mapping[Partition, int]
) -> set[Partition]:
    """Raise :class:`~leaderq.kafka.clients.consumer.LogTruncated` unless the broker's log still
    has, with the same epoch, the record before each of ``offsets``. ``epochs``: the leader epochs
    of records that were read there. Return the partitions that have a newer leader than
    ``offsets`` say, for which the broker was asked. Raises ``KafkaAway`` if that is not known
    within the request time-out.
    """
    until_s, topics = clock.now_s() + settings.request_timeout_s, {where.topic for where in offsets}
    least = {"max_partition_fetch_bytes": 1}  # counts each batch of records, and nobody reads it
    alone = replace(settings, topics=tuple(topics), membership=False, options=least)
    with closing(KafkaPythonConsumer(alone)) as consumer:
        consumer.open()
        places, client = [TopicPartition(*where) for where in offsets], consumer._consumer
        client.assign(places)
        consumer.seek(offsets)
        while True:
            heard = private_api.leader_epochs(client, places)
            consumer.poll(_JOIN_S, 1)  # asks about what was older than that, or older still
            is_heard = all(heard[at] >= epochs.get(Partition(*at), 0) for at in places)
            if is_heard and not private_api.is_validating(client, places):
                break
            if clock.now_s() > until_s:
                raise KafkaAway("whether the log was cut off is not known yet")
        consumer.poll(0.0, 1)  # raises errors found since the last check began
    return {at for at, to in offsets.items() if heard[TopicPartition(*at)] > epoch_of(to)}


def consumer_options(settings: ConsumerSettings) -> dict[str, Any]:
    address, wait_s = settings.address, settings.open_timeout_s
    return {
        **connection_options(address, settings.security, open_timeout_s=wait_s),
        **in_kafka_pythons_names(consumer_table(settings)),
        "metrics_enabled": False,  # costs time at every fetch, and nobody reads it
        # Any other value would jump silently when the offset is gone; leaderq decides that.
        "auto_offset_reset": "none",
        "request_timeout_ms": int(settings.request_timeout_s * 1000),
        "fetch_max_wait_ms": BUSY_FETCH_MS,
        # 50 MB by default, besides the batches in hand and ahead
        "fetch_max_bytes": 16 << 20,
        "metadata_max_age_ms": TOPICS_KNOWN_MS,
        **for_client(KafkaConsumer, settings.options),
    }


class _Seen(Record):
    """kafka-python's own tuple, with its class changed in place: 50 ns, where a copy costs 1 us."""

    __slots__ = ()

    if not TYPE_CHECKING:
        topic, partition = ConsumerRecord.topic, ConsumerRecord.partition
        offset, timestamp_ms = ConsumerRecord.offset, ConsumerRecord.timestamp
        key, value, headers = ConsumerRecord.key, ConsumerRecord.value, ConsumerRecord.headers
        leader_epoch = ConsumerRecord.leader_epoch


class _Commit:
    def __init__(self, future: Any, consumer: KafkaPythonConsumer) -> None:
        self._future, self._consumer = future, consumer
        self.answered = primitives.Event()
        future.add_both(lambda _answer: self.answered.set())

    def done(self, wait_s: float) -> bool:
        if not self.answered.wait(wait_s):
            return False
        with self._consumer._errors_translated("committing"):
            if self._future.exception is not None:
                raise self._future.exception
        return True


class _GatedAssignor(RangePartitionAssignor):
    """Assigns all partitions to the one member; raises before a request to join if ``allowed``
    does.
    """

    def __init__(self, consumer: KafkaPythonConsumer) -> None:
        self._of = consumer

    def metadata(self, topics: Iterable[str]) -> Any:
        self._of._allowed()
        return super().metadata(topics)

    def on_assignment(self, assignment: Any, generation: int) -> None:
        self._of.joins += 1


class KafkaPythonConsumer(ConsumerClient):
    """See :class:`~leaderq.kafka.clients.consumer.ConsumerClient`."""

    _natives = (native.KafkaError,)

    def __init__(self, settings: ConsumerSettings) -> None:
        super().__init__(settings)
        self._assignor = _GatedAssignor(self)
        self._busy_at = clock.now_s()
        self._quiet_fetch_ms = QUIET_FETCH_MS

    def _find_topics(self, until_s: float) -> None:
        quiet_client_logs()
        options = consumer_options(self._settings)
        options["partition_assignment_strategy"] = (self._assignor,)
        with self._errors_translated("connecting"):
            self._client = client = connected(KafkaConsumer, self._settings.address, options)
            # These ask for all topics before the first metadata: otherwise the first join is
            # followed by another.
            if self._pattern is not None:
                client.topics()
            self._ask_for_topics()
            for topic in self.topics:
                client.partitions_for_topic(topic)

    def _translated(self, exc: Any, doing: str) -> LeaderqError:
        return translated(exc, doing, self._settings.address)

    @property
    def topics(self) -> tuple[str, ...]:
        """The names of the topics that are known now."""
        topics = self._settings.topics
        if isinstance(topics, TopicPattern):
            return topics.among(private_api.cluster_of(self._consumer).topics())
        return topics

    def _ask_for_topics(self) -> None:
        client, topics = self._consumer, self.topics
        cluster = private_api.cluster_of(client)
        if not self._settings.membership:
            cluster.set_topics(topics)  # kept up to date though nothing is assigned yet
        elif topics and set(topics) != client.subscription():
            client.subscribe(topics=list(topics))
        if self._pattern is not None:
            cluster.need_all_topic_metadata = True

    def _join(self, timeout_s: float) -> bool:
        self.attend(timeout_s)
        return self.joins > 0 and not self._needs_join()

    def _needs_join(self) -> bool:
        """Whether a join is under way, or the next poll will begin one."""
        coordinator = private_api.coordinator_of(self._consumer)
        return bool(coordinator.rejoining or coordinator.need_rejoin())

    def _hold(self, partitions: frozenset[Partition]) -> None:
        with self._errors_translated("taking partitions"):
            self._consumer.assign([TopicPartition(*partition) for partition in sorted(partitions)])
        self.joins += 1

    @property
    def is_joining(self) -> bool:
        rejoining: bool = private_api.coordinator_of(self._consumer).rejoining
        return self._settings.membership and rejoining

    def _ask_to_join(self) -> None:
        self._ask_for_topics()
        private_api.coordinator_of(self._consumer).request_rejoin()

    def attend(self, timeout_s: float) -> None:
        if not self._settings.membership:
            return
        coordinator = private_api.coordinator_of(self._consumer)
        with self._errors_translated("attending the group"):
            if coordinator.rejoining and not coordinator.need_rejoin():
                coordinator.request_rejoin()  # a join that ended unseen is asked for again (B12)
            coordinator.poll(timeout_ms=timeout_s * 1000)

    def assigned(self) -> frozenset[Partition]:
        return frozenset(Partition(*partition) for partition in self._consumer.assignment())

    def existing(self) -> frozenset[Partition]:
        known = private_api.cluster_of(self._consumer).partitions_for_topic
        return frozenset(Partition(name, at) for name in self.topics for at in known(name) or ())

    def topic_ids(self) -> dict[str, str]:
        cluster = private_api.cluster_of(self._consumer)
        found = {topic: cluster.topic_id(topic) for topic in self.topics}
        return {topic: str(known) for topic, known in found.items() if known is not None}

    def poll(self, timeout_s: float, max_records: int) -> dict[Partition, Sequence[Record]]:
        if self._settings.membership and self._needs_join():
            self.attend(_JOIN_S)
            return {}  # assigned again, perhaps; the caller sets positions first
        joins = self.joins
        with self._errors_translated("reading"):
            try:
                polled = self._consumer.poll(timeout_ms=timeout_s * 1000, max_records=max_records)
            except native.NoOffsetForPartitionError:
                if self.joins == joins:
                    raise
                # new metadata came just now, and with it new partitions, within this very poll
                return {}
            except native.KafkaError as exc:
                if not private_api.can_be_read(self._consumer, exc):
                    raise
                return {}
        # Fetches may wait long only where nothing has come for a while.
        now = clock.now_s()
        self._busy_at = now if polled else self._busy_at
        wait_ms = BUSY_FETCH_MS if now - self._busy_at < _QUIET_AFTER_S else self._quiet_fetch_ms
        private_api.set_fetch_wait(self._consumer, wait_ms)
        seen_as = private_api.seen_as
        return {Partition(*where): seen_as(_Seen, rows) for where, rows in polled.items()}

    def seek(self, offsets: Offsets, resting: Collection[Partition] = ()) -> None:
        consumer = self._consumer
        private_api.resume_all(consumer)
        longer_ms = min(LONGEST_FETCH_MS, int(len(offsets) * _FETCH_MS_A_PARTITION))
        self._quiet_fetch_ms = max(QUIET_FETCH_MS, longer_ms)
        states = private_api.partition_states(consumer)
        try:
            for at, to in offsets.items():
                states[TopicPartition(*at)].seek(OffsetAndMetadata(to, "", epoch_of(to)))
        except KeyError as exc:  # lost to a rebalance since: the next join sets positions again
            raise KafkaAway(f"partition {exc} is not held any more") from exc
        consumer.pause(*(TopicPartition(*partition) for partition in resting))

    def positions(self) -> dict[Partition, int]:
        states = list(private_api.partition_states(self._consumer).items())
        found = ((at, state.position) for at, state in states)
        return {Partition(*at): Offset(to.offset, to.leader_epoch) for at, to in found if to}

    def _stored(
        self, partitions: Collection[Partition], timeout_s: float
    ) -> dict[Partition, tuple[Offset, str]]:
        asked = [TopicPartition(*partition) for partition in partitions]
        coordinator = private_api.coordinator_of(self._consumer)
        with self._errors_translated("reading committed offsets"):
            stored = coordinator.fetch_committed_offsets(asked, timeout_ms=timeout_s * 1000)
        return {
            Partition(*where): (Offset(kept.offset, kept.leader_epoch), kept.metadata)
            for where, kept in stored.items()
        }

    def _begin_commit(self, offsets: Offsets, note: str) -> CommitFuture:
        wanted = {
            TopicPartition(*at): OffsetAndMetadata(to, note, epoch_of(to))
            for at, to in offsets.items()
        }
        future = private_api.start_commit(self._consumer, wanted, _COMMIT_MS)
        commit = _Commit(future, self)
        # Unpacking records keeps the interpreter busy for milliseconds: let this be sent first.
        commit.answered.wait(_SEND_S)
        return commit

    def group_metadata(self) -> Any:
        group = self._consumer.group_metadata()
        return group if group.member_id and group.generation_id >= 0 else None

    def start_offsets(self, timeout_s: float) -> dict[Partition, int]:
        return self._ask(self._consumer.beginning_offsets, timeout_s)

    def end_offsets(self, timeout_s: float) -> dict[Partition, int]:
        return self._ask(self._consumer.end_offsets, timeout_s)

    def log_ends(self) -> dict[Partition, int]:
        consumer = self._consumer
        found = {Partition(*where): consumer.highwater(where) for where in consumer.assignment()}
        return {where: end for where, end in found.items() if end is not None}

    def _ask(
        self, question: Callable[..., dict[TopicPartition, int]], timeout_s: float
    ) -> dict[Partition, int]:
        wanted = [TopicPartition(*partition) for partition in self.existing()]
        with self._errors_translated("asking for offsets"):
            found = question(wanted, timeout_ms=timeout_s * 1000)
        return {Partition(*where): offset for where, offset in found.items()}

    def _let_go(self) -> None:
        self._client.close(autocommit=False, timeout_ms=1000)
