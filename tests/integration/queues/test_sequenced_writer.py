"""Multis applied exactly once on the real server: whichever reply is lost, whatever is deleted by
hand, whoever expires.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest
from consumption import expire
from reply_rules import at_every_point

from leaderq.errors import (
    ConnectionLost,
    NodeExists,
    QueueClosed,
    SessionExpired,
)
from leaderq.testing import FaultProxy, eventually
from leaderq.writing import SequencedWriter
from leaderq.writing.writer import sweep
from leaderq.zookeeper import Create, Delete, Session

OWN = "/meta/tally"
KINDS = pytest.mark.parametrize("ephemeral", [False, True], ids=["persistent", "ephemeral"])
Open = Callable[..., Session]


@pytest.fixture
def straight(opened: Open) -> Session:
    session = opened()
    session.ensure_path("/q")
    return session


def creates(first: int, count: int) -> list[list[Any]]:
    return [
        [Create("/q/n-", b"%d" % number, sequential=True)] for number in range(first, first + count)
    ]


def lying(session: Session) -> list[int]:
    names = sorted(session.children("/q"))
    return [int(session.get(f"/q/{name}")[0]) for name in names]


def results(futures: list[Future[Any]]) -> list[Any]:
    return [future.result(60) for future in futures]


@KINDS
def test_groups_are_applied_once_in_order_and_the_tally_goes_when_closed(
    straight: Session, ephemeral: bool
) -> None:
    tally = SequencedWriter(straight, OWN, ephemeral=ephemeral, max_ops=10, window=3)
    early = tally.submit_all(creates(0, 5))
    assert tally.unsettled == 5
    tally.open()
    assert results(early + tally.submit_all(creates(5, 95))) == [
        [f"/q/n-{number:010}"] for number in range(100)
    ]
    assert lying(straight) == list(range(100))
    assert tally.close(30)
    assert straight.children("/meta") == []
    assert isinstance(tally.submit([Delete("/q")]).exception(0), QueueClosed)


def test_a_refused_group_fails_alone_with_its_own_error_and_the_others_keep_their_order(
    straight: Session,
) -> None:
    tally = SequencedWriter(straight, OWN, max_ops=20)
    groups = [
        [*one, Create("/same")] if number % 10 == 5 else one
        for number, one in enumerate(creates(0, 60))
    ]
    futures = tally.submit_all(groups)
    tally.open()
    assert tally.flush(60)
    refused = [number for number, future in enumerate(futures) if future.exception(0) is not None]
    assert refused == [15, 25, 35, 45, 55]
    error = futures[15].exception(0)
    assert isinstance(error, NodeExists)
    assert (error.path, error.index) == ("/same", 1)
    assert lying(straight) == [number for number in range(60) if number not in refused]
    tally.close(5)


@KINDS
def test_whichever_reply_is_lost_every_group_is_applied_once_and_in_order(
    straight: Session, proxy: FaultProxy, opened: Open, ephemeral: bool
) -> None:
    session = opened(proxy.address)

    def scenario(point: int) -> None:
        tally = SequencedWriter(session, f"/meta/{point}", ephemeral=ephemeral, max_ops=4, window=3)
        eventually(lambda: tally.open() is None)
        futures = tally.submit_all(
            [*creates(0, 20), [Create("/q/n-7", b"7"), Create("/q/n-7", b"7")], *creates(20, 5)]
        )
        assert tally.flush(60)
        assert isinstance(futures.pop(20).exception(0), NodeExists)
        assert [future.exception(0) for future in futures] == [None] * 25
        assert tally.close(30)
        assert lying(straight) == list(range(25))
        eventually(lambda: straight.children("/meta") == [])
        for name in straight.children("/q"):
            straight.delete(f"/q/{name}")

    assert at_every_point(proxy, scenario, session) >= 12


def test_an_ephemeral_tally_ends_with_its_session_and_says_what_is_certain(
    address: str, straight: Session, proxy: FaultProxy, opened: Open
) -> None:
    session = opened(proxy.address)
    tally = SequencedWriter(session, OWN, ephemeral=True, window=1)
    tally.open()
    # and not a reply lost, after which the tally might ask before the session is ended
    proxy.freeze_direction("to_client")
    doubtful = tally.submit_all(creates(0, 3))
    unsent = tally.submit_all(creates(3, 2))
    eventually(lambda: lying(straight) == [0, 1, 2])
    expire(session, address)
    proxy.cut()
    proxy.heal()
    assert all(isinstance(future.exception(60), ConnectionLost) for future in doubtful)
    assert all(isinstance(future.exception(60), SessionExpired) for future in unsent)
    assert tally.is_over
    assert isinstance(tally.submit([Delete("/q")]).exception(0), SessionExpired)
    assert lying(straight) == [0, 1, 2]
    tally.close(1)


def test_sweeping_takes_away_old_tallies_only(straight: Session) -> None:
    straight.ensure_path("/meta")
    for name in ("old", "older"):
        straight.create(f"/meta/{name}")
    first = straight.get("/meta/older")[1].mtime_ms
    eventually(
        lambda: (
            straight.set("/meta/old", b"").mtime_ms > first + 20 and straight.create("/meta/new")
        )
    )
    newest = straight.get("/meta/new")[1].mtime_ms
    assert sweep(straight, "/meta", newest, old_s=(newest - first - 10) / 1000) == 1
    assert sorted(straight.children("/meta")) == ["new", "old"]
    assert sweep(straight, "/meta", newest) == 0
    assert sweep(straight, "/nowhere", newest) == 0
