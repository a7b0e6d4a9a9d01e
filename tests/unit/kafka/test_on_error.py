"""The policies for records that cannot be handled, to the edge."""

from __future__ import annotations

import errno
import io
import math
import re
import ssl
from datetime import timedelta
from typing import Any

import pytest
from fake_career import a_record as record

from leaderq import errors as all_errors
from leaderq.errors import ConfigurationError, KafkaError
from leaderq.kafka.clients.consumer import BatchLost, KafkaAway, KafkaFenced, MembershipLost
from leaderq.kafka.handling import on_error
from leaderq.kafka.handling.on_error import (
    DependencyUnavailable,
    Ending,
    ErrorJudge,
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
from leaderq.running import UnitAbandoned

# -- which errors are about records ----------------------------------------------------------------


def test_what_is_wrong_with_a_path_is_of_the_records_making():
    for name in ("ENOENT", "EEXIST", "EISDIR", "ENOTDIR", "ENAMETOOLONG", "ENOTEMPTY", "ELOOP"):
        assert not OnError().is_outage(OSError(getattr(errno, name), "x"))
    assert OnError().is_outage(OSError(errno.EHOSTUNREACH, "x"))
    assert OnError().is_outage(ssl.SSLCertVerificationError("x"))


def test_what_the_user_says_decides_before_all_else():
    only = OnError(only=(KeyError,))
    assert (only.is_outage(KeyError()), only.is_outage(ValueError())) == (False, True)
    assert OnError(only=(OSError,), except_=(ConnectionError,)).is_outage(ConnectionError())
    assert OnError(except_=(KeyError,)).is_outage(KeyError())
    assert not OnError().is_outage(KeyError())
    assert OnError().is_outage(DependencyUnavailable("x"))
    assert not OnError().is_outage(io.UnsupportedOperation("x"))
    assert not OnError(ask_user=lambda _: False).is_outage(DependencyUnavailable("x"))
    assert OnError(ask_user=lambda _: True).is_outage(ValueError())


def test_where_the_user_says_nothing_or_cannot_the_error_is_judged_all_the_same(caplog):
    def fail(_: Exception) -> bool:
        raise KeyError("boom")

    async def later() -> bool:
        return True

    for ask in (None, lambda _: None, fail, lambda _: later()):
        found = OnError(ask_user=ask)
        assert (found.is_outage(ConnectionError()), found.is_outage(ValueError())) == (True, False)
    assert [one.getMessage()[:16] for one in caplog.records] == ["is_outage failed"] * 4


def test_a_group_of_errors_is_an_outage_if_all_of_it_are_and_a_death_is_none():
    def group(*errors: Exception) -> Exception:
        made = Exception("several")
        made.exceptions = errors
        return made

    assert OnError().is_outage(group(ConnectionError(), ConnectionError()))
    assert not OnError().is_outage(group(ConnectionError(), ValueError()))
    assert not OnError(only=(KeyError,)).is_outage(SystemExit(1))


ABOUT_SERVERS = (
    all_errors.Deposed(term=1, reason=all_errors.Reason.LEASE),
    all_errors.ServersUnreachable("x", "a:1", waited_s=1.0),
    *(each("x") for each in (KafkaFenced, KafkaAway, MembershipLost, BatchLost)),
    *(each("x") for each in (ConfigurationError, all_errors.ConnectionLost)),
    *(each("x") for each in (all_errors.SessionExpired, all_errors.SessionClosed)),
)


@pytest.mark.parametrize("error", ABOUT_SERVERS, ids=lambda error: type(error).__name__)
def test_errors_about_servers_are_not_blamed_on_records(error):
    assert not is_about_records(error)
    for blamed in (ValueError(), all_errors.NodeExists("x"), KafkaError("x"), ProcessDied(2)):
        assert is_about_records(blamed)
    for a_death in (KeyboardInterrupt(), SystemExit(1), GeneratorExit()):
        assert is_about_records(a_death)
    assert not is_about_records(UnitAbandoned())


def test_a_poison_record_says_which_one_it_is_and_why():
    assert ProcessDied(3).times == 3
    assert str(ProcessDied(3)).startswith("the process died 3 ")
    poison = PoisonRecord(record(), "odd")
    assert (poison.record, poison.why) == (record(), "odd")
    assert str(poison) == "the record at t-1@2 cannot be handled: odd"
    for wrong in (2, None, "t-1@2", b"v"):
        with pytest.raises(ConfigurationError, match=f"PoisonRecord: record={wrong!r}: give the"):
            PoisonRecord(wrong)  # type: ignore[arg-type]


# -- policies --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("raise", OnError()),
        ("skip", OnError(Ending.SKIP, deaths=on_error.DEATHS)),
        (dead_letter("x", deaths=1), OnError(Ending.DEAD_LETTER, "x", deaths=1)),
        (
            retry(3, 1, dead_letter("x", 4), except_=[OSError], is_outage=bool),
            OnError(Ending.DEAD_LETTER, "x", 3, 1.0, 4, (OSError,), bool),
        ),
        (
            retry(2, then=skip(only=OSError, except_=KeyError, is_outage=bool)),
            OnError(Ending.SKIP, None, 2, 0.5, 3, (KeyError,), bool, (OSError,)),
        ),
        (
            retry(2, only=KeyError, then=dead_letter(except_=OSError)),
            OnError(Ending.DEAD_LETTER, None, 2, 0.5, 3, (OSError,), None, (KeyError,)),
        ),
        (dead_letter(only=[KeyError]), OnError(Ending.DEAD_LETTER, deaths=3, only=(KeyError,))),
        (retry(1, 0.0, "skip", is_outage=bool), OnError(Ending.SKIP, None, 1, 0.0, 3, (), bool)),
    ],
)
def test_a_policy_is_what_was_asked_for(given, expected):
    assert policy(given, "C") == expected


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ([], "is [], which is not a policy"),
        ("retry", "'retry'"),
        (skip, "call it: skip()"),
        (dead_letter, "call it: dead_letter()"),
        (retry, "call it: retry(3)"),
    ],
)
def test_what_is_no_policy_is_refused_with_value_place_and_remedy(wrong, says):
    with pytest.raises(ConfigurationError, match=f"on_error of C.*{re.escape(says)}"):
        policy(wrong, "C")
    with pytest.raises(ConfigurationError, match=r"^'then' of retry is "):
        retry(1, then=wrong)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: retry(0), "retry: n=0: give 1 or more"),
        (lambda: retry(1.5), "retry: n=1.5"),
        (lambda: retry(1, -0.1), "retry: backoff_s=-0.1: give a number of seconds"),
        (lambda: retry(1, math.nan), "backoff_s=nan"),
        (lambda: retry(1, timedelta(seconds=1)), "backoff_s=datetime.timedelta"),
        (lambda: retry(1, then=retry(2)), "give one retry more attempts"),
        (lambda: retry(1, then=skip(except_=KeyError), except_=KeyError), "write it once"),
        (lambda: retry(1, then=skip(is_outage=bool), is_outage=bool), "write it once"),
        (lambda: skip(is_outage=KeyError("x")), "skip: is_outage is"),
        (lambda: skip(0), "skip: deaths=0"),
        (lambda: retry(1, then=skip(only=KeyError), only=ValueError), "write it once"),
        (lambda: retry(1, only=int), "retry: only=<class 'int'>: give a class of errors"),
        (lambda: dead_letter(only=(KeyError, int)), "dead_letter: only="),
        (lambda: skip(except_=5), "skip: except_=5"),
        (lambda: dead_letter(deaths=0), "dead_letter: deaths=0"),
        (lambda: dead_letter("a b"), "give the name of a topic"),
    ],
)
def test_a_policy_that_cannot_be_is_refused_where_it_is_written(call, says):
    with pytest.raises(ConfigurationError, match=re.escape(says)):
        call()


def test_the_rest_of_a_policy_is_as_documented():
    assert (on_error.BACKOFF_S, on_error.MAX_BACKOFF_S, on_error.DEATHS) == (0.5, 30.0, 3)
    assert (on_error.LONGEST_S, on_error.MOST_IN_A_ROW) == (300.0, 100)
    policies = (OnError(), skip(), dead_letter(), dead_letter("x"), retry(1))
    outage = DependencyUnavailable("away")
    held_up = [ErrorJudge(each).is_outage(outage) for each in policies]
    assert held_up == [False, True, True, True, True]
    first = [ErrorJudge(each, commits_first=True).is_outage(outage) for each in policies]
    assert first == [False, False, False, False, True]
    topics = [each.letters_topic("c") for each in policies]
    assert topics == [None, None, "c-dead", "x", None]
    assert retry(1, 0.0).pause_s(1) == 0.1


def test_attempts_back_off_twice_as_long_each_time_and_then_end():
    found = OnError(Ending.SKIP, retries=3, backoff_s=10.0)
    pauses = [found.decision(attempts) for attempts in range(1, 5)]
    assert pauses == [RetryAfter(10.0), RetryAfter(20.0), RetryAfter(30.0), Ending.SKIP]
    assert OnError(retries=1, backoff_s=40.0).decision(1) == RetryAfter(40.0)
    assert OnError().decision(1) is Ending.RAISE
    assert (Ending.RAISE.passes_over, Ending.SKIP.passes_over) == (False, True)
    assert Ending.DEAD_LETTER.passes_over


def test_a_death_counts_by_itself_and_ends_the_term_unless_the_policy_passes_over():
    death, three = SystemExit(1), skip(deaths=3)
    assert OnError(retries=9).decision(1, death) is Ending.RAISE
    found = [three.decision(times, death) for times in (1, 2, 3)]
    assert found == [RetryAfter(0.5), RetryAfter(1.0), Ending.SKIP]
    assert three.decision(1, ValueError()) is Ending.SKIP


# -- the judge -------------------------------------------------------------------------------------

BAD = ValueError()
TWICE = retry(1, 2.0, then=skip())
ONE_BY_ONE = RetryAfter(0.0, one_by_one=True)
HELD_UP = RetryAfter(0.5, one_by_one=False, held_up_s=0.0)


def decided(judge: ErrorJudge, now_s: float = 10.0, **asked: Any) -> object:
    given = {"error": BAD, "record": record(), "attempts": 1, "records": 1, "is_outage": False}
    return judge.decide(now_s=now_s, **{**given, **asked})


@pytest.mark.parametrize(
    ("given", "commits_first", "asked", "decision"),
    [
        (skip(), False, {"is_outage": True}, HELD_UP),
        (TWICE, False, {"records": 2}, RetryAfter(2.0)),
        (TWICE, False, {"records": 2, "attempts": 2}, ONE_BY_ONE),
        (TWICE, False, {"attempts": 2}, Ending.SKIP),
        (TWICE, True, {"records": 2, "attempts": 2}, Ending.SKIP),
        (retry(1, 2.0), False, {"records": 2, "attempts": 2}, Ending.RAISE),
        ("raise", False, {}, Ending.RAISE),
        (dead_letter(), False, {}, Ending.DEAD_LETTER),
        (dead_letter(deaths=2), False, {"error": SystemExit(1)}, RetryAfter(0.5)),
        (dead_letter(deaths=2), True, {"error": SystemExit(1)}, Ending.DEAD_LETTER),
    ],
)
def test_a_failure_is_decided_about_by_the_first_row_that_fits(
    given, commits_first, asked, decision
):
    judge = ErrorJudge(policy(given, "C"), commits_first=commits_first)
    assert decided(judge, **asked) == decision
    assert judge.end_hold_up() is (decision == HELD_UP)


@pytest.mark.parametrize(
    ("given", "commits_first", "is_outage"),
    [
        ("raise", False, False),
        (skip(), False, True),
        (skip(), True, False),
        (retry(1), True, True),
        (TWICE, True, True),
    ],
)
def test_the_work_is_held_up_where_a_record_may_be_repeated_and_not_where_errors_are_raised(
    given, commits_first, is_outage
):
    judge = ErrorJudge(policy(given, "C"), commits_first=commits_first)
    assert judge.is_outage(ConnectionError()) is is_outage
    assert not judge.is_outage(BAD)


def test_a_hold_up_lasts_five_minutes_and_begins_again_after():
    judge = ErrorJudge(OnError(backoff_s=1.0))

    def held_up(now_s: float) -> object:
        return decided(judge, now_s, is_outage=True)

    assert held_up(10.0) == RetryAfter(1.0, held_up_s=0.0)
    assert held_up(12.0) == RetryAfter(2.0, held_up_s=2.0)
    assert held_up(309.9) == RetryAfter(4.0, held_up_s=pytest.approx(299.9))
    assert held_up(310.0) is Ending.RAISE
    assert not judge.end_hold_up()
    for over in (judge.end_hold_up, judge.note_handled):
        assert held_up(400.0) == RetryAfter(1.0, held_up_s=0.0)
        assert (over(), over()) == (True, False)


def test_so_many_keys_that_fail_alike_are_passed_over_in_a_row_and_no_more(monkeypatch):
    monkeypatch.setattr(on_error, "MOST_IN_A_ROW", 2)
    judge, first = ErrorJudge(skip()), ErrorJudge(skip(), commits_first=True)

    def passes_over(judge: ErrorJudge, offset: int, key: bytes | None, error: Exception) -> bool:
        decision = decided(judge, error=error, record=record(offset, key))
        assert decision in (Ending.SKIP, HELD_UP)
        if decision is Ending.SKIP:
            judge.note_passed_over(record(offset, key), error)
        judge.end_hold_up()
        return decision is Ending.SKIP

    for offset, key, error, is_passed_over in (
        *((offset, b"a", KeyError(), True) for offset in (1, 2)),
        *((3, None, KeyError(), True) for _ in range(2)),
        (4, None, KeyError(), False),
        *((offset, b"%d" % offset, ValueError(), offset < 7) for offset in (5, 6, 7)),
    ):
        assert passes_over(judge, offset, key, error) is is_passed_over
        assert passes_over(first, offset, key, error)  # it is committed, so it cannot wait
    assert not judge.note_handled()
    assert passes_over(judge, 7, b"e", BAD)
    assert passes_over(judge, 8, b"f", BAD)
    assert not passes_over(judge, 9, b"g", BAD)
