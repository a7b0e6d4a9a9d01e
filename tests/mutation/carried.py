"""Edits listed by hand before the tool was there, of lines that it does not reach: threads,
processes, files and sockets. The name says what goes wrong.
"""

from __future__ import annotations

from mutation.control import Control

CARRIED = (
    Control(
        "a deposed worker has its hand-over budget",
        "leaderq/running/guardian_link.py",
        "        elif reason is not None and reason.deposes:\n",
        "        elif False:\n",
        tests=(
            "tests/unit/running/"
            "test_guardian_link.py::test_a_deposing_reason_ends_the_lease_now_whate"
            "ver_the_budget",
        ),
    ),
    Control(
        "each report puts the end of the budget off",
        "leaderq/running/guardian_link.py",
        "            if self._budget_until_s is None:\n                self._budget_until_s",
        "            if True:\n                self._budget_until_s",
        tests=(
            "tests/unit/running/"
            "test_guardian_link.py::test_a_planned_end_has_its_budget_and_its_lease"
            "_goes_on",
        ),
    ),
    Control(
        "a longer time-out lengthens a worker's grace",
        "leaderq/running/guardian_link.py",
        "self._grace_s = min(self._grace_s, self._session.timeout_s / 12)",
        "self._grace_s = self._session.timeout_s / 12",
        tests=(
            "tests/unit/running/"
            "test_guardian_link.py::test_a_shorter_time_out_makes_a_shorter_grace_a"
            "nd_it_stays",
        ),
    ),
    Control(
        "a term is reported after its code has returned",
        "leaderq/running/guardian_link.py",
        "[held for held in self._held if held.term is not term]",
        "[*self._held]",
        tests=(
            "tests/unit/running/"
            "test_guardian_link.py::test_nothing_of_a_term_is_reported_after_its_co"
            "de_has_returned",
        ),
    ),
    Control(
        "all reports wait for a guardian that does not read",
        "leaderq/running/guardian_link.py",
        "self._newest_report = _line(self._first_to_end()._asdict())",
        "self._unsent.append(_line(self._first_to_end()._asdict()))",
        tests=(
            "tests/unit/running/"
            "test_guardian_link.py::test_a_guardian_that_does_not_read_never_blocks"
            "_the_worker_and_hears_the_newest_when_it_does",
        ),
    ),
    Control(
        "of several terms the guardian hears of the one that ends last",
        "leaderq/running/guardian_link.py",
        "return min((held.report()",
        "return max((held.report()",
        tests=(
            "tests/unit/running/"
            "test_guardian_link.py::test_of_several_terms_the_one_is_reported_whose"
            "_code_must_be_gone_first",
        ),
    ),
    Control(
        "a hand-over needs a lease",
        "leaderq/running/stages.py",
        "if stage is not Stage.HANDOVER and not self._term.wait(0):",
        "if not self._term.wait(0):",
        tests=(
            "tests/unit/running/"
            "test_stages.py::test_a_term_that_is_over_before_it_is_served_is_only_h"
            "anded_over",
        ),
    ),
    Control(
        "a unit begins while the term is paused",
        "leaderq/running/stages.py",
        "            if self._term.paused:\n",
        "            if False:\n",
        tests=("tests/unit/running/test_stages.py::test_no_unit_begins_while_the_term_is_paused",),
    ),
    Control(
        "an abandonment strikes what follows the unit",
        "leaderq/running/stages.py",
        "except UnitAbandoned:\n            # raised between",
        "except ZeroDivisionError:\n            # raised between",
        tests=(
            "tests/unit/running/"
            "test_stages.py::test_an_abandonment_between_the_end_of_a_unit_and"
            "_its_leaving_does_not_strike_what_follows",
        ),
    ),
    Control(
        "a unit begins after its term was abandoned",
        "leaderq/running/stages.py",
        "if self._abandoned:\n                return",
        "if False:\n                return",
        tests=("tests/unit/running/test_stages.py::test_no_unit_begins_after_the_abandonment",),
    ),
    Control(
        "who forks and ends again and again escapes",
        "leaderq/running/descendants.py",
        "if (group := os.getpgid(pid)) not in spared:",
        "if (group := 0) not in spared:",
        tests=(
            "tests/unit/running/"
            "test_guardian_link.py::test_a_group_is_killed_whole_whoever_a_listing_has_missed",
        ),
    ),
    Control(
        "a process whose first thread has ended escapes",
        "leaderq/running/descendants.py",
        " and int(fields[17]) <= 1",
        "",
        tests=(
            "tests/unit/running/"
            "test_guardian_link.py::test_a_process_whose_first_thread_has_ended_is_not_dead",
        ),
    ),
    Control(
        "a number is taken for the process that bore it once",
        "leaderq/running/descendants.py",
        "            if _living(one.pid) == one:\n",
        "            if _living(one.pid):\n",
        tests=(
            "tests/unit/running/"
            "test_guardian_link.py::test_a_number_that_another_process_bears_by_now_i"
            "s_left_alone",
        ),
    ),
    Control(
        "appended records are not forced out",
        "leaderq/producing/journal/store.py",
        "            self._disk.sync(self._fd)\n",
        "            pass\n",
        tests=(
            "tests/unit/producing/journal/"
            "test_power_cut.py::test_a_power_cut_costs_nothing_that_was_promised",
        ),
    ),
    Control(
        "the real disk forces no data out",
        "leaderq/producing/journal/disk.py",
        '        getattr(os, "fdatasync", os.fsync)(fd)',
        "        pass",
        tests=(
            "tests/unit/producing/journal/"
            "test_power_cut.py::test_the_system_is_asked_to_force_out_each_record_a"
            "nd_each_name",
        ),
    ),
    Control(
        "the real disk forces no names out",
        "leaderq/producing/journal/disk.py",
        "            os.fsync(fd)\n",
        "            pass\n",
        tests=(
            "tests/unit/producing/journal/"
            "test_power_cut.py::test_the_system_is_asked_to_force_out_each_record_a"
            "nd_each_name",
        ),
    ),
    Control(
        "an interval forces nothing out",
        "leaderq/producing/journal/journal.py",
        "        self._store.sync()\n        if self._acks",
        "        if self._acks",
        tests=(
            "tests/unit/producing/journal/"
            "test_power_cut.py::test_what_an_interval_has_forced_out_outlasts_a_cut",
        ),
    ),
    Control(
        "the policy forces nothing out",
        "leaderq/producing/journal/store.py",
        "        try:\n            self._sync()\n        except OSError:\n"
        "            self._writer.cut(begin)\n",
        "        try:\n            pass\n        except OSError:\n"
        "            self._writer.cut(begin)\n",
        tests=(
            "tests/unit/producing/journal/"
            "test_power_cut.py::test_a_power_cut_costs_nothing_that_was_promised",
        ),
    ),
    Control(
        "a flush forces nothing out",
        "leaderq/producing/journal/store.py",
        "        self.sync()\n        failure,",
        "        failure,",
        tests=(
            "tests/unit/producing/journal/"
            "test_power_cut.py::test_a_power_cut_costs_nothing_that_was_promised",
        ),
    ),
    Control(
        "the name of a new segment is not forced out",
        "leaderq/producing/journal/store.py",
        "            self._disk.sync_directory(self._directory)\n",
        "",
        tests=(
            "tests/unit/producing/journal/"
            "test_power_cut.py::test_a_power_cut_costs_nothing_that_was_promised",
        ),
    ),
    Control(
        "the cursor is not forced out",
        "leaderq/producing/journal/cursor.py",
        "        write_all(self._disk, fd, cursor.encode(), 0)\n        self._disk.sync(fd)\n",
        "        write_all(self._disk, fd, cursor.encode(), 0)\n",
        tests=(
            "tests/unit/producing/journal/"
            "test_power_cut.py::test_a_power_cut_costs_nothing_that_was_promised",
        ),
    ),
    Control(
        "what a killed process had only written stays so",
        "leaderq/producing/journal/recovery.py",
        "        self._force_out()\n",
        "",
        tests=(
            "tests/unit/producing/journal/"
            "test_power_cut.py::test_all_that_a_flush_or_an_opening_leaves_behind_i"
            "s_forced_out",
        ),
    ),
    Control(
        "ids that may have been told are not promised",
        "leaderq/producing/journal/store.py",
        "        self._promise_ids(count)\n",
        "",
        tests=(
            "tests/unit/producing/journal/"
            "test_power_cut.py::test_a_power_cut_costs_nothing_that_was_promised",
        ),
    ),
    Control(
        "what the disk did not force out counts as safely in the journal",
        "leaderq/producing/spill.py",
        "                self.unforced = exc\n",
        "                pass\n",
        tests=(
            "tests/unit/producing/"
            "test_closing.py::test_what_the_disk_did_not_force_out_is_no"
            "t_safely_in_the_journal",
        ),
    ),
    Control(
        "a coroutine that the process step returned is sent",
        "leaderq/producing/sending.py",
        '            require_finished(one.output, "process")\n',
        "",
        tests=(
            "tests/unit/producing/"
            "test_strange_callers.py::test_a_process_step_that_returns_a_coroutine_"
            "sends_nothing",
        ),
    ),
    Control(
        "a stuck key holds up all others",
        "leaderq/producing/sending.py",
        "        if self._options.key is None:\n",
        "        if True:\n",
        tests=(
            "tests/unit/producing/"
            "test_buffered_producer.py::test_the_healthy_keys_go_on_and_the_stuck_one_keep"
            "s_its_order",
        ),
    ),
    Control(
        "what the sink keeps expires",
        "leaderq/producing/sending.py",
        " and one not in self._kept",
        "",
        tests=(
            "tests/unit/producing/"
            "test_buffered_producer.py::test_what_the_sink_keeps_neither_expires_nor_count"
            "s_an_attempt",
        ),
    ),
    Control(
        "what the sink keeps counts attempts",
        "leaderq/producing/sending.py",
        "        if isinstance(outcome.error, SinkBusy):\n",
        "        if False:\n",
        tests=(
            "tests/unit/producing/"
            "test_buffered_producer.py::test_what_the_sink_keeps_neither_expires_nor_count"
            "s_an_attempt",
        ),
    ),
    Control(
        "a healthy request overtakes one of its key that is held back",
        "leaderq/producing/sending.py",
        "            if one.key in self._held:\n",
        "            if False:\n",
        tests=(
            "tests/unit/producing/"
            "test_buffered_producer.py::test_the_healthy_keys_go_on_and_the_stuck_one_keep"
            "s_its_order",
        ),
    ),
    Control(
        "a record that waits for its retry is committed past",
        "leaderq/kafka/handling/batch_handler.py",
        "for where, end in ends if where not in self._abandoned}",
        "for where, end in ends}",
        tests=(
            "tests/unit/kafka/"
            "test_hold_ups.py::test_the_others_go_on_and_the_culprit_is_tried_when_i"
            "t_is_handed_out_again",
        ),
    ),
    Control(
        "records are handled that stand behind one that waits for its retry",
        "leaderq/kafka/handling/batch_handler.py",
        "(left := each.without(where)) is not None)\n",
        "(left := each) is not None)\n",
        tests=(
            "tests/unit/kafka/"
            "test_hold_ups.py::test_the_others_go_on_and_the_culprit_is_tried_when_i"
            "t_is_handed_out_again",
        ),
    ),
    Control(
        "a record is tried for ever, a rest between two attempts",
        "leaderq/kafka/handling/batch_handler.py",
        "            self._resting.put(where, part)\n",
        "",
        tests=("tests/unit/kafka/test_hold_ups.py::test_attempts_are_counted_over_all_batches",),
    ),
    Control(
        "loading offsets from a database refuses no older term",
        "leaderq/kafka/stores/database_offsets.py",
        "(cursor, term, _TERM_ROW, 0)\n            self._execute(cursor, ALL",
        "\n            self._execute(cursor, ALL",
        tests=(
            "tests/unit/kafka/"
            "test_offset_stores.py::test_a_zombie_is_refused_whole_once_its_succ"
            "essor_has_loaded",
        ),
    ),
    Control(
        "a transaction in a database is begun without a look at the newest term",
        "leaderq/kafka/stores/database_offsets.py",
        "            self._put(cursor, term, _TERM_ROW, 0)\n            firsts",
        "            firsts",
        tests=(
            "tests/unit/kafka/"
            "test_offset_stores.py::test_a_zombie_is_refused_whole_once_its_succ"
            "essor_has_loaded",
        ),
    ),
    Control(
        "a batch whose COMMIT was not answered is stored twice",
        "leaderq/kafka/stores/database_offsets.py",
        "int(row[0]) > first:",
        "int(row[0]) > first + 10**9:",
        tests=(
            "tests/unit/kafka/"
            "test_offset_stores.py::test_a_batch_stored_by_a_try_whose_answer_wa"
            "s_lost_is_not_stored_again",
        ),
    ),
    Control(
        "a gate that is shut lets a leader join",
        "leaderq/kafka/consuming/term_consumer.py",
        "        if self.is_shut:\n            raise",
        "        if False:\n            raise",
        tests=(
            "tests/unit/kafka/"
            "test_joining.py::test_a_gate_that_is_shut_refuses_although_the_lease_lasts",
        ),
    ),
    Control(
        "the gate lets a leader join whose term is over",
        "leaderq/kafka/consuming/term_consumer.py",
        "        self.term.check()\n\n\nclass NotLetIn",
        "\n\nclass NotLetIn",
        tests=("tests/unit/kafka/test_joining.py::test_the_gate_refuses_when_the_term_is_over",),
    ),
    Control(
        "a head does not run again for a debt",
        "leaderq/coalescing/key_table.py",
        "        if may_repeat and was_current and",
        "        if False and",
        tests=(
            "tests/unit/coalescing/"
            "test_coordinator_callers.py::test_whoever_runs_by_its_function_runs_a"
            "gain_and_returns_its_first_result[run]",
        ),
    ),
    Control(
        "a forked child waits for what ran in its parent",
        "leaderq/coalescing/coordinator.py",
        "        _all.add(self)\n",
        "",
        tests=(
            "tests/unit/coalescing/"
            "test_coordinator_callers.py::test_a_forked_child_has_no_keys_whatever_its"
            "_parent_was_doing",
        ),
    ),
    Control(
        "who awaits a handler that raises StopIteration waits for ever",
        "leaderq/singular/request.py",
        "        if isinstance(error, StopIteration):",
        "        if False:",
        tests=(
            "tests/unit/singular/"
            "test_singular_applying.py::test_whatever_a_handler_raises_reaches_its_call"
            "er_and_the_queue_goes_on[StopIteration]",
        ),
    ),
    Control(
        "a listener that exits takes the leader along",
        "leaderq/threads/listeners.py",
        "        except BaseException as error:",
        "        except Exception as error:",
        tests=(
            "tests/unit/"
            "test_events.py::test_what_a_listener_raises_reaches_neither_the_publis"
            "her_nor_the_other_listeners",
        ),
    ),
    Control(
        "a call that raises what nobody expects keeps the key",
        "leaderq/coalescing/key_table.py",
        "            self.leave(token)\n        except BaseException:\n"
        "            self.drop(token)\n",
        "            self.leave(token)\n        except BaseException:\n",
        tests=(
            "tests/unit/coalescing/"
            "test_coordinator_callers.py::test_a_call_that_raises_anything_gives_the_k"
            "ey_back_and_the_one_who_called_hears_of_it[Rude]",
        ),
    ),
)
