from __future__ import annotations

import struct
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from leaderq.base import clock
from leaderq.errors import ConfigurationError
from leaderq.testing import eventually
from leaderq.zookeeper import Credentials, Security
from leaderq.zookeeper.client import STUCK_S, ClientSupervisor
from leaderq.zookeeper.connection import Liveness, ServerConnection, Transport, connect_limit_s

T = 6.0


def test_a_peer_that_owes_an_answer_is_dead_after_two_thirds_of_the_time_out_without_a_sign():
    liveness = Liveness(T, 0.0)
    assert not liveness.is_dead(100.0)  # it owes nothing
    liveness.sent(0.1)
    liveness.sent(3.0)
    assert (liveness.is_dead(4.0), liveness.is_dead(4.01)) == (False, True)
    liveness.heard(3.9, still_waiting=True)
    assert (liveness.is_dead(7.8), liveness.is_dead(8.0)) == (False, True)
    liveness.heard(9.0, still_waiting=False)
    liveness.sent(50.0)  # we were stopped meanwhile: a third is left to a peer asked only now
    assert (liveness.is_dead(51.9), liveness.is_dead(52.1)) == (False, True)


def test_all_servers_are_tried_within_a_third_of_the_time_out_but_none_below_the_floor():
    assert connect_limit_s(6.0, 1) == 2.0
    assert connect_limit_s(9.0, 3) == 1.0
    assert connect_limit_s(4.0, 5) == 0.5
    assert connect_limit_s(9.0, 0) == 3.0


def frame(xid: int, body: bytes) -> bytes:
    return struct.pack("!iiqi", 16 + len(body), xid, 7, 0) + body


def event(kind: int, path: str) -> bytes:
    return frame(-1, struct.pack("!iii", kind, 3, len(path)) + path.encode())


@pytest.mark.parametrize("rest", [b"", b"\0\0", event(2, "/c")[:-1], frame(8, b"an answer")])
def test_events_that_come_together_are_read_up_to_what_is_not_a_whole_event(rest):
    heard: list[tuple[int, str]] = []
    connection = ServerConnection.__new__(ServerConnection)
    watchers = dict.fromkeys(("_data_watchers", "_child_watchers"), ())
    connection.client = SimpleNamespace(_stopped=threading.Event(), **watchers)
    connection._on_event = lambda kind, path: heard.append((kind, path))
    connection._received = bytearray(event(2, "/a") + event(1, "/b") + rest)
    connection._read_watch_events()
    assert heard == [(2, "/a"), (1, "/b")]
    assert connection._received == rest


def client_of(**facts: Any) -> Any:
    given = {"connected": True, "auth_failed": False, "timeout_s": 1.0}
    client = SimpleNamespace(attempts=3, ended=threading.Event(), **{**given, **facts})
    client.connection = client
    return client


def looks(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A supervisor of the client that a look names; a look tells why it was replaced, or when the
    next is due.
    """
    now, watched, replaced = [1000.0], [client_of()], list[str]()
    monkeypatch.setattr(clock, "awake_s", lambda: now[0])
    supervisor = ClientSupervisor("x", lambda: watched[0], replaced.append)

    def look(at_s: float, client: Any) -> Any:
        now[0], watched[0] = 1000.0 + at_s, client
        next_s = supervisor._step()
        return replaced.pop() if replaced else next_s

    look.supervisor = supervisor
    return look


def test_a_client_is_replaced_if_it_has_ended_and_more_rarely_each_time(monkeypatch):
    look = looks(monkeypatch)
    assert look(0.0, client_of()) is None
    ended = client_of(connected=False)
    ended.ended.set()
    assert look(1.0, ended) == "connection thread ended"
    assert 0.25 <= look(1.0, ended) <= 0.5  # not at once again
    ended.auth_failed = True
    assert look(2.0, ended) == "credentials refused"
    at_s, pauses = 2.0, []
    for _ in range(4):
        pauses.append(look(at_s, ended))
        assert look(at_s + pauses[-1] / 2, ended) == pytest.approx(pauses[-1] / 2)  # woken early
        at_s += pauses[-1]
        assert look(at_s, ended) == "credentials refused"
    # half of each, which is what chance may leave
    assert all(pause >= least for pause, least in zip(pauses, (0.5, 1.0, 2.0), strict=False))


def test_a_client_is_replaced_if_it_has_not_tried_for_long(monkeypatch):
    look, silent = looks(monkeypatch), client_of(connected=False)
    assert look(10.0, silent) == STUCK_S / 5
    assert look(10.0 + STUCK_S, silent) == STUCK_S / 5
    assert look(10.1 + STUCK_S, silent) == "no attempt to connect for 15 s"
    slow = client_of(connected=False, timeout_s=STUCK_S)
    assert look(100.0, slow) == look(100.0 + 2 * STUCK_S, slow) == STUCK_S / 5
    assert look(100.1 + 2 * STUCK_S, slow) == "no attempt to connect for 30 s"


def test_a_connection_lost_after_hours_has_not_been_without_attempt_for_hours(monkeypatch):
    look, client = looks(monkeypatch), client_of(connected=False)
    look(0.0, client)
    client.connected = True
    assert look(1.0, client) is None
    client.connected = False
    assert look(7200.0, client) == look(7214.0, client) == STUCK_S / 5
    client.attempts = 4
    assert look(7220.0, client) == look(7234.0, client) == STUCK_S / 5
    assert look(7240.0, client_of(connected=False)) == STUCK_S / 5


def test_a_client_that_was_dropped_has_tried_however_early_that_came(monkeypatch):
    look, client = looks(monkeypatch), client_of()
    assert look(0.0, client) is None
    look.supervisor.expect_attempt(client)
    assert look(0.0, client) == STUCK_S / 5
    assert look(16.0, client) == "no attempt to connect for 16 s"
    look.supervisor.expect_attempt(client)
    client.attempts = 4
    assert look(17.0, client) is None


SECRET = "hunter2"


def test_no_repr_shows_a_password():
    security = Security(user="alice", password=SECRET, mechanism="DIGEST-MD5", key_password=SECRET)
    assert SECRET not in repr(security)
    assert SECRET not in repr(Credentials(1, SECRET.encode()))


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
def test_unusable_security_is_refused_before_connecting(security, hint):
    with pytest.raises(ConfigurationError) as caught:
        security.validate()
    assert hint in str(caught.value)


def test_a_file_that_is_no_certificate_is_named(tmp_path):
    file = tmp_path / "ca.pem"
    file.write_text("nonsense")
    with pytest.raises(ConfigurationError, match=r"ca\.pem"):
        Security(ca=str(file)).ssl_context()


def test_credentials_make_znodes_their_creators_own_unless_told_otherwise():
    owner, shared = (Security(user="a", password="b", open_acl=how) for how in (False, True))
    for security, scheme in ((owner, "auth"), (shared, "world"), (Security(tls=True), "world")):
        assert [entry.id.scheme for entry in security.acl()] == [scheme]
    assert owner.auth_data() == [("digest", "a:b")]
    assert owner.sasl_options() is None


class Rude(BaseException):
    """Of a user's, like those of pytest and of asyncio."""


@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt, Rude])
def test_a_callback_that_raises_anything_ends_no_thread_of_the_session(error, caplog):
    def raising() -> None:
        raise error

    transport = Transport("test", lambda: 1.0, None)
    transport.start()
    heard: list[str] = []
    for job in (raising, lambda: heard.append("told")):
        transport.complete(job)
        transport.watch(job)
    eventually(lambda: heard == ["told", "told"])
    transport.stop(30)
    assert caplog.text.count("callback failed") == 2
    if error is not KeyboardInterrupt:  # which is Ctrl-C on this thread
        transport.complete(raising)
