"""Queues made-up rules: ``python -m work_orders.feed [COUNT]``.

They are due at once, or at random in the next seconds. A rule that was fed in the last hour is not
queued again, because of its id and ``unique_s``.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

from leaderq import connect
from leaderq.dyno import Message
from leaderq.zookeeper import Session

from .rules import PRIORITIES, ZOOKEEPER, Rule, made_up, rules_queue, run

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


def main(count: int) -> int:
    """Feed so many rules."""
    with connect(ZOOKEEPER) as session:
        print(f"{feed(session, made_up(count))} rules fed")
    return 0


if __name__ == "__main__":
    run(main, "feed")
