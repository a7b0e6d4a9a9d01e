"""Each promise of ``docs/guarantees.rst`` has tests that ``make test`` runs: those named here, in
simulated time where it is about order and time, and on real servers wherever servers are part of
it. Each window, defect and bug of ``docs/design/facts.md`` has one that begins with its number.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from standing import TESTS, is_long, stands

PAGE = Path(__file__).parents[2] / "docs" / "guarantees.rst"

CHANGES = "tests/acceptance/running/test_change_of_leadership.py::test_"
RUDE = "tests/acceptance/running/test_rude_careers.py::test_"
POLICIES = "tests/integration/kafka/test_policies.py::test_"
MESSAGES = "tests/integration/dyno/test_messages.py::test_"
JOURNAL = "tests/unit/producing/journal/test_"

LIVES = "tests/simulation/test_election_promises.py::test_"
DRAINS = "tests/simulation/test_kafka_promises.py::test_"
PRODUCERS = "tests/simulation/test_producer_promises.py::test_"
WINDOWS = "tests/simulation/test_queue_windows.py::test_"
DEFECTS = "tests/simulation/test_dyno_defects.py::test_"

PROMISES = {
    "worker killed (``kill -9``, out of memory)": [
        f"{LIVES}worker_killed_and_the_next_is_inaugurated_within_100_ms",
        f"{CHANGES}a_killed_workers_session_is_closed_by_its_guardian_and_the_next_leads",
    ],
    "worker and guardian killed together": [
        f"{LIVES}host_lost_and_the_next_follows_within_its_time",
        f"{CHANGES}a_worker_that_dies_with_its_guardian_costs_no_more_than_a_session_time_out",
    ],
    "guardian killed": [
        f"{RUDE}what_was_started_in_a_term_ends_before_the_next_inauguration[some]",
        "tests/unit/running/test_orphans.py"
        "::test_the_daemon_of_a_worker_whose_guardian_was_killed_is_ended",
    ],
    "host or network lost": [
        f"{LIVES}host_lost_and_the_next_follows_within_its_time",
        f"{LIVES}network_lost_and_nobody_works_beside_the_next",
        f"{CHANGES}a_worker_that_dies_with_its_guardian_costs_no_more_than_a_session_time_out",
    ],
    "leader frozen, then resumed": [
        f"{LIVES}leader_frozen_then_resumed_starts_nothing_in_its_old_term",
        f"{DRAINS}bug_22_a_zombies_commit_after_its_successors_first_read_is_refused",
        f"{CHANGES}a_frozen_leader_is_refused_everything_when_it_thaws_and_hands_over_with_the_reason",
        f"{RUDE}a_thawed_leader_begins_nothing_and_its_unit_ends_within_a_tenth_of_a_second[some]",
        "tests/integration/kafka/test_kafka_faults.py"
        "::test_a_leader_frozen_and_thawed_is_fenced_and_fences_nobody",
    ],
    "host paused with its clocks": [
        f"{LIVES}a_host_paused_with_its_clock_begins_no_unit_once_its_server_has_hung_up",
        f"{LIVES}a_host_paused_with_its_clock_in_a_silent_network_works_on_for_its_lease",
    ],
    "a unit of work outlives the lease": [
        f"{LIVES}a_unit_that_outlives_the_lease_ends_with_its_worker_before_another_leads",
        f"{RUDE}a_leader_that_hears_nothing_or_runs_no_python_ends_before_its_successors_inauguration"
        "[some]",
        f"{RUDE}what_was_started_in_a_term_ends_before_the_next_inauguration[some]",
    ],
    "planned stop or transfer": [
        f"{LIVES}planned_stop_under_50_ms_after_the_unit_in_hand",
        f"{LIVES}transfer_to_one_that_is_not_next_in_line",
        f"{CHANGES}a_terminated_leader_finishes_its_unit_hands_over_and_only_then_the_next_starts",
        "tests/acceptance/cli/test_operating.py"
        "::test_transfer_and_step_down_return_when_the_next_leader_is_inaugurated",
    ],
    "ZooKeeper unreachable": [
        f"{LIVES}zookeeper_unreachable_for_a_moment_pauses_the_work_and_keeps_the_term",
        f"{LIVES}zookeeper_unreachable_past_the_lease_ends_the_term_and_it_leads_again",
        f"{CHANGES}a_restart_within_the_lease_pauses_the_work_and_keeps_the_term",
    ],
    "Kafka unreachable": [
        f"{DRAINS}kafka_unreachable_and_the_term_goes_on_and_skips_nothing",
        "tests/integration/kafka/test_kafka_faults.py"
        "::test_a_broker_restart_in_the_middle_loses_nothing",
    ],
    "your handler raises": [
        f"{DRAINS}your_handler_raises_and_by_default_the_offset_stays_and_it_stands_again",
        f"{LIVES}code_that_raises_ends_its_term_and_stands_again_after_a_pause",
        f"{POLICIES}poison_goes_to_the_dead_letters_and_everything_else_is_handled_once",
        f"{CHANGES}a_failing_career_hands_over_cools_off_and_stands_again",
    ],
    "your database is unreachable": [
        f"{DRAINS}your_database_is_unreachable_and_no_record_is_blamed",
        "tests/unit/kafka/test_hold_ups.py"
        "::test_an_outage_is_waited_for_and_no_record_is_passed_over",
    ],
    "a record kills the process again and again": [
        f"{DRAINS}a_record_that_kills_the_process_again_and_again_is_passed_over",
        "tests/acceptance/running/test_killing_record.py"
        "::test_a_record_that_kills_every_leader_is_set_aside_and_the_work_goes_on",
    ],
    "a queue's consumer dies (with ``lock_path``)": [
        f"{WINDOWS}f7_what_a_dead_consumer_held_goes_to_an_idle_one"
        "_although_the_queue_does_not_change",
        f"{WINDOWS}f8_f9_who_was_late_takes_neither_the_item_nor_the_lock"
        "_nor_gives_it_a_third_time",
        "tests/faults/queues/test_dying_consumers.py"
        "::test_who_was_frozen_over_an_item_that_another_has_done_is_refused",
    ],
    "a message's consumer dies, or hangs": [
        f"{DEFECTS}d8_a_consumer_that_dies_at_any_request_as_it_pops_does_not_block_the_head",
        f"{DEFECTS}d14_a_message_that_fails_for_ever_is_set_aside_with_its_reason",
        f"{DEFECTS}d15_who_has_lost_its_lease_changes_nothing",
        "tests/simulation/test_dyno_promises.py"
        "::test_a_message_of_a_handler_that_hangs_passes_to_another_when_its_time_is_over",
        f"{MESSAGES}what_a_dead_consumer_had_passes_to_another_before_its_deadline",
    ],
    "a reply from ZooKeeper is lost, at any point": [
        f"{WINDOWS}f1_f2_f6_f10_f11_whatever_is_lost_at_whichever_request"
        "_nothing_is_lost_or_done_twice",
        f"{WINDOWS}f4_a_put_is_stored_once_and_in_order_whichever_request_is_lost",
        "tests/simulation/test_writing.py"
        "::test_each_group_is_applied_once_and_in_order_whichever_request_is_lost",
        f"{WINDOWS}f4_f6_of_simple_queues_each_item_is_offered_and_taken_once",
        f"{DEFECTS}d5_a_message_under_way_is_not_handed_out_twice_whichever_request_is_lost",
        "tests/integration/queues/test_consuming.py"
        "::test_a_lost_reply_to_a_write_loses_nothing_and_doubles_nothing",
    ],
    "a buffered producer is killed": [
        f"{PRODUCERS}a_buffered_producer_is_killed_and_what_it_had_accepted_is_sent_in_order",
        "tests/faults/journal/test_journal_killed.py"
        "::test_nothing_that_was_acknowledged_is_lost_whenever_the_process_is_killed",
        f"{JOURNAL}power_cut.py::test_a_power_cut_costs_no_request_that_a_producer_has_taken",
    ],
    "the disk of its journal is full, or fails": [
        f"{PRODUCERS}the_disk_of_its_journal_is_full_and_nothing_goes_without_a_word",
        f"{JOURNAL}journal_disk_faults.py"
        "::test_a_full_disk_keeps_the_head_of_the_line_and_lets_nobody_in_behind_it",
        "tests/unit/producing/test_spilling.py::test_h2_all_that_a_disk_of_fixed_size_could_not_take"
        "_arrives_when_the_sink_is_back",
        "tests/unit/producing/test_spilling.py"
        "::test_a_disk_full_now_and_then_keeps_order_and_promises_over_a_crash_at_any_moment",
    ],
}


def events() -> list[str]:
    """The first column of the page's table; what is in it begins a row."""
    edge = "=" * 46
    _, _, rows, *_ = PAGE.read_text().split(f"\n{edge} ")
    return [event for line in rows.splitlines()[1:] if (event := line[: len(edge)].strip())]


def test_every_promise_of_the_page_has_its_tests_here_and_no_other_has():
    assert sorted(PROMISES) == sorted(events())


@pytest.mark.parametrize("promise", PROMISES)
def test_its_tests_stand_and_make_test_runs_them(promise):
    assert PROMISES[promise]
    assert [test for test in PROMISES[promise] if not stands(test) or is_long(test)] == []


ELSEWHERE = {
    "f14": "tests/integration/queues/test_failed_items.py"
    "::test_a_queue_of_more_items_than_java_can_list_is_listed_and_taken"
}


@pytest.mark.parametrize(
    "letter, count, files",
    [
        ("f", 16, "test_queue_windows.py"),
        ("d", 22, "test_dyno_defects.py"),
        ("bug_", 28, "test_election_*.py test_kafka_promises.py"),
    ],
)
def test_each_number_of_the_facts_has_a_scenario(letter, count, files):
    found = [
        name
        for pattern in files.split()
        for file in (TESTS / "simulation").glob(pattern)
        for name in re.findall(r"def test_(\w+)\(", file.read_text())
    ]
    told = {
        number for name in found for number in re.findall(rf"(?:^|_){letter}0?(\d+)(?=_)", name)
    }
    told |= {one.removeprefix(letter) for one, test in ELSEWHERE.items() if stands(test)}
    assert told >= {str(number) for number in range(1, count + 1)}
