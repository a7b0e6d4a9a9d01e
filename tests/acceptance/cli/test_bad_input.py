"""What a user gets wrong is answered at once, in a sentence, with the right exit code."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

NOBODY = "127.0.0.1:1"


@pytest.fixture
def silent_address() -> Iterator[str]:
    """A port that accepts connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def test_a_wrong_class_and_a_wrong_configuration_are_told_together(shell, folder):
    (folder / "leaderq.toml").write_text("zookeper = 'a'\n")
    done = shell("run", "billing:Nobody", "--settle-s", "x", kafka="a:b")
    said = "'billing:Nobody'", "did you mean zookeeper?", "--settle-s: 'x'", "LEADERQ_KAFKA: 'a:b'"
    done.assert_refused(*said, lines=4)


DECLARED = """
from leaderq.kafka import KafkaLeaderCareer

class Wrong(KafkaLeaderCareer):
    topics, offsets, max_records = "", "file", -1
    def handle_record(self, record, term): ...
"""


def test_what_a_kafka_career_declares_is_checked_before_anything_is_connected_to(
    shell, folder, silent_address
):
    (folder / "declared.py").write_text(DECLARED)
    run = ("run", "declared:Wrong", "--connect-timeout-s", "60", "--no-guardian")
    done = shell(*run, zookeeper=silent_address)
    done.assert_refused("'topics' of Wrong is empty", "offsets='file'", "max_records", lines=3)


def test_a_port_in_use_is_told_before_it_stands(shell, zookeeper_server, silent_address):
    done = shell("run", "billing:AdBilling", "--http", silent_address, zookeeper=NOBODY)
    assert done.code == 2
    assert f"error: http: '{silent_address}' cannot be listened on: Address already" in done.err


@pytest.mark.parametrize("words", ["run billing:AdBilling", "lead --career c -- true", "status"])
def test_a_zookeeper_that_is_not_there_is_told_in_bounded_time(shell, words):
    done = shell(*words.split(), zookeeper=NOBODY, connect_timeout_s="0.5")
    done.assert_refused(f"ZooKeeper at '{NOBODY}' did not answer within 0.5 s", code=3)


def test_a_secret_appears_nowhere(shell, folder):
    (folder / "leaderq.toml").write_text(
        "zookeeper_user = 'u'\nzookeeper_auth = 'digest'\nzookeeper_password = 'hunter2'\n"
    )
    for words in ("config show", "config show --json", "doctor --quick", "status --debug"):
        done = shell(*words.split(), zookeeper=NOBODY, connect_timeout_s="0.3")
        assert "hunter2" not in done.out + done.err
    assert "****" in shell("config", "show").out


def test_wrong_credentials_for_zookeeper_are_said_and_nothing_secret_is_shown(shell, sasl_server):
    login = {"zookeeper": sasl_server.address, "zookeeper_auth": "sasl", "zookeeper_user": "alice"}
    done = shell("run", "billing:AdBilling", **login, zookeeper_password="wrong-secret")
    assert done.code == 2, done.err
    *_, last = done.err.splitlines()
    assert sasl_server.address in last
    assert "alice" in last
    assert "wrong-secret" not in done.err
    assert shell("status", **login, zookeeper_password="wonderland").code == 0
