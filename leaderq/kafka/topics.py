"""Small dealings with a Kafka cluster apart from draining it, for the demo, ``leaderq doctor``,
benchmarks and tests; each call opens its own connection and closes it. All raise
``ConfigurationError`` (malformed address), ``ServersUnreachable``, ``AccessRefused`` or
``KafkaError``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypedDict

from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka import errors as native
from kafka.admin import ConfigResource

from leaderq.base import clock
from leaderq.config import KafkaSecurity
from leaderq.errors import AccessRefused, KafkaError, UnknownTopic
from leaderq.kafka.clients.consumer import ConsumerSettings, KafkaAway, until_answered
from leaderq.kafka.clients.kafka_python_connection import (
    Client,
    connected,
    connection_options,
    errors_translated,
    quiet_client_logs,
)
from leaderq.kafka.clients.kafka_python_consumer import KafkaPythonConsumer
from leaderq.kafka.clients.kafka_python_producer import KafkaPythonProducer
from leaderq.kafka.clients.producer import Message, ProducerSettings
from leaderq.kafka.record import Offset, Partition, Record

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

Feed = (
    tuple[bytes | None, bytes | None]
    | tuple[bytes | None, bytes | None, Sequence[tuple[str, bytes]]]
)
_LARGEST, _LEAST_IN_SYNC = "max.message.bytes", "min.insync.replicas"
_REFUSED = 29  # TOPIC_AUTHORIZATION_FAILED
MOST_FED_BYTES = 1 << 20
"""The largest record that :func:`produce` sends: as a topic takes them by default, or a little
more.
"""
_POLL_S = 0.2
_SILENCE_S = 30.0


class Access(TypedDict, total=False):
    """The login (default: none), and how many seconds an answer may take (default: 10)."""

    security: KafkaSecurity | None
    timeout_s: float


def create_topics(
    address: str,
    topics: Mapping[str, int],
    *,
    configs: Mapping[str, str] | None = None,
    replication: int = 1,
    **access: Unpack[Access],
) -> list[str]:
    """Create topics, each with its number of partitions (-1: the cluster's default) and
    ``configs``. Returns the names of those created, once each partition has a leader. Existing
    topics are left alone.
    """
    created = []
    options = {"replication_factor": replication, "configs": dict(configs or {})}
    timeout_s = access.setdefault("timeout_s", 30.0)
    with opened(KafkaAdminClient, address, "creating topics", **access) as admin:
        for topic, partitions in topics.items():
            try:
                admin.create_topics({topic: {"num_partitions": partitions, **options}})
            except native.TopicAlreadyExistsError:
                continue
            created.append(topic)
        admin.wait_for_topics(list(topics), timeout_ms=int(timeout_s * 1000))
    return created


def ensure_topic(
    address: str, topic: str, *, configs: Mapping[str, str] | None = None, **access: Unpack[Access]
) -> bool:
    """Create ``topic`` if it is not there; return whether it was created now.

    :raises UnknownTopic: it cannot be created.
    """
    if topic in existing_topics(address, **access):
        return False
    try:
        create_topics(address, {topic: -1}, configs=configs, replication=-1, **access)
    except (AccessRefused, KafkaError) as exc:
        raise UnknownTopic(
            f"no topic {topic!r} on Kafka {address!r}, and it cannot be created: {exc}; create it"
        ) from exc
    return True


def existing_topics(address: str, **access: Unpack[Access]) -> frozenset[str]:
    """The topics that this user may see, except Kafka's own."""
    with opened(KafkaConsumer, address, "asking for topics", **access) as consumer:
        return frozenset(consumer.topics())


def end_offsets(address: str, topic: str, **access: Unpack[Access]) -> dict[int, int]:
    """For each partition of ``topic`` the offset after its last stable record."""
    return {where.number: end for where, (_, end) in bounds(address, [topic], **access).items()}


def bounds(
    address: str, topics: Sequence[str], **access: Unpack[Access]
) -> dict[Partition, tuple[int, int]]:
    """For each partition the first offset, and the offset after the last stable record."""
    wait_ms, stable = access.get("timeout_s", 10.0) * 1000, {"isolation_level": "read_committed"}
    with opened(KafkaConsumer, address, "asking for offsets", stable, **access) as consumer:
        where = [each for topic in topics for each in _partitions(consumer, topic, address)]
        first = consumer.beginning_offsets(where, timeout_ms=wait_ms)
        ends = consumer.end_offsets(where, timeout_ms=wait_ms)
    return {Partition(*each): (first[each], ends[each]) for each in where}


def offsets_at(
    address: str, topics: Sequence[str], at_ms: int, **access: Unpack[Access]
) -> dict[Partition, int]:
    """Return, for each partition, the offset of the first record that is not older than ``at_ms``
    (milliseconds since the epoch); its end, if there is none.
    """
    known = bounds(address, topics, **access)
    # Before the epoch there is no record, and Kafka takes no such time.
    asked = {TopicPartition(*where): max(0, at_ms) for where in known}
    with opened(KafkaConsumer, address, "asking for offsets", **access) as consumer:
        found = consumer.offsets_for_times(asked, timeout_ms=access.get("timeout_s", 10.0) * 1000)
    first = {Partition(*where): each.offset for where, each in found.items() if each is not None}
    return {where: first.get(where, end) for where, (_, end) in known.items()}


def stored_offsets(
    address: str, group: str, **access: Unpack[Access]
) -> dict[Partition, tuple[Offset, str]]:
    """Return the offsets that ``group`` has committed, each with the note beside it; asks again
    while the broker loads them.
    """
    doing = "asking for offsets"
    with opened(KafkaAdminClient, address, doing, **access) as admin:

        def ask() -> Mapping[Any, Any]:
            with errors_translated(doing, address):
                return admin.list_group_offsets({group: None})[group]

        found = until_answered(ask, access.get("timeout_s", 10.0))
    return {
        Partition(*where): (Offset(kept.offset, kept.leader_epoch), kept.metadata or "")
        for where, kept in found.items()
        if kept.offset >= 0
    }


def committed(address: str, group: str, topic: str, **access: Unpack[Access]) -> dict[int, int]:
    """The offsets committed by ``group`` on ``topic``."""
    found = stored_offsets(address, group, **access).items()
    return {where.number: at for where, (at, _) in found if where.topic == topic}


def newest_records(address: str, topic: str, count: int, **access: Unpack[Access]) -> list[Record]:
    """Return the ``count`` newest stable records of ``topic``, in order of their time stamps;
    records with the same time stamp are in order of their partitions.
    """
    with TopicReader(address, topic, group="leaderq", **access) as reader:
        found = list(reader.read({number: end - count for number, end in reader.ends.items()}))
    found.sort(key=lambda record: (record.timestamp_ms, record.partition, record.offset))
    return found[-count:]


class TopicReader(KafkaPythonConsumer):
    """Reads the records of ``topic``, in a ``with`` block, from any offset to ``ends``, where the
    partitions ended when the block was entered. Joins no group, and reads only stable records.
    """

    def __init__(
        self,
        address: str,
        topic: str,
        *,
        group: str,
        security: KafkaSecurity | None = None,
        timeout_s: float = 10.0,
    ) -> None:
        settings = ConsumerSettings(address, (topic,), group, member=group, membership=False)
        access = security or KafkaSecurity()
        super().__init__(replace(settings, security=access, open_timeout_s=timeout_s))
        self.topic = topic
        self.starts: dict[int, int] = {}
        self.ends: dict[int, int] = {}

    def __enter__(self) -> Self:
        timeout_s = self._settings.open_timeout_s
        try:
            self.open()
        except UnknownTopic as exc:
            raise _unknown(self.topic, self._settings.address) from exc
        try:
            self.join(lambda: None, timeout_s)
            self.starts = {where.number: at for where, at in self.start_offsets(timeout_s).items()}
            self.ends = {where.number: at for where, at in self.end_offsets(timeout_s).items()}
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def read(self, first: Mapping[int, int] | None = None) -> Iterator[Record]:
        """Yield records from ``first`` (default: all) to ``ends``, in order within a partition."""
        first = first or {}
        begins = {
            Partition(self.topic, number): max(start, first.get(number, start))
            for number, start in self.starts.items()
        }
        ends = {where: self.ends[where.number] for where in begins}
        open_ = {where for where, begin in begins.items() if begin < ends[where]}
        self.seek(begins, begins.keys() - open_)
        last_s = clock.now_s()
        while open_:
            polled = self.poll(_POLL_S, 500)
            for where in sorted(polled):
                yield from (row for row in polled[where] if row.offset < ends[where])
            # Positions also pass over entries that are not records (transaction markers).
            positions = self.positions()
            done = {where for where in open_ & positions.keys() if positions[where] >= ends[where]}
            open_ -= done
            if done:
                self._consumer.pause(*(TopicPartition(*where) for where in done))
            if done or polled:
                last_s = clock.now_s()  # (also after the reader took its time)
            elif clock.now_s() - last_s > _SILENCE_S:
                where_from = f"topic {self.topic!r} on Kafka {self._settings.address!r}"
                raise KafkaAway(f"{where_from} returned no records for {_SILENCE_S:.0f} s")


def produce(
    address: str,
    topic: str,
    records: Iterable[Feed],
    *,
    security: KafkaSecurity | None = None,
    timeout_s: float = 60.0,
) -> int:
    """Send ``(key, value)`` or ``(key, value, headers)`` records, each once, in order within a key;
    return their number, or raise if one was not acknowledged within ``timeout_s`` of the last.
    """
    settings = ProducerSettings(
        address,
        security=security or KafkaSecurity(),
        open_timeout_s=min(timeout_s, 30.0),
        max_message_bytes=MOST_FED_BYTES,
        options={"max_block_ms": int(timeout_s * 1000)},  # how long the topic may be unknown
    )
    fields = ((value, key, more[0] if more else ()) for key, value, *more in records)
    messages = (Message(topic, *each) for each in fields)
    with closing(KafkaPythonProducer(settings)) as producer:
        return producer.send_all(messages, timeout_s)


@dataclass(frozen=True)
class TopicView:
    """A topic as the cluster describes it to one user. ``partitions`` is 0 if the topic does not
    exist, or is hidden; ``replicas`` and ``in_sync``: of the partition that has the fewest in sync
    (and of several such the most replicas). ``max_message_bytes``: the largest batch that it takes.
    ``None``: the cluster does not say.
    """

    partitions: int
    leaderless: int
    replicas: int
    in_sync: int
    min_in_sync: int | None
    operations: frozenset[str] | None
    max_message_bytes: int | None = None

    def may(self, operation: str) -> bool:
        return self.operations is None or operation in self.operations


def describe_topics(
    address: str, topics: Sequence[str], **access: Unpack[Access]
) -> dict[str, TopicView]:
    """Return the cluster's description of each topic; one that does not exist has 0 partitions."""
    with opened(KafkaAdminClient, address, "describing topics", **access) as admin:
        found = {each["name"]: each for each in admin.describe_topics(list(topics))}
        there = [name for name, each in found.items() if each["partitions"]]
        asked = [ConfigResource("TOPIC", topic, [_LEAST_IN_SYNC, _LARGEST]) for topic in there]
        told = admin.describe_configs(asked, config_filter="all") if asked else {}
        configs = told.get("topic", {})
    return {name: _view(found[name], configs.get(name, {})) for name in topics}


def _view(topic: Mapping[str, Any], configs: Mapping[str, Any]) -> TopicView:
    partitions, told = topic["partitions"], topic["authorized_operations"]
    operations = frozenset(told) if isinstance(told, list) else None
    sizes = [(len(each["isr_nodes"]), -len(each["replica_nodes"])) for each in partitions]
    in_sync, replicas = min(sizes, default=(0, 0))
    return TopicView(
        partitions=len(partitions),
        leaderless=sum(each["leader_id"] < 0 for each in partitions),
        replicas=-replicas,
        in_sync=in_sync,
        min_in_sync=_number(configs, _LEAST_IN_SYNC),
        operations=frozenset() if topic["error_code"] == _REFUSED else operations,
        max_message_bytes=_number(configs, _LARGEST),
    )


def _number(configs: Mapping[str, Any], name: str) -> int | None:
    return int(configs[name]["value"]) if name in configs else None


def check_reachable(
    address: str, security: KafkaSecurity | None = None, timeout_s: float = 5.0
) -> None:
    """Raise an error unless a broker at ``address`` answers and lets this user in."""
    with opened(KafkaConsumer, address, "asking", security=security, timeout_s=timeout_s):
        pass


@contextmanager
def opened(
    kind: Callable[..., Client],
    address: str,
    doing: str,
    more: Mapping[str, Any] = MappingProxyType({}),
    *,
    security: KafkaSecurity | None = None,
    timeout_s: float = 10.0,
) -> Iterator[Client]:
    """Yield a client of class ``kind``, closed after the block; its errors become leaderq's."""
    quiet_client_logs()
    options = connection_options(address, security or KafkaSecurity(), open_timeout_s=timeout_s)
    client: Any = connected(kind, address, {**options, **more})
    with closing(client), errors_translated(doing, address):
        yield client


def _partitions(consumer: KafkaConsumer, topic: str, address: str) -> list[TopicPartition]:
    numbers = consumer.partitions_for_topic(topic)
    if not numbers:
        raise _unknown(topic, address)
    return [TopicPartition(topic, number) for number in sorted(numbers)]


def _unknown(topic: str, address: str) -> UnknownTopic:
    return UnknownTopic(f"no topic {topic!r} on Kafka {address!r}; is its name written right?")
