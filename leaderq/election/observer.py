"""Who leads, since when, in which stage, and who waits: what anybody may see without standing for election.

A view is put together from the ``term`` record, the line and the operator's wishes, read one after another: it may be a moment
old, and is for people and tools. Nothing may be written on the strength of it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from leaderq.clock import now_s
from leaderq.election.layout import Layout, in_line
from leaderq.election.records import TermRecord, Wishes, decode
from leaderq.errors import NoNode
from leaderq.zookeeper import AnyClient, Session, WatchEvent, as_session


@dataclass(frozen=True, slots=True)
class View:
    """A career as it stood a moment ago.

    ``leader``, ``host``, ``pid`` (the worker's) and ``stage`` are ``None`` while nobody leads; ``term`` is the newest term's
    number, 0 before the first; ``began`` and ``ended`` are seconds since the epoch; ``reason`` is why the newest term ended;
    ``candidates`` are ids in the order of their turns, the leader's first.
    """

    career: str
    leader: str | None
    host: str | None
    pid: int | None
    term: int
    stage: str | None
    began: float | None
    ended: float | None
    reason: str | None
    paused: bool
    candidates: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {**asdict(self), "candidates": list(self.candidates)}


def view_of(career: str, record: TermRecord, wishes: Wishes, standing: list[tuple[str, str]]) -> View:
    """The view that these readings give; ``standing`` holds (znode name, candidate id) in line order (pure)."""
    leads = record.ended is None and any(name == record.id for name, _ in standing)
    return View(
        career=career,
        leader=record.candidate if leads else None,
        host=record.host if leads else None,
        pid=record.pid if leads else None,
        term=record.number,
        stage=record.stage if leads else None,
        began=record.began,
        ended=record.ended,
        reason=record.reason,
        paused=wishes.paused,
        candidates=tuple(candidate for _, candidate in standing),
    )


class Observer:
    """Looks at one career. ``client`` is a :class:`~leaderq.zookeeper.Session` or a started ``KazooClient``."""

    def __init__(self, client: AnyClient, career: str, *, root: str = "/leaderq") -> None:
        self._session: Session = as_session(client)
        self._career = career
        self._layout = Layout(root, career)

    def view(self) -> View:
        """The career as it stands; one that nobody ever stood for has term 0 and no candidates."""
        record = decode(TermRecord, self._data(self._layout.term), path=self._layout.term)
        wishes = decode(Wishes, self._data(self._layout.control), path=self._layout.control)
        return view_of(self._career, record, wishes, self._standing())

    def wait_until(self, fact: Callable[[View], bool], *, timeout_s: float) -> View:
        """The first view for which ``fact`` holds, or the last one seen when ``timeout_s`` seconds are over.

        Woken by ZooKeeper whenever something below the career changes, and looks once a second besides.
        """
        stirred = threading.Event()
        end_s = now_s() + timeout_s
        with self.watching(lambda _event: stirred.set()):
            while True:
                stirred.clear()
                view = self.view()
                left_s = end_s - now_s()
                if fact(view) or left_s <= 0:
                    return view
                stirred.wait(min(1.0, left_s))

    def watching(self, callback: Callable[[WatchEvent], None]) -> Any:
        """Call ``callback``, on a ZooKeeper thread, whenever something below the career changes, until the ``with`` block ends."""
        self._session.ensure_path(self._layout.base)
        return self._session.watch_tree(self._layout.base, callback)

    @staticmethod
    def careers(client: AnyClient, *, root: str = "/leaderq") -> list[str]:
        """The names of all careers ever stood for below ``root``, sorted."""
        try:
            return sorted(as_session(client).children(root))
        except NoNode:
            return []

    def _standing(self) -> list[tuple[str, str]]:
        try:
            names = in_line(self._session.children(self._layout.candidates))
        except NoNode:
            return []
        found = []
        for name in names:
            try:
                data, _ = self._session.get(self._layout.candidate(name))
            except NoNode:
                continue  # left between the two readings
            found.append((name, data.decode(errors="replace")))
        return found

    def _data(self, path: str) -> bytes:
        try:
            return self._session.get(path)[0]
        except NoNode:
            return b""
