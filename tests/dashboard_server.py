"""The page of a small installation, served in this process."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from dashboard_values import NOW_MS, installation

from leaderq.admin.snapshot import PageSnapshot
from leaderq.base import clock
from leaderq.dashboard.access import PageAccess
from leaderq.dashboard.refresher import Refresher
from leaderq.dashboard.screens import ScreenOptions
from leaderq.errors import ConnectionLost, RequestRefused

TOKENS = {"alice": "a-token-of-alice-0"}


@dataclass
class Served:
    """A page that is served at ``url``; what was read and done is kept."""

    url: str = ""
    snapshot: PageSnapshot = field(default_factory=installation)
    fails: bool = False
    refuses: bool = False
    readings: int = 0
    done: list[tuple[str, str, str]] = field(default_factory=list)
    refresher: Refresher | None = None
    dashboard: Any = None

    def read(self, before: PageSnapshot, wanted: frozenset[str]) -> PageSnapshot:
        self.readings += 1
        if self.fails:
            raise ConnectionLost("no server answers")
        return replace(self.snapshot, number=before.number + 1)

    def carry_out(self, action: Any, by: str, why: str) -> str:
        if self.refuses:
            raise RequestRefused("nobody leads 'billing' now")
        self.done.append((action.sentence, by, why))
        return f"done for {by}"


@contextmanager
def served(
    *,
    actions: bool = False,
    every_s: float = 0.2,
    **access: Any,
) -> Iterator[Served]:
    """The page until the block is left; ``access``: as of :class:`PageAccess`."""
    from leaderq.dashboard.serving import Dashboard, PageServer

    page = Served()
    refresher = page.refresher = Refresher(page.read, every_s)
    allowed = PageAccess(**{"tokens": TOKENS, **access})
    options = ScreenOptions(actions=actions, payloads=True, every_s=every_s)
    dashboard = page.dashboard = Dashboard(refresher, page.carry_out, allowed, options)
    server, listener = PageServer(dashboard, refresher), socket.create_server(("127.0.0.1", 0))
    page.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    former, clock.now_ms = clock.now_ms, lambda: NOW_MS
    refresher.start()
    thread.start()
    try:
        yield page
    finally:
        server.should_exit = True
        thread.join(60)
        listener.close()
        clock.now_ms = former
