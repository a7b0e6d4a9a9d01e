"""What is promised of Dyno queues, in simulated time on simulated servers: when a message comes
again, to whom it belongs, and in which order.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import pytest

from leaderq import clock
from leaderq.dyno import DynoQueue, Message, OnConflict, StaleLease, Worker, consumer
from leaderq.dyno.index import SLOWER
from leaderq.dyno.shard_view import ShardView
from leaderq.errors import ConnectionLost, QueueClosed, SessionClosed
from leaderq.testing.simulation.cluster import ADDRESS, SimulatedCluster
from leaderq.testing.simulation.installing import installed
from leaderq.testing.simulation.scheduler import Killed, Process, World
from leaderq.threads import Retry
from leaderq.zookeeper import Session, connect
from simulation.scenarios import Scene, every_point, nth, scene
from simulation.test_dyno_defects import left, sides, texts

T = TypeVar("T")
OFTEN = Retry(attempts=None, first_s=0.0)


class Play:
    """One process of a simulated world, in which the test's code runs."""

    def __init__(self, world: World, process: Process) -> None:
        self.world, self.process = world, process

    def session(self) -> Session:
        return connect(ADDRESS, timeout_s=4.0, connect_timeout_s=12.0)

    def queue(self, **options: Any) -> DynoQueue:
        return DynoQueue(self.session(), "/d", **options)

    def freeze(self, after_s: float, for_s: float) -> None:
        self.world.at(after_s, self.process.freeze)
        self.world.at(after_s + for_s, self.process.thaw)


def played(main: Callable[[Play], T], seed: int = 1) -> T:
    """What ``main`` returns, or raises, in a world of its own."""
    world, found, raised = World(seed), [], []
    cluster = SimulatedCluster(world)
    with installed(world, cluster.network):
        process = world.process("test")

        def run() -> None:
            try:
                found.append(main(Play(world, process)))
            except Killed:
                raise
            except BaseException as exc:
                raised.append(exc)

        process.spawn(run, "main")
        world.run(600.0, unless=lambda: bool(found or raised))
    if raised:
        raise raised[0]
    assert found, "it did not end"
    return found[0]


def test_a_lease_that_ended_while_its_consumer_was_frozen_is_not_handed_out() -> None:
    def main(play: Play) -> int:
        queue, late = play.queue(retry=OFTEN), 0
        for step in range(24):
            queue.push(Message(payload=b"%d" % step))
            play.freeze(step * 0.0005, 1.0)
            for one in queue.pop(1, 5.0, lease_s=0.5):
                late += one.left_s <= 0
                with suppress(StaleLease):
                    one.ack()
            clock.sleep(1.5)
        return late

    assert played(main) == 0


def test_a_letter_that_is_sent_back_keeps_its_priority() -> None:
    def main(play: Play) -> list[bytes]:
        queue = play.queue()
        queue.push(Message(payload=b"late", priority=7))
        (one,) = queue.pop(1, 5.0)
        one.kill()
        queue.push(Message(payload=b"early", priority=3))
        assert queue.dead_letters.redrive() == 1
        return [one.payload for one in queue.pop(2, 5.0)]

    assert played(main) == [b"early", b"late"]


def test_a_letter_tells_of_the_first_delivery_and_of_the_last_error() -> None:
    def main(play: Play) -> tuple[int, int, str]:
        queue = play.queue(retry=Retry(attempts=3, first_s=0.0))
        queue.push(Message(payload=b"x"))
        (one,) = queue.pop(1, 5.0)
        first_ms = clock.now_ms()
        for error in ("no", None, None):
            clock.sleep(5.0)
            one.nack(error)
            one = next(iter(queue.pop(1, 5.0)), one)
        (letter,) = queue.dead_letters.browse()
        return first_ms, letter.first_ms, letter.error

    first_ms, told_ms, error = played(main)
    assert abs(first_ms - told_ms) < 1000
    assert error == "no"


def test_each_of_four_consumers_serves_a_shard_of_its_own_first() -> None:
    shards = ["a", "b", "c", "d"]

    def main(play: Play) -> list[str]:
        queues = [play.queue(shards=shards) for _ in shards]
        for queue in queues:
            assert queue.pop(1, 0.0) == []
        clock.sleep(8.0)
        queues[0].push([Message(payload=b"x", shard=shard) for shard in shards * 2])
        clock.sleep(1.0)
        return [one.shard for queue in queues for one in queue.pop(1, 5.0)]

    assert sorted(played(main)) == shards


def test_consumers_that_meet_step_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    refused: list[str] = []
    real = ShardView.not_claimed

    def not_claimed(self: ShardView, name: str, error: Any = None) -> bool:
        refused.append(name)
        return real(self, name, error)

    monkeypatch.setattr(ShardView, "not_claimed", not_claimed)

    def main(play: Play) -> int:
        queues, done = [play.queue() for _ in range(6)], []
        queues[0].push([Message(payload=b"%d" % number) for number in range(60)])

        def work(queue: DynoQueue) -> None:
            while len(done) < 60:
                for one in queue.pop(1, 0.2):
                    one.ack()
                    done.append(one.id)

        for queue in queues:
            play.process.spawn(lambda queue=queue: work(queue), "consumer")
        while len(done) < 60:
            clock.sleep(0.1)
        return len(set(done))

    assert sum(played(main, seed) for seed in range(3)) == 180
    assert len(refused) < 500  # 342 as it is, 803 where nobody steps aside


@scene(5)
def test_a_pop_returns_what_there_is_as_soon_as_there_is_one(s: Scene) -> None:
    a, b = sides(s, "ab", lease_s=6.0)
    b.push(Message(payload=b"x"))
    began_s = s.now_s
    (one,) = a.pop(10, 6.0)
    assert s.now_s - began_s < 0.5
    assert b.pop(1, 4.0) == []
    a.who.do(one.ack)


@scene(5)
def test_who_waits_for_more_gets_what_there_is_before_a_third_of_the_first_lease_is_over(
    s: Scene,
) -> None:
    a, b = sides(s, "ab", lease_s=6.0)
    b.push(Message(payload=b"x"))
    began_s = s.now_s
    popping = a.who.begin(lambda: a.queue.pop(10, 30.0, least=10))
    s.run(1.0)
    b.push(Message(payload=b"y"))
    assert texts(popping.result()) == ["x", "y"]
    assert 1.9 < s.now_s - began_s < 2.1


@scene(5)
def test_a_delivery_is_counted_when_it_leaves_pop(s: Scene) -> None:
    a, b = sides(s, "ab")
    b.push(Message(payload=b"x"))
    popping = a.who.begin(lambda: a.queue.pop(2, None, least=2))
    s.run(1.0)
    a.who.do(a.queue.close)
    with pytest.raises(QueueClosed):
        popping.result()
    (one,) = b.pop(1, 5.0)
    assert (one.deliveries, one.failures) == (1, 0)
    b.who.do(one.release)
    (again,) = b.pop(1, 5.0)
    assert again.deliveries == 2


@pytest.mark.parametrize("skew_s", [-61.0, 40.0, 61.0])
def test_no_calendar_takes_the_leases_of_others_and_none_keeps_them(skew_s: float) -> None:
    @scene(3)
    def test_calendars(s: Scene) -> None:
        a, b = sides(s, "ab", lease_s=12.0, retry=OFTEN)
        b.pop(1, 0.0)
        a.push([Message(payload=b"x"), Message(payload=b"y")])
        b.who.process.skew_s = skew_s
        first = a.pop(2, 5.0, least=2)
        began_s = s.now_s
        s.run(5.0)
        a.who.process.skew_s -= 2 * skew_s  # both are set while the lease runs
        b.who.process.skew_s = 0.0
        assert b.pop(1, 6.0) == []
        a.who.do(first[0].ack)
        (again,) = b.pop(1, 60.0)
        assert again.failures == 1
        assert 12.0 <= s.now_s - began_s < 15.0
        with pytest.raises(StaleLease):
            a.who.do(first[1].ack)

    test_calendars()


@scene(5)
def test_a_slow_clock_does_not_take_a_lease_too_soon_and_a_fast_one_neither(s: Scene) -> None:
    a, b = sides(s, "ab", lease_s=48.0)
    b.pop(1, 0.0)
    a.push(Message(payload=b"x"))
    a.who.process.run_clock(0.98)
    b.who.process.run_clock(1.02)
    (one,) = a.pop(1, 5.0)
    popping = b.who.begin(lambda: b.queue.pop(1, 60.0))
    s.until(lambda: one.until_s <= a.who.process.clock_s() + 0.05, within_s=60.0)
    a.who.do(one.ack)
    assert popping.result(60.0) == []


@pytest.mark.parametrize("skew_s", [-2.5, 0.0, 2.5])
def test_a_calendar_that_is_wrong_is_told_when_a_consumer_enters(
    skew_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(consumer.log, "warning", lambda said, *values: told.append(said % values))

    def main(play: Play) -> None:
        play.process.skew_s = skew_s
        play.queue().pop(1)

    played(main)
    assert len(told) == (skew_s != 0.0)
    assert all(f"queue=/d s={skew_s:.1f}" in one for one in told)


@scene(5)
def test_a_delivery_that_was_redeemed_is_not_its_former_owners_any_more(s: Scene) -> None:
    a, b = sides(s, "ab")
    a.push(Message(payload=b"x"))
    (one,) = a.pop(1, 5.0)
    redeemed = b.redeem(str(one.receipt))
    for settle in (one.ack, one.extend, one.release):
        with pytest.raises(StaleLease):
            a.who.do(settle)
    assert redeemed.deliveries == 1
    b.who.do(redeemed.ack)


@pytest.mark.parametrize("lease_s", [3.0, 12.0])
def test_a_lease_that_nobody_settles_is_over_in_time(lease_s: float) -> None:
    def main(play: Play) -> float:
        hanging, other = play.queue(retry=OFTEN), play.queue(retry=OFTEN)
        hanging.push(Message(payload=b"x"))
        assert hanging.pop(1, 5.0, lease_s=lease_s)
        began_s = clock.now_s()
        assert other.pop(1, 60.0)
        return clock.now_s() - began_s

    assert lease_s <= played(main) < lease_s * SLOWER + 1.5


def test_a_message_that_was_redeemed_and_extended_does_not_end_with_its_former_session() -> None:
    def main(play: Play) -> tuple[int, list[Any]]:
        former_session = play.session()
        former, redeemer, other = DynoQueue(former_session, "/d"), play.queue(), play.queue()
        former.push(Message(payload=b"x"))
        (one,) = former.pop(1, 5.0, lease_s=30.0)
        delivery = redeemer.redeem(str(one.receipt))
        delivery.extend(60.0)
        former_session.close()
        found = other.pop(1, 10.0)
        delivery.ack()
        return len(found), [other.size()]

    assert played(main) == (0, [0])


def test_of_those_that_are_wanted_the_best_is_popped() -> None:
    def main(play: Play) -> bytes:
        queue = play.queue(shards=["a", "b"])
        queue.push(Message(payload=b"late", priority=9, shard="a"))
        queue.push(Message(payload=b"early", priority=1, shard="b"))
        found = queue.pop_where(lambda message: True)
        assert found is not None
        return found.payload

    assert played(main) == b"early"


@pytest.mark.parametrize("what", ["request", "answer"])
def test_of_many_that_replace_one_message_at_once_one_survives(what: str) -> None:
    def replace(s: Scene, point: int) -> list[Any]:
        every = sides(s, "abc")
        every[0].push(Message(id="a", payload=b"first"))
        lost = s.lose(every[1].who, nth(point), what)

        def many(queue: DynoQueue) -> None:
            for _ in range(3):
                queue.push_unique(Message(id="a", payload=b"x"), OnConflict.REPLACE)

        jobs = [one.who.begin(lambda one=one: many(one.queue)) for one in every]
        for job in jobs:
            with suppress(ConnectionLost):  # a read that breaks tells its caller so
                job.result()
        assert every[0].size() == 1
        every[1].ack(every[1].pop(1, 10))
        assert left(s) == []
        return lost

    assert every_point(replace) >= 5


@scene(10)
def test_a_pop_outlasts_an_outage_and_what_was_held_is_settled_after_it(s: Scene) -> None:
    a, b = sides(s, "ab", lease_s=60.0)
    b.push([Message(payload=b"1"), Message(payload=b"2")])
    held = a.pop(1, 5.0)
    s.cut(a.who)
    s.reset(a.who)
    popping = a.who.begin(lambda: a.queue.pop(1, 60.0))
    s.run(4.0)
    s.heal(a.who)
    assert texts(popping.result(5.0)) == ["2"]
    assert a.ack(held) == [None]


@pytest.mark.parametrize("end", ["queue", "session"])
def test_a_pop_that_waits_ends_with_its_queue_or_its_session(end: str) -> None:
    @scene(10)
    def test_end(s: Scene) -> None:
        (a,) = sides(s, "a")
        popping = a.who.begin(lambda: a.queue.pop(1, None))
        s.run(s.world.faults())
        a.who.do(a.queue.close if end == "queue" else a.who.session.close)
        with pytest.raises((QueueClosed, SessionClosed)):
            popping.result(1.0)
        with pytest.raises((QueueClosed, SessionClosed)):
            a.pop(1)

    test_end()


@scene(5)
def test_a_message_of_a_handler_that_hangs_passes_to_another_when_its_time_is_over(
    s: Scene,
) -> None:
    a, b = sides(s, "ab", lease_s=1.0)
    a.push(Message(payload=b"1"))
    worker = Worker(a.queue, lambda _: s.world.park(60.0), threads=1, most_s=5.0)
    a.who.do(worker.start)
    s.run(3.0)
    assert b.pop(1, 1.0) == []
    (one,) = b.pop(1, 6.0)
    assert one.failures == 1
    assert not a.who.do(lambda: worker.stop(0.1))


@scene(5)
def test_what_is_kept_stays_ours_and_its_end_is_told_before(s: Scene) -> None:
    a, b = sides(s, "ab", lease_s=1.0)
    a.push(Message(payload=b"1"))
    (one,) = a.pop(1, 5.0)
    told: list[float] = []
    a.who.do(
        lambda: a.queue.keep([one], most_s=5.0, ending=lambda _: told.append(s.now_s), ending_s=0.5)
    )
    (again,) = b.pop(1, 10.0)
    assert again.failures == 1
    assert 0.4 < s.now_s - told[0] < 2.0


@scene()
def test_one_message_of_a_group_is_in_flight_and_in_order(s: Scene) -> None:
    both = sides(s, "ab", shards=("a", "b"))
    both[0].push([Message(payload=b"%d" % one, group="g", priority=9 - one) for one in range(3)])
    for number in range(3):
        popping = [one.who.begin(lambda one=one: one.queue.pop(2, 1.0)) for one in both]
        found = [job.result() for job in popping]
        assert sorted(map(texts, found)) == [[], [str(number)]]
        for one, popped in zip(both, found, strict=True):
            one.ack(popped)
