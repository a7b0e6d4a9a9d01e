"""Several consumers on one queue, and what a consumer lives through: closing, pausing, sessions
that end.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from consumption import LOCKS, PATH, Held, Seen, Stuck, consuming, fill, is_empty

from leaderq.queues.consumers import QueueConsumer, QueueOptions
from leaderq.queues.consuming import Consumption
from leaderq.queues.wire.names import QueueKind
from leaderq.queues.wire.znodes import QueuePaths
from leaderq.testing import FaultProxy, eventually
from leaderq.threads import Retry
from leaderq.zookeeper import Session, SessionState, end_session

LOCKING = pytest.mark.parametrize("lock", [True, False], ids=["with-locks", "without"])


def end(session: Session, address: str) -> None:
    """End a session on the servers, behind its owner's back."""
    credentials = session.credentials
    assert credentials is not None
    assert end_session(address, credentials, timeout_s=60.0)


# ---- many at once


def test_a_batch_consumer_gets_many_and_what_failed_comes_alone(session: Session) -> None:
    fill(session, [b"%02d" % number for number in range(20)])
    batches: list[list[bytes]] = []

    def consume(values: list[bytes]) -> None:
        batches.append(list(values))
        if b"07" in values and len(batches) < 20:
            raise ValueError("one of them is bad")

    with consuming(
        session, None, consume_batch=consume, batch_items=6, retry=Retry(attempts=10, first_s=0.01)
    ):
        eventually(lambda: is_empty(session))
    assert all(len(batch) <= 6 for batch in batches)
    assert {value for batch in batches for value in batch} == {
        b"%02d" % number for number in range(20)
    }
    failed = next(batch for batch in batches if b"07" in batch)
    assert all([value] in batches for value in failed if len(failed) > 1)


@LOCKING
def test_several_consumers_share_a_queue_and_no_item_is_given_twice(
    opened: Callable[[], Session], lock: bool
) -> None:
    values = [b"%04d" % number for number in range(2000)]
    sessions = [opened() for _ in range(4)]
    seen = Seen()
    running = [
        Consumption(
            one,
            QueuePaths(PATH, LOCKS if lock else None),
            QueueKind.PLAIN,
            QueueOptions(consumer=seen),
        )
        for one in sessions
    ]
    for begin in range(0, 2000, 500):
        fill(sessions[0], values[begin : begin + 500])
    for one in running:
        one.start()
    assert sorted(seen.wait_for(2000, timeout_s=60)) == values
    eventually(lambda: is_empty(sessions[0]))
    assert all(one.close(30.0) for one in running)
    assert len(seen.values) == 2000


def test_what_a_dead_consumer_held_goes_to_an_idle_one(
    opened: Callable[[], Session], address: str
) -> None:
    dying, living = opened(), opened()
    fill(living, [b"a"])
    held, seen = Held(), Seen()
    with consuming(dying, held):
        assert held.entered.wait(60)
        with consuming(living, seen):
            eventually(lambda: len(living.children(f"{PATH}-meta/members")) == 2)
            assert seen.values == []
            end(dying, address)
            assert seen.wait_for(1) == [b"a"]
            eventually(lambda: is_empty(living))
            held.released.set()


# ---- the life of a consumer


def test_a_queue_whose_path_is_deleted_and_made_again_is_heard_again(session: Session) -> None:
    seen = Seen()
    with consuming(session, seen):
        fill(session, [b"a"])
        seen.wait_for(1)
        eventually(lambda: is_empty(session))
        session.delete(PATH)
        fill(session, [b"b"])
        assert seen.wait_for(2) == [b"a", b"b"]


def test_pausing_stops_what_is_not_begun_and_an_operator_can_do_it_too(session: Session) -> None:
    fill(session, [b"%d" % number for number in range(10)])
    held = Held()
    with consuming(session, held) as queue:
        assert held.entered.wait(60)
        queue.engine.pause_switch.set(True)
        held.released.set()
        eventually(lambda: queue.engine.ready.takers == 1)
        assert held.seen.values == [b"0"]
        session.ensure_path(f"{PATH}-meta/control")
        session.set(f"{PATH}-meta/control", b'{"paused": true}')
        eventually(lambda: queue.engine.pause_switch._by_operator)
        queue.engine.pause_switch.set(False)
        assert queue.engine.pause_switch.is_paused
        assert held.seen.values == [b"0"]
        session.set(f"{PATH}-meta/control", b"{}")
        assert len(held.seen.wait_for(10)) == 10


def test_closing_gives_back_what_was_claimed_ahead(session: Session) -> None:
    fill(session, [b"%03d" % number for number in range(300)])
    stuck = Stuck(50)
    seen = stuck.seen
    with consuming(session, stuck) as queue, ThreadPoolExecutor(1) as pool:
        assert stuck.entered.wait(60)
        closed = pool.submit(queue.close, 60.0)
        # what was claimed ahead was taken back by then
        eventually(lambda: queue.engine.ready.is_closed)
        stuck.released.set()
        assert closed.result(60)
    assert len(seen.values) == 50
    assert session.children(LOCKS) == []
    assert len(session.children(PATH)) == 250
    with consuming(session, seen):
        assert sorted(seen.wait_for(300)) == [b"%03d" % number for number in range(300)]


def test_closing_does_not_wait_for_a_consumer_that_hangs_and_what_it_does_is_acknowledged_later(
    session: Session,
) -> None:
    fill(session, [b"a"])
    held = Held()
    queue: Consumption[bytes] = Consumption(
        session, QueuePaths(PATH, LOCKS), QueueKind.PLAIN, QueueOptions(consumer=held)
    )
    queue.start()
    assert held.entered.wait(60)
    assert queue.close(0.1) is False
    assert not is_empty(session)
    held.released.set()
    eventually(lambda: is_empty(session) and session.children(LOCKS) == [])
    eventually(lambda: session.children(f"{PATH}-meta/members") == [])


def test_a_queue_consumer_hears_of_the_connection(session: Session) -> None:
    class Hearing(QueueConsumer[bytes]):
        def __init__(self) -> None:
            self.states: list[SessionState] = []
            self.seen = Seen()

        def consume(self, value: bytes) -> None:
            self.seen(value)

        def state_changed(self, state: SessionState) -> None:
            self.states.append(state)
            raise RuntimeError("harmless")

    hearing = Hearing()
    with consuming(session, hearing):
        session.drop_connection()
        eventually(
            lambda: (
                SessionState.SUSPENDED in hearing.states
                and hearing.states[-1] is SessionState.CONNECTED
            )
        )
        fill(session, [b"a"])
        assert hearing.seen.wait_for(1) == [b"a"]


def test_a_session_that_expires_is_followed_by_another_and_consuming_goes_on(
    opened: Callable[[], Session], address: str
) -> None:
    mine, other = opened(), opened()
    seen = Seen()
    with consuming(mine, seen):
        fill(other, [b"a"])
        seen.wait_for(1)
        eventually(lambda: is_empty(other))  # acknowledged; or it would come again
        end(mine, address)
        fill(other, [b"b"])
        assert seen.wait_for(2) == [b"a", b"b"]
        eventually(lambda: is_empty(other))


# ---- two of Curator's windows


def test_nothing_is_handed_out_while_the_connection_is_away(
    opened: Callable[..., Session], proxy: FaultProxy
) -> None:
    """F3: Curator skips the delete when its client is not connected, and calls the consumer all the
    same.
    """
    mine, other = opened(proxy.address), opened()
    held, seen = Held(), Seen()
    fill(other, [b"held", *[b"%03d" % number for number in range(200)]])
    with consuming(mine, held, lock=False):
        assert held.entered.wait(60)
        proxy.refuse()
        eventually(lambda: mine.state is SessionState.SUSPENDED)
        with consuming(other, seen, lock=False):
            held.released.set()
            eventually(lambda: is_empty(other))
            assert held.seen.values == [b"held"]  # although more may be claimed ahead
            proxy.heal()
            everything = lambda: held.seen.values + seen.values  # noqa: E731
            eventually(lambda: len(everything()) >= 201, timeout_s=60)
            assert sorted(set(everything())) == sorted(everything())
