from __future__ import annotations

import heapq
from dataclasses import dataclass
from itertools import count

import pytest

from leaderq.zookeeper import Create
from leaderq.zookeeper.writing import groups
from leaderq.zookeeper.writing import in_flight as module
from leaderq.zookeeper.writing.groups import MultiStatus, OperationGroup, PackedMulti, SendQueue
from leaderq.zookeeper.writing.in_flight import LEAST_BYTES, MOST_BYTES, InFlightLimit

KNOWN = InFlightLimit(1e6, (0.01,) * module.MEASURED)
ALLOWED_S = module.SLOWER * 0.01


def after(limit: InFlightLimit, took_s: float, under_way: float, times: int = 1) -> InFlightLimit:
    for _ in range(times):
        limit = limit.after(0.0, took_s, under_way)
    return limit


def test_the_limit_moves_by_a_share_to_what_would_be_answered_in_time() -> None:
    for longer, fitting in ((1.0, 1e6), (1.25, 0.8e6), (0.8, 1.25e6), (0.4, 2e6), (99.0, 0.5e6)):
        moved = 1e6 + module.SHARE * (fitting - 1e6)
        assert after(KNOWN, longer * ALLOWED_S, 1e6).size == pytest.approx(moved)


def test_it_counts_what_was_under_way_not_what_might_have_been() -> None:
    assert after(KNOWN, ALLOWED_S, 0.7e6).size == pytest.approx(1e6 - module.SHARE * 0.3e6)
    assert after(KNOWN, 9.0, 1.2e6).size == pytest.approx(1e6 - module.SHARE * 0.4e6)


def test_an_answer_tells_nothing_about_the_limit_if_much_less_was_under_way() -> None:
    for took_s in (0.01, 9.0):
        assert after(KNOWN, took_s, 0.49e6) is KNOWN
    assert after(KNOWN, 9.0, 0.5e6).size < 1e6
    assert after(InFlightLimit(), 9.0, 0.49 * LEAST_BYTES) == InFlightLimit()


def test_first_it_is_measured_how_long_an_answer_takes_of_some_the_median() -> None:
    limit = InFlightLimit()
    for took_s in (9.0, 0.01, 0.03, 0.02, 0.04):
        assert limit.with_least_s[-1:] != (took_s,)
        limit = after(limit, took_s, LEAST_BYTES)
        assert limit.size == LEAST_BYTES
    moved = LEAST_BYTES * (1 + module.SHARE)
    assert after(limit, module.SLOWER * 0.03, 2 * LEAST_BYTES).size == pytest.approx(moved)


def test_it_stays_between_its_bounds() -> None:
    limit = InFlightLimit()
    for took_s, bound in ((0.001, MOST_BYTES), (1.0, LEAST_BYTES)):
        for _ in range(60):
            limit = after(limit, took_s, limit.size)
        assert limit.size == bound


def test_it_is_measured_anew_with_the_least_under_way() -> None:
    late_s = 1.1 * module.ANEW_S
    assert KNOWN.after(late_s - 1, late_s, 1e5) is KNOWN  # nobody needs it now
    anew = KNOWN.after(late_s - 1, late_s, 1e6)
    assert anew == InFlightLimit(with_least_s=(1.0,), began_s=late_s)
    assert anew.after(late_s, late_s + 0.5, LEAST_BYTES).with_least_s == (1.0, 0.5)
    assert InFlightLimit().after(0.0, 0.5, LEAST_BYTES).began_s == 0.5
    just_s = KNOWN.began_s + module.ANEW_S
    assert KNOWN.after(just_s - ALLOWED_S, just_s, 1e6).size == pytest.approx(1e6)


def test_what_is_promised_of_the_servers_memory_and_of_a_new_writer() -> None:
    assert (LEAST_BYTES, MOST_BYTES, module.ANEW_S) == (32_768, 4_194_304, 10.0)


@dataclass
class Servers:
    """They work on one multi after the other, and force to disk what has gathered."""

    way_s: float
    op_s: float
    byte_s: float
    disk_s: float
    busy_until_s: float = 0.0
    disk_until_s: float = 0.0

    def answered_s(self, sent_s: float, ops: int, size: float) -> float:
        begin_s = max(self.busy_until_s, sent_s + self.way_s)
        self.busy_until_s = begin_s + 1e-4 + ops * self.op_s + size * self.byte_s
        is_first = self.busy_until_s > self.disk_until_s
        stored_s = (self.busy_until_s if is_first else self.disk_until_s) + self.disk_s
        if is_first:
            self.disk_until_s = stored_s
        return stored_s + self.way_s


WORLDS = {
    "near": (150e-6, 20e-6, 1e-9, 1e-3),
    "slow disk": (150e-6, 20e-6, 1e-9, 20e-3),
    "far": (50e-3, 20e-6, 1e-9, 2e-3),
    "weak": (500e-6, 200e-6, 30e-9, 5e-3),
}
LIFE_S = 4.0


def life(servers: Servers, item: int, limit: InFlightLimit | None = None) -> tuple[float, float]:
    """Items a second that one writer puts, and the seconds that a small write beside it takes at
    the median. ``limit``: this one always.
    """
    queue = SendQueue(max_ops=groups.MULTI_OPS, max_bytes=groups.MULTI_BYTES)
    queue.is_halted = False
    order = count()
    events: list[tuple[float, int, PackedMulti | None]] = [(1.0, next(order), None)]
    waits: list[float] = []
    items, now_s = 0, 0.0
    while now_s < LIFE_S:
        queue.limit = limit or queue.limit
        while len(queue.waiting) < 2000:
            queue.waiting.append(OperationGroup([Create("/q/queue-", b"")], item + 150))
        while (batch := queue.next_batch()) is not None:
            batch.sent_s = now_s
            answered_s = servers.answered_s(now_s, len(batch.groups), batch.size)
            heapq.heappush(events, (answered_s, next(order), batch))
        now_s, _, answered = heapq.heappop(events)
        if answered is None:
            waits.append(servers.answered_s(now_s, 1, 200) - now_s)
            heapq.heappush(events, (now_s + 0.0503, next(order), None))
        else:
            answered.status = MultiStatus.APPLIED
            items += sum(len(one.groups) for one in queue.take_applied(now_s))
    return items / LIFE_S, sorted(waits)[len(waits) // 2]


@pytest.mark.parametrize(
    ("world", "item", "least_share", "most_waits"),
    [
        ("near", 100, 0.98, 10),
        ("near", 1000, 0.98, 5),
        ("near", 100_000, 0.98, 4),
        ("slow disk", 100, 0.95, 4),
        ("slow disk", 100_000, 0.85, 2),
        ("far", 100, 0.8, 3),
        ("far", 100_000, 0.75, 1.5),
        ("weak", 100, 0.98, 22),
        ("weak", 100_000, 0.98, 4),
    ],
)
def test_servers_are_kept_busy_and_a_neighbour_waits_little(
    world: str, item: int, least_share: float, most_waits: float
) -> None:
    """``least_share``: of the items that go with as much under way as ever may be, the start from
    the least included. ``most_waits``: how often as long as on idle servers.
    """
    most, _ = life(Servers(*WORLDS[world]), item, InFlightLimit(MOST_BYTES))
    idle_s = Servers(*WORLDS[world]).answered_s(0.0, 1, 200)
    rate, wait_s = life(Servers(*WORLDS[world]), item)
    assert rate >= least_share * most
    assert wait_s <= most_waits * idle_s
