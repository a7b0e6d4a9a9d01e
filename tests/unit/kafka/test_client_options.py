"""Which options of a client library a user may set, and what is said of the others."""

from __future__ import annotations

import re
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer
from test_declaration import Sums, dressed

from leaderq.config import Settings
from leaderq.errors import ConfigurationError
from leaderq.kafka.clients.client_options import (
    REFUSED,
    CallbackTokens,
    ClientLibrary,
    option_problems,
)
from leaderq.kafka.clients.consumer import ConsumerSettings, TopicPattern
from leaderq.kafka.clients.kafka_python_consumer import consumer_options
from leaderq.kafka.clients.kafka_python_producer import producer_options
from leaderq.kafka.clients.producer import ProducerSettings
from leaderq.kafka.sink import KafkaSink

PYTHON, CONFLUENT = ClientLibrary
PROMISES = {
    PYTHON: (
        "group_id group_instance_id enable_auto_commit isolation_level auto_offset_reset check_crcs"
        " max_poll_records max_poll_interval_ms partition_assignment_strategy transactional_id"
        " transaction_timeout_ms acks enable_idempotence retries"
        " max_in_flight_requests_per_connection partitioner bootstrap_servers sasl_plain_password"
        " ssl_context"
    ),
    CONFLUENT: (
        "group.id group.instance.id group.protocol enable.auto.commit isolation.level"
        " auto.offset.reset check.crcs max.poll.interval.ms partition.assignment.strategy"
        " transactional.id acks request.required.acks enable.idempotence retries max.in.flight"
        " max.in.flight.requests.per.connection partitioner bootstrap.servers sasl.password"
        " error_cb ssl.ca.location default.topic.config"
    ),
}
FREE = {
    PYTHON: (
        "client_rack compression_type fetch_max_bytes max_partition_fetch_bytes fetch_min_bytes"
        " client_id linger_ms sasl_oauth_token_provider metadata_max_age_ms session_timeout_ms"
    ),
    CONFLUENT: (
        "client.rack compression.type compression.codec fetch.max.bytes fetch.message.max.bytes"
        " oauth_cb sasl.oauthbearer.method queued.max.messages.kbytes linger.ms"
        " statistics.interval.ms stats_cb session.timeout.ms"
    ),
}


@pytest.mark.parametrize(
    ("client", "name"), [(client, name) for client in PROMISES for name in PROMISES[client].split()]
)
def test_what_a_promise_rests_on_is_refused_with_the_reason(
    client: ClientLibrary, name: str
) -> None:
    (problem,) = option_problems(client, {name: 1}, "client_options of Sums")
    assert problem.startswith(f"'{name}' cannot be set in client_options of Sums: ")
    assert len(problem.partition(": ")[2]) > 20


@pytest.mark.parametrize("client", FREE)
def test_what_breaks_no_promise_passes(client: ClientLibrary) -> None:
    assert (
        list(option_problems(client, dict.fromkeys(FREE[client].split(), 1), "client_options"))
        == []
    )


def test_no_row_refuses_what_kafka_python_does_not_have() -> None:
    known = KafkaConsumer.DEFAULT_CONFIG.keys() | KafkaProducer.DEFAULT_CONFIG.keys()
    for name in " ".join(names.split("/")[0] for names in REFUSED.values()).split():
        assert any(re.fullmatch(name.replace("*", ".*"), each) for each in known), name


def test_an_option_that_kafka_python_does_not_have_is_refused_with_the_nearest() -> None:
    (problem,) = option_problems(PYTHON, {"compression.type": "gzip"}, "client_options")
    assert (
        problem
        == "'compression.type' in client_options is not an option of kafka-python; did you mean"
        " 'compression_type'?"
    )


def test_all_options_that_a_career_may_not_set_are_told_at_once() -> None:
    options = {"group_id": "other", "acks": 0, "no_such": 1, "client_rack": "a"}
    with pytest.raises(ConfigurationError) as refused:
        dressed(type("Wrong", (Sums,), {"client_options": options}))._declared()
    assert [problem.split("'")[1] for problem in refused.value.problems] == [
        "group_id",
        "acks",
        "no_such",
    ]


@pytest.mark.parametrize("options", [None, ["client_rack"], {1: 2}])
def test_what_is_no_mapping_of_names_is_refused(options: Any) -> None:
    with pytest.raises(ConfigurationError, match="is not a mapping of names to values"):
        dressed(type("Wrong", (Sums,), {"client_options": options}))._declared()


def test_a_sink_refuses_them_as_well() -> None:
    with pytest.raises(ConfigurationError, match="stored by all replicas"):
        KafkaSink("localhost:1", "t", acks=0)


def test_the_consumer_takes_what_a_consumer_has_and_the_producer_what_a_producer_has() -> None:
    options = {"client_rack": "a", "compression_type": "gzip", "client_id": "mine"}
    reading = consumer_options(ConsumerSettings("k:1", ("t",), "g", "m", options=options))
    sending = producer_options(ProducerSettings("k:1", options=options))
    assert (reading["client_rack"], reading["client_id"], "compression_type" in reading) == (
        "a",
        "mine",
        False,
    )
    assert (sending["compression_type"], sending["client_id"], "client_rack" in sending) == (
        "gzip",
        "mine",
        False,
    )


@pytest.mark.parametrize(
    ("client", "name"), [("kafka-python", "client_rack"), ("confluent", "client.rack")]
)
def test_the_rack_of_the_host_is_a_setting(client: str, name: str) -> None:
    career = dressed(type("Near", (Sums,), {"client": client}))
    career.settings = Settings(kafka_rack="b")
    assert career._declared().client_options == {name: "b"}


def test_tokens_are_asked_for_again_shortly_before_they_expire(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [1000.0]
    monkeypatch.setattr("leaderq.clock.calendar_s", lambda: now[0])
    given = iter([("one", 1100.0), ("two", 1200.0, "me", {"pool": "x"})])
    tokens = CallbackTokens(lambda config: next(given), "")
    assert [tokens.token(), tokens.token(), tokens.extensions()] == ["one", "one", {}]
    now[0] = 1095.0
    assert [tokens.token(), tokens.extensions()] == ["two", {"pool": "x"}]


def test_a_pattern_means_whole_names_but_neither_kafkas_own_topics_nor_its_own_dead_letters() -> (
    None
):
    career = dressed(type("All", (Sums,), {"topics": re.compile("clicks.*|_.*"), "name": "clicks"}))
    pattern = career._declared().topics
    assert isinstance(pattern, TopicPattern)
    names = ["clicks-2", "clicks", "my-clicks", "__consumer_offsets", "_mine", "clicks-dead"]
    # nothing is sent there: it raises
    assert pattern.among(names) == ("_mine", "clicks", "clicks-2", "clicks-dead")


def test_where_dead_letters_go_is_left_out_of_a_pattern_and_refused_as_a_topic() -> None:
    from leaderq.kafka import dead_letter, retry

    burying = {"on_error": retry(1, then=dead_letter()), "name": "clicks"}
    career = dressed(type("All", (Sums,), {"topics": re.compile("clicks.*"), **burying}))
    assert career._declared().topics.among(["clicks-1", "clicks-dead"]) == ("clicks-1",)
    with pytest.raises(ConfigurationError, match="where its own dead letters go"):
        dressed(type("Loop", (Sums,), {"topics": ["clicks", "clicks-dead"], **burying}))._declared()
