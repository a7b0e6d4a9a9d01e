"""Edits of lines on which a promise rests, each with the tests that must notice it.

Those of the review come first: every edit of 49 that a reviewer made by hand, except those that are
redundant (see docs/design/mutants.md).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Control:
    """``name``: what goes wrong when ``old``, which stands in ``file`` once, becomes ``new``.

    ``promise``: what a docstring says instead. ``tests``: files or ids; one of them must fail.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    promise: str = ""


REVIEWED = (
    Control(
        "a command that was fenced lives on for T/4",
        "leaderq/running/command.py",
        "        if reason is not None and reason.deposes and reason is not Reason.LEASE:\n            return 0.0\n",  # noqa: E501
        "",
        promise="fenced, znode deleted: SIGKILL at once, because the next may lead already",
        tests=("tests/unit/running/test_command.py",),
    ),
    Control(
        "a term that was deposed by a write may write again",
        "leaderq/election/tenure.py",
        "        self.term.wind_up(reason)\n        self._say(Input.LOST",
        "        self._say(Input.LOST",
        promise="once write has raised Deposed they always will",
        tests=("tests/unit/election/test_tenure_signals.py",),
    ),
    Control(
        "the own znode is not watched again after a reconnection",
        "leaderq/election/tenure.py",
        "        else:\n            self._own_watch_set = False\n",
        "",
        promise="its deletion is heard of at once, not at the next renewal",
        tests=("tests/unit/election/test_tenure_signals.py",),
    ),
    Control(
        "an old acknowledgement resumes paused work",
        "leaderq/election/tenure.py",
        "            if trust is LeaseState.FULL:\n",
        "            if True:\n",
        promise="paused work goes on after an acknowledged write, not before",
        tests=("tests/unit/election/test_tenure_signals.py",),
    ),
    Control(
        "a lease is never late",
        "leaderq/election/tenure.py",
        "return LeaseState.LATE if now_s >= self.late_s else LeaseState.FULL",
        "return LeaseState.FULL",
        promise="two unanswered renewals pause the work",
        tests=("tests/unit/election/test_lease.py",),
    ),
    Control(
        "a silent connection is kept when the lease is over",
        "leaderq/election/decision.py",
        "(Effect.DEPOSE_LEASE, Effect.DROP_CONNECTION)",
        "(Effect.DEPOSE_LEASE,)",
        promise="a silent connection is dropped when the lease is over",
        tests=("tests/unit/election/test_decision.py",),
    ),
    Control(
        "an unclean end is never told",
        "leaderq/election/enlistment.py",
        "self._unclean = is_lost or (self._newest.id is not None and self._newest.ended is None)",
        "self._unclean = False",
        promise="unclean says that the term before ended without a hand-over",
        tests=("tests/simulation/test_election_promises.py",),
    ),
    Control(
        "records that are released are not read again",
        "leaderq/kafka/consuming/positions.py",
        "            self.handed[partition] = self.committed[partition]\n",
        "            pass\n",
        promise="reading goes back to the store's offsets",
        tests=("tests/unit/kafka/test_positions.py",),
    ),
    Control(
        "any write of the term counts as this one",
        "leaderq/kafka/stores/zookeeper_offsets.py",
        "found.write == kept.write",
        "found.term == kept.term",
        promise="a write whose answer was lost is sent again unless it happened",
        tests=("tests/unit/kafka/test_offsets_in_znodes.py",),
    ),
    Control(
        "one fewer in a row is passed over",
        "leaderq/kafka/handling/on_error.py",
        "return len(self._keys | {_key(record)}) > most",
        "return len(self._keys | {_key(record)}) >= most",
        promise="most_in_a_row records are passed over",
        tests=("tests/unit/kafka/test_on_error.py",),
    ),
    Control(
        "a late transaction is not given up",
        "leaderq/kafka/stores/transaction_offsets.py",
        "        if is_late or isinstance(exc, KafkaFenced):\n            self._discard()\n        if is_late:",  # noqa: E501
        "        if isinstance(exc, KafkaFenced):\n            self._discard()\n        if False:",
        promise="a transaction that is open for too long is given up",
        tests=("tests/unit/kafka/test_transaction_states.py",),
    ),
    Control(
        "a batch whose fate is unknown counts as committed",
        "leaderq/kafka/consuming/term_consumer.py",
        "if wanted is not None and wanted.items() <= stored.items():",
        "if wanted is not None:",
        promise="nothing is lost: only what the store holds is committed",
        tests=("tests/unit/kafka/test_where_reading_resumes.py",),
    ),
    Control(
        "a transaction of a discarded producer is not in doubt",
        "leaderq/kafka/stores/transaction_offsets.py",
        "self._open.in_doubt = self._open.commit_asked",
        "self._open.in_doubt = False",
        promise="what was produced for a record is seen exactly once",
        tests=("tests/unit/kafka/test_transaction_states.py",),
    ),
    Control(
        "a doubt is forgotten without a fence",
        "leaderq/kafka/stores/transaction_offsets.py",
        "elif uncommitted is not None and is_settled:",
        "elif uncommitted is not None:",
        promise="only fencing settles a transaction one way or the other",
        tests=("tests/unit/kafka/test_transaction_states.py",),
    ),
    Control(
        "a transaction that is committed is committed again",
        "leaderq/kafka/stores/transaction_offsets.py",
        "        if transaction.is_committed:\n            return  # asked for again, because nobody had waited for the answer\n",  # noqa: E501
        "",
        promise="what was produced for a record is seen exactly once",
        tests=("tests/unit/kafka/test_transaction_states.py",),
    ),
    Control(
        "an added partition begins at the latest record",
        "leaderq/kafka/consuming/positions.py",
        "    topics = {partition.topic for partition in known}\n",
        "    topics: set[str] = set()\n",
        promise="an added partition begins at its first record",
        tests=("tests/unit/kafka/test_positions.py",),
    ),
    Control(
        "a position past the end is not gone",
        "leaderq/kafka/consuming/positions.py",
        "is_there = first[where] <= position <= max(last[where], first[where])",
        "is_there = first[where] <= position",
        promise="positions that are gone are reset",
        tests=("tests/unit/kafka/test_positions.py",),
    ),
    Control(
        "positions are reset in the middle of a batch",
        "leaderq/kafka/consuming/term_consumer.py",
        "        if self.has_in_hand or self.commits.wanted is not None:\n            return False",
        "        if False:\n            return False",
        promise="found again, once the batch in hand is committed",
        tests=("tests/unit/kafka/test_where_reading_resumes.py",),
    ),
    Control(
        "the first position is not waited for",
        "leaderq/kafka/consuming/commits.py",
        '        if not self._store.commit_positions(consumer, self._term, offsets).done(wait_s):\n            raise KafkaAway("an offset is not stored yet")\n',  # noqa: E501
        "        self._store.commit_positions(consumer, self._term, offsets)\n",
        promise="committed before the first record is read",
        tests=("tests/unit/kafka/test_commits.py",),
    ),
    Control(
        "operations added during a commit are dropped",
        "leaderq/kafka/stores/zookeeper_offsets.py",
        "del self._waiting[: len(operations)]",
        "self._waiting.clear()",
        promise="offsets and operations of a batch happen together, once",
        tests=("tests/unit/kafka/test_offsets_in_znodes.py",),
    ),
    Control(
        "letters past the end are read",
        "leaderq/kafka/dead_letters/topic.py",
        "if row.offset < ends[where])",
        "if row.offset <= ends[where])",
        promise="the records to ends, when reading began",
        tests=("tests/unit/kafka/test_letters_read_to_their_end.py",),
    ),
    Control(
        "m1: a lease that is over is handed out",
        "leaderq/dyno/consumer.py",
        "one.until_ms > now_ms and one.state.member == mark",
        "one.state.member == mark",
        promise="those that are still leased to this consumer for certain",
        tests=("tests/simulation/test_dyno_promises.py",),
    ),
    Control(
        "m2: a failure without an error forgets the former one",
        "leaderq/dyno/delivery.py",
        "error=text or former.error",
        "error=text or ''",
        promise="error: of the last failure",
        tests=("tests/simulation/test_dyno_promises.py",),
    ),
    Control(
        "m3: a letter that is sent back has priority 0",
        "leaderq/dyno/dead_letters.py",
        "int(letter.name[:2])",
        "0",
        promise="it keeps its priority",
        tests=("tests/simulation/test_dyno_promises.py",),
    ),
    Control(
        "m4: the first delivery is the last one",
        "leaderq/dyno/consumer.py",
        "former.first_ms or now_ms",
        "now_ms",
        promise="first_ms: of the first delivery",
        tests=("tests/simulation/test_dyno_promises.py",),
    ),
    Control(
        "m5: everybody's own shard is the first",
        "leaderq/dyno/consumer.py",
        "own = self._shards[rank % len(self._shards)]",
        "own = self._shards[0]",
        promise="consumers are spread over the shards",
        tests=("tests/simulation/test_dyno_promises.py",),
    ),
    Control(
        "m6: nobody steps aside",
        "leaderq/dyno/consumer.py",
        "skip=conflicts if conflicts > 1 else 0",
        "skip=0",
        promise="who meets another consumer steps aside",
        tests=("tests/simulation/test_dyno_promises.py",),
    ),
    Control(
        "m8: leases of others are looked at 10 s late",
        "leaderq/dyno/shard_view.py",
        "until_ms = min(until_ms, one.state.until_ms)",
        "until_ms = one.state.until_ms + 10_000",
        promise="redelivered in time",
        tests=("tests/simulation/test_dyno_promises.py",),
    ),
    Control(
        "m11: an extension by the redeemer keeps the former member",
        "leaderq/dyno/consumer.py",
        "state = one.state._replace(member=mark, until_ms=until_ms)",
        "state = one.state._replace(until_ms=until_ms)",
        promise="a lease ends with the session of its consumer",
        tests=("tests/simulation/test_dyno_promises.py",),
    ),
    Control(
        "m13: the rest of a failed item is not written for others",
        "leaderq/queues/consuming/settling.py",
        "not_before_ms=until_ms if wait_s > 0 else None",
        "not_before_ms=None",
        promise="tried again after wait_s, by whichever consumer",
        tests=("tests/unit/queues/test_rests_of_failed_items.py",),
    ),
    Control(
        "m14: a name that was discarded is taken",
        "leaderq/queues/consuming/pending.py",
        "            self._gone.add(name)\n",
        "            pass\n",
        promise="names that are gone are not claimed",
        tests=("tests/unit/queues/test_pending_model.py",),
    ),
    Control(
        "m15: a share is that of the next member",
        "leaderq/queues/consuming/pending.py",
        "sequence_of(name) % self._members == self._position",
        "sequence_of(name) % self._members != self._position",
        promise="every n-th number",
        tests=("tests/unit/queues/test_pending_model.py",),
    ),
    Control(
        "m16: what others write on the guard goes unnoticed",
        "leaderq/writing/groups.py",
        "is_foreign = any(batch.number < version and not batch.is_doubtful for batch in batches)",
        "is_foreign = False",
        promise="somebody else wrote: the outcome is not known",
        tests=("tests/unit/queues/test_send_queue_edges.py",),
    ),
    Control(
        "m24: a time-out is set on a message that is gone",
        "leaderq/dyno/transitions.py",
        "        Check(paths.message(name)),\n        Create(paths.claim(name), state.packed()),\n        Create(paths.rest(marker)),\n",  # noqa: E501
        "        Create(paths.claim(name), state.packed()),\n        Create(paths.rest(marker)),\n",
        promise="a message that nobody has; no orphan claim is left",
        tests=("tests/unit/dyno/test_dyno_names_and_transitions.py",),
    ),
    Control(
        "m25: a message that was removed is delivered",
        "leaderq/dyno/transitions.py",
        "return Check(paths.message(choice.name)), Create(claim, state.packed())",
        "return (Create(claim, state.packed()),)",
        promise="a removed message is not delivered",
        tests=("tests/unit/dyno/test_dyno_names_and_transitions.py",),
    ),
    Control(
        "m26: any match is popped, not the best",
        "leaderq/dyno/queue.py",
        "sorted(self.all_messages(wanted), key=lambda one: one.priority)",
        "self.all_messages(wanted)",
        promise="the best message that is due",
        tests=("tests/simulation/test_dyno_promises.py",),
    ),
    Control(
        "a broken relation shows the secret",
        "leaderq/config/loading.py",
        "BY_NAME[name].shown(values[name])",
        "values[name]",
        promise="a secret is never shown",
        tests=("tests/unit/config/test_secrets_and_files.py",),
    ),
    Control(
        "ids of set-aside files are given again",
        "leaderq/producing/journal/recovery.py",
        "bounds.append(max([self.next_id, *bad]) + LEAP)",
        "bounds.append(self.next_id + LEAP)",
        promise="no id is given twice",
        tests=("tests/unit/producing/journal/test_ids_after_losses.py",),
    ),
    Control(
        "ids of a newer version's file are given again",
        "leaderq/producing/journal/recovery.py",
        "        self.next_id = max(self.next_id, file.first_id + records)\n        set_aside",
        "        set_aside",
        promise="no id is given twice",
        tests=("tests/unit/producing/journal/test_ids_after_losses.py",),
    ),
    Control(
        "stuck keys may hold all of the memory",
        "leaderq/producing/sending.py",
        "if self._held_items >= self._options.max_items // 2:",
        "if self._held_items >= self._options.max_items:",
        promise="healthy keys go on",
        tests=("tests/unit/producing/test_stuck_keys.py",),
    ),
    Control(
        "memory is never near its high mark",
        "leaderq/producing/account.py",
        "near = 0.75 * self.high",
        "near = 2.0 * self.high",
        promise="requests are taken along near the high mark",
        tests=("tests/unit/producing/test_account.py",),
    ),
    Control(
        "a loss at close counts as chosen",
        "leaderq/producing/account.py",
        "(LossReason.NEWEST, LossReason.OLDEST, LossReason.EXPIRED)",
        "(LossReason.NEWEST, LossReason.OLDEST, LossReason.EXPIRED, LossReason.CLOSED)",
        promise="is_as_chosen: dropped by a policy of the caller's",
        tests=("tests/unit/producing/test_account.py",),
    ),
    Control(
        "futures are kept without limit",
        "leaderq/producing/buffer.py",
        "if one.waiter is not None and self.backlog.waiting >= self._options.max_waiters:",
        "if False:",
        promise="max_waiters: futures kept",
        tests=(
            "tests/unit/producing/test_full_means_full.py",
            "tests/unit/producing/test_buffered_producer.py",
        ),
    ),
    Control(
        "what is tried again is sent although it has expired",
        "leaderq/producing/sending.py",
        "expired = {one for one in batch if one.is_expired(now) and one not in self._kept}",
        "expired: set[BufferedRequest] = set()",
        promise="a request that has expired is not sent",
        tests=(
            "tests/unit/producing/test_buffered_producer.py",
            "tests/unit/producing/test_sinks_at_fault.py",
            "tests/unit/producing/test_stuck_keys.py",
            "tests/unit/producing/test_refusing_disks.py",
        ),
    ),
    Control(
        "a queue sink skips a record",
        "leaderq/producing/sinks.py",
        "part = batch[:MAX_ITEMS]",
        "part = batch[1 : MAX_ITEMS + 1]",
        promise="confirmed means stored",
        tests=(
            "tests/unit/producing/test_small_sinks.py",
            "tests/unit/producing/test_sinks_at_fault.py",
        ),
    ),
    Control(
        "what a disk refused is written an hour later",
        "leaderq/producing/buffer.py",
        "clock.now_s() < backlog.again_at_s and not",
        "clock.now_s() < backlog.again_at_s + 3600 and not",
        promise="what was refused is written as soon as the disk takes it",
        tests=("tests/unit/producing/test_refusing_disks.py",),
    ),
)

CARRIED = (
    Control(
        "a unit may outlive its lease by more than T/6",
        "leaderq/running/watchdog.py",
        "graces = 3 if self.handing_over else 2",
        "graces = 3",
        tests=(
            "tests/unit/running/test_watchdog.py::test_a_unit_that_outlives_its_lease_is_terminated_once_and_killed_before_the_next_can_lead",
        ),
    ),
    Control(
        "a hand-over may outlive its lease by T/3",
        "leaderq/running/watchdog.py",
        "graces = 3 if self.handing_over else 2",
        "graces = 4 if self.handing_over else 2",
        tests=(
            "tests/unit/running/test_watchdog.py::test_a_hand_over_past_the_lease_gets_no_sigterm_and_is_killed_before_the_next_can_lead",
        ),
    ),
    Control(
        "a worker has the budget of a planned end, whatever its lease",
        "leaderq/running/watchdog.py",
        "at_s = min(at_s, self.budget_until_s + 2 * self._budget_grace_s)",
        "at_s = self.budget_until_s + 2 * self._budget_grace_s",
        tests=(
            "tests/unit/running/test_watchdog.py::test_the_budget_of_a_planned_end_is_kept_apart_from_the_lease",
        ),
    ),
    Control(
        "a planned end has no limit but its lease",
        "leaderq/running/watchdog.py",
        "            at_s = min(at_s, self.budget_until_s + 2 * self._budget_grace_s)\n",
        "            pass\n",
        tests=(
            "tests/unit/running/test_watchdog.py::test_the_budget_of_a_planned_end_is_kept_apart_from_the_lease",
        ),
    ),
    Control(
        "a worker that hands over past its lease is asked to leave at once",
        "leaderq/running/watchdog.py",
        "return None if self.handing_over else self.ends_s + self.grace_s",
        "return self.ends_s + self.grace_s",
        tests=(
            "tests/unit/running/test_watchdog.py::test_a_hand_over_past_the_lease_gets_no_sigterm_and_is_killed_before_the_next_can_lead",
        ),
    ),
    Control(
        "SIGTERM is sent at every look",
        "leaderq/running/watchdog.py",
        "if self.asked_term == report.term or self",
        "if self",
        tests=(
            "tests/unit/running/test_watchdog.py::test_a_unit_that_outlives_its_lease_is_terminated_once_and_killed_before_the_next_can_lead",
        ),
    ),
    Control(
        "a worker is killed at the moment of its thaw",
        "leaderq/running/watchdog.py",
        "thawed_s = now_s if stalled or (self.stopped and not stopped) else self.thawed_s",
        "thawed_s = now_s if stalled else self.thawed_s",
        tests=(
            "tests/unit/running/test_watchdog.py::test_a_unit_in_hand_at_a_thaw_is_killed_a_tenth_of_a_second_later",
        ),
    ),
    Control(
        "a guardian that did not run kills at the moment of its thaw",
        "leaderq/running/watchdog.py",
        "thawed_s = now_s if stalled or (self.stopped and not stopped) else self.thawed_s",
        "thawed_s = now_s if self.stopped and not stopped else self.thawed_s",
        tests=(
            "tests/unit/running/test_watchdog.py::test_a_guardian_that_did_not_run_counts_from_when_it_runs_again",
        ),
    ),
    Control(
        "a unit may go on for half a second after a thaw",
        "leaderq/running/watchdog.py",
        "AFTER_THAW_S = 0.08\n",
        "AFTER_THAW_S = 0.5\n",
        tests=(
            "tests/unit/running/test_watchdog.py::test_a_unit_in_hand_at_a_thaw_is_killed_a_tenth_of_a_second_later",
        ),
    ),
    Control(
        "a hand-over after a thaw is killed as a unit is",
        "leaderq/running/watchdog.py",
        "3 * report.grace_s if report.handing_over and is_late else AFTER_THAW_S",
        "AFTER_THAW_S",
        tests=("tests/unit/running/test_watchdog.py::test_a_hand_over_after_a_thaw_has_its_time",),
    ),
    Control(
        "a unit that is thawed just after its lease is killed before its time",
        "leaderq/running/watchdog.py",
        "return max(report.kill_s, self.thawed_s + after_s)",
        "return self.thawed_s + after_s",
        tests=("tests/unit/running/test_watchdog.py::test_a_thaw_in_time_shortens_nothing",),
    ),
    Control(
        "a stopped worker is killed",
        "leaderq/running/watchdog.py",
        "            return Intervention.KILL_STARTED if is_due else Intervention.LEAVE_ALONE\n",
        "            if is_due:\n                return Intervention.KILL\n",
        tests=(
            "tests/unit/running/test_watchdog.py::test_a_stopped_worker_harms_nobody_and_is_left_alone_but_not_what_it_has_started",
        ),
    ),
    Control(
        "what a stopped worker has started works on",
        "leaderq/running/watchdog.py",
        "return Intervention.KILL_STARTED if is_due else Intervention.LEAVE_ALONE",
        "return Intervention.LEAVE_ALONE",
        tests=(
            "tests/unit/running/test_watchdog.py::test_a_stopped_worker_harms_nobody_and_is_left_alone_but_not_what_it_has_started",
        ),
    ),
    Control(
        "the guardian looks again only when it hears something",
        "leaderq/running/watchdog.py",
        "return min((at for at in times if at is not None and at > now_s), default=now_s + 0.01)",
        "return None",
        tests=(
            "tests/unit/running/test_watchdog.py::test_no_running_worker_outlives_its_time_and_looks_are_planned_when_they_are_due",
        ),
    ),
    Control(
        "a deposed worker has its hand-over budget",
        "leaderq/running/guardian_link.py",
        "        elif reason is not None and reason.deposes:\n",
        "        elif False:\n",
        tests=(
            "tests/unit/running/test_guardian_link.py::test_a_deposing_reason_ends_the_lease_now_whatever_the_budget",
        ),
    ),
    Control(
        "each report puts the end of the budget off",
        "leaderq/running/guardian_link.py",
        "            if self._budget_until_s is None:\n                self._budget_until_s",
        "            if True:\n                self._budget_until_s",
        tests=(
            "tests/unit/running/test_guardian_link.py::test_a_planned_end_has_its_budget_and_its_lease_goes_on",
        ),
    ),
    Control(
        "a longer time-out lengthens a worker's grace",
        "leaderq/running/guardian_link.py",
        "self._grace_s = min(self._grace_s, self._session.timeout_s / 12)",
        "self._grace_s = self._session.timeout_s / 12",
        tests=(
            "tests/unit/running/test_guardian_link.py::test_a_shorter_time_out_makes_a_shorter_grace_and_it_stays",
        ),
    ),
    Control(
        "a term is reported after its code has returned",
        "leaderq/running/guardian_link.py",
        "[held for held in self._held if held.term is not term]",
        "[*self._held]",
        tests=(
            "tests/unit/running/test_guardian_link.py::test_nothing_of_a_term_is_reported_after_its_code_has_returned",
        ),
    ),
    Control(
        "all reports wait for a guardian that does not read",
        "leaderq/running/guardian_link.py",
        "self._newest_report = _line(asdict(self._first_to_end()))",
        "self._unsent.append(_line(asdict(self._first_to_end())))",
        tests=(
            "tests/unit/running/test_guardian_link.py::test_a_guardian_that_does_not_read_never_blocks_the_worker_and_hears_the_newest_when_it_does",
        ),
    ),
    Control(
        "of several terms the guardian hears of the one that ends last",
        "leaderq/running/guardian_link.py",
        "return min((held.report()",
        "return max((held.report()",
        tests=(
            "tests/unit/running/test_guardian_link.py::test_of_several_terms_the_one_is_reported_whose_code_must_be_gone_first",
        ),
    ),
    Control(
        "a hand-over needs a lease",
        "leaderq/running/stages.py",
        "if stage is not Stage.HANDOVER and not self._term.wait(0):",
        "if not self._term.wait(0):",
        tests=(
            "tests/unit/running/test_stages.py::test_a_term_that_is_over_before_it_is_served_is_only_handed_over",
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
            "tests/unit/running/test_abandonment.py::test_an_abandonment_between_the_end_of_a_unit_and_its_leaving_does_not_strike_what_follows",
        ),
    ),
    Control(
        "a unit begins after its term was abandoned",
        "leaderq/running/stages.py",
        "if self._abandoned:\n                return",
        "if False:\n                return",
        tests=(
            "tests/unit/running/test_abandonment.py::test_no_unit_begins_after_the_abandonment",
        ),
    ),
    Control(
        "who forks and ends again and again escapes",
        "leaderq/running/descendants.py",
        "if (group := os.getpgid(pid)) not in spared:",
        "if (group := 0) not in spared:",
        tests=(
            "tests/unit/running/test_descendants.py::test_a_chain_of_processes_that_fork_and_end_is_ended",
        ),
    ),
    Control(
        "a process whose first thread has ended escapes",
        "leaderq/running/descendants.py",
        " and int(fields[17]) <= 1",
        "",
        tests=(
            "tests/unit/running/test_descendants.py::test_a_process_whose_first_thread_has_ended_is_not_dead",
        ),
    ),
    Control(
        "a number is taken for the process that bore it once",
        "leaderq/running/descendants.py",
        "            if _living(one.pid) == one:\n",
        "            if _living(one.pid):\n",
        tests=(
            "tests/unit/running/test_descendants.py::test_a_number_that_another_process_bears_by_now_is_left_alone",
        ),
    ),
    Control(
        "appended records are not forced out",
        "leaderq/producing/journal/store.py",
        "            self._disk.sync(self._fd)\n",
        "            pass\n",
        tests=(
            "tests/unit/producing/journal/test_power_cut.py::test_a_power_cut_costs_nothing_that_was_promised",
        ),
    ),
    Control(
        "the real disk forces no data out",
        "leaderq/producing/journal/disk.py",
        '        getattr(os, "fdatasync", os.fsync)(fd)',
        "        pass",
        tests=(
            "tests/unit/producing/journal/test_power_cut.py::test_the_system_is_asked_to_force_out_each_record_and_each_name",
        ),
    ),
    Control(
        "the real disk forces no names out",
        "leaderq/producing/journal/disk.py",
        "            os.fsync(fd)\n",
        "            pass\n",
        tests=(
            "tests/unit/producing/journal/test_power_cut.py::test_the_system_is_asked_to_force_out_each_record_and_each_name",
        ),
    ),
    Control(
        "an interval forces nothing out",
        "leaderq/producing/journal/journal.py",
        "        self._store.sync()\n        if self._acks",
        "        if self._acks",
        tests=(
            "tests/unit/producing/journal/test_power_cut.py::test_what_an_interval_has_forced_out_outlasts_a_cut",
        ),
    ),
    Control(
        "the policy forces nothing out",
        "leaderq/producing/journal/store.py",
        "        try:\n            self._sync()\n        except OSError:\n            self._writer.cut(begin)\n",  # noqa: E501
        "        try:\n            pass\n        except OSError:\n            self._writer.cut(begin)\n",  # noqa: E501
        tests=(
            "tests/unit/producing/journal/test_power_cut.py::test_a_power_cut_costs_nothing_that_was_promised",
        ),
    ),
    Control(
        "a flush forces nothing out",
        "leaderq/producing/journal/store.py",
        "        self.sync()\n        failure,",
        "        failure,",
        tests=(
            "tests/unit/producing/journal/test_power_cut.py::test_a_power_cut_costs_nothing_that_was_promised",
        ),
    ),
    Control(
        "the name of a new segment is not forced out",
        "leaderq/producing/journal/store.py",
        "            self._disk.sync_directory(self._directory)\n",
        "",
        tests=(
            "tests/unit/producing/journal/test_power_cut.py::test_a_power_cut_costs_nothing_that_was_promised",
        ),
    ),
    Control(
        "the cursor is not forced out",
        "leaderq/producing/journal/cursor.py",
        "        write_all(self._disk, fd, cursor.encode(), 0)\n        self._disk.sync(fd)\n",
        "        write_all(self._disk, fd, cursor.encode(), 0)\n",
        tests=(
            "tests/unit/producing/journal/test_power_cut.py::test_a_power_cut_costs_nothing_that_was_promised",
        ),
    ),
    Control(
        "what a killed process had only written stays so",
        "leaderq/producing/journal/recovery.py",
        "        self._force_out()\n",
        "",
        tests=(
            "tests/unit/producing/journal/test_power_cut.py::test_all_that_a_flush_or_an_opening_leaves_behind_is_forced_out",
        ),
    ),
    Control(
        "ids that may have been told are not promised",
        "leaderq/producing/journal/store.py",
        "        self._promise_ids(count)\n",
        "",
        tests=(
            "tests/unit/producing/journal/test_power_cut.py::test_a_power_cut_costs_nothing_that_was_promised",
        ),
    ),
    Control(
        "what the disk did not force out counts as safely in the journal",
        "leaderq/producing/spill.py",
        "                self.unforced = exc\n",
        "                pass\n",
        tests=(
            "tests/unit/producing/test_closing_truthfully.py::test_what_the_disk_did_not_force_out_is_not_safely_in_the_journal",
        ),
    ),
    Control(
        "a coroutine that the process step returned is sent",
        "leaderq/producing/sending.py",
        '            require_finished(one.output, "process")\n',
        "",
        tests=(
            "tests/unit/producing/test_plain_functions.py::test_a_process_step_that_returns_a_coroutine_sends_nothing",
        ),
    ),
    Control(
        "a stuck key holds up all others",
        "leaderq/producing/sending.py",
        "        if self._options.key is None:\n",
        "        if True:\n",
        tests=(
            "tests/unit/producing/test_stuck_keys.py::test_the_healthy_keys_go_on_and_the_stuck_one_keeps_its_order",
        ),
    ),
    Control(
        "what the sink keeps expires",
        "leaderq/producing/sending.py",
        " and one not in self._kept",
        "",
        tests=(
            "tests/unit/producing/test_stuck_keys.py::test_what_the_sink_keeps_neither_expires_nor_counts_an_attempt",
        ),
    ),
    Control(
        "what the sink keeps counts attempts",
        "leaderq/producing/sending.py",
        "        if isinstance(outcome.error, SinkBusy):\n",
        "        if False:\n",
        tests=(
            "tests/unit/producing/test_stuck_keys.py::test_what_the_sink_keeps_neither_expires_nor_counts_an_attempt",
        ),
    ),
    Control(
        "a healthy request overtakes one of its key that is held back",
        "leaderq/producing/sending.py",
        "            if one.key in self._held:\n",
        "            if False:\n",
        tests=(
            "tests/unit/producing/test_stuck_keys.py::test_the_healthy_keys_go_on_and_the_stuck_one_keeps_its_order",
        ),
    ),
    Control(
        "a record that waits for its retry is committed past",
        "leaderq/kafka/handling/batch_handler.py",
        "for where, end in ends if where not in self._abandoned}",
        "for where, end in ends}",
        tests=(
            "tests/unit/kafka/test_resting.py::test_the_others_go_on_and_the_culprit_is_tried_when_it_is_handed_out_again",
        ),
    ),
    Control(
        "records are handled that stand behind one that waits for its retry",
        "leaderq/kafka/handling/batch_handler.py",
        "(left := each.without(where)) is not None)\n",
        "(left := each) is not None)\n",
        tests=(
            "tests/unit/kafka/test_resting.py::test_the_others_go_on_and_the_culprit_is_tried_when_it_is_handed_out_again",
        ),
    ),
    Control(
        "a record is tried for ever, a rest between two attempts",
        "leaderq/kafka/handling/batch_handler.py",
        "            self._resting.put(where, part)\n",
        "",
        tests=("tests/unit/kafka/test_resting.py::test_attempts_are_counted_over_all_batches",),
    ),
    Control(
        "loading offsets from a database refuses no older term",
        "leaderq/kafka/stores/database_offsets.py",
        "(cursor, term, _TERM_ROW, 0)\n            self._execute(cursor, ALL",
        "\n            self._execute(cursor, ALL",
        tests=(
            "tests/unit/kafka/test_database_offsets.py::test_a_zombie_is_refused_whole_once_its_successor_has_loaded",
        ),
    ),
    Control(
        "a transaction in a database is begun without a look at the newest term",
        "leaderq/kafka/stores/database_offsets.py",
        "            self._put(cursor, term, _TERM_ROW, 0)\n            firsts",
        "            firsts",
        tests=(
            "tests/unit/kafka/test_database_offsets.py::test_a_zombie_is_refused_whole_once_its_successor_has_loaded",
        ),
    ),
    Control(
        "a batch whose COMMIT was not answered is stored twice",
        "leaderq/kafka/stores/database_offsets.py",
        "int(row[0]) > first:",
        "int(row[0]) > first + 10**9:",
        tests=(
            "tests/unit/kafka/test_database_offsets.py::test_a_batch_stored_by_a_try_whose_answer_was_lost_is_not_stored_again",
        ),
    ),
    Control(
        "a gate that is shut lets a leader join",
        "leaderq/kafka/consuming/term_consumer.py",
        "        if self.is_shut:\n            raise",
        "        if False:\n            raise",
        tests=(
            "tests/unit/kafka/test_join_gate.py::test_a_gate_that_is_shut_refuses_although_the_lease_lasts",
        ),
    ),
    Control(
        "the gate lets a leader join whose term is over",
        "leaderq/kafka/consuming/term_consumer.py",
        "        self.term.check()\n\n\nclass NotLetIn",
        "\n\nclass NotLetIn",
        tests=("tests/unit/kafka/test_join_gate.py::test_the_gate_refuses_when_the_term_is_over",),
    ),
    Control(
        "a head does not run again for a debt",
        "leaderq/coalescing/key_table.py",
        "        if may_repeat and was_current and",
        "        if False and",
        tests=(
            "tests/unit/coalescing/test_coordinator_coverage.py::test_whoever_runs_by_its_function_runs_again_and_returns_its_first_result[run]",
        ),
    ),
    Control(
        "a forked child waits for what ran in its parent",
        "leaderq/coalescing/coordinator.py",
        "        _all.add(self)\n",
        "",
        tests=(
            "tests/unit/coalescing/test_coordinator_rude.py::test_a_forked_child_has_no_keys_whatever_its_parent_was_doing",
        ),
    ),
    Control(
        "who awaits a handler that raises StopIteration waits for ever",
        "leaderq/singular/request.py",
        "        if isinstance(error, StopIteration):",
        "        if False:",
        tests=(
            "tests/unit/singular/test_singular_rude.py::test_whatever_a_handler_raises_reaches_its_caller_and_the_queue_goes_on[StopIteration]",
        ),
    ),
    Control(
        "a listener that exits takes the leader along",
        "leaderq/events.py",
        "                except BaseException:",
        "                except Exception:",
        tests=(
            "tests/unit/test_events.py::test_what_a_listener_raises_reaches_neither_the_publisher_nor_the_other_listeners",
        ),
    ),
    Control(
        "a call that raises what nobody expects keeps the key",
        "leaderq/coalescing/key_table.py",
        "            self.leave(token)\n        except BaseException:\n            self.drop(token)\n",  # noqa: E501
        "            self.leave(token)\n        except BaseException:\n",
        tests=(
            "tests/unit/coalescing/test_coordinator_rude.py::test_a_call_that_raises_anything_gives_the_key_back_and_the_one_who_called_hears_of_it[Rude]",
        ),
    ),
)

CONTROLS = REVIEWED + CARRIED
