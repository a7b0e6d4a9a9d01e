from __future__ import annotations

from typing import Any

import pytest

from leaderq.errors import ConnectionLost, NodeExists, NoPermission, PutsFailed, SessionExpired
from leaderq.queues.admin import Moved, Purged, QueueAdmin
from leaderq.queues.wire.payload import Note, encode
from leaderq.queues.wire.znodes import QueuePaths
from leaderq.zookeeper import Create, Delete
from leaderq.zookeeper.writing import SequencedWriter
from leaderq.zookeeper.writing.in_flight import LEAST_BYTES
from simulation.scenarios import Guest, Scene, every_point, is_multi, nth, scene
from simulation.test_queue_windows import LOCKS, LOST, Q, locks, opened, put, stored

TALLY = "/meta/tally"


def creates(first: int, count: int, size: int = 0) -> list[list[Any]]:
    data = [(b"%d" % number).rjust(size) for number in range(first, first + count)]
    return [[Create("/n/n-", one, sequential=True)] for one in data]


def lying(s: Scene) -> list[int]:
    znodes = s.cluster.znodes()
    return [int(znodes[path]) for path in sorted(znodes) if path.startswith("/n/n-")]


def tallies(s: Scene) -> list[str]:
    return [path for path in s.cluster.znodes() if path.startswith("/meta/")]


def writer(s: Scene, who: Guest, **more: Any) -> SequencedWriter:
    s.ask(lambda beside: beside.ensure_path("/n"))
    return who.do(lambda: SequencedWriter(who.session, TALLY, **more))


@LOST
@pytest.mark.parametrize("ephemeral", [False, True])
@every_point(8)
def test_each_group_is_applied_once_and_in_order_whichever_request_is_lost(
    s, point, ephemeral, what
):
    (a,) = s.guests("a")
    tally = writer(s, a, ephemeral=ephemeral, max_ops=4)
    lost = s.lose(a, nth(point), what)

    def main() -> None:
        while True:
            try:
                tally.open()
                break
            except ConnectionLost:
                s.world.park(0.05)
        groups = [*creates(0, 20), [Create("/n/x"), Create("/n/x")], *creates(20, 5)]
        futures = list(map(tally.submit, groups))
        assert tally.flush(60)
        assert isinstance(futures.pop(20).exception(0), NodeExists)
        assert [one.exception(0) for one in futures] == [None] * 25
        assert tally.close(30)

    a.do(main)
    assert lying(s) == [*range(25)]
    s.until(lambda: not tallies(s))
    return lost


@scene(3)
def test_a_writer_that_was_refused_fails_what_it_was_given_and_can_begin_again(s):
    (a,) = s.guests("a")
    tally, refusals = writer(s, a), [NoPermission("not yet", path=TALLY)]
    opened_at_last = tally.open

    def opening() -> None:
        if refusals:
            raise refusals.pop()
        opened_at_last()

    tally.open = opening

    def main() -> None:
        for number, kind in enumerate((NoPermission, type(None))):
            (future,) = map(tally.submit, creates(number, 1))
            assert isinstance(future.exception(5), kind)
        assert tally.close(30)

    a.do(main)
    assert lying(s) == [1]


@scene(10)
def test_a_persistent_tally_knows_in_the_next_session_what_the_last_one_did(s):
    (a,) = s.guests("a")
    tally = writer(s, a)
    a.do(tally.open)
    lost = s.lose(a, is_multi)
    futures = a.do(lambda: [tally.submit(one) for one in creates(0, 1)])
    s.until(lambda: lost)
    s.expire(a)
    futures += a.do(lambda: [tally.submit(one) for one in creates(1, 4)])
    assert a.do(lambda: [one.result(60) for one in futures])[0] is None
    assert lying(s) == [*range(5)]


@scene(10)
def test_an_ephemeral_tally_ends_with_its_session_and_says_what_is_certain(s):
    (a,) = s.guests("a")
    tally = writer(s, a, ephemeral=True)
    a.do(tally.open)
    s.network.cut("host-a", there=False)
    doubtful = a.do(lambda: [tally.submit(one) for one in creates(0, 1, LEAST_BYTES)])
    unsent = a.do(lambda: [tally.submit(one) for one in creates(1, 2)])
    s.until(lambda: lying(s) == [0])
    s.expire(a)
    s.reset(a)
    s.heal(a)
    errors = a.do(lambda: [type(one.exception(60)) for one in doubtful + unsent])
    assert errors == [ConnectionLost] + [SessionExpired] * 2
    assert tally.is_over
    assert isinstance(a.do(lambda: tally.submit([Delete("/n")]).exception(0)), SessionExpired)
    assert lying(s) == [0]


@scene(10)
def test_a_put_that_was_not_answered_in_time_says_that_the_outcome_is_unknown(s):
    (a,) = s.guests("a")
    queue = opened(a)
    s.network.cut("host-a", there=False)
    with pytest.raises(ConnectionLost, match="may have been stored"):
        a.do(lambda: queue.put("a", timeout_s=0.3))
    with pytest.raises(PutsFailed) as caught:
        a.do(lambda: queue.put_many(["b"], timeout_s=0.3))
    assert isinstance(caught.value.failures[0][1], ConnectionLost)
    s.heal(a)
    assert a.do(lambda: queue.flush_puts(60))
    assert stored(s) == ["a", "b"]


@LOST
@every_point(4)
def test_what_an_operator_moves_is_moved_once_whichever_write_is_lost(s, point, what):
    (a,) = s.guests("a")
    admin = QueueAdmin(a.session, QueuePaths(Q, LOCKS))
    letter = Create(f"{Q}-dead/queue-", encode([b"d"], Note(reason="attempts")), False, True)
    put(s, "a", "b", "c")
    s.ask(lambda beside: (beside.ensure_path(f"{Q}-dead"), beside.multi([letter] * 3)))
    lost = s.lose(a, nth(point, is_multi), what)

    def drain() -> list[bytes]:
        out: list[bytes] = []
        with admin.drain() as draining:
            for one in next(draining.batches(2)):
                out += one.items or ()
                draining.keep(one)
        return out

    assert a.do(drain) == [b"a", b"b"]
    assert stored(s) == ["c"]
    letters = admin.dead_letters
    assert a.do(lambda: letters.requeue(letters.browse())) == Moved(3)
    assert stored(s) == ["c", "d", "d", "d"]
    assert a.do(admin.purge) == Purged(deleted=4)
    assert (stored(s), locks(s)) == ([], [])
    assert not [path for path in s.cluster.znodes() if "/drained/" in path or "-dead/" in path]
    return lost


@scene(5)
def test_a_writer_notices_that_another_one_uses_its_guard(s):
    a, b = s.guests("ab")
    s.ask(lambda beside: beside.ensure_path("/n"))
    mine, other = (SequencedWriter(one.session, TALLY, max_ops=1) for one in (a, b))
    a.do(mine.open)
    b.do(other.open)
    b.do(lambda: other.submit(creates(2, 1)[0]).result(10))
    s.lose(a, nth(2, is_multi), "held")
    futures = a.do(lambda: [mine.submit(one) for one in creates(0, 2)])
    s.run(0.1)  # the first is refused
    s.network.cut("host-a", there=False)
    s.until(lambda: 1 in lying(s))
    s.reset(a)
    s.heal(a)
    errors = a.do(lambda: [one.exception(30) for one in futures])
    done = [number for number, error in enumerate(errors) if error is None]
    assert set(done) <= set(lying(s)), f"{done} are said to be done, and {lying(s)} are"


@scene(5)
def test_a_callback_that_raises_anything_keeps_no_other_group_from_its_outcome(s):
    class Rude(BaseException):
        """Of a user's, like those of pytest and of asyncio."""

    def raising(_done: object) -> None:
        raise Rude

    (a,) = s.guests("a")
    tally = writer(s, a, max_ops=2)

    def main() -> None:
        futures = [tally.submit(one) for one in creates(0, 5)]
        for one in futures[:3]:
            one.add_done_callback(raising)
        assert tally.flush(float("inf"))
        assert [one.exception(0) for one in futures] == [None] * 5
        assert tally.close(30)

    a.do(main)
