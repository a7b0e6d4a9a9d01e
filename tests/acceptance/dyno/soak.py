"""Dyno queues under kills and freezes: ``make dyno-soak``. Ends with 1 if a promise was broken.

Eight processes consume what one pushes. Those with long leases are killed and begun again, those
with short ones are frozen for longer than their leases; one is slow, one hangs on what it has.
Every receipt is written down: when its claim was sent, until when it holds, and when it was
settled. From these histories follows whether any message was lost, acknowledged twice, or held by
two at once; how long what a killed process had took to come again; and whether anybody starved.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from leaderq.dyno import Delivery, DynoQueue, Message
from leaderq.errors import LeaderqError
from leaderq.queues import RetryPolicy
from leaderq.testing import ZooKeeperEnsemble, ZooKeeperServer
from leaderq.testing.freezing import freeze
from leaderq.zookeeper import connect

SESSION_S, SHORT_S, LONG_S = 4.0, 2.0, 60.0
SHARDS = ("a", "b", "c")
SLOW, HANGING = 0, 1
PAUSES_S = {SLOW: 0.1, HANGING: 2 * SHORT_S, 2: 0.1, 4: 0.1, 6: 0.1}
LONG_RUN = 20_000
PATIENCE = float(os.environ.get("LEADERQ_TEST_PATIENCE", "1"))
CLOCK_MS = 20
"""What two readings of one clock may differ by, across a system call."""


def opened(address: str) -> DynoQueue:
    session = connect(f"{address}/soak", timeout_s=SESSION_S)
    return DynoQueue(session, "/q", shards=SHARDS, retry=RetryPolicy(attempts=None))


def is_killable(number: int) -> bool:
    return number % 2 == 0 and number != SLOW


def consume(address: str, log: Path, number: int) -> None:
    """What one consumer does, for ever."""
    queue, dice = opened(address), random.Random(os.getpid())
    lease_s = LONG_S if is_killable(number) else SHORT_S
    most = {SLOW: 2, HANGING: 5}.get(number, 50)
    with log.open("a", buffering=1) as file:

        def write(what: str, one: Delivery) -> None:
            key = f"{one.shard}/{one.name}"
            entry = [
                what,
                time.time() * 1000,
                key,
                one.version,
                one.until_ms,
                lease_s,
                number,
                os.getpid(),
                one.payload.decode(),
            ]
            file.write(json.dumps(entry) + "\n")

        while True:
            try:
                found = queue.pop(most, 1.0, least=1, lease_s=lease_s)
                for one in found:
                    write("got", one)
                time.sleep(PAUSES_S.get(number, 0.02))
                if number != HANGING:
                    settle(queue, found, dice, write)
            except LeaderqError as exc:
                print(f"consumer {number}: {type(exc).__name__}: {exc}"[:200], file=sys.stderr)


def settle(
    queue: DynoQueue,
    found: list[Delivery],
    dice: random.Random,
    write: Callable[[str, Delivery], None],
) -> None:
    acks = []
    for one in found:
        draw = dice.random()
        write("settling", one)
        if draw < 0.01:
            one.nack("no", delay_s=0.1)
        elif draw < 0.02:
            one.release()
        elif draw < 0.03:
            one.postpone(0.2)
        else:
            acks.append(one)
            write("acking", one)
    for one, error in zip(acks, queue.ack(acks), strict=True):
        if error is None:
            write("acked", one)


@dataclass
class Soak:
    """One run, as the process that pushes, kills and freezes sees it."""

    address: str
    folder: Path
    consumers: int
    messages: int
    waiting: int
    dice: random.Random
    running: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    frozen: dict[int, float] = field(default_factory=dict)
    killed: dict[int, float] = field(default_factory=dict)
    faults: Counter[str] = field(default_factory=Counter)
    stalled_s: float = 0.0
    """The longest that one request of ours has taken: what machine and servers owe to nobody
    here.
    """

    def run(self) -> bool:
        queue, began_s = opened(self.address), time.time()
        try:
            for number in range(self.consumers):
                self.begin(number)
            self.push_all(queue)
            self.thaw(everything=True)
            is_empty = self.drained(queue, 120)
        finally:
            for process in self.running.values():
                process.kill()
                process.wait()
        took_s = time.time() - began_s
        print(
            f"pushed={self.messages} in {took_s:.0f} s faults={dict(self.faults)}"
            f" left={queue.shard_sizes()}"
        )
        left_over = queue.find_stale()
        session = queue._session
        queue.close()
        session.close()
        kept = {"ends": is_empty, "leaves nothing": not left_over, **judged(self)}
        for promise in (promise for promise, is_kept in kept.items() if not is_kept):
            print(f"BROKEN: {promise}")
        return all(kept.values())

    def begin(self, number: int) -> None:
        arguments = [
            sys.executable,
            __file__,
            "--consumer",
            str(number),
            "--address",
            self.address,
            "--folder",
            str(self.folder),
        ]
        self.running[number] = subprocess.Popen(arguments)

    def push_all(self, queue: DynoQueue) -> None:
        pushed = 0
        while pushed < self.messages:
            some = min(100, self.messages - pushed)
            queue.push(
                Message(
                    payload=b"%d" % (pushed + at),
                    priority=self.dice.choice((0, 0, 5, 9)),
                    timeout_s=self.dice.choice([0, 0, 0, 0.5]),
                )
                for at in range(some)
            )
            pushed += some
            self.disturb()
            while self.size(queue) > self.waiting:
                time.sleep(0.1)
                self.disturb()

    def size(self, queue: DynoQueue) -> int:
        began_s = time.time()
        size = queue.size()
        self.stalled_s = max(self.stalled_s, time.time() - began_s)
        return size

    def disturb(self) -> None:
        self.thaw()
        if self.dice.random() >= 0.2:
            return
        number = self.dice.randrange(2, self.consumers)
        if is_killable(number):
            process = self.running[number]
            process.kill()
            process.wait()
            self.killed[process.pid] = time.time() * 1000
            self.faults["kills"] += 1
            self.begin(number)
        elif number not in self.frozen:
            freeze(self.running[number].pid)
            self.frozen[number] = time.time() + self.dice.choice([1.0, SHORT_S + 1, SESSION_S + 3])
            self.faults["freezes"] += 1

    def thaw(self, *, everything: bool = False) -> None:
        for number, until in list(self.frozen.items()):
            if everything or time.time() > until:
                self.running[number].send_signal(signal.SIGCONT)
                del self.frozen[number]

    def drained(self, queue: DynoQueue, patience_s: float) -> bool:
        end = time.time() + patience_s
        while any(sizes["messages"] for sizes in queue.shard_sizes().values()):
            if time.time() > end:
                return False
            time.sleep(0.2)
        return True


def judged(soak: Soak) -> dict[str, bool]:
    """Whether each promise was kept; prints what was seen."""
    events = []
    for path in soak.folder.glob("*.log"):
        for line in path.read_text().splitlines():
            try:
                events.append(json.loads(line))
            except ValueError:  # its process was killed as it wrote
                continue
    begun = {event[8] for event in events if event[0] == "acking"}
    lost = soak.messages - len(begun)
    acked = Counter(event[8] for event in events if event[0] == "acked")
    twice = sum(count > 1 for count in acked.values())
    got = [event for event in events if event[0] == "got"]
    receipts = Counter((event[2], event[3]) for event in got)
    same = sum(count > 1 for count in receipts.values())
    settled = {
        (event[2], event[3], event[7]): event[1] for event in events if event[0] == "settling"
    }
    held, again_s = 0, []
    by_message = defaultdict(list)
    for event in got:
        by_message[event[2]].append(event)
    for deliveries in by_message.values():
        deliveries.sort(key=lambda event: event[3])
        for former, later in pairwise(deliveries):
            sent_ms = later[4] - 1000 * later[5]
            settled_ms = settled.get((former[2], former[3], former[7]), float("inf"))
            killed_ms = soak.killed.get(former[7], float("inf"))
            held += sent_ms + CLOCK_MS < min(former[4], settled_ms, killed_ms)
            # else one that was killed before it could write had it
            is_next = later[3] == former[3] + 1
            is_best = "/00-" in former[2]  # others wait by right for as long as there is better
            if is_next and is_best and former[1] < killed_ms < min(former[4], settled_ms):
                again_s.append((sent_ms - killed_ms) / 1000)
    shares = Counter(event[6] for event in got)
    again_s.sort()
    longest_s = max(again_s, default=0.0)
    # Of those that are frozen and killed on a short run nothing can be expected.
    least = min((shares.get(number, 0) for number in range(2, soak.consumers)), default=0)
    print(f"lost={lost} acked twice={twice} receipts given twice={same} held by two={held}")
    middle_s = again_s[len(again_s) // 2] if again_s else 0.0
    print(
        f"came again after a kill: {len(again_s)}, half in {middle_s:.1f} s, all in"
        f" {longest_s:.1f} s;",
        end=" ",
    )
    print(f"one look at the sizes took {soak.stalled_s:.2f} s at most")
    print(f"deliveries by consumer {dict(sorted(shares.items()))}")
    return {
        "no message is lost": lost == 0,
        "none is acknowledged twice": twice == 0,
        "a receipt is given once": same == 0,
        "none is held by two": held == 0,
        "what a killed one held comes again": (
            longest_s <= (SESSION_S + 1) * PATIENCE + soak.stalled_s
        ),
        "nobody starves": soak.messages < LONG_RUN or least >= soak.messages / soak.consumers / 20,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--servers", type=int, default=1, choices=(1, 3))
    parser.add_argument("--messages", type=int, default=50_000)
    parser.add_argument("--waiting", type=int, default=200, help="push no more while so many wait")
    parser.add_argument("--consumers", type=int, default=8)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--consumer", type=int)
    parser.add_argument("--address")
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    if options.consumer is not None:
        consume(options.address, options.folder / f"{options.consumer}.log", options.consumer)
    servers: AbstractContextManager[Any] = (
        ZooKeeperServer() if options.servers == 1 else ZooKeeperEnsemble(options.servers)
    )
    print(f"servers={options.servers} messages={options.messages} seed={options.seed}", flush=True)
    with servers as zookeeper, tempfile.TemporaryDirectory() as folder:
        dice = random.Random(options.seed)
        soak = Soak(
            zookeeper.address,
            Path(folder),
            options.consumers,
            options.messages,
            options.waiting,
            dice,
        )
        is_kept = soak.run()
    if is_kept:
        print("every promise was kept")
    return 0 if is_kept else 1


if __name__ == "__main__":
    sys.exit(main())
