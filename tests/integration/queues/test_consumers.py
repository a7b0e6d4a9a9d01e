"""Several consumers on one queue, and what a consumer lives through: closing, pausing, sessions
that end.
"""

from __future__ import annotations

from consumption import LOCKS, PATH, Held, Seen, consuming, fill, is_empty

from leaderq.queues.consumers import QueueConsumer, QueueOptions
from leaderq.queues.consuming import Consumption
from leaderq.queues.wire.names import QueueKind
from leaderq.queues.wire.znodes import QueuePaths
from leaderq.testing import eventually
from leaderq.threads import Retry
from leaderq.zookeeper import Session, SessionState


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
