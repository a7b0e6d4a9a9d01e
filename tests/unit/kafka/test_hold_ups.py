"""An outage is not the records' fault: the work is held up, and nothing is passed over."""

from __future__ import annotations

import errno
import io
import logging
import socket
import sqlite3
import ssl
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from contextlib import closing
from typing import Any

import pytest
from fake_career import A, B, Bad, FakeCareer, a_batch, a_handler, open_term, records

from leaderq.kafka import DependencyUnavailable, PoisonRecord, Record, dead_letter, retry, skip
from leaderq.kafka.handling.on_error import OnError, policy
from leaderq.kafka.record import batch_of

OUTAGES = [
    OSError("no route"),
    ConnectionRefusedError("no"),
    TimeoutError("late"),
    futures.TimeoutError("late"),
    sqlite3.OperationalError("the database is locked"),
    type("ConnectionError", (Exception,), {})("a driver's own"),
    DependencyUnavailable("the ledger"),
]
POLICIES = [skip(), dead_letter(), retry(1, 0.0, then=dead_letter()), retry(2, 0.0)]


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OnError, "pause_s", lambda _self, _times: 0.001)


class Outage:
    """Fails the first ``times`` attempts at ``offset`` of partition A, naming the record or not."""

    def __init__(
        self, error: Exception, times: int, *, offset: int = 1, names: bool = False
    ) -> None:
        self.error = error
        self.left = times
        self.offset = offset
        self.names = names

    def __call__(self, handed: Sequence[Record]) -> None:
        for record in handed:
            if self.left and (record.partition, record.offset) == (0, self.offset):
                self.left -= 1
                if self.names:
                    raise PoisonRecord(record) from self.error
                raise self.error


@pytest.mark.parametrize("error", OUTAGES, ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("on_error", POLICIES)
def test_an_outage_is_waited_for_and_no_record_is_passed_over(
    error: Exception, on_error: Any
) -> None:
    career = FakeCareer()
    career.before_handle = Outage(error, 20)
    assert a_handler(career, on_error).work(a_batch(A=[0, 1, 2]), open_term(7))
    assert career.letters == []
    assert career.effects == [(A, 0), (A, 1), (A, 2)]
    assert career.committed == {A: 3}


@pytest.mark.parametrize("undoes", [False, True])
@pytest.mark.parametrize("workers", [1, 2])
def test_what_precedes_the_record_in_hand_is_committed_meanwhile(
    undoes: bool, workers: int
) -> None:
    career = FakeCareer(fails={(A, 1): 4}, names=True, undoes=undoes)
    seen: list[dict[Any, int]] = []

    def look(handed: Sequence[Record]) -> None:
        if len(handed) == 1 and handed[0].offset == 1:
            seen.append(dict(career.committed))

    career.before_handle = look
    with closing(a_handler(career, dead_letter(except_=Bad), workers=workers)) as handler:
        assert handler.work(a_batch(A=[0, 1, 2], B=[5]), open_term(7))
    assert career.letters == []
    assert career.committed == {A: 3, B: 6}
    assert sorted(set(career.effects)) == [(A, 0), (A, 1), (A, 2), (B, 5)]
    assert seen
    assert all(each[A] == 1 for each in seen[1:])


@pytest.mark.parametrize(
    ("on_error", "error", "is_outage"),
    [
        (dead_letter(except_=KeyError), KeyError("x"), True),
        (dead_letter(except_=(KeyError, IndexError)), IndexError("x"), True),
        (dead_letter(except_=KeyError), ValueError("x"), False),
        (skip(only=ValueError), ValueError("x"), False),
        (skip(only=ValueError), KeyError("x"), True),
        (skip(only=FileNotFoundError), FileNotFoundError("x"), False),
        (skip(only=FileNotFoundError), PermissionError("x"), True),
        (skip(only=LookupError, except_=KeyError), KeyError("x"), True),
        (skip(only=LookupError, except_=KeyError), IndexError("x"), False),
        (skip(only=Exception), DependencyUnavailable("x"), True),
        (retry(1, only=ValueError), ValueError("x"), False),
        (retry(1, only=ValueError, then=skip(except_=UnicodeError)), UnicodeError("x"), True),
        (retry(1, except_=KeyError, then=skip()), KeyError("x"), True),
        (skip(), ValueError("x"), False),
        (skip(), sqlite3.IntegrityError("x"), False),
        (skip(), FileNotFoundError("of the record's making"), False),
        (skip(), FileExistsError("x"), False),
        (skip(), IsADirectoryError("x"), False),
        (skip(), NotADirectoryError("x"), False),
        (skip(), OSError(errno.ENAMETOOLONG, "x"), False),
        (skip(), io.UnsupportedOperation("x"), False),
        (skip(except_=FileNotFoundError), FileNotFoundError("a disk that is not mounted"), True),
        (skip(), PermissionError("x"), True),
        (skip(), OSError(errno.ENOSPC, "x"), True),
        (skip(), OSError(errno.EROFS, "x"), True),
        (skip(), BrokenPipeError("x"), True),
        (skip(), socket.gaierror("x"), True),
        (skip(), ssl.SSLCertVerificationError("a ValueError, too"), True),
    ],
)
def test_only_and_except_say_which_errors_are_about_records(
    on_error: Any, error: Exception, is_outage: bool
) -> None:
    assert policy(on_error, "Billing").is_outage(error) is is_outage


def test_a_hold_up_that_lasts_too_long_fails_the_term_and_passes_nothing_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("leaderq.kafka.handling.on_error.LONGEST_S", 0.0)
    career = FakeCareer()
    career.before_handle = Outage(OSError("away"), 1)
    with pytest.raises(OSError, match="away"):
        a_handler(career, skip()).work(a_batch(A=[0, 1]), open_term(7))
    assert career.committed == {}


# -- too many in a row ----------------------------------------------------------------------------


def keyed(keys: Sequence[bytes | None]) -> Any:
    return batch_of(
        {
            A: [
                row.replace(key=key)
                for row, key in zip(records(A, *range(len(keys))), keys, strict=True)
            ]
        }
    )


@pytest.fixture
def no_patience(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("leaderq.kafka.handling.on_error.LONGEST_S", 0.0)
    yield


@pytest.mark.usefixtures("no_patience")
@pytest.mark.parametrize("ending", [skip, dead_letter])
@pytest.mark.parametrize(
    "keys", [[b"%d" % n for n in range(9)], [None] * 9], ids=["keys", "no keys"]
)
def test_so_many_in_a_row_that_fail_alike_stop_the_passing_over(
    keys: list[bytes | None], ending: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    career = FakeCareer(fails={(A, n): 10**9 for n in range(9)}, names=True)
    with caplog.at_level(logging.WARNING), pytest.raises(Bad):
        a_handler(career, ending(most_in_a_row=4)).work(keyed(keys), open_term(7))
    assert career.committed == {A: 4}
    assert "records=t-0@4 most_in_a_row=4" in caplog.text


@pytest.mark.usefixtures("no_patience")
@pytest.mark.parametrize(
    ("keys", "fails", "errors"),
    [
        ([b"one"] * 9, set(range(9)), {}),  # one key: a customer's broken history
        ([None] * 9, set(range(9)) - {4}, {}),  # one between them was handled
        ([None] * 9, set(range(9)), {4: KeyError("another")}),  # they do not fail alike
    ],
    ids=["one key", "one handled", "unlike"],
)
def test_others_are_passed_over_however_many(
    keys: list[bytes | None], fails: set[int], errors: dict[int, Exception]
) -> None:
    career = FakeCareer()

    def fail(handed: Sequence[Record]) -> None:
        for record in handed:
            if record.offset in fails:
                raise PoisonRecord(record) from errors.get(record.offset, Bad())
            career.effects.append((A, record.offset))

    career.handle = lambda rows, _term: fail(rows)  # type: ignore[method-assign]
    assert a_handler(career, skip(most_in_a_row=5)).work(keyed(keys), open_term(7))
    assert career.committed == {A: 9}
