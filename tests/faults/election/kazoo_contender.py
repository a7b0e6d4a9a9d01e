"""kazoo's own ``Election`` as a control: what the field's recipe does under the same fault."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

from kazoo.client import KazooClient


def started(address: str, *, timeout_s: float, **options: Any) -> KazooClient:
    """A plain client; only kazoo's pauses between attempts, which grow up to an hour, are cut."""
    again = {"max_tries": -1, "delay": 0.1, "max_delay": 1.0}
    client = KazooClient(address, timeout=timeout_s, connection_retry=again, **options)
    client.start(timeout=30)
    return client


def stop_within(client: KazooClient, limit_s: float) -> bool:
    """Stop ``client``; return whether ``limit_s`` was enough. kazoo itself may take 10 s."""

    def stop() -> None:
        with suppress(Exception):
            client.stop()
            client.close()

    thread = threading.Thread(target=stop, name="kazoo-stop", daemon=True)
    thread.start()
    thread.join(limit_s)
    return not thread.is_alive()


class _Sleep(threading.Event):
    """An event that tells when somebody waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = threading.Event()

    def wait(self, timeout: float | None = None) -> bool:
        self.begun.set()
        return super().wait(timeout)


class KazooContender:
    """Runs ``client.Election(path, id)`` on a thread; its leader works until ``let_go`` is set.

    ``waits`` is set when it has set its watch on the one in front, for the first time. ``leads`` is
    set when the leader's function begins; ``works`` is true while it runs.
    ``outcome`` is what ``run`` raised, or ``"returned"``; ``None`` while it runs.
    """

    def __init__(self, client: KazooClient, path: str, id: str) -> None:
        self.client = client
        self.path = path
        self.election = client.Election(path, id)
        self.lock.wake_event = _Sleep()
        self.waits = self.lock.wake_event.begun
        self.leads = threading.Event()
        self.works = False
        self.let_go = threading.Event()
        self.outcome: BaseException | str | None = None

    @property
    def lock(self):
        """The lock that the election stands on."""
        return self.election.lock

    def stand(self) -> KazooContender:
        """Begin ``Election.run``; may be called again when it is over."""
        self.outcome = None
        self.thread = threading.Thread(target=self._run, name="kazoo-election", daemon=True)
        self.thread.start()
        return self

    def _run(self) -> None:
        try:
            self.election.run(self._lead)
            self.outcome = "returned"
        except BaseException as exc:
            self.outcome = exc

    def _lead(self) -> None:
        self.works = True
        self.leads.set()
        self.let_go.wait(120)
        self.works = False
