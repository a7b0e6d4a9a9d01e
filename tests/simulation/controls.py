"""Negative controls: the program with a safety line changed, which some life must show.

docs/design/simulation.md says how many lives each takes. A line that begins with == says which
lives, or names a scenario: a situation so narrow that chance would rarely lead to it. Then of each
control its name and the first seed that shows it, as far as is known; the file, if it is not that
of the control before; the lines as they are, and as they would be. Several edits: each line alone
would do.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from leaderq import queues
from leaderq.errors import LeaderqError
from leaderq.testing.nemesis.history import Kind
from leaderq.testing.simulation.chronicle import LifeVerdict
from leaderq.testing.simulation.scheduler import World
from simulation.edits import Edit, controls_of
from simulation.kinds import Lead, lives_of

_TABLE = """
== elections.ElectionLife
a lease lasts for 2T: 1153
= zookeeper/proof.py
-        object.__setattr__(self, "trusted_until_s", self.known_s + self.shares.trusted_s)
+        object.__setattr__(self, "trusted_until_s", self.known_s + 2 * self.shares.timeout_s)
the place in line is given up before the code has returned: 26
= running/runner.py
-                stages.abandon()
-
-    def _time_hand_over(
+                stages.abandon()
+            self._candidate.step_down(term.reason, term=term)
+            if (tenure := self._candidate._campaign.tenure) is not None:
+                self._session.delete_async(tenure.seat.path)
+
+    def _time_hand_over(
whoever is in front does not matter: 0
= election/layout.py
-    ahead = line[position - 1] if position else None
+    ahead = None
neither the guardian nor the worker itself ends what is overdue: 5
= running/watchdog.py
-        if now_s >= self._kill_s(self.report):
+        if False:
= zookeeper/proof.py
-        return self.timeout_s / 6
+        return 2 * self.timeout_s
a claim does not count the term: 0
= election/enlistment.py
-SetData(self._layout.term, encode(record), self._newest_version)
+SetData(self._layout.term, encode(record))
= election/enlistment.py
-            number=max(self._highest + 1, next_number(self._newest, self._wishes)),
+            number=self._newest.number or 1,
nobody looks again at who is in front: 0
-                watched = self._watch(self.position.ahead)
+                watched = Input.BEHIND
= election/campaign.py
-        self._retry_at_s = clock.now_s() + self._session.timeout_s
+        pass

== elections.ElectionLife kinds=(LOSE_CLAIM, KILL_WORKER), faults=10
a claim whose answer was lost is taken for a win: 15
= election/enlistment.py
-            return self._failed("claiming", exc)
+            seat = Seat(self._session, path, self._owner)
+            proof = Proof(self._owner, self._session.shares, clock.now_s())
+            self.won = WonClaim(record, seat, proof, False, self._wishes)
+            return Input.WON

== elections.ElectionLife kinds=(BLACK_HOLE, RESET), faults=25
a failed proof prolongs the lease: 65
= zookeeper/pulse.py
-            self._fail(future, error)
-            return
-        written
+            wanted = Proof(wanted.session, wanted.shares, clock.now_s())
+        written
= zookeeper/pulse.py
-        if error is not None and not isinstance(error, (NoNode, NoPermission)):
+        if False:

== elections.ElectionLife servers=3, busy=True, faults=6, ticks=6, kinds=(STALL_AND_CUT,)
an acknowledged write is taken for a proof: 295
-            self._open = future
-        shares = self._session.shares
-        known_s = self._session.echoes.newest_s(clock.now_s() - shares.known_s)
-        wanted = Proof(self._session.id, shares, known_s)
-        answer = self._session.sync_async(_ROOT)
-        answer.add_done_callback(partial(self._synced, wanted, future))
+        shares = self._session.shares
+        early_s = clock.now_s() - (shares.trusted_s - shares.timeout_s * 2 / 3)
+        wanted = Proof(self._session.id, shares, early_s)
+        answer = self._session.multi_async(_NO_CHANGE)
+        answer.add_done_callback(partial(self._written, wanted, future))

== elections.ElectionLife has_guardian=False, fenced_only=True, kinds=(FREEZE_WORKER, END_SESSION), faults=12
a leader's write is not fenced: 56
= election/tenure.py
-                return self.seat.write(ops, timeout_s=term.remaining_s() + after_s)
+                return self._session.multi(list(ops), timeout_s=5.0)

== elections.ElectionLife has_guardian=False, polite=True, kinds=(FREEZE_WORKER, FREEZE_BOTH), faults=8
a term does not look at the clock: 14
= term.py
-        if not self._over and clock.now_s() < self._deadline:
-            return
+        if not self._over:
+            return
= term.py
-min(end_s, self._deadline) - clock.now_s()
+end_s - clock.now_s()
= term.py
-        if clock.now_s() >= self._deadline:
+        if False:

== elections.ElectionLife in_coroutines=True, faults=8
what a unit or a term leaves behind lives on: 2
= running/event_loop.py
-        self._waker = waker = TaskWaker()
+        return
calls in threads are not waited for: 0
-        if (scope := _scope.get()) is not None:
-            scope.check_open()
-        call =
+        scope = None
+        call =

== schedules.ScheduleLife
a tick is written down after the work: 0
= schedules/timetable.py
-        results = slot.stored.store(term, encode(record), ops)
+        begins = record.running and slot.record and not slot.record.running
+        results = [] if begins else slot.stored.store(term, encode(record), ops)
a write whose answer was lost is taken for done: 26
= schedules/stored.py
-        found = self.read(term)
-        return found ==
+        return True
+        return found ==
missed ticks are counted from the start of a term: 0
= schedules/timetable.py
-            slot.record, slot.seen_s = decode(data, path=slot.stored.path), clock.now_s()
+            from dataclasses import replace
+            now, found = clock.now_ms(), decode(data, path=slot.stored.path)
+            slot.record = replace(found, last=now, next=slot.definition.when.after(now))
+            slot.seen_s = clock.now_s()
an interrupted tick is recorded as done: 9
-        if not begun.slot.is_running(begun.run):  # recorded by tick.write
+        error = None if begun.tick.term.ending.is_set() else error
+        if not begun.slot.is_running(begun.run):
a tick is recorded as done before the work: 0
-                self._slots.remove(slot)  # the others are asked first now
+                begun.tick.write([])
+                self._slots.remove(slot)

== schedules.ScheduleLife has_guardian=False, kinds=(FREEZE_WORKER, END_SESSION), faults=12
records are neither fenced nor compared: 35
= schedules/stored.py
-                results = term.write([write, *ops])[1:]
+                if expected is not None and not ops:
+                    self._session.multi([SetData(self.path, data)], timeout_s=5.0)
+                    self.version = self._session.get(self.path)[1].version
+                    return []
+                results = term.write([write, *ops])[1:]

== messages.MessageLife
leases are looked at 10 s late: 96
= dyno/index.py
-        end_s, known.look_s = known.since_s + lease_s * SLOWER, now_s + LONGEST_S
+        lease_s += 10
+        end_s, known.look_s = known.since_s + lease_s * SLOWER, now_s + LONGEST_S
an extension by the redeemer keeps the former member: 0
= dyno/delivery.py
-            state = one.state.leased(mark, now_ms, lease_s)
+            state = one.state.leased(one.state.member, now_ms, lease_s)
a message is put off that may be gone: 32
= dyno/transitions.py
-    return *delivery(paths, Choice(name), state), Create(paths.rest(marker))
+    return *delivery(paths, Choice(name), state)[1:], Create(paths.rest(marker))

== messages.MessageLife kinds=(FREEZE_WORKER,), faults=8, lease_s=1.0
pop returns leases that are over: 2
= dyno/consumer.py
-        if not deliveries or (membership := self._membership) is None:
+        if membership := True:
what is delivered may be gone: 0
= dyno/transitions.py
-        return Check(paths.message(choice.name)), Create(claim, state.packed())
+        return (Create(claim, state.packed()),)

== messages.MessageLife off_s=8.0
calendars are compared: 4
= dyno/shard_view.py
-                    lease_s = state.lease_ms / 1000 if
+                    lease_s = (1e9 if state.until_ms > clock.now_ms() else 0.0) if

== coalescing.CoalescingLife
F7: a token's lease lasts for 2T: 406
= zookeeper/proof.py
-        object.__setattr__(self, "trusted_until_s", self.known_s + self.shares.trusted_s)
+        object.__setattr__(self, "trusted_until_s", self.known_s + 2 * self.shares.timeout_s)
a token's write is not fenced: 113
= coalescing/distributed/slots.py
-        if self._ending is not None:
-            raise self._over(self._ending)
-        try:
-            return self._taken.write
+        try:
+            return self._seat.session.multi(list(operations), timeout_s=timeout_s)
+            return self._taken.write
a lost release is not repeated: 0
= coalescing/distributed/request.py
-            self.unanswered.append(release)
+            release.settle(False)
a request whose answer was lost asks as another: 18
-            if slots is None:
+            if slots is None:
+                self._token = self._znodes.new_token()
nobody covers who was declined: 18
= coalescing/distributed/coordinator.py
-        if token not in self._watched:
+        if False:
a dead waiter owes nothing: 31
-        if is_gone:
-            self._owed[key] = None
-            self._watched.pop(token, None)
+        if True:
+            self._watched.pop(token, None)
whoever has slot 0 is the head: 0
= coalescing/distributed/slots.py
-            SlotStanding.HEAD if other is None or other.number > mine.number else SlotStanding.WAITS
+            SlotStanding.WAITS if mine.slot and other and other.number < mine.number
+            else SlotStanding.HEAD
a release says that the token stood: 142
= coalescing/distributed/request.py
-        if error is None:
-            release.settle(True)
+        release.settle(True)
+        if error is None:
+            pass

== coalescing.CoalescingLife kinds=(FREEZE_WORKER, BLACK_HOLE), faults=10
a token does not look at the clock: 11
= zookeeper/pulse.py
-        return is_mine and clock.now_s() < proof.trusted_until_s
+        return session is not None and session == self._session.id

== queues.QueueLife is_locking=True, kinds=(FREEZE_WORKER,), faults=12
a consumer that was frozen does not ask whether its items are its own: 3
= queues/consuming/engine.py
-        if not all(map(self.is_ours, claims)):
-            return False
-        return all(one.writer
+        return True
+        return all(one.writer
a value that is not the last of its znode is acknowledged without a question: 173
= queues/consuming/consumption.py
-        if is_bare and self._queue.engine.may_be_begun([claim]):
+        if is_bare:

== queues.QueueLife is_locking=True
an acknowledgement leaves the lock: 0
= queues/consuming/items.py
-    return Delete(paths.item(claim.name)), Delete(paths.lock(claim.name))
+    return (Delete(paths.item(claim.name)),)
a lock outlives its session: 4
-membership.mark.encode(), ephemeral=True)
+membership.mark.encode())
a claim takes no lock: 0
-        return lock, Check(item, self.version)
+        return Check(item, self.version), Check(item)
a failed item is put again and not removed: 0
-    return ItemSettlement(claim, (*_removal(claim), again), ItemOutcome.REQUEUED)
+    return ItemSettlement(claim, (again,), ItemOutcome.REQUEUED)

== queues.QueueLife is_locking=True, is_taken=False
an item is acknowledged before the work: 0
= queues/consuming/consumption.py
-            ended = self._attempt(claims)
+            self._engine.settle([items.done(one) for one in claims])
+            ended = [one for one in self._attempt(claims) if one.outcome.value != "acknowledged"]

== queues.QueueLife kind=DistributedQueue, kinds=(LOSE_CLAIM, RESET), faults=12
a put whose answer was lost is put again: 1
= queues/recipes.py
-        return self._putter.put([item], _PREFIX, timeout_s)
+        name = self._putter.put([item], _PREFIX, timeout_s)
+        return self._putter.put([item], _PREFIX, timeout_s) if name is True else name

== queues.QueueLife is_locking=True, kind=DistributedQueue, faults=1
m13: others are not told how long what failed rests: 0
= queues/consuming/items.py
-    until_ms = clock.now_ms() + int(min(wait_s, MAX_S) * 1000) if wait_s > 0 else None
+    until_ms = None

== drain.DrainLife store="kafka", faults=8, by_key=True
a key that is done commits the others: 5
= kafka/handling/chains.py
-            for piece in lane:
-                if not piece.is_done or piece.failure is not None:
-                    break
+            in_order = sorted(lane, key=lambda piece: not piece.is_done)
+            lane.clear()
+            lane.extend(in_order)
+            for piece in in_order:
+                if not piece.is_done:
+                    break
keys are not kept in order: 0
-            own = record.offset if is_alone else record.key
+            own = record.offset

== drain.DrainLife store="kafka", faults=8, commit_behind=True
the next batch is committed with the one before it: 0
= kafka/consuming/term_consumer.py
-        return self._handed() if self.joined and is_whole else None
+        following = self._handed() if self.joined and is_whole else None
+        if following is not None:
+            self.commits._ends = {**self.commits._ends, **following.ends}
+        return following

== drain.DrainLife store="transaction", faults=8, by_key=True, in_coroutines=True
effects of records side by side are stored as they come: 0
= kafka/stores/offset_store.py
-        take_effect(lambda: self._effects.extend(added))
+        self._effects.extend(added)

== drain.DrainLife store="kafka", faults=8
offsets are committed one too far: 0
= kafka/stores/kafka_offsets.py
-        return consumer.commit(offsets, f"leaderq term {term.number}")
+        ahead = {where: at + 1 for where, at in offsets.items()}
+        return consumer.commit(ahead, f"leaderq term {term.number}")
nothing is read again after joining again: 0
= kafka/consuming/term_consumer.py
-        consumer.seek(handed, handed.keys() & self.positions.resting.keys())
+        pass

== drain.DrainLife store="transaction", faults=8
a commit that is under way is done: 0
= kafka/consuming/commits.py
-        if self.state is CommitState.UNDER_WAY and self._is_over(_LOOK_S if may_wait else 0.0):
+        if self.state is CommitState.UNDER_WAY:

== drain.DrainLife store="zookeeper", faults=8
a lost answer of ZooKeeper is a failure: 38
= kafka/stores/zookeeper_offsets.py
-            return any(kept.write == mark for kept in found.values())
+            return False
a lost answer of ZooKeeper is a success: 42
-                clock.sleep(_AGAIN_S)  # term.wait returns at once in a term that is to end
+                break

== drain.DrainLife store="external", faults=8
a database does not look at the offset that it has: 1
= kafka/stores/database_offsets.py
-                if stored > first:
+                if False:

== test_election_scenarios.test_bug_03_a_deleted_znode_is_noticed_at_once_after_a_reconnection
the own watch is not set again: 0
= election/tenure.py
-        self._own_watch_set = False  # with the next proof
+        pass

== test_election_scenarios.test_work_stays_paused_when_an_old_proof_comes
an old proof resumes paused work: 0
-        if self._is_doubted and clock.now_s() < proof.late_s:
+        if self._is_doubted:

== test_election_promises.test_once_a_write_was_fenced_every_later_one_is_refused
a deposed term may write again: 0
-        self.term.wind_up(reason)
-        self._say(Input.LOST if reason is Reason.SESSION else Input.FENCED)
-        return Deposed
+        return Deposed

== test_kafka_promises.test_a_leader_that_begins_at_the_end_has_stored_where_that_is
the first position is not waited for: 0
= kafka/consuming/commits.py
-            is_stored = self._store.commit_positions(consumer, self._term, offsets).done(wait_s)
+            is_stored = self._store.commit_positions(consumer, self._term, offsets)

== test_writing.test_a_writer_notices_that_another_one_uses_its_guard
foreign writes on the guard go unnoticed: 0
= zookeeper/writing/groups.py
-        is_foreign = any(batch.number < version and not batch.is_doubtful for batch in batches)
+        is_foreign = False
"""  # noqa: E501


@dataclass(frozen=True)
class NegativeControl:
    """``lead`` leads the life of a seed."""

    name: str
    seed: int
    lead: Lead
    edits: list[Edit]


def _lead_of(what: str) -> Lead:
    name, _, options = what.partition(" ")
    module, _, kind = name.partition(".")
    if kind.startswith("test_"):
        return lambda seed: _scenario(module, kind, seed)
    words = {**Kind.__members__, **vars(queues)}
    return lives_of(module, kind, **eval(f"dict({options})", words))


def _scenario(module: str, test: str, seed: int) -> LifeVerdict:
    problems = []
    try:
        getattr(importlib.import_module(f"simulation.{module}"), test).led(seed)
    except (AssertionError, LeaderqError, pytest.fail.Exception) as error:
        problems.append(str(error).partition("\n")[0])
    return LifeVerdict(None, problems, World(seed))


def _controls() -> Iterator[NegativeControl]:
    for what, said, edits in controls_of(_TABLE):
        name, _, seed = said.rpartition(": ")
        yield NegativeControl(name, int(seed), _lead_of(what), edits)


CONTROLS = tuple(_controls())
