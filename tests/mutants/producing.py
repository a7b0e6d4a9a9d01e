"""The mutants of ``leaderq.producing``: those that a record's survival hangs on."""

from __future__ import annotations

from mutants.mutant import Edit, mutant

ADMISSION = "leaderq/producing/admission.py"
BUFFER = "leaderq/producing/buffer.py"
CURSOR = "leaderq/producing/journal/cursor.py"
DISK = "leaderq/producing/journal/disk.py"
PRODUCER = "leaderq/producing/producer.py"
QUEUE_SINK = "leaderq/producing/sinks.py"
RECOVERY = "leaderq/producing/journal/recovery.py"
SENDING_VERB = "leaderq/cli/journal.py"
SENDING = "leaderq/producing/sending.py"
SINK = "leaderq/producing/sinks.py"
SPILL = "leaderq/producing/spill.py"
STORE = "leaderq/producing/journal/store.py"

UNIT = "tests/unit/producing/test_"
CUTS = "tests/unit/producing/journal/test_power_cut.py::test_"
CUT = f"{CUTS}a_power_cut_"
LEFT_BEHIND = f"{CUTS}all_that_a_flush_or_an_opening_leaves_behind_is_forced_out"
SEND = "tests/integration/producing/test_journal_send.py::test_"
PROMISED = f"{CUT}costs_nothing_that_was_promised"

MUTANTS = [
    mutant(
        "an error that nobody named is a verdict on the record",
        f"{UNIT}errors_nobody_knows.py::test_a_postgresql_that_is_down_costs_no_record",
        Edit(
            SINK,
            "        except Exception as exc:  # noqa: BLE001 - the user's callable: told, and"
            " tried again\n            return first, exc\n",
            "        except Exception as exc:\n"
            "            refused.update(dict.fromkeys(range(first, first + len(records)), exc))\n",
        ),
    ),
    mutant(
        "what the queue itself raised refuses the item",
        f"{UNIT}small_sinks.py::test_the_queues_own_errors_cost_nothing",
        Edit(QUEUE_SINK, " and not isinstance(error, LeaderqError)", ""),
    ),
    mutant(
        "a lost request is not logged",
        f"{UNIT}closing_truthfully.py::test_every_lost_request_is_logged_once_in_few_lines",
        Edit(BUFFER, "        self.dispatcher.note_loss(lost)\n", ""),
    ),
    mutant(
        "a close that lost requests is true",
        f"{UNIT}closing_truthfully.py::test_a_close_that_threw_everything_away_is_false_and_says_which_and_why",
        Edit(
            "leaderq/producing/account.py",
            "not self.pending and not self.lost and self.journal_error",
            "not self.pending and self.journal_error",
        ),
    ),
    mutant(
        "what the disk did not force out counts as safely in the journal",
        f"{UNIT}closing_truthfully.py::test_what_the_disk_did_not_force_out_is_not_safely_in_the_journal",
        Edit(SPILL, "                self.unforced = exc\n", "                pass\n"),
    ),
    mutant(
        "a second sync brings back what the first one lost",
        f"{UNIT}closing_truthfully.py::test_what_the_disk_did_not_force_out_is_not_safely_in_the_journal",
        Edit(
            SPILL,
            "            if not isinstance(self.unforced, JournalFailed):\n",
            "            if True:\n",
        ),
    ),
    mutant(
        "a flush of a producer does not force out its journal",
        f"{UNIT}closing_truthfully.py::test_what_the_disk_did_not_force_out_is_not_safely_in_the_journal",
        Edit(
            PRODUCER,
            "        spill.flush(None if timeout_s is None else max(timeout_s, _FORCED_S))\n",
            "",
        ),
    ),
    mutant(
        "a block in which requests were lost ends in silence",
        f"{UNIT}closing_truthfully.py::test_a_block_in_which_requests_were_lost_ends_with_that",
        Edit(
            PRODUCER, "    if error is None and not settlement.is_as_chosen:\n", "    if False:\n"
        ),
    ),
    mutant(
        "a coroutine that the process step returned is sent",
        f"{UNIT}plain_functions.py::test_a_process_step_that_returns_a_coroutine_sends_nothing",
        Edit(SENDING, '            require_finished(one.output, "process")\n', ""),
    ),
    mutant(
        "a coroutine is a key",
        f"{UNIT}plain_functions.py::test_a_key_that_is_a_coroutine_is_refused_and_nothing_taken",
        Edit("leaderq/producing/memory.py", '    require_finished(key, "key")\n', ""),
    ),
    mutant(
        "a call may interrupt its own thread inside the buffer",
        f"{UNIT}sending_from_anywhere.py::test_a_call_that_interrupts_its_own_thread_inside_is_refused_at_once",
        Edit(BUFFER, "        if is_entered or (", "        if (is_entered and False) or ("),
        may_hang=True,
    ),
    mutant(
        "a thread that makes room waits for room",
        f"{UNIT}sending_from_anywhere.py::test_a_logging_handler_may_send_the_producers_own_log",
        Edit(
            PRODUCER,
            "            timeout_s = 0.0  # a thread that makes room",
            "            pass  # a thread",
        ),
        may_hang=True,
    ),
    mutant(
        "a producer offers no figures",
        "tests/unit/observability/test_metrics.py::test_a_buffered_producer_offers_every_figure_of_the_table",
        Edit(PRODUCER, "        offer_figures(FigureSource.PRODUCER, name, self, _figures)\n", ""),
    ),
    mutant(
        "a forked child closes its parent's producer",
        f"{UNIT}ends_of_a_process.py::test_a_forked_child_that_ends_leaves_the_parents_journal_as_it_is",
        Edit(PRODUCER, "        if self._is_foreign:\n            return Settlement()\n", ""),
        may_hang=True,
    ),
    mutant(
        "dropping the oldest waits though there was nothing to drop",
        f"{UNIT}spilling.py::test_on_a_full_disk_dropping_the_oldest_waits_for_nothing",
        Edit(
            ADMISSION,
            "        return is_coming or buffer.account.gone[LossReason.OLDEST] > before\n",
            "        return True\n",
        ),
        may_hang=True,
    ),
    mutant(
        "whoever comes overtakes those who wait for room",
        f"{UNIT}full_means_full.py::test_nobody_overtakes_whoever_waits",
        Edit(
            ADMISSION,
            "        if (\n            line\n            and line[0] != self.wake\n",
            "        if (\n            False\n",
        ),
    ),
    mutant(
        "whoever comes when there is room overtakes those who wait",
        f"{UNIT}full_means_full.py::test_nobody_overtakes_whoever_waits",
        Edit(BUFFER, "            if self.awaiting_room:\n                return False\n", ""),
    ),
    mutant(
        "all of memory goes over to the journal at a blow",
        f"{UNIT}full_means_full.py::test_going_over_to_the_journal_holds_nobody_up_for_all_of_memory",
        Edit(BUFFER, "                self._write_down(_TAKEN_ALONG)\n", "                pass\n"),
    ),
    mutant(
        "a stuck key holds up all others",
        f"{UNIT}stuck_keys.py::test_the_healthy_keys_go_on_and_the_stuck_one_keeps_its_order",
        Edit(
            SENDING,
            "        if self._options.key is None:\n",
            "        if True:\n",
        ),
    ),
    mutant(
        "what is tried again and fails holds up all others",
        f"{UNIT}stuck_keys.py::test_trying_the_stuck_key_again_holds_up_nobody",
        Edit(SENDING, "        if not self._is_retry:  # perhaps", "        if True:  # perhaps"),
    ),
    mutant(
        "what the sink keeps expires",
        f"{UNIT}stuck_keys.py::test_what_the_sink_keeps_neither_expires_nor_counts_an_attempt",
        Edit(SENDING, " and one not in self._kept", ""),
    ),
    mutant(
        "what the sink keeps counts attempts",
        f"{UNIT}stuck_keys.py::test_what_the_sink_keeps_neither_expires_nor_counts_an_attempt",
        Edit(SENDING, "        if isinstance(outcome.error, SinkBusy):\n", "        if False:\n"),
    ),
    mutant(
        "a healthy request overtakes one of its key that is held back",
        f"{UNIT}stuck_keys.py::test_the_healthy_keys_go_on_and_the_stuck_one_keeps_its_order",
        Edit(SENDING, "            if one.key in self._held:\n", "            if False:\n"),
    ),
    mutant(
        "a partition without a leader holds up all",
        "tests/integration/producing/test_partition_without_leader.py::test_the_others_go_on_and_nothing_is_doubled_or_out_of_order[kafka-python]",
        Edit(
            "leaderq/kafka/sink.py",
            "            return SinkBusy(\n",
            "            raise SinkBusy(\n",
        ),
    ),
    mutant(
        "what Kafka holds is sent once more",
        "tests/integration/producing/test_partition_without_leader.py::test_the_others_go_on_and_nothing_is_doubled_or_out_of_order[kafka-python]",
        Edit(
            "leaderq/kafka/sink.py",
            "            if self._kept and (kept :=",
            "            if False and (kept :=",
        ),
    ),
    mutant(
        "what comes behind a record that the disk refused is stored before it",
        f"{UNIT}refusing_disks.py::test_what_a_caller_knows_to_be_on_the_disk_outlasts_a_refusal_before_it_and_a_crash",
        Edit(STORE, "        if batch.payloads and self.halt.is_wanted:\n", "        if False:\n"),
    ),
    mutant(
        "what a disk refused of memory is not written when it has room",
        f"{UNIT}refusing_disks.py::test_a_disk_full_now_and_then_keeps_order_and_promises_over_a_crash_at_any_moment[0-Interval]",
        Edit(BUFFER, "            self.memory.begin_again()\n", ""),
    ),
    mutant(
        "journal send sends what has expired",
        "tests/unit/producing/journal/test_journal_verbs.py::test_what_has_expired_in_a_dead_hosts_journal_is_counted_and_not_sent",
        Edit(
            SENDING_VERB,
            " and record.expires_at <= clock.calendar_s()",
            " and record.expires_at < 0",
        ),
    ),
    mutant(
        "journal send gives up what is not a record for Kafka",
        f"{SEND}what_stopped_half_way_goes_on_where_it_was",
        Edit(
            "leaderq/cli/journal.py",
            " and at not in outcome.refused\n",
            "\n",
        ),
    ),
    mutant(
        "journal send does not note what was confirmed",
        f"{SEND}exactly_what_was_not_confirmed_is_sent_in_order_and_once",
        Edit(SENDING_VERB, "        self._journal.ack_many(confirmed)\n", ""),
    ),
    mutant(
        "journal send is interrupted within a batch",
        f"{SEND}interrupted_in_the_middle_of_a_batch_and_done_again_it_sends_exactly_the_rest",
        Edit(
            SENDING_VERB,
            "            outcome = self._sink.send(",
            "            with self._stopping.safely():\n                outcome = self._sink.send(",
        ),
    ),
    mutant(
        "appended records are not forced out",
        PROMISED,
        Edit(
            STORE,
            "            self._disk.sync(self._fd)\n",
            "            pass\n",
        ),
    ),
    mutant(
        "the real disk forces no data out",
        f"{CUTS}the_system_is_asked_to_force_out_each_record_and_each_name",
        Edit(DISK, '        getattr(os, "fdatasync", os.fsync)(fd)', "        pass"),
    ),
    mutant(
        "the real disk forces no names out",
        f"{CUTS}the_system_is_asked_to_force_out_each_record_and_each_name",
        Edit(DISK, "            os.fsync(fd)\n", "            pass\n"),
    ),
    mutant(
        "an interval forces nothing out",
        f"{CUTS}what_an_interval_has_forced_out_outlasts_a_cut",
        Edit(
            "leaderq/producing/journal/journal.py",
            "        self._store.sync()\n        if self._acks",
            "        if self._acks",
        ),
    ),
    mutant(
        "the policy forces nothing out",
        PROMISED,
        Edit(
            STORE,
            "        try:\n            self._sync()\n        except OSError:\n           "
            " self._writer.cut(begin)\n",
            "        try:\n            pass\n        except OSError:\n           "
            " self._writer.cut(begin)\n",
        ),
    ),
    mutant(
        "a flush forces nothing out",
        PROMISED,
        Edit(
            STORE,
            "        self.sync()\n        failure,",
            "        failure,",
        ),
    ),
    mutant(
        "a flush forgets the segments left behind",
        LEFT_BEHIND,
        Edit(
            STORE,
            "                force(self._disk, self._unforced.pop())\n",
            "                self._unforced.pop()\n",
        ),
    ),
    mutant(
        "a segment is left behind with records that wait for a sync",
        LEFT_BEHIND,
        Edit(
            STORE,
            "        if not isinstance(self._policy, NoSync):\n            self.sync()\n       "
            " elif",
            "        if not isinstance(self._policy, NoSync):\n            pass\n        elif",
        ),
    ),
    mutant(
        "the name of a new segment is not forced out",
        PROMISED,
        Edit(STORE, "            self._disk.sync_directory(self._directory)\n", ""),
    ),
    mutant(
        "the name of a new directory is not forced out",
        PROMISED,
        Edit(DISK, "        disk.sync_directory(one.parent)\n", ""),
    ),
    mutant(
        "the cursor is not forced out",
        PROMISED,
        Edit(
            CURSOR,
            "        write_all(self._disk, fd, cursor.encode(), 0)\n        self._disk.sync(fd)\n",
            "        write_all(self._disk, fd, cursor.encode(), 0)\n",
        ),
    ),
    mutant(
        "the names of new cursor files are not forced out",
        "tests/unit/producing/journal/test_power_cut.py::test_what_a_flush_acknowledged_stays_so_on_a_disk_without_room_for_a_segment",
        Edit(CURSOR, "        disk.sync_directory(directory)\n", ""),
    ),
    mutant(
        "what a killed process had only written stays so",
        LEFT_BEHIND,
        Edit(RECOVERY, "        self._force_out()\n", ""),
    ),
    mutant(
        "the new name of a damaged segment is not forced out",
        f"{CUT}deletes_no_damaged_segment",
        Edit(CURSOR, "        self._disk.sync_directory(self._directory)\n", ""),
    ),
    mutant(
        "the copy of a damaged tail is not forced out",
        f"{CUT}deletes_no_damaged_tail",
        Edit(RECOVERY, "            self.disk.sync(copy)\n", ""),
    ),
    mutant(
        "the name of the copy of a damaged tail is not forced out",
        f"{CUT}deletes_no_damaged_tail",
        Edit(
            RECOVERY,
            "        self.disk.sync_directory(self.directory)  # before the original is cut off\n",
            "",
        ),
    ),
    mutant(
        "ids that may have been told are not promised",
        PROMISED,
        Edit(STORE, "        self._promise_ids(count)\n", ""),
    ),
]
