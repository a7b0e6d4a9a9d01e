"""What a message of a Dyno queue costs when few and when many wait: ``make dyno-soak``.

One server of 512 MB. At each depth it is measured how long one message takes, alone and among a
hundred, from its push to its acknowledgement, in turn with a queue in which few wait; how long a
consumer takes that comes then; and what the server has in memory. Ends with 1 if the last depth
costs half as much again as few do, or the server is dead.
"""

from __future__ import annotations

import argparse
import re
import resource
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from leaderq.dyno import DynoQueue, Message
from leaderq.testing import ZooKeeperServer
from leaderq.testing.java import find_java
from leaderq.zookeeper import Session, connect

DEPTHS = (10_000, 50_000, 200_000)
SHALLOW = 1_000
HEAP_MB = 512
ROUNDS = 30
CONSUMERS = 8
BATCH = 100
MOST_DEAR = 1.5


def live_mb(server: ZooKeeperServer) -> float:
    """What is left of the server's heap after a collection."""
    jcmd = find_java().program.with_name("jcmd")
    if not jcmd.exists():
        return float("nan")
    for what in ("GC.run", "GC.heap_info"):
        told = subprocess.run(
            [jcmd, str(server.pid), what], capture_output=True, check=True, timeout=60, text=True
        )
    return (
        sum(int(used) for used in re.findall(r"(?:generation|heap).*?used (\d+)K", told.stdout))
        / 1024
    )


def messages(count: int) -> list[Message]:
    return [Message(payload=b"x" * 100, priority=5) for _ in range(count)]


def cycle(queue: DynoQueue, count: int) -> float:
    """Milliseconds that each of so many messages takes: pushed, popped, and acknowledged."""
    began = time.perf_counter()
    queue.push(messages(count))
    found = queue.pop(count, 60)
    assert len(found) == count
    assert not any(queue.ack(found))
    return 1000 * (time.perf_counter() - began) / count


def side_by_side(one: DynoQueue, other: DynoQueue, count: int, rounds: int) -> tuple[float, float]:
    """The medians of :func:`cycle` of two queues, taken in turn, for the machine has other work."""
    pairs = [(cycle(one, count), cycle(other, count)) for _ in range(rounds)]
    return statistics.median(pair[0] for pair in pairs), statistics.median(
        pair[1] for pair in pairs
    )


def first_pop(session: Session) -> float:
    """Seconds that a consumer takes which has just come."""
    began = time.perf_counter()
    with DynoQueue(session, "/deep") as queue:
        (one,) = queue.pop(1, 120)
        took_s = time.perf_counter() - began
        one.release()
    return took_s


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--depths", type=int, nargs="+", default=DEPTHS)
    depths = parser.parse_args().depths
    print(
        f"one server, heap {HEAP_MB} MB; in brackets: beside it a queue in which {SHALLOW:,} wait"
    )
    print("  waiting  alone, ms          of 100, ms          comes, s  server, MB  we, MB")
    with (
        ZooKeeperServer(heap_mb=HEAP_MB) as server,
        connect(server.address, timeout_s=20) as session,
    ):
        with DynoQueue(session, "/deep") as deep, DynoQueue(session, "/shallow") as shallow:
            for depth in depths:
                for queue, wanted in ((deep, depth), (shallow, SHALLOW)):
                    while (missing := wanted - queue.size()) > 0:
                        queue.push(messages(min(1000, missing)))
                    cycle(queue, BATCH)  # what was pushed has been heard of
                alone, beside = side_by_side(deep, shallow, 1, ROUNDS * 5)
                of_many, beside_many = side_by_side(deep, shallow, BATCH, ROUNDS)
                came_s, we_mb = (
                    first_pop(session),
                    resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
                )
                costs = f"{alone:10.2f} ({beside:.2f}) {of_many:14.3f} ({beside_many:.3f})"
                print(
                    f"{depth:9,} {costs} {came_s:13.2f} {live_mb(server):11.0f} {we_mb:7.0f}",
                    flush=True,
                )
        with ThreadPoolExecutor(CONSUMERS) as pool, ExitStack() as sessions:
            began = time.perf_counter()
            come = [
                sessions.enter_context(connect(server.address, timeout_s=60))
                for _ in range(CONSUMERS)
            ]
            list(pool.map(first_pop, come))
        print(
            f"{CONSUMERS} consumers that come at once: {time.perf_counter() - began:.1f} s; server"
            f" {live_mb(server):.0f} MB"
        )
        is_alive = server.alive
    dearer = max(alone / beside, of_many / beside_many)
    print(f"with {depths[-1]:,} waiting a message costs {dearer:.2f}x; server alive: {is_alive}")
    is_kept = is_alive and dearer <= MOST_DEAR
    print("flat" if is_kept else "BROKEN: the cost of a message is not flat")
    return 0 if is_kept else 1


if __name__ == "__main__":
    sys.exit(main())
