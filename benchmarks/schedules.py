"""How soon a tick that is due begins in a new term, and how late ticks begin in one that lasts.

Two candidates; the leader is killed while a tick is due (the schedule is finer than its work), and
the successor's log says when it won and when it began the tick.

    python benchmarks/schedules.py --rounds 40
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any

from leaderq.testing import ZooKeeperServer
from leaderq.testing.candidate_process import CandidateProcess

_CAREER = """
from leaderq import ScheduledCareer, Tick, schedule

class Clockwork(ScheduledCareer):
    @schedule(every_s=0.1)
    def often(self, tick: Tick) -> None:
        pass
"""


def at(line: dict[str, Any]) -> float:
    return datetime.fromisoformat(line["time"].replace("Z", "+00:00")).timestamp()


def measured(address: str, folder: Path, rounds: int) -> tuple[list[float], list[float]]:
    """Seconds from each term that was won to its first tick; and the lateness of all ticks."""
    first_s, late_s = [], []
    (folder / "clockwork.py").write_text(_CAREER)

    def start(id: str) -> CandidateProcess:
        return CandidateProcess(
            "clockwork:Clockwork", id=id, zookeeper=address, cwd=folder, session_timeout_s=10
        ).start()

    leader = start("0")
    leader.wait_for("tick_began", count=3)
    for number in range(1, rounds + 1):
        follower = start(str(number))
        follower.wait_for("standing")
        os.kill(leader.worker_pid, signal.SIGKILL)
        follower.wait_for("tick_began", count=10)
        won, began = follower.said("term_began")[0], follower.said("tick_began")
        first_s.append(at(began[0]) - at(won))
        late_s += [line["late_s"] for line in began[1:]]
        leader.stop()
        leader = follower
    leader.stop()
    return first_s, late_s


def told(values: list[float]) -> dict[str, float]:
    found = sorted(values)
    return {
        "median_ms": round(1000 * statistics.median(found), 1),
        "p95_ms": round(1000 * found[int(len(found) * 0.95)], 1),
        "most_ms": round(1000 * found[-1], 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=40)
    given = parser.parse_args()
    with ZooKeeperServer() as server, tempfile.TemporaryDirectory() as folder:
        first_s, late_s = measured(server.address, Path(folder), given.rounds)
    print(json.dumps({"won to first tick": told(first_s), "late in a term": told(late_s)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
