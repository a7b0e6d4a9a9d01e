"""A program whose loop sends while its producer spills, gets Ctrl-C at some moment, and closes: so
many times over, a new producer and journal each time. Exits with what went wrong, if anything did.

    python interrupted.py FOLDER SEED TIMES
"""

from __future__ import annotations

import itertools
import logging
import os
import random
import shutil
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from leaderq.errors import SinkAway
from leaderq.producing import (
    ALL_CONFIRMED,
    EVERY_ITEM,
    NO_SYNC,
    PLAIN,
    BatchOutcome,
    BufferedProducer,
    Journal,
    Retry,
)

LOG: list[str] = []
BAD = ("requests lost", "acknowledgements lost", "background")


class Log(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        LOG.append(record.getMessage())


class Sink:
    """Away for a while at first, and for good in some programs."""

    def __init__(self, back_s: float) -> None:
        self.stored: list[int] = []
        self._back_at = time.monotonic() + back_s

    def send(self, batch: Sequence[int], timeout_s: float) -> BatchOutcome:
        if time.monotonic() < self._back_at:
            raise SinkAway("not yet")
        self.stored += batch
        return ALL_CONFIRMED

    def close(self, timeout_s: float) -> None:
        pass


def one_program(folder: Path, luck: random.Random) -> None:
    sink = Sink(luck.choice([0.0, 0.02, 1000.0]))
    options: dict[str, Any] = {"journal": folder}
    if luck.random() < 0.3:
        options["persistence"] = luck.choice([NO_SYNC, EVERY_ITEM])
    options["max_items"] = luck.choice([10, 100, 1000])
    made = BufferedProducer(sink, linger_s=0.0, retry=Retry(most_s=0.01), **options)
    after_s = luck.uniform(0.0, 0.05)

    def interrupt() -> None:
        time.sleep(after_s)
        os.kill(os.getpid(), signal.SIGINT)

    ctrl_c = threading.Thread(target=interrupt)
    sent = 0
    try:
        ctrl_c.start()
        while ctrl_c.is_alive() or not sent:  # Python drops what is raised in a finalizer
            made.send(sent)
            sent += 1
        ctrl_c.join()
    except KeyboardInterrupt:
        ctrl_c.join()
    settlement = made.close(luck.choice([0.0, 5.0]))
    balance = made.snapshot().balance
    with Journal(folder) as journal:
        found = journal.read(0, max_items=1 << 30, max_bytes=1 << 40)
        kept = [PLAIN.deserialize(one.payload) for one in found]
        corrupt = journal.counters.corrupt
    accepted = {*sink.stored, *kept}
    assert settlement, settlement
    assert balance.is_exact, balance
    assert balance.accepted in (sent, sent + 1), (balance, sent)
    assert (balance.lost, corrupt) == (0, 0)
    wanted = set(range(balance.accepted))
    assert accepted == wanted, (sorted(wanted ^ accepted)[:20], balance, options)
    breaks = [pair for pair in itertools.pairwise(sink.stored) if pair[1] != pair[0] + 1]
    assert not breaks, (breaks[:9], settlement, balance, after_s, options, LOG)
    assert kept == sorted(kept)
    assert balance.pending <= len(kept)
    assert not [line for line in LOG if line.startswith(BAD)], LOG


def main() -> None:
    folder, seed, times = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    logging.getLogger().addHandler(Log())
    for number in range(times):
        one_program(folder / "journal", random.Random(f"{seed} {number}"))
        shutil.rmtree(folder / "journal")
        LOG.clear()


if __name__ == "__main__":
    main()
