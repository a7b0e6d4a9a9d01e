"""Of the consumers that wait one begins what comes, and the others neither ask for it nor delay it:
what an item costs does not grow with all who wait.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from leaderq.base import clock
from leaderq.dyno import Message
from leaderq.engine.members import OTHERS_S
from leaderq.queues import DistributedPriorityQueue, DistributedQueue
from simulation.scenarios import Scene, is_asking, scene
from simulation.test_dyno_defects import Side, sides
from simulation.test_queue_windows import LOCKING, consuming, opened

IDLE = 6
NAMES = "abcdef"
ITEMS = 20
GAP_S = 0.1


def asked(s: Scene, hosts: list[str]) -> Counter[str]:
    """How many requests each of these hosts sends from now on."""
    found = Counter[str]()

    def count(host: str, request: Any) -> None:
        found[host] += is_asking(request)

    s.rules += [(host, partial(count, host)) for host in hosts]
    return found


def paced(s: Scene, put: Callable[[str], object]) -> dict[str, float]:
    """Put so many, with a gap after each; returns when each was."""
    put_s: dict[str, float] = {}
    for text in map(str, range(ITEMS)):
        put_s[text] = s.now_s
        put(text)
        s.run(GAP_S)
    return put_s


@LOCKING
@pytest.mark.parametrize("kind", [DistributedQueue, DistributedPriorityQueue])
@scene(3)
def test_an_idle_consumer_asks_once_about_what_another_takes(s, lock, kind):
    guests, begun = s.guests(NAMES + "p"), list[tuple[str, float]]()
    producer = opened(guests[-1], lock, kind)
    more = (1,) if kind is DistributedPriorityQueue else ()
    for one in guests[:-1]:
        consuming(one, lambda value: begun.append((value, s.now_s)), lock, kind)
    for text in NAMES:  # they learn who is the quickest
        guests[-1].do(lambda text=text: producer.put(text, *more))
        s.run(1.0)
    begun.clear()
    requests = asked(s, [one.process.host for one in guests[:-1]])
    put_s = paced(s, lambda value: guests[-1].do(lambda: producer.put(value, *more)))
    assert [value for value, _ in begun] == [str(number) for number in range(ITEMS)]
    # Who takes it asks some ten times, now and then with another, the others for the children.
    assert sum(requests.values()) <= ITEMS * (14 + IDLE)
    assert max(at_s - put_s[value] for value, at_s in begun) < GAP_S / 2


@scene(3)
def test_a_pop_that_was_beaten_lets_the_others_go_first_and_takes_what_they_leave(s):
    consumers, done = sides(s, NAMES, lease_s=30.0), list[tuple[str, float]]()
    producer = Side(s.guests("p")[0])

    def serve(one: Side) -> None:
        while True:
            for delivery in one.queue.pop(1, 5.0):
                done.append((delivery.payload.decode(), s.now_s))
                delivery.ack()

    for one in consumers:
        one.pop(1, 0.0)
        one.who.begin(lambda one=one: serve(one))
    producer.push(Message(payload=b"first"))  # they learn who is the quickest
    s.run(2.0)
    requests = asked(s, [one.who.process.host for one in consumers])
    push_s = paced(s, lambda text: producer.push(Message(payload=text.encode())))
    assert [text for text, _ in done[1:]] == [str(number) for number in range(ITEMS)]
    looks = IDLE * ITEMS * GAP_S * 2  # each looks for leases that are over
    assert sum(requests.values()) <= 6 * ITEMS + looks
    quickest = requests.most_common(1)[0][0]
    first = next(one for one in consumers if one.who.process.host == quickest)
    first.who.process.freeze()
    push_s["left"] = s.now_s
    producer.push(Message(payload=b"left"))
    s.run(1.0)
    assert done[-1][0] == "left"
    assert max(at_s - push_s[text] for text, at_s in done[1:]) < 0.1


@LOCKING
@scene(10)
def test_who_is_beaten_by_a_slow_consumer_now_and_then_does_not_let_the_next_item_wait(s, lock):
    draw = s.world.network
    s.world.network = lambda: 0.8 * draw()  # no message is late by itself
    guests, begun = s.guests("abp"), dict[str, float]()
    producer = opened(guests[-1], lock)

    def work(value: str, pause_s: float) -> None:
        begun[value] = s.now_s
        clock.sleep(pause_s)

    for one, pause_s in zip(guests, (0.1, 0.0), strict=False):
        consuming(one, partial(work, pause_s=pause_s), lock)
    put_s = dict[str, float]()
    for text in map(str, range(120)):
        put_s[text] = s.now_s
        guests[-1].do(lambda text=text: producer.put(text))
        s.run(0.01)
    s.run(1.0)
    waits_s = [begun[text] - at_s for text, at_s in put_s.items()]
    assert max(waits_s[20:]) < OTHERS_S  # the first ones tell them who of them is slow


@LOCKING
@pytest.mark.parametrize("back_s", [0.0, 3600.0])
@scene(3)
def test_what_is_of_the_share_of_one_that_hangs_is_taken_by_another_within_100_ms(s, lock, back_s):
    guests, begun = s.guests("abp"), list[tuple[str, float]]()
    producer = opened(guests[-1], lock)

    def hang(value: str) -> None:
        begun.append((value, s.now_s))
        clock.sleep(60.0)

    consuming(guests[0], hang, lock)
    consuming(guests[1], lambda value: begun.append((value, s.now_s)), lock)
    s.run(2.0)
    for text in ("w1", "w2", "w3", "w4"):
        guests[-1].do(lambda text=text: producer.put(text))
    s.run(0.03)  # what it has seen is not overdue yet
    begun.clear()
    guests[1].process.skew_s -= back_s  # its calendar is set
    put_s = paced(s, lambda value: guests[-1].do(lambda: producer.put(value)))
    s.run(1.0)
    waits_s = sorted(at_s - put_s[value] for value, at_s in begun if value in put_s)
    assert len(waits_s) == ITEMS
    assert waits_s[-2] < 0.1  # it may have claimed one ahead before it hung
    assert waits_s[ITEMS * 3 // 4] < 0.05, "it is known not to be at work"
