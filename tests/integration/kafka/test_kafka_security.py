"""Careers at a broker that demands TLS, certificates of clients, or passwords: let in by the right
ones, told why by the wrong.

One broker for the module, with a listener for each demand; both client libraries.
"""

from __future__ import annotations

import json
import logging
import threading
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from driving import Driver, Forwarding, Recorder
from guarded_broker import KEY_PASSWORD, PASSWORD, TOKENS, Guarded

from leaderq.config import KafkaSecurity
from leaderq.errors import AccessRefused, ConfigurationError, LeaderqError, ServersUnreachable
from leaderq.kafka import KafkaLeaderCareer, Record, dead_letter
from leaderq.kafka.clients.confluent_consumer import ConfluentConsumer
from leaderq.kafka.clients.consumer import ConsumerSettings
from leaderq.kafka.clients.kafka_python_consumer import KafkaPythonConsumer
from leaderq.kafka.topics import check_reachable, committed, create_topics, end_offsets, produce
from leaderq.term import Term
from leaderq.testing import eventually

WRONG = "wrong-secret"
CONSUMERS = {"kafka-python": KafkaPythonConsumer, "confluent": ConfluentConsumer}
every_client = pytest.mark.parametrize("client", CONSUMERS)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    made = Guarded(tmp_path_factory.mktemp("guarded"))
    try:
        yield made.start()
    finally:
        made.broker.stop()


@pytest.fixture
def topic(guarded, topic_name):
    create_topics(guarded.broker.address, {topic_name: 2, f"{topic_name}-out": 1})
    return topic_name


def settings_of(security: KafkaSecurity) -> dict[str, Any]:
    words = {name: one for name, one in asdict(security).items() if one is not None}
    del words["client_options"]
    files = words.keys() & {"ca", "cert", "key"}
    return {f"kafka_{name}": Path(one) if name in files else one for name, one in words.items()}


@pytest.fixture
def enter(guarded, topic, drive):
    def make(listener: str, kind: type[Recorder] = Recorder, **attributes: Any) -> Driver:
        words = settings_of(guarded.way_in(listener))
        settings = {"kafka": guarded.address_of(listener), "career": topic, **words}
        return drive(kind, settings, topics=topic, group=topic, **attributes)

    return make


@pytest.mark.parametrize(
    ("listener", "kind", "client"),
    [
        ("TLS", Recorder, "confluent"),
        ("PLAIN", Recorder, "kafka-python"),
        ("MUTUAL", Forwarding, "kafka-python"),
        ("MUTUAL", Forwarding, "confluent"),
        ("SCRAM", Forwarding, "kafka-python"),
        ("SCRAM", Forwarding, "confluent"),
    ],
)
def test_a_career_reads_commits_and_produces_where_it_shows_what_is_demanded(
    guarded, enter, topic, listener, kind, client
):
    way_in = {"address": guarded.address_of(listener), "security": guarded.way_in(listener)}
    driver = enter(listener, kind, client=client).begin()
    values = [b"%d" % n for n in range(50)]
    assert produce(topic=topic, records=((value, value) for value in values), **way_in) == 50
    driver.run_until(lambda: len(driver.career.seen) == 50)
    driver.end()
    assert sorted(driver.career.values()) == sorted(values)
    ends = end_offsets(topic=topic, **way_in)
    assert sum(ends.values()) == 50
    # A broker writes the end of a transaction after it has promised to.
    eventually(lambda: committed(group=topic, topic=topic, **way_in) == ends)
    if kind is Forwarding:
        eventually(lambda: end_offsets(topic=f"{topic}-out", **way_in)[0] >= 50)


class Refusing(Recorder):
    handle = KafkaLeaderCareer.handle

    def handle_record(self, record: Record, term: Term) -> None:
        if record.value == b"7":
            raise ValueError("seven")
        self.seen.append(record)


@pytest.mark.parametrize(
    ("client", "kind"), [("kafka-python", Forwarding), ("confluent", Refusing)]
)
def test_by_tokens_all_of_a_career_is_let_in_its_producer_and_its_dead_letters_too(
    guarded, enter, topic, client, kind
):
    more = {"client_options": TOKENS[client], "on_error": dead_letter(f"{topic}-out")}
    driver = enter("OAUTH", kind, client=client, **more).begin()
    produce(guarded.broker.address, topic, ((b"k", b"%d" % n) for n in range(20)))
    driver.run_until(lambda: len(driver.career.seen) == (20 if kind is Forwarding else 19))
    driver.end()
    sent = 20 if kind is Forwarding else 1
    eventually(lambda: end_offsets(guarded.broker.address, f"{topic}-out")[0] >= sent)


@every_client
def test_without_tokens_it_is_said_what_lacks(guarded, enter, topic, client):
    with pytest.raises(ConfigurationError, match="needs tokens: give the career client_options"):
        enter("OAUTH", Refusing, client=client, on_error=dead_letter())


UNKNOWN_CA = {"ca": Path("unknown-ca.crt")}
STRANGER = {"cert": Path("stranger.crt"), "key": Path("stranger.key"), "key_password": None}
REFUSALS: dict[str, tuple[str, dict[str, Any], str]] = {
    "wrong password": ("PLAIN", {"password": WRONG}, "password"),
    "unknown user over TLS": ("SCRAM", {"user": "nobody"}, "user"),
    "wrong mechanism over TLS": ("SCRAM", {"mechanism": "SCRAM-SHA-256"}, "mechanism"),
    "unknown authority": ("TLS", UNKNOWN_CA, "certificate"),
    "no authority": ("TLS", {"ca": None}, "certificate"),
    "a certificate for another host": ("ELSEWHERE", {}, "certificate"),
    "no certificate of one's own": ("MUTUAL", {"cert": None, "key": None}, "certificate"),
    "a stranger's certificate": ("MUTUAL", STRANGER, "certificate"),
}
"""By name: listener, what is shown there instead, and a word of the error that names the cause."""


@every_client
@pytest.mark.parametrize("what", REFUSALS)
def test_who_is_refused_is_told_the_cause_and_no_secret_is_shown(
    guarded, topic, client, what, caplog
):
    listener, changes, cause = REFUSALS[what]
    error = ServersUnreachable if cause == "certificate" else AccessRefused
    security, address = guarded.way_in(listener), guarded.address_of(listener)
    for name, one in changes.items():
        shown = str(guarded.certificates.folder / one) if isinstance(one, Path) else one
        security = replace(security, **{name: shown})
    before = threading.active_count()
    told: list[LeaderqError] = []

    def is_told_the_cause() -> bool:
        consumer = CONSUMERS[client](
            ConsumerSettings(address, (topic,), topic, "me", security=security, open_timeout_s=0.5)
        )
        with pytest.raises(LeaderqError) as refused:
            consumer.open()
        consumer.close()
        told.append(refused.value)
        return isinstance(refused.value, error) and cause in str(refused.value)

    with caplog.at_level(logging.DEBUG):
        # a busy broker may have said nothing in the time given
        eventually(is_told_the_cause)
    assert all(address in str(each) for each in told)
    assert not any(secret in caplog.text + str(told) for secret in (WRONG, PASSWORD, KEY_PASSWORD))
    eventually(lambda: threading.active_count() <= before, message="no thread is left behind")


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"ca": "/no/such/file"}, "kafka_ca='/no/such/file'"),
        ({"cert": "/no/such/file"}, "kafka_cert='/no/such/file'"),
        ({"key_password": WRONG}, "key's password"),
        ({"key_password": None}, "key's password"),
    ],
)
def test_files_that_cannot_be_used_are_named_at_once_and_nobody_is_asked_for_a_password(
    guarded, changes, named
):
    with pytest.raises(ConfigurationError, match=named):
        check_reachable(guarded.address_of("MUTUAL"), replace(guarded.way_in("MUTUAL"), **changes))


CAREER = """
from leaderq import KafkaLeaderCareer

class Drain(KafkaLeaderCareer):
    name = "guarded-drain"
    topics = {topic!r}
    client = {client!r}

    def handle(self, records, term):
        print(*(record.value.decode() for record in records), flush=True)
"""


@pytest.mark.parametrize(
    ("listener", "client"), [("MUTUAL", "confluent"), ("SCRAM", "kafka-python")]
)
def test_from_the_command_line_a_career_drains_there_and_no_secret_is_logged_or_on_a_command_line(
    guarded, topic, start, tmp_path, listener, client
):
    (tmp_path / "career.py").write_text(CAREER.format(topic=topic, client=client))
    security, address = guarded.way_in(listener), guarded.address_of(listener)
    produce(address, topic, [(b"k", b"%d" % n) for n in range(10)], security=security)
    words = {f"LEADERQ_{name.upper()}": str(one) for name, one in settings_of(security).items()}
    more = {"arguments": ["--log-level", "debug"], "session_timeout_s": 30.0}
    process = start("career:Drain", kafka=address, environment=words, **more)
    process.wait_for("stage_began", stage="execution")

    def stored() -> int:
        return sum(committed(address, "guarded-drain", topic, security=security).values())

    eventually(lambda: stored() == 10)
    seen = [Path(f"/proc/{pid}/cmdline").read_text() for pid in (process.pid, process.worker_pid)]
    process.terminate()
    assert process.wait(60) == 0
    seen += [json.dumps(line) for line in process.lines]
    assert not any(secret in text for text in seen for secret in (PASSWORD, KEY_PASSWORD))
