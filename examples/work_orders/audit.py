"""Compares the orders with the rules: ``python -m work_orders.audit [COUNT]``; exit code 1 if they
do not agree.
"""

from __future__ import annotations

from collections import Counter

from leaderq import connect
from leaderq.zookeeper import Session

from .allocator import orders
from .plan import Plan
from .rules import ZOOKEEPER, made_up, rules_queue, run


def audit(session: Session, count: int) -> list[str]:
    """What is wrong, after so many made-up rules were fed and all have had their turn."""
    found, fed = orders(session), {rule.id for rule in made_up(count)}
    by_rule = Counter(order.rule for order in found)
    problems = Plan(found).problems()
    problems += [f"{rule} has no order" for rule in sorted(fed - by_rule.keys())]
    problems += [f"{rule} has {times} orders" for rule, times in by_rule.items() if times > 1]
    busy = Counter((order.machine, order.day) for order in found)
    problems += [
        f"{times} work on {machine} on day {day}"
        for (machine, day), times in busy.items()
        if times > 1
    ]
    with rules_queue(session) as queue:
        problems += [
            f"in the queue: {sizes}"
            for sizes in queue.shard_sizes().values()
            if any(sizes.values())
        ]
        problems += [f"left over: {left.path}" for left in queue.find_stale()]
    return problems


def summary(session: Session) -> str:
    """Who has ordered how much."""
    by_term = sorted(Counter(order.term for order in orders(session)).items())
    return ", ".join(f"{times} orders in term {term}" for term, times in by_term)


def main(count: int) -> int:
    """Print what is wrong."""
    with connect(ZOOKEEPER) as session:
        problems = audit(session, count)
        print(summary(session))
    print("\n".join(problems) or "every rule has one order, and no constraint is broken")
    return 1 if problems else 0


if __name__ == "__main__":
    run(main, "audit")
