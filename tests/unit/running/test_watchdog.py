"""When a guardian stops its worker, as lists of looks."""

from __future__ import annotations

from leaderq.running.watchdog import Intervention, LeaseReport, Watchdog

REPORT = LeaseReport(term=1, until_s=100.0, grace_s=1.0)


def looks(watch: Watchdog, times: list[float], *, stopped: bool = False) -> list[Intervention]:
    verdicts = []
    for at in times:
        watch, verdict = watch.look(at, stopped=stopped)
        verdicts.append(verdict)
    return verdicts


def steps(start: float, count: int) -> list[float]:
    return [start + 0.25 * number for number in range(count)]


def test_a_worker_without_a_term_is_left_alone():
    assert set(looks(Watchdog(), steps(0.0, 20))) == {Intervention.LEAVE_ALONE}


def test_a_worker_whose_lease_runs_is_left_alone():
    assert set(looks(Watchdog().heard(REPORT), steps(90.0, 40))) == {Intervention.LEAVE_ALONE}


def test_a_worker_that_outlives_its_lease_is_terminated_and_then_killed():
    verdicts = looks(Watchdog(looked_s=99.9).heard(REPORT), steps(100.0, 9))
    assert verdicts == [Intervention.LEAVE_ALONE] * 4 + [Intervention.TERMINATE] * 4 + [Intervention.KILL]


def test_a_stopped_worker_harms_nobody_and_is_left_alone():
    assert set(looks(Watchdog().heard(REPORT), steps(100.0, 400), stopped=True)) == {Intervention.LEAVE_ALONE}


def test_a_thawed_worker_gets_its_whole_grace():
    watch = Watchdog(looked_s=99.9).heard(REPORT)
    for at in steps(100.0, 40):
        watch, _ = watch.look(at, stopped=True)
    assert looks(watch, steps(110.0, 4)) == [Intervention.LEAVE_ALONE] * 3 + [Intervention.TERMINATE]


def test_a_guardian_that_did_not_run_itself_holds_nothing_against_the_worker():
    assert looks(Watchdog(looked_s=90.0).heard(REPORT), [500.0, 500.25]) == [Intervention.LEAVE_ALONE] * 2


def test_a_report_ends_all_reproach():
    watch = Watchdog(looked_s=99.9).heard(REPORT)
    for at in steps(100.0, 5):
        watch, _ = watch.look(at, stopped=False)
    assert looks(watch.heard(LeaseReport(term=1, until_s=110.0, grace_s=1.0)), [101.5]) == [Intervention.LEAVE_ALONE]
    assert looks(watch.heard(None), steps(101.5, 40)) == [Intervention.LEAVE_ALONE] * 40


def test_looks_are_planned_for_the_end_of_the_lease_and_then_often():
    watch = Watchdog().heard(REPORT)
    assert watch.next_look_s(90.0) == 100.0
    assert watch.next_look_s(100.0) == 100.25
    assert Watchdog().next_look_s(90.0) is None
