"""Whatever a user gets wrong is answered at once, once, in one sentence, without a traceback, with
the right exit code.
"""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator

import pytest

NOBODY = "127.0.0.1:1"


@pytest.fixture
def silent_address() -> Iterator[str]:
    """A port that accepts connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def assert_refused(
    done: subprocess.CompletedProcess[str], code: int, *said: str, lines: int = 1
) -> None:
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    for each in said:
        assert each in done.stderr
    assert all(line.startswith("leaderq: error: ") for line in done.stderr.splitlines()), (
        done.stderr
    )
    assert len(done.stderr.splitlines()) == lines, done.stderr


def test_a_wrong_class_and_a_wrong_configuration_are_told_together(shell, folder):
    (folder / "leaderq.toml").write_text("zookeper = 'a'\n")
    done = shell("run", "billing:Nobody", "--settle-s", "x", kafka="a:b")
    assert_refused(
        done,
        2,
        "'billing:Nobody'",
        "did you mean zookeeper?",
        "--settle-s: 'x'",
        "LEADERQ_KAFKA: 'a:b'",
        lines=4,
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--tz", "Europe/Berlin"], "--tz means nothing without --cron"),
        (["--catch-up", "all"], "--catch-up means nothing without --cron"),
        (["--once", "k", "--on-crash", "skip"], "--on-crash means nothing without --cron"),
        (["--cron", "* * * * *", "--on-exit", "stop"], "--on-exit means nothing with --cron"),
        (["--cron", "* * * * *", "--once", "k"], "--cron and --once exclude each other"),
    ],
)
def test_an_option_of_lead_that_would_have_no_effect_is_refused(shell, options, said):
    done = shell("lead", "--career", "c", *options, "--", "true")
    assert_refused(done, 2, said)


DECLARED = """
from leaderq.kafka import KafkaLeaderCareer

class Wrong(KafkaLeaderCareer):
    topics, offsets, max_records = "", "file", -1
    def handle_record(self, record, term): ...

class Late(Wrong):
    def prepare(self):
        self.topics, self.offsets, self.max_records = "clicks", "kafka", 10
        super().prepare()

class Asking(Wrong):
    topics = property(lambda self: self.session.address)
"""


def test_what_a_kafka_career_declares_is_checked_before_anything_is_connected_to(
    shell, folder, silent_address
):
    (folder / "declared.py").write_text(DECLARED)
    run = ("run", "declared:Wrong", "declared:Late", "--connect-timeout-s", "60")
    done = shell(*run, "--no-guardian", zookeeper=silent_address)
    assert_refused(done, 2, "'topics' of Wrong is empty", "offsets='file'", "max_records", lines=3)


def test_a_port_in_use_is_told_before_it_stands(shell, zookeeper_server, silent_address):
    done = shell("run", "billing:AdBilling", "--http", silent_address, zookeeper=NOBODY)
    assert done.returncode == 2
    assert f"error: http: '{silent_address}' cannot be listened on: Address already" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "billing:AdBilling"],
        ["run", "billing:AdBilling", "--no-guardian"],
        ["lead", "--career", "c", "--", "true"],
        ["status"],
    ],
)
def test_a_zookeeper_that_is_not_there_is_told_in_bounded_time(shell, arguments):
    done = shell(*arguments, zookeeper=NOBODY, connect_timeout_s="0.5")
    assert_refused(done, 3, f"ZooKeeper at '{NOBODY}' did not answer within 0.5 s")


def test_a_secret_appears_nowhere(shell, folder):
    (folder / "leaderq.toml").write_text(
        "zookeeper_user = 'u'\nzookeeper_auth = 'digest'\nzookeeper_password = 'hunter2'\n"
    )
    for arguments in (
        ["config", "show"],
        ["config", "show", "--json"],
        ["doctor", "--quick"],
        ["status", "--debug"],
    ):
        done = shell(*arguments, zookeeper=NOBODY, connect_timeout_s="0.3")
        assert "hunter2" not in done.stdout + done.stderr
    assert "****" in shell("config", "show").stdout


def test_wrong_credentials_for_zookeeper_are_said_and_nothing_secret_is_shown(shell, sasl_server):
    login = {"zookeeper": sasl_server.address, "zookeeper_auth": "sasl", "zookeeper_user": "alice"}
    done = shell("run", "billing:AdBilling", **login, zookeeper_password="wrong-secret")
    assert done.returncode == 2, done.stderr
    *_, last = done.stderr.splitlines()
    assert sasl_server.address in last
    assert "alice" in last
    assert "Traceback" not in done.stderr
    assert "wrong-secret" not in done.stderr
    assert shell("status", **login, zookeeper_password="wonderland").returncode == 0


def test_wrong_options_of_a_career_are_refused_before_it_stands(shell, folder):
    (folder / "exporting.py").write_text(
        "from dataclasses import dataclass\nfrom billing import AdBilling\n"
        "class Exporting(AdBilling):\n    @dataclass\n    class Options:\n        count: int\n"
    )
    for verb in (["run"], ["doctor", "--quick", "--career"]):
        nobody = {"zookeeper": NOBODY, "connect_timeout_s": "0.5"}
        done = shell(*verb, "exporting:Exporting", **nobody, options_count="many")
        assert "LEADERQ_OPTIONS_COUNT: 'many' is not a number" in done.stdout + done.stderr
        assert done.returncode in (2, 3)  # doctor has not found a server either
