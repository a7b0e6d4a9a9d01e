"""Edits listed by hand before the tool was there, of lines that it does not reach: threads,
processes, files and sockets. The name says what goes wrong.
"""

from __future__ import annotations

from mutation.control import Control


def _of(file: str, tests: str, *edits: tuple[str, str, str, str]) -> tuple[Control, ...]:
    """Of ``leaderq/FILE``: name, old, new, and the tests of ``tests/TESTS`` that notice it."""
    return tuple(
        Control(
            name,
            f"leaderq/{file}",
            old,
            new,
            tests=tuple(f"tests/{tests}::{one}" for one in noticed.split()) or (f"tests/{tests}",),
        )
        for name, old, new, noticed in edits
    )


CARRIED: tuple[Control, ...] = (
    *_of(
        "running/guardian_link.py",
        "unit/running/test_guardian_link.py",
        (
            "a deposed worker has its hand-over budget",
            "        elif reason is not None and reason.deposes:\n",
            "        elif False:\n",
            "test_a_deposing_reason_ends_the_lease_now_whatever_the_budget",
        ),
        (
            "each report puts the end of the budget off",
            "            if self._budget_until_s is None:\n                self._budget_until_s",
            "            if True:\n                self._budget_until_s",
            "test_a_planned_end_has_its_budget_and_its_lease_goes_on",
        ),
        (
            "a longer time-out lengthens a worker's grace",
            "self._grace_s = min(self._grace_s, self._session.shares.grace_s)",
            "self._grace_s = self._session.shares.grace_s",
            "test_a_shorter_time_out_makes_a_shorter_grace_and_it_stays",
        ),
        (
            "a term is reported after its code has returned",
            "[held for held in self._held if held.term is not term]",
            "[*self._held]",
            "test_nothing_of_a_term_is_reported_after_its_code_has_returned",
        ),
        (
            "all reports wait for a guardian that does not read",
            "self._newest_report = _line(self._first_to_end()._asdict())",
            "self._unsent.append(_line(self._first_to_end()._asdict()))",
            "test_a_guardian_that_does_not_read_never_blocks_the_worker_and_hears_the_newest_"
            "when_it_does",
        ),
        (
            "of several terms the guardian hears of the one that ends last",
            "return min((held.report()",
            "return max((held.report()",
            "test_of_several_terms_the_one_is_reported_whose_code_must_be_gone_first",
        ),
    ),
    *_of(
        "running/stages.py",
        "unit/running/test_stages.py",
        (
            "a hand-over needs a lease",
            "if stage is not Stage.HANDOVER and not self._term.wait(0):",
            "if not self._term.wait(0):",
            "test_a_term_that_is_over_before_it_is_served_is_only_handed_over",
        ),
        (
            "a unit begins while the term is paused",
            "            if self._term.paused:\n",
            "            if False:\n",
            "test_no_unit_begins_while_the_term_is_paused",
        ),
        (
            "an abandonment strikes what follows the unit",
            "except UnitAbandoned:\n            # raised between",
            "except ZeroDivisionError:\n            # raised between",
            "test_an_abandonment_between_the_end_of_a_unit_and_its_leaving_does_not_strike_"
            "what_follows",
        ),
        (
            "a unit begins after its term was abandoned",
            "if self._abandoned:\n                return",
            "if False:\n                return",
            "test_no_unit_begins_after_the_abandonment",
        ),
    ),
    *_of(
        "running/descendants.py",
        "unit/running/test_guardian_link.py",
        (
            "who forks and ends again and again escapes",
            "if (group := os.getpgid(pid)) not in spared:",
            "if (group := 0) not in spared:",
            "test_a_group_is_killed_whole_whoever_a_listing_has_missed",
        ),
        (
            "a process whose first thread has ended escapes",
            " and int(fields[17]) <= 1",
            "",
            "test_a_process_whose_first_thread_has_ended_is_not_dead",
        ),
        (
            "a number is taken for the process that bore it once",
            "            if _living(one.pid) == one:\n",
            "            if _living(one.pid):\n",
            "test_a_number_that_another_process_bears_by_now_is_left_alone",
        ),
    ),
    *_of(
        "producing/journal/store.py",
        "unit/producing/journal/test_power_cut.py",
        (
            "appended records are not forced out",
            "            self._disk.sync(self._fd)\n",
            "            pass\n",
            "test_a_power_cut_costs_nothing_that_was_promised",
        ),
        (
            "the policy forces nothing out",
            "            self._sync()\n        except OSError:\n            self._cut(segment",
            "            pass\n        except OSError:\n            self._cut(segment",
            "test_a_power_cut_costs_nothing_that_was_promised",
        ),
        (
            "a flush forces nothing out",
            "        self.sync()\n        failure,",
            "        failure,",
            "test_a_power_cut_costs_nothing_that_was_promised",
        ),
        (
            "the name of a new segment is not forced out",
            "            self._disk.sync_directory(self.directory)\n",
            "",
            "test_a_power_cut_costs_nothing_that_was_promised",
        ),
        (
            "ids that may have been told are not promised",
            "        self._promise_ids(count)\n",
            "",
            "test_a_power_cut_costs_nothing_that_was_promised",
        ),
    ),
    *_of(
        "producing/journal/disk.py",
        "unit/producing/journal/test_power_cut.py",
        (
            "the real disk forces no data out",
            '        getattr(os, "fdatasync", os.fsync)(fd)',
            "        pass",
            "test_the_system_is_asked_to_force_out_each_record_and_each_name",
        ),
        (
            "the real disk forces no names out",
            "            os.fsync(fd)\n",
            "            pass\n",
            "test_the_system_is_asked_to_force_out_each_record_and_each_name",
        ),
    ),
    *_of(
        "producing/journal/line.py",
        "unit/producing/journal/test_power_cut.py",
        (
            "an interval forces nothing out",
            "            self._store.sync()\n",
            "",
            "test_what_an_interval_has_forced_out_outlasts_a_cut",
        ),
    ),
    *_of(
        "producing/journal/cursor.py",
        "unit/producing/journal/test_power_cut.py",
        (
            "the cursor is not forced out",
            "                self._disk.sync(fd)\n",
            "",
            "test_a_power_cut_costs_nothing_that_was_promised",
        ),
    ),
    *_of(
        "producing/journal/recovery.py",
        "unit/producing/journal/test_power_cut.py",
        (
            "what a killed process had only written stays so",
            "        self._force_out()\n",
            "",
            "test_all_that_a_flush_or_an_opening_leaves_behind_is_forced_out",
        ),
    ),
    *_of(
        "producing/spill.py",
        "unit/producing/test_closing.py",
        (
            "what the disk did not force out counts as safely in the journal",
            "            self.unforced = exc\n",
            "            pass\n",
            "test_what_the_disk_did_not_force_out_is_not_safely_in_the_journal",
        ),
    ),
    *_of(
        "producing/sending.py",
        "unit/producing/test_strange_callers.py",
        (
            "a coroutine that the process step returned is sent",
            '            require_finished(one.output, "process")\n',
            "",
            "test_a_process_step_that_returns_a_coroutine_sends_nothing",
        ),
    ),
    *_of(
        "producing/sending.py",
        "unit/producing/test_buffered_producer.py",
        (
            "a stuck key holds up all others",
            "        if self._options.key is None:\n",
            "        if True:\n",
            "test_the_healthy_keys_go_on_and_the_stuck_one_keeps_its_order",
        ),
        (
            "what the sink keeps expires",
            " and one not in self._kept",
            "",
            "test_what_the_sink_keeps_neither_expires_nor_counts_an_attempt",
        ),
        (
            "what the sink keeps counts attempts",
            "        if isinstance(outcome.error, SinkBusy):\n",
            "        if False:\n",
            "test_what_the_sink_keeps_neither_expires_nor_counts_an_attempt",
        ),
        (
            "a healthy request overtakes one of its key that is held back",
            "            if one.key in self._held:\n",
            "            if False:\n",
            "test_the_healthy_keys_go_on_and_the_stuck_one_keeps_its_order",
        ),
    ),
    *_of(
        "kafka/handling/batch_handler.py",
        "unit/kafka/test_hold_ups.py",
        (
            "a record that waits for its retry is committed past",
            "for where, end in ends if where not in self._abandoned}",
            "for where, end in ends}",
            "test_the_others_go_on_and_the_culprit_is_tried_when_it_is_handed_out_again",
        ),
        (
            "records are handled that stand behind one that waits for its retry",
            "(left := each.without(where)) is not None)\n",
            "(left := each) is not None)\n",
            "test_the_others_go_on_and_the_culprit_is_tried_when_it_is_handed_out_again",
        ),
        (
            "a record is tried for ever, a rest between two attempts",
            "self._batch.noted.items()",
            "()",
            "test_attempts_are_counted_over_all_batches",
        ),
    ),
    *_of(
        "kafka/stores/database_offsets.py",
        "unit/kafka/test_offset_stores.py",
        (
            "loading offsets from a database refuses no older term",
            "            self._put(open_one, term, _TERM_ROW, 0)\n            found",
            "            found",
            "test_a_zombie_is_refused_whole_once_its_successor_has_loaded",
        ),
        (
            "a transaction in a database is begun without a look at the newest term",
            "            self._put(open_one, term, _TERM_ROW, 0)\n            firsts",
            "            firsts",
            "test_a_zombie_is_refused_whole_once_its_successor_has_loaded",
        ),
        (
            "a batch whose COMMIT was not answered is stored twice",
            "int(row[0]) > first:",
            "int(row[0]) > first + 10**9:",
            "test_a_batch_stored_by_a_try_whose_answer_was_lost_is_not_stored_again",
        ),
    ),
    *_of(
        "kafka/consuming/term_consumer.py",
        "unit/kafka/test_joining.py",
        (
            "a gate that is shut lets a leader join",
            "        if self.is_shut:\n            raise",
            "        if False:\n            raise",
            "test_a_gate_that_is_shut_refuses_although_the_lease_lasts",
        ),
        (
            "the gate lets a leader join whose term is over",
            "        self.term.check()\n\n\nclass NotLetIn",
            "\n\nclass NotLetIn",
            "test_the_gate_refuses_when_the_term_is_over",
        ),
    ),
    *_of(
        "coalescing/key_table.py",
        "unit/coalescing/test_coordinator_callers.py",
        (
            "a head does not run again for a debt",
            "            if has_run and state.debt is not None:",
            "            if False:",
            "test_whoever_runs_by_its_function_runs_again_and_returns_its_first_result[run]",
        ),
        (
            "a call that raises what nobody expects keeps the key",
            "            self.leave(token)\n        except BaseException:\n            "
            "self.drop(token)\n",
            "            self.leave(token)\n        except BaseException:\n",
            "test_a_call_that_raises_anything_gives_the_key_back_and_the_one_who_called_"
            "hears_of_it[Rude]",
        ),
    ),
    *_of(
        "coalescing/coordinator.py",
        "unit/coalescing/test_coordinator_callers.py",
        (
            "a forked child waits for what ran in its parent",
            "        _all.add(self)\n",
            "",
            "test_a_forked_child_has_no_keys_whatever_its_parent_was_doing",
        ),
    ),
    *_of(
        "singular/request.py",
        "unit/singular/test_singular_applying.py",
        (
            "who awaits a handler that raises StopIteration waits for ever",
            "        if isinstance(error, StopIteration):",
            "        if False:",
            "test_whatever_a_handler_raises_reaches_its_caller_and_the_queue_goes_"
            "on[StopIteration]",
        ),
    ),
    *_of(
        "threads/listeners.py",
        "unit/test_events.py",
        (
            "a listener that exits takes the leader along",
            "        except BaseException as error:",
            "        except Exception as error:",
            "test_what_a_listener_raises_reaches_neither_the_publisher_nor_the_other_listeners",
        ),
    ),
)
