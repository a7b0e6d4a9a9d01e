"""Handlers that do nothing when called are refused when the career is checked, or fail their
batch.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from contextlib import closing
from functools import partial
from typing import Any

import pytest
from fake_career import A, Bad, FakeCareer, a_batch, a_handler, open_term
from test_declaration import Sums, dressed

from leaderq.arguments import NotAPlainFunction
from leaderq.errors import ConfigurationError
from leaderq.kafka import KafkaLeaderCareer, dead_letter, retry, skip


async def coroutine(*_given: Any) -> None:
    pass


def generator(*_given: Any) -> Iterator[int]:
    yield 1


async def both(*_given: Any) -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize("method", KafkaLeaderCareer._called)
@pytest.mark.parametrize("written", [coroutine, generator, both])
def test_no_method_of_a_career_may_leave_its_work_undone_when_called(
    method: str, written: Callable[..., Any]
) -> None:
    kind = type("Wrong", (Sums,), {method: written})
    with pytest.raises(ConfigurationError, match=f"{method} of Wrong is .*plain function"):
        dressed(kind)._declared()


@pytest.mark.parametrize("name", ["key_deserializer", "value_deserializer"])
@pytest.mark.parametrize(
    "written",
    [coroutine, generator, both, staticmethod(partial(coroutine, 1)), staticmethod(coroutine)],
)
def test_nor_may_a_deserialiser(name: str, written: Any) -> None:
    kind = type("Wrong", (Sums,), {name: written})
    with pytest.raises(ConfigurationError, match=f"{name} of Wrong is .*plain function"):
        dressed(kind)._declared()


@pytest.mark.parametrize("on_error", ["raise", skip(), dead_letter(), retry(3, 0.0, then=skip())])
@pytest.mark.parametrize("hidden", [coroutine, generator, both, Future])
def test_a_handler_that_returns_work_to_do_fails_the_batch_and_nothing_is_passed_over(
    hidden: Callable[..., Any], on_error: Any
) -> None:
    career = FakeCareer()
    career.handle = lambda _records, _term: hidden()  # type: ignore[method-assign]
    with pytest.raises(NotAPlainFunction, match="handle returned"):
        a_handler(career, on_error).work(a_batch(A=[0, 1]), open_term(7))
    assert career.committed == {}
    assert career.log == []


def _lines(caplog: pytest.LogCaptureFixture) -> str:
    return "\n".join(each.getMessage() for each in caplog.records)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("undoes", [False, True])
@pytest.mark.parametrize(
    ("names", "place"), [(True, "records=t-0@1 "), (False, "records=t-0@0..t-0@1 ")]
)
def test_the_log_names_what_failed_where_the_error_is_raised(
    names: bool, place: str, undoes: bool, workers: int, caplog: pytest.LogCaptureFixture
) -> None:
    career = FakeCareer(fails={(A, 1): 1}, names=names, undoes=undoes)
    with (
        closing(a_handler(career, workers=workers, batches="partition")) as handler,
        caplog.at_level(logging.WARNING),
        pytest.raises(Bad, match="A1"),
    ):
        handler.work(a_batch(A=[0, 1], B=[5]), open_term(7))
    assert place in _lines(caplog)
