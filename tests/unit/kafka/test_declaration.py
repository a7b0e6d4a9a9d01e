"""What a career declares: understood, or refused with a remedy."""

from __future__ import annotations

import json
import math
import re
import sys
from contextlib import nullcontext
from datetime import datetime
from itertools import product
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from leaderq.config import TABLE, Section, Settings, load
from leaderq.errors import ConfigurationError, MissingPiece
from leaderq.events import EventBus
from leaderq.kafka import AsyncKafkaLeaderCareer, DatabaseOffsets, KafkaLeaderCareer, Record
from leaderq.kafka.assembly import transactional_id
from leaderq.kafka.clients.client_options import (
    CallbackTokens,
    ClientLibrary,
    bootstrap_servers,
    option_problems,
)
from leaderq.kafka.clients.consumer import TopicPattern
from leaderq.kafka.declaration import delivery_of
from leaderq.kafka.stores.offset_store import DeliveryPromise, OffsetStore
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
    made.session = SimpleNamespace(exists=lambda path: None)
    return made


@pytest.mark.parametrize(
    "bad", ["", " ", "host:port", "kafka://host:9092", "host:0", "host:70000", "a:1,,b:2"]
)
def test_a_malformed_address_is_refused_with_value_and_remedy(bad):
    with pytest.raises(ConfigurationError, match="--kafka"):
        bootstrap_servers(bad)


def read_as(career: Any) -> Any:
    return career._environment().consumer_settings(in_group=True)


def test_the_group_is_the_careers_name_unless_declared():
    settings = read_as(dressed(Sums, career="other"))
    assert (settings.group, settings.member, settings.topics) == ("other", "other", ("numbers",))
    assert read_as(dressed(type("Grouped", (Sums,), {"group": "mine"}))).group == "mine"


def test_all_that_is_wrong_with_a_declaration_is_told_at_once():
    wrong: dict[str, Any] = {"topics": ("clicks", 5), "batches": "single", "client": "librdkafka"}
    wrong |= {"auto_offset_reset": "newest", "offsets": "redis", "on_error": "ignore"}
    wrong |= {"max_records": 0, "max_bytes": -1, "max_wait_s": -0.1, "workers": 0, "produces": None}
    wrong |= {"max_records_per_s": 0, "max_bytes_per_s": math.nan, "key_interval_s": True}
    wrong |= {"handle_budget_s": math.inf, "max_message_bytes": 0}
    with pytest.raises(ConfigurationError) as refused:
        dressed(type("Wrong", (Sums,), wrong), career="no spaces allowed")._declared()
    assert len(refused.value.problems) == len(wrong) + 1
    assert all("Wrong" in problem or "no spaces" in problem for problem in refused.value.problems)
    told = [one for one in refused.value.problems if one.endswith(", or leave it out (None)")]
    limits = "auto_offset_reset handle_budget_s key_interval_s max_bytes max_bytes_per_s"
    assert {one.partition("=")[0] for one in told} == {*limits.split(), "max_records_per_s"}


def test_a_client_that_is_not_installed_is_told_with_the_command_that_installs_it(monkeypatch):
    for name in [*sys.modules]:
        if name.startswith("leaderq.kafka.clients.confluent"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    career = dressed(type("Fast", (Sums,), {"client": "confluent"}))
    with pytest.raises(MissingPiece, match=r"leaderq\[confluent\]"):
        career.prepare()


def test_the_transactional_id_tells_apart_careers_groups_and_roots():
    places = product("ab", "ab", ("/a", "/b"))
    assert len({transactional_id(*place) for place in places}) == 8


TUNED = {
    "group": ("ours", "theirs"),
    "client": ("kafka-python", "confluent"),
    "auto_offset_reset": ("earliest", "latest"),
    **dict.fromkeys(["max_records", "max_bytes", "workers", "max_message_bytes"], (10, 20)),
    **dict.fromkeys(["max_wait_s", "key_interval_s", "handle_budget_s"], (7.0, 8.5)),
    **dict.fromkeys(["max_records_per_s", "max_bytes_per_s"], (5.0, 6.5)),
}
"""What a class says, and what the settings say instead."""


def test_every_setting_of_kafka_careers_stands_for_an_attribute_and_has_no_default_of_its_own():
    rows = [row for row in TABLE if row.section is Section.DRAIN]
    assert {row.name for row in rows} == TUNED.keys()
    assert all(hasattr(KafkaLeaderCareer, row.name) and row.default is None for row in rows)


@pytest.mark.parametrize("name", TUNED)
def test_an_attribute_can_be_set_for_one_career_and_it_is_told_where(tmp_path, name):
    said, wanted = TUNED[name]
    path = tmp_path / "leaderq.toml"
    text = f"[careers.sums]\n{name} = {json.dumps(wanted)}\n[careers.other]\nmax_records = 1\n"
    path.write_text(text)
    found = load({}, career="sums", environ={}, folder=tmp_path)
    career = dressed(type("Sums", (Sums,), {name: said}))
    assert getattr(career._declared(), name) == said
    career.settings = found.settings
    assert getattr(career._declared(), name) == wanted
    assert found.source(name) == f"{path} in [careers.sums]"


@pytest.mark.parametrize(
    ("store", "kept"),
    [
        ("kafka", "at_least_once at_most_once"),
        ("zookeeper", "exactly_once at_least_once at_most_once"),
        ("transaction", "exactly_once at_least_once"),
        ("external", "exactly_once at_least_once"),
    ],
)
def test_each_store_keeps_some_and_the_first_by_default(store, kept):
    names = kept.split()
    found = [delivery_of(name, store, "Billing") for name in (None, *names)]
    assert found == [DeliveryPromise(name) for name in (names[0], *names)]


@pytest.mark.parametrize(
    ("delivery", "store", "remedy"),
    [
        ("exactly_once", "kafka", "use offsets='zookeeper', 'transaction' or 'external'"),
        ("at_most_once", "transaction", "use offsets='kafka'"),
        ("once", "kafka", "use 'at_most_once', 'at_least_once' or 'exactly_once'"),
        (["at_most_once"], "kafka", "is not known"),
        (None, "redis", "use 'kafka', 'zookeeper', 'transaction', 'external', or an OffsetStore"),
        (None, ["kafka"], "is not known"),
    ],
)
def test_a_contradiction_is_refused_with_its_remedy(delivery, store, remedy):
    with pytest.raises(ConfigurationError, match="of Billing") as refused:
        delivery_of(delivery, store, "Billing")
    assert remedy in str(refused.value)


@pytest.mark.parametrize("name", ["topics", "produces"])
def test_an_iterator_of_topics_is_refused_at_once_because_it_would_be_used_up(name):
    career = dressed(type("Once", (Sums,), {name: iter(["numbers"])}))
    for _ in range(2):
        with pytest.raises(ConfigurationError, match=f"'{name}' of Once names <list_iterator"):
            career._declared()


def test_a_store_that_offers_what_it_would_drop_is_refused():
    own = {"word": "own", "load": None, "commit": None, "offers": "produce"}
    with pytest.raises(ConfigurationError, match=r"Own, .* offers produce\(\) and has no add"):
        delivery_of(None, type("Own", (OffsetStore,), own)(), "Billing")


@pytest.mark.parametrize("error", [KeyError("TOPIC"), AttributeError("session")])
def test_what_a_property_raises_is_told_with_its_place(error):
    def topics(_self: Any) -> str:
        raise error

    career = dressed(type("Asked", (Sums,), {"topics": property(topics)}))
    with pytest.raises(ConfigurationError, match=f"topics of Asked cannot be read: {error!r:.8}"):
        career._declared()
    refused = pytest.raises(ConfigurationError) if isinstance(error, KeyError) else nullcontext()
    with refused:  # what it needs may be there later
        career._check_declared(Settings())


def test_a_helper_of_a_store_in_place_of_the_store_is_told_where_it_belongs():
    helper = DatabaseOffsets(lambda: None, career="c")
    with pytest.raises(ConfigurationError, match=r"of Billing is a DatabaseOffsets, .*'external'"):
        delivery_of(None, helper, "Billing")


def test_what_the_settings_or_the_object_say_is_checked_too():
    async def handle(_self: Any, _records: Any, _term: Any) -> None: ...

    several = type("Several", (AsyncKafkaLeaderCareer,), {"topics": "t", "handle": handle})
    career = dressed(several)
    career._declared()
    career.settings = Settings(workers=4)
    with pytest.raises(ConfigurationError, match="workers=4 of Several are threads"):
        career._declared()
    own = dressed(Sums)
    own.offsets, own.concurrency = "external", 7
    with pytest.raises(ConfigurationError) as refused:
        own._declared()
    told = "offsets='external' and no load_offsets", "concurrency=7 of Sums is for coroutines"
    assert all(each in str(refused.value) for each in told)


@pytest.mark.parametrize(
    ("name", "value"),
    [("word", 5), ("word", ""), *(("promises", each) for each in (None, (), "at_least_once"))],
)
def test_a_store_of_ones_own_that_says_nonsense_of_itself_is_refused(name, value):
    own = {"word": "own", "load": None, "commit": None, name: value}
    told = re.escape(f"Own, offsets of Billing, has {name}={value!r}")
    with pytest.raises(ConfigurationError, match=told):
        delivery_of(None, type("Own", (OffsetStore,), own)(), "Billing")


PYTHON, CONFLUENT = ClientLibrary
PROMISES = {
    PYTHON: "group_instance_id isolation_level transactional_id acks sasl_plain_password",
    CONFLUENT: "enable.auto.commit request.required.acks max.in.flight ssl.ca.location error_cb",
}
FREE = {
    PYTHON: "client_rack compression_type linger_ms sasl_oauth_token_provider",
    CONFLUENT: "client.rack compression.type sasl.oauthbearer.method stats_cb",
}


@pytest.mark.parametrize("client", ClientLibrary)
def test_what_a_promise_rests_on_is_refused_with_the_reason_and_what_breaks_none_passes(client):
    names = PROMISES[client].split()
    options = dict.fromkeys([*names, *FREE[client].split()], 1)
    problems = list(option_problems(client, options, "client_options of Sums"))
    for name, problem in zip(names, problems, strict=True):
        told, _, reason = problem.partition(": ")
        assert told == f"'{name}' cannot be set in client_options of Sums"
        assert len(reason) > 20


def test_all_options_that_a_career_may_not_set_are_told_at_once():
    options = {"group_id": "other", "acks": 0, "compression.type": "gzip", "client_rack": "a"}
    with pytest.raises(ConfigurationError) as refused:
        dressed(type("Wrong", (Sums,), {"client_options": options}))._declared()
    problems = refused.value.problems
    assert [problem.split("'")[1] for problem in problems] == [*options][:3]
    told = "is not an option of kafka-python; did you mean 'compression_type'?"
    assert problems[2].endswith(told)


@pytest.mark.parametrize(
    ("name", "value", "is_fit"),
    [
        ("fetch_min_bytes", "1MB", False),
        ("fetch_min_bytes", 1.5, False),
        ("fetch_min_bytes", True, False),
        ("fetch_min_bytes", 2, True),
        ("metadata_max_age_ms", 1e3, True),
        ("metadata_max_age_ms", None, False),
        ("compression_type", None, True),
    ],
)
def test_a_number_of_a_clients_that_is_none_is_named_before_it_connects(name, value, is_fit):
    told = [f"{name!r}: {value!r} in client_options of C is not a whole number; give one"]
    problems = list(option_problems(PYTHON, {name: value}, "client_options of C"))
    assert problems == ([] if is_fit else told)


@pytest.mark.parametrize(
    ("client", "name"), [("kafka-python", "client_rack"), ("confluent", "client.rack")]
)
def test_the_rack_of_the_host_is_a_setting(client, name):
    career = dressed(type("Near", (Sums,), {"client": client}))
    career.settings = Settings(kafka_rack="b")
    assert career._declared().client_options == {name: "b"}
    career.client_options = None
    with pytest.raises(ConfigurationError, match="client_options of Near is not a mapping"):
        career._declared()


@pytest.mark.parametrize(
    ("begin_at", "problem"),
    [
        ("2026-11-23", "is not a datetime.datetime"),
        (datetime.min, "is out of range"),
        (datetime(1900, 1, 1), None),
        (None, None),
    ],
)
def test_a_time_to_begin_at_has_a_time_stamp(begin_at, problem):
    career = dressed(type("Late", (Sums,), {"begin_at": begin_at}))
    if problem is None:
        assert career._declared().begin_at is begin_at
        return
    with pytest.raises(ConfigurationError, match=f"of Late {problem}"):
        career._declared()


def test_tokens_are_asked_for_again_shortly_before_they_expire(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("leaderq.base.clock.calendar_s", lambda: now[0])
    given = iter([("one", 1100.0), ("two", 1200.0, "me", {"pool": "x"})])
    tokens = CallbackTokens(lambda config: next(given), "")
    assert [tokens.token(), tokens.token(), tokens.extensions()] == ["one", "one", {}]
    now[0] = 1095.0
    assert [tokens.token(), tokens.extensions()] == ["two", {"pool": "x"}]


def test_a_pattern_means_whole_names_but_neither_kafkas_own_topics_nor_its_own_dead_letters():
    career = dressed(type("All", (Sums,), {"topics": re.compile("clicks.*|_.*"), "name": "clicks"}))
    pattern = career._declared().topics
    assert isinstance(pattern, TopicPattern)
    names = ["clicks-2", "clicks", "my-clicks", "__consumer_offsets", "_mine", "clicks-dead"]
    # nothing is sent there: it raises
    assert pattern.among(names) == ("_mine", "clicks", "clicks-2", "clicks-dead")
