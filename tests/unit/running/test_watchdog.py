"""When a guardian stops its worker, as lists of looks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from leaderq.running.watchdog import AFTER_THAW_S, Intervention, LeaseReport, Watchdog

LEAVE, TERMINATE, KILL, KILL_STARTED = Intervention
UNIT = LeaseReport(term=1, lease_until_s=100.0, grace_s=1.0)
HANDING_OVER = LeaseReport(term=1, lease_until_s=100.0, grace_s=1.0, handing_over=True)
PLANNED = LeaseReport(term=1, lease_until_s=1000.0, grace_s=1.0, budget_until_s=100.0)


def looks(
    dog: Watchdog, begin_s: float, end_s: float, *, stopped: bool = False, step_s: float = 0.05
) -> tuple[Watchdog, dict[Intervention, list[float]]]:
    """Look from ``begin_s`` to ``end_s``; the instants of each intervention."""
    seen: dict[Intervention, list[float]] = {each: [] for each in Intervention}
    for number in range(round((end_s - begin_s) / step_s)):
        at_s = round(begin_s + number * step_s, 6)
        dog, intervention = dog.look(at_s, stopped=stopped)
        seen[intervention].append(at_s)
    return dog, seen


def test_a_worker_without_a_term_is_left_alone():
    _, seen = looks(Watchdog(), 0.0, 20.0)
    assert not seen[TERMINATE] and not seen[KILL]


def test_a_worker_whose_lease_runs_is_left_alone():
    _, seen = looks(Watchdog().heard(UNIT), 90.0, 100.0)
    assert not seen[TERMINATE] and not seen[KILL]


def test_a_unit_that_outlives_its_lease_is_terminated_once_and_killed_before_the_next_can_lead():
    _, seen = looks(Watchdog().heard(UNIT), 99.0, 104.0)
    assert seen[TERMINATE] == [101.0]
    assert seen[KILL][0] == 102.0  # T/6 after the lease, and the next leader begins T/3 after it


def test_a_hand_over_past_the_lease_gets_no_sigterm_and_is_killed_before_the_next_can_lead():
    _, seen = looks(Watchdog().heard(HANDING_OVER), 99.0, 104.0)
    assert not seen[TERMINATE]
    assert seen[KILL][0] == 103.0


def test_the_budget_of_a_planned_end_is_kept_apart_from_the_lease():
    _, seen = looks(Watchdog().heard(PLANNED), 99.0, 103.0)
    assert (seen[TERMINATE], seen[KILL][0]) == ([101.0], 102.0)
    lease_first = LeaseReport(term=1, lease_until_s=100.0, grace_s=1.0, budget_until_s=500.0)
    _, seen = looks(Watchdog().heard(lease_first), 99.0, 103.0)
    assert (seen[TERMINATE], seen[KILL][0]) == ([101.0], 102.0)


def test_a_later_verdict_on_the_same_term_sends_no_second_sigterm():
    dog, seen = looks(Watchdog().heard(PLANNED), 99.0, 101.5)
    assert len(seen[TERMINATE]) == 1
    _, seen = looks(dog.heard(UNIT), 101.5, 103.0)
    assert not seen[TERMINATE] and seen[KILL]


def test_a_stopped_worker_harms_nobody_and_is_left_alone_but_not_what_it_has_started():
    _, seen = looks(Watchdog().heard(UNIT), 100.0, 200.0, stopped=True)
    assert not seen[TERMINATE] and not seen[KILL]
    assert seen[KILL_STARTED] == [102.0]


def test_a_unit_in_hand_at_a_thaw_is_killed_a_tenth_of_a_second_later():
    dog, _ = looks(Watchdog().heard(UNIT), 99.0, 110.0, stopped=True)
    dog, intervention = dog.look(110.0, stopped=False)
    assert intervention is LEAVE
    _, seen = looks(dog, 110.01, 111.0, step_s=0.01)
    assert not seen[TERMINATE]
    assert 110.05 < seen[KILL][0] < 110.1  # so that it has ended by then


def test_a_thaw_in_time_shortens_nothing():
    dog, _ = looks(Watchdog().heard(UNIT), 99.0, 100.5, stopped=True)
    dog, _ = dog.look(100.5, stopped=False)
    _, seen = looks(dog, 100.55, 103.0)
    assert seen[KILL][0] == 102.0


def test_a_hand_over_after_a_thaw_has_its_time():
    dog, _ = looks(Watchdog().heard(UNIT), 99.0, 110.0, stopped=True)
    dog, _ = dog.look(110.0, stopped=False)
    _, seen = looks(dog.heard(HANDING_OVER), 110.05, 114.0)
    assert seen[KILL][0] == 113.0


def test_a_guardian_that_did_not_run_counts_from_when_it_runs_again():
    dog, _ = Watchdog().heard(UNIT).look(99.0, stopped=False)
    dog, intervention = dog.look(500.0, stopped=False)
    assert intervention is LEAVE
    _, seen = looks(dog, 500.01, 501.0, step_s=0.01)
    assert seen[KILL][0] == 500.0 + AFTER_THAW_S


def test_a_report_ends_all_reproach():
    dog, _ = looks(Watchdog().heard(UNIT), 99.0, 101.5)
    _, seen = looks(dog.heard(LeaseReport(term=1, lease_until_s=110.0, grace_s=1.0)), 101.5, 109.0)
    assert not seen[TERMINATE] and not seen[KILL]
    _, seen = looks(dog.heard(None), 101.5, 140.0)
    assert not seen[TERMINATE] and not seen[KILL]


@given(
    lease_s=st.floats(50, 150),
    budget_s=st.none() | st.floats(50, 150),
    grace_s=st.floats(0.05, 10),
    handing_over=st.booleans(),
    stops=st.lists(st.booleans(), min_size=400, max_size=400),
)
def test_no_running_worker_outlives_its_time_and_looks_are_planned_when_they_are_due(
    lease_s, budget_s, grace_s, handing_over, stops
):
    report = LeaseReport(1, lease_s, grace_s, budget_s, handing_over)
    dog, at_s, ran_s, asked = Watchdog().heard(report), 40.0, 0.0, 0
    for stopped in stops:
        dog, intervention = dog.look(at_s, stopped=stopped)
        asked += intervention is TERMINATE
        assert not (stopped and intervention in (TERMINATE, KILL))
        if intervention is KILL:
            assert at_s >= report.ends_s
            break
        due_s = dog.due_s
        assert due_s is not None and due_s > at_s
        ran_s = ran_s + (due_s - at_s) if not stopped and at_s >= lease_s else 0.0
        assert ran_s <= 3 * grace_s + AFTER_THAW_S + 0.05  # in a row, past the lease
        at_s = due_s
    assert asked <= 1
