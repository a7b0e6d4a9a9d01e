"""Records handled by coroutines, side by side, on the event loop of a career."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from contextvars import ContextVar
from typing import Any

import pytest

from leaderq import AsyncKafkaLeaderCareer, AsyncTerm, KafkaLeaderCareer
from leaderq.errors import ConfigurationError, Reason
from leaderq.kafka import Record, retry, skip
from leaderq.kafka.handling.batch_handler import BatchWork
from leaderq.testing import drive, records


def given(*keys: str, partition: int = 0) -> list[Record]:
    pairs = [(None if key == "-" else key.encode(), b"%d" % at) for at, key in enumerate(keys)]
    return records("t", pairs, partition=partition)


def numbers(found: Sequence[Record]) -> list[int]:
    return [record.offset for record in found]


class Reading(AsyncKafkaLeaderCareer):
    topics = "t"
    order = "key"


def reading(handle_record: Callable[..., Any], **attributes: Any) -> Any:
    return type("Own", (Reading,), {"handle_record": handle_record, **attributes})()


class Counting(Reading):
    def __init__(self) -> None:
        self.in_hand: Counter[Any] = Counter()
        self.most = 0
        self.seen: dict[Any, list[int]] = defaultdict(list)

    async def handle_record(self, record: Record, term: AsyncTerm) -> None:
        key = record.partition, record.key
        self.in_hand[key] += 1
        self.most = max(self.most, self.in_hand.total())
        if self.order == "key" and record.key is not None:
            assert self.in_hand[key] == 1
        await asyncio.sleep(0.001)
        self.seen[key].append(record.offset)
        self.in_hand[key] -= 1


def test_keys_are_in_order_and_as_many_at_a_time_as_concurrency_says():
    career = Counting()
    career.concurrency = 3
    driven = drive(career, given(*"abcdabcdabcdaaa"))
    assert driven.left == []
    assert career.most == 3
    assert all(seen == sorted(seen) for seen in career.seen.values())
    assert sum(map(len, career.seen.values())) == 15


@pytest.mark.parametrize(("order", "most"), [("partition", 2), ("none", 6), ("key", 3)])
def test_the_order_says_which_records_wait_for_each_other(order, most):
    career = Counting()
    career.order = order
    drive(career, [*given(*"aab"), *given(*"bbb", partition=1)])
    assert career.most == most


def test_a_batch_is_handed_over_whole_to_a_handle_of_ones_own():
    calls: list[list[int]] = []

    async def handle(_self: Any, records: Sequence[Record], _term: AsyncTerm) -> None:
        await asyncio.sleep(0)
        calls.append(numbers(records))

    whole = type("Whole", (AsyncKafkaLeaderCareer,), {"topics": "t", "handle": handle})
    assert drive(whole(), given(*"abc")).left == []
    assert calls == [[0, 1, 2]]


def test_what_is_produced_side_by_side_is_stored_in_the_order_of_the_batch():
    async def produce(self: Any, record: Record, _term: AsyncTerm) -> None:
        async def later() -> None:
            self.produce("out", record.value + b"!")

        await asyncio.sleep(0.01 / (1 + record.offset))  # the last one is the first to be done
        self.produce("out", record.value)
        await asyncio.create_task(later())

    driven = drive(reading(produce, offsets="transaction", order="none"), given(*"abc"))
    assert [one.value for one in driven.produced] == [b"0", b"0!", b"1", b"1!", b"2", b"2!"]


def test_effects_of_a_failed_attempt_are_dropped_and_no_others():
    failed: list[int] = []

    async def attempt(self: Any, record: Record, _term: AsyncTerm) -> None:
        self.produce("out", record.value)
        if record.offset == 1 and not failed:
            failed.append(1)
            raise ValueError

    career = reading(attempt, offsets="transaction", on_error=retry(2, backoff_s=0.0))
    assert [one.value for one in drive(career, given(*"abc")).produced] == [b"0", b"1", b"2"]


def test_when_the_term_is_to_end_only_what_is_in_front_of_a_begun_record_is_still_handled():
    """Else the next leader would repeat what was done behind it."""
    seen: list[int] = []

    async def resign(_self: Any, record: Record, term: AsyncTerm) -> None:
        if not seen:
            term.resign()
        seen.append(record.offset)

    # The chain of key b is the longest, so its records 4, 5 and 6 come first.
    driven = drive(reading(resign, concurrency=2), given(*"acdfbbbe"))
    assert driven.reason is Reason.RESIGNED
    assert numbers(driven.committed) == sorted(seen)
    assert len(seen) < 8


@pytest.mark.parametrize("swallows", [False, True])
def test_an_atomic_career_is_cancelled_and_what_is_done_is_committed(swallows):
    async def sleep(_self: Any, record: Record, term: AsyncTerm) -> None:
        if record.offset < 2:
            return
        if record.offset == 2:
            term._term.wind_up(Reason.WITHDRAWN)  # as the runner does
        with suppress(asyncio.CancelledError) if swallows else nullcontext():
            await asyncio.sleep(60)

    driven = drive(reading(sleep, atomic=True), given(*"abcd"))
    assert numbers(driven.committed) == ([0, 1, 2, 3] if swallows else [0, 1])


async def leaks(_record: Record) -> None:
    leaked.extend(asyncio.create_task(asyncio.sleep(60)) for _ in range(100))


async def returns_a_coroutine(_record: Record) -> Any:
    return leaks(_record)


async def cancels_itself(_record: Record) -> None:
    raise asyncio.CancelledError


async def cancels_its_task(_record: Record) -> None:
    """And returns before it would notice."""
    asyncio.current_task().cancel()


async def exits(_record: Record) -> None:
    raise SystemExit(3)


async def throws_itself_away(_record: Record) -> None:
    raise GeneratorExit


leaked: list[Any] = []
FAILING = [cancels_itself, cancels_its_task, exits, throws_itself_away]
RUDE = [leaks, returns_a_coroutine, *FAILING]


@pytest.mark.parametrize("rude", RUDE, ids=lambda each: each.__name__)
def test_a_rude_handler_costs_its_own_record_and_no_other(rude):
    class Rude(Counting):
        on_error = skip()

        async def handle_record(self, record: Record, term: AsyncTerm) -> Any:
            await super().handle_record(record, term)
            if record.offset == 1:
                return await rude(record)
            return None

    career = Rude()
    driven = drive(career, given(*"abcabc"), may_fail=True)
    if rude is returns_a_coroutine:  # a fault of the program, not of the record
        assert "returned" in str(driven.error)
        return
    assert driven.left == []
    assert numbers(driven.skipped) == ([1] if rude in FAILING else [])
    repeated = Counter(offset for seen in career.seen.values() for offset in seen)
    assert all(times == 1 for offset, times in repeated.items() if offset != 1)
    assert repeated.total() == 6 + (repeated[1] - 1)
    assert all(task.done() for task in leaked)


def test_a_coroutine_of_leaderqs_that_fails_is_heard(monkeypatch):
    """It ended without a word, and its records were begun again without end."""

    def fail(*_: object) -> None:
        raise KeyError("of leaderq's own")

    monkeypatch.setattr(BatchWork, "_note", fail)
    driven = drive(Counting(), given(*"abc"), may_fail=True)
    assert isinstance(driven.error, KeyError)
    assert len(driven.left) == 3


def test_a_handler_that_cancels_all_tasks_of_the_loop_fails_what_is_in_hand_and_no_term():
    class Clearing(Counting):
        on_error = retry(3, backoff_s=0.0, then=skip())
        concurrency = 3
        has_cleared = False

        async def handle_record(self, record: Record, term: AsyncTerm) -> None:
            if record.offset == 1 and not self.has_cleared:
                self.has_cleared = True
                for task in asyncio.all_tasks():
                    task.cancel()
            await asyncio.sleep(0)
            self.seen[record.key].append(record.offset)

    driven = drive(career := Clearing(), given(*"abcdefabc"))
    assert (driven.left, driven.skipped, driven.error) == ([], [], None)
    assert career.seen[b"a"] == [0, 6] and career.seen[b"b"] == [1, 7]


def test_what_a_handler_sets_in_its_context_is_not_seen_by_the_next_one():
    mark: ContextVar[int | None] = ContextVar("mark", default=None)
    seen: list[int | None] = []

    async def set_mark(_self: Any, record: Record, _term: AsyncTerm) -> None:
        seen.append(mark.get())
        mark.set(record.offset)

    drive(reading(set_mark, concurrency=1), given(*"aab"))
    assert seen == [None] * 3


def problems_of(kind: type = AsyncKafkaLeaderCareer, **attributes: Any) -> str:
    async def handle_record(self: Any, record: Record, term: AsyncTerm) -> None: ...

    body = {"topics": "t", "handle_record": handle_record, **attributes}
    with pytest.raises(ConfigurationError) as told:
        drive(type("Wrong", (kind,), body)(), [])
    return str(told.value)


def test_what_cannot_be_is_refused_with_the_remedy():
    assert "concurrency=0" in problems_of(concurrency=0)
    assert "use concurrency" in problems_of(workers=4)
    assert "'none'" in problems_of(order="random")
    for more in ({"offsets": "external"}, {"delivery": "at_most_once"}):
        assert "contradicts its offsets or delivery" in problems_of(order="key", **more)
    assert "write 'async def'" in problems_of(handle_record=lambda self, record, term: None)
    assert "neither handle" in problems_of(handle_record=AsyncKafkaLeaderCareer.handle_record)


def test_a_career_of_plain_functions_is_pointed_to_the_one_of_coroutines():
    told = problems_of(KafkaLeaderCareer)
    assert "from leaderq.AsyncKafkaLeaderCareer" in told
    told = problems_of(KafkaLeaderCareer, handle_record=lambda *_: None, concurrency=5)
    assert "is for coroutines" in told


def test_a_message_that_is_too_large_is_the_fault_of_its_record_at_once():
    async def produce(self: Any, record: Record, _term: AsyncTerm) -> None:
        self.produce("out", record.value * (3_000 if record.offset == 1 else 1))

    words = {"offsets": "transaction", "on_error": skip(), "max_message_bytes": 2_000}
    driven = drive(reading(produce, **words), given(*"abc"))
    assert numbers(driven.skipped) == [1]
    assert [one.value for one in driven.produced] == [b"0", b"2"]


def test_a_deposed_leader_begins_nothing_more_and_commits_nothing():
    seen: list[int] = []

    async def see(_self: Any, record: Record, _term: AsyncTerm) -> None:
        seen.append(record.offset)

    driven = drive(reading(see, concurrency=1), given(*"abcd"), deposed_at=1)
    assert seen == [0, 1]
    assert driven.committed == []
