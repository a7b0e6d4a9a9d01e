from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from certificates import self_signed

from leaderq import zookeeper
from leaderq.errors import ConfigurationError, ConnectionLost, NotConnected, SessionClosed
from leaderq.zookeeper import Check, Credentials, GetData, Security, Session, SessionState, SetData
from leaderq.zookeeper.paths import parsed_address


def session_of(**security: Any) -> Session:
    """One that has lost its servers, and may live there."""
    made = Session(parsed_address("localhost:1"), timeout_s=6.0, security=Security(**security))
    made._credentials = Credentials(7, b"secret")
    return made


@pytest.fixture
def session() -> Iterator[Session]:
    made = session_of()
    yield made
    made.close(0)


@pytest.mark.parametrize("timeout_s", [0, -1, float("nan"), 0.1])
def test_no_time_out_keeps_a_close_from_its_end(session, timeout_s):
    assert session.close(timeout_s) is False
    assert (session.state, session.id) == (SessionState.CLOSED, None)


def test_what_is_no_time_changes_nothing(session):
    for wrong in (None, "5"):
        with pytest.raises(TypeError):
            session.close(wrong)
    assert (session.state, session.id) == (SessionState.SUSPENDED, 7)


def test_a_time_out_without_end_is_one_for_a_session_that_was_never_there(session):
    session._credentials = None
    assert session.close(float("inf")) is True
    with pytest.raises(SessionClosed):
        session.get("/a", timeout_s=float("inf"))


@pytest.mark.parametrize("timeout_s", [float("nan"), float("inf"), 1e300, -1])
def test_every_time_out_of_a_request_is_one(session, timeout_s):
    with pytest.raises(NotConnected):
        session.get("/a", timeout_s=timeout_s)
    if timeout_s != float("inf") and timeout_s != 1e300:
        with pytest.raises(ConnectionLost, match=r"no answer within 0\.0 s"):
            session._wait(session._send_all((), bool, None), timeout_s, None)


def test_a_close_that_was_interrupted_is_finished_by_the_next(session, monkeypatch):
    heard: list[SessionState] = []

    def interrupted(state: SessionState) -> None:
        heard.append(state)
        if len(heard) == 1:
            raise KeyboardInterrupt

    ended: list[Credentials] = []
    monkeypatch.setattr(session._ender, "end", lambda who, **_: not ended.append(who))
    session.add_listener(interrupted)
    with pytest.raises(KeyboardInterrupt):
        session.close()
    assert ended == []
    assert session.close() is True
    assert session.close() is True
    assert (heard, ended) == ([SessionState.CLOSED], [Credentials(7, b"secret")])


def test_who_holds_the_session_is_told_before_the_servers_even_if_a_listener_closes_it(
    session, monkeypatch
):
    told: list[Any] = []
    session.pulse.look()
    session.pulse.hold(lambda proof: told.append(proof.session))
    monkeypatch.setattr(session._ender, "end", lambda who, **_: not told.append("ended"))
    session.add_listener(lambda _state: told.append(session.close()))
    session.add_listener(told.append)
    session._listeners.announce(SessionState.SUSPENDED)
    last = SessionState.CLOSED
    assert told == [7, None, "ended", True, SessionState.SUSPENDED, True, last]
    assert not session.pulse.holds(7)


def test_a_listener_may_close_the_session_that_is_being_replaced(session):
    session.add_listener(lambda state: state is SessionState.LOST and session.close(0.1))
    replacing = threading.Thread(target=session.replace, args=("a test wants it",), daemon=True)
    replacing.start()
    replacing.join(30)
    assert not replacing.is_alive()
    assert session.state is SessionState.CLOSED
    assert not session._client.ended.is_set()  # never started


@pytest.mark.parametrize("is_gone", [True, False])
def test_certificates_are_read_once_whatever_becomes_of_the_files_or_the_folder(
    tmp_path, monkeypatch, is_gone
):
    monkeypatch.chdir(tmp_path)
    ca = self_signed(tmp_path, "ca", "IP:127.0.0.1").certificate.name
    session = session_of(ca=ca)
    if is_gone:
        Path(ca).unlink()
    else:
        monkeypatch.chdir("/")
    session.replace("a test wants it")
    assert session.close(timeout_s=0.2) is False


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"timeout_s": "10"}, "timeout_s='10'"),
        ({"timeout_s": 0, "connect_timeout_s": None}, "timeout_s=0"),
        ({"connect_timeout_s": float("nan")}, "connect_timeout_s=nan"),
        ({"tick_s": -1}, "tick_s=-1"),
        ({"max_request_bytes": "1M"}, "max_request_bytes='1M'"),
        ({"security": Security(password="p")}, "without a user"),
    ],
)
def test_all_that_is_wrong_with_a_connection_is_named_at_once(wrong, named):
    with pytest.raises(ConfigurationError) as caught:
        zookeeper.connect("no:port:there", **wrong)
    assert len(caught.value.problems) == 1 + len(wrong)
    assert named in str(caught.value)
    assert "no:port:there" in str(caught.value)


@pytest.mark.parametrize(
    "ask",
    [
        lambda s: s.create_async("/a", "text"),
        lambda s: s.create("/a", None),
        lambda s: s.set_async("/a", 5),
        lambda s: s.set_async("/a", b"", "1"),
        lambda s: s.set("/a", b"", 1 << 31),
        lambda s: s.delete_async("/a", -2),
        lambda s: s.multi_async([zookeeper.Create("/a", "text")]),
        lambda s: s.multi([SetData("/a", b"", 1 << 40)]),
        lambda s: s.multi([Check("/a", None)]),
        lambda s: s.multi([GetData("/a")]),
        lambda s: s.multi_read([Check("/a")]),
        lambda s: s.multi([None]),
    ],
)
def test_what_cannot_be_written_down_is_refused_at_the_call(session, ask):
    with pytest.raises(ConfigurationError):
        ask(session)


def test_any_buffer_is_data(session):
    for data in (bytearray(b"x"), memoryview(b"x"), b""):
        assert isinstance(session.create_async("/a", data).exception(0), NotConnected)
