"""The judges of queues, shown bad histories; and a life that was hard to come by."""

from __future__ import annotations

from functools import partial

import pytest

from leaderq.queues import DistributedPriorityQueue
from leaderq.testing.simulation.scheduler import EPOCH_S
from simulation.queues import (
    QueueLife,
    QueueLine,
    Rules,
    Step,
    backed_off,
    held_by_one,
    in_order,
    lead,
    never_before_its_time,
    nothing_lost,
)

PUTTING, PUT, BEGUN, DONE, RAISED, ACKED = (
    *(Step.PUTTING, Step.PUT, Step.BEGUN, Step.DONE, Step.RAISED, Step.ACKED),
)
LOCKING, WITHOUT, IN_ORDER = Rules(), Rules(is_locking=False), Rules(is_ordered=True)
BY_RANK = Rules(is_ordered=True, recipe=DistributedPriorityQueue)


def test_an_item_whose_acknowledgement_was_refused_comes_again_to_the_only_consumer():
    """It was held back in the process that had taken it, for as long as that lived."""
    for seed in (79, *range(600)):
        verdict = lead(QueueLife(seed, consumers=1))
        assert not verdict.problems, seed
        if any(" refused item=" in line for line in verdict.history):
            return
    pytest.fail("no acknowledgement was refused in 600 lives")


def _lines(*told: tuple[Step, str]) -> list[QueueLine]:
    """``(BEGUN, "a x")``: consumer a begins x; one a second."""
    return [QueueLine(float(at), step, *said.split()) for at, (step, said) in enumerate(told)]


TAKEN = [(BEGUN, "a x"), (DONE, "a x"), (ACKED, "a x")]
PUTS = [(PUTTING, "p x"), (PUT, "p x"), (PUTTING, "p y"), (PUT, "p y")]
FREED = [[(BEGUN, "a x"), (step, "a x"), (BEGUN, "b x")] for step in (Step.DIED, Step.SESSION_OVER)]


@pytest.mark.parametrize(
    ("judge", "told", "is_wrong"),
    [
        # what was put is done; without a lock path only a death of a consumer excuses a loss
        (partial(nothing_lost, rules=LOCKING), [(PUT, "p x"), (BEGUN, "c x")], True),
        (partial(nothing_lost, rules=LOCKING), [(PUT, "p x"), (DONE, "c x")], False),
        (partial(nothing_lost, rules=WITHOUT), [(PUT, "p x"), (Step.DIED, "p.1")], True),
        (partial(nothing_lost, rules=WITHOUT), [(PUT, "p x"), (Step.DIED, "c0.1")], False),
        (partial(nothing_lost, rules=LOCKING), [(PUT, "p x"), (Step.DIED, "c0.1")], True),
        (partial(nothing_lost, rules=WITHOUT), [(Step.LEFT, "- queue-1")], True),
        # one at a time works on an item, and only a lock path frees it with its consumer
        *(
            (partial(held_by_one, rules=rules), told, is_wrong)
            for rules in (LOCKING, WITHOUT)
            for told, is_wrong in (
                ([(BEGUN, "a x"), (BEGUN, "b x")], True),
                ([(BEGUN, "a x"), (DONE, "a x"), (BEGUN, "b x")], True),
                ([(BEGUN, "a x"), (RAISED, "a x"), (BEGUN, "b x")], False),
            )
        ),
        *((partial(held_by_one, rules=LOCKING), told, False) for told in FREED),
        *((partial(held_by_one, rules=WITHOUT), told, True) for told in FREED),
        # no acknowledgement is late, or a second one
        *(
            (partial(held_by_one, rules=LOCKING), [*FREED[1][:2], (acked, "a x")], True)
            for acked in (ACKED, Step.PART_ACKED)
        ),
        (partial(held_by_one, rules=LOCKING), TAKEN, False),
        (partial(held_by_one, rules=LOCKING), [*TAKEN, (ACKED, "a x")], True),
        (partial(held_by_one, rules=LOCKING), [*TAKEN, (Step.DIED, "a"), (BEGUN, "b x")], True),
        (partial(in_order, rules=IN_ORDER), [*PUTS, (BEGUN, "c y")], True),
        (partial(in_order, rules=IN_ORDER), [*PUTS, (BEGUN, "c x")], False),
    ],
)
def test_the_judges_of_queues_see(judge, told, is_wrong):
    assert bool(judge(_lines(*told))) is is_wrong


def test_an_item_begun_before_its_time_or_the_end_of_its_back_off_is_seen():
    put = QueueLine(0.0, PUTTING, "p", "x", round((EPOCH_S + 2.0) * 1000))
    assert never_before_its_time([put, QueueLine(1.9, BEGUN, "c", "x")])
    assert not never_before_its_time([put, QueueLine(2.0, BEGUN, "c", "x")])
    failed = [QueueLine(0.0, BEGUN, "a", "x"), QueueLine(1.0, RAISED, "a", "x")]
    assert backed_off([*failed, QueueLine(1.02, BEGUN, "b", "x")])
    assert not backed_off([*failed, QueueLine(1.03, BEGUN, "b", "x")])


def test_a_less_urgent_item_begun_first_is_seen():
    puts = [
        QueueLine(float(at), step, "p", item, rank)
        for at, (item, rank) in enumerate((("low", 2), ("urgent", 0)))
        for step in (PUTTING, PUT)
    ]
    assert in_order([*puts, QueueLine(5.0, BEGUN, "c", "low")], BY_RANK)
    assert not in_order([*puts, QueueLine(5.0, BEGUN, "c", "urgent")], BY_RANK)
