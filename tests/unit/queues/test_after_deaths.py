"""What becomes of items over which consumers die or fail, and of what killed users have left
behind, in simulated time.
"""

from __future__ import annotations

import pytest
from simulation.scenarios import Guest, Scene, scene
from simulation.test_queue_windows import Q, Work, consuming, is_clean, opened, put

from leaderq.base import clock
from leaderq.queues import DistributedQueue, SimpleDistributedQueue
from leaderq.queues.wire.payload import decode
from leaderq.threads import Retry
from leaderq.zookeeper.writing import writer


@scene(5)
def test_an_item_over_which_consumers_die_is_set_aside_and_no_other(s):
    """After as many deaths as the retry policy says."""
    innocent = [*map(str, range(40))]
    put(s, *innocent[:20], "poison", *innocent[20:])
    begun: list[str] = []
    guests = s.guests("abcd")

    def start(who: Guest) -> None:
        def work(value: str) -> None:
            begun.append(value)
            if value == "poison":
                who.process.exit(9)
            clock.sleep(0.001)

        consuming(who, work, retry=Retry(attempts=2, first_s=0.0))

    admin = opened(s.beside)
    for who in guests:
        start(who)
        s.until(lambda who=who: is_clean(s) or not who.process.alive)
        s.run(10.0)
    deaths = begun.count("poison")
    assert 2 <= deaths <= 3
    (letter,) = s.ask(lambda _: [*admin.dead_letters.browse()])
    assert (letter.found.items, letter.note.reason) == ([b"poison"], "died")
    assert "consumers died while they worked on it" in letter.note.error
    assert {*begun} == {*innocent, "poison"}
    assert is_clean(s)
    claims = [one for one in s.cluster.znodes() if one.startswith(f"{Q}-meta/claims/")]
    assert len(claims) == sum(who.process.alive for who in guests)


def guards(s: Scene) -> set[str]:
    return {one for one in s.cluster.znodes() if one.startswith(f"{Q}-meta/tallies/")}


@pytest.mark.parametrize("kind", [DistributedQueue, SimpleDistributedQueue])
@scene(1)
def test_what_killed_users_have_left_is_swept_once_it_is_old_when_a_queue_is_opened(
    s, monkeypatch, kind
):
    monkeypatch.setattr(writer, "OLD_S", 100.0)
    a, b, c = s.guests("abc")

    def use(who: Guest) -> set[str]:
        def main() -> None:
            queue = kind(who.session, Q)
            queue.start()
            queue.offer(b"x") if kind is SimpleDistributedQueue else queue.put(b"x")
            assert queue.take(60) is not None

        before = guards(s)
        who.do(main)
        return guards(s) - before

    dead = use(a)
    a.process.kill()
    s.run(60.0)
    living = use(b)
    assert len(dead) == len(living) == 2
    s.run(60.0)
    use(c)
    s.until(lambda: not dead & guards(s))
    assert living <= guards(s)


@pytest.mark.parametrize("lock", [True, False])
@scene(1)
def test_a_failed_item_rests_for_all_consumers_and_not_for_its_own_only(s, lock):
    a, b = s.guests("ab")
    put(s, "x")
    s.run(10.0)
    first, second = Work(fails=1), Work()
    consuming(a, first, lock, retry=Retry(attempts=3, first_s=60.0, jitter=0.0))
    s.until(lambda: first.begun)
    s.run(1.0)
    (path,) = (one for one in s.cluster.znodes() if one.startswith(f"{Q}/"))
    note = decode(s.cluster.znodes()[path]).note
    assert note.attempt == 1
    assert note.enqueued_ms < a.do(clock.now_ms) - 10_000
    a.process.kill()
    consuming(b, second, lock)
    s.run(50.0)
    assert second.begun == []
    s.until(lambda: second.done == ["x"], within_s=15.0)
