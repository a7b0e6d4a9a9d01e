"""Several consumers on one queue, and what a consumer lives through: closing, pausing, sessions
that end.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from consumption import LOCKS, PATH, Held, Seen, Stuck, consuming, fill, is_empty

from leaderq.clock import now_s
from leaderq.errors import ConnectionLost
from leaderq.queues.consumers import QueueConsumer, QueueOptions
from leaderq.queues.consuming import ConsumerDeathWatcher, Consumption
from leaderq.queues.consuming.claims import Claim, ClaimAttempt, ClaimResult
from leaderq.queues.wire.names import QueueKind
from leaderq.queues.wire.payload import encode
from leaderq.queues.wire.znodes import QueuePaths
from leaderq.retrying import RetryPolicy
from leaderq.testing import FaultProxy, eventually
from leaderq.writing import SequencedWriter
from leaderq.zookeeper import Session, SessionState, end_session

QUICK = RetryPolicy(attempts=3, backoff_s=0.01, jitter=0)
LOCKING = pytest.mark.parametrize("lock", [True, False], ids=["with-locks", "without"])


def end(session: Session, address: str) -> None:
    """End a session on the servers, behind its owner's back."""
    credentials = session.credentials
    assert credentials is not None
    assert end_session(address, credentials, timeout_s=60.0)


# ---- many at once


def test_a_slow_item_does_not_hold_up_others(session: Session) -> None:
    fill(session, [b"slow", *[b"%d" % number for number in range(30)]])
    seen, released = Seen(), threading.Event()

    def work(value: bytes) -> None:
        if value == b"slow":
            released.wait(120)
        seen(value)

    with consuming(session, work, concurrency=3):
        assert b"slow" not in seen.wait_for(30)
        released.set()
        assert seen.wait_for(31)[-1] == b"slow"


def test_what_a_stuck_consumer_has_claimed_ahead_goes_to_others(
    opened: Callable[[], Session],
) -> None:
    mine, other = opened(), opened()
    fill(other, [b"%03d" % number for number in range(300)])
    seen, stuck, released = Seen(), threading.Event(), threading.Event()

    def get_stuck(value: bytes) -> None:
        seen(value)
        if len(seen.values) == 100:
            stuck.set()
            released.wait(60)

    with consuming(mine, get_stuck):
        assert stuck.wait(60)
        with consuming(other, seen):
            assert len(set(seen.wait_for(300, timeout_s=60))) == 300
            released.set()


def test_a_batch_consumer_gets_many_and_what_failed_comes_alone(session: Session) -> None:
    fill(session, [b"%02d" % number for number in range(20)])
    batches: list[list[bytes]] = []

    def consume(values: list[bytes]) -> None:
        batches.append(list(values))
        if b"07" in values and len(batches) < 20:
            raise ValueError("one of them is bad")

    with consuming(
        session, None, consume_batch=consume, batch_items=6, retry=RetryPolicy(backoff_s=0.01)
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


def test_the_lock_path_may_vanish(session: Session) -> None:
    seen = Seen()
    with consuming(session, seen):
        session.delete(LOCKS)
        fill(session, [b"a"])
        assert seen.wait_for(1) == [b"a"]


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


def test_closing_without_locks_loses_nothing_that_was_not_begun(session: Session) -> None:
    fill(session, [b"%03d" % number for number in range(300)])
    stuck = Stuck(50)
    seen = stuck.seen
    queue: Consumption[bytes] = Consumption(
        session, QueuePaths(PATH), QueueKind.PLAIN, QueueOptions(consumer=stuck)
    )
    queue.start()
    assert stuck.entered.wait(60)
    assert not queue.close(0.01)
    stuck.released.set()
    with consuming(session, seen, lock=False):
        assert sorted(seen.wait_for(300)) == [b"%03d" % number for number in range(300)]
        eventually(lambda: is_empty(session))
    assert len(seen.values) == 300


@pytest.mark.parametrize("locks", [None, LOCKS])
def test_what_is_claimed_when_closing_is_over_goes_back(
    session: Session, monkeypatch: pytest.MonkeyPatch, locks: str | None
) -> None:
    begun, closed = threading.Event(), threading.Event()
    finish = ClaimAttempt.finish

    def finish_late(claiming: ClaimAttempt) -> ClaimResult:
        begun.set()
        assert closed.wait(60)
        return finish(claiming)

    monkeypatch.setattr(ClaimAttempt, "finish", finish_late)
    fill(session, [b"1", b"2"])
    seen = Seen()
    queue: Consumption[bytes] = Consumption(
        session, QueuePaths(PATH, locks), QueueKind.PLAIN, QueueOptions(consumer=Held())
    )
    queue.start()
    assert begun.wait(60)
    assert not queue.close(0.01)
    closed.set()
    with consuming(session, seen, lock=locks is not None):
        assert sorted(seen.wait_for(2)) == [b"1", b"2"]


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


def test_the_warden_pokes_when_a_member_vanishes_and_items_lie_free(
    opened: Callable[[], Session], address: str
) -> None:
    dying, watching = opened(), opened()
    fill(watching, [b"a"])
    warden = ConsumerDeathWatcher(watching, QueuePaths(PATH, LOCKS), QueueKind.PLAIN)
    warden.start()
    held = Held()
    with consuming(dying, held):
        assert held.entered.wait(60)
        eventually(lambda: bool(warden._members))
        fired = threading.Event()
        watching.children(PATH, lambda _event: fired.set())
        end(dying, address)
        eventually(lambda: not watching.children(LOCKS) or warden.wake_ups)
        held.released.set()
        assert fired.wait(60)
    warden.close()
    assert "poke" not in watching.children(PATH)


def losing(monkeypatch: pytest.MonkeyPatch, session: Session, ask: str, path: str) -> list[str]:
    """From now on the answer to the first ``ask`` about ``path`` is lost; what was lost is
    noted.
    """
    lost: list[str] = []
    request = getattr(session, ask)

    def asked(about: str, *rest: Any, **more: Any) -> Any:
        if about.startswith(path) and not lost:
            lost.append(about)
            raise ConnectionLost("the answer was lost", path=about)
        return request(about, *rest, **more)

    monkeypatch.setattr(session, ask, asked)
    return lost


def test_other_consumers_are_counted_although_the_first_answer_was_lost(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.ensure_path(f"{PATH}-meta/members/another")
    lost = losing(monkeypatch, session, "children", f"{PATH}-meta/members")
    with consuming(session, Seen()) as queue:
        eventually(lambda: queue.engine._members.share is not None)
    assert lost


def test_an_operators_pause_is_heeded_although_the_first_answer_was_lost(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.ensure_path(f"{PATH}-meta/control")
    session.set(f"{PATH}-meta/control", b'{"paused": true}')
    lost = losing(monkeypatch, session, "get", f"{PATH}-meta/control")
    with consuming(session, Seen()) as queue:
        eventually(lambda: queue.engine.pause_switch.is_paused)
    assert lost


def test_java_is_woken_although_an_answer_about_the_dead_consumer_was_lost(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(session, [b"a"])
    session.ensure_path(f"{PATH}-meta/members/dying")
    session.ensure_path(f"{PATH}-meta/claims/dying")
    session.ensure_path(LOCKS)
    watcher = ConsumerDeathWatcher(session, QueuePaths(PATH, LOCKS), QueueKind.PLAIN)
    watcher.start()
    try:
        eventually(lambda: bool(watcher._members))
        lost = losing(monkeypatch, session, "exists", f"{PATH}-meta/claims")
        session.delete(f"{PATH}-meta/members/dying")
        eventually(lambda: watcher.wake_ups == 1)
        assert lost
    finally:
        watcher.close()


def test_a_consumer_that_could_not_enter_a_new_session_at_once_enters_it_later(
    opened: Callable[[], Session], address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, other = opened(), opened()
    with consuming(mine, Seen(), lock=False):
        lost = losing(monkeypatch, mine, "create", f"{PATH}-meta/members")
        end(mine, address)
        eventually(lambda: lost and len(other.children(f"{PATH}-meta/members")) == 1)


def test_no_claim_stands_from_the_moment_on_when_the_end_of_its_session_is_heard_of(
    opened: Callable[[], Session], address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = opened()
    stood: list[bool] = []
    with consuming(mine, Seen()) as queue:
        membership = queue.engine._membership
        claim = Claim("queue-0000000000", b"", 0, 0, membership)
        assert queue.engine.is_ours(claim)
        # a thread that comes late
        monkeypatch.setattr(membership.writer, "_in_background", lambda job: None)
        mine.add_listener(
            lambda state: (
                stood.append(queue.engine.is_ours(claim)) if state is SessionState.LOST else None
            )
        )
        end(mine, address)
        eventually(lambda: stood == [False])
        monkeypatch.undo()


@pytest.mark.parametrize(("lock", "proofs"), [(True, 1), (False, 0)], ids=["with-locks", "without"])
def test_what_was_claimed_long_ago_is_begun_once_the_session_is_known_to_stand(
    session: Session, monkeypatch: pytest.MonkeyPatch, lock: bool, proofs: int
) -> None:
    late, sent = [0.0], []
    monkeypatch.setattr("leaderq.clock.now_s", lambda: now_s() + late[0])
    session.create(PATH)
    session.create(f"{PATH}/queue-", encode([b"a", b"b", b"c"]), sequential=True)
    with consuming(session, lock=lock) as queue:
        first = queue.take(60.0)
        late[0] = session.timeout_s
        submit = SequencedWriter.submit
        monkeypatch.setattr(
            SequencedWriter,
            "submit",
            lambda *args, **how: (sent.append(args), submit(*args, **how))[1],
        )
        others = [queue.take(60.0), queue.take(60.0)]
        assert len(sent) == proofs
        assert [item.value for item in (first, *others)] == [b"a", b"b", b"c"]
        for item in (first, *others):
            item.ack()
    assert is_empty(session)


def test_an_item_deleted_behind_the_consumers_back_leaves_no_lock(session: Session) -> None:
    first, *_ = fill(session, [b"a", b"b", b"c"])
    held = Held()
    with consuming(session, held):
        assert held.entered.wait(60)
        session.delete(f"{PATH}/{first}")
        held.released.set()
        assert held.seen.wait_for(3) == [b"a", b"b", b"c"]
        eventually(lambda: is_empty(session) and session.children(LOCKS) == [])


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


def test_a_due_item_goes_although_those_before_it_are_held_by_others(
    opened: Callable[..., Session],
) -> None:
    """F15: Curator's delay queue sleeps without limit after a batch in which it got nothing."""
    holding, mine = opened(), opened()
    held, seen = Held(), Seen()
    now_ms = int(time.time() * 1000)
    fill(holding, [b"held"], QueueKind.DELAY, due_ms=now_ms - 1000)
    with consuming(holding, held, kind=QueueKind.DELAY):
        assert held.entered.wait(60)
        fill(mine, [b"later"], QueueKind.DELAY, due_ms=now_ms + 700)
        with consuming(mine, seen, kind=QueueKind.DELAY):
            assert seen.wait_for(1) == [b"later"]
            held.released.set()
