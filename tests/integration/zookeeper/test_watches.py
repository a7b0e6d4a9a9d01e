from __future__ import annotations

from leaderq.testing import eventually
from leaderq.zookeeper import Session, WatchEvent, WatchKind

CREATED, DELETED, CHANGED, CHILDREN, SESSION = (
    WatchKind.CREATED,
    WatchKind.DELETED,
    WatchKind.CHANGED,
    WatchKind.CHILDREN,
    WatchKind.SESSION,
)


def test_a_watch_fires_once_with_the_path_as_the_session_sees_it(session: Session) -> None:
    heard: list[WatchEvent] = []
    session.exists("/a", heard.append)
    session.children("/", heard.append)
    session.create("/a")
    eventually(lambda: len(heard) == 2)
    assert set(heard) == {WatchEvent(CREATED, "/a"), WatchEvent(CHILDREN, "/")}
    session.get("/a", heard.append)
    session.set("/a", b"x")
    session.set("/a", b"y")
    eventually(lambda: heard[2:] == [WatchEvent(CHANGED, "/a")])
    session.get("/a", heard.append)
    session.delete("/a")
    eventually(lambda: heard[3:] == [WatchEvent(DELETED, "/a")])


def test_a_tree_is_watched_for_as_long_as_wanted(session: Session) -> None:
    heard: list[WatchEvent] = []
    subscription = session.watch_tree("/t", heard.append)
    session.create("/t")
    session.create("/tx")
    session.create("/t/a")
    session.set("/t/a", b"1")
    session.set("/t/a", b"2")
    session.delete("/t/a")
    session.delete("/t")
    wanted = [
        WatchEvent(CREATED, "/t"),
        WatchEvent(CREATED, "/t/a"),
        WatchEvent(CHANGED, "/t/a"),
        WatchEvent(CHANGED, "/t/a"),
        WatchEvent(DELETED, "/t/a"),
        WatchEvent(DELETED, "/t"),
    ]
    eventually(lambda: heard == wanted)
    subscription.close()
    subscription.close()
    session.create("/t")
    session.sync()
    session.exists("/t", heard.append)
    session.set("/t", b"x")
    # the one-shot watch fired, and so would the other have by now
    eventually(lambda: len(heard) == len(wanted) + 1)


def test_a_tree_watch_stands_again_after_a_reconnection_and_says_that_it_was_away(
    session: Session,
) -> None:
    heard: list[WatchEvent] = []
    session.create("/t")
    with session.watch_tree("/t", heard.append), session.watch_node("/t", heard.append):
        for number in range(3):
            session.drop_connection()
            eventually(lambda: heard.count(WatchEvent(SESSION, "/t")) == 2)
            session.create(f"/t/{number}")
            wanted = {WatchEvent(CREATED, f"/t/{number}"), WatchEvent(CHILDREN, "/t")}
            eventually(lambda: wanted <= set(heard))  # noqa: B023
            heard.clear()
