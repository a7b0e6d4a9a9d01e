"""What queues offer to metrics: every figure that is documented, by the program itself."""

from __future__ import annotations

from typing import Any

import pytest

from leaderq.dyno import Message
from leaderq.kafka.handling.context import DrainFigures
from leaderq.observability import figures
from leaderq.observability.figures import COUNTED, DEPTHS, FigureSource, read_figures
from leaderq.observability.metrics import TABLE
from leaderq.producing import BufferedProducer, CallableSink
from leaderq.queues import DistributedDelayQueue, DistributedQueue, SimpleDistributedQueue
from leaderq.threads import Retry
from simulation.scenarios import Scene, scene
from simulation.test_dyno_defects import D, sides


def documented(source: FigureSource) -> set[str]:
    return {row.figure for row in TABLE if row.source is source}


def offered(path: str) -> dict[str, float]:
    return dict(read_figures()[FigureSource.QUEUE, path])


def deep(s: Scene, path: str) -> dict[str, float]:
    """Once depths were looked at, which a scrape asks for."""
    for _ in range(2):
        offered(path)
        s.run(12.0)
    return offered(path)


ONCE = Retry(attempts=1)


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "_offers", [])


@scene(1)
def test_a_queue_of_messages_offers_all_that_is_documented(s):
    a, b = sides(s, "ab", lease_s=5.0, retry=ONCE)
    b.push([Message(payload=b"%d" % number) for number in range(4)])
    b.push([Message(payload=b"later", timeout_s=500.0)])
    done, failed, kept = a.pop(3, 5.0, least=3)
    a.who.do(done.ack)
    a.who.do(failed.nack)
    a.who.do(lambda: a.queue.keep([kept]))
    said = deep(s, D)
    assert documented(FigureSource.QUEUE) <= said.keys()
    counts = {"put": 5, "taken": 3, "acknowledged": 1, "dead_letters": 1, "held": 1}
    depths = {"ready": 1, "delayed": 1, "in_flight": 1, "dead": 1}
    assert {**said, **counts, **depths} == said
    assert said["oldest_due_s"] > 0


@scene(1)
def test_what_comes_again_and_what_was_lost_are_counted(s):
    a, b = sides(s, "ab", lease_s=2.0, retry=Retry(attempts=None, first_s=0.0))
    b.push(Message(payload=b"x"))
    (one,) = a.pop(1, 5.0)
    (again,) = b.pop(1, 20.0)
    with pytest.raises(Exception, match="not this consumer's"):
        a.who.do(one.ack)
    b.who.do(again.release)
    said = offered(D)
    counts = {"taken": 2, "redelivered": 1, "timeouts": 1, "lost": 1, "returned": 1}
    assert {**said, **counts} == said


def refuse(value: bytes) -> None:
    if value == b"bad":
        raise ValueError(value)


@pytest.mark.parametrize("lock", ["/locks", None])
@pytest.mark.parametrize("kind", [DistributedQueue, DistributedDelayQueue])
@scene(1)
def test_a_queue_of_curator_s_recipes_offers_all_that_is_documented(s, kind, lock):
    (a,) = s.guests("a")
    queue = a.do(lambda: kind(a.session, "/q", lock_path=lock, consumer=refuse, retry=ONCE))
    a.do(queue.start)
    late = int(kind is DistributedDelayQueue)
    more: Any = {"delay_s": 0} if late else {}
    for value in (b"good", b"bad", b"good"):
        a.do(lambda value=value: queue.put(value, **more))
    if late:
        a.do(lambda: queue.put(b"late", delay_s=500.0))
    said = deep(s, "/q")
    assert documented(FigureSource.QUEUE) <= said.keys()
    counts = {"put": 3 + late, "taken": 3, "acknowledged": 2, "dead_letters": 1, "held": 0}
    depths = {"ready": 0, "delayed": late, "in_flight": 0, "dead": 1, "pending_puts": 0}
    assert {**said, **counts, **depths} == said
    a.do(queue.close)


@scene(1)
def test_a_simple_queue_offers_all_that_is_documented(s):
    (a,) = s.guests("a")
    queue = a.do(lambda: SimpleDistributedQueue(a.session, "/q"))
    for _ in range(3):
        a.do(lambda: queue.offer(b"x"))
    a.do(queue.take)
    said = deep(s, "/q")
    assert documented(FigureSource.QUEUE) <= said.keys()
    assert (said["put"], said["taken"], said["acknowledged"], said["ready"]) == (3, 1, 1, 2)
    assert said["oldest_due_s"] > 5
    a.do(queue.close)


def test_what_queues_count_is_documented_and_so_is_what_others_offer():
    assert {*COUNTED, *DEPTHS, "held", "pending_puts"} == documented(FigureSource.QUEUE)
    assert documented(FigureSource.DRAIN) == set(DrainFigures().read())
    with BufferedProducer(CallableSink(lambda batch: None), name="orders"):
        said = read_figures()[FigureSource.PRODUCER, "orders"]
    assert documented(FigureSource.PRODUCER) <= {name.partition(":")[0] for name in said}
