"""What an operator may ask of a career: step down, transfer, pause, resume.

A wish is a value in the ``control`` znode and names the term it is meant for, so that one which comes late does nothing. The
leader watches that znode and winds up in order; nobody is ever deposed by an operator's wish. Each request waits until it is
fulfilled and otherwise says why not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from leaderq.election.layout import Layout
from leaderq.election.observer import Observer, View
from leaderq.election.records import Wishes, decode, encode
from leaderq.errors import BadVersion, NoNode, RequestRefused
from leaderq.events import Stage
from leaderq.zookeeper import AnyClient, Session, as_session


class Operator:
    """Makes requests of one career. ``client`` is a :class:`~leaderq.zookeeper.Session` or a started ``KazooClient``."""

    def __init__(self, client: AnyClient, career: str, *, root: str = "/leaderq") -> None:
        self._session: Session = as_session(client)
        self._career = career
        self._layout = Layout(root, career)
        self._observer = Observer(self._session, career, root=root)

    def step_down(self, *, timeout_s: float = 60.0) -> View:
        """End the present term in order; gives the view in which the next leader executes.

        Raises :class:`RequestRefused` when nobody leads, nobody else stands, or no successor executes within ``timeout_s``.
        """
        view = self._led()
        if len(view.candidates) < 2:
            raise RequestRefused(
                f"{view.leader!r} is the only candidate of {self._career!r}; start another before it steps down"
            )
        return self._succeed(view, None, timeout_s)

    def transfer(self, to: str, *, timeout_s: float = 60.0) -> View:
        """End the present term in order and have candidate ``to`` lead next; gives the view in which it executes.

        A candidate that already leads is left alone. Raises :class:`RequestRefused` as :meth:`step_down`, and when ``to`` does
        not stand.
        """
        view = self._led()
        if view.leader == to:
            return view
        if to not in view.candidates:
            standing = ", ".join(view.candidates[1:]) or "nobody"
            raise RequestRefused(f"{to!r} does not stand for {self._career!r}; waiting there: {standing}")
        return self._succeed(view, to, timeout_s)

    def pause(self) -> View:
        """Let the leader, present or future, begin no new unit of work until :meth:`resume`; leadership stays where it is."""
        return self._set_paused(True)

    def resume(self) -> View:
        """End a pause."""
        return self._set_paused(False)

    def raise_floor(self, number: int) -> None:
        """Number the next term at least ``number``: for an ensemble that was rebuilt and forgot the terms before."""
        self._change(lambda wishes: replace(wishes, floor=max(wishes.floor, number)))

    def wish_for(self, *, successor: str | None, term: int) -> None:
        """Ask that term number ``term`` ends, and that ``successor`` leads after it; returns without waiting."""
        self._change(lambda wishes: replace(wishes, step_down=term, successor=successor))

    def _led(self) -> View:
        # A moment without a leader lies between any two terms.
        view = self._observer.wait_until(lambda seen: seen.leader is not None, timeout_s=2.0)
        if view.leader is None:
            standing = f"{len(view.candidates)} candidates stand" if view.candidates else "no candidate stands"
            raise RequestRefused(f"nobody leads {self._career!r} now ({standing}), so there is no term to end")
        return view

    def _succeed(self, before: View, successor: str | None, timeout_s: float) -> View:
        self.wish_for(successor=successor, term=before.term)
        view = self._observer.wait_until(lambda seen: _inaugurated_after(before.term, seen), timeout_s=timeout_s)
        if view.term == before.term:
            raise RequestRefused(
                f"{before.leader!r} has not ended term {before.term} of {self._career!r} within {timeout_s:.0f} s "
                f"(stage: {view.stage or 'none'}); the request stands, and is followed when its unit of work is done"
            )
        if not _inaugurated_after(before.term, view):
            raise RequestRefused(
                f"term {before.term} of {self._career!r} has ended, but {view.leader or 'nobody'} is not inaugurated "
                f"within {timeout_s:.0f} s (stage: {view.stage or 'none'})"
            )
        if successor is not None and view.leader != successor:
            raise RequestRefused(
                f"{view.leader!r} leads {self._career!r} now, not {successor!r}, which left the line meanwhile"
            )
        return view

    def _set_paused(self, paused: bool) -> View:
        self._change(lambda wishes: replace(wishes, paused=paused))
        return self._observer.view()

    def _change(self, change: Callable[[Wishes], Wishes]) -> None:
        path = self._layout.control
        while True:
            try:
                data, stat = self._session.get(path)
                self._session.set(path, encode(change(decode(Wishes, data, path=path))), stat.version)
                return
            except BadVersion:
                continue  # another operator wrote first; change what they left
            except NoNode:
                self._session.ensure_path(path)


def _inaugurated_after(term: int, view: View) -> bool:
    return view.term > term and view.leader is not None and view.stage == Stage.EXECUTION.value
