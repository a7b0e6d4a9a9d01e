"""The consuming half of a Dyno queue: choosing, claiming, settling, and looking after leases.

The servers are authoritative about whose each message is. Everything is written through one
idempotent writer, whose guard is this consumer's ephemeral member. Threads: the users', the
session's, which tells of changes, and the *minder*, which extends the leases that are kept, and
looks once a second for leases that are over. On each failure:

* **reply lost, connection lost**: the writer finds out; ``pop`` waits for the connection as long as
  the caller lets it, settling half a minute; what was popped before is returned;
* **session over**: leased messages may pass to others at once, and then settling them raises
  ``StaleLease``; the consumer enters again with a new member when it is next used;
* **a message that cannot be read**: it goes to the dead letters;
* **a claim fails**: somebody else was quicker; the consumer chooses again;
* **a znode was deleted by hand**: see ``docs/design/dyno.md``.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from leaderq.base import clock
from leaderq.base.arguments import MAX_S
from leaderq.base.timeouts import Deadline
from leaderq.dyno import transitions
from leaderq.dyno.delivery import Delivery, Hand, Receipt, StaleLease
from leaderq.dyno.ids import Ids
from leaderq.dyno.index import Choice
from leaderq.dyno.message import DeliveryState, Frame, Unique
from leaderq.dyno.nodes import (
    TOGETHER,
    QueueNodes,
    apply_all,
    depths,
    shard_figures,
    within,
)
from leaderq.dyno.shard_view import ShardView, read_claims
from leaderq.dyno.transitions import DeadMessage
from leaderq.engine.members import OTHERS_S, Members, Membership
from leaderq.errors import (
    ConnectionLost,
    CorruptItem,
    LeaderqError,
    NoNode,
    QueueClosed,
    SessionClosed,
    SessionExpired,
    TooLarge,
    ZooKeeperError,
)
from leaderq.threads import Service, primitives
from leaderq.zookeeper import Delete, SessionState
from leaderq.zookeeper.paths import name_of
from leaderq.zookeeper.writing import SequencedWriter
from leaderq.zookeeper.writing.groups import Operations, batched

log = logging.getLogger(__name__)

SWEEP_S = 30.0
"""How often the first of the members forgets ids whose windows are over."""
UNREACHABLE_S = 0.1
"""How long a ``pop`` waits until it asks again while the servers are unreachable."""
SKEW_MS = 1000
"""By how much the calendar may differ from the servers' without a warning."""
EVER_MS = 1 << 62
LOOK_S, LEAST_S = 1.0, 0.5
"""How often the minder looks at least and at most; a wait relies on watches alone so long."""


class _Wanted(NamedTuple):
    """What is to be claimed: as it was chosen, as it will be delivered, and what is written."""

    choice: Choice
    one: Delivery
    operations: Operations


class _Claiming:
    """One attempt to claim messages of a shard. ``is_delivery``: it counts as one, and the next
    messages are likely to be claimed soon.
    """

    def __init__(
        self, hand: Hand, member: Membership, view: ShardView, lease_s: float, is_delivery: bool
    ) -> None:
        self._hand, self._nodes, self._view = hand, hand.nodes, view
        self._mark, self._writer = member.mark, member.writer
        self._lease_s, self._is_delivery = lease_s, is_delivery

    def claim(self, choices: Sequence[Choice], *, is_careful: bool) -> list[Delivery]:
        """Claim these, as many as nobody else has. ``is_careful``, after a conflict: look first who
        has one.
        """
        view, names = self._view, [choice.name for choice in choices]
        try:
            data = view.read(names)
            view.release(names[len(data) :])
            if self._is_delivery and not is_careful:
                view.read_ahead(len(data))  # before the claims, or it would wait behind them
            asked = [one.name for one in choices if is_careful or one.version is not None]
            claims = read_claims(self._nodes.session, view.paths, asked)
            wanted: list[_Wanted] = []
            now_ms, now_s = self._nodes.now_ms(), clock.now_s()
            for choice, answer in zip(choices, data, strict=False):
                seen, former = claims.get(choice.name, (choice, DeliveryState()))
                if isinstance(answer, LeaderqError):
                    view.overtaken(choice.name, answer)
                elif choice.version != seen.version:
                    view.not_claimed(choice.name)
                else:
                    wanted += self._prepared(choice, answer[0], former, now_ms, now_s)
            found = self._taken(wanted)
        except BaseException:
            view.release(names)
            raise
        self._hand.held.update(dict.fromkeys(found))
        return found

    def _prepared(
        self, choice: Choice, data: bytes, former: DeliveryState, now_ms: int, now_s: float
    ) -> list[_Wanted]:
        """Return what is to be claimed; nothing if the message is dead."""
        reason, frame = "", Frame(b"")
        # A consumer that takes a lease over says that the former one died with it, or hung.
        state = former
        if choice.is_held:
            state = state._replace(failures=former.failures + 1)
            if self._nodes.retry.is_exhausted(state.failures):
                reason = "consumer died"
        try:
            frame = Frame.read(data)
        except CorruptItem as exc:
            state, reason = state._replace(error=str(exc)), "corrupt"
        if 0 < frame.expires_ms <= now_ms:
            reason = "expired"
        if reason:
            shard, name = self._view.paths.shard, choice.name
            letter = DeadMessage.of(shard, name, data, state, reason, now_ms)
            over = transitions.end(self._nodes.paths, shard, choice, frame, state, letter=letter)
            self._bury(letter, over)
            return []
        state = state.leased(self._mark, now_ms, self._lease_s, is_delivery=self._is_delivery)
        operations = transitions.delivery(self._view.paths, choice, state)
        if frame.unique is Unique.STARTED and state.has_started:
            over = transitions.id_over(self._nodes.paths, frame, has_started=former.has_started)
            operations = (*operations, *over)
        version = 0 if choice.version is None else choice.version + 1
        receipt = Receipt(self._view.paths.shard, choice.name, version)
        one = Delivery(self._hand, frame, state, receipt, self._lease_s, now_s + self._lease_s)
        one.is_handed_out = not self._is_delivery  # else it is counted too early
        return [_Wanted(choice, one, operations)]

    def _taken(self, wanted: Sequence[_Wanted]) -> list[Delivery]:
        """Claim these messages, and return the deliveries that were claimed. Many are claimed all
        or none, because a late consumer would be refused message by message otherwise. After a
        refusal those that were not in the way are free again.
        """
        view, found = self._view, list[Delivery]()
        chunks = list(batched(wanted, TOGETHER))
        groups = [tuple(op for each in chunk for op in each.operations) for chunk in chunks]
        errors = apply_all(self._writer, groups, self._nodes.paths.root)
        trouble: LeaderqError | None = None
        for chunk, error in zip(chunks, errors, strict=True):
            if error is None:
                found += self._claimed(chunk)
                continue
            if not (
                isinstance(error, ZooKeeperError)
                and view.not_claimed(name_of(error.path or "/"), error)
            ):
                trouble = error
            view.release([each.choice.name for each in chunk])
        if trouble is not None and not found:
            raise trouble
        return found

    def _claimed(self, chunk: Sequence[_Wanted]) -> list[Delivery]:
        self._nodes.figures.add("timeouts", len([1 for each in chunk if each.choice.is_held]))
        with self._view.lock:
            for _, one, _ in chunk:
                since_s = one.until_s - one.lease_s
                self._view.index.claimed(one.name, one.version, since_s, one.lease_s)
        return [one for _, one, _ in chunk]

    def _bury(self, letter: DeadMessage, operations: Operations) -> None:
        """Make a message a dead letter that was found to be dead before its delivery."""
        root, name = self._nodes.paths.root, letter.name
        (error,) = apply_all(self._writer, [operations], root)
        if isinstance(error, TooLarge):  # we would not have pushed it; the others are delivered
            self._view.not_claimed(name)
            said = (
                "message dead, and too large for a letter, it stays queue=%s message=%s reason=%s"
            )
            log.error(said, root, name, letter.reason)
            return
        if error is not None:
            self._view.overtaken(name, error)
            return
        log.error("message dead queue=%s message=%s reason=%s", root, name, letter.reason)
        self._nodes.figures.add("dead_letters")
        with self._view.lock:
            self._view.index.deleted(name)


class DynoConsumer:
    """The shards of a queue as one process knows them, and the messages that it has claimed."""

    def __init__(self, nodes: QueueNodes, ids: Ids) -> None:
        self._nodes, self._ids = nodes, ids
        self._session, self._paths = nodes.session, nodes.paths
        self._figures, self._now_ms = nodes.figures, nodes.now_ms
        self._next_look_s, self._next_sweep_s = 0.0, clock.now_s() + SWEEP_S
        self._changed = primitives.Condition()
        self._changes = 0
        self._is_second = False
        """Whether another consumer was quicker than a ``pop`` that waited."""
        nodes.changed = self._notify
        self._entering = primitives.Lock()
        self._membership: Membership | None = None
        self._members = Members(nodes.session, nodes.paths, nodes.name, self._look_soon)
        self._has_lost_member = True
        self._minder = Service.repeating(f"leaderq-dyno-{nodes.name}", self._mind)
        self.hand = Hand(nodes, self.membership, self._minder.wake)

    def membership(self) -> Membership:
        """Return this consumer's membership; enters the queue if it is not a member. Raises what
        the session raises.
        """
        self._nodes.check_open()
        with self._entering:
            self._nodes.check_open()
            former = self._membership
            if former is not None:
                if self._members.is_standing(former):
                    return former
                said = "session over, leases may pass to others queue=%s member=%s"
                log.warning(said, self._paths.root, former.mark)
                former.writer.close(0.0)
                self._membership = None
                for view in self._nodes.views.values():
                    view.is_stale = True
            self._nodes.open()
            before_ms = self._now_ms()
            self._membership = entered = self._members.enter()
            made_ms = entered.writer.made_ms
            ahead_ms = max(before_ms - made_ms, 0) + min(self._now_ms() - made_ms, 0)
            if abs(ahead_ms) > SKEW_MS:
                said = "calendar differs from the servers', times of delays are off queue=%s s=%.1f"
                log.warning(said, self._paths.root, ahead_ms / 1000)
            self._look_soon()
            self._minder.start()
            return entered

    def close(self, deadline: Deadline) -> bool:
        """Leave the queue and release unsettled messages; returns whether everything was written
        in time.
        """
        self._nodes.is_closed = True  # first: whoever is about to enter gives up
        with self._entering:
            membership = self._membership
        self._minder.stop(deadline.remaining_s)
        self._notify()
        if membership is not None:
            held = [one for one in self.hand.held.copy() if one.left_s > 0]
            self.hand.release(held, membership.writer, is_lost=True)
        for view in self._nodes.views.values():
            view.close()
        self._members.close()
        return membership is None or membership.writer.close(deadline.left_s(MAX_S))

    def pop(
        self, most: int, timeout_s: float | None, least: int, lease_s: float | None
    ) -> list[Delivery]:
        deadline = Deadline(timeout_s)
        out: list[Delivery] = []
        conflicts = 0
        while True:
            seen, before = self._changes, len(out)
            try:
                is_changed = self._pop_now(out, most, conflicts, lease_s)
                out = self._standing(out)
            except LeaderqError as exc:
                if out := self._standing(out):
                    return self._handed_out(out)
                if not self._is_passing(exc) or deadline.is_over:
                    raise
                with self._changed:  # not the due ones: these would be asked for again and again
                    self._changed.wait_for(lambda: self._nodes.is_closed, UNREACHABLE_S)
                continue
            is_found = len(out) > before
            conflicts = conflicts + 1 if is_changed and not is_found else 0
            self._is_second = (self._is_second or is_changed) and not is_found
            # The lease of the first runs while others are waited for.
            is_more = is_changed or is_found
            hold_s = out[0].left_s - out[0].lease_s * 2 / 3 if out else LOOK_S
            if len(out) >= least or hold_s <= 0 or (deadline.is_over and not is_more):
                return self._handed_out(out)
            if not is_more:
                self._wait(seen, deadline.left_s(min(LOOK_S, hold_s)))

    def _handed_out(self, deliveries: list[Delivery]) -> list[Delivery]:
        for one in deliveries:
            one.is_handed_out = True
        if deliveries:
            self._figures.add("taken", len(deliveries))
            again = [one for one in deliveries if one.state.deliveries > 1]
            self._figures.add("redelivered", len(again))
        return deliveries

    def _standing(self, deliveries: list[Delivery]) -> list[Delivery]:
        """Return those of ``deliveries`` that are certainly still leased to this consumer, and
        release the others. A process that was frozen may hold some whose lease is over.
        """
        if not deliveries or (membership := self._membership) is None:
            return deliveries
        if self._nodes.is_closed:
            return []  # they are released
        writer = membership.writer
        mark = membership.mark if writer.surely_stands() else None
        now_s = clock.now_s()  # after that, which may wait for an answer
        open_ones = [one for one in deliveries if not one.is_settled]
        ours = [one for one in open_ones if one.until_s > now_s and one.state.member == mark]
        if len(ours) < len(deliveries):
            self.hand.release([one for one in deliveries if one not in ours], writer)
        return ours

    def _pop_now(
        self, out: list[Delivery], most: int, conflicts: int, lease_s: float | None
    ) -> bool:
        """Claim messages and add them to ``out`` until it has ``most``. All shards are asked in
        turn: otherwise a busy consumer would never serve the shards of consumers that hang. Returns
        whether some of the chosen messages belong to another consumer or are dead; the next choice
        differs then.
        """
        membership, is_changed = self.membership(), False
        if self._nodes.open().is_paused:
            return False
        lease_s = self._nodes.lease_s if lease_s is None else lease_s
        for view in self._in_order(membership):
            view.refresh()
            is_last = False
            while len(out) < most and not is_last:
                now_ms, skip = self._now_ms(), conflicts if conflicts > 1 else 0
                with view.lock:
                    room = min(most - len(out), view.ahead.reader.most)
                    choices = view.index.choose(room, now_ms, skip=skip)
                is_last = len(choices) < room
                if choices:
                    claiming = _Claiming(self.hand, membership, view, lease_s, True)
                    found = claiming.claim(choices, is_careful=conflicts > 0)
                    out += found
                    is_other = len(found) < len(choices)
                    if is_other and not is_last:
                        return True  # there is more in this shard, which goes first
                    is_changed = is_changed or is_other
        return is_changed

    def claim_one(self, shard: str, name: str, lease_s: float | None) -> Delivery | None:
        """Claim and hand out this message if it is due and nobody has it; ``None`` otherwise."""
        if self._nodes.open().is_paused:
            return None
        found = self._claim_these(shard, [name], self._now_ms(), lease_s)
        return next(iter(self._handed_out(found)), None)

    def take_out(self, shard: str, names: Sequence[str]) -> list[Delivery]:
        """Claim those messages of ``names`` that nobody holds, due or not, and return them. This is
        not a delivery: whoever takes them settles each, or puts it back unchanged.
        """
        return self._claim_these(shard, names, EVER_MS, None, is_delivery=False)

    def _claim_these(
        self,
        shard: str,
        names: Sequence[str],
        due_ms: int,
        lease_s: float | None,
        *,
        is_delivery: bool = True,
    ) -> list[Delivery]:
        membership = self.membership()
        self._nodes.open()
        lease_s = self._nodes.lease_s if lease_s is None else lease_s
        if (view := self._nodes.views.get(shard)) is None:
            return []
        view.refresh()
        claiming, found = _Claiming(self.hand, membership, view, lease_s, is_delivery), []
        is_conflict = False
        while True:
            with view.lock:
                chosen = view.index.choose_these(names, due_ms)
                times_ms = {one.name: view.index.due_ms_of(one.name) for one in chosen}
            some = claiming.claim(chosen, is_careful=is_conflict) if chosen else []
            for one in some:
                one.due_ms = times_ms[one.name]
            found += some
            if len(some) == len(chosen):
                return self._standing(found)
            is_conflict = True

    def in_order(self) -> Iterator[tuple[str, str]]:
        """Yield shard and name of the messages that may be delivered now, in the order of
        delivery.
        """
        membership = self.membership()
        self._nodes.open()
        views = self._in_order(membership)
        for view in views:
            view.refresh()
        for *_, shard, name in heapq.merge(*(view.upcoming() for view in views)):
            yield shard, name

    def _in_order(self, membership: Membership) -> list[ShardView]:
        views, members = list(self._nodes.views.values()), self._members.names
        rank = members.index(membership.mark) if membership.mark in members else 0
        at = rank % len(views)
        return views[at:] + views[:at]

    def _wait(self, seen: int, timeout_s: float) -> None:
        now_ms, deadline = self._now_ms(), Deadline(timeout_s)
        for view in [] if self._nodes.settings().is_paused else self._nodes.views.values():
            with view.lock:
                due_ms = view.index.next_due_ms(now_ms)
            if due_ms is not None:
                timeout_s = min(timeout_s, max(0.0, (due_ms - now_ms) / 1000))
        nodes = self._nodes
        with self._changed:
            self._changed.wait_for(lambda: self._changes != seen or nodes.is_closed, timeout_s)
            if self._is_second:
                self._changed.wait_for(lambda: nodes.is_closed, deadline.left_s(OTHERS_S))

    def _notify(self) -> None:
        with self._changed:
            self._changes += 1
            self._changed.notify_all()

    def redeem(self, receipt: Receipt) -> Delivery:
        paths = self._paths.shard(receipt.shard)
        choice, state = read_claims(self._session, paths, [receipt.name])[receipt.name]
        if choice.version != receipt.version or not choice.is_held:
            raise StaleLease(f"receipt {receipt} is not valid any more")
        try:
            frame = Frame.read(self._session.get(paths.message(receipt.name))[0])
        except NoNode as exc:
            raise StaleLease(f"receipt {receipt} is not valid any more") from exc
        one = Delivery(self.hand, frame, state, receipt, self._nodes.lease_s, 0.0)
        one.is_handed_out = True
        one.extend()  # so the servers refuse the former receipt
        return one

    def _look_at_leases(self) -> None:
        """Find the leases that are over, in all shards."""
        self._nodes.open()
        try:
            former = set(self._members.names)
            self._members.refresh()
            if not former.issubset(self._members.names):
                self._has_lost_member = True
            listed = partial(self._session.children, self._paths.members)
            for view in self._nodes.views.values():
                view.look_at_claims(listed, has_lost_member=self._has_lost_member)
        except BaseException:
            self._members.is_stale = True
            raise
        self._has_lost_member = False

    def _mind(self) -> float:
        next_s = LOOK_S
        try:
            next_s = min(LOOK_S, self.hand.extend_due())
            is_time = clock.now_s() >= self._next_look_s  # not each time that a handler begins
            member = self._membership
            if is_time and member is not None and member.session_id == self._session.id:
                self._look_at_leases()
                now_s = clock.now_s()
                looks_s = (view.next_look_s() for view in self._nodes.views.values())
                soonest_s = min(looks_s, default=now_s + LOOK_S)
                self._next_look_s = min(now_s + LOOK_S, max(now_s + LEAST_S, soonest_s))
                next_s = min(next_s, self._next_look_s - now_s)
                is_first = self._members.names[:1] == [member.mark]
                if is_first and clock.now_s() >= self._next_sweep_s:
                    self._next_sweep_s = clock.now_s() + SWEEP_S
                    self._ids.sweep_windows(self._now_ms(), member.writer)
                    self._sweep_shards(member.writer)
            if self._figures.is_asked(clock.now_s()):
                self._figures.note(clock.now_s(), depths(shard_figures(self._nodes)))
        except Exception as exc:  # this thread goes on, or nothing would ever be extended again
            if isinstance(exc, QueueClosed) or self._session.state is SessionState.CLOSED:
                self._minder.stop()
            else:
                level, said = logging.WARNING, "leases not looked at queue=%s error=%s"
                # A queue that was deleted by hand is made again by whoever uses it next.
                is_gone = isinstance(exc, NoNode) and within(exc, self._paths.root)
                if is_passing := is_gone or self._is_passing(exc):
                    level = logging.DEBUG
                log.log(level, said, self._paths.root, exc, exc_info=not is_passing)
        return next_s

    def _sweep_shards(self, writer: SequencedWriter) -> None:
        """Delete empty shards that no messages are pushed to any more."""
        gone = [shard for shard in self._nodes.views if shard not in self._nodes.open().shards]
        paths = [self._paths.shard(shard) for shard in gone]
        groups = [(*map(Delete, one.parents), Delete(one.base)) for one in paths]
        apply_all(writer, groups, self._paths.root)

    def _is_passing(self, error: BaseException) -> bool:
        """Whether this error is an outage, or the change from one session to the next."""
        is_closed = self._session.state is SessionState.CLOSED
        is_change = isinstance(error, SessionClosed) and not is_closed
        return is_change or isinstance(error, ConnectionLost | SessionExpired)

    def _look_soon(self) -> None:
        self._next_look_s = 0.0
        self._minder.wake()
