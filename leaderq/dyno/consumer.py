"""The consuming half of a Dyno queue: choosing, claiming, settling, and looking after leases.

The servers are authoritative about whose each message is. Everything is written through one
idempotent writer, whose guard is this consumer's ephemeral member. Threads: the users', the
session's, which tells of changes, and the *minder*, which extends the leases that are kept, and
looks once a second for leases that are over. On each failure:

* **reply lost, connection lost**: the writer finds out; ``pop`` waits for the connection as long as
  the caller lets it, settling half a minute; what was popped before is returned;
* **session over**: leased messages may pass to others at once, and settling them raises
  ``StaleLease``; the consumer enters again with a new member when it is next used;
* **a message that cannot be read**: it goes to the dead letters;
* **a claim fails**: somebody else was quicker; the consumer chooses again;
* **a znode was deleted by hand**: see ``docs/design/dyno.md``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

from leaderq.base import clock
from leaderq.base.arguments import Seconds, in_seconds
from leaderq.base.timeouts import Deadline
from leaderq.dyno import transitions
from leaderq.dyno.delivery import Delivery, Known, LeaseKeeper, Receipt, StaleLease
from leaderq.dyno.ids import Ids
from leaderq.dyno.index import Choice
from leaderq.dyno.layout import parsed_name
from leaderq.dyno.message import DeliveryState, Frame, Unique, frame_of
from leaderq.dyno.nodes import (
    TOGETHER,
    MayMatch,
    QueueNodes,
    apply_all,
    apply_together,
    depths,
    shard_figures,
    within,
)
from leaderq.dyno.shard_view import ClaimRead, ShardView, read_claims
from leaderq.dyno.transitions import DeadMessage
from leaderq.engine.members import Members, Membership
from leaderq.errors import (
    ConfigurationError,
    ConnectionLost,
    CorruptItem,
    LeaderqError,
    NoNode,
    QueueClosed,
    SessionClosed,
    SessionExpired,
    ZooKeeperError,
    with_cause,
)
from leaderq.threads import Service, primitives
from leaderq.zookeeper import Delete, SessionState, SetData
from leaderq.zookeeper.paths import name_of
from leaderq.zookeeper.writing import SequencedWriter
from leaderq.zookeeper.writing.groups import Operations, batched
from leaderq.zookeeper.writing.writer import OVERTAKEN

log = logging.getLogger(__name__)

SWEEP_S = 30.0
"""How often the first of the members forgets ids whose windows are over."""
UNREACHABLE_S = 0.1
"""How long a ``pop`` waits until it asks again while the servers are unreachable."""
SKEW_MS = 1000
"""By how much the calendar may differ from the servers' without a warning."""
NEXT_ONES = 256
"""How many of the next messages of a shard are looked at first, where one is looked for."""
NEVER_DELIVERED = DeliveryState()
Wanted = tuple[Choice, Delivery]
OTHERS_S = 0.02
"""For so long a waiting ``pop`` that was beaten to the last message lets others go first."""
LOOK_S, LEAST_S = 1.0, 0.5
"""How often the minder looks at least and at most; a wait relies on watches alone so long."""


class DynoConsumer:
    """The shards of a queue as one process knows them, and the messages that it has claimed."""

    def __init__(self, nodes: QueueNodes, ids: Ids) -> None:
        self._nodes, self._ids = nodes, ids
        self._session, self._paths = nodes.session, nodes.paths
        self._figures = nodes.figures
        self._now_ms, self.bodies, self.retry = nodes.now_ms, nodes.bodies, nodes.retry
        self.serializer = nodes.serializer
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
        self._held: dict[Delivery, None] = {}
        nodes.held = self._held.__len__
        self._minder = Service.repeating(f"leaderq-dyno-{nodes.name}", self._mind)
        self.keeper = LeaseKeeper(self.extend_all, self._minder.wake)

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

    def close(self, timeout_s: float) -> bool:
        """Leave the queue and release unsettled messages; returns whether everything was written
        within ``timeout_s`` seconds.
        """
        with self._entering:
            self._nodes.is_closed = True
            membership = self._membership
        self._minder.stop(timeout_s)
        self._notify()
        if membership is not None:
            held = [one for one in self._held.copy() if one.left_s > 0]
            self._release(held, membership.writer)
        for view in self._nodes.views.values():
            view.close()
        self._members.close()
        return membership is None or membership.writer.close(timeout_s)

    def _release(self, deliveries: Iterable[Delivery], writer: SequencedWriter) -> None:
        """Put these messages back that were not settled; this does not count as a failure."""
        for one in deliveries:
            if not one.lock.acquire(blocking=False):  # it is being settled
                continue
            try:
                if not one.is_settled:
                    state, delay_s = one.state, 0.0
                    if not one.is_handed_out:  # nobody has seen it: that was no delivery
                        count = state.deliveries - 1
                        first_ms = state.first_ms if count else 0
                        state = state._replace(deliveries=count, first_ms=first_ms)
                        delay_s = max(0, one.due_ms - self._now_ms()) / 1000
                    writer.submit(self._rest(one, delay_s, state))
                    self._settled([one])
            finally:
                one.lock.release()

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
            self._figures.add("redelivered", sum(one.deliveries > 1 for one in deliveries))
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
        # after that, which may wait for an answer
        open_ones = (one for one in deliveries if not one.is_settled)
        ours = [one for one in open_ones if one.left_s > 0 and one.state.member == mark]
        if len(ours) < len(deliveries):
            self._release([one for one in deliveries if one not in ours], writer)
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
        self._nodes.open()
        if self._nodes.settings().is_paused:
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
                    found, is_other = self._claim(
                        membership, view, choices, lease_s, reads_ahead=True
                    )
                    out += found
                    if is_other and not is_last:
                        return True  # there is more in this shard, which goes first
                    is_changed = is_changed or is_other
        return is_changed

    def claim_one(self, shard: str, name: str, lease_s: float | None) -> Delivery | None:
        """Claim and hand out this message if it is due and nobody has it; ``None`` otherwise."""
        if self._nodes.open().is_paused:
            return None
        found = self.claim_these(shard, [name], self._now_ms(), lease_s)
        return next(iter(self._handed_out(found)), None)

    def claim_these(
        self, shard: str, names: Sequence[str], due_ms: int, lease_s: float | None = None
    ) -> list[Delivery]:
        """Claim those messages of ``names`` that are due at ``due_ms`` and that nobody holds, and
        return their deliveries. The caller settles each, or puts it back unchanged.
        """
        membership, view = self.membership(), self._nodes.view(shard)
        self._nodes.open()
        lease_s = self._nodes.lease_s if lease_s is None else lease_s
        view.refresh()
        with view.lock:
            chosen = view.index.choose_these(names, due_ms)
            times_ms = {one.name: view.index.due_ms_of(one.name) for one in chosen}
        found, _ = self._claim(membership, view, chosen, lease_s) if chosen else ([], False)
        for one in found:
            one.due_ms = times_ms[one.name]
        return self._standing(found)

    def put_back(self, deliveries: Iterable[Delivery]) -> None:
        """Put back messages that were not begun. They go back as they were, in a moment."""
        self._release(deliveries, self.membership().writer)

    def in_order(self, may_match: MayMatch | None = None) -> Iterator[tuple[str, str]]:
        """Yield shard and name of the messages that may be delivered now, in the order of
        delivery.
        """
        membership = self.membership()
        self._nodes.open()
        views = self._in_order(membership)
        for view in views:
            view.refresh()
        told: set[tuple[str, str]] = set()
        most = NEXT_ONES
        while True:
            known = [view.upcoming(most) for view in views]
            # What a shard that has more than these has next may go before the rest of the others.
            last = min((one[-1] for one in known if len(one) == most), default=None)
            fresh = [
                (shard, name)
                for *order, shard, name in sorted(one for found in known for one in found)
                if (last is None or (*order, shard, name) <= last) and (shard, name) not in told
            ]
            if not fresh and last is None:
                return
            told.update(fresh)
            for shard, name in fresh:
                parsed = parsed_name(name)
                if may_match is None or (parsed is not None and may_match(shard, parsed)):
                    yield shard, name
            most *= 4

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

    def _claim(
        self,
        membership: Membership,
        view: ShardView,
        choices: Sequence[Choice],
        lease_s: float,
        *,
        reads_ahead: bool = False,
    ) -> tuple[list[Delivery], bool]:
        names = [choice.name for choice in choices]
        try:
            data = view.read(names)
            view.release(names[len(data) :])
            if reads_ahead:
                view.read_ahead(len(data))  # before the claims, or it would wait behind them
            again = [choice.name for choice in choices if choice.version is not None]
            states = {one.name: one for one in read_claims(self._session, view.paths, again)}
            wanted: list[Wanted] = []
            for choice, answer in zip(choices, data, strict=False):
                one = self._prepared(membership.mark, view, choice, answer, states, lease_s)
                if one is not None:
                    wanted.append((choice, one))
            found = self._taken(membership.writer, view, wanted)
        except BaseException:
            view.release(names)
            raise
        self._held.update(dict.fromkeys(found))
        return found, len(found) < len(choices)

    def _taken(
        self, writer: SequencedWriter, view: ShardView, wanted: list[Wanted]
    ) -> list[Delivery]:
        """Claim these messages, and return the deliveries that were claimed. Many are claimed all
        or none, because a late consumer would be refused message by message otherwise. After a
        refusal the claims are read, and messages that are free are tried again.
        """
        found: list[Delivery] = []
        trouble: LeaderqError | None = None
        given = [choice.name for choice, _ in wanted]
        try:
            for together in (TOGETHER, TOGETHER, 1):
                chunks = list(batched(wanted, together))
                groups = [
                    tuple(op for pair in chunk for op in self._delivery(view, *pair))
                    for chunk in chunks
                ]
                wanted = []
                errors = apply_all(writer, groups, self._paths.root)
                for chunk, error in zip(chunks, errors, strict=True):
                    if error is None:
                        found += [one for _, one in chunk]
                        over = [one for one, _ in chunk if one.version is not None and not one.rest]
                        self._figures.add("timeouts", len(over))
                        with view.lock:
                            for _, one in chunk:
                                since_s = one.until_s - one.lease_s
                                view.index.claimed(one.name, one.version, since_s, one.lease_s)
                    elif isinstance(error, ZooKeeperError) and view.not_claimed(
                        culprit := name_of(error.path or "/"), error
                    ):
                        wanted += self._free(view, chunk, culprit)
                    else:
                        trouble = error
        except LeaderqError as exc:
            trouble = exc
        if trouble is not None:
            view.release(given)
            if not found:
                raise trouble
        return found

    def _free(self, view: ShardView, chunk: Sequence[Wanted], culprit: str) -> list[Wanted]:
        """Return those of these messages, except the culprit, that nobody has claimed."""
        if len(chunk) == 1:
            return []
        names = [choice.name for choice, _ in chunk]
        claims = read_claims(self._session, view.paths, names)
        versions = {claim.name: claim.version for claim in claims}
        free: list[Wanted] = []
        for choice, one in chunk:
            if versions.get(choice.name) != choice.version:
                view.not_claimed(choice.name)
            elif choice.name != culprit:
                free.append((choice, one))
        return free

    def _delivery(self, view: ShardView, choice: Choice, one: Delivery) -> Operations:
        operations = transitions.delivery(view.paths, choice, one.state)
        if one.deliveries > 1 or one.frame.unique is not Unique.STARTED:
            return operations
        return *operations, *transitions.id_over(self._paths, one.frame, has_started=False)

    def _prepared(
        self,
        mark: str,
        view: ShardView,
        choice: Choice,
        answer: tuple[bytes, int, int] | LeaderqError,
        known: Mapping[str, ClaimRead],
        lease_s: float,
    ) -> Delivery | None:
        """Return the delivery to claim; ``None`` if the message is not to be delivered."""
        if isinstance(answer, LeaderqError):
            if not view.not_claimed(choice.name, answer):
                raise answer
            return None
        former, version, is_take_over = NEVER_DELIVERED, 0, False
        if choice.version is not None:
            claim = known.get(choice.name)
            if claim is None or claim.version != choice.version:
                view.not_claimed(choice.name)
                return None
            # A consumer that takes a lease over says that the former one died with it, or hung.
            former, version, is_take_over = claim.state, choice.version + 1, choice.rest is None
        failures, error, now_ms = former.failures + is_take_over, former.error, self._now_ms()
        is_exhausted = is_take_over and self.retry.is_exhausted(failures)
        reason = "consumer died" if is_exhausted else ""
        try:
            frame = Frame.read(answer[0])
        except CorruptItem as exc:
            error, reason, frame = str(exc), "corrupt", Frame(b"")
        if 0 < frame.expires_ms <= now_ms:
            reason = "expired"
        if reason:
            dead = former._replace(failures=failures, error=error)
            letter = self._letter(view.paths.shard, choice.name, answer[0], dead, reason)
            self._bury(view, choice, letter)
            return None
        lease_ms, number = int(lease_s * 1000), former.deliveries + 1
        until_ms, first_ms = now_ms + lease_ms, former.first_ms or now_ms
        state = DeliveryState(number, failures, mark, until_ms, error, first_ms, lease_ms)
        receipt = Receipt(view.paths.shard, choice.name, version)
        return Delivery(self, frame, state, receipt, lease_s, clock.now_s() + lease_s)

    def redeem(self, receipt: Receipt) -> Delivery:
        paths = self._paths.shard(receipt.shard)
        read = read_claims(self._session, paths, [receipt.name])
        if not read or read[0].version != receipt.version or not read[0].state.member:
            raise StaleLease(f"receipt {receipt} is not valid any more")
        try:
            frame = Frame.read(self._session.get(paths.message(receipt.name))[0])
        except NoNode as exc:
            raise StaleLease(f"receipt {receipt} is not valid any more") from exc
        one = Delivery(self, frame, read[0].state, receipt, self._nodes.lease_s, 0.0)
        one.is_handed_out = True
        one.extend()  # so the servers refuse the former receipt
        return one

    def acknowledge(
        self, deliveries: Sequence[Delivery], also: Operations = ()
    ) -> list[LeaderqError | None]:
        """Acknowledge these deliveries, all under way together. Returns the error of each, or
        ``None``.
        """
        once = list(dict.fromkeys(deliveries))
        held: list[primitives.Lock] = []
        try:
            for one in sorted(once, key=id):  # or two calls could wait for each other
                one.lock.acquire()
                held.append(one.lock)
            own = {one: self._completion(one) for one in once}
            known = self._write({one: (*operations, *also) for one, operations in own.items()})
            for one, error in known.items():
                if isinstance(error, ZooKeeperError) and error.index is not None:
                    error.index -= len(own[one])
            done = [one for one in once if known[one] is None]
            self._settled(done, are_gone=True)
            self._figures.add("acknowledged", len(done))
        finally:
            for lock in held:
                lock.release()
        self.bodies.drop(one.frame.body for one in done)
        later = StaleLease("the same delivery was acknowledged twice in one call")
        return [known.pop(one, later) for one in deliveries]

    def _completion(self, one: Delivery) -> Operations:
        paths, now_ms = self._paths, self._now_ms()
        done = transitions.completion(paths.shard(one.shard), one.name, one.version)
        return *done, *transitions.id_over(paths, one.frame, has_started=True, done_ms=now_ms)

    def settle_rest(self, delivery: Delivery, delay_s: Seconds, state: DeliveryState) -> None:
        with delivery.lock:
            self._settle(delivery, self._rest(delivery, in_seconds("delay_s", delay_s), state))
        self._figures.add("returned")

    def _rest(self, delivery: Delivery, delay_s: float, state: DeliveryState) -> Operations:
        paths = self._paths.shard(delivery.shard)
        state = state._replace(member="", until_ms=self._now_ms() + int(delay_s * 1000))
        return transitions.rest(paths, delivery.name, delivery.version, state)

    def settle_kill(self, delivery: Delivery, reason: str, state: DeliveryState) -> None:
        shard, name, version = delivery.receipt
        paths = self._paths.shard(shard)
        with delivery.lock:
            try:
                data = b"" if delivery.is_settled else self._session.get(paths.message(name))[0]
            except NoNode as exc:
                raise self._stale(delivery, exc) from exc
            letter = self._letter(shard, name, data, state, reason).packed()
            dead = transitions.burial(paths, Choice(name, version), letter)
            over = transitions.id_over(self._paths, delivery.frame, has_started=True)
            self._settle(delivery, (*dead, *over), is_gone=True)
        self._figures.add("dead_letters")

    def settle_extension(self, delivery: Delivery, lease_s: Seconds | None) -> None:
        seconds = self._nodes.lease_s if lease_s is None else in_seconds("lease_s", lease_s)
        if not seconds:
            delivery.release()
            return
        with delivery.lock:
            error = self.extend_all([(delivery, seconds)])[delivery]
        if error is not None:
            raise error

    def extend_all(self, wanted: Sequence[tuple[Delivery, float]]) -> Known:
        """Extend each lease by the given seconds, counted from now. The caller holds the
        deliveries' locks.
        """
        mark, now_ms, now_s = self.membership().mark, self._now_ms(), clock.now_s()
        groups: dict[Delivery, Operations] = {}
        for one, lease_s in wanted:
            lease_ms = int(lease_s * 1000)
            until_ms = now_ms + lease_ms
            state = one.state._replace(member=mark, until_ms=until_ms, lease_ms=lease_ms)
            claim = self._paths.shard(one.shard).claim(one.name)
            groups[one] = (SetData(claim, state.packed(), one.version),)
        known = self._write(groups)
        for one, lease_s in wanted:
            if known[one] is None:
                one.version += 1
                one.until_s = now_s + lease_s
                self._held[one] = None
                if (view := self._nodes.views.get(one.shard)) is not None:
                    with view.lock:
                        view.index.extended(one.name, one.version, now_s, lease_s)
        return known

    def _settle(self, delivery: Delivery, operations: Operations, *, is_gone: bool = False) -> None:
        error = self._write({delivery: operations})[delivery]
        if error is not None:
            raise error
        self._settled([delivery], are_gone=is_gone)

    def _write(self, wanted: Mapping[Delivery, Operations]) -> Known:
        """Write the transitions of these deliveries, and return the error of each. The caller holds
        their locks.
        """
        if any(one.queue is not self for one in wanted):
            raise ConfigurationError("a delivery can be settled by the queue that popped it only")
        root, known = self._paths.root, Known()
        for one in wanted:
            if one.is_settled:
                known[one] = StaleLease(f"message {one.id} was settled before")
        if fresh := {one: group for one, group in wanted.items() if one not in known}:
            errors = apply_together(self.membership().writer, list(fresh.values()), root)
            for one, error in zip(fresh, errors, strict=True):
                is_overtaken = isinstance(error, OVERTAKEN) and within(error, root)
                is_stale = is_overtaken or isinstance(error, SessionExpired)
                known[one] = self._stale(one, error) if is_stale else error
        return known

    def _stale(self, delivery: Delivery, error: LeaderqError | None) -> StaleLease:
        self._settled([delivery])
        self._figures.add("lost")
        stale = StaleLease(f"message {delivery.id} is not this consumer's any more: {error}")
        return with_cause(stale, error)

    def _settled(self, deliveries: Sequence[Delivery], *, are_gone: bool = False) -> None:
        self.keeper.let_go(deliveries)
        for one in deliveries:
            one.is_settled = True
            self._held.pop(one, None)
            if are_gone and (view := self._nodes.views.get(one.shard)) is not None:
                with view.lock:
                    view.index.deleted(one.name)

    def _bury(self, view: ShardView, choice: Choice, letter: DeadMessage) -> None:
        """Make a message a dead letter that was found to be dead before its delivery."""
        frame, root = frame_of(letter.data), self._paths.root
        dead = transitions.burial(view.paths, choice, letter.packed())
        over = transitions.id_over(self._paths, frame, has_started=letter.deliveries > 0)
        (error,) = apply_all(self.membership().writer, [(*dead, *over)], root)
        if error is None:
            said = "message dead queue=%s message=%s reason=%s"
            log.error(said, root, choice.name, letter.reason)
            self._figures.add("dead_letters")
            with view.lock:
                view.index.deleted(choice.name)
        elif not view.not_claimed(choice.name, error):
            raise error

    def _letter(
        self, shard: str, name: str, data: bytes, state: DeliveryState, reason: str
    ) -> DeadMessage:
        counts = state.deliveries, state.failures, state.first_ms, self._now_ms()
        return DeadMessage(name, shard, reason, state.error, *counts, data)

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
            next_s = min(LOOK_S, self.keeper.extend_due())
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
                found = shard_figures(self._nodes)
                self._figures.note(clock.now_s(), depths(found))
            for one in [one for one in self._held.copy() if one.left_s <= 0]:
                self._held.pop(one, None)
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
