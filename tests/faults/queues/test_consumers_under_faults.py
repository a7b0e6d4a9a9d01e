"""Consumers of one queue are killed, frozen past their session, or cut off, while items keep coming.

Every item is delivered; none is acknowledged twice; and none is given to a second consumer while the first may still acknowledge it:
whoever began an item before another did, and had not ended by then, never gets it acknowledged.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from leaderq.queues.wire.payload import encode
from leaderq.testing import FaultProxy, ZooKeeperServer, eventually
from leaderq.zookeeper import Create, Session, connect

FAULTS = int(os.environ["LEADERQ_TEST_FAULTS"]) * 10 // 3 if "LEADERQ_TEST_FAULTS" in os.environ else 9
NAMES = ("a", "b", "c")
SCRIPT = Path(__file__).parent / "consumer_process.py"
EXPIRED_S = 2.6


class Fleet:
    """Three consumers, each behind a proxy of its own."""

    def __init__(self, upstream: str, root: str, history: Path) -> None:
        self.proxies = {name: FaultProxy(upstream).start() for name in NAMES}
        self._root, self._history = root, history
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        for name in NAMES:
            self.start(name)

    def start(self, name: str) -> None:
        address = self.proxies[name].address + self._root
        self.processes[name] = subprocess.Popen([sys.executable, str(SCRIPT), name, address, str(self._history)])

    def harm(self, name: str, kind: str, dice: random.Random) -> None:
        """Do it, wait until the session must be over, and undo it."""
        process, proxy = self.processes[name], self.proxies[name]
        if kind == "kill":
            process.kill()
            process.wait()
            self.start(name)
        elif kind == "freeze":
            process.send_signal(signal.SIGSTOP)
            threading.Event().wait(EXPIRED_S * dice.uniform(0.3, 1.3))
            process.send_signal(signal.SIGCONT)
        else:
            proxy.black_hole()
            threading.Event().wait(EXPIRED_S * dice.uniform(0.3, 1.3))
            proxy.heal()

    def close(self) -> None:
        for process in self.processes.values():
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()
        for proxy in self.proxies.values():
            proxy.stop()


@pytest.fixture
def straight(zookeeper_server: ZooKeeperServer, znode_root: str) -> Iterator[Session]:
    with connect(zookeeper_server.address + znode_root) as session:
        session.ensure_path("/q")
        session.ensure_path("/done")
        yield session


@pytest.fixture
def fleet(zookeeper_server: ZooKeeperServer, znode_root: str, straight: Session, tmp_path: Path) -> Iterator[Fleet]:
    made = Fleet(zookeeper_server.address, znode_root, tmp_path / "history")
    yield made
    made.close()


def feed(session: Session, count: Callable[[], int], is_over: threading.Event) -> int:
    """Keep a few hundred items in the queue until told; gives how many there were in all."""
    fed = 0
    while not is_over.wait(0.05):
        if count() < 150:
            values = range(fed, fed + 100)
            session.multi([Create("/q/queue-", encode([b"%06d" % value]), sequential=True) for value in values])
            fed += 100
    return fed


def doubly_held(history: list[dict[str, Any]]) -> list[str]:
    """Values that were acknowledged by a consumer after another had begun them."""
    by_value: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in history:
        by_value[line["value"]].append(line)
    found = []
    for value, lines in by_value.items():
        begun: dict[int, float] = {}
        for line in sorted(lines, key=lambda one: one["at"]):
            if line["what"] == "begun":
                begun[line["pid"]] = line["at"]
            elif line["what"] == "done" and any(at > begun[line["pid"]] for pid, at in begun.items() if pid != line["pid"]):
                found.append(value)
    return found


@pytest.mark.timeout(90 + 8 * FAULTS)
def test_every_item_is_delivered_and_none_is_acknowledged_twice(fleet: Fleet, straight: Session, tmp_path: Path) -> None:
    dice = random.Random(int(os.environ.get("LEADERQ_TEST_SEED", "5")))
    is_over, fed = threading.Event(), []
    depth = lambda: straight.exists("/q").num_children  # noqa: E731
    feeder = threading.Thread(target=lambda: fed.append(feed(straight, depth, is_over)))
    feeder.start()
    try:
        eventually(lambda: len(straight.children("/done")) > 20, timeout_s=60)
        for number in range(FAULTS):
            fleet.harm(dice.choice(NAMES), ("kill", "freeze", "cut")[number % 3], dice)
    finally:
        is_over.set()
        feeder.join()
    eventually(lambda: depth() == 0, timeout_s=60)
    done = straight.children("/done")
    history = [json.loads(line) for line in (tmp_path / "history").read_text().splitlines()]
    counts = {what: sum(line["what"] == what for line in history) for what in ("begun", "done", "refused", "twice")}
    print(f"{fed[0]} items, {FAULTS} faults: {counts}")
    assert len(done) == fed[0]
    assert counts["twice"] == 0
    assert doubly_held(history) == []
    assert straight.children("/q-locks") == [] or eventually(lambda: straight.children("/q-locks") == [])
