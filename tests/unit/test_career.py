from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from terms import open_term
from test_arguments import coroutine, generator, plain

from leaderq import LeaderCareer
from leaderq.career import career_problems, check_career
from leaderq.election import Observer
from leaderq.errors import ConfigurationError
from leaderq.events import Event, EventBus
from leaderq.kafka import KafkaLeaderCareer, dead_letter
from leaderq.singular import SingularUpdateQueue
from leaderq.testing import eventually
from leaderq.threads import Listeners
from leaderq.zookeeper import Session


class Work(LeaderCareer):
    def execute(self, term: Any) -> None:
        pass


class Drain(KafkaLeaderCareer):
    topics = ("clicks",)

    def handle(self, records: Any, term: Any) -> None:
        pass


@pytest.mark.parametrize("written", [coroutine, generator])
@pytest.mark.parametrize("name", [*LeaderCareer._called])
def test_a_method_that_does_nothing_when_called_is_refused(name, written):
    with pytest.raises(ConfigurationError, match=f"{name} of Wrong is .*plain function"):
        check_career(type("Wrong", (Work,), {name: written}))


@pytest.mark.parametrize(
    ("name", "written", "passed"),
    [
        ("execute", lambda self: None, ["term"]),
        ("execute", lambda self, term, more: None, ["term"]),
        ("prepare", lambda self, term: None, []),
        ("handle", lambda self, record: None, ["records", "term"]),
        ("handle_record", lambda: None, ["record", "term"]),
    ],
)
def test_a_method_that_cannot_be_called_with_what_leaderq_passes_is_refused(name, written, passed):
    with pytest.raises(ConfigurationError) as refused:
        check_career(type("Wrong", (Drain,), {name: written}))
    remedy = f"write def {name}({', '.join(['self', *passed])})"
    assert f"{name} of Wrong is called with ({', '.join(passed)}); {remedy}" in str(refused.value)


@pytest.mark.parametrize(
    "written",
    [
        lambda self, term, more=1: None,
        lambda *given: None,
        staticmethod(lambda term: None),
        lambda self, /, t: None,
    ],
)
def test_a_method_that_can_be_called_so_is_left_alone(written):
    check_career(type("Right", (Work,), {"execute": written, "handOver": written}))


@pytest.mark.parametrize(
    ("name", "value", "meant"),
    [
        ("handover", plain, "handOver"),
        ("hand_overs", plain, "hand_over"),
        ("onerror", dead_letter(), "on_error"),
        ("on_Error", "raise", "on_error"),
        ("max_recs", 5, "max_records"),
        ("handle_records", plain, "handle_record"),
        ("inagurate", plain, "inaugurate"),
        ("Topics", ("a",), "topics"),
    ],
)
def test_a_slip_is_refused_with_the_name_that_was_meant(name, value, meant):
    (problem,) = career_problems(type("Wrong", (Drain,), {name: value}))
    assert f"'{name}' of Wrong is not known to leaderq" in problem
    assert f"did you mean {meant!r}?" in problem


def test_a_slip_in_a_base_class_is_found_too():
    (problem,) = career_problems(type("Below", (type("Above", (Drain,), {"max_recs": 1}),), {}))
    assert "'max_recs' of Below" in problem


def test_a_users_own_members_are_left_alone():
    own = dict.fromkeys(["handled", "prepared", "offset", "topic", "executed", "_max_recs"], 5)
    assert [*career_problems(type("Right", (Drain,), {**own, "handles": plain}))] == []


def test_one_hand_over_is_enough():
    both = type("Both", (Work,), {"handOver": plain, "hand_over": plain})
    with pytest.raises(ConfigurationError, match="both handOver and hand_over"):
        check_career(both)


@pytest.mark.parametrize("name", ["handOver", "hand_over"])
def test_the_hand_over_has_two_names(name):
    called: list[Any] = []
    kind = type("Right", (Work,), {name: lambda _self, term: called.append(term)})
    check_career(kind)
    term = open_term()
    kind().handOver(term)
    assert called == [term]


class Unconnected(Session):
    _chroot = ""

    def __init__(self) -> None:
        pass


TAKEN: dict[str, Callable[[Any], Any]] = {
    "a listener of events": lambda given: EventBus().subscribe(Event, given),
    "a listener of anything": lambda given: Listeners[int]().add(given),
    "a fact of a test": eventually,
    "a fact about a career": lambda given: Observer(Unconnected(), "c").wait_until(
        given, timeout_s=0
    ),
    "a watch": lambda given: Unconnected().get_async("/", given),
    "a queue of one writer": SingularUpdateQueue,
    "a listener of its errors": lambda given: SingularUpdateQueue(print, on_error=given),
    "work for its writer": lambda given: SingularUpdateQueue(print).post_back(given),
    "a next queue": lambda given: SingularUpdateQueue(print).then(
        SingularUpdateQueue(print), given
    ),
}


@pytest.mark.parametrize("place", [*TAKEN])
@pytest.mark.parametrize("given", [coroutine, generator, 7])
def test_whoever_takes_a_function_refuses_what_is_none(place, given):
    with pytest.raises(ConfigurationError):
        TAKEN[place](given)
