"""Named edits, each of which a test must notice.

First those that a reviewer made by hand, of lines on which a promise rests: of 49 those that
neither the tool makes nor a control of lives or scenarios (docs/design/mutants.md); then some of a
former list, of lines that the tool does not reach: threads, processes, files and sockets.
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


# A line that begins with = names a file of leaderq/, and its tests. Of each edit: its name and the
# promise, the tests if not all of these files, the lines as they are, and as they would be. What
# begins with two spaces belongs to the name above.
_TABLE = r"""
= running/command.py unit/running/test_stages.py
a command that was fenced lives on for T/4: fenced, znode deleted: SIGKILL at once, because the next
  may lead already
-        if reason is not None and reason.deposes and reason is not Reason.LEASE:
-            return 0.0

= election/tenure.py unit/election/test_tenure_signals.py
a lease is never late: proofs that do not come pause the work
-return Input.LATE if at_s >= self._proof.late_s else None
+return None

= election/enlistment.py simulation/test_election_bugs_14_to_28.py
an unclean end is never told: unclean says that the term before ended without a hand-over
@test_bug_24_a_leaders_znode_goes_with_the_close_of_its_session
-self._unclean = is_lost or (self._newest.id is not None and self._newest.ended is None)
+self._unclean = False

= kafka/consuming/consumer_thread.py unit/kafka/test_commits.py
records are handed out beside a batch that was abandoned: they are one batch with those in hand
@test_beside_a_batch_that_was_abandoned_nothing_is_handed_out_and_nothing_of_it_is_committed
-        if consumer.positions.losses != self._losses:
+        if False:
the ends of an abandoned batch are committed: raises BatchLost if the batch was abandoned
@test_beside_a_batch_that_was_abandoned_nothing_is_handed_out_and_nothing_of_it_is_committed
-is_ours = bool(positions.parts) and positions.losses == self._losses
+is_ours = bool(positions.parts)
who waits for records is forgotten with the commit that it made in between
@test_who_waits_for_records_beside_a_commit_is_answered_once
-return question is self._newest or not question.answer.empty()
+return True

= kafka/stores/zookeeper_offsets.py unit/kafka/test_offset_stores.py
any write of the term counts as this one: a write whose answer was lost is sent again unless it
  happened
-found.write == kept.write
+found.term == kept.term

= kafka/stores/transaction.py unit/kafka/test_transaction_states.py
a late transaction is not given up: a transaction that is open for too long is given up
-        if is_late or isinstance(exc, KafkaFenced):
-            self._discard()
-        if is_late:
+        if isinstance(exc, KafkaFenced):
+            self._discard()
+        if False:

= kafka/consuming/term_consumer.py unit/kafka/test_positions.py
a batch whose fate is unknown counts as committed: nothing is lost: only what the store holds is
  committed
-if wanted.items() <= stored.items():
+if True:

= kafka/stores/transaction.py unit/kafka/test_transaction_states.py
a transaction of a discarded producer is not in doubt: what was produced for a record is seen
  exactly once
-(TransactionState.ASKED, TransactionEvent.PRODUCER_GONE): TransactionState.IN_DOUBT
+(TransactionState.ASKED, TransactionEvent.PRODUCER_GONE): TransactionState.UNSENT

= kafka/stores/transaction_offsets.py unit/kafka/test_transaction_states.py
a doubt is forgotten without a fence: only fencing settles a transaction one way or the other
-            uncommitted.step(TransactionEvent.NOT_STORED)
+            uncommitted.step(TransactionEvent.NOT_STORED)
+        elif uncommitted is not None:
+            uncommitted.state = TransactionState.UNSENT

= kafka/stores/transaction.py unit/kafka/test_transaction_states.py
a transaction that is committed is committed again: what was produced for a record is seen exactly
  once
-        if transaction.state is TransactionState.COMMITTED:
-            return  # asked for again, because nobody had waited for the answer
+        if transaction.state is TransactionState.COMMITTED:
+            transaction.state = TransactionState.UNSENT

= kafka/consuming/positions.py unit/kafka/test_positions.py
an added partition begins at the latest record: an added partition begins at its first record
-    topics = {partition.topic for partition in known}
+    topics: set[str] = set()
a position past the end is not gone: positions that are gone are reset
-is_there = first[where] <= position <= max(last[where], first[where])
+is_there = first[where] <= position

= kafka/consuming/term_consumer.py unit/kafka/test_positions.py
positions are reset in the middle of a batch: found again, once the batch in hand is committed
-        if self.positions.parts or self.commits.wanted is not None:
-            return False
+        if False:
+            return False

= kafka/stores/zookeeper_offsets.py unit/kafka/test_offset_stores.py
operations added during a commit are dropped: offsets and operations of a batch happen together,
  once
-wanted.effects.clear()
+self._effects.clear()

= kafka/topics.py unit/kafka/test_dead_letters.py
letters past the end are read: the records to ends, when reading began
-if row.offset < ends[where])
+if row.offset <= ends[where])

= dyno/delivery.py simulation/test_dyno_promises.py
m2 a failure without an error forgets the former one: error: of the last failure
-error=text or former.error
+error=text or ''

= dyno/dead_letters.py simulation/test_dyno_promises.py
m3 a letter that is sent back has priority 0: it keeps its priority
-int(letter.name[:2])
+0

= dyno/consumer.py simulation/test_dyno_promises.py
m4 the first delivery is the last one: first_ms: of the first delivery
-former.first_ms or now_ms
+now_ms
m5 everybody's own shard is the first: consumers are spread over the shards
-at = rank % len(views)
+at = 0
m6 nobody steps aside: who meets another consumer steps aside
-conflicts if conflicts > 1 else 0
+0

= queues/consuming/items.py unit/queues/test_after_deaths.py
m13 the rest of a failed item is not written for others: tried again after wait_s, by whichever
  consumer
-not_before_ms=until_ms if wait_s > 0 else None
+not_before_ms=None

= queues/consuming/listing.py simulation/test_idle_consumers.py
i1 every idle consumer lists for every item: an idle consumer asks once about what another takes
-wait_s = 0.0 if self._next is None else OTHERS_S
+wait_s = 0.0

= queues/consuming/engine.py simulation/test_idle_consumers.py
i3 every idle consumer claims the most urgent item: an idle consumer asks once about what another
  takes
-bool(is_loss) and not self._is_shared_out
+False

= dyno/consumer.py simulation/test_idle_consumers.py
i2 every waiting pop claims every message: a pop that was beaten lets the others go first
-self._is_second = (self._is_second or is_changed) and not is_found
+self._is_second = False

= dyno/consumer.py simulation/test_dyno_promises.py
m26 any match is popped, not the best: the best message that is due
-in sorted(one for found in known for one in found)
+in (one for found in known for one in found)

= config/loading.py unit/config/test_resolution.py
a broken relation shows the secret: a secret is never shown
-BY_NAME[name].shown(values[name])
+values[name]

= producing/journal/recovery.py unit/producing/journal/test_journal_corruption.py
ids of set-aside files are given again: no id is given twice
-bounds.append(max([self.next_id, *bad]) + LEAP)
+bounds.append(self.next_id + LEAP)
a segment of a later version is taken in: a roll back loses nothing
-if header is not None and header.version > VERSION:
+if header is None:

= producing/sequence.py unit/producing/test_spilling.py
what cannot be decoded is acknowledged: what cannot be decoded stays in the journal
-        self._undecodable.update(piece.undecodable)
+        self._undecodable.update(piece.undecodable)
+        self.spill.ack(piece.undecodable)

= producing/sequence.py unit/producing/test_buffer_laws.py
a run takes more while the sink has it: one object, until something is known of one of them
-        self._run = None
-        ready, taken
+        ready, taken
a request that something is known of joins the run before it
-        self._run = None
-        one.data = None
+        one.data = None
a run counts as one request when it is confirmed: the account is exact
-                items += 1 if one.run is None else len(one.run)
+                items += 1
a run counts as one request in a batch: a batch is bounded by its items
-            count = 1 if one.run is None else len(one.run)
+            count = 1
a run is larger than a batch
-self._run_items = options.batch_items // counts
+self._run_items = _RUN
a run that is taken apart loses its place: order is kept
-            self.unsettled = here  # done
+            self.unsettled.update(here)  # done
what waits is not taken apart with its run
-part for one in self.ready for part in (one.split() if one.parts else (one,))
+part for one in self.ready for part in (one,)
requests of a run that was struck are numbered again: an interrupt comes before or after
-self.pushed = max(self.pushed, one.seq + one.count - 1)
+self.pushed = max(self.pushed, one.seq)
a run that was struck has a size of before
-                one.size, one.parts = sum(map(measured, one.run)), None
+                one.parts = None
what the sender had in hand when it was struck is never sent
-            one.is_in_hand = one.is_in_hand and is_in_hand
what was read twice is in memory twice
-            if (number := one.journal_id or 0) <= self._read_to:
+            if (number := one.journal_id or 0) <= 0:

= producing/buffer.py unit/producing/test_buffer_laws.py
a flush waits for what came after it
-        self._run = None
-        return LineEnd
+        return LineEnd
a run of what a sink has confirmed is not settled with its parts
-part for one in confirmed for part in one.parts or (one,) if
+part for one in confirmed for part in (one,) if

= producing/sending.py unit/producing/test_buffered_producer.py
stuck keys may hold all of the memory: healthy keys go on
-if sum(map(len, self._held.values())) >= self._options.max_items // 2:
+if sum(map(len, self._held.values())) >= self._options.max_items:

= producing/account.py unit/producing/test_account.py
a loss at close counts as chosen: is_as_chosen: dropped by a policy of the caller's
-(LossReason.NEWEST, LossReason.OLDEST, LossReason.EXPIRED)
+(LossReason.NEWEST, LossReason.OLDEST, LossReason.EXPIRED, LossReason.CLOSED)

= producing/buffer.py unit/producing/test_spilling.py
memory is spilled though the sink takes some: a sink that has just taken some
@test_a_sink_that_has_just_taken_some_gets_a_moment_before_memory_is_spilled
-if is_direct and share >= 1 and not may_spill:
+if False:

= producing/sending.py unit/producing/test_buffered_producer.py unit/producing/test_sinks.py unit/producing/test_spilling.py
what is tried again is sent although it has expired: a request that has expired is not sent
-expired = {one for one in mortal if one.is_expired(now) and one not in self._kept}
+expired: set[BufferedRequest] = set()

= kafka/sink.py unit/producing/test_sinks.py
what a replaced client had is kept, and waited for: neither waited for nor kept
-        if not is_current:
+        if False:

= producing/sinks.py unit/producing/test_sinks.py
a queue sink skips a record: confirmed means stored
-part = batch[:MAX_ITEMS]
+part = batch[1 : MAX_ITEMS + 1]

= producing/journal/line.py unit/producing/journal/test_journal_disk_faults.py
what a disk refused is written an hour later: what was refused is written as soon as the disk takes
  it
-self._again_at = clocks.awake_s() + AGAIN_S
+self._again_at = clocks.awake_s() + 3600

= running/guardian_link.py unit/running/test_guardian_link.py
a deposed worker has its hand-over budget
@test_a_deposing_reason_ends_the_lease_now_whatever_the_budget
-        elif reason is not None and reason.deposes:
+        elif False:
each report puts the end of the budget off
@test_a_planned_end_has_its_budget_and_its_lease_goes_on
-            if self._budget_until_s is None:
-                self._budget_until_s
+            if True:
+                self._budget_until_s
a longer time-out lengthens a worker's grace
@test_a_shorter_time_out_makes_a_shorter_grace_and_it_stays
-self._grace_s = min(self._grace_s, self._session.shares.grace_s)
+self._grace_s = self._session.shares.grace_s
a term is reported after its code has returned
@test_nothing_of_a_term_is_reported_after_its_code_has_returned
-[held for held in self._held if held.term is not term]
+[*self._held]
all reports wait for a guardian that does not read
@test_a_guardian_that_does_not_read_never_blocks_the_worker_and_hears_the_newest_when_it_does
-self._newest_report = {"term": None} if report is None else report._asdict()
+self._unsent.append({"term": None} if report is None else report._asdict())
of several terms the guardian hears of the one that ends last
@test_of_several_terms_the_one_is_reported_whose_code_must_be_gone_first
-report = min(
+report = max(

= running/stages.py unit/running/test_stages.py
a hand-over needs a lease
@test_a_term_that_is_over_before_it_is_served_is_only_handed_over
-if stage is not Stage.HANDOVER and not self._term.wait(0):
+if not self._term.wait(0):
a unit begins while the term is paused
@test_no_unit_begins_while_the_term_is_paused
-            if self._term.paused:
+            if False:
an abandonment strikes what follows the unit
@test_an_abandonment_between_the_end_of_a_unit_and_its_leaving_does_not_strike_what_follows
-except UnitAbandoned:
-            # raised between
+except ZeroDivisionError:
+            # raised between
a unit begins after its term was abandoned
@test_no_unit_begins_after_the_abandonment
-if self._abandoned:
-                return
+if False:
+                return

= running/descendants.py unit/running/test_guardian_link.py
who forks and ends again and again escapes
@test_a_group_is_killed_whole_whoever_a_listing_has_missed
-if (group := os.getpgid(pid)) not in spared:
+if (group := 0) not in spared:
a process whose first thread has ended escapes
@test_a_process_whose_first_thread_has_ended_is_not_dead
- and int(fields[17]) <= 1
a number is taken for the process that bore it once
@test_a_number_that_another_process_bears_by_now_is_left_alone
-            if _living(one.pid) == one:
+            if _living(one.pid):

= producing/journal/store.py unit/producing/journal/test_power_cut.py
appended records are not forced out
@test_a_power_cut_costs_nothing_that_was_promised
-            self._disk.sync(self._fd)
+            pass
the policy forces nothing out
@test_a_power_cut_costs_nothing_that_was_promised
-            self._sync()
-        except OSError:
-            self._cut(segment
+            pass
+        except OSError:
+            self._cut(segment
a flush forces nothing out
@test_all_that_a_flush_or_an_opening_leaves_behind_is_forced_out
-        self.sync()
-        failure,
+        failure,
the name of a new segment is not forced out
@test_a_power_cut_costs_nothing_that_was_promised
-            self._disk.sync_directory(self.directory)
ids that may have been told are not promised
@test_a_power_cut_costs_nothing_that_was_promised
-        self._promise_ids(count)

= producing/journal/disk.py unit/producing/journal/test_power_cut.py
the real disk forces no data out
@test_the_system_is_asked_to_force_out_each_record_and_each_name
-        getattr(os, "fdatasync", os.fsync)(fd)
+        pass
the real disk forces no names out
@test_the_system_is_asked_to_force_out_each_record_and_each_name
-            os.fsync(fd)
+            pass

= producing/journal/line.py unit/producing/journal/test_power_cut.py
an interval forces nothing out
@test_what_an_interval_has_forced_out_outlasts_a_cut
-            self._store.sync()

= producing/journal/cursor.py unit/producing/journal/test_power_cut.py
the cursor is not forced out
@test_a_power_cut_costs_nothing_that_was_promised
-                self._disk.sync(fd)

= producing/journal/recovery.py unit/producing/journal/test_power_cut.py
what a killed process had only written stays so
@test_all_that_a_flush_or_an_opening_leaves_behind_is_forced_out
-        self._force_out()

= producing/spill.py unit/producing/test_spilling.py
of every n items one more may be lost: a killed process loses fewer than n
@test_every_n_written_ahead_a_send_waits_while_n_are_on_their_way_to_the_file
-self._most_unwritten + 1
+self._most_unwritten

= producing/spill.py unit/producing/test_closing.py
what the disk did not force out counts as safely in the journal
@test_what_the_disk_did_not_force_out_is_not_safely_in_the_journal
-            self.unforced = exc
+            pass

= producing/sending.py unit/producing/test_buffered_producer.py
a stuck key holds up all others
@test_the_healthy_keys_go_on_and_the_stuck_one_keeps_its_order
-if is_ill and self._options.key is not None:
+if False:
a batch goes ahead of what is left of the last
@test_a_batch_is_handed_over_before_the_last_is_heard_of_and_never_behind_one_that_failed
-elif one is fresh and not left and not is_again and self._goes_ahead(one):
+elif one is fresh and not is_again and self._goes_ahead(one):
a batch is handed over behind one whose hand-over raised
@test_nothing_overtakes_a_batch_whose_hand_over_or_outcome_raised
-partial(_raise, exc))
+partial(_raise, exc), is_ahead=True)
a batch is confirmed behind one of which nothing is known
@test_nothing_overtakes_a_batch_whose_hand_over_or_outcome_raised
-            if is_blind:
+            if False:
what the sink keeps expires
@test_what_the_sink_keeps_neither_expires_nor_counts_an_attempt
- and one not in self._kept
what the sink keeps counts attempts
@test_what_the_sink_keeps_neither_expires_nor_counts_an_attempt
-        if not isinstance(error, SinkBusy):
+        if True:
a healthy request overtakes one of its key that is held back
@test_the_healthy_keys_go_on_and_the_stuck_one_keeps_its_order
-            if one.key in self._held:
+            if False:

= kafka/handling/chains.py unit/kafka/test_batch_handler.py
what precedes a culprit counts as done though its effects vanished with the call
@test_what_is_asked_of_a_career
-before.is_done = failure.touched and not undoes
+before.is_done = failure.touched
a lane is committed past what is not done
@test_what_is_asked_of_a_career
-                if not piece.is_done or piece.failure is not None:
-                    break
+                if not piece.is_done or piece.failure is not None:
+                    continue

= kafka/handling/batch_handler.py unit/kafka/test_batch_handler.py
what failed together is told of records behind the culprit
@test_what_is_asked_of_a_career
-            pieces[0].together()  # the culprit is known
+            pass
the end of the batch is committed though some of it is refused
@test_what_is_asked_of_a_career
-covers = is_last and len(pieces) == hand.uncommitted
+covers = is_last
a batch counts as committed though its last effects are refused
@test_what_is_asked_of_a_career
-                covers = False
-                if len(pieces) > 1:
+                if len(pieces) > 1:

= kafka/handling/chains.py unit/kafka/test_hold_ups.py
an outage counts as an attempt of its record
@test_an_outage_counts_no_attempt
-counts = int(not failure.is_outage)
+counts = 1
a record that waits for its retry is committed past
@test_the_others_go_on_and_the_culprit_is_tried_when_it_is_handed_out_again
-        self.ends.pop(partition, None)
+        pass
records are handled that stand behind one that waits for its retry
@test_the_others_go_on_and_the_culprit_is_tried_when_it_is_handed_out_again
-rest = piece.without(partition)
+rest = piece.without(partition) if piece.attempts else piece
a record is tried for ever, a rest between two attempts
@test_attempts_are_counted_over_all_batches
-for where in batch.records.keys() & rested.keys():
+for where in batch.records.keys() & set():

= kafka/stores/database_offsets.py unit/kafka/test_offset_stores.py
loading offsets from a database refuses no older term
-            self._put(term, _TERM_ROW, 0)
-            found
+            found
a transaction in a database is begun without a look at the newest term
-            self._put(term, _TERM_ROW, 0)
-            firsts
+            firsts
a batch whose COMMIT was not answered is stored twice
@TestDatabaseOffsets::test_a_batch_stored_by_a_try_whose_answer_was_lost_is_not_stored_again
-int(row[0]) > first:
+int(row[0]) > first + 10**9:

= kafka/consuming/term_consumer.py unit/kafka/test_joining.py
a gate that is shut lets a leader join
@test_a_gate_that_is_shut_refuses_although_the_lease_lasts
-        if self.is_shut:
-            raise
+        if False:
+            raise
the gate lets a leader join whose term is over
@test_the_gate_refuses_when_the_term_is_over
-        self.term.check()
-
-
-class NotLetIn
+
+
+class NotLetIn

= coalescing/key_table.py unit/coalescing/test_coordinator_callers.py
a head does not run again for a debt
@test_whoever_runs_by_its_function_runs_again_and_returns_its_first_result[run]
-            if has_run and state.debt is not None:
+            if False:
a call that raises what nobody expects keeps the key
@test_a_call_that_raises_anything_gives_the_key_back_and_the_one_who_called_hears_of_it[Rude]
-            self.leave(token)
-        except BaseException:
-            self.drop(token)
+            self.leave(token)
+        except BaseException:

= coalescing/coordinator.py unit/coalescing/test_coordinator_callers.py
a forked child waits for what ran in its parent
@test_a_forked_child_has_no_keys_whatever_its_parent_was_doing
-        _all.add(self)

= singular/request.py unit/singular/test_singular_applying.py
who awaits a handler that raises StopIteration waits for ever
@test_whatever_a_handler_raises_reaches_its_caller_and_the_queue_goes_on[StopIteration]
-        if isinstance(error, StopIteration):
+        if False:

= threads/listeners.py unit/threads/test_listeners_of_threads.py
a listener that exits takes the leader along
@test_a_listener_that_raises_is_logged_and_the_others_still_hear
-        except BaseException as error:
+        except Exception as error:
"""  # noqa: E501


def _read(table: str) -> tuple[Control, ...]:
    found: list[tuple[list[str], list[str], dict[str, list[str]]]] = []
    where: list[str] = []
    for line in table.strip().splitlines():
        if line.startswith("= "):
            where = line.split()[1:]
        elif line.startswith("  "):
            found[-1][1].append(line.strip())
        elif line and line[0] in "@-+":
            found[-1][2][line[0]].append(line[1:])
        elif line:
            found.append((where, [line], {"@": [], "-": [], "+": []}))
    return tuple(_control(*each) for each in found)


def _control(where: list[str], said: list[str], parts: dict[str, list[str]]) -> Control:
    name, _, promise = " ".join(said).partition(": ")
    file, *tests = (where[0], *(f"tests/{one}" for one in where[1:]))
    ids = tuple(f"{tests[0]}::{one}" for one in parts["@"]) or tuple(tests)
    old, new = ("\n".join(parts[sign]) for sign in "-+")
    return Control(name, f"leaderq/{file}", old, new, ids, promise)


CONTROLS = _read(_TABLE)
