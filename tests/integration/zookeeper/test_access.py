"""Digest credentials, SASL, TLS, on servers that ask for them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pytest

from leaderq.errors import AccessRefused, NoPermission
from leaderq.testing import ZooKeeperServer, eventually
from leaderq.zookeeper import Create, Security, Session, SessionState, connect, end_session

Connect = Callable[..., Session]
JAAS = """
Server {
    org.apache.zookeeper.server.auth.DigestLoginModule required
    user_alice="wonderland"
    user_bob="builder";
};
"""
ALICE = Security(user="alice", password="wonderland", mechanism="DIGEST-MD5")
BOB = Security(user="bob", password="builder", mechanism="DIGEST-MD5")


@pytest.fixture(scope="module")
def sasl_server() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer(jaas=JAAS) as server:
        yield server


def test_znodes_made_with_credentials_are_closed_to_others(
    zookeeper_server: ZooKeeperServer, znode_root: str, opened: Connect
) -> None:
    address = zookeeper_server.address
    opened(address).create(znode_root)
    alice = opened(address, security=Security(user="alice", password="one"))
    stranger = opened(address)
    alice.create(f"{znode_root}/hers", b"x")
    alice.multi([Create(f"{znode_root}/hers too", b"y")])
    assert alice.get(f"{znode_root}/hers")[0] == b"x"
    for name in ("hers", "hers too"):
        with pytest.raises(NoPermission) as caught:
            stranger.get(f"{znode_root}/{name}")
        assert caught.value.path == f"{znode_root}/{name}"
    with pytest.raises(NoPermission) as caught:
        stranger.multi([Create(f"{znode_root}/a"), Create(f"{znode_root}/hers/b")])
    assert caught.value.index == 1
    assert isinstance(stranger.multi_read_async([]).result(0), list)
    again = opened(address, security=Security(user="alice", password="one"))
    assert again.get(f"{znode_root}/hers")[0] == b"x"
    again.drop_connection()
    eventually(lambda: again.state is SessionState.CONNECTED and again.get(f"{znode_root}/hers"))


def test_open_znodes_are_made_if_wanted(zookeeper_server: ZooKeeperServer, znode_root: str, opened: Connect) -> None:
    alice = opened(zookeeper_server.address, security=Security(user="alice", password="one", open_acl=True))
    alice.create(znode_root, b"x")
    assert opened(zookeeper_server.address).get(znode_root)[0] == b"x"


def test_a_chroot_of_someone_else_is_refused_with_its_path(
    zookeeper_server: ZooKeeperServer, znode_root: str, opened: Connect
) -> None:
    opened(zookeeper_server.address + znode_root, security=Security(user="alice", password="one"))
    with pytest.raises(AccessRefused, match=znode_root):
        connect(f"{zookeeper_server.address}{znode_root}/below")


def test_sasl_lets_in_who_knows_the_password(sasl_server: ZooKeeperServer, znode_root: str, opened: Connect) -> None:
    alice = opened(sasl_server.address + znode_root, security=ALICE)
    alice.create("/hers")
    with pytest.raises(AccessRefused):
        opened(sasl_server.address + znode_root, security=BOB).get("/hers")
    alice.drop_connection()
    eventually(lambda: alice.state is SessionState.CONNECTED and alice.get("/hers"))


def test_sasl_refuses_a_wrong_password_at_once(sasl_server: ZooKeeperServer, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(1), pytest.raises(AccessRefused, match="'alice'") as caught:
        connect(sasl_server.address, security=Security(user="alice", password="hunter2", mechanism="DIGEST-MD5"))
    assert "hunter2" not in caplog.text + str(caught.value)


def test_a_session_with_sasl_can_be_ended_from_outside(
    sasl_server: ZooKeeperServer, znode_root: str, opened: Connect
) -> None:
    watcher = opened(sasl_server.address + znode_root, security=ALICE)
    owner = opened(sasl_server.address + znode_root, security=ALICE)
    owner.create("/e", ephemeral=True)
    assert owner.credentials is not None
    credentials = owner.credentials
    assert end_session(sasl_server.address, credentials, security=ALICE)
    assert watcher.exists("/e") is None
    assert end_session(sasl_server.address, credentials, security=ALICE)
    eventually(lambda: owner.id not in (None, credentials.session_id))
    assert owner.credentials is not None
    stranger = Security(user="a", password="b", mechanism="DIGEST-MD5")
    assert not end_session(sasl_server.address, owner.credentials, timeout_s=1.0, security=stranger)


def test_no_password_of_any_kind_is_logged(
    sasl_server: ZooKeeperServer, znode_root: str, opened: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(1):
        for security in (ALICE, Security(user="carol", password="hunter2")):
            session = opened(sasl_server.address, security=security)
            session.exists("/")
            session.drop_connection()
            eventually(lambda: session.state is SessionState.CONNECTED)  # noqa: B023
            assert session.credentials is not None
            secret = session.credentials.password.hex()
            session.close()
            assert secret not in caplog.text
    logged = caplog.text + "".join(repr(record.args) for record in caplog.records)
    assert "hunter2" not in logged
    assert "wonderland" not in logged
    assert logging.getLogger("kazoo").level == logging.NOTSET  # nothing was switched off behind the user's back
