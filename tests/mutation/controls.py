"""Named edits, each of which a test must notice.

Those that a reviewer made by hand, of lines on which a promise rests (of 49 those that neither the
tool makes nor a control of lives or scenarios, docs/design/mutants.md), and some of a former list,
of lines that the tool does not reach: threads, processes, files and sockets.

A line that begins with == names the files one of whose tests must fail. Then come controls: what
goes wrong, and what a docstring says instead; the file, if it is not that of the control before;
the lines as they are, and as they would be.
"""

from __future__ import annotations

from typing import NamedTuple

from simulation.edits import Edit, controls_of

_TABLE = r"""
== unit/running/test_stages.py
a command that was fenced lives on for T/4
= running/command.py
-        if reason is not None and reason.deposes and reason is not Reason.LEASE:
-            return 0.0
a unit begins while the term is paused
= running/stages.py
-            if self._term.paused:
+            if False:
a unit begins after its term was abandoned
-if self._abandoned:
-                return
+if False:
+                return

== unit/election/test_tenure_signals.py
a lease is never late: proofs that do not come pause the work
= election/tenure.py
-return Input.LATE if at_s >= self._proof.late_s else None
+return None

== simulation/test_election_bugs_14_to_28.py
an unclean end is never told: unclean says that the term before ended without a hand-over
= election/enlistment.py
-self._unclean = is_lost or (self._newest.id is not None and self._newest.ended is None)
+self._unclean = False

== unit/kafka/test_commits.py
records are handed out beside a batch that was abandoned: they are one batch with those in hand
= kafka/consuming/term_consumer.py
-        if self.positions.is_lost:
+        if False:
the ends of an abandoned batch are committed: raises BatchLost if the batch was dropped
-in_hand=bool(positions.parts) and not positions.is_lost
+in_hand=bool(positions.parts)

== unit/kafka/test_offset_stores.py
any write of the term counts as this one
= kafka/stores/zookeeper_offsets.py
-kept.write == mark
+kept.term == term.number
operations added during a commit are dropped
-wanted.effects.clear()
+self._effects.clear()

== unit/kafka/test_transaction_states.py
a late transaction is not given up: a transaction that is open for too long is given up
= kafka/stores/transaction_offsets.py
-        if is_late or isinstance(exc, KafkaFenced):
-            self._discard()
-        if is_late:
+        if isinstance(exc, KafkaFenced):
+            self._discard()
+        if False:
a transaction of a discarded producer is not in doubt
-(TransactionState.ASKED, TransactionEvent.PRODUCER_GONE): TransactionState.IN_DOUBT
+(TransactionState.ASKED, TransactionEvent.PRODUCER_GONE): TransactionState.UNSENT
a doubt is forgotten without a fence: only fencing settles a transaction one way or the other
-            uncommitted.step(TransactionEvent.NOT_STORED)
+            uncommitted.step(TransactionEvent.NOT_STORED)
+        elif uncommitted is not None:
+            uncommitted.state = TransactionState.UNSENT
a transaction that is committed is committed again
-        if transaction.state is TransactionState.COMMITTED:
-            return  # asked for again, because nobody had waited for the answer
+        if transaction.state is TransactionState.COMMITTED:
+            transaction.state = TransactionState.UNSENT

== unit/kafka/test_positions.py
a batch whose fate is unknown counts as committed
= kafka/consuming/term_consumer.py
-if wanted.items() <= stored.items():
+if True:
an added partition begins at the latest record: an added partition begins at its first record
= kafka/consuming/positions.py
-    topics = {partition.topic for partition in known}
+    topics: set[str] = set()
a position past the end is not gone: positions that are gone are reset
-is_there = first[where] <= position <= max(last[where], first[where])
+is_there = first[where] <= position
positions are reset in the middle of a batch: found again, once the batch in hand is committed
= kafka/consuming/term_consumer.py
-        if self.positions.parts or self.commits.wanted is not None:
-            return False
+        if False:
+            return False

== unit/kafka/test_dead_letters.py
letters past the end are read: the records to ends, when reading began
= kafka/topics.py
-if row.offset < ends[where])
+if row.offset <= ends[where])

== simulation/test_dyno_promises.py
m2 a failure without an error forgets the former one: error: of the last failure
= dyno/delivery.py
-error=text or former.error
+error=text or ''
m3 a letter that is sent back has priority 0: it keeps its priority
= dyno/dead_letters.py
-int(letter.name[:2])
+0
m4 the first delivery is the last one: first_ms: of the first delivery
= dyno/message.py
-first_ms or now_ms
+now_ms
m7 a lease is extended while its message is settled: not extended while its message is being
= dyno/delivery.py
-mine = [one for one in wanted if one not in self._busy]
+mine = list(wanted)
m5 everybody's own shard is the first: consumers are spread over the shards
= dyno/consumer.py
-at = rank % len(views)
+at = 0
m6 nobody steps aside: who meets another consumer steps aside
-conflicts if conflicts > 1 else 0
+0

== simulation/test_idle_consumers.py
i1 every idle consumer lists for every item: an idle consumer asks once about what another takes
= queues/consuming/listing.py
-        if is_second:
+        if False:
i2 a loss counts again at the next look: who is beaten by a slow consumer now and then
= queues/consuming/items.py
-            found.gone.append(culprit)
+            found.gone.append(culprit)
+            found.again.append(culprit)

== simulation/test_dyno_promises.py
m26 any match is popped, not the best: the best message that is due
= dyno/consumer.py
-in heapq.merge(*(view.upcoming() for view in views))
+in (one for view in views for one in view.upcoming())

== unit/config/test_resolution.py
a broken relation shows the secret: a secret is never shown
= config/loading.py
-BY_NAME[name].shown(values[name])
+values[name]

== unit/producing/journal/test_journal_corruption.py
ids of set-aside files are given again: no id is given twice
= producing/journal/recovery.py
-bounds.append(max([self._next_id, *bad]) + LEAP)
+bounds.append(self._next_id + LEAP)
a segment of a later version is taken in: a roll back loses nothing
-if header is not None and header.version > VERSION:
+if header is None:

== unit/producing/test_spilling.py
what cannot be decoded is acknowledged: what cannot be decoded stays in the journal
= producing/sequence.py
-        self._undecodable.update(piece.undecodable)
+        self._undecodable.update(piece.undecodable)
+        self.spill.ack(piece.undecodable)
memory is spilled though the sink takes some: a sink that has just taken some
= producing/buffer.py
-if is_direct and share >= 1 and not may_spill:
+if False:
of every n items one more may be lost: a killed process loses fewer than n
= producing/spill.py
-one.journal_id + 2 - self.every
+one.journal_id + 1 - self.every

== unit/producing/test_buffer_laws.py
a run takes more while the sink has it: one object, until something is known of one of them
= producing/sequence.py
-        self._run = None
-        taken, seq
+        taken, seq
a run counts as one request when it is confirmed: the account is exact
-                items += 1 if one.run is None else len(one.run)
+                items += 1
a run that is taken apart loses its place: order is kept
-            self.unsettled = here  # done
+            self.unsettled.update(here)  # done
what the sender had in hand when it was struck is never sent
= producing/buffer.py
-        self.taken = self._first - 1

== unit/producing/test_buffered_producer.py
stuck keys may hold all of the memory: healthy keys go on
= producing/sending.py
-if sum(map(len, self._held.values())) >= self._options.max_items // 2:
+if sum(map(len, self._held.values())) >= self._options.max_items:
a batch goes ahead of what is left of the last
-elif one is fresh and is_whole and not is_again and self._goes_ahead(one):
+elif one is fresh and not is_again and self._goes_ahead(one):
a batch goes ahead of what was lost behind a refusal: heard of before another is given
-            return _Left(left, is_whole=not left and not refused)
+            return _Left(left, is_whole=not left)
a batch is confirmed behind one of which nothing is known
-            if is_blind:
+            if False:
what the sink keeps expires
- and one not in self._kept

== unit/producing/test_account.py
a loss at close counts as chosen: is_as_chosen: dropped by a policy of the caller's
= producing/account.py
-(LossReason.NEWEST, LossReason.OLDEST, LossReason.EXPIRED)
+(LossReason.NEWEST, LossReason.OLDEST, LossReason.EXPIRED, LossReason.CLOSED)

== unit/producing/test_buffered_producer.py unit/producing/test_spilling.py
what is tried again is sent although it has expired: a request that has expired is not sent
= producing/sending.py
-expired = {one for one in mortal if one.is_expired(now) and one not in self._kept}
+expired: set[BufferedRequest] = set()

== unit/producing/test_kafka_sink_alone.py
what a replaced client had is kept, and waited for: neither waited for nor kept
= kafka/sink.py
-        if not is_current:
+        if False:

== unit/producing/test_sinks.py
a queue sink skips a record: confirmed means stored
= producing/sinks.py
-part = batch[:MAX_ITEMS]
+part = batch[1 : MAX_ITEMS + 1]

== unit/producing/journal/test_journal_disk_faults.py
what a disk refused is written an hour later
= producing/journal/line.py
-self._again_at = clock.awake_s() + AGAIN_S
+self._again_at = clock.awake_s() + 3600

== unit/running/test_guardian_link.py
a deposed worker has its hand-over budget
= running/guardian_link.py
-        elif reason is not None and reason.deposes:
+        elif False:
a term is reported after its code has returned
-[held for held in self._held if held.term is not term]
+[*self._held]
all reports wait for a guardian that does not read
-self._newest_report = {"term": None} if report is None else report._asdict()
+self._unsent.append({"term": None} if report is None else report._asdict())
who forks and ends again and again escapes
= running/descendants.py
-if (group := os.getpgid(pid)) not in spared:
+if (group := 0) not in spared:
a number is taken for the process that bore it once
-            if _living(one.pid) == one:
+            if _living(one.pid):

== unit/producing/journal/test_power_cut.py
appended records are not forced out
= producing/journal/line.py
-            self._disk.sync(self._fd)
+            pass
the name of a new segment is not forced out
-            self._disk.sync_directory(self.index.directory)
ids that may have been told are not promised
-        self._promise_ids(count)
the real disk forces no data out
= producing/journal/disk.py
-        getattr(os, "fdatasync", os.fsync)(fd)
+        pass

== unit/producing/test_closing.py
what the disk did not force out counts as safely in the journal
= producing/spill.py
-            self.unforced = exc
+            pass

== unit/kafka/test_batch_handler.py
the end of the batch is committed though some of it is refused
= kafka/handling/batch_handler.py
-covers = is_last and len(pieces) == hand.uncommitted
+covers = is_last

== unit/kafka/test_hold_ups.py
an outage counts as an attempt of its record
= kafka/handling/chains.py
-counts = int(not failure.is_outage)
+counts = 1
records are handled that stand behind one that waits for its retry
-rest = piece.without(partition)
+rest = piece.without(partition) if piece.attempts else piece

== unit/coalescing/test_coordinator_callers.py
a head does not run again for a debt
= coalescing/key_table.py
-            if has_run and state.debt is not None:
+            if False:
"""


class Control(NamedTuple):
    """``title``: what goes wrong. ``tests``: files; one of their tests must fail."""

    tests: list[str]
    title: str
    edits: list[Edit]


CONTROLS = [
    Control([f"tests/{one}" for one in tests.split()], *control)
    for tests, *control in controls_of(_TABLE)
]
