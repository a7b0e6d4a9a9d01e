"""Sending, batching, confirming, retrying, giving up, on a sink in memory; keys that are stuck."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from scripted_sink import Line, ScriptedSink, is_away, refuses, takes

from leaderq.errors import ConfigurationError, SinkAway, SinkBusy
from leaderq.producing import BatchOutcome, Block, BufferedProducer, Journal, Retry, Settlement
from leaderq.producing.sending import SinkSender
from leaderq.testing import eventually
from leaderq.threads import Service


class LineBehindLine(ScriptedSink):
    """Raises once, in the hand-over or in the outcome; keeps no books of what was before."""

    def __init__(self, *, is_at_hand_over: bool) -> None:
        super().__init__()
        self.is_at_hand_over, self.is_struck = is_at_hand_over, False

    def hand_over(self, batch: Sequence[Any], timeout_s: float) -> Callable[[], BatchOutcome]:
        self.handed.append(list(batch))
        if not self.is_struck and self.is_at_hand_over:
            self.is_struck = True
            raise SinkAway("no connection yet")

        def outcome() -> BatchOutcome:
            self.open.wait(60)
            if not self.is_struck:
                self.is_struck = True
                raise OSError("the sink does not know this")
            return self.send(batch, timeout_s)

        return outcome


@pytest.mark.parametrize("is_at_hand_over", [True, False])
def test_nothing_overtakes_a_batch_whose_hand_over_or_outcome_raised(producer, is_at_hand_over):
    sink = LineBehindLine(is_at_hand_over=is_at_hand_over)
    sink.shut()
    one = producer(sink, batch_items=2, linger_s=60.0, sends=range(4))
    if not is_at_hand_over:
        eventually(lambda: len(sink.handed) == 2)
    sink.open.set()
    assert one.flush(30)
    assert sink.confirmed == [0, 1, 2, 3]


class LosesWhatIsBehindARefusal(ScriptedSink):
    """As a Kafka client that is replaced when a broker has refused a record."""

    def hand_over(self, batch: Sequence[Any], timeout_s: float) -> Callable[[], BatchOutcome]:
        answer, clients = super().hand_over(batch, timeout_s), self._failures

        def outcome() -> BatchOutcome:
            found = answer()
            self._failures += bool(found.refused) and self._failures == clients
            return found

        return outcome


def test_nothing_is_given_behind_what_a_sink_lost_when_it_refused_a_record(producer):
    sink = LosesWhatIsBehindARefusal(refuses(1), takes)
    sink.shut()
    one = producer(sink, batch_items=2, linger_s=60.0, sink_timeout_s=60.0, sends=range(8))
    eventually(lambda: len(sink.handed) == 2)
    sink.open.set()
    assert not one.flush(30)
    assert sink.confirmed == [0, 2, 3, 4, 5, 6, 7]


def takes_the_first(batch: Sequence[Any]) -> BatchOutcome:
    return BatchOutcome(again=range(1, len(batch)))


@pytest.mark.parametrize(("line", "left"), [(is_away, [2, 3]), (takes_the_first, [3])])
def test_a_batch_is_handed_over_before_the_last_is_heard_of_and_never_behind_one_that_failed(
    producer, sink, line, left
):
    sink.shut()
    one = producer(batch_items=2, linger_s=60.0, sink_timeout_s=60.0, sends=range(8))
    eventually(lambda: sink.handed == [[0, 1], [2, 3]])
    assert not sink.confirmed
    sink.now(takes, line, takes)
    sink.open.set()
    assert one.flush(30)
    assert sink.confirmed == list(range(8))
    # Of the second something is left when the third has been given: both come again, together.
    assert sink.handed == [[0, 1], [2, 3], [4, 5], [*left, 4, 5], [6, 7]]


def test_requests_linger_for_company_and_a_full_batch_goes_at_once(producer, sink):
    one = producer(linger_s=60.0, batch_items=3, sends=range(4))
    eventually(lambda: sink.calls == [[0, 1, 2]])
    assert one.close(float("inf"))  # nobody lingers once it is closing
    assert sink.calls == [[0, 1, 2], [3]]


def test_a_request_that_is_too_old_is_dropped_when_its_turn_comes(producer, sink):
    sink.now(is_away)
    one = producer()
    one.send("old", ttl_s=0.01)
    one.send("young", ttl_s=60)
    eventually(lambda: one.snapshot().balance.dropped == {"expired": 1})
    sink.now(takes)
    assert one.flush(30).pending == 0
    assert sink.confirmed == ["young"]


def test_a_sink_that_is_busy_at_once_is_asked_again_after_a_pause(producer):
    pauses: list[float] = []

    def is_busy(batch: Sequence[Any]) -> BatchOutcome:
        raise SinkBusy("and does not wait")

    sink = ScriptedSink(is_busy)
    one = producer(sink, retry=Retry(first_s=0.01, most_s=0.01))
    pause = one._sender.service.pause
    one._sender.service.pause = lambda seconds: pauses.append(seconds) or pause(seconds)
    one.send("a")
    eventually(lambda: len(sink.calls) > 5)
    assert len([one for one in pauses if one > 0]) >= len(sink.calls) - 1
    sink.now(takes)
    assert one.flush(30)


def test_a_listener_that_flushes_without_end_stops_nobody(producer, sink):
    sink.now(refuses(0), takes)
    heard: list[Settlement] = []
    one = producer(batch_items=1, dropped_listener=lambda _: heard.append(one.flush(None)))
    one.send("refused")
    one.send("taken")
    assert one.flush(30).confirmed == 1
    assert [settlement.lost for settlement in heard] == [{"refused by the sink": 1}]


def test_without_a_thread_there_is_no_producer_and_its_journal_is_free(sink, place, monkeypatch):
    start = Service.start

    def none_left(service: Service) -> bool:
        if "producer" in service.name:
            raise RuntimeError("can't start new thread")
        return start(service)

    with monkeypatch.context() as patched:
        patched.setattr(Service, "start", none_left)
        with pytest.raises(RuntimeError, match="new thread"):
            BufferedProducer(sink, journal=place)
    assert sink.is_closed
    Journal(place).close()


def test_all_problems_of_the_settings_are_told_at_once(sink):
    given: dict[str, Any] = {
        "max_items": 0,
        "batch_items": 1.5,
        "name": 5,
        "ttl_s": -1,
        "key": "not callable",
        "when_full": "raise",
        "retry": 3,
        "linger_s": float("nan"),
    }
    with pytest.raises(ConfigurationError) as raised:
        BufferedProducer(sink, **given)
    for name, value in given.items():
        assert re.search(rf"\b{name}(=| is ){value!r}", str(raised.value))
    with pytest.raises(ConfigurationError, match=r"Block\.timeout_s='5'"):
        Block("5")
    with BufferedProducer(sink) as one, pytest.raises(ConfigurationError, match="persistence"):
        one.send("a", on_durable=print)


@pytest.mark.parametrize("not_a_time", [-1.0, float("nan"), "soon"])
def test_what_is_not_a_time_is_refused_whether_there_is_room_or_not(producer, not_a_time):
    one = producer()
    calls = [partial(one.send, "a"), partial(one.submit, "a"), one.flush, one.close]
    for call in [*calls, lambda **given: asyncio.run(one.asend("a", **given))]:
        with pytest.raises(ConfigurationError, match="timeout_s"):
            call(timeout_s=not_a_time)
    for call in calls[:2]:
        with pytest.raises(ConfigurationError, match="ttl_s"):
            call(ttl_s=not_a_time)
    assert one.snapshot().balance.accepted == 0


Record = tuple[str, int]


def all_but(key: str, error: SinkAway) -> Line:
    """Takes all records but those of this key, which come again."""

    def line(batch: Sequence[Record]) -> BatchOutcome:
        again = [at for at, record in enumerate(batch) if record[0] == key]
        return BatchOutcome(again=again, error=error if again else None)

    return line


def key_of(record: Record) -> str:
    return record[0]


@pytest.mark.parametrize("batch_items", [1, 10, 1000])
@pytest.mark.parametrize("has_journal", [False, True])
def test_the_healthy_keys_go_on_and_the_stuck_one_keeps_its_order(
    producer, sink, batch_items, has_journal, tmp_path
):
    sink.now(all_but("stuck", SinkAway("no leader for this one")))
    journal = tmp_path if has_journal else None
    one = producer(key=key_of, batch_items=batch_items, max_items=5000, journal=journal)
    sent: dict[str, list[int]] = {}
    for number in range(1000):
        for key in ("stuck", "healthy0") if number % 10 == 0 else (f"healthy{number % 3}",):
            one.send((key, number))
            sent.setdefault(key, []).append(number)
    eventually(lambda: one.snapshot().balance.confirmed == 1000)
    assert one.snapshot().balance.pending == 100
    assert "no leader" in str(one.snapshot().sink_error)
    sink.now(takes)
    assert one.flush(60)
    assert one.snapshot().sink_error is None
    for key, numbers in sent.items():
        assert [number for where, number in sink.confirmed if where == key] == numbers
    assert max(map(len, sink.calls)) <= batch_items


def test_what_the_sink_keeps_neither_expires_nor_counts_an_attempt(producer, sink):
    sink.now(all_but("kept", SinkBusy("no leader for this one")))
    retry = Retry(first_s=0.001, most_s=0.002, attempts=2)
    one = producer(key=key_of, retry=retry)
    future = one.submit(("kept", 0), ttl_s=0.05)
    eventually(lambda: one.snapshot().retries >= 50)
    sink.now(takes)
    assert future.result(60) is None
    assert sink.confirmed == [("kept", 0)]


@pytest.mark.parametrize(("held", "is_asked"), [(4, True), (5, False), (6, False)])
def test_what_is_held_back_for_stuck_keys_takes_at_most_half_of_the_memory(held, is_asked):
    asked: list[float] = []
    sender: Any = SimpleNamespace(
        _held={"stuck": range(held)},
        _options=SimpleNamespace(max_items=10),
        _buffer=SimpleNamespace(take_batch=lambda until_s: asked.append(until_s) or []),
        service=SimpleNamespace(pause=lambda seconds: None),
    )
    assert SinkSender._fresh(sender, 7.0) == []
    assert asked == ([7.0] if is_asked else [])
