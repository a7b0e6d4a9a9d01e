"""Dead letters to the byte, and policies for errors to the edge."""

from __future__ import annotations

import errno
import io
import math
import ssl
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaderq import errors as all_errors
from leaderq.errors import ConfigurationError, CorruptRecord, KafkaError
from leaderq.kafka.clients.consumer import BatchLost, KafkaAway, KafkaFenced, MembershipLost
from leaderq.kafka.dead_letters.format import (
    MAX_TEXT_BYTES,
    PREFIX,
    REPLAYED,
    deaths,
    new_dead_letter,
    own_headers,
    read_dead_letter,
    shortened,
)
from leaderq.kafka.handling import on_error
from leaderq.kafka.handling.on_error import (
    DependencyUnavailable,
    Ending,
    HoldUp,
    HoldUps,
    OnError,
    PoisonRecord,
    ProcessDied,
    RetryAfter,
    dead_letter,
    is_about_records,
    policy,
    retry,
    skip,
)
from leaderq.kafka.record import Partition, Record
from leaderq.running import UnitAbandoned


def record(offset: int = 2, key: Any = b"k", **changes: Any) -> Record:
    return Record("t", 1, offset, 3, key, b"v").replace(**changes)


def said(error: BaseException, **changes: Any) -> dict[str, str]:
    letter = new_dead_letter(record(**changes), error, 4, 5, "c", 1_500)
    return {
        name.removeprefix(PREFIX): value.decode()
        for name, value in letter.headers
        if name.startswith(PREFIX)
    }


def test_a_letter_says_what_happened_where_and_when() -> None:
    found = said(ValueError("bad"))
    assert found == {
        "topic": "t",
        "partition": "1",
        "offset": "2",
        "timestamp": "3",
        "error": "ValueError",
        "text": "bad",
        "attempts": "4",
        "term": "5",
        "at": "1970-01-01T00:00:01.500+00:00",
        "career": "c",
        "times": "1",
    }


class Own(Exception):
    pass


def test_an_error_is_named_with_its_module_unless_it_has_none_worth_naming() -> None:
    assert said(Own())["error"] == f"{__name__}.Own"
    main = type("Own", (Exception,), {"__module__": "__main__"})
    assert said(main())["error"] == "Own"
    long = type("x" * 300, (Exception,), {"__module__": "builtins"})
    assert said(long())["error"] == "x" * 247 + "\u2026"
    fits = type("x" * 250, (Exception,), {"__module__": "builtins"})
    assert said(fits())["error"] == "x" * 250


def raised(error: BaseException, cause: BaseException | None, context: Any = None) -> Any:
    error.__cause__, error.__context__ = cause, context
    error.__suppress_context__ = cause is not None
    return error


def test_the_causes_of_an_error_are_told_once_each() -> None:
    inner = raised(OSError("three"), None)
    middle = raised(KeyError("two"), inner)
    outer = raised(ValueError("one"), None, middle)
    expected = "one: caused by KeyError: 'two': caused by OSError: three"
    assert said(outer)["text"] == expected
    inner.__cause__ = middle
    assert said(outer)["text"] == expected
    inner.__cause__ = outer
    assert said(outer)["text"] == expected
    outer.__suppress_context__ = True
    assert said(outer)["text"] == "one"


def test_an_error_whose_text_cannot_be_had_is_set_aside_like_any_other() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    assert said(Mute())["text"] == "(its text cannot be had: RuntimeError)"


def test_a_long_text_is_cut_between_characters() -> None:
    assert MAX_TEXT_BYTES == 1000
    assert said(ValueError("x" * 1000))["text"] == "x" * 1000
    assert said(ValueError("x" * 1001))["text"] == "x" * 997 + "\u2026"
    assert said(ValueError("\u00e4" * 501))["text"] == "\u00e4" * 498 + "\u2026"
    assert said(ValueError("\ud800"))["text"] == "\\ud800"


def test_a_letter_that_is_too_large_spares_what_a_replay_does_not_need() -> None:
    try:
        raise ValueError("bad")
    except ValueError as exc:
        letter = new_dead_letter(record(headers=[("own", b"1")]), exc, 4, 5, "c", 1_500)
    names = [name.removeprefix(PREFIX) for name, _ in letter.headers]
    assert "where" in names
    kept = [name.removeprefix(PREFIX) for name, _ in shortened(letter).headers]
    assert kept == ["own", "topic", "partition", "offset", "error", "attempts", "term", "times"]
    assert shortened(letter)[:2] == letter[:2]


def letter(**headers: bytes | None) -> Record:
    pairs: Any = [(PREFIX + name, value) for name, value in headers.items()]
    return record(headers=[("own", None), *pairs])


def test_a_letter_is_read_though_parts_of_it_are_missing_or_damaged() -> None:
    bare = read_dead_letter(letter(topic=b"a", partition=b"7", offset=b"8"))
    assert (bare.origin, bare.offset, bare.timestamp_ms) == (("a", 7), 8, -1)
    assert (bare.error, bare.text, bare.where, bare.career) == ("", "", "", None)
    assert (bare.attempts, bare.term, bare.times, bare.at_ms) == (None, None, 1, 3)
    assert (bare.headers, bare.place, bare.reason) == ([("own", b"")], "t-1@2", "")
    full = read_dead_letter(
        letter(
            topic=b"a",
            partition=b"7",
            offset=b"8",
            error=b"E",
            text=b"a \n b",
            times=b"3",
            attempts=b"x",
            at=b"1970-01-01T00:00:01.500+00:00",
        )
    )
    assert (full.reason, full.times, full.attempts, full.at_ms) == ("E: a b", 3, None, 1_500)


@pytest.mark.parametrize("missing", ["topic", "partition", "offset"])
def test_what_does_not_name_a_record_is_no_letter(missing: str) -> None:
    headers: dict[str, Any] = {"topic": b"a", "partition": b"7", "offset": b"8"}
    for damaged in (None, b"", b"\xff" if missing == "topic" else b"x"):
        if missing == "topic" and damaged == b"\xff":
            continue
        with pytest.raises(CorruptRecord, match="offset 2 of t-1"):
            read_dead_letter(letter(**{**headers, missing: damaged}))
    foreign = record(headers=[("x" * len(PREFIX) + name, value) for name, value in headers.items()])
    with pytest.raises(CorruptRecord):
        read_dead_letter(foreign)


def test_deaths_are_counted_over_replays() -> None:
    times = f"{PREFIX}times", f"{REPLAYED}times"
    assert deaths([]) == 0
    assert deaths([(times[0], b"2"), (times[1], b"5"), ("other", b"9")]) == 5
    assert deaths([(times[0], b"x")]) == 1
    assert said(ValueError(), headers=[(times[1], b"5")])["times"] == "6"


# -- laws of letters -------------------------------------------------------------------------------


@given(text=st.text(alphabet=st.characters(exclude_categories=()), max_size=3000))
def test_the_errors_text_is_bounded_and_cut_between_characters(text: str) -> None:
    found = said(ValueError(text)).get("text", "")
    assert len(found.encode()) <= MAX_TEXT_BYTES
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
    dead = read_dead_letter(Record("dead", 0, 5, letter.timestamp_ms, *letter[:3]))
    assert (dead.origin, dead.offset, dead.timestamp_ms) == (
        Partition("t", partition),
        offset,
        stamp,
    )
    assert (dead.record.key, dead.record.value, dead.attempts, dead.term) == (
        key,
        value,
        attempts,
        term,
    )
    assert dead.headers == own_headers(headers)


def test_a_letter_that_dies_again_replaces_what_was_said_and_counts() -> None:
    first = new_dead_letter(record(headers=[("own", b"1")]), KeyError("x"), 4, 5, "c", 1_500)
    found = Record("c-dead", 0, 5, 0, *first[:3])
    second = new_dead_letter(found, KeyError("x"), 1, 18, "other", 1_501)
    again = read_dead_letter(Record("other-dead", 0, 6, 0, *second[:3]))
    assert (again.origin, again.offset, again.career) == (("c-dead", 0), 5, "other")
    assert (again.times, again.headers) == (2, [("own", b"1")])
    assert len(second.headers) == len(first.headers)


@given(
    headers=st.lists(
        st.tuples(
            st.sampled_from(["topic", "partition", "offset", "at", "times", "term"]), st.binary()
        )
    )
)
def test_whatever_headers_a_stranger_writes_they_are_read_or_refused(headers):
    with suppress(CorruptRecord):
        read_dead_letter(record(headers=[(PREFIX + name, value) for name, value in headers]))


# -- which errors are about records ----------------------------------------------------------------

OUTAGE_NAMES = (
    "OperationalError",
    "InterfaceError",
    "TimeoutError",
    "ConnectionError",
    "NetworkError",
    "TimeoutException",
)


@pytest.mark.parametrize("name", OUTAGE_NAMES)
def test_errors_that_libraries_name_like_outages_are_outages(name: str) -> None:
    kind = type(name, (Exception,), {})
    heir = type("Heir", (kind,), {})
    assert OnError().is_outage(kind())
    assert OnError().is_outage(heir())
    assert not OnError().is_outage(type(name + "x", (Exception,), {})())


@pytest.mark.parametrize(
    "number",
    [
        errno.ENOENT,
        errno.EEXIST,
        errno.EISDIR,
        errno.ENOTDIR,
        errno.ENAMETOOLONG,
        errno.ENOTEMPTY,
        errno.ELOOP,
    ],
)
def test_what_is_wrong_with_a_path_is_of_the_records_making(number: int) -> None:
    assert not OnError().is_outage(OSError(number, "x"))
    assert OnError().is_outage(OSError(errno.EHOSTUNREACH, "x"))
    assert OnError().is_outage(ssl.SSLCertVerificationError("x"))


def test_only_and_except_decide_before_all_else() -> None:
    only = OnError(only=(KeyError,))
    assert (only.is_outage(KeyError()), only.is_outage(ValueError())) == (False, True)
    assert OnError(except_=(KeyError,)).is_outage(KeyError())
    assert not OnError().is_outage(KeyError())
    assert OnError().is_outage(DependencyUnavailable("x"))
    assert not OnError().is_outage(io.UnsupportedOperation("x"))


ABOUT_SERVERS = (
    all_errors.Deposed(term=1, reason=all_errors.Reason.LEASE),
    KafkaFenced("x"),
    KafkaAway("x"),
    MembershipLost("x"),
    BatchLost("x"),
    ConfigurationError("x"),
    all_errors.ServersUnreachable("x", "a:1", waited_s=1.0),
    all_errors.ConnectionLost("x"),
    all_errors.SessionExpired("x"),
    all_errors.SessionClosed("x"),
)


@pytest.mark.parametrize("error", ABOUT_SERVERS, ids=lambda error: type(error).__name__)
def test_errors_about_servers_are_not_blamed_on_records(error: Exception) -> None:
    assert not is_about_records(error)
    for blamed in (ValueError(), all_errors.NodeExists("x"), KafkaError("x"), ProcessDied(2)):
        assert is_about_records(blamed)
    for not_an_error in (KeyboardInterrupt(), SystemExit(1), UnitAbandoned()):
        assert not is_about_records(not_an_error)


def test_errors_of_ours_hold_what_they_are_about() -> None:
    assert ProcessDied(3).times == 3
    assert str(ProcessDied(3)) == "the process died 3 times while handling this record"
    poison = PoisonRecord(record(), "odd")
    assert (poison.record, poison.why, str(poison)) == (
        record(),
        "odd",
        "the record at t-1@2 cannot be handled: odd",
    )
    assert str(PoisonRecord(record())) == "the record at t-1@2 cannot be handled"


# -- policies --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("raise", OnError()),
        ("skip", OnError(Ending.SKIP, deaths=on_error.DEATHS, holds_up=True, most_in_a_row=100)),
        (
            dead_letter("x", deaths=2, most_in_a_row=None),
            OnError(Ending.DEAD_LETTER, "x", deaths=2, holds_up=True),
        ),
        (
            retry(3, 1.0, skip(only=KeyError), 4.0, except_=(OSError,)),
            OnError(
                Ending.SKIP,
                None,
                3,
                1.0,
                4.0,
                on_error.DEATHS,
                True,
                (KeyError,),
                (OSError,),
                100,
            ),
        ),
        (
            retry(1, 2.0, max_backoff_s=2.0),
            OnError(retries=1, backoff_s=2.0, max_backoff_s=2.0, holds_up=True),
        ),
    ],
)
def test_a_policy_is_what_was_asked_for(given: Any, expected: OnError) -> None:
    assert policy(given, "C") == expected


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (None, "is None, which is not a policy"),
        (5, "is 5"),
        ([], "is []"),
        ("ignore", "'ignore'"),
        ("retry", "'retry'"),
        ("dead_letter", "dead_letter()"),
        (RetryAfter, "is <class"),
        (ValueError("x"), "ValueError"),
        (skip, "call it: skip()"),
        (dead_letter, "call it: dead_letter()"),
        (retry, "call it: retry(3)"),
        (retry(0), "retry(n=0)"),
        (retry(True), "retry(n=True)"),
        (retry(1.5), "retry(n=1.5)"),  # type: ignore[arg-type]
        (retry(1, -0.1), "retry(backoff_s=-0.1)"),
        (retry(1, True), "retry(backoff_s=True)"),
        (retry(1, math.nan), "retry(backoff_s=nan)"),
        (retry(1, math.inf), "retry(backoff_s=inf)"),
        (retry(1, "x", max_backoff_s=4.0), "retry(backoff_s='x')"),  # type: ignore[arg-type]
        (retry(1, 5.0, max_backoff_s="x"), "retry(max_backoff_s='x')"),  # type: ignore[arg-type]
        (retry(1, 5.0, max_backoff_s=True), "retry(max_backoff_s=True)"),
        (retry(1, 5.0, max_backoff_s=4.0), "larger max_backoff_s"),
        (retry(1, then=None), "'then' of retry in on_error of C is None"),  # type: ignore[arg-type]
        (retry(1, then="x"), "'x'"),  # type: ignore[arg-type]
        (retry(1, then=skip), "call it: skip()"),  # type: ignore[arg-type]
        (retry(1, then=retry), "more attempts"),  # type: ignore[arg-type]
        (retry(1, then=retry(2)), "more attempts"),  # type: ignore[arg-type]
        (retry(1, then=retry(0)), "more attempts"),  # type: ignore[arg-type]
        (retry(1, then=skip(deaths=0)), "skip(deaths=0)"),
        (retry(1, then=skip(only=KeyError), only=ValueError), "write it once"),
        (skip(0), "skip(deaths=0)"),
        (skip(most_in_a_row=0), "skip(most_in_a_row=0)"),
        (dead_letter(most_in_a_row=True), "most_in_a_row=True"),
        (skip(only=int), "skip(only="),  # type: ignore[arg-type]
        (skip(only="ValueError"), "skip(only='ValueError')"),  # type: ignore[arg-type]
        (skip(only=(KeyError, int)), "skip(only="),  # type: ignore[arg-type]
        (skip(except_=5), "skip(except_=5)"),  # type: ignore[arg-type]
        (retry(1, except_=KeyboardInterrupt), "retry(except_="),  # type: ignore[arg-type]
        (dead_letter(deaths=None), "dead_letter(deaths=None)"),  # type: ignore[arg-type]
        (dead_letter(""), "dead_letter(topic='')"),
        (dead_letter(".."), "not the name of a Kafka topic"),
        (dead_letter("a b"), "not the name of a Kafka topic"),
        (dead_letter("a" * 250), "not the name of a Kafka topic"),
        (dead_letter(b"x"), "not the name of a Kafka topic"),  # type: ignore[arg-type]
    ],
)
def test_a_policy_that_cannot_be_is_refused_with_value_place_and_remedy(
    wrong: Any, says: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        policy(wrong, "C")
    (problem,) = refused.value.problems
    assert says in problem
    assert "on_error of C" in problem


def test_all_that_is_wrong_with_a_policy_is_told_at_once() -> None:
    with pytest.raises(ConfigurationError) as refused:
        policy(retry(0, backoff_s=-1, then=dead_letter("a b", 0, only=5)), "C")  # type: ignore[arg-type]
    assert len(refused.value.problems) == 5


def test_the_rest_of_a_policy_is_as_documented() -> None:
    assert (on_error.BACKOFF_S, on_error.MAX_BACKOFF_S, on_error.DEATHS) == (0.5, 30.0, 3)
    assert not policy("raise", "C").holds_up
    assert policy(retry(1, 0), "C").backoff_s == 0.0
    assert policy(retry(1, only=KeyError), "C").only == (KeyError,)
    assert policy(retry(1, then=skip(except_=KeyError)), "C").except_ == (KeyError,)
    with pytest.raises(ConfigurationError, match="cannot be; give one retry more attempts"):
        policy(retry(1, then=retry), "C")  # type: ignore[arg-type]


def test_letters_go_to_the_topic_that_was_asked_for_or_the_careers() -> None:
    assert OnError().letters_topic("c") is None
    assert OnError(Ending.SKIP, "x").letters_topic("c") is None
    assert OnError(Ending.DEAD_LETTER).letters_topic("c") == "c-dead"
    assert OnError(Ending.DEAD_LETTER, "x").letters_topic("c") == "x"


def test_attempts_back_off_twice_as_long_each_time_and_then_end() -> None:
    found = OnError(Ending.SKIP, retries=4, backoff_s=1.0, max_backoff_s=5.0)
    pauses = [found.decision(attempts) for attempts in range(1, 6)]
    assert pauses == [
        RetryAfter(1.0),
        RetryAfter(2.0),
        RetryAfter(4.0),
        RetryAfter(5.0),
        Ending.SKIP,
    ]
    assert (Ending.RAISE.passes_over, Ending.SKIP.passes_over) == (False, True)
    assert Ending.DEAD_LETTER.passes_over


# -- hold-ups --------------------------------------------------------------------------------------


def test_a_hold_up_lasts_five_minutes_and_begins_again_after() -> None:
    assert (on_error.LONGEST_S, on_error.MOST_IN_A_ROW) == (300.0, 100)
    found = OnError(backoff_s=1.0, max_backoff_s=9.0)
    hold_ups = HoldUps(found)
    assert not hold_ups.is_held_up
    assert hold_ups.decision(10.0) == HoldUp(1.0, 0.0)
    assert hold_ups.is_held_up
    assert hold_ups.decision(12.0) == HoldUp(2.0, 2.0)
    assert hold_ups.decision(309.9) == HoldUp(4.0, pytest.approx(299.9))
    assert hold_ups.decision(310.0) is Ending.RAISE
    assert not hold_ups.is_held_up
    assert hold_ups.decision(311.0) == HoldUp(1.0, 0.0)
    hold_ups.handled()
    assert not hold_ups.is_held_up
    assert hold_ups.decision(400.0) == HoldUp(1.0, 0.0)


def test_so_many_keys_that_fail_alike_are_passed_over_in_a_row_and_no_more() -> None:
    hold_ups = HoldUps(OnError(Ending.SKIP, most_in_a_row=2))
    error = KeyError()
    assert not hold_ups.are_too_many(record(), error)
    hold_ups.passed_over(record(1, b"a"), error)
    hold_ups.passed_over(record(2, b"a"), error)
    assert not hold_ups.are_too_many(record(3, b"b"), error)
    hold_ups.passed_over(record(3, None), error)
    assert hold_ups.are_too_many(record(4, None), error)
    assert not hold_ups.are_too_many(record(3, None), error)
    assert not hold_ups.are_too_many(record(4, None), ValueError())
    hold_ups.passed_over(record(5, b"c"), ValueError())
    assert not hold_ups.are_too_many(record(6, b"d"), ValueError())
    hold_ups.passed_over(record(6, b"d"), ValueError())
    assert hold_ups.are_too_many(record(7, b"e"), ValueError())
    hold_ups.handled()
    assert not hold_ups.are_too_many(record(7, b"e"), ValueError())
    hold_ups.passed_over(record(7, b"e"), ValueError())
    assert not hold_ups.are_too_many(record(8, b"f"), ValueError())


def test_without_a_number_none_is_too_many() -> None:
    hold_ups = HoldUps(OnError(Ending.SKIP))
    for offset in range(5):
        hold_ups.passed_over(record(offset, None), KeyError())
        assert not hold_ups.are_too_many(record(9, None), KeyError())
    assert hold_ups._keys == set()
