"""Persistent watches, without a server: in which order adding and removing them is sent."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any

from leaderq.zookeeper.watching import PersistentWatches, WatchEvent
from leaderq.zookeeper.wire import AddWatch, RemoveWatches, WatchMode


def test_a_watch_that_is_added_while_the_last_one_is_removed_stands() -> None:
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
