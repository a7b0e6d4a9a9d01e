"""Screening rules, and the queue that they wait in: which machine needs what done to it."""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

from leaderq import LeaderqError
from leaderq.dyno import DynoQueue
from leaderq.zookeeper import Session

QUEUE = "/work-orders/rules"
ZOOKEEPER = os.environ.get("LEADERQ_ZOOKEEPER", "127.0.0.1:2181")
SKILLS = ("electric", "hydraulic", "mechanic")
PRIORITIES = {"safety": 0, "quality": 5, "comfort": 9}


@dataclass(frozen=True)
class Rule:
    """``hours`` of work with that ``skill`` are needed on ``machine``."""

    id: str
    machine: str
    skill: str
    hours: int
    concern: str

    def packed(self) -> bytes:
        """The payload of its message."""
        return json.dumps(asdict(self)).encode()


def read(message_id: str, payload: bytes) -> Rule:
    """Undo :meth:`Rule.packed`. Raises ``ValueError`` if it is not a rule that can be followed."""
    said = json.loads(payload)
    if not isinstance(said, dict):
        raise ValueError("it is not an object")  # noqa: TRY004
    rule = Rule(
        message_id,
        str(said["machine"]),
        str(said["skill"]),
        int(said["hours"]),
        str(said["concern"]),
    )
    if not 1 <= rule.hours <= 8:
        raise ValueError(f"{rule.hours} hours are not a day's work")
    return rule


def rules_queue(session: Session) -> DynoQueue:
    """The queue, as all who use it must open it."""
    session.ensure_path(QUEUE)
    return DynoQueue(session, QUEUE, lease_s=10)


def run(main: Callable[[int], int], program: str) -> None:
    """Run ``main(COUNT)`` as a program, and exit with what it returns."""
    parser = argparse.ArgumentParser(prog=f"python -m work_orders.{program}")
    parser.add_argument("count", nargs="?", type=int, default=300, help="rules (default: 300)")
    try:
        sys.exit(main(parser.parse_args().count))
    except (LeaderqError, TimeoutError) as exc:
        sys.exit(f"{program}: error: {exc}")


def made_up(count: int, *, seed: int = 1) -> Iterator[Rule]:
    """So many rules, the same ones for the same seed."""
    chance = random.Random(seed)
    for number in range(count):
        machine, concern = f"press-{chance.randrange(40):02}", chance.choice(list(PRIORITIES))
        yield Rule(
            f"rule-{number:05}", machine, chance.choice(SKILLS), chance.randint(1, 4), concern
        )
