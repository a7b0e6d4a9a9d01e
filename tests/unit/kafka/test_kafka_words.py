"""Records, addresses, and what a career declares: good ones are understood, bad ones refused with a remedy."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import pytest

from leaderq.config import Settings
from leaderq.config.kafka_security import KafkaSecurity
from leaderq.errors import ConfigurationError
from leaderq.events import EventBus
from leaderq.kafka import Batch, KafkaLeaderCareer, Partition, Record
from leaderq.kafka.address import bootstrap_servers
from leaderq.kafka.client_options import connection_options, consumer_options
from leaderq.kafka.drain import DrainSettings
from leaderq.kafka.offsets import KafkaOffsets, store_named
from leaderq.kafka.record import deserialized
from leaderq.term import Term


class Sums(KafkaLeaderCareer):
    topics: ClassVar[str] = "numbers"

    def handle(self, records: list[Record], term: Term) -> None:
        raise AssertionError(records)


def dressed(kind: type[KafkaLeaderCareer], career: str | None = None) -> Any:
    made: Any = kind()
    made.settings = Settings(kafka="localhost:9092", career=career)
    made.events = EventBus()
    made.candidate_id = "me"
    return made


def test_an_address_gets_the_usual_port_and_may_name_several_brokers() -> None:
    assert bootstrap_servers("one, two:1234,[::1]:9") == ["one:9092", "two:1234", "[::1]:9"]


@pytest.mark.parametrize("bad", ["", " ", "host:port", "kafka://host:9092", "host:0", "host:70000", "a:1,,b:2"])
def test_a_malformed_address_is_refused_with_value_and_remedy(bad: str) -> None:
    with pytest.raises(ConfigurationError, match="--kafka"):
        bootstrap_servers(bad)


def test_a_partition_is_its_pair_and_reads_as_tools_write_it() -> None:
    assert Partition("t", 3) == ("t", 3)
    assert str(Partition("t", 3)) == "t-3"


def test_a_batch_merges_partition_by_partition_in_order() -> None:
    rows = {Partition("t", n): [Record("t", n, at, 0, None, b"") for at in (5, 6)] for n in (1, 0)}
    assert [(r.partition, r.offset) for r in Batch(rows, {}).merged()] == [(1, 5), (1, 6), (0, 5), (0, 6)]


def test_missing_keys_and_values_are_not_given_to_a_deserialiser() -> None:
    (record,) = deserialized([Record("t", 0, 0, 0, None, b"[1]")], key=json.loads, value=json.loads)
    assert (record.key, record.value) == (None, [1])


def plain(raw: bytes) -> str:
    return raw.decode()


class WithFunction(Sums):
    value_deserializer = plain


class WithStatic(Sums):
    value_deserializer = staticmethod(plain)


class WithCallable(Sums):
    value_deserializer = str.upper  # type: ignore[assignment]


class WithMethod(Sums):
    def value_deserializer(self, raw: bytes) -> str:  # type: ignore[override]
        return raw.decode()


@pytest.mark.parametrize("kind", [WithFunction, WithStatic, WithMethod])
def test_a_deserialiser_may_be_declared_in_any_way(kind: type[KafkaLeaderCareer]) -> None:
    found = kind()._deserializer("value_deserializer")
    assert found is not None
    assert found(b"x") == "x"
    assert kind()._deserializer("key_deserializer") is None


def test_a_built_in_is_a_deserialiser_too() -> None:
    found = WithCallable()._deserializer("value_deserializer")
    assert found is str.upper


def test_the_group_is_the_careers_name_unless_declared() -> None:
    assert dressed(Sums)._plan().career == "sums"
    settings = dressed(Sums, career="other")._drain_settings("other")
    assert (settings.group, settings.member, settings.topics) == ("other", "other", ("numbers",))
    Grouped = type("Grouped", (Sums,), {"group": "mine"})  # noqa: N806
    assert dressed(Grouped)._drain_settings("grouped").group == "mine"


def test_all_that_is_wrong_with_a_declaration_is_told_at_once() -> None:
    Wrong = type("Wrong", (Sums,), {"topics": (), "max_records": 0, "auto_offset_reset": "newest"})  # noqa: N806
    with pytest.raises(ConfigurationError) as refused:
        dressed(Wrong)._drain_settings("no spaces allowed")
    assert len(refused.value.problems) == 4
    assert "Wrong" in str(refused.value)


@pytest.mark.parametrize("name", ["zookeeper", "transaction", "external", "redis"])
def test_an_offset_store_that_is_not_there_is_refused_by_name_and_place(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{name}.*Sums.*offsets='kafka'"):
        store_named(name, "Sums")


def test_kafka_is_an_offset_store() -> None:
    assert isinstance(store_named("kafka", "Sums"), KafkaOffsets)


def test_the_consumer_never_commits_or_jumps_by_itself() -> None:
    options = consumer_options(DrainSettings(address="a:1", topics=("t",), group="g", member="m"))
    assert options["enable_auto_commit"] is False
    assert options["auto_offset_reset"] == "none"
    assert options["isolation_level"] == "read_committed"
    assert options["group_instance_id"] == "m"


def test_security_is_passed_through_and_secrets_stay_out_of_sight() -> None:
    security = KafkaSecurity(protocol="SASL_SSL", mechanism="PLAIN", user="u", password="geheim", ca="/ca.pem")
    options = connection_options("a:1", security)
    assert (options["sasl_plain_username"], options["sasl_plain_password"]) == ("u", "geheim")
    assert options["ssl_cafile"] == "/ca.pem"
    settings = DrainSettings(address="a:1", topics=("t",), group="g", member="m", security=security)
    assert "geheim" not in repr(settings)
