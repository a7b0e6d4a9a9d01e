from __future__ import annotations

import logging
from typing import Any

import pytest
from kazoo.exceptions import AuthFailedError

from leaderq.errors import AccessRefused, NoPermission, ServersUnreachable
from leaderq.testing import eventually
from leaderq.zookeeper import Create, Security, SessionState, connect, end_session
from leaderq.zookeeper.client import Client
from leaderq.zookeeper.connection import ServerConnection
from leaderq.zookeeper.private_api import stop_flag

ALICE = Security(user="alice", password="wonderland", mechanism="DIGEST-MD5")


def test_znodes_made_with_credentials_are_closed_to_others(zookeeper_server, znode_root, opened):
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
    eventually(lambda: again.get(f"{znode_root}/hers"))


def test_a_chroot_of_someone_else_is_refused_with_its_path(zookeeper_server, znode_root, opened):
    opened(security=Security(user="alice", password="one"))
    with pytest.raises(AccessRefused, match=znode_root):
        connect(f"{zookeeper_server.address}{znode_root}/below")


def test_sasl_refuses_a_wrong_password_at_once(sasl_server, caplog):
    with caplog.at_level(1), pytest.raises(AccessRefused, match="'alice'") as caught:
        connect(
            sasl_server.address,
            security=Security(user="alice", password="hunter2", mechanism="DIGEST-MD5"),
        )
    assert "hunter2" not in caplog.text + str(caught.value)


def test_a_session_with_sasl_can_be_ended_from_outside(sasl_server, znode_root, opened):
    watcher = opened(sasl_server.address + znode_root, security=ALICE)
    owner = opened(sasl_server.address + znode_root, security=ALICE)
    owner.create("/e", ephemeral=True)
    credentials = owner.credentials
    assert end_session(sasl_server.address, credentials, timeout_s=30, security=ALICE)
    assert watcher.exists("/e") is None
    assert end_session(sasl_server.address, credentials, timeout_s=30, security=ALICE)
    eventually(lambda: owner.id not in (None, credentials.session_id))
    stranger = Security(user="a", password="b", mechanism="DIGEST-MD5")
    assert not end_session(sasl_server.address, owner.credentials, timeout_s=1.0, security=stranger)


def test_a_session_whose_live_owner_takes_it_back_meanwhile_is_ended_all_the_same(
    sasl_server, znode_root, opened, monkeypatch
):
    """As when who ends it gets no processor between taking the session up and closing it."""
    owner = opened(sasl_server.address + znode_root, timeout_s=30.0, security=ALICE)
    heard: list[SessionState] = []
    owner.add_listener(heard.append)
    finish, tries = Client.finish, []

    def finish_late(client: Client, *, timeout_s: float) -> bool:
        if client.handler._label == "leaderq-ender":
            tries.append(client)
            if len(tries) == 1:
                stop_flag(client).set()  # else its own thread takes the session back again
                eventually(lambda: SessionState.CONNECTED in heard)
        return finish(client, timeout_s=timeout_s)

    monkeypatch.setattr(Client, "finish", finish_late)
    assert end_session(sasl_server.address, owner.credentials, timeout_s=60, security=ALICE)
    assert len(tries) > 1
    eventually(lambda: SessionState.LOST in heard)


def test_no_password_of_any_kind_is_logged(sasl_server, znode_root, opened, caplog):
    with caplog.at_level(1):
        for security in (ALICE, Security(user="carol", password="hunter2")):
            session = opened(sasl_server.address, security=security)
            session.exists("/")
            heard: list[SessionState] = []
            session.add_listener(heard.append)
            session.drop_connection()
            eventually(lambda: heard == [SessionState.SUSPENDED, SessionState.CONNECTED])  # noqa: B023
            secret = session.credentials.password.hex()
            session.close()
            assert secret not in caplog.text
    logged = caplog.text + "".join(repr(record.args) for record in caplog.records)
    assert "hunter2" not in logged
    assert "wonderland" not in logged
    # nothing was switched off behind the user's back
    assert logging.getLogger("kazoo").level == logging.NOTSET


def test_a_session_over_tls_does_all_that_others_do(tls_address, certificates, znode_root, opened):
    security = Security(ca=str(certificates["server"]))
    session = opened(tls_address + znode_root, security=security)
    heard: list[object] = []
    session.watch_tree("/", heard.append)
    for name in "abcd":
        session.create(f"/{name}", b"x" * 400_000)
    eventually(lambda: len(heard) == 4)
    reads = [session.get_async(f"/{name}") for name in "abcd" * 10]
    assert {len(read.result(30)[0]) for read in reads} == {400_000}
    session.drop_connection()
    eventually(lambda: len(heard) == 5 and session.exists("/a"))
    session.create("/e", ephemeral=True)
    assert end_session(tls_address, session.credentials, timeout_s=30, security=security)
    eventually(lambda: session.exists("/e") is None)


@pytest.mark.parametrize("ca", ["other", None])
def test_a_server_with_an_unknown_certificate_is_not_trusted(tls_address, certificates, ca):
    security = Security(tls=True, ca=None if ca is None else str(certificates[ca]))

    def reason() -> str:
        with pytest.raises(ServersUnreachable) as caught:
            connect(tls_address, security=security, connect_timeout_s=1.0)
        return str(caught.value)

    # a busy server may show none in time
    eventually(lambda: "certificate" in reason())


def test_a_connection_that_breaks_amid_the_authentication_is_no_refusal(
    sasl_server, opened, monkeypatch
):
    """As when the owner takes its session back just then: kazoo says the same of both."""
    owner = opened(sasl_server.address, security=ALICE)
    authenticate, tries = ServerConnection._authenticate_with_sasl, []

    def broken_at_first(*given: Any) -> None:
        tries.append(given)
        if len(tries) == 1:
            raise AuthFailedError("Connection dropped in SASL")
        authenticate(*given)

    monkeypatch.setattr(ServerConnection, "_authenticate_with_sasl", broken_at_first)
    assert end_session(sasl_server.address, owner.credentials, timeout_s=60, security=ALICE)
    assert len(tries) > 1
