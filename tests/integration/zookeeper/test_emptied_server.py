"""A ZooKeeper that comes back without its data, or with older data, while others still use it."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator

import pytest

from leaderq.term import Reason
from leaderq.testing import ZooKeeperServer, eventually
from leaderq.zookeeper import Session, connect

T = 2.0


@pytest.fixture
def server() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer() as started:
        yield started


@pytest.fixture
def session(server: ZooKeeperServer) -> Iterator[Session]:
    with connect(server.address, timeout_s=T) as opened:
        for number in range(20):  # seen by this session, and not by the server that follows
            opened.ensure_path(f"/seen/{number}")
        yield opened


def empty(server: ZooKeeperServer) -> None:
    server.kill()
    shutil.rmtree(server.folder / "data")
    server.start()


def test_who_led_before_the_servers_were_emptied_leads_again_under_a_higher_number(
    server, session, caplog
):
    led: list[tuple[int, bool]] = []
    reasons: list[Reason | None] = []
    is_over = threading.Event()

    def lead() -> None:
        for term in session.terms("c", cool_off_s=0.1):
            led.append((term.number, term.unclean))
            if len(led) == 2:
                term.finish()
            while term.wait(0.05):
                pass
            reasons.append(term.reason)
        is_over.set()

    thread = threading.Thread(target=lead)
    thread.start()
    try:
        eventually(lambda: led == [(1, False)])
        empty(server)
        eventually(is_over.is_set)
    finally:
        session.close()
        thread.join()
    assert led == [(1, False), (2, True)]
    assert reasons[0] in (Reason.LEASE, Reason.SESSION)
    assert "term record was lost" in caplog.text
