"""The mutants of the command line, and of what operators are told."""

from __future__ import annotations

from mutants.mutant import Edit, mutant

CONNECTING = "leaderq/cli/connecting.py"
DRAIN = "leaderq/cli/queue/drain.py"
ENTRY = "leaderq/cli/entry.py"
LAYOUT = "leaderq/election/layout.py"
OBSERVER = "leaderq/election/observer.py"
OPTIONS = "leaderq/cli/options.py"

OPERATING = "tests/acceptance/cli/test_operating.py::test_"
QUEUE = "tests/acceptance/cli/test_queue.py::test_"
RECORDS = "tests/unit/election/test_records.py::test_"
STRANGE = "tests/acceptance/cli/test_strange_surroundings.py::test_"
SURFACE = "tests/unit/cli/test_command_line_surface.py::test_"
WHY = "tests/acceptance/cli/test_why_nobody_leads.py::test_"

MUTANTS = [
    mutant(
        "a socket gets the number of a standard stream that is closed",
        f"{STRANGE}what_a_career_prints_goes_into_no_socket_of_ours",
        Edit(ENTRY, "    _fill_closed_streams()\n", ""),
    ),
    mutant(
        "what is drained to a closed standard output is lost",
        f"{STRANGE}nothing_is_drained_to_a_standard_output_that_is_closed",
        Edit(DRAIN, "    require_output()\n", ""),
    ),
    mutant(
        "what lies unread in a broken pipe is deleted",
        f"{QUEUE}a_drain_into_a_pipe_that_breaks_puts_back_all_that_was_not_read[1]",
        Edit(DRAIN, "return self.written - unread[0]", "return self.written"),
    ),
    mutant(
        "a drain does not wait for its reader",
        f"{QUEUE}a_reader_that_takes_its_time_gets_each_item_once",
        Edit(DRAIN, "                self._outlet.await_reader()\n", ""),
    ),
    mutant(
        "a variable confirms what destroys",
        f"{SURFACE}what_one_call_is_told_has_no_variable_so_that_none_confirms_or_aims_it",
        Edit(
            OPTIONS,
            "is_flag=True, help=help)",
            'is_flag=True, help=help, envvar="LEADERQ_" + names[0][2:].upper())',
        ),
    ),
    mutant(
        "status shows a career that nobody knows",
        f"{OPERATING}a_request_for_a_career_nobody_knows_changes_nothing",
        Edit(CONNECTING, "[known_career(session, settings)] if", "[settings.career] if"),
    ),
    mutant(
        "nobody is told who cools off",
        f"{RECORDS}those_who_cool_off_are_shown_until_they_stand_again_or_their_time_is_over",
        Edit(LAYOUT, "stands_again = round(ended + details.cool_off_s, 3)", "stands_again = None"),
    ),
    mutant(
        "the past of a career grows for ever",
        f"{RECORDS}the_past_keeps_the_newest_terms_and_stays_small",
        Edit(LAYOUT, "*newest.past)[:_KEPT_TERMS]", "*newest.past)"),
    ),
    mutant(
        "a spoilt past keeps everybody from leading",
        f"{RECORDS}a_spoilt_past_stops_nobody",
        Edit(
            LAYOUT,
            'if isinstance(known["past"], list) else ()',
            "if True else ()",
        ),
    ),
    mutant(
        "a career is forgotten under its leader's feet",
        f"{WHY}a_career_is_forgotten_when_nobody_stands_for_it",
        Edit(OBSERVER, "            if who:\n", "            if False:\n"),
    ),
]
