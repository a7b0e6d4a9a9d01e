"""Passwords appear nowhere: in no repr, no log."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from leaderq.errors import ConfigurationError
from leaderq.zookeeper import Credentials, Security
from leaderq.zookeeper.client import KazooLog

SECRET = "hunter2"


def test_no_repr_shows_a_password() -> None:
    security = Security(user="alice", password=SECRET, mechanism="DIGEST-MD5", key_password=SECRET)
    assert SECRET not in repr(security)
    assert SECRET not in repr(Credentials(1, SECRET.encode()))


def test_what_kazoo_logs_below_a_warning_never_reaches_a_handler(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kazoo_log = KazooLog("x")
    with caplog.at_level(1):
        kazoo_log.log(5, "session_passwd: %s", SECRET)
        kazoo_log.debug("Sending request(xid=%s): %s", 1, SECRET)
        kazoo_log.exception("Exception raised during deserialization of request: %s", SECRET)
        kazoo_log.info("Connecting to %s", "host")
        kazoo_log.warning("Connection dropped: %s", "refused")
    assert SECRET not in caplog.text
    assert "Connecting to host" in caplog.text
    assert kazoo_log.trouble == "Connection dropped: refused"
    assert [record.levelno for record in caplog.records] == [
        logging.ERROR,
        logging.DEBUG,
        logging.DEBUG,
    ]


@pytest.mark.parametrize(
    ("security", "hint"),
    [
        (Security(password="x"), "without a user"),
        (Security(user="a:b", password="x"), "contains ':'"),
        (Security(user="a", password="x", mechanism="MAGIC"), "'MAGIC' is unknown"),
        (Security(user="a", mechanism="DIGEST-MD5"), "needs a user and a password"),
        (Security(key="/nope"), "without its certificate"),
        (Security(ca="/nope.pem"), "ca='/nope.pem' does not exist"),
    ],
)
def test_unusable_security_is_refused_before_connecting(security: Security, hint: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        security.validate()
    assert hint in str(caught.value)


def test_a_file_that_is_no_certificate_is_named(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text("nonsense")
    with pytest.raises(ConfigurationError, match=r"ca\.pem"):
        Security(ca=str(file)).ssl_context()


def test_credentials_make_znodes_their_creators_own_unless_told_otherwise() -> None:
    owner = Security(user="a", password="b")
    assert [entry.id.scheme for entry in owner.acl()] == ["auth"]
    assert [entry.id.scheme for entry in Security(user="a", password="b", open_acl=True).acl()] == [
        "world"
    ]
    assert [entry.id.scheme for entry in Security(tls=True).acl()] == ["world"]
    assert owner.auth_data() == [("digest", "a:b")]
    assert owner.sasl_options() is None
