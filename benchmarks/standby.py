"""What a standby costs: CPU, memory, threads and descriptors of candidates that wait for their
turn.

    python benchmarks/standby.py [--minutes 10] [--timeout-s 10]

One leader and one standby of a plain career, one leader and one standby of a Kafka career whose
topic is being written to. The workers and guardians of the standbys are measured over the whole
time. CPU is a share of one core; the other figures are the first and the last reading after a
minute of warming up.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from figures import print_table, save

from leaderq.kafka.topics import create_topics, produce
from leaderq.testing import KafkaBroker, ZooKeeperServer
from leaderq.testing.candidate_process import CandidateProcess

CAREERS = Path(__file__).parent / "careers"
WARM_UP_S = 60.0
EVERY_S = 10.0
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Reading:
    """One look at a process; ``cpu_s`` in seconds since it started, ``rss`` in KiB."""

    at_s: float
    cpu_s: float
    rss: int
    threads: int
    descriptors: int


def read(pid: int) -> Reading:
    """Look at process ``pid`` through ``/proc``."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    status = dict(
        line.split(":", 1)
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if ":" in line
    )
    return Reading(
        at_s=time.monotonic(),
        cpu_s=(int(fields[11]) + int(fields[12])) / _TICKS,
        rss=int(status["VmRSS"].split()[0]),
        threads=int(status["Threads"]),
        descriptors=sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir()),
    )


def row(readings: list[Reading]) -> dict[str, Any]:
    first, last = readings[0], readings[-1]
    share = (last.cpu_s - first.cpu_s) / (last.at_s - first.at_s)
    return {
        "cpu %": round(100 * share, 3),
        "rss MiB": f"{first.rss / 1024:.1f}>{last.rss / 1024:.1f}",
        "rss max": round(max(reading.rss for reading in readings) / 1024, 1),
        "threads": f"{first.threads}>{last.threads}",
        "fds": f"{first.descriptors}>{last.descriptors}",
    }


def start(
    stack: ExitStack,
    target: str,
    name: str,
    zookeeper: str,
    kafka: str,
    timeout_s: float,
    folder: str,
) -> CandidateProcess:
    candidate = CandidateProcess(
        target,
        id=name,
        zookeeper=zookeeper,
        kafka=kafka,
        cwd=CAREERS,
        session_timeout_s=timeout_s,
        environment={"STAMPS": f"{folder}/stamps", "CANDIDATE": name},
    )
    stack.enter_context(candidate)
    candidate.wait_for("standing", timeout_s=60)
    return candidate


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--timeout-s", type=float, default=10.0, help="session time-out")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        zookeeper = stack.enter_context(ZooKeeperServer()).address
        kafka = stack.enter_context(KafkaBroker()).address
        create_topics(kafka, {"stamps": 4})
        watched: dict[str, int] = {}
        for target in ("stamps:Stamps", "stamps:KafkaStamps"):
            kind = "Kafka" if "Kafka" in target else "plain"
            start(stack, target, f"{kind}-leader", zookeeper, kafka, arguments.timeout_s, folder)
            standby = start(
                stack, target, f"{kind}-standby", zookeeper, kafka, arguments.timeout_s, folder
            )
            watched |= {f"{kind}, worker": standby.worker_pid, f"{kind}, guardian": standby.pid}
        stop = threading.Event()
        feeder = threading.Thread(target=feeding, args=(kafka, stop))
        feeder.start()
        try:
            figures = {
                name: row(readings)
                for name, readings in look_at(watched, arguments.minutes * 60).items()
            }
        finally:
            stop.set()
            feeder.join()
    print_table(
        f"a standby over {arguments.minutes:g} minutes, session time-out {arguments.timeout_s:g} s",
        figures,
    )
    print(
        "saved:",
        save(
            "standby",
            {"minutes": arguments.minutes, "timeout_s": arguments.timeout_s, "figures": figures},
        ),
    )


def feeding(kafka: str, stop: threading.Event) -> None:
    while not stop.wait(5.0):
        produce(kafka, "stamps", [(b"key", b"value")] * 100)


def look_at(watched: dict[str, int], for_s: float) -> dict[str, list[Reading]]:
    time.sleep(min(WARM_UP_S, for_s / 10))
    readings: dict[str, list[Reading]] = {name: [] for name in watched}
    end_s = time.monotonic() + for_s
    while True:
        for name, pid in watched.items():
            readings[name].append(read(pid))
        if time.monotonic() >= end_s:
            return readings
        time.sleep(min(EVERY_S, max(0.1, end_s - time.monotonic())))


if __name__ == "__main__":
    main()
