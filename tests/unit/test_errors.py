"""All errors of leaderq pass between processes: multiprocessing, Celery and pytest-xdist pickle
them, and one that cannot be unpickled hangs a pool for ever.
"""

from __future__ import annotations

import copy
import importlib
import inspect
import pickle
import pkgutil
from typing import Any

import pytest

import leaderq
from leaderq.errors import LeaderqError, Reason, leaves, told
from leaderq.kafka import Record

GIVEN: dict[str, Any] = {
    "reason": Reason.LEASE,
    "error": OSError(5, "disk"),
    "failures": [("item", ValueError("a"))],
    "index": 3,
    "size": 5,
    "limit": 4,
    "exit_code": 3,
    "waited_s": 2.5,
    "late_s": 0.25,
    "settlement": ("lost", 5),
    "record": Record("clicks", 0, 7, 0, b"key", b"value"),
}


def kinds_below(kind: type[LeaderqError]) -> set[type[LeaderqError]]:
    return {kind}.union(*(kinds_below(one) for one in kind.__subclasses__()))


def every_kind() -> list[type[LeaderqError]]:
    for module in pkgutil.walk_packages(leaderq.__path__, "leaderq."):
        if not module.name.endswith("__main__"):
            try:
                importlib.import_module(module.name)
            except ImportError:  # of an extra that is not installed
                pass
    kinds = kinds_below(LeaderqError)
    return sorted(
        (one for one in kinds if one.__module__.startswith("leaderq.")), key=lambda one: str(one)
    )


def made(kind: type[LeaderqError]) -> LeaderqError:
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for name, one in list(inspect.signature(kind.__init__).parameters.items())[1:]:
        value = GIVEN.get(name, 7 if one.annotation == "int" else name)
        if one.kind is one.KEYWORD_ONLY:
            named[name] = value
        elif one.kind is one.POSITIONAL_OR_KEYWORD:
            positional.append(value)
        elif one.kind is one.VAR_POSITIONAL:
            positional += ["one", "two"]
    return kind(*positional, **named)


class Group(Exception):
    """Made for tests: Python 3.10 has no groups of its own."""

    exceptions: tuple[Exception, ...] = ()


class Delegating(Exception):
    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)


def test_an_error_of_many_lines_is_told_in_one():
    error = ValueError("2 errors\r\n  name:\u2028 too long\n\n  age: below 0\n")
    assert told(error) == "ValueError: 2 errors name: too long age: below 0"
    assert told(ValueError("\n")) == "ValueError"


def test_a_group_of_errors_that_is_in_itself_has_leaves_and_what_cannot_be_asked_is_no_group():
    error = Delegating("no")
    assert leaves(error) == [error]
    group, within, one, two = Group(), Group(), OSError("one"), OSError("two")
    within.exceptions = (two, one)
    group.exceptions = (one, group, within)
    assert leaves(group) == [one, two, one]
    group.exceptions = (group,)
    assert leaves(group) == [group]


@pytest.mark.parametrize("kind", every_kind(), ids=lambda kind: kind.__name__)
def test_it_comes_out_of_a_pickle_and_a_copy_as_it_went_in(kind):
    error = made(kind)
    error.add_note("said by the worker")
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(again) is kind
        assert (str(again), repr(again)) == (str(error), repr(error))
        assert repr(again.__dict__) == repr(error.__dict__)
        with pytest.raises(kind):
            raise again
