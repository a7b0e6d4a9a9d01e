"""What doctor says of ZooKeeper's servers, given what they say; and how they are asked."""

from __future__ import annotations

import json
import socket
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from leaderq.cli import ensemble
from leaderq.cli.ensemble import ServerView, judge_servers, judge_tick, view_of
from leaderq.cli.finding import Verdict
from leaderq.errors import ConfigurationError

OK, ADVICE, FAILED = Verdict.OK, Verdict.ADVICE, Verdict.FAILED


def servers(*ticks: float | None) -> list[ServerView]:
    return [ServerView(f"zk{n}:2181", "follower", tick, 4.0) for n, tick in enumerate(ticks)]


@pytest.mark.parametrize(
    ("ticks", "timeout_s", "configured_s", "verdict", "said"),
    [
        ([2.0], 10, None, OK, "T is 10 s, 5 ticks; minSessionTimeout is 4 s; a stall of 3.6 s"),
        ([2.0], 10, None, OK, "with tick_s = 2 it would be 5.1 s"),
        ([2.0], 10, 2.0, OK, "a stall of 5.1 s between servers costs no term"),
        ([2.0], 10, 5.0, OK, "with tick_s = 2 it would be 5.1 s"),
        (
            [2.0],
            10,
            1.0,
            FAILED,
            "with tick_s = 1 a lease could outlive its session",
        ),
        ([1.0, 2.0], 10, 1.5, FAILED, "1 to 2 s"),
        ([2.0, None], 10, 2.0, OK, "(of 1 of 2 servers)"),
        ([2.0], 3.9, None, FAILED, "session_timeout_s must be at least 4"),
        ([2.0], 4, 2.0, OK, "2 ticks"),
        ([2.0], 4, 3.6, ADVICE, "a longer session_timeout_s, or a shorter tick, leaves more"),
        ([None], 10, None, OK, "taken to be 5 s at most, half of T; no server tells its tick"),
        ([None], 10, 2.0, ADVICE, "tick_s = 2 cannot be checked"),
    ],
)
def test_the_tick_satisfies_what_leases_rest_on_or_what_to_do_is_said(
    ticks, timeout_s, configured_s, verdict, said
) -> None:
    (found,) = judge_tick(servers(*ticks), timeout_s, configured_s)
    assert (found.check, found.verdict) == ("tick", verdict)
    assert said in found.detail
    assert isinstance(found.error, ConfigurationError) == (verdict is FAILED)


def test_the_servers_are_told_with_their_modes_and_those_that_say_nothing() -> None:
    views = [
        ServerView("a:1", "leader"),
        ServerView("b:1", "follower", ours=True),
        ServerView("c:1", ""),
        ServerView("d:1", None),
    ]
    found, silent, even = judge_servers(views, ["participant"] * 4 + ["observer"])
    assert found.detail == (
        "a:1 leads; b:1 follows; c:1: not said (srvr is not in 4lw.commands.whitelist);"
        " this session is with b:1; 4 servers vote and 1 observe, 4 are in our address"
    )
    assert (silent.verdict, silent.detail) == (ADVICE, "no answer from d:1; is a server down?")
    assert (even.verdict, "no more may fail than of 3" in even.detail) == (ADVICE, True)


class _Admin(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"tick_time": 3000, "min_session_timeout": 6000}).encode())

    def log_message(self, *_: object) -> None:
        return


def test_the_admin_server_tells_the_tick_where_no_word_does(monkeypatch) -> None:
    admin = HTTPServer(("127.0.0.1", 0), _Admin)
    Thread(target=admin.handle_request, daemon=True).start()
    monkeypatch.setattr(ensemble, "ADMIN_PORT", admin.server_port)
    monkeypatch.setattr(ensemble, "ask", lambda *_: "not in the whitelist")
    assert view_of("127.0.0.1", 1) == ServerView("127.0.0.1:1", "", 3.0, 6.0)
    admin.server_close()


def test_a_server_that_is_not_there_is_told_so() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        assert view_of("127.0.0.1", port) == ServerView(f"127.0.0.1:{port}", None)
