"""Secrets are never shown; files that cannot be used are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from leaderq.config import TABLE, load
from leaderq.errors import ConfigurationError

SECRETS = [row for row in TABLE if row.secret]
SASL = {
    "LEADERQ_KAFKA_PROTOCOL": "SASL_SSL",
    "LEADERQ_KAFKA_MECHANISM": "PLAIN",
    "LEADERQ_KAFKA_USER": "u",
}


def problems(folder: Path, **more: Any) -> tuple[str, ...]:
    with pytest.raises(ConfigurationError) as caught:
        load(folder=folder, **{"environ": {}} | more)
    return caught.value.problems


def test_a_secret_is_masked_where_it_is_shown_and_absent_from_the_repr(tmp_path):
    found = load(environ=SASL | {"LEADERQ_KAFKA_PASSWORD": "hunter2"}, folder=tmp_path)
    assert found.settings.kafka_security.password == "hunter2"
    shown = {row.name: value for row, value, _ in found.rows()}
    assert shown["kafka_password"] == "****"
    assert shown["zookeeper_password"] is None
    for text in (
        repr(found),
        repr(found.settings),
        repr(found.settings.kafka_security),
        str(shown),
    ):
        assert "hunter2" not in text


@pytest.mark.parametrize("secret", [row.name for row in SECRETS])
def test_an_unfit_secret_is_complained_about_without_being_shown(tmp_path, secret):
    (tmp_path / "leaderq.toml").write_text(f"{secret} = 271828\n")
    (said,) = problems(tmp_path)
    assert "271828" not in said
    assert "'****' is not text" in said


def test_a_secret_may_be_kept_in_a_file_next_to_the_configuration_file(tmp_path):
    (tmp_path / "kafka.secret").write_text("hunter2\n")
    (tmp_path / "leaderq.toml").write_text("kafka_password_file = 'kafka.secret'")
    found = load(environ=SASL, folder=tmp_path / "..", config=tmp_path / "leaderq.toml")
    assert found.settings.kafka_password == "hunter2"
    assert found.source("kafka_password") == str(tmp_path / "leaderq.toml")


def test_a_secret_and_its_file_in_the_same_place_are_refused(tmp_path):
    (tmp_path / "s").write_text("x")
    environ = SASL | {"LEADERQ_KAFKA_PASSWORD": "hunter2", "LEADERQ_KAFKA_PASSWORD_FILE": "s"}
    (said,) = problems(tmp_path, environ=environ)
    assert (
        said
        == "LEADERQ_KAFKA_PASSWORD and LEADERQ_KAFKA_PASSWORD_FILE are both set; keep one of them"
    )


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "cannot be read: No such file"),
        (b"", "exactly one line"),
        (b"a\nb\n", "exactly one line"),
        (b"\xff", "not UTF-8"),
    ],
)
def test_an_unusable_file_of_a_secret_is_named(tmp_path, content, why):
    if content is not None:
        (tmp_path / "s").write_bytes(content)
    (said,) = problems(tmp_path, environ=SASL | {"LEADERQ_KAFKA_PASSWORD_FILE": "s"})
    assert said.startswith("LEADERQ_KAFKA_PASSWORD_FILE: 's' ")
    assert why in said


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"a = \n", "is not TOML: Invalid value (at line 1, column 5)"),
        (b"a = 1\na = 2\n", "line 2"),
        (b"a = '\xff'", "is not UTF-8 text (byte 5)"),
    ],
)
def test_a_malformed_file_is_refused_with_its_line(tmp_path, content, why):
    (tmp_path / "leaderq.toml").write_bytes(content)
    (said,) = problems(tmp_path)
    assert str(tmp_path / "leaderq.toml") in said
    assert why in said


def test_certificates_that_cannot_be_read_are_named_with_their_place(tmp_path):
    environ = {"LEADERQ_ZOOKEEPER_TLS": "1", "LEADERQ_ZOOKEEPER_CA": "no.pem"}
    (said,) = problems(tmp_path, environ=environ)
    assert said.startswith(
        f"LEADERQ_ZOOKEEPER_CA: '{tmp_path}/no.pem' cannot be read: No such file"
    )


def test_kafka_security_is_handed_on_as_plain_values(tmp_path):
    (tmp_path / "ca.pem").write_text("x")
    environ = SASL | {
        "LEADERQ_KAFKA_PASSWORD": "p",
        "LEADERQ_KAFKA_CA": "ca.pem",
        "LEADERQ_KAFKA_CHECK_HOSTNAME": "no",
    }
    found = load(environ=environ, folder=tmp_path).settings.kafka_security
    assert (found.protocol, found.mechanism, found.user, found.ca) == (
        "SASL_SSL",
        "PLAIN",
        "u",
        f"{tmp_path}/ca.pem",
    )
    assert not found.check_hostname


@pytest.mark.parametrize("name", ["kafka_password", "zookeeper_password"])
def test_a_secret_that_does_not_fit_the_other_settings_is_refused_and_not_shown(tmp_path, name):
    (problem,) = problems(tmp_path, environ={f"LEADERQ_{name.upper()}": "hunter2"})
    assert name.upper() in problem
    assert "hunter2" not in problem
