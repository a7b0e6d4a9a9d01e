"""The mutants of ``leaderq.kafka``: positions, what is committed when, and the gate before a
join.
"""

from __future__ import annotations

from mutants.mutant import Edit, mutant

POSITIONS = "leaderq/kafka/consuming/positions.py"
COMMITS = "leaderq/kafka/consuming/commits.py"
READ_AHEAD = "leaderq/kafka/consuming/read_ahead.py"
CONSUMER_CHECK = "leaderq/kafka/consuming/consumer_check.py"
TERM_CONSUMER = "leaderq/kafka/consuming/term_consumer.py"
ASSEMBLY = "leaderq/kafka/assembly.py"
CONSUMER = "leaderq/kafka/clients/consumer.py"
CLIENT_OPTIONS = "leaderq/kafka/clients/client_options.py"
DECLARATION = "leaderq/kafka/declaration.py"
CONNECTION = "leaderq/kafka/clients/kafka_python_connection.py"
PRIVATE = "leaderq/kafka/clients/private_api.py"
ON_ERROR = "leaderq/kafka/handling/on_error.py"
BATCH_HANDLER = "leaderq/kafka/handling/batch_handler.py"
RESTING = "tests/unit/kafka/test_resting.py::test_"
TRANSACTIONS = "leaderq/kafka/stores/transaction_offsets.py"
ZOOKEEPER_OFFSETS = "leaderq/kafka/stores/zookeeper_offsets.py"
DATABASE_OFFSETS = "leaderq/kafka/stores/database_offsets.py"
PYTHON_PRODUCER = "leaderq/kafka/clients/kafka_python_producer.py"
CONFLUENT_PRODUCER = "leaderq/kafka/clients/confluent_producer.py"
CONFLUENT_CONSUMER = "leaderq/kafka/clients/confluent_consumer.py"
KAFKA_PYTHON = "leaderq/kafka/clients/kafka_python_consumer.py"

UNIT = "tests/unit/kafka/test_positions.py::test_"
ABANDONED = "tests/unit/kafka/test_abandoned_batches.py::test_"
SETTINGS_OBEYED = "tests/acceptance/cli/test_settings_of_a_drain.py::test_"
IN_TRANSACTIONS = "tests/integration/kafka/test_transaction_offsets.py::test_"
IN_ZOOKEEPER = "tests/integration/kafka/test_zookeeper_offsets.py::test_"
IN_A_DATABASE = "tests/unit/kafka/test_database_offsets.py::test_"
PRODUCER = "tests/integration/kafka/test_kafka_python_producer.py::TestKafkaPythonProducer::test_"
GATE = "tests/unit/kafka/test_join_gate.py::test_"
CAREER = "tests/integration/kafka/test_kafka_career.py::test_"
SHARED = "tests/integration/kafka/test_shared_group.py::test_"
OPTIONS = "tests/unit/kafka/test_client_options.py::test_"
OPTIONS_AT_WORK = "tests/integration/kafka/test_client_options_at_work.py::test_"
READ_BEFORE = "tests/unit/kafka/test_kafka_private_api.py::test_"

TRUNCATED = (
    "tests/integration/kafka/test_three_brokers.py::test_"
    "a_log_that_was_cut_off_and_written_again_stops_each_leader_that_had_read_further"
)

MUTANTS = [
    mutant(
        "kafka-python begins to read without the epoch of the offset",
        TRUNCATED,
        Edit(
            KAFKA_PYTHON, 'OffsetAndMetadata(to, "", epoch_of(to))', 'OffsetAndMetadata(to, "", -1)'
        ),
    ),
    mutant(
        "where a leader has changed before the first record, librdkafka is believed",
        TRUNCATED,
        Edit(
            CONFLUENT_CONSUMER,
            "(row.leader_epoch or 0) > epoch_of",
            "(row.leader_epoch or 0) < epoch_of",
        ),
    ),
    mutant(
        "a batch's ends are committed without an epoch",
        TRUNCATED,
        Edit(
            "leaderq/kafka/record.py",
            "Offset(record.offset + 1, record.leader_epoch)",
            "Offset(record.offset + 1)",
        ),
    ),
    mutant(
        "reading waits for a commit, and nothing is noticed meanwhile",
        "tests/integration/kafka/test_confluent_consumer.py::TestConfluentConsumer::test_"
        "neither_reading_nor_attending_waits_for_a_commit",
        Edit(CONFLUENT_CONSUMER, "most <= 0 or not self._has_committed(wait_s)", "most <= 0"),
    ),
    mutant(
        "a leader that has changed is not noticed where positions are asked",
        "tests/integration/kafka/test_three_brokers.py::test_"
        "where_partitions_end_is_known_soon_after_their_leaders_have_changed[ConfluentConsumer]",
        Edit(CONFLUENT_CONSUMER, "LEADERS_KNOWN_MS = 1000", "LEADERS_KNOWN_MS = 900_000"),
    ),
    mutant(
        "the end of a partition is where an open transaction has got to",
        "tests/integration/kafka/test_confluent_consumer.py::TestConfluentConsumer::test_"
        "the_end_is_the_last_stable_offset",
        Edit(
            CONFLUENT_CONSUMER, "IsolationLevel.READ_COMMITTED", "IsolationLevel.READ_UNCOMMITTED"
        ),
    ),
    mutant(
        "a partition that comes back is read from the beginning",
        f"{UNIT}what_comes_back_begins_at_what_the_group_has_committed_meanwhile",
        Edit(
            POSITIONS,
            "            if partition in again or partition not in self.committed:\n",
            "            if partition in again:\n",
        ),
    ),
    mutant(
        "a batch is kept although one of its partitions was taken away",
        f"{UNIT}a_batch_with_a_partition_that_was_taken_away_is_abandoned",
        Edit(
            POSITIONS,
            "not self.in_hand.ends.keys() <= set(held) - moved:",
            "not self.in_hand.ends.keys().isdisjoint(moved):",
        ),
    ),
    mutant(
        "a batch that was committed is read again after it was abandoned",
        f"{UNIT}a_batch_abandoned_although_it_was_committed_is_not_read_again",
        Edit(
            POSITIONS,
            "            again.update(self.in_hand.ends)  # a part of it may be in the store after"
            " all\n",
            "",
        ),
    ),
    mutant(
        "offsets that somebody else has moved are not heeded",
        f"{UNIT}offsets_moved_by_somebody_else_are_the_truth_and_the_batch_is_abandoned",
        Edit(
            POSITIONS,
            "        again = set(moved)\n",
            "        moved = frozenset()\n        again = set(moved)\n",
        ),
    ),
    mutant(
        "positions go back",
        f"{UNIT}positions_past_markers_are_taken_over_but_never_backwards",
        Edit(POSITIONS, "max(offset, self.handed[partition])", "offset"),
    ),
    mutant(
        "a batch of partitions that are another's is committed",
        f"{SHARED}a_plain_consumer_that_joins_amid_a_batch_and_leaves_again_costs_and_doubles_nothing[python]",
        Edit(POSITIONS, "set(held) - moved:", "set(self.committed) - moved:"),
    ),
    mutant(
        "what was under way for a batch that was abandoned may be stored after the newer",
        "tests/unit/kafka/test_commits.py::test_what_was_under_way_when_its_batch_was_abandoned_is_over_before_the_next_begins",
        Edit(
            COMMITS,
            "self._dropped, self._commit = self._commit or self._dropped, None",
            "self._commit = None",
        ),
    ),
    mutant(
        "a commit that happens after its batch was abandoned is not heeded",
        f"{ABANDONED}records_of_an_abandoned_batch_are_handed_out_again_only_if_its_commit_has_failed[True]",
        Edit(
            TERM_CONSUMER,
            "self.joined = not self.commits.has_abandoned()",
            "self.commits.has_abandoned()",
        ),
    ),
    mutant(
        "what was read behind an abandoned batch is handed out before it",
        f"{ABANDONED}what_was_read_behind_an_abandoned_batch_is_not_handed_out_before_it[start_offsets]",
        Edit(TERM_CONSUMER, "        self._drop_ahead()  # its records", "        # its records"),
    ),
    mutant(
        "a topic that is gone for a while is taken for a new one",
        "tests/integration/kafka/test_topics_that_vanish.py::test_"
        "a_topic_missed_for_a_while_and_made_again_is_not_read_on_as_if_it_were_the_old_one"
        "[zookeeper-kafka-python]",
        Edit(CONSUMER_CHECK, "self.topic_ids = ids | self.topic_ids", "self.topic_ids = ids"),
    ),
    mutant(
        "offsets that are gone are taken for a new group's",
        f"{SHARED}a_group_whose_offsets_are_gone_is_not_read_again_without_a_word[kafka-python-transaction-transaction]",
        Edit(
            TERM_CONSUMER,
            "        if not reached or isinstance(",
            "        if reached or isinstance(",
        ),
    ),
    mutant(
        "the group is never rid of a career's former name",
        f"{SHARED}a_career_renamed_inside_its_group_reads_on_within_seconds[kafka-python]",
        Edit(
            ASSEMBLY,
            "        return not session.children(layout.candidates)\n    except NoNode:\n       "
            " return True\n",
            "        return False\n    except NoNode:\n        return False\n",
        ),
    ),
    mutant(
        "a member whose career has candidates is removed from the group",
        f"{SHARED}a_member_whose_career_has_candidates_stays_in_the_group",
        Edit(
            ASSEMBLY,
            "        return not session.children(layout.candidates)\n",
            "        return True\n",
        ),
    ),
    mutant(
        "a gate that is shut lets a leader join",
        f"{GATE}a_gate_that_is_shut_refuses_although_the_lease_lasts",
        Edit(
            TERM_CONSUMER,
            "        if self.is_shut:\n            raise",
            "        if False:\n            raise",
        ),
    ),
    mutant(
        "the gate lets a leader join whose term is over",
        f"{GATE}the_gate_refuses_when_the_term_is_over",
        Edit(TERM_CONSUMER, "        self.term.check()\n\n\nclass NotLetIn", "\n\nclass NotLetIn"),
    ),
    mutant(
        "kafka-python is not asked before each join",
        f"{GATE}the_assignor_that_is_asked_before_each_join_asks_the_gate",
        Edit(
            KAFKA_PYTHON,
            "        self.allowed()\n        return super().metadata(topics)\n",
            "        return super().metadata(topics)\n",
        ),
    ),
    mutant(
        "an idle leader is never told that it was fenced",
        f"{CAREER}an_idle_leader_that_was_fenced_learns_it",
        Edit(TERM_CONSUMER, "        if self._store.is_silent:\n", "        if False:\n"),
    ),
    mutant(
        "a batch for workers is of one partition",
        "tests/unit/kafka/test_read_ahead.py::test_a_batch_has_as_much_of_each_partition_although_records_come_in_long_runs",
        Edit(READ_AHEAD, "        share = max(1, most // len(open_))\n", "        share = most\n"),
    ),
    mutant(
        "more is read ahead for one worker than a batch",
        "tests/unit/kafka/test_read_ahead.py::test_one_worker_reads_no_more_ahead_than_a_batch_and_no_more_than_fits",
        Edit(
            READ_AHEAD,
            "if limits.workers > 1:\n            is_spread",
            "if True:\n            is_spread",
        ),
    ),
    mutant(
        "long runs of one partition leave no room for the others",
        "tests/unit/kafka/test_read_ahead.py::test_records_of_one_partition_leave_room_for_others_until_all_workers_have_some",
        Edit(READ_AHEAD, "is_spread = len(self._counts) >= limits.workers", "is_spread = True"),
    ),
    mutant(
        "what a rebuild was tried for is forgotten when positions are set again",
        "tests/unit/kafka/test_consumer_check.py::"
        "test_after_a_rebuild_time_and_polls_are_counted_again_and_the_same_stall_is_told_once",
        Edit(
            "leaderq/kafka/consuming/consumer_check.py",
            "        self._since = {}\n\n\ndef",
            "        self._since, self._tried = {}, {}\n\n\ndef",
        ),
    ),
    mutant(
        "time-outs of kafka-python keep what was fetched",
        "tests/integration/kafka/test_memory_of_a_career.py::"
        "test_large_records_take_a_bounded_amount_of_memory[kafka-python]",
        Edit(CONNECTION, "raise exc.with_traceback(None)", "raise exc"),
    ),
    mutant(
        "a call of librdkafka that never returns is waited for",
        "tests/integration/kafka/test_three_brokers.py::"
        "test_a_coordinator_that_librdkafka_has_forgotten_is_not_waited_for_without_end",
        Edit(CONFLUENT_PRODUCER, "work.done, left_s + _LATE_S)", "work.done, 600.0)"),
        may_hang=True,
    ),
    mutant(
        "one record's retries hold up all partitions",
        "tests/integration/kafka/test_resting_partitions.py::"
        "test_one_records_retries_hold_up_its_own_partition_only[kafka-python-kafka-1]",
        Edit(ASSEMBLY, "        rest=consumer.rest,\n", ""),
    ),
    mutant(
        "what is read after a partition was abandoned leaves a gap",
        "tests/integration/kafka/test_resting_partitions.py::"
        "test_one_records_retries_hold_up_its_own_partition_only[confluent-kafka-4]",
        Edit(
            TERM_CONSUMER,
            "it would leave a gap\n        self._is_to_place = True\n",
            "it would leave a gap\n        self._is_to_place = False\n",
        ),
    ),
    mutant(
        "a record that waits for its retry is committed past",
        f"{RESTING}the_others_go_on_and_the_culprit_is_tried_when_it_is_handed_out_again",
        Edit(
            BATCH_HANDLER,
            "for where, end in ends if where not in self._abandoned}",
            "for where, end in ends}",
        ),
    ),
    mutant(
        "records are handled that stand behind one that waits for its retry",
        f"{RESTING}the_others_go_on_and_the_culprit_is_tried_when_it_is_handed_out_again",
        Edit(
            BATCH_HANDLER,
            "(left := each.without(where)) is not None)\n",
            "(left := each) is not None)\n",
        ),
    ),
    mutant(
        "a record is tried for ever, a rest between two attempts",
        f"{RESTING}attempts_are_counted_over_all_batches",
        Edit(BATCH_HANDLER, "            self._resting.put(where, part)\n", ""),
    ),
    mutant(
        "the positions of many partitions are set by a look at all of them for each",
        "tests/integration/kafka/test_kafka_python_consumer.py::TestKafkaPythonConsumer::"
        "test_many_partitions_are_looked_over_as_a_whole_not_once_for_each",
        Edit(
            PRIVATE,
            "consumer._subscription.assignment[partition].seek(offset)",
            "consumer.seek(partition, offset)",
        ),
    ),
    mutant(
        "kafka-python never fetches again what was paused",
        "tests/integration/kafka/test_kafka_python_consumer.py::TestKafkaPythonConsumer::"
        "test_a_partition_that_rests_is_not_read_before_the_next_seek",
        Edit(PRIVATE, "    consumer._fetcher._paused_partition_records.clear()\n", ""),
    ),
    mutant(
        "offsets are committed while the group assigns anew",
        "tests/integration/kafka/test_kafka_python_consumer.py::TestKafkaPythonConsumer::"
        "test_a_member_is_joining_until_the_group_has_assigned_again",
        Edit(PRIVATE, "return bool(consumer._coordinator.rejoining)", "return False"),
        may_hang=True,
    ),
    mutant(
        "a missing file of one record's making holds up the work",
        "tests/unit/kafka/test_hold_ups.py::test_only_and_except_say_which_errors_are_about_records",
        Edit(ON_ERROR, "return not _is_of_the_records_making(error)", "return True"),
    ),
    mutant(
        "an option on which a promise rests is passed on to the client",
        f"{OPTIONS}all_options_that_a_career_may_not_set_are_told_at_once",
        Edit(
            CLIENT_OPTIONS,
            "(because := _refusal(client, name)) is not None:\n",
            "(because := _refusal(client, name)) is not None and name != 'acks':\n",
        ),
    ),
    mutant(
        "a setting does not go before what the class says",
        "tests/unit/kafka/test_declaration.py::test_an_attribute_can_be_set_for_one_career_and_it_is_told_where[variable-group]",
        Edit(DECLARATION, "for each in _TUNABLE if (value", "for each in _TUNABLE[1:] if (value"),
    ),
    mutant(
        "a career reads its own dead letters by a pattern",
        f"{OPTIONS}where_dead_letters_go_is_left_out_of_a_pattern_and_refused_as_a_topic",
        Edit(
            CONSUMER,
            "name for name in names if name != self.without and not",
            "name for name in names if not",
        ),
    ),
    mutant(
        "of a topic made later only what comes after its discovery is read",
        f"{OPTIONS_AT_WORK}topics_that_match_are_read_also_those_made_later_and_one_that_is_deleted_ends_no_term[kafka-kafka-python]",
        Edit(
            TERM_CONSUMER,
            "known = fresh if self._plan.by_pattern and stored else stored",
            "known = stored",
        ),
    ),
    mutant(
        "a career starts on a kafka-python that does not ask the gate",
        f"{READ_BEFORE}one_that_would_let_a_zombie_fence_its_successor_is_refused_at_the_start[ConsumerCoordinator-group_protocols-group_protocols_without_asking-the"
        " assignor is not asked]",
        Edit(
            PRIVATE,
            '        yield "the assignor is not asked when a group is joined"\n',
            "        pass\n",
        ),
    ),
    mutant(
        "a career does not look whether the gate would be asked",
        f"{READ_BEFORE}neither_a_career_nor_a_replay_begins_without_what_the_fence_relies_on[kafka]",
        Edit(
            ASSEMBLY, "        private_api.require_what_the_fence_relies_on()\n", "        pass\n"
        ),
    ),
    mutant(
        "a replay does not look whether the producer would be fenced",
        f"{READ_BEFORE}neither_a_career_nor_a_replay_begins_without_what_the_fence_relies_on[replay]",
        Edit(PYTHON_PRODUCER, "        private_api.require_what_the_fence_relies_on()\n", ""),
    ),
    mutant(
        "a transaction is open from the first message of a batch",
        f"{CAREER}no_transaction_is_open_while_records_are_handled[confluent]",
        Edit(
            TRANSACTIONS,
            "        self._messages.append(checked(message, max",
            "        if (early := self._transacting and self._transacting._producer) is not None:\n"
            "            self._messages or early.begin()\n"
            "            early.produce(message)\n"
            "        self._messages.append(checked(message, max",
        ),
        Edit(
            TRANSACTIONS,
            "            producer.begin()\n            for message in transaction.messages:\n"
            "                producer.produce(message)\n",
            "            if not transaction.messages:\n                producer.begin()\n",
        ),
    ),
    mutant(
        "a process whose term is over fences in a producer",
        f"{IN_TRANSACTIONS}a_process_whose_term_is_over_fences_nobody",
        Edit(TRANSACTIONS, "        self._allowed()\n        try:\n", "        try:\n"),
    ),
    mutant(
        "taking over fences in no producer",
        f"{IN_TRANSACTIONS}taking_over_ends_the_transaction_that_a_zombie_left_open",
        Edit(
            TRANSACTIONS,
            "            self._discard()\n        self._fenced()\n",
            "            self._discard()\n",
        ),
    ),
    mutant(
        "a commit that happened unseen is done again after fencing",
        f"{IN_TRANSACTIONS}after_a_new_drain_the_offsets_tell_whether_an_unanswered_committing_happened[True]",
        Edit(TRANSACTIONS, "uncommitted.offsets.items() <= stored.items():", "not stored:"),
    ),
    mutant(
        "offsets are written to ZooKeeper past the fence of the term",
        f"{IN_ZOOKEEPER}what_the_terms_fence_refuses_is_not_stored",
        Edit(
            ZOOKEEPER_OFFSETS,
            "term.write([*puts, *operations])",
            "self._session.multi([*puts, *operations])",
        ),
    ),
    mutant(
        "a write to ZooKeeper without an answer is done again unseen",
        f"{IN_ZOOKEEPER}the_znode_tells_whether_a_write_without_an_answer_has_happened",
        Edit(ZOOKEEPER_OFFSETS, "if self._happened(term, new):", "if False:"),
    ),
    mutant(
        "all writes of a term to ZooKeeper have one number",
        f"{IN_ZOOKEEPER}the_znode_tells_whether_a_write_without_an_answer_has_happened",
        Edit(ZOOKEEPER_OFFSETS, 'f"{term.number}-{next(self._numbers)}"', 'f"{term.number}"'),
    ),
    mutant(
        "operations that were carried out stay for the next batch",
        f"{IN_ZOOKEEPER}offsets_and_the_users_operations_go_together",
        Edit(
            ZOOKEEPER_OFFSETS,
            "            del self._waiting[: len(operations)]",
            "            pass",
        ),
    ),
    mutant(
        "a database takes rows of older terms",
        f"{IN_A_DATABASE}a_zombie_cannot_load_after_its_successor",
        Edit(DATABASE_OFFSETS, " WHERE kept.term <= excluded.term", ""),
    ),
    mutant(
        "loading offsets from a database refuses no older term",
        f"{IN_A_DATABASE}a_zombie_is_refused_whole_once_its_successor_has_loaded",
        Edit(
            DATABASE_OFFSETS,
            "(cursor, term, _TERM_ROW, 0)\n            self._execute(cursor, ALL",
            "\n            self._execute(cursor, ALL",
        ),
    ),
    mutant(
        "a transaction in a database is begun without a look at the newest term",
        f"{IN_A_DATABASE}a_zombie_is_refused_whole_once_its_successor_has_loaded",
        Edit(
            DATABASE_OFFSETS,
            "            self._put(cursor, term, _TERM_ROW, 0)\n            firsts",
            "            firsts",
        ),
    ),
    mutant(
        "a batch whose COMMIT was not answered is stored twice",
        f"{IN_A_DATABASE}a_batch_stored_by_a_try_whose_answer_was_lost_is_not_stored_again",
        Edit(DATABASE_OFFSETS, "int(row[0]) > first:", "int(row[0]) > first + 10**9:"),
    ),
    mutant(
        "a zombie of kafka-python fences its successor",
        f"{PRODUCER}a_zombies_messages_are_refused_and_its_successor_is_not_disturbed",
        Edit(
            PRIVATE, "    producer._transaction_manager._supports_epoch_bump = lambda: False\n", ""
        ),
    ),
    mutant(
        "kafka-python forgets a transactional request whose broker is away",
        f"{PRODUCER}a_commit_is_completed_after_the_broker_was_away",
        Edit(PRIVATE, "    net.await_ready = await_ready\n", ""),
        may_hang=True,
    ),
    mutant(
        "a producer's use of the private parts is not looked for",
        f"{READ_BEFORE}one_that_would_let_a_zombie_fence_its_successor_is_refused_at_the_start[Sender-_maybe_send_pending_request-None-Sender"
        " does not use await_ready]",
        Edit(
            PRIVATE,
            "        if not any(name in each.__code__",
            "        if False and any(name in each.__code__",
        ),
    ),
    mutant(
        "a candidate cannot begin while a dead leader's transaction is open",
        f"{IN_TRANSACTIONS}taking_over_ends_the_transaction_that_a_zombie_left_open",
        Edit(CONSUMER, ", {Partition(topic, _NOBODYS) for topic, _ in self.existing()})", ")"),
    ),
    mutant(
        "records are replayed to where they came from whatever topic is named",
        "tests/acceptance/cli/test_dead.py::test_letters_go_to_another_topic_if_one_is_named",
        Edit("leaderq/cli/dead.py", "        to=given.to,\n", ""),
    ),
    mutant(
        "what is set for one career is not obeyed",
        f"{SETTINGS_OBEYED}a_setting_of_one_career_is_shown_and_obeyed",
        Edit(DECLARATION, "for each in _TUNABLE if (value", "for each in () if (value"),
    ),
    mutant(
        "a handler's budget that is set from outside is not watched",
        f"{SETTINGS_OBEYED}a_handler_that_hangs_ends_its_term_and_another_candidate_does_its_work",
        Edit("leaderq/kafka/career.py", "or self.settings.handle_budget_s is not None", "or False"),
        may_hang=True,
    ),
    mutant(
        "offsets that are gone from ZooKeeper mean that all is read again",
        f"{SHARED}a_group_whose_offsets_are_gone_is_not_read_again_without_a_word[confluent-zookeeper-zookeeper]",
        Edit(
            TERM_CONSUMER,
            "if not reached or isinstance(self._store, ExternalOffsets):",
            "if not reached or not self._store.in_group:",
        ),
    ),
    mutant(
        "by default a batch has no bound in bytes",
        "tests/integration/kafka/test_memory_of_a_career.py::"
        "test_large_records_take_a_bounded_amount_of_memory[confluent]",
        Edit(
            "leaderq/kafka/career.py",
            "max_bytes: ClassVar[int | None] = 32_000_000",
            "max_bytes: ClassVar[int | None] = None",
        ),
    ),
]
