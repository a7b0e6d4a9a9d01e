"""Small dealings with a Kafka cluster apart from draining it, for the demo, ``leaderq doctor``,
benchmarks and tests; each call opens its own connection and closes it. All raise
``ConfigurationError`` (malformed address), ``ServersUnreachable``, ``AccessRefused`` or
``KafkaError``.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka import errors as native
from kafka.admin import ConfigResource, MemberToRemove

from leaderq.clock import now_s
from leaderq.config import KafkaSecurity
from leaderq.errors import AccessRefused, KafkaError, UnknownTopic
from leaderq.kafka.clients import private_api
from leaderq.kafka.clients.consumer import KafkaAway
from leaderq.kafka.clients.kafka_python_connection import (
    Client,
    connected,
    connection_options,
    errors_translated,
    quiet_client_logs,
)

T = TypeVar("T")
Feed = (
    tuple[bytes | None, bytes | None]
    | tuple[bytes | None, bytes | None, Sequence[tuple[str, bytes]]]
)
_ASK_AGAIN_S = 0.1
_LARGEST, _LEAST_IN_SYNC = "max.message.bytes", "min.insync.replicas"
_REFUSED = 29  # TOPIC_AUTHORIZATION_FAILED


def create_topics(
    address: str,
    topics: Mapping[str, int],
    *,
    configs: Mapping[str, str] | None = None,
    replication: int = 1,
    security: KafkaSecurity | None = None,
    timeout_s: float = 30.0,
) -> list[str]:
    """Create topics with that many partitions (-1: the cluster's default) and these configs each;
    returns the names of those created, when each partition has a leader. Existing topics are left
    alone.
    """
    created = []
    options = {"replication_factor": replication, "configs": dict(configs or {})}
    with (
        _opened(KafkaAdminClient, address, security, timeout_s) as admin,
        errors_translated("creating topics", address),
    ):
        for topic, partitions in topics.items():
            try:
                admin.create_topics({topic: {"num_partitions": partitions, **options}})
            except native.TopicAlreadyExistsError:
                continue
            created.append(topic)
        admin.wait_for_topics(list(topics), timeout_ms=int(timeout_s * 1000))
    return created


def ensure_topic(
    address: str,
    topic: str,
    *,
    configs: Mapping[str, str] | None = None,
    security: KafkaSecurity | None = None,
    timeout_s: float = 10.0,
) -> bool:
    """Create ``topic`` if it is not there, and return whether it was, or raise ``UnknownTopic``."""
    if topic in existing_topics(address, security=security, timeout_s=timeout_s):
        return False
    try:
        create_topics(
            address,
            {topic: -1},
            configs=configs,
            replication=-1,
            security=security,
            timeout_s=timeout_s,
        )
    except (AccessRefused, KafkaError) as exc:
        raise UnknownTopic(
            f"no topic {topic!r} on Kafka {address!r}, and it cannot be created: {exc}; create it"
        ) from exc
    return True


def existing_topics(
    address: str, *, security: KafkaSecurity | None = None, timeout_s: float = 10.0
) -> frozenset[str]:
    """The topics that this user may see, but for Kafka's own."""
    with (
        _opened(KafkaConsumer, address, security, timeout_s) as consumer,
        errors_translated("asking for topics", address),
    ):
        return frozenset(consumer.topics())


def largest_batches(
    address: str,
    topics: Sequence[str],
    *,
    security: KafkaSecurity | None = None,
    timeout_s: float = 10.0,
) -> dict[str, int]:
    """The ``max.message.bytes`` of each topic, where it is there and this user may ask."""
    asked = [ConfigResource("TOPIC", topic, [_LARGEST]) for topic in topics]
    with (
        _opened(KafkaAdminClient, address, security, timeout_s) as admin,
        errors_translated("asking for sizes", address),
    ):
        told = admin.describe_configs(asked, config_filter="all")
    return {
        name: int(row[_LARGEST]["value"])
        for name, row in told.get("topic", {}).items()
        if _LARGEST in row
    }


def end_offsets(
    address: str, topic: str, *, security: KafkaSecurity | None = None, timeout_s: float = 10.0
) -> dict[int, int]:
    """For each partition of ``topic`` the offset after its last stable record."""
    with _opened(
        KafkaConsumer, address, security, timeout_s, isolation_level="read_committed"
    ) as consumer:
        where = _partitions(consumer, topic, address)
        with errors_translated("asking for offsets", address):
            ends = consumer.end_offsets(where, timeout_ms=timeout_s * 1000)
    return {partition.partition: offset for partition, offset in ends.items()}


def committed(
    address: str,
    group: str,
    topic: str,
    *,
    security: KafkaSecurity | None = None,
    timeout_s: float = 10.0,
) -> dict[int, int]:
    """What ``group`` has committed of ``topic``; a broker that loads its groups is asked again."""
    with _opened(KafkaConsumer, address, security, timeout_s) as consumer:
        where = _partitions(consumer, topic, address)
    with _opened(KafkaAdminClient, address, security, timeout_s) as admin:
        kept = _once_it_answers(
            lambda: admin.list_group_offsets({group: where})[group],
            "asking for offsets",
            address,
            timeout_s,
        )
    return {
        partition.partition: stored.offset
        for partition, stored in kept.items()
        if stored.offset >= 0
    }


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
    failed: list[Exception] = []
    sent: Counter[str] = Counter()
    with _opened(
        KafkaProducer, address, security, min(timeout_s, 30.0), linger_ms=5, acks="all"
    ) as producer:
        with errors_translated("producing", address):
            for key, value, *more in records:
                headers = list(more[0]) if more else None
                producer.send(topic, value=value, key=key, headers=headers).add_errback(
                    failed.append
                )
                sent[topic] += 1
            try:
                producer.flush(timeout=timeout_s)
            except native.KafkaTimeoutError:
                # closing it would wait for the same, without a bound
                private_api.drop(producer, 1.0)
                raise
        if failed:
            raise KafkaError(
                f"{len(failed)} of {sent[topic]} records were not produced: {failed[0]}"
            ) from failed[0]
    return sent[topic]


@dataclass(frozen=True)
class TopicView:
    """A topic as the cluster describes it to one user; ``partitions`` is 0 if it is not there, or
    hidden; ``replicas`` and ``in_sync``: of the partition that has the fewest. ``operations`` and
    ``min_in_sync``: if the cluster says so.
    """

    partitions: int
    leaderless: int
    replicas: int
    in_sync: int
    min_in_sync: int | None
    operations: frozenset[str] | None

    def may(self, operation: str) -> bool:
        """Whether the user may do this, as ``READ``."""
        return self.operations is None or operation in self.operations


def describe_topics(
    address: str,
    topics: Sequence[str],
    *,
    security: KafkaSecurity | None = None,
    timeout_s: float = 10.0,
) -> dict[str, TopicView]:
    """What the cluster says of each of ``topics``, also of those that are not there."""
    with (
        _opened(KafkaAdminClient, address, security, timeout_s) as admin,
        errors_translated("describing topics", address),
    ):
        found = {each["name"]: each for each in admin.describe_topics(list(topics))}
        there = [name for name, each in found.items() if each["partitions"]]
        asked = [ConfigResource("TOPIC", name, [_LEAST_IN_SYNC]) for name in there]
        told = admin.describe_configs(asked, config_filter="all").get("topic", {}) if asked else {}
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


def static_members(
    address: str, group: str, *, security: KafkaSecurity | None = None, timeout_s: float = 5.0
) -> frozenset[str]:
    """The names (``group.instance.id``) under which members of ``group`` stay in it when gone."""
    with (
        _opened(KafkaAdminClient, address, security, timeout_s) as admin,
        errors_translated("asking for members", address),
    ):
        members = admin.describe_groups([group])[group].get("members", ())
    return frozenset(
        member["group_instance_id"] for member in members if member["group_instance_id"]
    )


def remove_static_members(
    address: str,
    group: str,
    names: Iterable[str],
    *,
    security: KafkaSecurity | None = None,
    timeout_s: float = 5.0,
) -> None:
    """Let ``group`` wait no longer for these; one that lives joins again by itself, if it may."""
    gone = [MemberToRemove(group_instance_id=name) for name in names]
    with (
        _opened(KafkaAdminClient, address, security, timeout_s) as admin,
        errors_translated("removing members", address),
    ):
        admin.remove_group_members(group, gone)


def check_reachable(
    address: str, security: KafkaSecurity | None = None, timeout_s: float = 5.0
) -> None:
    """Return if a broker at ``address`` answers and lets this user in."""
    with _opened(KafkaConsumer, address, security, timeout_s):
        pass


def _once_it_answers(ask: Callable[[], T], doing: str, address: str, timeout_s: float) -> T:
    deadline = now_s() + timeout_s
    while True:
        try:
            with errors_translated(doing, address):
                return ask()
        except KafkaAway:
            if now_s() + _ASK_AGAIN_S > deadline:
                raise
            time.sleep(_ASK_AGAIN_S)


@contextmanager
def _opened(
    kind: Callable[..., Client],
    address: str,
    security: KafkaSecurity | None,
    timeout_s: float,
    **more: Any,
) -> Iterator[Client]:
    quiet_client_logs()
    options = connection_options(address, security or KafkaSecurity(), open_timeout_s=timeout_s)
    client: Any = connected(kind, address, {**options, **more})
    with closing(client):
        yield client


def _partitions(consumer: KafkaConsumer, topic: str, address: str) -> list[TopicPartition]:
    with errors_translated("asking for partitions", address):
        numbers = consumer.partitions_for_topic(topic)
    if not numbers:
        raise UnknownTopic(f"no topic {topic!r} on Kafka {address!r}; is its name written right?")
    return [TopicPartition(topic, number) for number in sorted(numbers)]
