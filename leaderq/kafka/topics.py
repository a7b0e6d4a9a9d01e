"""Small dealings with a Kafka cluster apart from draining it, for the demo, ``leaderq doctor``,
benchmarks and tests; each call opens its own connection and closes it. All raise
``ConfigurationError`` (malformed address), ``ServersUnreachable``, ``AccessRefused`` or
``KafkaError``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypedDict

from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka import errors as native
from kafka.admin import ConfigResource

from leaderq import clock
from leaderq.config import KafkaSecurity
from leaderq.errors import AccessRefused, KafkaError, UnknownTopic
from leaderq.kafka.clients.consumer import until_answered
from leaderq.kafka.clients.kafka_python_connection import (
    Client,
    connected,
    connection_options,
    errors_translated,
    quiet_client_logs,
)
from leaderq.kafka.clients.kafka_python_producer import KafkaPythonProducer
from leaderq.kafka.clients.producer import Message, ProducerSettings
from leaderq.kafka.record import Partition, Record

if TYPE_CHECKING:
    from typing_extensions import Unpack

Feed = (
    tuple[bytes | None, bytes | None]
    | tuple[bytes | None, bytes | None, Sequence[tuple[str, bytes]]]
)
_LARGEST, _LEAST_IN_SYNC = "max.message.bytes", "min.insync.replicas"
_REFUSED = 29  # TOPIC_AUTHORIZATION_FAILED


class Access(TypedDict, total=False):
    """The login (default: none), and how long an answer may take (10 s)."""

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
    """Create topics with that many partitions (-1: the cluster's default) and these configs each;
    returns those created, when each partition has a leader. Existing ones are left alone.
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
    """Create ``topic`` if it is not there, and return whether it was, or raise ``UnknownTopic``."""
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


def largest_batches(
    address: str, topics: Sequence[str], **access: Unpack[Access]
) -> dict[str, int]:
    """The ``max.message.bytes`` of each topic, where it is there and this user may ask."""
    with opened(KafkaAdminClient, address, "asking for sizes", **access) as admin:
        found = _configs(admin, topics, _LARGEST)
    return {name: int(row[_LARGEST]["value"]) for name, row in found.items() if _LARGEST in row}


def end_offsets(address: str, topic: str, **access: Unpack[Access]) -> dict[int, int]:
    """For each partition of ``topic`` the offset after its last stable record."""
    return {where.number: end for where, (_, end) in bounds(address, [topic], **access).items()}


def bounds(
    address: str, topics: Sequence[str], **access: Unpack[Access]
) -> dict[Partition, tuple[int, int]]:
    """For each partition its first offset, and the one after its last stable record."""
    wait_ms, stable = access.get("timeout_s", 10.0) * 1000, {"isolation_level": "read_committed"}
    with opened(KafkaConsumer, address, "asking for offsets", stable, **access) as consumer:
        where = [each for topic in topics for each in _partitions(consumer, topic, address)]
        first = consumer.beginning_offsets(where, timeout_ms=wait_ms)
        ends = consumer.end_offsets(where, timeout_ms=wait_ms)
    return {Partition(*each): (first[each], ends[each]) for each in where}


def offsets_at(
    address: str, topics: Sequence[str], at_ms: int, **access: Unpack[Access]
) -> dict[Partition, int]:
    """For each partition the offset of the first record that is not older; the end, if none is."""
    wait_ms, stable = access.get("timeout_s", 10.0) * 1000, {"isolation_level": "read_committed"}
    with opened(KafkaConsumer, address, "asking for offsets", stable, **access) as consumer:
        where = [each for topic in topics for each in _partitions(consumer, topic, address)]
        found = consumer.offsets_for_times(dict.fromkeys(where, at_ms), timeout_ms=wait_ms)
        ends = consumer.end_offsets(where, timeout_ms=wait_ms)
    return {
        Partition(*each): ends[each] if found.get(each) is None else found[each].offset
        for each in where
    }


def committed(address: str, group: str, topic: str, **access: Unpack[Access]) -> dict[int, int]:
    """The offsets committed by ``group`` on ``topic``; asks again while its broker loads them."""
    doing = "asking for offsets"
    with opened(KafkaConsumer, address, doing, **access) as consumer:
        where = _partitions(consumer, topic, address)
    with opened(KafkaAdminClient, address, doing, **access) as admin:

        def ask() -> Mapping[Any, Any]:
            with errors_translated(doing, address):
                return admin.list_group_offsets({group: where})[group]

        kept = until_answered(ask, access.get("timeout_s", 10.0))
    return {each.partition: stored.offset for each, stored in kept.items() if stored.offset >= 0}


def newest_records(address: str, topic: str, count: int, **access: Unpack[Access]) -> list[Record]:
    """The ``count`` newest stable records of ``topic``, the oldest of them first; of records with
    one time stamp, by partition.
    """
    stable = {"isolation_level": "read_committed", "enable_auto_commit": False}
    until_s = clock.now_s() + access.get("timeout_s", 10.0)
    found: list[Record] = []
    with opened(KafkaConsumer, address, "reading", stable, **access) as consumer:
        where = _partitions(consumer, topic, address)
        first, ends = consumer.beginning_offsets(where), consumer.end_offsets(where)
        unread = {each for each in where if first[each] < ends[each]}
        consumer.assign(sorted(unread))
        for each in unread:
            consumer.seek(each, max(first[each], ends[each] - count))
        while unread:
            for each in chain.from_iterable(consumer.poll(timeout_ms=500).values()):
                place, at_ms = (each.topic, each.partition, each.offset), each.timestamp
                found.append(Record(*place, at_ms, each.key, each.value, each.headers))
            unread = {each for each in unread if (consumer.position(each) or 0) < ends[each]}
            if unread and clock.now_s() > until_s:
                raise KafkaError(f"{topic!r} cannot be read to its end; is each partition led?")
    found.sort(key=lambda record: (record.timestamp_ms, record.partition, record.offset))
    return found[-count:]


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
        max_message_bytes=1 << 20,  # as a topic takes them by default, or a little more
        options={"max_block_ms": int(timeout_s * 1000)},  # how long the topic may be unknown
    )
    fields = ((value, key, more[0] if more else ()) for key, value, *more in records)
    messages = (Message(topic, *each) for each in fields)
    with closing(KafkaPythonProducer(settings)) as producer:
        return producer.send_all(messages, timeout_s)


@dataclass(frozen=True)
class TopicView:
    """A topic as the cluster describes it to one user; ``partitions`` is 0 if it is not there, or
    hidden; ``replicas`` and ``in_sync``: of the partition that has the fewest. ``None``: not said.
    """

    partitions: int
    leaderless: int
    replicas: int
    in_sync: int
    min_in_sync: int | None
    operations: frozenset[str] | None

    def may(self, operation: str) -> bool:
        return self.operations is None or operation in self.operations


def describe_topics(
    address: str, topics: Sequence[str], **access: Unpack[Access]
) -> dict[str, TopicView]:
    """The cluster's description of each of ``topics``, also of missing ones."""
    with opened(KafkaAdminClient, address, "describing topics", **access) as admin:
        found = {each["name"]: each for each in admin.describe_topics(list(topics))}
        there = [name for name, each in found.items() if each["partitions"]]
        told = _configs(admin, there, _LEAST_IN_SYNC)
    return {name: _view(found[name], told.get(name, {})) for name in topics}


def _view(topic: Mapping[str, Any], configs: Mapping[str, Any]) -> TopicView:
    partitions, told = topic["partitions"], topic["authorized_operations"]
    operations = frozenset(told) if isinstance(told, list) else None
    least = configs.get(_LEAST_IN_SYNC)
    return TopicView(
        partitions=len(partitions),
        leaderless=sum(each["leader_id"] < 0 for each in partitions),
        replicas=min((len(each["replica_nodes"]) for each in partitions), default=0),
        in_sync=min((len(each["isr_nodes"]) for each in partitions), default=0),
        min_in_sync=None if least is None else int(least["value"]),
        operations=frozenset() if topic["error_code"] == _REFUSED else operations,
    )


def check_reachable(
    address: str, security: KafkaSecurity | None = None, timeout_s: float = 5.0
) -> None:
    """Return if a broker at ``address`` answers and lets this user in."""
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
    """A client of this kind, for one piece of work; its errors are translated."""
    quiet_client_logs()
    options = connection_options(address, security or KafkaSecurity(), open_timeout_s=timeout_s)
    client: Any = connected(kind, address, {**options, **more})
    with closing(client), errors_translated(doing, address):
        yield client


def _configs(admin: Any, topics: Iterable[str], name: str) -> Mapping[str, Any]:
    asked = [ConfigResource("TOPIC", topic, [name]) for topic in topics]
    told = admin.describe_configs(asked, config_filter="all") if asked else {}
    return told.get("topic", {})  # type: ignore[no-any-return]


def _partitions(consumer: KafkaConsumer, topic: str, address: str) -> list[TopicPartition]:
    numbers = consumer.partitions_for_topic(topic)
    if not numbers:
        raise UnknownTopic(f"no topic {topic!r} on Kafka {address!r}; is its name written right?")
    return [TopicPartition(topic, number) for number in sorted(numbers)]
