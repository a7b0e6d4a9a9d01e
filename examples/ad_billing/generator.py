"""Sends clicks without end, at a set rate: ``python -m ad_billing.generator``.

Each record is a made-up line of an access log: key = client, header ``number`` counts on from the
highest number on the topic, so that no two records have the same. At SIGTERM or Ctrl-C it stops
sending, waits until Kafka has everything, and says how much that is: what Kafka has acknowledged
must be in the ledger. A generator that is killed may leave out a few numbers, which Kafka never
acknowledged; they are not used again.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

from leaderq import LeaderqError
from leaderq.kafka.dead_letters.topic import DeadLetterReader
from leaderq.kafka.topics import create_topics, produce

from .billing import NUMBER, TOPIC
from .feed import PARTITIONS, Feed, numbered
from .traffic import generated

PULSE_VARIABLE = "AD_BILLING_PULSE"
_ALIVE_FOR_S = 15.0
_TICK_S = 0.05
_SAY_EVERY_S = 10.0
_ACKNOWLEDGED_WITHIN_S = 15.0


def highest_number(address: str, topic: str) -> int:
    """The highest number of any record on ``topic``; 0 if there is none. In each partition the last
    record has the highest.
    """
    with DeadLetterReader(address, topic, group="ad-billing-generator") as box:
        last = {partition: end - 1 for partition, end in box.ends.items()}
        values = [dict(record.headers).get(NUMBER, b"0") for record in box.read(last)]
    return max((int(value) for value in values if value.isdigit()), default=0)


def paced(
    records: Iterator[Feed], rate: float, stopped: threading.Event, tell: Callable[[int], None]
) -> Iterator[Feed]:
    """``records``, ``rate`` a second, until ``stopped``; ``tell`` hears every tick how many there
    were.
    """
    given, began_s = 0, time.monotonic()
    while not stopped.wait(_TICK_S):
        tell(given)
        due = int((time.monotonic() - began_s) * rate)
        # Kafka was unreachable: continue at the rate, do not catch up in one burst
        if due - given > 2 * rate:
            began_s += (due - given) / rate
            continue
        for _ in range(due - given):
            yield next(records)
            given += 1


class Pulse:
    """A file that is touched while the generator runs, for the health check; and a line now and
    then.
    """

    def __init__(self, path: Path, first: int) -> None:
        self._path = path
        self._first = first
        self._next_s = time.monotonic() + _SAY_EVERY_S

    def beat(self, given: int) -> None:
        """The generator runs; the producer has ``given`` records."""
        self._path.touch()
        if time.monotonic() >= self._next_s:
            self._next_s += _SAY_EVERY_S
            print(f"{given} records sent, up to number {self._first + given - 1}", flush=True)

    @staticmethod
    def is_felt(path: Path) -> bool:
        """Whether the generator ran a moment ago."""
        return path.exists() and time.time() - path.stat().st_mtime < _ALIVE_FOR_S


def generate(
    address: str, topic: str, rate: float, stopped: threading.Event, pulse: Path
) -> tuple[int, int]:
    """Send to ``topic`` until ``stopped``; return the first number and how many were sent, all of
    them acknowledged.
    """
    create_topics(address, {topic: PARTITIONS})
    first = highest_number(address, topic) + 1
    print(f"{rate:g} records a second, from number {first} on", flush=True)
    records = numbered(generated(sys.maxsize, seed=first), start=first)
    beats = paced(records, rate, stopped, Pulse(pulse, first).beat)
    return first, produce(address, topic, beats, timeout_s=_ACKNOWLEDGED_WITHIN_S)


def main() -> int:
    """Generate; return 0 if all that was sent was acknowledged, 1 if not (``--check``: if it stands
    still), 2 for bad input.
    """
    parser = argparse.ArgumentParser(
        prog="python -m ad_billing.generator", description="Send clicks to the topic clicks."
    )
    parser.add_argument(
        "--rate",
        type=_rate,
        default=os.environ.get("AD_BILLING_RATE", "200"),
        help="records a second",
    )
    parser.add_argument(
        "--check", action="store_true", help="exit with 1 if the generator here stands still"
    )
    parser.add_argument(
        "--kafka",
        default=os.environ.get("LEADERQ_KAFKA", "127.0.0.1:9092"),
        help="[env var: LEADERQ_KAFKA]",
    )
    given = parser.parse_args()
    pulse = Path(
        os.environ.get(PULSE_VARIABLE) or Path(tempfile.gettempdir()) / "ad-billing-generator"
    )
    if given.check:
        return 0 if Pulse.is_felt(pulse) else 1
    stopped = threading.Event()

    def stop(_number: int, _frame: FrameType | None) -> None:
        stopped.set()

    # As PID 1 of a container there is no default action for SIGTERM.
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    try:
        first, sent = generate(given.kafka, TOPIC, given.rate, stopped, pulse)
    except LeaderqError as exc:
        print(f"generator: error: {exc}", file=sys.stderr)
        return 1
    print(
        f"sent {sent} records, numbers {first} to {first + sent - 1}; Kafka has acknowledged"
        " them all",
        flush=True,
    )
    return 0


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0.1 <= rate <= 100_000:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a rate; give a number of records a second, from 0.1 to 100000"
        )
    return rate


if __name__ == "__main__":
    sys.exit(main())
