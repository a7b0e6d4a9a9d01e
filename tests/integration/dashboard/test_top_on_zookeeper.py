"""``leaderq top`` on a real ZooKeeper: what is done by keyboard, and what the history keeps."""

from __future__ import annotations

import asyncio
import io
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

pytest.importorskip("textual", reason="pip install 'leaderq[top]'")

from textual.widgets import Static

from leaderq.admin.actions import Action, carry_out
from leaderq.admin.snapshot import read_again, reading
from leaderq.cli import main
from leaderq.cli.top_screen import TopApp
from leaderq.election import Observer
from leaderq.testing import eventually
from leaderq.zookeeper import Session

ROOT = "/leaderq"


@pytest.fixture
def candidates(opened: Callable[..., Session]) -> Iterator[None]:
    """Two candidates of *billing*: one leads, one waits."""
    stop, threads = threading.Event(), []

    def stand(id: str) -> None:
        for term in session_of[id].terms("billing", id=id, cool_off_s=0.1):
            while term.wait(0.02) and not stop.is_set():
                pass
            if stop.is_set():
                return

    session_of = {id: opened() for id in ("a", "b")}
    for id, session in session_of.items():
        threads.append(threading.Thread(target=stand, args=(id,)))
        threads[-1].start()
        eventually(lambda id=id, session=session: id in view(session).candidates)
    yield
    stop.set()
    for one in threads:
        one.join(60)


def view(session: Session) -> Any:
    return Observer(session, "billing", root=ROOT).view()


def test_what_is_done_by_keyboard_is_done_and_kept_with_name_and_reason(
    session: Session, candidates: None
) -> None:
    def act(action: Action, why: str) -> str:
        return carry_out(session, ROOT, action, "anna@desk", why)

    async def run() -> str:
        read = partial(read_again, reading(session, ROOT, ("/",)))
        app = TopApp(read, act, every_s=3600)
        async with app.run_test(size=(60, 24)) as pilot:

            async def settled() -> None:
                await app.workers.wait_for_complete()
                await pilot.pause()
                await app.workers.wait_for_complete()
                await pilot.pause()

            await settled()
            await pilot.press("p", *"closed", "enter")
            await settled()
            assert view(session).paused
            await pilot.press("r", *"open", "enter")
            await settled()
            assert not view(session).paused
            await pilot.press("d", *"deploy", "enter")
            await settled()
            assert view(session).leader == "b"
            eventually(lambda: view(session).candidates == ("b", "a"))
            app.read_again()
            await settled()
            await pilot.press("t", "enter", *"back", "enter")
            await settled()
            assert view(session).leader == "a"
            return str(app.query_one("#events", Static).render())

    told = asyncio.run(run())
    asked = [(one["by"], one["what"], one["why"]) for one in view(session).asked]
    assert [(by, why) for by, _, why in asked] == [
        ("anna@desk", why) for why in ("back", "deploy", "open", "closed")
    ]
    assert [what.split()[0] for _, what, _ in asked] == ["transfer", "step-down", "resume", "pause"]
    assert "won term 3" in told


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_command_reads_careers_and_the_queues_below_the_root(
    address: str, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in ("/jobs-meta", "/jobs", "/below/mail-dead", "/leaderq/billing/candidates"):
        session.ensure_path(path)
    read: list[Any] = []
    monkeypatch.setattr(TopApp, "run", lambda app: read.append(app._read(app.snapshot)))
    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr(sys, "stdout", Terminal())
    assert main(["top", "--zookeeper", address]) == 0
    assert main(["top", "--zookeeper", address, "--queue", "/below/"]) == 0
    assert [[one.path for one in each.queues] for each in read] == [["/jobs"], ["/below/mail"]]
    assert [[one.career for one in each.careers] for each in read] == [["billing"]] * 2
