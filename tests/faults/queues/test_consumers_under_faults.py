"""Consumers of one queue are killed, frozen past their session, or cut off, and members of the
ensemble are killed, while items keep coming.

Every item is delivered, and none waits long. None is acknowledged twice, and none is given to a
second consumer while the first may still acknowledge it: whoever began an item before another did,
and had not ended by then, never gets it acknowledged. Nobody gets an item that a healthy consumer
has.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from leaderq.queues import TEXT, DistributedQueue
from leaderq.testing import FaultProxy, eventually
from leaderq.testing.freezing import freeze
from leaderq.testing.waiting import patience
from leaderq.zookeeper import Session, connect

IS_LONG = "LEADERQ_TEST_FAULTS" in os.environ
FAULTS = int(os.environ["LEADERQ_TEST_FAULTS"]) * 10 // 3 if IS_LONG else 4
NAMES = ("a", "b", "c")
SCRIPT = Path(__file__).parent / "consumer_process.py"
EXPIRED_S = 2.6
LONGEST_WAIT_S = 8.0
"""Until an item is begun: what a consumer holds that was frozen or cut off comes back when its
session is over, or it is; an ensemble that has lost its leader elects another one meanwhile.
"""
AFTER_LOSS_S = 0.3
"""No claim stands once the end of its session is heard of (test_consumers.py has the proof). But a
worker that has looked before that may be kept from running for a moment, before it notes what it
begins.
"""
WHERE = pytest.mark.parametrize(
    ("servers", "mode"),
    [("zookeeper_server", "pull"), ("zookeeper_ensemble", "push"), ("zookeeper_ensemble", "pull")][
        : 3 if IS_LONG else 2
    ],
)

History = list[dict[str, Any]]


class Fleet:
    """Three consumers, each behind a proxy of its own, or of each server's own."""

    def __init__(self, servers: Any, root: str, mode: str, history: Path) -> None:
        self.members = list(getattr(servers, "members", []))
        upstream = [one.address for one in self.members] or [servers.address]
        self.proxies = {name: [FaultProxy(one).start() for one in upstream] for name in NAMES}
        self._arguments = root, str(history), mode
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.killed: set[int] = set()
        for name in NAMES:
            self.start(name)

    def start(self, name: str) -> None:
        root, history, mode = self._arguments
        address = ",".join(proxy.address for proxy in self.proxies[name]) + root
        command = [sys.executable, str(SCRIPT), name, address, history, mode]
        self.processes[name] = subprocess.Popen(command)

    def harm(self, kind: str, dice: random.Random) -> None:
        """Do it, wait until it has had its effect, and undo it."""
        name = dice.choice(NAMES)
        process, proxies = self.processes[name], self.proxies[name]
        if kind == "kill":
            process.kill()
            process.wait()
            self.killed.add(process.pid)
            self.start(name)
            time.sleep(EXPIRED_S * dice.uniform(0.3, 1.3))
        elif kind == "freeze":
            freeze(process.pid)
            time.sleep(EXPIRED_S * dice.uniform(0.3, 1.3))
            process.send_signal(signal.SIGCONT)
        elif kind == "cut":
            for proxy in proxies:
                proxy.black_hole()
            time.sleep(EXPIRED_S * dice.uniform(0.3, 1.3))
            for proxy in proxies:
                proxy.heal()
        else:
            member = dice.choice(self.members)
            member.kill()
            time.sleep(EXPIRED_S * dice.uniform(0.3, 1.3))
            member.start()

    def close(self) -> None:
        for process in self.processes.values():
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()
        for proxies in self.proxies.values():
            for proxy in proxies:
                proxy.stop()


class Feeder:
    """Puts five items at a time, fifty a second, until told; knows when each was put."""

    def __init__(self, queue: DistributedQueue[str]) -> None:
        self.put_at: dict[str, float] = {}
        self._queue = queue
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over.wait(0.1):
            values = [f"{number:06d}" for number in range(len(self.put_at), len(self.put_at) + 5)]
            self._queue.put_many(values)
            self.put_at.update(dict.fromkeys(values, time.monotonic()))

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()


@pytest.fixture
def straight(request: pytest.FixtureRequest, servers: str, znode_root: str) -> Iterator[Session]:
    with connect(request.getfixturevalue(servers).address + znode_root, timeout_s=6.0) as session:
        session.ensure_path("/done")
        yield session


@pytest.fixture
def fleet(
    request: pytest.FixtureRequest,
    servers: str,
    mode: str,
    znode_root: str,
    straight: Session,
    tmp_path: Path,
) -> Iterator[Fleet]:
    made = Fleet(request.getfixturevalue(servers), znode_root, mode, tmp_path / "history")
    yield made
    made.close()


def read(path: Path) -> History:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def by_value(history: History) -> dict[str, History]:
    found: dict[str, History] = defaultdict(list)
    for line in sorted(history, key=lambda one: float(one["at"])):
        if line["value"]:
            found[line["value"]].append(line)
    return found


def doubly_held(history: History) -> list[str]:
    """Values that were acknowledged by a consumer after another had begun them."""
    found = []
    for value, lines in by_value(history).items():
        begun: dict[int, float] = {}
        for line in lines:
            if line["what"] == "begun":
                begun[line["pid"]] = line["at"]
            elif line["what"] == "done" and any(
                at > begun[line["pid"]] for pid, at in begun.items() if pid != line["pid"]
            ):
                found.append(value)
    return found


def taken_from_the_healthy(history: History, killed: set[int]) -> list[str]:
    """Values begun again although the one who had begun them was not killed and kept its session. A
    worker may begin one more in the moment after the session's end, which it cannot acknowledge.
    """
    lost: dict[int, float] = {}
    for line in history:
        if line["what"] == "lost":
            lost[line["pid"]] = max(line["at"], lost.get(line["pid"], 0.0))
    found = []
    for value, lines in by_value(history).items():
        begun = [line for line in lines if line["what"] == "begun"]
        if any(
            line["pid"] not in killed
            and lost.get(line["pid"], 0.0) + AFTER_LOSS_S * patience() < line["at"]
            for line in begun[:-1]
        ):
            found.append(value)
    return found


def waits(history: History, put_at: dict[str, float]) -> list[float]:
    """Seconds from the put of each to its first beginning, sorted."""
    begun: dict[str, float] = {}
    for line in history:
        if line["what"] == "begun":
            begun[line["value"]] = min(line["at"], begun.get(line["value"], line["at"]))
    return sorted(begun[value] - at for value, at in put_at.items())


@WHERE
@pytest.mark.timeout(120 + 12 * FAULTS)
def test_every_item_is_delivered_in_time_and_none_is_acknowledged_twice(
    fleet: Fleet, straight: Session, mode: str, tmp_path: Path
) -> None:
    dice = random.Random(int(os.environ.get("LEADERQ_TEST_SEED", "5")))
    kinds = ("kill", "freeze", "cut", "member") if fleet.members else ("kill", "freeze", "cut")
    path = tmp_path / "history"
    with DistributedQueue(straight, "/q", serializer=TEXT, lock_path="/q-locks") as queue:
        feeder = Feeder(queue)
        try:
            eventually(lambda: len({line["who"] for line in read(path)}) == 3, timeout_s=60)
            for number in range(FAULTS):
                fleet.harm(kinds[number % len(kinds)], dice)
        finally:
            feeder.stop()
        eventually(lambda: queue.depth() == 0 and straight.children("/q-locks") == [], timeout_s=60)
        assert queue.dead_letters.count() == 0
    history = read(path)
    counts = Counter(line["what"] for line in history)
    waited = waits(history, feeder.put_at)
    shares = Counter(line["who"] for line in history if line["what"] == "done")
    print(
        f"{len(waited)} items, {FAULTS} faults: {dict(counts)}, done by {dict(shares)}; put to"
        f" begin: p50 {waited[len(waited) // 2]:.3f} s, p99 {waited[len(waited) * 99 // 100]:.2f}"
        f" s, longest {waited[-1]:.2f} s"
    )
    if mode == "pull":
        assert sorted(straight.children("/done")) == sorted(feeder.put_at)
        assert counts["twice"] == 0
        assert doubly_held(history) == []
    else:
        assert {line["value"] for line in history if line["what"] == "done"} == set(feeder.put_at)
    assert taken_from_the_healthy(history, fleet.killed) == []
    assert waited[-1] < LONGEST_WAIT_S * patience()
    assert min(shares[name] for name in NAMES) > len(waited) / 10
