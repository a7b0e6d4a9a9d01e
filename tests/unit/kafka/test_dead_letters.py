"""Dead letters to the byte, read to their end, and replayed once each."""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from unittest import mock

import pytest
from fake_career import a_record as record
from fake_career import records as rows
from hypothesis import given
from hypothesis import strategies as st

from leaderq.errors import CorruptRecord, KafkaError, KafkaFenced, RequestRefused
from leaderq.kafka.dead_letters.format import (
    PREFIX,
    REPLAYED,
    deaths,
    new_dead_letter,
    own_headers,
    read_dead_letter,
    shortened,
)
from leaderq.kafka.dead_letters.replay import (
    DeadLetterFilter,
    DeadLetterReplay,
    ReplayProgress,
    progress_noted,
    replay_progress,
)
from leaderq.kafka.dead_letters.topic import DeadLetterReader
from leaderq.kafka.record import Partition, Record
from leaderq.observability import tracing


def said(error: BaseException, **changes: Any) -> dict[str, str]:
    letter = new_dead_letter(record(**changes), error, 4, 5, "c", 1_500)
    return {
        name.removeprefix(PREFIX): value.decode()
        for name, value in letter.headers
        if name.startswith(PREFIX)
    }


def test_a_letter_says_what_happened_where_and_when():
    origin = {"topic": "t", "partition": "1", "offset": "2", "timestamp": "3"}
    what = {"error": "ValueError", "text": "bad", "attempts": "4", "times": "1"}
    when = {"term": "5", "at": "1970-01-01T00:00:01.500+00:00", "career": "c"}
    assert said(ValueError("bad")) == origin | what | when


def named(name: str, module: str = "builtins") -> Exception:
    return type(name, (Exception,), {"__module__": module})()


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


class Anything(Exception):
    def __getattr__(self, name: str) -> None: ...


@pytest.mark.parametrize(
    ("error", "part", "told"),
    [
        (Anything("x"), "text", "x"),
        (named("Own", __name__), "error", f"{__name__}.Own"),
        (named("Own", "__main__"), "error", "Own"),
        (named("x" * 300), "error", "x" * 247 + "\u2026"),
        (named("x" * 250), "error", "x" * 250),
        (Mute(), "text", "(its text cannot be had: RuntimeError)"),
    ],
)
def test_an_error_is_named_with_its_module_and_told_as_far_as_it_can_be(error, part, told):
    assert said(error)[part] == told


def raised(error: BaseException, cause: BaseException | None, context: Any = None) -> Any:
    error.__cause__, error.__context__ = cause, context
    error.__suppress_context__ = cause is not None
    return error


def test_the_causes_of_an_error_are_told_once_each():
    inner = raised(OSError("three"), None)
    middle = raised(KeyError("two"), inner)
    outer = raised(ValueError("one"), None, middle)
    for inner.__cause__ in (None, middle, outer):
        expected = "one: caused by KeyError: 'two': caused by OSError: three"
        assert said(outer)["text"] == expected
    outer.__suppress_context__ = True
    assert said(outer)["text"] == "one"


class Problems(Exception):
    """A list of none, which is false, or cannot be asked."""

    def __len__(self) -> int:
        return int(self.args[0])


@pytest.mark.parametrize("length", ["0", "none"])
def test_a_cause_is_told_though_it_is_false(length):
    expected = f"one: caused by {__name__}.Problems: {length}"
    assert said(raised(ValueError("one"), Problems(length)))["text"] == expected
    assert said(raised(ValueError("one"), None, Problems(length)))["text"] == expected


def test_a_letter_that_is_too_large_spares_what_a_replay_does_not_need():
    try:
        raise ValueError("bad")
    except ValueError as exc:
        letter = new_dead_letter(record(headers=[("own", b"1")]), exc, 4, 5, "c", 1_500)
    assert f"{PREFIX}where" in dict(letter.headers)
    kept = [name.removeprefix(PREFIX) for name, _ in shortened(letter).headers]
    assert kept == ["own", "topic", "partition", "offset", "error", "attempts", "term", "times"]
    assert shortened(letter)[:3] == letter[:3]


def letter(**headers: bytes | None) -> Record:
    pairs: Any = [(PREFIX + name, value) for name, value in headers.items()]
    return record(headers=[("own", None), *pairs])


def test_a_letter_is_read_though_parts_of_it_are_missing_or_damaged():
    bare = read_dead_letter(letter(topic=b"a", partition=b"7", offset=b"8"))
    assert (bare.origin, bare.offset, bare.timestamp_ms) == (("a", 7), 8, -1)
    assert (bare.error, bare.text, bare.where, bare.career) == ("", "", "", None)
    assert (bare.attempts, bare.term, bare.times, bare.at_ms) == (None, None, 1, 3)
    assert (bare.headers, bare.place, bare.reason) == ([("own", b"")], "t-1@2", "")
    more = {"error": b"E", "text": b"a \n b", "times": b"3", "attempts": b"x"}
    more |= {"at": b"1970-01-01T00:00:01.500+00:00"}
    full = read_dead_letter(letter(topic=b"a", partition=b"7", offset=b"8", **more))
    assert (full.reason, full.times, full.attempts, full.at_ms) == ("E: a b", 3, None, 1_500)


@pytest.mark.parametrize("missing", ["topic", "partition", "offset"])
@pytest.mark.parametrize("damaged", [None, b"", b"x y"])
def test_what_does_not_name_a_record_is_no_letter(missing, damaged):
    named = {"topic": b"a", "partition": b"7", "offset": b"8"}
    wrong: Any = {**named, missing: damaged}
    foreign = [("x" * len(PREFIX) + name, value) for name, value in named.items()]
    for one in (letter(**wrong), record(headers=foreign)):
        with pytest.raises(CorruptRecord, match="offset 2 of t-1"):
            read_dead_letter(one)


def test_deaths_are_counted_over_replays():
    times = f"{PREFIX}times", f"{REPLAYED}times"
    assert deaths([]) == 0
    assert deaths([(times[0], b"2"), (times[1], b"5"), ("other", b"9")]) == 5
    assert deaths([(times[0], b"x")]) == 1
    assert said(ValueError(), headers=[(times[1], b"5")])["times"] == "6"


def test_of_a_group_of_errors_the_first_is_told_with_the_trace_that_the_group_carries():
    class Group(Exception):
        exceptions = (ValueError("x" * 1001), KeyError("y"))

    group = Group()
    setattr(group, tracing._CARRIED, {"traceparent": "z"})
    found = said(group)
    assert (found["error"], found["text"]) == ("ValueError", "x" * 997 + "\u2026")
    assert found["traceparent"] == "z"


@given(text=st.text(alphabet=st.characters(exclude_categories=()), max_size=3000))
def test_the_errors_text_is_bounded_and_cut_between_characters(text):
    found = said(ValueError(text)).get("text", "")
    assert len(found.encode()) <= 1000
    assert found[:-1] == text.encode("utf-8", "backslashreplace").decode()[: len(found) - 1]


@given(
    key=st.none() | st.binary(),
    value=st.none() | st.binary(),
    headers=st.lists(st.tuples(st.text(), st.binary())),
    numbers=st.tuples(*[st.integers(0, 2**31)] * 4),
    stamp=st.integers(-1, 2**41),
)
def test_whatever_is_written_is_read(key, value, headers, numbers, stamp):
    partition, offset, attempts, term = numbers
    died = Record("t", partition, offset, stamp, key, value, headers)
    letter = new_dead_letter(died, KeyError(), attempts, term, "c", 1_500)
    dead = read_dead_letter(
        Record("dead", 0, 5, letter.timestamp_ms, letter.key, letter.value, letter.headers)
    )
    assert (*dead.origin, dead.offset, dead.timestamp_ms) == ("t", partition, offset, stamp)
    assert (dead.record.key, dead.record.value, dead.attempts) == (key, value, attempts)
    assert (dead.term, dead.headers) == (term, own_headers(headers))


def test_a_letter_that_dies_again_replaces_what_was_said_and_counts():
    first = new_dead_letter(record(headers=[("own", b"1")]), KeyError("x"), 4, 5, "c", 1_500)
    found = Record("c-dead", 0, 5, 0, first.key, first.value, first.headers)
    second = new_dead_letter(found, KeyError("x"), 1, 18, "other", 1_501)
    again = read_dead_letter(
        Record("other-dead", 0, 6, 0, second.key, second.value, second.headers)
    )
    assert (again.origin, again.offset, again.career) == (("c-dead", 0), 5, "other")
    assert (again.times, again.headers) == (2, [("own", b"1")])
    assert len(second.headers) == len(first.headers)


HEADERS = st.sampled_from(["topic", "partition", "offset", "at", "times", "term"])


@given(headers=st.lists(st.tuples(HEADERS, st.binary())))
def test_whatever_headers_a_stranger_writes_they_are_read_or_refused(headers):
    with suppress(CorruptRecord):
        read_dead_letter(record(headers=[(PREFIX + name, value) for name, value in headers]))


A, B = Partition("dead", 0), Partition("dead", 1)


class Reader(DeadLetterReader):
    _consumer: Any = None


def test_letters_that_came_after_reading_began_are_not_read():
    polls = [{A: rows(A, 2, 3)}, {A: rows(A, 4, 5, 6)}]
    one, at = object.__new__(Reader), {A: 0, B: 0}
    one.topic, one.starts, one.ends = "dead", {0: 2, 1: 0}, {0: 5, 1: 0}
    one._consumer = mock.Mock()

    def poll(timeout_s: float, most: int) -> dict[Partition, list[Record]]:
        found = polls.pop(0)
        at.update({where: polled[-1].offset + 1 for where, polled in found.items()})
        return found

    one.seek = lambda begins, paused: at.update(begins)
    one.poll, one.positions = poll, lambda: dict(at)
    assert [record.offset for record in one.read()] == [2, 3, 4]
    one._consumer.pause.assert_called_once_with(A)


def test_a_replay_tells_kafka_away_for_too_long_from_another_one_that_has_begun(at):
    """The commit of its producer is refused for its epoch, 25 s after it began."""
    replay = DeadLetterReplay("nowhere:1", "dead", "c", rate_per_s=0.0)
    one = new_dead_letter(record(), KeyError(), 1, 1, "c", 1)
    found = Record("dead", 0, 0, 0, one.key, one.value, one.headers)

    def refuse(*_: object) -> None:
        at[0] += 25.0
        raise KafkaFenced("INVALID_PRODUCER_EPOCH")

    parts = {"starts": {0: 0}, "ends": {0: 1}, "partitions_of": lambda _: frozenset({0, 1})}
    replay._reader = mock.Mock(topic="dead", noted=dict, read=lambda _: [found], **parts)
    replay._producer = mock.Mock(commit=refuse)
    with pytest.raises(KafkaError, match=r"Kafka was away, and has dropped .* in hand for 25 s"):
        replay.run(lambda _: None)
    assert (replay.sent, replay.remaining()) == (0, (0, 1))


@pytest.mark.parametrize(
    ("chosen", "has_it"),
    [
        (DeadLetterFilter(error="valueerror: NO such"), True),
        (DeadLetterFilter(error="KeyError"), False),
        (DeadLetterFilter(origin="dead"), False),
        (DeadLetterFilter(places=frozenset({(3, 8), (0, 1)})), True),
        (DeadLetterFilter(places=frozenset({(3, 9), (1, 2)})), False),
    ],
)
def test_a_letter_is_chosen_by_its_error_its_origin_and_its_place_together(chosen, has_it):
    error = ValueError("no Such person")
    _, value, key, headers, *_ = new_dead_letter(record(), error, 1, 1, "c", 1)
    found = read_dead_letter(Record("dead", 3, 8, 0, key, value, headers))
    assert (found in chosen) is has_it


@pytest.mark.parametrize(("left", "note"), [((12, 13, 14, 18), "left out: 12-14,18"), ((), "")])
def test_a_note_can_be_read_by_a_person_and_one_that_does_not_fit_is_refused(left, note):
    assert ReplayProgress(10_000, set(left)).note() == note
    with pytest.raises(RequestRefused, match="4994 of them; replay them first"):
        ReplayProgress(10_000, set(range(12, 10_000, 2))).note()


@pytest.mark.parametrize("note", ["", "leaderq term 3", "by hand", "replayed 2-4,8"])
def test_an_offset_set_by_somebody_else_says_from_here_on(note):
    assert progress_noted(5, note) == ReplayProgress(5)
    for bad in ("x", "1-", "", "0-99999999999"):  # one of ours gone bad
        with pytest.raises(CorruptRecord, match="--from-start"):
            progress_noted(5, f"left out: {bad}")


def test_letters_that_retention_has_deleted_are_forgotten():
    noted = {0: (40, "left out: 3-9,20-22"), 1: (5, "left out: 2")}
    found = replay_progress(mock.Mock(starts={0: 21, 1: 2, 2: 7}, noted=lambda: noted))
    kept = {0: ReplayProgress(40, {21, 22}), 1: ReplayProgress(5, {2})}
    assert found == {**kept, 2: ReplayProgress(7)}


@given(
    count=st.integers(0, 30),
    chosen=st.lists(st.frozensets(st.integers(0, 29)), max_size=5),
    stops=st.lists(st.integers(0, 30), min_size=5, max_size=5),
)
def test_whatever_is_chosen_in_which_order_and_interrupted_where_each_letter_is_replayed_once(
    count, chosen, stops
):
    sent: list[int] = []
    done = ReplayProgress(0)
    for selection, stop in [*zip(chosen, stops, strict=False), (frozenset(range(30)), 30)]:
        for offset in range(done.first, min(count, stop)):
            if offset in done:
                continue
            done.passed(offset, is_left=offset not in selection)
            sent += [offset] if offset in selection else []
        note = done.note()
        done = progress_noted(done.next, note)
    assert sorted(sent) == list(range(count))
    assert done == ReplayProgress(count)
