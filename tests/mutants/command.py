"""The mutants of ``leaderq lead``, and of ending what a process has started."""

from __future__ import annotations

from mutants.mutant import Edit, mutant

COMMAND = "leaderq/running/command.py"
DESCENDANTS = "leaderq/running/descendants.py"
RUNNER = "leaderq/running/runner.py"
SUPERVISION = "leaderq/running/supervision.py"

LEAD = "tests/acceptance/running/test_lead.py::test_"
EXIT_CODE = f"{LEAD}the_exit_code_of_a_command_is_that_of_its_leader"
PURE_COMMAND = "tests/unit/running/test_command.py::test_"
PURE_COOL_OFF = "tests/unit/running/test_cool_off.py::test_"
PURE_DESCENDANTS = "tests/unit/running/test_descendants.py::test_"

MUTANTS = [
    mutant(
        "a command's daemon is lost with the guardian",
        f"{LEAD}a_daemon_of_a_command_is_dead_before_the_next_one_begins_though_the_guardian_is",
        Edit(COMMAND, "        adopt_orphans()\n", "        pass\n"),
    ),
    mutant(
        "a command that is lost to its lease has the budget of a planned end",
        f"{LEAD}whoever_loses_its_lease_ends_its_deaf_command_and_stands_again",
        Edit(
            COMMAND,
            "return min(planned_s, term.deadline + self.session.timeout_s / 6)",
            "return planned_s",
        ),
        may_hang=True,
    ),
    mutant(
        "a command has all of the hand-over budget, and its leader none",
        f"{LEAD}what_a_command_leaves_running_when_it_ends_is_dead_when_its_leader_is",
        Edit(COMMAND, "_KILLING_S = 1.0", "_KILLING_S = -5.0"),
    ),
    mutant(
        "a command is not asked to end",
        f"{LEAD}sigterm_reaches_the_command_once_and_it_is_waited_for",
        Edit(COMMAND, "told |= send(left - told, signal.SIGTERM)", "told |= left"),
    ),
    mutant(
        "a command is asked again and again",
        f"{LEAD}sigterm_reaches_the_command_once_and_it_is_waited_for",
        Edit(
            COMMAND,
            "                told |= send(left - told, signal.SIGTERM)",
            "                send(left, signal.SIGTERM)",
        ),
    ),
    mutant(
        "a command that signals its process group means its leader",
        EXIT_CODE,
        Edit(COMMAND, "start_new_session=True", "start_new_session=False"),
    ),
    mutant(
        "the deadline that a command can read is never renewed",
        f"{LEAD}the_deadline_is_renewed_while_the_term_lasts",
        Edit(COMMAND, "            self._deadline.tell(term.deadline)\n", ""),
        may_hang=True,
    ),
    mutant(
        "the deadline that a command can read is rounded up",
        f"{PURE_COMMAND}a_deadline_can_be_read_by_another_process_and_is_never_later_than_it_is",
        Edit(COMMAND, "{int(deadline_s * 1000) / 1000:.3f}", "{deadline_s:.3f}"),
    ),
    mutant(
        "whoever is to end with its command stands again",
        f"{EXIT_CODE}[command0-0]",
        Edit(RUNNER, "if term.is_finished or not self._stands_again():", "if term.is_finished:"),
        may_hang=True,
    ),
    mutant(
        "a command that has nothing to do is run ten times a second",
        f"{PURE_COOL_OFF}a_career_that_ends_its_own_term_stands_again_after_a_pause_and_has_not_failed",
        Edit(
            SUPERVISION,
            "    if reason in (Reason.RESIGNED, Reason.WITHDRAWN):",
            "    if False:",
        ),
    ),
    mutant(
        "who forks and ends again and again escapes",
        f"{PURE_DESCENDANTS}a_chain_of_processes_that_fork_and_end_is_ended",
        Edit(
            DESCENDANTS,
            "if (group := os.getpgid(pid)) not in spared:",
            "if (group := 0) not in spared:",
        ),
    ),
    mutant(
        "a process whose first thread has ended escapes",
        f"{PURE_DESCENDANTS}a_process_whose_first_thread_has_ended_is_not_dead",
        Edit(DESCENDANTS, " and int(fields[17]) <= 1", ""),
    ),
    mutant(
        "who is spared is killed with its group",
        f"{PURE_DESCENDANTS}who_is_spared_lives_on_and_what_it_has_started_does_not",
        Edit(DESCENDANTS, "spared = {0, os.getpgrp(), but}", "spared = {0, os.getpgrp()}"),
    ),
]
