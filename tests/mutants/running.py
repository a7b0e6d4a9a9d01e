"""The mutants of ``leaderq.running`` and of ``leaderq run``."""

from __future__ import annotations

from mutants.mutant import Edit, mutant

CAREER = "leaderq/career.py"
ERRORS = "leaderq/errors.py"
EVENTS = "leaderq/events.py"
DESCENDANTS = "leaderq/running/descendants.py"
GUARDIAN = "leaderq/running/guardian.py"
LEADERSHIPS = "leaderq/running/leadership.py"
LINK = "leaderq/running/guardian_link.py"
LOADING = "leaderq/config/loading.py"
LOGGING = "leaderq/observability/logging.py"
RUN = "leaderq/cli/run.py"
RUNNER = "leaderq/running/runner.py"
STAGES = "leaderq/running/stages.py"
TERM = "leaderq/term.py"
SUPERVISION = "leaderq/running/supervision.py"
WATCHDOG = "leaderq/running/watchdog.py"

BUG = "tests/faults/election/test_bugs_1_to_13.py::test_bug_"
BLOCKS = "tests/integration/running/test_leadership.py::test_"
LATER_BUG = "tests/faults/election/test_bugs_14_to_28.py::test_bug_"
PROCESSES = "tests/faults/election/test_bug_25_in_processes.py::test_bug_25_"
AS_TREATED = "tests/acceptance/running/test_guardian.py::test_"
CHANGES = "tests/acceptance/running/test_change_of_leadership.py::test_"
RUNNERS = "tests/integration/running/test_runner.py::test_"
PURE_CAREERS = "tests/unit/test_career.py::test_"
PURE_LOGGING = "tests/unit/observability/test_logging.py::test_"
PURE_RESOLUTION = "tests/unit/config/test_resolution.py::test_"
PURE_TERM = "tests/unit/test_term.py::test_"
PURE_ABANDONMENT = "tests/unit/running/test_abandonment.py::test_"
PURE_BUDGETS = "tests/unit/running/test_budgets.py::test_"
PURE_DESCENDANTS = "tests/unit/running/test_descendants.py::test_"
PURE_LINK = "tests/unit/running/test_guardian_link.py::test_"
PURE_EVENTS = "tests/unit/test_events.py::test_"
PURE_STAGES = "tests/unit/running/test_stages.py::test_"
PURE_WATCHDOG = "tests/unit/running/test_watchdog.py::test_"

STAGES_OF_A_TERM = [
    mutant(
        "a unit begins after the lease",
        f"{BUG}09_no_unit_begins_after_the_lease_whatever_stands_still",
        Edit(STAGES, "if stage is not Stage.HANDOVER and not self._term.wait(0):", "if False:"),
    ),
    mutant(
        "whoever is thawed begins a unit",
        f"{PROCESSES}a_thawed_leader_begins_no_unit_after_its_successors_inauguration",
        Edit(STAGES, "and not self._term.wait(0):", "and self._term.ending.is_set():"),
    ),
    mutant(
        "somebody is inaugurated after the lease",
        f"{BUG}09_nobody_is_inaugurated_after_the_lease",
        Edit(
            STAGES,
            "if stage is not Stage.HANDOVER and not self._term.wait(0):",
            "if stage is Stage.EXECUTION and not self._term.wait(0):",
        ),
    ),
    mutant(
        "a hand-over needs a lease",
        f"{PURE_STAGES}a_term_that_is_over_before_it_is_served_is_only_handed_over",
        Edit(
            STAGES,
            "if stage is not Stage.HANDOVER and not self._term.wait(0):",
            "if not self._term.wait(0):",
        ),
    ),
    mutant(
        "a unit begins while the term is paused",
        f"{PURE_STAGES}no_unit_begins_while_the_term_is_paused",
        Edit(STAGES, "            if self._term.paused:\n", "            if False:\n"),
    ),
    mutant(
        "a unit follows one that has failed",
        f"{PURE_STAGES}a_unit_that_raises_is_the_last_one_even_if_the_term_ends_only_later",
        Edit(STAGES, " and self._error is None:", ":"),
        Edit(STAGES, "            self._term.wind_up(Reason.FAILED)", "            pass"),
    ),
    mutant(
        "an abandonment strikes what follows the unit",
        f"{PURE_ABANDONMENT}an_abandonment_between_the_end_of_a_unit_and_its_leaving_does_not_strike_what_follows",
        Edit(
            STAGES,
            "except UnitAbandoned:\n            # raised between",
            "except ZeroDivisionError:\n            # raised between",
        ),
    ),
    mutant(
        "a unit begins after its term was abandoned",
        f"{PURE_ABANDONMENT}no_unit_begins_after_the_abandonment",
        Edit(
            STAGES,
            "if self._abandoned:\n                return",
            "if False:\n                return",
        ),
    ),
]

RUNNING = [
    mutant(
        "a deposed hand-over has the budget of a planned one",
        f"{RUNNERS}a_deposed_leader_has_a_quarter_of_its_time_out_whatever_the_budget",
        Edit(
            RUNNER,
            "min(budget_s, self._session.timeout_s / 4) if deposed else budget_s",
            "budget_s",
        ),
    ),
    mutant(
        "a hand-over that is timed already keeps its longer time when its leader is deposed",
        f"{PURE_BUDGETS}a_leader_that_is_deposed_while_it_hands_over_as_planned_has_less_time",
        Edit(
            SUPERVISION,
            "if term is self._open and (is_shorter or not handing_over):",
            "if term is self._open and not handing_over:",
        ),
    ),
    mutant(
        "a hand-over is timed from when it is called",
        f"{PURE_BUDGETS}the_hand_over_is_timed_from_the_end_of_the_term_and_not_again",
        Edit(
            SUPERVISION,
            "if term is self._open and (is_shorter or not handing_over):",
            "if term is self._open:",
        ),
    ),
    mutant(
        "code that does not return keeps its process",
        f"{RUNNERS}code_that_does_not_return_makes_the_process_leave_and_releases_nothing",
        Edit(RUNNER, "            self._leave(ExitCode.HANDOVER_MISSED)", "            pass"),
    ),
    mutant(
        "a term that ended before it was served is not timed",
        f"{RUNNERS}a_term_that_ended_before_it_is_served_has_its_time_too",
        Edit(
            RUNNER,
            "        if term.ending.is_set():  # ended between",
            "        if False:  # ended between",
        ),
    ),
    mutant(
        "a verdict on the health in one term ends the next",
        f"{RUNNERS}a_late_verdict_on_the_health_in_one_term_does_not_end_the_next",
        Edit(
            RUNNER,
            "unhealthy=lambda: self._candidate.step_down(Reason.HEALTH, term=term)",
            "unhealthy=lambda: self._candidate.step_down(Reason.HEALTH)",
        ),
    ),
    mutant(
        "a worker whose guardian is gone goes on",
        f"{CHANGES}a_worker_whose_guardian_died_says_so_hands_over_and_leaves",
        Edit(
            RUNNER,
            "lost=self.stop,\n",
            "lost=lambda: None,\n",
        ),
    ),
    mutant(
        "what was started in a term outlives it",
        f"{AS_TREATED}what_was_started_in_a_term_ends_with_it",
        Edit(RUNNER, "killed = started.kill_left()", "killed = set()"),
    ),
    mutant(
        "a leader that loses session after session does not cool off",
        f"{LATER_BUG}18_a_candidate_that_loses_session_after_session_cools_off",
        Edit(RUNNER, "        self._stopping.wait(record.seconds)", "        pass"),
    ),
    mutant(
        "two signals of one request are two requests",
        f"{AS_TREATED}a_supervisor_that_signals_every_process_of_a_service_asks_once",
        Edit(RUNNER, "        elif clock.now_s() - asked_s > SAME_REQUEST_S:", "        else:"),
    ),
    mutant(
        "a worker under nohup stops at a hang-up",
        f"{AS_TREATED}under_nohup_a_hang_up_changes_nothing",
        Edit(
            RUNNER,
            "[signal.SIGHUP] if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN else []",
            "[signal.SIGHUP]",
        ),
    ),
    mutant(
        "a hang-up kills a worker",
        f"{AS_TREATED}a_hang_up_is_a_request_to_stop",
        Edit(
            RUNNER,
            "[signal.SIGHUP] if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN else []",
            "[]",
        ),
    ),
    mutant(
        "what a worker has started outlives a worker that leaves",
        f"{AS_TREATED}what_a_worker_has_started_is_gone_when_it_leaves_without_a_guardian",
        Edit(RUN, "    end_all(os.getpid(), within_s=0.2)\n", ""),
    ),
    mutant(
        "a worker says that its session is closed when it is not",
        f"{AS_TREATED}a_session_that_its_worker_could_not_close_is_closed_by_the_guardian",
        Edit(
            RUN,
            "        if session.close() and link is not None:\n",
            "        session.close()\n        if link is not None:\n",
        ),
    ),
    mutant(
        "a log that nobody reads stops a guardian",
        f"{AS_TREATED}a_log_that_nobody_reads_keeps_no_guardian_from_ending_its_worker",
        Edit(
            "leaderq/observability/logging.py",
            "handler = BackgroundHandler(sys.stderr)",
            "handler = logging.StreamHandler(sys.stderr)",
        ),
    ),
]

WATCHING = [
    mutant(
        "a unit may outlive its lease by more than T/6",
        f"{PURE_WATCHDOG}a_unit_that_outlives_its_lease_is_terminated_once_and_killed_before_the_next_can_lead",
        Edit(WATCHDOG, "graces = 3 if self.handing_over else 2", "graces = 3"),
    ),
    mutant(
        "a hand-over may outlive its lease by T/3",
        f"{PURE_WATCHDOG}a_hand_over_past_the_lease_gets_no_sigterm_and_is_killed_before_the_next_can_lead",
        Edit(
            WATCHDOG,
            "graces = 3 if self.handing_over else 2",
            "graces = 4 if self.handing_over else 2",
        ),
    ),
    mutant(
        "a worker has the budget of a planned end, whatever its lease",
        f"{PURE_WATCHDOG}the_budget_of_a_planned_end_is_kept_apart_from_the_lease",
        Edit(
            WATCHDOG,
            "at_s = min(at_s, self.budget_until_s + 2 * self._budget_grace_s)",
            "at_s = self.budget_until_s + 2 * self._budget_grace_s",
        ),
    ),
    mutant(
        "a planned end has no limit but its lease",
        f"{PURE_WATCHDOG}the_budget_of_a_planned_end_is_kept_apart_from_the_lease",
        Edit(
            WATCHDOG,
            "            at_s = min(at_s, self.budget_until_s + 2 * self._budget_grace_s)\n",
            "            pass\n",
        ),
    ),
    mutant(
        "a worker that hands over past its lease is asked to leave at once",
        f"{PURE_WATCHDOG}a_hand_over_past_the_lease_gets_no_sigterm_and_is_killed_before_the_next_can_lead",
        Edit(
            WATCHDOG,
            "return None if self.handing_over else self.ends_s + self.grace_s",
            "return self.ends_s + self.grace_s",
        ),
    ),
    mutant(
        "SIGTERM is sent at every look",
        f"{PURE_WATCHDOG}a_unit_that_outlives_its_lease_is_terminated_once_and_killed_before_the_next_can_lead",
        Edit(WATCHDOG, "if self.asked_term == report.term or self", "if self"),
    ),
    mutant(
        "a worker is killed at the moment of its thaw",
        f"{PURE_WATCHDOG}a_unit_in_hand_at_a_thaw_is_killed_a_tenth_of_a_second_later",
        Edit(
            WATCHDOG,
            "thawed_s = now_s if stalled or (self.stopped and not stopped) else self.thawed_s",
            "thawed_s = now_s if stalled else self.thawed_s",
        ),
    ),
    mutant(
        "a guardian that did not run kills at the moment of its thaw",
        f"{PURE_WATCHDOG}a_guardian_that_did_not_run_counts_from_when_it_runs_again",
        Edit(
            WATCHDOG,
            "thawed_s = now_s if stalled or (self.stopped and not stopped) else self.thawed_s",
            "thawed_s = now_s if self.stopped and not stopped else self.thawed_s",
        ),
    ),
    mutant(
        "a unit may go on for half a second after a thaw",
        f"{PURE_WATCHDOG}a_unit_in_hand_at_a_thaw_is_killed_a_tenth_of_a_second_later",
        Edit(WATCHDOG, "AFTER_THAW_S = 0.08\n", "AFTER_THAW_S = 0.5\n"),
    ),
    mutant(
        "a hand-over after a thaw is killed as a unit is",
        f"{PURE_WATCHDOG}a_hand_over_after_a_thaw_has_its_time",
        Edit(
            WATCHDOG,
            "3 * report.grace_s if report.handing_over and is_late else AFTER_THAW_S",
            "AFTER_THAW_S",
        ),
    ),
    mutant(
        "a unit that is thawed just after its lease is killed before its time",
        f"{PURE_WATCHDOG}a_thaw_in_time_shortens_nothing",
        Edit(
            WATCHDOG,
            "return max(report.kill_s, self.thawed_s + after_s)",
            "return self.thawed_s + after_s",
        ),
    ),
    mutant(
        "a stopped worker is killed",
        f"{PURE_WATCHDOG}a_stopped_worker_harms_nobody_and_is_left_alone_but_not_what_it_has_started",
        Edit(
            WATCHDOG,
            "            return Intervention.KILL_STARTED if is_due else"
            " Intervention.LEAVE_ALONE\n",
            "            if is_due:\n                return Intervention.KILL\n",
        ),
    ),
    mutant(
        "what a stopped worker has started works on",
        f"{PURE_WATCHDOG}a_stopped_worker_harms_nobody_and_is_left_alone_but_not_what_it_has_started",
        Edit(
            WATCHDOG,
            "return Intervention.KILL_STARTED if is_due else Intervention.LEAVE_ALONE",
            "return Intervention.LEAVE_ALONE",
        ),
    ),
    mutant(
        "the guardian looks again only when it hears something",
        f"{PURE_WATCHDOG}no_running_worker_outlives_its_time_and_looks_are_planned_when_they_are_due",
        Edit(
            WATCHDOG,
            "return min((at for at in times if at is not None and at > now_s), default=now_s +"
            " 0.01)",
            "return None",
        ),
    ),
]

REPORTING = [
    mutant(
        "a deposed worker has its hand-over budget",
        f"{PURE_LINK}a_deposing_reason_ends_the_lease_now_whatever_the_budget",
        Edit(
            LINK, "        elif reason is not None and reason.deposes:\n", "        elif False:\n"
        ),
    ),
    mutant(
        "a deposed worker has the rest of its lease",
        f"{PURE_LINK}a_deposing_reason_ends_the_lease_now_whatever_the_budget",
        Edit(
            LINK,
            "min(self._lease_until_s, term.deadline, clock.now_s())",
            "min(self._lease_until_s, term.deadline)",
        ),
    ),
    mutant(
        "a lease that ran out ends when that is noticed",
        f"{PURE_LINK}a_lease_that_ran_out_counts_from_its_deadline",
        Edit(
            LINK,
            "self._lease_until_s = min(self._lease_until_s, term.deadline, clock.now_s())",
            "self._lease_until_s = clock.now_s()",
        ),
    ),
    mutant(
        "each report puts the end of the budget off",
        f"{PURE_LINK}a_planned_end_has_its_budget_and_its_lease_goes_on",
        Edit(
            LINK,
            "            if self._budget_until_s is None:\n                self._budget_until_s",
            "            if True:\n                self._budget_until_s",
        ),
    ),
    mutant(
        "a longer time-out lengthens a worker's grace",
        f"{PURE_LINK}a_shorter_time_out_makes_a_shorter_grace_and_it_stays",
        Edit(
            LINK,
            "self._grace_s = min(self._grace_s, self._session.timeout_s / 12)",
            "self._grace_s = self._session.timeout_s / 12",
        ),
    ),
    mutant(
        "a term is reported after its code has returned",
        f"{PURE_LINK}nothing_of_a_term_is_reported_after_its_code_has_returned",
        Edit(
            LINK,
            "[held for held in self._held if held.term is not term]",
            "[*self._held]",
        ),
    ),
    mutant(
        "all reports wait for a guardian that does not read",
        f"{PURE_LINK}a_guardian_that_does_not_read_never_blocks_the_worker_and_hears_the_newest_when_it_does",
        Edit(
            LINK,
            "self._newest_report = _line(asdict(self._first_to_end()))",
            "self._unsent.append(_line(asdict(self._first_to_end())))",
        ),
    ),
    mutant(
        "a guardian that does not read blocks its worker",
        f"{PURE_LINK}a_guardian_that_does_not_read_never_blocks_the_worker_and_hears_the_newest_when_it_does",
        Edit(LINK, "self._link.setblocking(False)", "self._link.setblocking(True)"),
        may_hang=True,
    ),
    mutant(
        "the worker is not told that its guardian is gone",
        f"{PURE_LINK}the_end_of_the_guardian_is_said_and_the_worker_told",
        Edit(LINK, "            lost()\n", ""),
    ),
    mutant(
        "of several terms the guardian hears of the one that ends last",
        f"{PURE_LINK}of_several_terms_the_one_is_reported_whose_code_must_be_gone_first",
        Edit(LINK, "return min((held.report()", "return max((held.report()"),
    ),
    mutant(
        "a term is not reported to the guardian",
        f"{AS_TREATED}what_a_stopped_worker_has_started_is_gone_before_the_next_one_leads",
        Edit(
            LINK,
            "            self._held.append(_HeldTerm(term, self._session, handover_budget_s))\n",
            "            pass\n",
        ),
    ),
]

GUARDING = [
    mutant(
        "the session of a killed worker is left to expire",
        f"{CHANGES}a_killed_workers_session_is_closed_by_its_guardian_and_the_next_leads",
        Edit(GUARDIAN, "        self._close_session()\n        return", "        return"),
    ),
    mutant(
        "what a killed worker has started works on",
        f"{AS_TREATED}what_a_killed_worker_has_started_is_gone_before_the_next_one_leads",
        Edit(
            GUARDIAN,
            "                self._kill_descendants(worker.pid)\n",
            "                pass\n",
        ),
    ),
    mutant(
        "the daemons of a killed worker work on",
        f"{AS_TREATED}what_a_killed_worker_has_started_is_gone_before_the_next_one_leads",
        Edit(GUARDIAN, "            adopt_orphans()\n", ""),
    ),
    mutant(
        "the guardian forgets to kill what a stopped worker has started",
        f"{AS_TREATED}what_a_stopped_worker_has_started_is_gone_before_the_next_one_leads",
        Edit(
            GUARDIAN,
            "            end_all(os.getpid(), within_s=_STARTED_S, but=worker.pid)\n",
            "",
        ),
    ),
    mutant(
        "the guardian takes a stopped worker for one that runs",
        f"{CHANGES}a_frozen_leader_is_refused_everything_when_it_thaws_and_hands_over_with_the_reason",
        Edit(GUARDIAN, 'in (["T"], ["t"])', "in ()"),
    ),
    mutant(
        "the guardian looks away from a worker that is overdue",
        f"{AS_TREATED}what_a_stopped_worker_has_started_is_gone_before_the_next_one_leads",
        Edit(GUARDIAN, "                self._look(worker)\n", ""),
    ),
    mutant(
        "the guardian asks a worker that was asked already",
        f"{AS_TREATED}a_worker_that_was_asked_to_leave_is_not_asked_again_when_its_lease_ends",
        Edit(
            GUARDIAN,
            "        if not is_last and self._told_to_stop:\n            return",
            "        if False:\n            return",
        ),
    ),
    mutant(
        "the guardian passes a first request on to a worker that it has asked itself",
        f"{AS_TREATED}a_worker_that_its_guardian_has_asked_to_leave_is_not_asked_again",
        Edit(GUARDIAN, "if self._told_to_stop == 1 and self._has_asked:", "if False:"),
    ),
    mutant(
        "a guardian under nohup passes a hang-up on",
        f"{AS_TREATED}under_nohup_a_hang_up_changes_nothing",
        Edit(
            GUARDIAN,
            "[n for n in _PASSED_ON_UNLESS_IGNORED if signal.getsignal(n) is not signal.SIG_IGN]",
            "list(_PASSED_ON_UNLESS_IGNORED)",
        ),
    ),
    mutant(
        "a number is taken for the process that bore it once",
        f"{PURE_DESCENDANTS}a_number_that_another_process_bears_by_now_is_left_alone",
        Edit(
            DESCENDANTS,
            "            if _living(one.pid) == one:\n",
            "            if _living(one.pid):\n",
        ),
    ),
    mutant(
        "a process that goes while its children are looked for fails whoever looks",
        f"{PURE_DESCENDANTS}a_process_that_goes_while_it_is_looked_at_has_no_children",
        Edit(
            DESCENDANTS,
            'list(Path(f"/proc/{pid}/task").iterdir())',
            'list(Path(f"/proc/{pid}/task").glob("*"))',
        ),
    ),
    mutant(
        "what was started before a term ends with it",
        f"{PURE_DESCENDANTS}only_what_was_started_in_the_term_is_ended",
        Edit(DESCENDANTS, "if one.began >= self._since and one.pid", "if one.pid"),
    ),
    mutant(
        "a stranger that bears the number of a dead guardian is searched",
        f"{PURE_DESCENDANTS}a_guardian_that_is_not_our_parent_any_more_is_not_searched",
        Edit(DESCENDANTS, "        if os.getppid() == self._guardian:", "        if True:"),
    ),
    mutant(
        "the helpers of multiprocessing end with a term",
        f"{PURE_DESCENDANTS}the_helpers_of_multiprocessing_live_on",
        Edit(
            DESCENDANTS, "kept = {os.getpid(), *_multiprocessing_helpers()}", "kept = {os.getpid()}"
        ),
    ),
]

CAREERS = [
    mutant(
        "a slip in a career's class does nothing, silently",
        f"{PURE_CAREERS}a_slip_is_refused_with_the_name_that_was_meant",
        Edit(CAREER, "if name not in known and (meant", "if False and (meant"),
    ),
    mutant(
        "a coroutine function is taken for a method of a career",
        f"{PURE_CAREERS}a_method_that_does_nothing_when_called_is_refused",
        Edit(
            CAREER, 'for name in getattr(kind, "_called", LeaderCareer._called):', "for name in ():"
        ),
    ),
    mutant(
        "a unit that returns work to do counts as done",
        f"{PURE_STAGES}a_stage_that_returns_work_to_do_has_failed",
        Edit(
            STAGES,
            'require_finished(code(self._term), getattr(code, "__name__", stage.value))',
            "code(self._term)",
        ),
    ),
    mutant(
        "a career that has finished stands again if it was deposed on its way out",
        f"{PURE_TERM}who_has_finished_has_finished_whatever_ends_the_term",
        Edit(
            TERM,
            "        self._finished = True\n",
            "        self._finished = self._reason is None\n",
        ),
    ),
    mutant(
        "the log handlers of a module are thrown away",
        f"{PURE_LOGGING}handlers_that_a_module_has_set_stay_and_ours_joins_them",
        Edit(LOGGING, "    root.handlers[:] = own\n", "    root.handlers[:] = own = []\n"),
    ),
    mutant(
        "a career is given the options of another",
        f"{PURE_RESOLUTION}a_careers_own_values_reach_it_and_are_not_looked_at",
        Edit(LOADING, "options=careers.get(str(name), {})", 'options=careers.get("a", {})'),
    ),
]

LEADERSHIP = [
    mutant(
        "a block on a thread that leads already waits for itself",
        f"{BLOCKS}a_second_block_on_the_same_thread_is_refused_instead_of_waiting_for_itself",
        Edit(LEADERSHIPS, "        if place in self._places:", "        if False:"),
        may_hang=True,
    ),
    mutant(
        "the body of a block begins while the career is paused",
        f"{BLOCKS}a_paused_career_begins_no_body",
        Edit(
            LEADERSHIPS,
            "        while term.paused and clock.now_s() < until_s",
            "        while False and clock.now_s() < until_s",
        ),
        Edit(LEADERSHIPS, "return term.wait(0) and not term.paused and", "return term.wait(0) and"),
    ),
    mutant(
        "who waits for a term is not told that the session was closed",
        f"{BLOCKS}who_waits_for_a_term_is_told_when_the_session_is_closed",
        Edit(LEADERSHIPS, "        if state is SessionState.CLOSED:\n", "        if False:\n"),
    ),
    mutant(
        "a task that is cancelled as it wins leads for ever",
        f"{BLOCKS}a_task_that_is_cancelled_as_it_wins_releases_the_term",
        Edit(LEADERSHIPS, "            entering.add_done_callback(self._leave_if_won)\n", ""),
    ),
    mutant(
        "a unit that resigned is abandoned",
        f"{RUNNERS}a_career_ends_its_own_terms_and_its_own_process",
        Edit(
            RUNNER,
            "            if event.reason not in (Reason.RESIGNED, Reason.FINISHED):",
            "            if True:",
        ),
    ),
    mutant(
        "a career that has finished but failed on its way out ends well",
        f"{RUNNERS}a_career_that_fails_on_its_way_out_has_not_ended_well",
        Edit(RUNNER, "            self._failure = error\n", "            pass\n"),
    ),
]

RUDENESS = [
    mutant(
        "the name of a process is read as text",
        f"{PURE_DESCENDANTS}a_process_whose_name_is_cut_within_a_letter_is_found_like_any_other",
        Edit(
            DESCENDANTS,
            'return stat.rpartition(b")")[2].decode().split()',
            'return stat.decode().rpartition(")")[2].split()',
        ),
    ),
    mutant(
        "what cannot be looked for is taken for gone",
        f"{AS_TREATED}what_cannot_be_looked_for_for_want_of_files_ends_with_its_worker",
        Edit(
            DESCENDANTS,
            "_NOT_THERE = (FileNotFoundError, ProcessLookupError, PermissionError)",
            "_NOT_THERE = (OSError,)",
        ),
    ),
    mutant(
        "a guardian that can open no file gives up at once",
        f"{AS_TREATED}a_guardian_that_can_open_no_file_looks_again_for_what_its_worker_has_started",
        Edit(
            GUARDIAN,
            "                problem = exc\n",
            "                problem = exc\n                break\n",
        ),
    ),
    mutant(
        "a worker that may not be signalled is not asked to leave",
        f"{AS_TREATED}a_worker_that_its_guardian_may_not_signal_is_asked_to_leave_in_another_way",
        Edit(GUARDIAN, "self._link.shutdown(socket.SHUT_RDWR)", "pass"),
        may_hang=True,
    ),
    mutant(
        "who is told to stop needs a thread to be started",
        f"{AS_TREATED}a_worker_that_can_start_no_thread_hands_over_all_the_same",
        Edit(RUNNER, "        self._stopper.start()\n", ""),
        Edit(RUNNER, "        self._stopper.wake()\n", "        self._stopper.start()\n"),
        may_hang=True,
    ),
    mutant(
        "a signal must have a name",
        f"{AS_TREATED}a_worker_that_a_signal_without_a_name_has_killed_is_told_of",
        Edit(
            DESCENDANTS,
            "    except ValueError:\n        return f",
            "    except KeyError:\n        return f",
        ),
    ),
    mutant(
        "a listener that exits takes the leader along",
        f"{PURE_EVENTS}what_a_listener_raises_reaches_neither_the_publisher_nor_the_other_listeners",
        Edit(EVENTS, "                except BaseException:", "                except Exception:"),
    ),
    mutant(
        "the abandonment of a unit is lost in a listener",
        f"{PURE_EVENTS}what_strikes_a_listener_from_outside_is_raised_once_all_were_told",
        Edit(EVENTS, "        if struck is not None:", "        if False:"),
    ),
    mutant(
        "an error that cannot be told ends the thread",
        f"{PURE_STAGES}an_error_whose_text_cannot_be_had_ends_the_term_like_any_other",
        Edit(
            ERRORS,
            "    except Exception as exc:  # noqa: BLE001 - an error of the user's",
            "    except KeyError as exc:  # noqa: BLE001 - an error of the user's",
        ),
    ),
]

MUTANTS = [
    *CAREERS,
    *LEADERSHIP,
    *STAGES_OF_A_TERM,
    *RUNNING,
    *WATCHING,
    *REPORTING,
    *GUARDING,
    *RUDENESS,
]
