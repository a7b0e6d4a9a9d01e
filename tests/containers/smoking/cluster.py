"""The cluster as seen from the host: who leads (ZooKeeper), what is billed (the ledger), which
containers are healthy.

Every wait is bounded, and ends with :class:`Broken`, which says what did not come.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from typing import TypeVar

from leaderq import LeaderqError, Observer, Session
from leaderq.cli.demo.ad_billing.shared_totals import Totals
from leaderq.election.observer import View
from leaderq.events import Stage
from leaderq.testing.waiting import patience
from smoking.compose import Compose

T = TypeVar("T")
CAREER = "ad-billing"
CANDIDATES = 3
_LOOK_S = 0.05


class Broken(Exception):
    """Something that must hold did not."""


class Cluster:
    """One running demo cluster; ``session`` and ``ledger`` reach it through the published ports."""

    def __init__(
        self, compose: Compose, session: Session, ledger: Totals, zookeeper_ports: list[int]
    ) -> None:
        self.compose = compose
        self.ledger = ledger
        self._observer = Observer(session, CAREER)
        self._zookeeper_ports = zookeeper_ports

    def leader(self, *, after: int = 0, within_s: float = 60.0) -> View:
        """The view in which a term after number ``after`` executes."""

        def executes() -> View | None:
            view = self._observer.view()
            return (
                view
                if view.term > after and view.leader and view.stage == Stage.EXECUTION.value
                else None
            )

        return until(executes, f"a leader after term {after}", within_s)

    def all_stand(self, within_s: float = 90.0) -> View:
        """The view in which every candidate stands, and one leads."""

        def complete() -> View | None:
            view = self._observer.view()
            return (
                view
                if len(view.candidates) == CANDIDATES and view.leader in view.candidates
                else None
            )

        return until(complete, f"{CANDIDATES} candidates stand", within_s)

    def bills_on(self, more: int = 200, within_s: float = 60.0) -> None:
        """Return when so many more records are billed."""
        before = self.billed()
        until(lambda: self.billed() >= before + more, f"{more} more records are billed", within_s)

    def billed(self) -> int:
        """How many records are billed."""
        return self.ledger.so_far()[0]

    def ensembles_leader(self) -> str:
        """The ZooKeeper server that leads the ensemble."""
        for number, port in enumerate(self._zookeeper_ports, 1):
            with socket.create_connection(("127.0.0.1", port), timeout=5) as link:
                link.sendall(b"srvr")
                if b"Mode: leader" in b"".join(iter(lambda: link.recv(4096), b"")):
                    return f"zookeeper{number}"
        raise Broken("no ZooKeeper server says that it leads the ensemble")


def healthy(compose: Compose, within_s: float) -> None:
    """Return when every container that is to run is healthy, and none that is to end has failed."""

    def all_healthy() -> bool:
        states = [
            _state(each) for each in json.loads(compose.docker("inspect", *compose.containers()))
        ]
        failed = [name for name, state, _ in states if state == "exited"]
        if failed:
            raise Broken(f"{', '.join(failed)} ended; see docker logs {failed[0]}")
        return all(health == "healthy" or state == "done" for _, state, health in states)

    until(all_healthy, "all containers are healthy", within_s)


def _state(container: dict[str, dict[str, object]]) -> tuple[str, str, object]:
    state = container["State"]
    health = state.get("Health")
    status = (
        "done" if state["Status"] == "exited" and state["ExitCode"] == 0 else str(state["Status"])
    )
    return (
        str(container["Name"]).strip("/"),
        status,
        health["Status"] if isinstance(health, dict) else None,
    )


def until(fact: Callable[[], T], what: str, within_s: float) -> T:
    """The first true answer of ``fact``; an error of ZooKeeper or of the ledger is no answer.
    Raises :class:`Broken`.
    """
    end_s = time.monotonic() + within_s * patience()
    why = ""
    while True:
        try:
            if answer := fact():
                return answer
            why = ""
        except LeaderqError as exc:
            why = f" ({exc})"
        if time.monotonic() >= end_s:
            raise Broken(f"{what}: not within {within_s * patience():.0f} s{why}")
        time.sleep(_LOOK_S)
