"""Careers driven without servers, as their authors' unit tests would."""

from __future__ import annotations

import asyncio
import json
import re
import textwrap
from collections.abc import Sequence
from datetime import datetime, timezone
from math import nan
from typing import Any

import pytest

import leaderq
from leaderq import errors, zookeeper
from leaderq.kafka import KafkaLeaderCareer, Record, dead_letter, retry, skip
from leaderq.term import Reason
from leaderq.testing import drive, eventually, kit, records, term, tick


class Adding(KafkaLeaderCareer):
    topics = "clicks"
    max_records = 2
    value_deserializer = staticmethod(json.loads)
    seen: list[Any]

    def handle_record(self, record: Record, term: Any) -> None:
        self.seen.append((record.offset, record.value))


def adding(**attributes: Any) -> Any:
    made = type("Adding", (Adding,), attributes)()
    made.seen = []
    return made


THREE = records("clicks", [b"7", b"8", b"9"])


def test_all_records_are_handled_in_batches_and_committed():
    career = adding()
    driven = drive(career, THREE)
    assert career.seen == [(0, 7), (1, 8), (2, 9)]
    assert [len(batch) for batch in driven.handled] == [2, 1]
    assert (driven.committed, driven.left) == (THREE, [])
    assert (driven.reason, driven.error) == (Reason.WITHDRAWN, None)


@pytest.mark.parametrize(
    ("on_error", "skipped", "letters", "left"),
    [("raise", 0, 0, 3), (skip(), 1, 0, 0), (retry(2, then=dead_letter()), 0, 1, 0)],
)
def test_what_cannot_be_decoded_goes_the_way_that_on_error_says(on_error, skipped, letters, left):
    given = records("clicks", [b"?", b"8", b"9"])
    driven = drive(adding(on_error=on_error, max_records=3), given, may_fail=True)
    counts = [*map(len, (driven.skipped, driven.dead_letters, driven.left))]
    assert counts == [skipped, letters, left]
    assert (driven.reason is Reason.FAILED) is bool(left)


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("looks", [True, False])
def test_a_leader_deposed_in_a_batch_commits_nothing_of_it(place, looks):
    def handle(self: Any, batch: Sequence[Record], term: Any) -> None:
        for record in batch:
            if looks:
                term.check()
            self.seen.append(record.offset)

    career = adding(handle=handle)
    driven = drive(career, THREE, deposed_at=place)
    committed = place - place % 2
    assert [record.offset for record in driven.left] == [*range(committed, 3)]
    assert driven.reason is Reason.SESSION
    assert driven.error is None
    assert career.seen == [*range(place)] if looks else [*range(committed + 2)][:3]


def test_a_batch_whose_commit_fails_is_left_to_the_next_leader():
    career = adding()
    first = drive(career, THREE, failing_commit=2)
    assert isinstance(first.error, errors.KafkaError)
    assert [record.offset for record in first.left] == [2]
    drive(career, first.left, term=term(number=2))
    assert [offset for offset, _ in career.seen] == [0, 1, 2, 2]


def test_what_is_produced_stands_only_if_its_batch_is_committed():
    def handle_record(self: Any, record: Record, term: Any) -> None:
        self.produce("out", b"%d" % record.value)

    career = adding(offsets="transaction", handle_record=handle_record)
    driven = drive(career, THREE, failing_commit=2)
    assert [message.value for message in driven.produced] == [b"7", b"8"]


class Failing(leaderq.LeaderCareer):
    handed_over: Any = None

    def execute(self, term: Any) -> None:
        raise KeyError("x")

    def handOver(self, term: Any) -> None:  # noqa: N802
        self.handed_over = term.reason


def test_what_the_career_raises_is_raised_after_the_hand_over():
    with pytest.raises(KeyError) as raised:
        drive(career := Failing())
    assert career.handed_over is Reason.FAILED
    assert raised.traceback[-1].name == "execute"  # of the career, where its author looks
    with pytest.raises(AttributeError):  # a typo
        drive(adding(handle_record=lambda self, record, term: self.sen), THREE)


@pytest.mark.parametrize("topics", ["clicks", re.compile("cl.*")])
def test_records_that_the_career_would_never_read_are_refused(topics):
    given = [*THREE, *records("orders", [b"1"])]
    with pytest.raises(errors.ConfigurationError, match="does not read topic 'orders'"):
        drive(adding(topics=topics), given)


def test_the_examples_of_the_documentation_run():
    written: dict[int, int] = {}

    class Billing(KafkaLeaderCareer):
        topics = "clicks"
        on_error = dead_letter()
        value_deserializer = staticmethod(json.loads)

        def handle(self, batch: Sequence[Record], term: Any) -> None:
            written.update((record.value, 1) for record in batch)

    text = str(kit.__doc__).partition(".. code-block:: python")[2]
    text = text.partition("Everything that needs no server")[0]
    names: dict[str, Any] = {"Billing": Billing, "Reason": Reason, "bills": lambda: written}
    exec(textwrap.dedent(text), names)
    tests = [name for name in names if name.startswith("test_")]
    assert len(tests) == 2
    for name in tests:
        names[name]()


def test_the_method_of_a_schedule_is_called_with_a_tick():
    class Tidying(leaderq.ScheduledCareer):
        @leaderq.schedule("0 2 * * *", tz="Europe/Berlin")
        def tidy(self, tick: leaderq.Tick) -> None:
            tick.write([zookeeper.Create(f"/reports/{tick.at:%F}")])

    held = term()
    Tidying().tidy(tick(datetime(2026, 3, 29, 2, tzinfo=timezone.utc), term=held))
    assert held.written == [[zookeeper.Create("/reports/2026-03-29")]]
    twice = tick(datetime(2026, 3, 29, 2, tzinfo=timezone.utc))
    twice.write([])
    with pytest.raises(errors.LeaderqError, match=r"call tick\.write once"):
        twice.write([])


def test_the_coroutine_of_a_schedule_is_called_with_an_async_tick():
    class Tidying(leaderq.AsyncScheduledCareer):
        @leaderq.schedule("0 2 * * *")
        async def tidy(self, tick: leaderq.AsyncTick) -> None:
            assert await tick.term.wait(1)
            await tick.write([zookeeper.Create(f"/reports/{tick.at:%F}")])

    held = term()
    at = datetime(2026, 3, 29, 2, tzinfo=timezone.utc)
    asyncio.run(Tidying().tidy(tick(at, term=leaderq.AsyncTerm(held))))
    assert (held.written, held.waited_s) == ([[zookeeper.Create("/reports/2026-03-29")]], 1)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: drive(Adding), "career=<class"),  # the class, as simulate() takes it
        (lambda: drive(adding(), THREE, deposed_at=3), "deposed_at=3: give the place"),
        (lambda: drive(adding(), THREE, deposed_at=-1), "deposed_at=-1: give the place"),
        (lambda: drive(adding(), THREE, failing_commit=0), "failing_commit=0: give the number"),
        (lambda: drive(adding(), [b"7"]), "given=b'7': give what records"),
        (lambda: drive(Failing(), failing_commit=1), "failing_commit=1: give"),  # commits nothing
        (lambda: drive(Failing(), deposed_at=0), "deposed_at=0: give"),
        (lambda: drive(Failing(), THREE), "give none to a career that reads no topics"),
        (lambda: drive(Failing(), units=0), "units=0: give 1 or more"),
        (lambda: records("clicks", b"79"), "values=(None, 55): give bytes"),
        (lambda: records("clicks", ["7"]), "values=(None, '7'): give bytes"),
        (lambda: records("clicks", [(b"k", b"v", b"h")]), "give bytes, or key and value"),
        (lambda: term(lasts_s=nan), "lasts_s=nan: give 0 or more"),
        (lambda: term().depose(Reason.STEP_DOWN), "or use step_down"),
        (lambda: term().step_down(Reason.SESSION), "or use depose"),
        (lambda: term().write([("/x", b"1")]), "operation=('/x', b'1'): give"),
        (lambda: term().write([zookeeper.Create("x")]), "'x'"),
        (lambda: tick(datetime(2026, 3, 29, 2)), "give a datetime with a tzinfo"),
        (lambda: eventually(lambda: False, timeout_s=nan), "timeout_s=nan: give 0 or more"),
        (lambda: eventually(lambda: False, interval_s=-1), "interval_s=-1: give 0 or more"),
        (lambda: eventually(lambda: asyncio.sleep(0)), "whose work nobody would do"),
    ],
)
def test_what_would_test_nothing_or_something_else_is_refused(call, said):
    with pytest.raises(errors.ConfigurationError, match=re.escape(said)):
        call()


def test_a_wait_of_less_than_no_time_takes_none():
    held = term(lasts_s=3)
    assert [held.wait(seconds) for seconds in (-5, 2, 1)] == [True, True, False]


def test_offsets_that_the_user_keeps_say_where_to_read_on():
    handled: list[int] = []

    class Storing(KafkaLeaderCareer):
        topics = "clicks"
        offsets = "external"

        def load_offsets(self, term: Any) -> Any:
            return {("clicks", 0): handled[-1] + 1} if handled else {}

        def handle_record(self, record: Record, term: Any) -> None:
            handled.append(record.offset)

    drive(Storing(), THREE[:2])
    drive(Storing(), THREE, term=term(number=2))
    assert handled == [0, 1, 2]
