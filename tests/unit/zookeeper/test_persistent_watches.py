from __future__ import annotations

import threading
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from leaderq.errors import ConfigurationError, ConnectionLost, NoPermission
from leaderq.zookeeper.watching import OneShot, PersistentWatches, WatchEvent, WatchKind
from leaderq.zookeeper.wire import AddWatch, RemoveWatches, WatchMode

NODE, TREE = WatchMode.NODE, WatchMode.TREE


class Server:
    def __init__(self) -> None:
        self.sent: list[tuple[Any, str]] = []
        self.answers: list[Future[Any]] = []
        self.jobs: list[Any] = []
        self.watches = PersistentWatches(
            send=self._send,
            watch=self.jobs.append,
            local_path=lambda path: path.removeprefix("/chroot"),
        )

    def _send(self, request: Any, path: str) -> Future[Any]:
        self.sent.append((request, path))
        self.answers.append(Future())
        return self.answers[-1]

    def add(self, path: str, mode: int, heard: list[WatchEvent]) -> Any:
        return self.watches.add(path, f"/chroot{path}", mode, heard.append)[0]

    def work(self) -> None:
        while self.jobs:
            self.jobs.pop(0)()


def test_a_watch_is_sent_with_its_path_and_mode_and_hears_of_its_node():
    server, heard = Server(), []
    one = server.add("/a", NODE, heard)
    assert server.sent == [(AddWatch("/chroot/a", NODE), "/a")]
    assert (one.path, one.server_path, one.mode) == ("/a", "/chroot/a", NODE)
    for path in ("/chroot/a", "/chroot/a/b", "/chroot/ab", "/chroot"):
        server.watches.route(WatchKind.CHANGED.value, path)
    assert heard == []
    server.work()
    assert heard == [WatchEvent(WatchKind.CHANGED, "/a")]


def test_a_tree_hears_of_all_below_it_but_not_of_children_as_such():
    server, heard = Server(), []
    server.add("/a", TREE, heard)
    for path in ("/chroot/a", "/chroot/a/b", "/chroot/ab", "/chroot"):
        server.watches.route(WatchKind.CREATED.value, path)
        server.watches.route(WatchKind.CHILDREN.value, path)
    server.work()
    assert heard == [WatchEvent(WatchKind.CREATED, path) for path in ("/a", "/a/b")]


def test_only_a_plain_callable_can_listen():
    async def listen(event: object) -> None: ...

    with pytest.raises((TypeError, ConfigurationError)):
        Server().watches.add("/a", "/a", NODE, listen)


def test_the_server_is_told_to_forget_the_last_watch_of_a_kind_at_a_path():
    server, heard = Server(), []
    first, second = server.add("/a", NODE, heard), server.add("/a", NODE, heard)
    other, deeper = server.add("/a", TREE, heard), server.add("/b", NODE, heard)
    del server.sent[:]
    first.close()
    first.close()
    assert server.sent == []
    with second as entered:
        assert entered is second
    assert server.watches.all == (other, deeper)
    second.close()
    ((sent, path),) = server.sent
    assert (type(sent), sent.path, path) == (RemoveWatches, "/chroot/a", "/a")
    assert sent.mode == WatchMode.REMOVE[NODE]
    other.close()
    assert server.sent[-1][0].mode == WatchMode.REMOVE[TREE]
    assert server.watches.all == (deeper,)


def test_after_a_reconnection_each_watch_is_set_once_and_its_holders_read_again():
    server, first, second, other = Server(), [], [], []
    server.add("/a", NODE, first)
    server.add("/a", NODE, second)
    server.add("/a", TREE, other)
    del server.sent[:], server.answers[:]
    server.watches.restore()
    assert server.sent == [(AddWatch("/chroot/a", NODE), "/a"), (AddWatch("/chroot/a", TREE), "/a")]
    server.work()
    assert (first, second, other) == ([], [], [])
    server.answers[0].set_result(True)
    server.work()
    again = [WatchEvent(WatchKind.SESSION, "/a")]
    assert (first, second, other) == (again, again, [])
    server.answers[1].set_exception(ConnectionLost("again"))
    server.work()
    assert other == []


def test_a_watch_that_cannot_be_set_again_is_logged_and_its_holder_reads_again(caplog):
    server, heard = Server(), []
    server.add("/a", NODE, heard)
    server.watches.restore()
    server.answers[-1].set_exception(NoPermission("no"))
    server.work()
    assert heard == [WatchEvent(WatchKind.SESSION, "/a")]
    assert "watch not set again path=/a" in caplog.text
    caplog.clear()
    server.watches.restore()
    server.answers[-1].set_result(True)
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("said", "event"),
    [
        ({"type": "DELETED", "path": "/b"}, WatchEvent(WatchKind.DELETED, "/b")),
        ({"type": "CHILD", "path": "/b"}, WatchEvent(WatchKind.CHILDREN, "/b")),
        ({"type": "CREATED", "path": "/b"}, WatchEvent(WatchKind.CREATED, "/b")),
        ({"type": "CHANGED", "path": "/b"}, WatchEvent(WatchKind.CHANGED, "/b")),
        ({"type": "NONE", "path": None}, WatchEvent(WatchKind.SESSION, "/a")),
    ],
)
def test_a_one_shot_watch_tells_what_kazoo_says_and_of_the_session_at_its_own_path(said, event):
    heard: list[WatchEvent] = []
    OneShot(heard.append, "/a")(SimpleNamespace(**said))
    assert heard == [event]


def test_a_watch_that_is_added_while_the_last_one_is_removed_stands():
    sent: list[type] = []
    adders: list[threading.Thread] = []

    def send(request: Any, _path: str) -> Future[Any]:
        if isinstance(request, RemoveWatches):
            adders.append(threading.Thread(target=add))
            adders[-1].start()
            adders[-1].join(0.2)  # time enough to be sent first, were that possible
        sent.append(type(request))
        return Future()

    def add() -> None:
        watches.add("/a", "/a", WatchMode.NODE, heard.append)

    heard: list[WatchEvent] = []
    watches = PersistentWatches(send=send, watch=lambda job: job(), local_path=str)
    subscription, _ = watches.add("/a", "/a", WatchMode.NODE, heard.append)
    subscription.close()
    adders[0].join(60)
    assert sent == [AddWatch, RemoveWatches, AddWatch]


def test_a_watch_is_told_apart_by_what_it_is_and_not_by_what_it_says():
    class Rude:
        def __call__(self, event: WatchEvent) -> None: ...

        def __eq__(self, other: object) -> bool:
            raise OSError

        __hash__ = None

        def hear(self, event: WatchEvent) -> None: ...

    one, other = Rude(), Rude()
    watches = {OneShot(each, "/a") for each in (one, one, other, one.hear, one.hear, print)}
    assert len(watches) == 4
    assert OneShot(one, "/a") != OneShot(one, "/b")
