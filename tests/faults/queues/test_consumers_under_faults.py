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
session is over, or it is; an ensemble that has lost its leader elects another one meanwhile. To be
added: how long the servers themselves answered nobody, which is what the slowest put took.
"""
MOST_WAITING = 30
ENOUGH = 20
"""Items that each consumer begins when all is healed: everybody takes part again."""
TOLD_S = 20.0
"""Until a consumer that has lost its session hears of it: when a server answers again."""
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
        self.harms: History = []
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
        self._note(f"{kind} begins", name, process.pid)
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
        self._note(f"{kind} ends", name, process.pid)

    def _note(self, what: str, name: str, pid: int) -> None:
        self.harms.append({"at": time.monotonic(), "what": what, "who": name, "pid": pid})

    def close(self) -> None:
        for process in self.processes.values():
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()
        for proxies in self.proxies.values():
            for proxy in proxies:
                proxy.stop()


class Feeder:
    """Puts five items at a time, fifty a second, until told; knows when each was put, and how long
    the slowest put took. While :data:`MOST_WAITING` are there it puts none: how long an item waits
    is to tell of the faults, not of a machine too slow for fifty a second.
    """

    def __init__(self, queue: DistributedQueue[str]) -> None:
        self.put_at: dict[str, float] = {}
        self.slowest_s = 0.0
        self._queue = queue
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over.wait(0.1):
            if self._queue.depth() > MOST_WAITING:
                continue
            values = [f"{number:06d}" for number in range(len(self.put_at), len(self.put_at) + 5)]
            began_s = time.monotonic()
            self._queue.put_many(values)
            self.put_at.update(dict.fromkeys(values, time.monotonic()))
            self.slowest_s = max(self.slowest_s, time.monotonic() - began_s)

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
    """Values that were acknowledged by a consumer although another had claimed and begun them since
    it had begun them itself.
    """
    found = []
    for value, lines in by_value(history).items():
        begun: History = []
        for line in lines:
            if line["what"] == "begun":
                begun.append(line)
            elif line["what"] == "done":
                own = max(one["at"] for one in begun if one["pid"] == line["pid"])
                if any(one["claimed"] > own for one in begun):
                    found.append(value)
    return found


def ends(history: History) -> dict[int, float]:
    """By session: when its owner heard that it was over."""
    return {line["session"]: line["at"] for line in history if line["what"] == "lost"}


def taken_from_the_healthy(history: History, killed: set[int]) -> list[str]:
    """Values begun by two of whom none was killed, or lost the session by which it held them; or
    claimed when somebody had begun them of whom that is true.

    The order in which they begin says little: who was frozen may, at once afterwards, begin what it
    had claimed before, and another has begun meanwhile.
    """
    over = ends(history)
    found = []
    for value, lines in by_value(history).items():
        begun = [line for line in lines if line["what"] == "begun"]
        healthy = [
            line for line in begun if line["pid"] not in killed and line["session"] not in over
        ]
        if len(healthy) > 1 or any(
            other["claimed"] > line["at"] for line in healthy for other in begun
        ):
            found.append(value)
    return found


def begun_without_a_claim(history: History) -> list[str]:
    """Values that were begun although nobody had looked whether they may be; or when the end of the
    session had been heard of; or so long after the claim that it may have ended unheard.
    """
    over = ends(history)
    return [
        line["value"]
        for line in history
        if line["what"] == "begun"
        and (
            line["looked"] is None
            or line["looked"] > min(line["sure_until"], over.get(line["session"], float("inf")))
        )
    ]


def story(history: History, harms: History, values: list[str]) -> str:
    """All that is known of these values, of the sessions of those who had begun them, and of the
    faults, a line each.
    """
    pids = {line["pid"] for line in history if line["value"] in values}
    told = [
        line
        for line in history
        if line["value"] in values or (line["what"] == "lost" and line["pid"] in pids)
    ]
    return "\n".join(map(str, ["", *sorted([*told, *harms], key=lambda one: float(one["at"]))]))


def least_begun(history: History, since: float) -> int:
    """How many items the least busy consumer has begun since then."""
    begun = Counter(
        line["who"] for line in history if line["what"] == "begun" and line["at"] > since
    )
    return min(begun[name] for name in NAMES)


def waits(history: History, put_at: dict[str, float], since: float) -> list[float]:
    """Seconds from the put of each to its first beginning, sorted; none before ``since`` count."""
    begun: dict[str, float] = {}
    for line in history:
        if line["what"] == "begun":
            begun[line["value"]] = min(line["at"], begun.get(line["value"], line["at"]))
    return sorted(max(0.0, begun[value] - max(at, since)) for value, at in put_at.items())


def begun(pid: int, at: float, *, claimed: float, looked: float | None = None) -> dict[str, Any]:
    """By the only session of this process."""
    looked = at if looked is None else looked
    known = {"claimed": claimed, "sure_until": claimed + 2.0, "looked": looked, "session": pid}
    return {"value": "x", "what": "begun", "pid": pid, "at": at, **known}


def done(pid: int, at: float) -> dict[str, Any]:
    return {"value": "x", "what": "done", "pid": pid, "at": at}


def lost(pid: int, at: float) -> dict[str, Any]:
    return {"value": "", "what": "lost", "pid": pid, "at": at, "session": pid}


"""2 was frozen with a claim; at 5.0 it goes on, and begins what 1 has meanwhile."""


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
            stood_at = time.monotonic()  # processes may take long to start
            for number in range(FAULTS):
                fleet.harm(kinds[number % len(kinds)], dice)
            healed_at = time.monotonic()
            eventually(lambda: least_begun(read(path), healed_at) >= ENOUGH, timeout_s=60)
        finally:
            feeder.stop()
        eventually(lambda: queue.depth() == 0 and straight.children("/q-locks") == [], timeout_s=60)
        assert queue.dead_letters.count() == 0

    late = begun_without_a_claim(read(path))
    assert late == [], story(read(path), fleet.harms, late)

    def nothing_was_taken_from_the_healthy() -> bool:
        """Whose items went to others at the very end may hear later that its session is over."""
        taken = taken_from_the_healthy(read(path), fleet.killed)
        assert taken == [], story(read(path), fleet.harms, taken)
        return True

    eventually(nothing_was_taken_from_the_healthy, timeout_s=TOLD_S)
    history = read(path)
    counts = Counter(line["what"] for line in history)
    waited = waits(history, feeder.put_at, stood_at)
    shares = Counter(line["who"] for line in history if line["what"] == "done")
    print(
        f"{len(waited)} items, {FAULTS} faults: {dict(counts)}, done by {dict(shares)}; put to"
        f" begin: p50 {waited[len(waited) // 2]:.3f} s, p99 {waited[len(waited) * 99 // 100]:.2f}"
        f" s, longest {waited[-1]:.2f} s; slowest put {feeder.slowest_s:.2f} s"
    )
    if mode == "pull":
        assert sorted(straight.children("/done")) == sorted(feeder.put_at)
        assert counts["twice"] == 0
        assert doubly_held(history) == []
    else:
        assert {line["value"] for line in history if line["what"] == "done"} == set(feeder.put_at)
    assert waited[-1] < LONGEST_WAIT_S * patience() + feeder.slowest_s
