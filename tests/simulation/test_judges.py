"""The judges of lives, shown short histories: what is wrong is seen, and what is right is let pass.

One thing a second happens in these: what it is, the fields of its line in their order, and others
by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any

import pytest

from leaderq.kafka.record import Partition
from leaderq.queues import DistributedDelayQueue, DistributedPriorityQueue
from leaderq.testing.simulation.scheduler import EPOCH_S
from simulation import coalescing, drain, messages, queues


def lines(kind: type[Enum], told: str) -> Iterator[tuple[float, Any, list[str], dict[str, Any]]]:
    for at, one in enumerate(told.split(", ") if told else []):
        what, *words = one.split()
        more = dict(word.split("=") for word in words if "=" in word)
        at_s = float(more.pop("at", at))
        yield at_s, kind[what], [word for word in words if "=" not in word], more


def right_if_nothing_is_said(problems: list[str], said: str) -> None:
    assert [said in one for one in problems] == [True] * bool(said), problems


LOCKING, WITHOUT = queues.Rules(), queues.Rules(is_locking=False)
IN_ORDER = queues.Rules(is_ordered=True)
BY_RANK = queues.Rules(is_ordered=True, recipe=DistributedPriorityQueue)
DELAYED = queues.Rules(recipe=DistributedDelayQueue)
TAKEN = "BEGUN a x, DONE a x, ACKED a x"
PUTS = "PUTTING p x, PUT p x, PUTTING p y, PUT p y"
DONE = "DONE c x, DONE c y"
RANKED = "PUTTING p x rank=2, PUT p x rank=2, PUTTING p y, PUT p y"
DUE = f"PUTTING p x rank={(EPOCH_S + 2.0) * 1000:.0f}"


@pytest.mark.parametrize(
    ("rules", "told", "said"),
    [
        # what was put is done; without a lock path only a death of a consumer excuses a loss
        (LOCKING, "PUT p x, BEGUN c x", "never done"),
        (LOCKING, "PUT p x, DONE c x", ""),
        (WITHOUT, "PUT p x, DIED p.1", "never done"),
        (WITHOUT, "PUT p x, DIED c0.1", ""),
        (WITHOUT, "LEFT - queue-1", "is left"),
        # one at a time works on an item, and only a lock path frees it with its consumer
        (LOCKING, "BEGUN a x, BEGUN b x", "a has begun it"),
        (WITHOUT, "BEGUN a x, DONE a x, BEGUN b x", "a has done it"),
        (LOCKING, "BEGUN a x, RAISED a x, BEGUN b x", ""),
        (LOCKING, "BEGUN a x, DIED a x, BEGUN b x", ""),
        (WITHOUT, "BEGUN a x, DIED a x, BEGUN b x", "a has begun it"),
        (LOCKING, "BEGUN a x, SESSION_OVER a x, BEGUN b x", ""),
        (WITHOUT, "BEGUN a x, SESSION_OVER a x, BEGUN b x", "a has begun it"),
        # no acknowledgement is late, or a second one
        (LOCKING, "BEGUN a x, SESSION_OVER a x, ACKED a x", "has it no more"),
        (LOCKING, TAKEN, ""),
        (LOCKING, f"{TAKEN}, ACKED a x", "has it no more"),
        (LOCKING, f"{TAKEN}, DIED a, BEGUN b x", "after its acknowledgement"),
        (IN_ORDER, f"{PUTS}, BEGUN c y, {DONE}", "before x"),
        (IN_ORDER, f"{PUTS}, BEGUN c x, {DONE}", ""),
        (BY_RANK, f"{RANKED}, BEGUN c x, {DONE}", "before y"),
        (BY_RANK, f"{RANKED}, BEGUN c y, {DONE}", ""),
        # nothing begins before its time, or the end of its back-off
        (DELAYED, f"{DUE}, BEGUN c x at=1.9", "before it was due"),
        (DELAYED, f"{DUE}, BEGUN c x at=2.0", ""),
        (LOCKING, "BEGUN a x, RAISED a x, BEGUN b x at=1.02", "after it failed"),
        (LOCKING, "BEGUN a x, RAISED a x, BEGUN b x at=1.03", ""),
    ],
)
def test_the_judge_of_queues(rules, told, said):
    history = [
        queues.QueueLine(at_s, what, *words, rank=int(more.get("rank", 0)))
        for at_s, what, words, more in lines(queues.Step, told)
    ]
    right_if_nothing_is_said(queues.judge(history, rules), said)


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ("BELIEVED d 2, BELIEVED c 1", "believed to c"),
        ("BELIEVED d 2, RELEASED c 1, STOOD c 1", "stood"),
        ("WRITTEN - 2, WRITTEN - 1", "was written after"),
        ("LEFT - 0", "is left"),
        ("BEGUN d 1, ASKED c 7, DECLINED c 7", "never covered"),
        ("BELIEVED c 1, BELIEVED d 2, WRITTEN - 1", ""),
        ("RELEASED c 1, BELIEVED d 2, STOOD c 1", ""),
        ("ASKED c 7, DECLINED c 7, BEGUN d 1", ""),
        ("ASKED c 7, DECLINED c 7, DIED c 0", ""),
    ],
)
def test_the_judge_of_coalescing(told, said):
    """With the number of a token, or that of a request where no token is meant."""
    history = [
        coalescing.TurnLine(at_s, what, who, "k", int(number), int(number))
        for at_s, what, (who, number), _ in lines(coalescing.Turn, told)
    ]
    right_if_nothing_is_said(coalescing.judge(history), said)


PUSHED, ACKED = "PUSHED due_s=0", "DELIVERED, ACKNOWLEDGED"


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (f"{PUSHED}, DELIVERED", "nobody has acknowledged"),
        (f"{PUSHED}, DELIVERED, SETTLING", ""),
        (f"{PUSHED}, {ACKED}", ""),
        (f"{PUSHED}, {ACKED}, ACKNOWLEDGED", "acknowledged twice"),
        (f"{PUSHED}, {ACKED}, DELIVERED", "after it was acknowledged"),
        (f"{PUSHED}, {ACKED}, DELIVERED process=d is_blind=1", ""),
        (f"{PUSHED}, KILLED, DELIVERED", "after it was killed"),
        (f"{PUSHED}, DELIVERED, DELIVERED process=d, ACKNOWLEDGED", "which d had"),
        (f"{PUSHED}, DELIVERED beside=d, ACKNOWLEDGED", "and d held it"),
        (f"{PUSHED}, DELIVERED due_s=0, ACKNOWLEDGED", "a lease that was over"),
        ("LEFT", "is left"),
        (f"PUSHING due_s=9, {PUSHED}, {ACKED}", "before its time"),
        (f"{PUSHED}, HEALED -, EMPTY - due_s=20 at=21, EMPTY - due_s=23 at=24, {ACKED}", "not giv"),
        (
            f"PUSHING due_s=0, PUSHING b due_s=0, {PUSHED}, PUSHED b rank=1 due_s=0,"
            " DELIVERED b rank=1, DELIVERED at=7, ACKNOWLEDGED, ACKNOWLEDGED b",
            "s after b",
        ),
        (
            f"{PUSHED} group=g, PUSHING b due_s=0, DELIVERED b group=g, SETTLING",
            "before a, of the same group",
        ),
    ],
)
def test_the_judge_of_messages(told, said):
    """Of message a, by consumer c, unless another one is named."""
    history = []
    for at_s, what, words, more in lines(messages.Did, told):
        given = {name: float(word) if word.isdigit() else word for name, word in more.items()}
        own = {"process": "c", "due_s": 1e9, **given}
        history.append(messages.Step(at_s, what, *(words or ["a"]), **own))
    right_if_nothing_is_said(messages.judge(history), said)


def handled(*offsets: int) -> list[drain.Handled]:
    where = Partition("t", 0)
    return [drain.Handled(float(at), 1, where, one, one % 2) for at, one in enumerate(offsets)]


ONE, TWO = "t@0", "t@1"


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        (drain.skipped(handled(0, 2), {Partition("t", 0): 3}), drain.skipped(handled(0), {})),
        (drain.out_of_order(handled(0, 2)), drain.out_of_order(handled(0, 1, 0, 1, 2))),
        (drain.keys_out_of_order(handled(2, 0)), drain.keys_out_of_order(handled(1, 0, 3, 1, 2))),
        (
            drain.repeated_without_cause(handled(0, 0), []),
            drain.repeated_without_cause(handled(0, 0), [(0.5, 0.6)]),
        ),
        (drain.not_exactly_once([ONE, ONE], [ONE]), drain.not_exactly_once([ONE], [ONE])),
        (drain.not_exactly_once([TWO, ONE], [ONE, TWO]), []),
        (drain.not_committed({}, {Partition("t", 0): 3}), drain.not_committed({}, {})),
    ],
)
def test_the_judges_of_drains(wrong, right):
    assert wrong
    assert not right
