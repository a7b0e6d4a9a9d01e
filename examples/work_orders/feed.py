"""Queues made-up rules: ``python -m work_orders.feed [COUNT]``.

Due at once, or at random in the next seconds. A rule that was fed before, in the last hour or by
somebody who was killed in the middle, is not queued again: its id and ``unique_s`` see to that.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterable

from leaderq import connect
from leaderq.dyno import Message
from leaderq.zookeeper import Session

from .rules import PRIORITIES, Rule, made_up, rules_queue

OVER_S = 6.0


def feed(session: Session, rules: Iterable[Rule]) -> int:
    """Queue these; returns how many were new."""
    chance = random.Random(2)
    count = 0
    with rules_queue(session) as queue:
        for rule in rules:
            delay_s = chance.choice((0.0, chance.uniform(0, OVER_S)))
            message = Message(
                rule.id, rule.packed(), delay_s, PRIORITIES[rule.concern], unique_s=3600
            )
            count += queue.ensure(message)
    return count


def main(count: str = "300") -> None:
    """Feed so many rules."""
    with connect(os.environ.get("LEADERQ_ZOOKEEPER", "127.0.0.1:2181")) as session:
        print(f"{feed(session, made_up(int(count)))} rules fed")


if __name__ == "__main__":
    main(*sys.argv[1:])
