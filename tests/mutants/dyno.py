"""The mutants of ``leaderq.dyno``: leases, receipts, ids, and what was taken away by hand."""

from __future__ import annotations

from mutants.mutant import Edit, mutant

CONSUMER = "leaderq/dyno/consumer.py"
INDEX = "leaderq/dyno/index.py"
QUEUE = "leaderq/dyno/queue.py"
TRANSITIONS = "leaderq/dyno/transitions.py"
VIEW = "leaderq/dyno/shard_view.py"

HERE = "tests/integration/dyno/"
MESSAGES = f"{HERE}test_messages.py::test_"
RUDE = f"{HERE}test_rude_messages.py::test_"
HEARD = f"{HERE}test_what_is_heard.py::test_"
UNIQUE = f"{HERE}test_unique_messages.py::test_"

FROZEN = (
    "tests/integration/queues/test_frozen_consumers.py"
    "::test_who_was_frozen_begins_nothing_that_another_may_have"
)

MUTANTS = [
    mutant(
        "who was frozen is handed what it had claimed before",
        f"{FROZEN}[pop]",
        Edit(CONSUMER, "is_standing = writer.surely_stands()", "is_standing = True"),
    ),
    mutant(
        "a message asked for by its id is handed out after a freeze",
        f"{FROZEN}[pop_id]",
        Edit(CONSUMER, "next(iter(self._standing(found)), None)", "next(iter(found), None)"),
    ),
    mutant(
        "a message that is removed as it is first delivered leaves its claim over",
        f"{RUDE}a_message_that_is_first_delivered_while_it_is_removed_leaves_no_claim_over[remove]",
        Edit(
            TRANSITIONS,
            "claimed = absence(claim) if version is None else",
            "claimed = () if version is None else",
        ),
    ),
    mutant(
        "what is written with an acknowledgement is not",
        f"{RUDE}a_result_is_written_with_the_acknowledgement_or_neither",
        Edit(CONSUMER, "(*self._completion(one), *also)", "self._completion(one)"),
    ),
    mutant(
        "a fence of the user's that refuses is taken for a lost lease",
        f"{RUDE}a_result_is_written_with_the_acknowledgement_or_neither",
        Edit(CONSUMER, " and within(error, root)", ""),
    ),
    mutant(
        "a message in flight is finished by an operator",
        "tests/acceptance/cli/test_queue_of_dyno.py::test_what_is_done_elsewhere_is_acknowledged_unless_a_consumer_holds_it",
        Edit(QUEUE, "claim.resting is None and not held_too:", "claim is held_too:"),
    ),
    mutant(
        "a purge takes what consumers hold",
        "tests/acceptance/cli/test_queue_of_dyno.py::"
        "test_a_queue_is_purged_but_for_what_is_held_and_removed_when_it_is_not_in_use",
        Edit(QUEUE, "claim.resting is None and not held_too}", "claim is held_too}"),
    ),
    mutant(
        "a receipt that somebody has overtaken acknowledges",
        f"{MESSAGES}a_lease_that_is_over_passes_to_another_and_the_former_owner_changes_nothing",
        Edit(
            TRANSITIONS,
            "return Delete(paths.claim(name), version), Delete",
            "return Delete(paths.claim(name)), Delete",
        ),
    ),
    mutant(
        "a lease of one's own that is over is nobody's",
        f"{RUDE}a_lease_that_nobody_settles_passes_to_the_same_consumer_too",
        Edit(INDEX, "if name in self._ours:  # otherwise", "if not self._ours:  # otherwise"),
    ),
    mutant(
        "who has just come is taken for one who has gone",
        f"{RUDE}the_lease_of_one_who_has_just_come_is_not_taken_for_that_of_one_who_has_gone",
        Edit(
            CONSUMER,
            "partial(self._session.children, self._paths.members)",
            "lambda: self._members",
        ),
    ),
    mutant(
        "all that a consumer writes has all others list the members",
        f"{RUDE}a_worker_asks_for_claims_and_members_no_more_often_when_it_works",
        Edit(
            CONSUMER,
            "session.watch_node(paths.members",
            "session.watch_tree(paths.members",
        ),
    ),
    mutant(
        "each message that a worker begins has it look at all leases",
        f"{RUDE}a_worker_asks_for_claims_and_members_no_more_often_when_it_works",
        Edit(CONSUMER, "is_time = clock.now_s() >= self._next_look_s", "is_time = True"),
    ),
    mutant(
        "what was known of a former lease puts off the look at the next",
        f"{RUDE}a_message_whose_marker_was_deleted_by_hand_can_be_removed_and_comes_again",
        Edit(
            INDEX,
            "setdefault(rest.name, KnownLease(0, 0))",
            "setdefault(rest.name, KnownLease(0, 2**60))",
        ),
    ),
    mutant(
        "a large payload stops the loop",
        f"{HERE}test_async_messages.py::test_the_loop_goes_on_while_a_large_payload_is_read",
        Edit("leaderq/dyno/async_queue.py", "if self.delivery.frame.body is None:", "if True:"),
    ),
    mutant(
        "a lease that is shortened is looked at when it was to end",
        f"{RUDE}a_lease_that_is_shortened_ends_in_time_and_one_of_0_s_is_released",
        Edit(CONSUMER, "view.index.looked_at(one.name, one.until_ms)", "pass"),
    ),
    mutant(
        "who meets another consumer is refused message by message",
        f"{RUDE}who_meets_another_consumer_is_not_refused_message_by_message",
        Edit(
            CONSUMER,
            "for together in (CLAIMED_TOGETHER, CLAIMED_TOGETHER, 1):",
            "for together in (1,):",
        ),
    ),
    mutant(
        "who cannot reach the servers asks again and again for what is due",
        f"{RUDE}a_pop_outlasts_an_outage_and_what_was_held_is_settled_after_it",
        Edit(
            CONSUMER,
            "self._changed.wait_for(lambda: self._nodes.is_closed, UNREACHABLE_S)",
            "pass",
        ),
    ),
    mutant(
        "who has something in its own shard leaves the others",
        f"{RUDE}a_shard_whose_consumer_hangs_is_served_although_the_own_one_has_something",
        Edit(CONSUMER, "if len(choices) == room:", "if choices:"),
    ),
    mutant(
        "a take-over counts no failure",
        f"{RUDE}a_lease_that_nobody_settles_passes_to_the_same_consumer_too",
        Edit(CONSUMER, "failures = former.failures + is_take_over", "failures = former.failures"),
    ),
    mutant(
        "without its id a message cannot be settled",
        f"{RUDE}a_message_whose_id_was_deleted_by_hand_can_be_settled[ack]",
        Edit(TRANSITIONS, "not in (IDS, RESTS)", "not in (RESTS,)"),
    ),
    mutant(
        "a heartbeat makes the receipt of an acknowledgement under way stale",
        f"{RUDE}acknowledging_many_does_not_lose_to_a_heartbeat",
        Edit(
            CONSUMER,
            "                one.lock.acquire()\n                held.append(one.lock)\n",
            "                pass\n",
        ),
    ),
    mutant(
        "a pop ends at a message that it has found dead",
        f"{RUDE}a_pop_that_does_not_wait_returns_what_lies_behind_one_that_cannot_be_read",
        Edit(CONSUMER, "return found, len(found) < len(choices)", "return found, False"),
    ),
    mutant(
        "who closes has failed at what was not settled",
        f"{RUDE}a_consumer_that_closes_has_failed_at_nothing",
        Edit(CONSUMER, "self._release(held, membership.writer)\n", "pass\n"),
    ),
    mutant(
        "an outage ends a pop that waits",
        f"{RUDE}a_pop_outlasts_an_outage_and_what_was_held_is_settled_after_it",
        Edit(
            CONSUMER,
            "return is_change or isinstance(error, ConnectionLost | SessionExpired)",
            "return is_change",
        ),
    ),
    mutant(
        "a pop hangs in a fork",
        f"{RUDE}a_queue_is_of_no_use_in_a_fork_and_does_not_hang_there",
        Edit("leaderq/dyno/nodes.py", "if host.pid() != self._pid:", "if not self._pid:"),
    ),
    mutant(
        "the end of a message takes its id from the next one",
        f"{UNIQUE}an_id_that_is_its_own_until_started_is_free_from_the_first_delivery_on[ack]",
        Edit(
            TRANSITIONS,
            "if not frame.id or (has_started and",
            "if not frame.id or (not has_started and",
        ),
    ),
    mutant(
        "who waits is not told that the next of a group may go",
        f"{HEARD}who_waits_hears_of_what_is_done_only_if_that_may_let_the_next_of_a_group_go[a"
        " group-3]",
        Edit(VIEW, " and _NO_GROUP in name", ""),
    ),
    mutant(
        "the next message is not read before it is asked for",
        f"{HEARD}the_next_message_is_read_once_and_before_it_is_asked_for",
        Edit(CONSUMER, "view.read_ahead(len(found), now_ms)", "pass"),
    ),
    mutant(
        "what was read ahead is read again",
        f"{HEARD}the_next_message_is_read_once_and_before_it_is_asked_for",
        Edit(VIEW, "if isinstance(known.get(name), tuple)", "if name not in known"),
    ),
    mutant(
        "who always comes late goes on reading ahead",
        f"{HEARD}who_has_read_ahead_what_others_took_reads_no_more_than_it_pops",
        Edit(VIEW, "self._paused = _PAUSE if", "self._paused = 0 if"),
    ),
    mutant(
        "what may have been written is told as surely not sent",
        f"{HEARD}what_was_never_sent_is_told_apart_from_what_may_have_been",
        Edit("leaderq/writing/outcomes.py", "not_sent if one in unsent else lost", "not_sent"),
    ),
    mutant(
        "the end of a lease is told by what it is extended to now, not by how long it is kept",
        "tests/unit/dyno/test_lease_keeper.py::test_the_end_is_told_once_so_long_before_it[61.0-15.0]",
        Edit("leaderq/dyno/delivery.py", "max(left_s, most_s) - kept", "left_s - kept"),
    ),
]
