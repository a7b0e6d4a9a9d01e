"""The consuming half of a Dyno queue: choosing, claiming, settling, and looking after leases.

Who is authoritative: the servers, about whose each message is. Everything written goes through one
idempotent writer, whose guard is this consumer's ephemeral member: once the session is over nothing
of this consumer is applied any more, and a lost reply leaves no doubt.

Threads: those of the users, who pop and settle; the session's, which tells of changes; and one of
ours, the *minder*, which looks once a second for leases that are over and extends those that are
kept.

What happens on each failure:

* **reply lost, connection lost**: the writer finds out; ``pop`` and ``ack`` wait, for as long as
  the caller lets them;
* **session over**: what was leased may pass to others at once, and settling it raises
  ``StaleLease``; the consumer enters again with a new member when it is next used;
* **a message that cannot be read**: it goes to the dead letters;
* **a claim fails**: somebody else was quicker; the choice is made again.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from dataclasses import replace
from typing import Any

from leaderq.clock import now_s
from leaderq.dyno import transitions
from leaderq.dyno.delivery import Delivery, DeliveryRecord, StaleLease, bounded_error
from leaderq.dyno.index import Choice
from leaderq.dyno.layout import DynoPaths, parsed_rest
from leaderq.dyno.message import DeliveryState, Frame
from leaderq.dyno.shard_view import ClaimRead, ShardView
from leaderq.dyno.transitions import DeadLetter, Operations
from leaderq.errors import (
    BadVersion,
    ConnectionLost,
    CorruptItem,
    LeaderqError,
    NodeExists,
    NoNode,
    QueueClosed,
    SessionClosed,
    SessionExpired,
)
from leaderq.retrying import RetryPolicy
from leaderq.threads import Service
from leaderq.writing import SequencedWriter
from leaderq.zookeeper import Session, Subscription, WatchEvent
from leaderq.zookeeper.paths import name_of

log = logging.getLogger(__name__)

LOOK_S = 1.0
"""How often the minder looks, and how long a wait trusts in watches alone."""
ANSWER_S = 30.0
"""How long settling waits for an answer."""


class Membership:
    """This consumer, as long as its session lasts: its member and its writer."""

    def __init__(self, session: Session, paths: DynoPaths, name: str) -> None:
        self.mark = uuid.uuid4().hex
        self.session_id = session.id
        self.writer = SequencedWriter(session, f"{paths.members}/{self.mark}", ephemeral=True, data=name.encode())
        self.writer.open()


class DynoConsumer:
    """See the module. ``now_ms`` is the clock: milliseconds since the epoch."""

    def __init__(
        self,
        session: Session,
        paths: DynoPaths,
        shards: Sequence[str],
        *,
        name: str,
        current: str | None,
        lease_s: float,
        retry: RetryPolicy,
        ageing_s: float | None,
        now_ms: Callable[[], int],
        id_over: Callable[[str], Operations],
    ) -> None:
        self._session = session
        self._paths = paths
        self._shards = list(shards)
        self._name = name
        self._current = current
        self._lease_s = lease_s
        self._retry = retry
        self._now_ms = now_ms
        self._id_over = id_over
        self._changed = threading.Condition()
        self._changes = 0
        self.views = {shard: ShardView(session, paths.shard(shard), self._notify, ageing_s, now_ms) for shard in shards}
        self._entering = threading.Lock()
        self._membership: Membership | None = None
        self._members: frozenset[str] = frozenset()
        self._members_stale = True
        self._has_lost_member = True
        self._watch: Subscription | None = None
        self._kept: dict[Delivery, float | None] = {}
        self._minder = Service.repeating(f"leaderq-dyno-{name}", self._mind)
        self._is_closed = False

    # -- its life ----------------------------------------------------------------------------------

    def membership(self) -> Membership:
        """Stand among the consumers. Raises what the session raises."""
        with self._entering:
            if self._is_closed:
                raise QueueClosed(f"the queue {self._paths.root} was closed")
            former = self._membership
            if former is not None and not former.writer.is_over and former.session_id == self._session.id:
                return former
            if former is not None:
                log.warning("session over, leases may pass to others queue=%s member=%s", self._paths.root, former.mark)
                former.writer.close(0.0)
                self._membership = None
                for view in self.views.values():
                    view.invalidate()
            self._session.ensure_path(self._paths.members)
            if self._watch is None:
                self._watch = self._session.watch_tree(self._paths.members, self._member_changed)
            self._membership = Membership(self._session, self._paths, self._name)
            self._members_stale = True
            self._minder.start()
            return self._membership

    def close(self, timeout_s: float) -> bool:
        """Leave: what is leased and not settled may pass to others at once. Returns whether all that
        was to be written was, in ``timeout_s``."""
        with self._entering:
            self._is_closed = True
            membership, watch = self._membership, self._watch
        self._minder.stop(timeout_s)
        self._notify()
        for view in self.views.values():
            view.close()
        if watch is not None:
            with suppress(LeaderqError):
                watch.close()
        return membership is None or membership.writer.close(timeout_s)

    # -- popping -----------------------------------------------------------------------------------

    def pop(self, most: int, timeout_s: float | None, least: int, lease_s: float | None = None) -> list[Delivery]:
        """At most that many, waiting until there are ``least`` or the time is over."""
        deadline = None if timeout_s is None else now_s() + timeout_s
        out: list[Delivery] = []
        conflicts = 0
        while True:
            seen = self._changes
            found, lost = self._pop_now(most - len(out), conflicts, lease_s)
            out += found
            conflicts = conflicts + 1 if lost and not found else 0
            if len(out) >= least:
                return out
            if lost or found:
                continue
            left_s = LOOK_S if deadline is None else min(LOOK_S, deadline - now_s())
            if left_s <= 0:
                return out
            self._wait(seen, left_s)

    def _pop_now(self, most: int, conflicts: int, lease_s: float | None) -> tuple[list[Delivery], int]:
        membership = self.membership()
        self._refresh_members()
        now_ms = self._now_ms()
        for view in self._in_order(membership):
            view.refresh()
            with view.lock:
                choices = view.index.choose(most, now_ms, skip=conflicts if conflicts > 1 else 0)
            if choices:
                return self._claim(membership, view, choices, lease_s)
        return [], 0

    def claim_one(self, shard: str, name: str, lease_s: float | None = None) -> Delivery | None:
        """This message, if it is due and nobody has it."""
        membership, view = self.membership(), self.views[shard]
        view.refresh()
        now_ms = self._now_ms()
        with view.lock:
            chosen = view.index.choose_these([name], now_ms)
        found, _ = self._claim(membership, view, chosen, lease_s) if chosen else ([], 0)
        return found[0] if found else None

    def _in_order(self, membership: Membership) -> list[ShardView]:
        """Our own shard first, then the others."""
        own = self._current
        if own is None:
            members = sorted(self._members)
            rank = members.index(membership.mark) if membership.mark in members else 0
            own = self._shards[rank % len(self._shards)]
        at = self._shards.index(own)
        return [self.views[shard] for shard in self._shards[at:] + self._shards[:at]]

    def _wait(self, seen: int, timeout_s: float) -> None:
        now_ms = self._now_ms()
        due = [at for view in self.views.values() if (at := self._next_due_ms(view, now_ms)) is not None]
        if due:
            timeout_s = min(timeout_s, max(0.0, (min(due) - now_ms) / 1000))
        with self._changed:
            self._changed.wait_for(lambda: self._changes != seen or self._is_closed, timeout_s)

    def _next_due_ms(self, view: ShardView, now_ms: int) -> int | None:
        with view.lock:
            return view.index.next_due_ms(now_ms)

    def _notify(self) -> None:
        with self._changed:
            self._changes += 1
            self._changed.notify_all()

    # -- claiming ----------------------------------------------------------------------------------

    def _claim(
        self, membership: Membership, view: ShardView, choices: Sequence[Choice], lease_s: float | None
    ) -> tuple[list[Delivery], int]:
        """What became ours of these, and how many others were quicker."""
        names = {choice.name for choice in choices}
        try:
            data = view.read_messages(choices)
            again = [choice.name for choice in choices if choice.version is not None]
            states = {one.name: one for one in view.read_claims(again)}
        except BaseException:
            view.give_back(sorted(names))
            raise
        claims: list[tuple[Choice, DeliveryRecord, DeliveryState, Future[Any]]] = []
        unread = [choice.name for choice in choices[len(data) :]]
        view.give_back(unread)
        groups: list[Operations] = []
        waiting: list[tuple[Choice, DeliveryRecord, DeliveryState]] = []
        for choice, answer in zip(choices, data, strict=False):
            prepared = self._prepared(membership, view, choice, answer, states.get(choice.name), lease_s)
            if prepared is not None:
                waiting.append((choice, prepared[0], prepared[1]))
                groups.append(transitions.delivery(view.paths, choice, prepared[1]))
        futures = membership.writer.submit_all(groups)
        claims = [(*one, future) for one, future in zip(waiting, futures, strict=True)]
        found: list[Delivery] = []
        for choice, record, state, future in claims:
            error = self._outcome(future)
            if error is None:
                version = 0 if choice.version is None else choice.version + 1
                found.append(Delivery(self, record, version, state.until_ms, self._lease_s if lease_s is None else lease_s))
            else:
                self._not_claimed(view, choice.name, error)
        return found, len(claims) - len(found)

    def _prepared(
        self,
        membership: Membership,
        view: ShardView,
        choice: Choice,
        answer: tuple[bytes, int, int] | LeaderqError,
        known: ClaimRead | None,
        lease_s: float | None,
    ) -> tuple[DeliveryRecord, DeliveryState] | None:
        """What to write for this delivery; ``None``: it is not to be delivered."""
        if isinstance(answer, LeaderqError):
            self._not_claimed(view, choice.name, answer)
            return None
        if choice.version is not None and (known is None or known.version != choice.version):
            with view.lock:
                view.index.lost(choice.name, self._now_ms())
            return None
        former = known.state if known is not None else DeliveryState()
        # Who takes a lease over says that the former consumer died with it, or hung.
        failures = former.failures + (choice.version is not None and choice.rest is None)
        data, created_ms, _ = answer
        try:
            frame = Frame.read(data)
        except CorruptItem as exc:
            self._bury(membership, view, choice, data, replace(former, failures=failures, error=str(exc)), "corrupt")
            return None
        if self._retry.attempts is not None and failures >= self._retry.attempts:
            self._bury(membership, view, choice, data, replace(former, failures=failures), "consumer died")
            return None
        now_ms = self._now_ms()
        until_ms = now_ms + int((self._lease_s if lease_s is None else lease_s) * 1000)
        first_ms = former.first_ms or now_ms
        state = DeliveryState(former.deliveries + 1, failures, membership.mark, until_ms, former.error, first_ms)
        record = DeliveryRecord(
            id=frame.id or f"{view.paths.shard}/{choice.name}",
            payload=frame.payload,
            headers=frame.headers,
            priority=int(choice.name[:2]),
            group=frame.group,
            shard=view.paths.shard,
            name=choice.name,
            deliveries=state.deliveries,
            failures=failures,
            enqueued_ms=frame.enqueued_ms or created_ms,
            first_ms=first_ms,
            given_id=frame.id,
            body=frame.body,
            last_error=former.error,
        )
        return record, state

    def _not_claimed(self, view: ShardView, name: str, error: LeaderqError) -> None:
        with view.lock:
            if isinstance(error, NoNode):
                view.index.deleted(name)
            elif isinstance(error, NodeExists | BadVersion):
                view.index.lost(name, self._now_ms())
            else:
                view.index.give_back([name])
        if isinstance(error, SessionClosed | QueueClosed):
            raise error
        if isinstance(error, ConnectionLost | SessionExpired):
            log.debug("not claimed queue=%s message=%s error=%s", self._paths.root, name, error)

    def _outcome(self, future: Future[Any], timeout_s: float = ANSWER_S) -> LeaderqError | None:
        try:
            error = future.exception(timeout_s)
        except FutureTimeout:
            future.cancel()
            return ConnectionLost(f"no answer within {timeout_s:g} s: the outcome is unknown", path=self._paths.root)
        if error is not None and not isinstance(error, LeaderqError):
            raise error
        return error

    # -- settling ----------------------------------------------------------------------------------

    def settle_ack(self, delivery: Delivery) -> None:
        """See :class:`~leaderq.dyno.delivery.Delivery`."""
        paths = self._paths.shard(delivery.record.shard)
        with delivery.lock:
            done = transitions.completion(paths, delivery.record.name, delivery.version)
            self._settle(delivery, (*done, *self._id_over(delivery.record.given_id)))
        self._forget(delivery)

    def acknowledge(self, deliveries: Sequence[Delivery]) -> list[LeaderqError | None]:
        """As :meth:`settle_ack` for each, all under way together; for each its error, or ``None``."""
        writer, groups = self.membership().writer, []
        for one in deliveries:
            paths = self._paths.shard(one.record.shard)
            done = transitions.completion(paths, one.record.name, one.version)
            groups.append((*done, *self._id_over(one.record.given_id)))
        wanted = [not one.is_settled for one in deliveries]
        futures = iter(writer.submit_all([group for group, is_wanted in zip(groups, wanted, strict=True) if is_wanted]))
        outcomes: list[LeaderqError | None] = []
        for one, is_wanted in zip(deliveries, wanted, strict=True):
            try:
                self._check(one, self._outcome(next(futures)) if is_wanted else None)
            except LeaderqError as exc:
                outcomes.append(exc)
            else:
                outcomes.append(None)
                one.is_settled = True
                self._kept.pop(one, None)
                self._forget(one)
        return outcomes

    def settle_rest(
        self, delivery: Delivery, *, delay_s: float, error: BaseException | str | None, is_failure: bool
    ) -> None:
        """See :class:`~leaderq.dyno.delivery.Delivery`."""
        record, paths = delivery.record, self._paths.shard(delivery.record.shard)
        with delivery.lock:
            state = DeliveryState(
                deliveries=record.deliveries,
                failures=record.failures + is_failure,
                until_ms=self._now_ms() + int(delay_s * 1000),
                error=bounded_error(error) or record.last_error,
                first_ms=record.first_ms,
            )
            self._settle(delivery, transitions.rest(paths, record.name, delivery.version, state))

    def settle_kill(self, delivery: Delivery, reason: str, error: BaseException | str | None = None) -> None:
        """See :class:`~leaderq.dyno.delivery.Delivery`."""
        record, paths = delivery.record, self._paths.shard(delivery.record.shard)
        with delivery.lock:
            answer = self._session.get(paths.message(record.name)) if not delivery.is_settled else (b"", None)
            letter = self._letter(
                record.shard,
                record.name,
                answer[0],
                DeliveryState(record.deliveries, record.failures + (error is not None), error=bounded_error(error)),
                reason,
                record.first_ms,
            )
            dead = transitions.burial(paths, record.name, delivery.version, None, letter)
            self._settle(delivery, (*dead, *self._id_over(record.given_id)))
        self._forget(delivery)

    def settle_extension(self, delivery: Delivery, lease_s: float | None) -> None:
        """See :class:`~leaderq.dyno.delivery.Delivery`."""
        record, paths = delivery.record, self._paths.shard(delivery.record.shard)
        with delivery.lock:
            until_ms = self._now_ms() + int((self._lease_s if lease_s is None else lease_s) * 1000)
            mark = self.membership().mark
            state = DeliveryState(record.deliveries, record.failures, mark, until_ms, record.last_error, record.first_ms)
            self._write(delivery, transitions.extension(paths, record.name, delivery.version, state))
            delivery.version += 1
            delivery.until_ms = until_ms

    def retry_delay_s(self, failures: int, error: BaseException | str | None) -> float | None:
        """How long a message rests after so many failures; ``None``: it is dead."""
        if self._retry.attempts is not None and failures >= self._retry.attempts:
            return None
        return self._retry.wait_s(failures)

    def _settle(self, delivery: Delivery, operations: Operations) -> None:
        self._write(delivery, operations)
        delivery.is_settled = True
        self._kept.pop(delivery, None)

    def _write(self, delivery: Delivery, operations: Operations) -> None:
        is_late = delivery.is_settled
        self._check(delivery, None if is_late else self._outcome(self.membership().writer.submit(operations)))

    def _check(self, delivery: Delivery, error: LeaderqError | None) -> None:
        """Raise what became of a transition, if it was not written."""
        if delivery.is_settled:
            raise StaleLease(f"message {delivery.id} was settled before")
        if isinstance(error, BadVersion | NoNode | NodeExists | SessionExpired):
            delivery.is_settled = True
            self.views[delivery.record.shard].give_back([delivery.record.name])
            raise StaleLease(f"message {delivery.id} is not this consumer's any more: {error}") from error
        if error is not None:
            raise error

    def _forget(self, delivery: Delivery) -> None:
        view = self.views[delivery.record.shard]
        with view.lock:
            view.index.deleted(delivery.record.name)

    # -- the dead ----------------------------------------------------------------------------------

    def _bury(
        self, membership: Membership, view: ShardView, choice: Choice, data: bytes, state: DeliveryState, reason: str
    ) -> None:
        """On the way to a delivery: it is not to be delivered any more."""
        letter = self._letter(view.paths.shard, choice.name, data, state, reason, state.first_ms)
        resting = parsed_rest(choice.rest) if choice.rest is not None else None
        dead = transitions.burial(view.paths, choice.name, choice.version, resting, letter)
        try:
            given_id = Frame.read(data).id
        except CorruptItem:
            given_id = ""
        error = self._outcome(membership.writer.submit((*dead, *self._id_over(given_id))))
        if error is None:
            log.error("message dead queue=%s message=%s reason=%s", self._paths.root, choice.name, reason)
            with view.lock:
                view.index.deleted(choice.name)
        else:
            self._not_claimed(view, choice.name, error)

    def _letter(self, shard: str, name: str, data: bytes, state: DeliveryState, reason: str, first_ms: int) -> bytes:
        return DeadLetter(
            name=name,
            shard=shard,
            reason=reason,
            error=state.error,
            deliveries=state.deliveries,
            failures=state.failures,
            first_ms=first_ms,
            died_ms=self._now_ms(),
            data=data,
        ).packed()

    # -- leases ------------------------------------------------------------------------------------

    def keep(self, deliveries: Iterable[Delivery], most_s: float | None) -> None:
        """Extend these, when a third of the lease is left, until they are settled or ``most_s`` is
        over."""
        until_s = None if most_s is None else now_s() + most_s
        for one in deliveries:
            self._kept[one] = until_s
        self._minder.wake()

    def let_go(self, deliveries: Iterable[Delivery]) -> None:
        """Extend these no more."""
        for one in deliveries:
            self._kept.pop(one, None)

    def look_at_leases(self) -> int:
        """Find the leases that are over, in all shards; returns how many."""
        self._refresh_members()
        has_lost, self._has_lost_member = self._has_lost_member, False
        now_ms, members = self._now_ms(), self._members
        try:
            return sum(len(view.look_at_claims(now_ms, members, has_lost_member=has_lost)) for view in self.views.values())
        except BaseException:
            self._has_lost_member = self._has_lost_member or has_lost
            raise

    def _mind(self) -> float:
        try:
            if self._membership is not None and self._membership.session_id == self._session.id:
                self.look_at_leases()
                return min(LOOK_S, self._extend_kept())
        except ConnectionLost as exc:
            log.debug("leases not looked at queue=%s error=%s", self._paths.root, exc)
        except LeaderqError as exc:
            log.warning("leases not looked at queue=%s error=%s", self._paths.root, exc)
        return LOOK_S

    def _extend_kept(self) -> float:
        """Extend what has to be; returns the seconds until something has to be again."""
        soonest_s = LOOK_S
        for delivery, until_s in list(self._kept.items()):
            if until_s is not None and now_s() >= until_s:
                self._kept.pop(delivery, None)
                continue
            lease_s = delivery.lease_s
            left_s = (delivery.until_ms - self._now_ms()) / 1000 - lease_s / 3
            if left_s <= 0:
                try:
                    delivery.extend(lease_s)
                except StaleLease as exc:
                    if self._kept.pop(delivery, None) is not None:
                        log.warning("lease lost queue=%s message=%s error=%s", self._paths.root, delivery.id, exc)
                left_s = lease_s / 3
            soonest_s = min(soonest_s, left_s)
        return max(0.01, soonest_s)

    def _refresh_members(self) -> None:
        if not self._members_stale:
            return
        self._members_stale = False
        try:
            names = frozenset(self._session.children(self._paths.members))
        except BaseException:
            self._members_stale = True
            raise
        if self._members - names:
            self._has_lost_member = True
        self._members = names

    @property
    def members(self) -> Collection[str]:
        """The consumers there are, as last heard."""
        return self._members

    def _member_changed(self, event: WatchEvent) -> None:
        if name_of(event.path) != name_of(self._paths.members):
            self._members_stale = True
            self._minder.wake()
