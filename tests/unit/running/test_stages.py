"""One term served: which of the user's code is called, and when not any more."""

from __future__ import annotations

import threading

import pytest
from mute import TOLD, Mute
from terms import open_term

from leaderq import Deposed, LeaderCareer
from leaderq.arguments import NotAPlainFunction
from leaderq.events import CareerError, Event, EventBus, Stage
from leaderq.running.stages import StageRunner
from leaderq.running.supervision import Budgets
from leaderq.term import Reason


class Diary(LeaderCareer):
    """Writes down what is called, and does then what a test wants."""

    def __init__(self, **acts) -> None:
        self.calls: list[str] = []
        self.acts = acts

    def _do(self, what: str, term) -> None:
        self.calls.append(what)
        self.acts.get(what, lambda _term: None)(term)

    def inaugurate(self, term) -> None:
        self._do("inaugurate", term)

    def execute(self, term) -> None:
        self._do("execute", term)

    def handOver(self, term) -> None:  # noqa: N802
        self._do("handOver", term)


def serve(career, term, *, settle_s=0.0, step_down=lambda: None):
    events: list[Event] = []
    bus = EventBus()
    bus.subscribe(Event, events.append)
    stages: list[Stage] = []
    budgets = Budgets()
    budgets.open_term(term)
    service = StageRunner(
        career,
        term,
        budgets=budgets,
        inaugurate_budget_s=60,
        settle_s=settle_s,
        events=bus,
        tell_stage=stages.append,
        step_down=step_down,
    )
    return service.serve(), events, stages


def raising(error):
    def act(_term):
        raise error

    return act


def test_the_stages_come_in_order_and_the_hand_over_once():
    term = open_term()
    career = Diary(execute=lambda term: term.wind_up(Reason.STEP_DOWN))
    failed, _, stages = serve(career, term)
    assert not failed
    assert career.calls == ["inaugurate", "execute", "handOver"]
    assert stages == [Stage.EXECUTION, Stage.HANDOVER]


def test_a_unit_that_raises_is_the_last_one_even_if_the_term_ends_only_later():
    """Found on the way: it was called again and again until the candidate's thread had heard of the
    failure.
    """
    career = Diary(execute=raising(RuntimeError("no")))
    failed, events, _ = serve(career, open_term())
    assert failed
    assert career.calls == ["inaugurate", "execute", "handOver"]
    assert [event.stage for event in events if isinstance(event, CareerError)] == ["execution"]


def test_a_failed_inauguration_is_followed_by_no_work_but_by_the_hand_over():
    career = Diary(inaugurate=raising(ValueError("no")))
    assert serve(career, open_term())[0]
    assert career.calls == ["inaugurate", "handOver"]


def test_a_failed_hand_over_is_a_failure():
    career = Diary(
        execute=lambda term: term.wind_up(Reason.STEP_DOWN), handOver=raising(OSError("disk"))
    )
    assert serve(career, open_term())[0]


def test_an_error_whose_text_cannot_be_had_ends_the_term_like_any_other():
    term = open_term()
    career = Diary(execute=raising(Mute()))
    failure, events, _ = serve(career, term)
    assert career.calls == ["inaugurate", "execute", "handOver"]
    assert term.reason is Reason.FAILED
    assert [type(event.error) for event in events if isinstance(event, CareerError)] == [Mute]
    assert TOLD in str(failure)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_leaving_the_process_from_within_a_unit_is_a_failure_and_not_an_exit(error):
    assert serve(Diary(execute=raising(error)), open_term())[0]


def test_noticing_that_one_is_deposed_is_no_failure():
    term = open_term()
    career = Diary(execute=raising(Deposed(term=1, reason=Reason.FENCED)))
    failed, events, _ = serve(career, term)
    assert not failed
    assert term.reason is Reason.FENCED
    assert not [event for event in events if isinstance(event, CareerError)]
    assert career.calls[-1] == "handOver"


def test_a_term_that_is_over_before_it_is_served_is_only_handed_over():
    term = open_term()
    term.wind_up(Reason.SESSION)
    career = Diary()
    serve(career, term)
    assert career.calls == ["handOver"]


def test_no_unit_begins_while_the_term_is_paused():
    term = open_term()
    career = Diary(execute=lambda term: term.wind_up(Reason.STEP_DOWN))
    term.pause(True)
    ender = threading.Timer(0.1, lambda: term.wind_up(Reason.TRANSFER))
    # not sooner, or the term might be over before it is served
    career.acts["inaugurate"] = lambda _term: ender.start()
    serve(career, term)
    ender.join()
    assert career.calls == ["inaugurate", "handOver"]


def test_after_an_unclean_end_the_settle_time_is_waited_out_unless_the_term_ends():
    term = open_term(unclean=True)
    ender = threading.Timer(0.05, lambda: term.wind_up(Reason.STEP_DOWN))
    ender.start()
    career = Diary()
    serve(career, term, settle_s=600)
    ender.join()
    assert career.calls == ["handOver"]


def test_a_clean_end_never_waits():
    career = Diary(execute=lambda term: term.wind_up(Reason.STEP_DOWN))
    serve(career, open_term(unclean=False), settle_s=600)
    assert career.calls == ["inaugurate", "execute", "handOver"]


async def unawaited(_term) -> None:
    pass


def unfinished(_term):
    yield 1


@pytest.mark.parametrize("hidden", [unawaited, unfinished])
def test_a_stage_that_returns_work_to_do_has_failed(hidden):
    career = Diary()

    def execute(term):
        if "execute" in career.calls:
            term.wind_up(Reason.STEP_DOWN)
        career.calls.append("execute")
        return hidden(term)

    career.execute = execute  # type: ignore[method-assign]
    failure, _, _ = serve(career, term := open_term())
    assert failure is not None
    assert isinstance(failure.__cause__, NotAPlainFunction)
    assert str(failure.__cause__).startswith("execute returned")
    assert term.reason is Reason.FAILED
    assert career.calls == ["inaugurate", "execute", "handOver"]
