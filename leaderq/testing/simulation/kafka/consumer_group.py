"""One simulated consumer group: members, generations, and committed offsets, as the coordinator of
the classic protocol keeps them (pure).

States: *empty*; *preparing* a rebalance (waits until every member has asked to join, or its time is
up); *completing* it (waits for the leader's assignment); *stable*. Each change from preparing to
completing begins a generation.

If a static member (``group.instance.id``) joins without a member id, it takes the place of the
former one of the same name, which is fenced. In a stable group whose topics are the same, this
causes no rebalance. A static member that is gone stays in the group until its session times out.

A commit is refused with FENCED_INSTANCE_ID, UNKNOWN_MEMBER_ID or ILLEGAL_GENERATION, in this order,
and while a rebalance completes with REBALANCE_IN_PROGRESS. A client that is not a member may commit
while the group is empty. Offsets of a transaction are kept apart from the stable ones until it
ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, Protocol

from leaderq.kafka.record import Partition
from leaderq.testing.simulation.kafka.error_codes import ErrorCode, RefusedByBroker

Reply = Callable[[Any], None]
"""Takes the answer of a request that waits at the coordinator, or an :class:`ErrorCode`."""


class GroupState(Enum):
    """See the module."""

    EMPTY = "empty"
    PREPARING = "preparing"
    COMPLETING = "completing"
    STABLE = "stable"


class Timers(Protocol):
    """The place where a group leaves what is due later."""

    @property
    def time_s(self) -> float:
        """The cluster's time now."""

    def at(self, due_s: float, work: Callable[[], None]) -> None:
        """Do ``work`` then."""


class GroupMembership(NamedTuple):
    """A member, as it names itself in a request; ``generation_id`` is -1 if it is in no
    generation.
    """

    group_id: str
    member_id: str = ""
    group_instance_id: str | None = None
    generation_id: int = -1


class StoredOffset(NamedTuple):
    """A committed offset; ``epoch`` is -1 if the client did not tell it."""

    offset: int
    epoch: int = -1
    note: str = ""


class JoinAnswer(NamedTuple):
    """The answer to a member that the group lets in. The leader also gets all ``members``: name,
    member id, topics.
    """

    membership: GroupMembership
    is_leader: bool
    members: tuple[tuple[str, str, tuple[str, ...]], ...] = ()


Assignments = Mapping[str, tuple[Partition, ...]]


@dataclass(eq=False)
class _Member:
    id: str
    instance: str | None
    topics: tuple[str, ...]
    session_s: float
    rebalance_s: float
    expires_s: float = 0.0
    joining: Reply | None = None
    syncing: Reply | None = None
    assignment: tuple[Partition, ...] = ()

    @property
    def name(self) -> str:
        return self.instance or self.id


class ConsumerGroup:
    """The group; see the module. Times are seconds of the cluster's clock. Not thread-safe."""

    def __init__(self, name: str, timers: Timers, initial_delay_s: float) -> None:
        self.name = name
        self.state = GroupState.EMPTY
        self.generation = 0
        self.offsets: dict[Partition, StoredOffset] = {}
        self.pending: dict[int, dict[Partition, StoredOffset]] = {}
        self._timers = timers
        self._initial_delay_s = initial_delay_s
        self._members: dict[str, _Member] = {}
        self._instances: dict[str, str] = {}
        self._leader: str | None = None
        self._ids = 0
        self._waits_initially = False
        self._round = 0  # counts rebalances, so that the time-out of a former one does nothing

    # ---- joining ---------------------------------------------------------------------------------

    def join(
        self,
        who: GroupMembership,
        topics: tuple[str, ...],
        session_s: float,
        rebalance_s: float,
        reply: Reply,
    ) -> None:
        """Ask to be let in; ``reply`` is called with a :class:`JoinAnswer` or an error, at once or
        later.
        """
        if who.member_id:
            member, is_in_place = self._known(who), True
        else:
            member, is_in_place = self._admitted(who, session_s)
        member.session_s, member.rebalance_s = session_s, rebalance_s
        if is_in_place and member.topics == topics and self._stands_for(member, who):
            self._keep_alive(member)
            # one in the place of another keeps the assignment that there is (KIP-814)
            return reply(self._answer(member, is_led=bool(who.member_id)))
        member.topics = topics
        member.joining = reply
        if self.state is not GroupState.PREPARING:
            self._prepare()
        self._complete()
        return None

    def _stands_for(self, member: _Member, who: GroupMembership) -> bool:
        """Whether the present generation also serves a member that asks to join."""
        if self.state is GroupState.STABLE:
            return not who.member_id or member.id != self._leader
        return self.state is GroupState.COMPLETING and bool(who.member_id)

    def _admitted(self, who: GroupMembership, session_s: float) -> tuple[_Member, bool]:
        """Return the member under a new id, and whether it takes the place of a member of the same
        name.
        """
        self._ids += 1
        name = who.group_instance_id
        member_id = f"{name or 'member'}-{self._ids}"
        former_id = None if name is None else self._instances.get(name)
        if former_id is None:
            member = _Member(member_id, name, (), session_s, session_s)
            self._members[member_id] = member
            self._keep_alive(member)
            self._watch(member)
        else:
            # in the place of the former one, so that the order of members stays
            member = self._members[former_id]
            for reply in (member.joining, member.syncing):
                if reply is not None:
                    reply(ErrorCode.FENCED_INSTANCE_ID)
            member.joining = member.syncing = None
            member.id = member_id
            self._members = {each.id: each for each in self._members.values()}
            if self._leader == former_id:
                self._leader = member_id
        if name is not None:
            self._instances[name] = member_id
        return member, former_id is not None

    def _prepare(self) -> None:
        """Begin a rebalance."""
        was_empty = self.state is GroupState.EMPTY
        self.state = GroupState.PREPARING
        self._round += 1
        for member in self._members.values():
            self._sync_answered(member, ErrorCode.REBALANCE_IN_PROGRESS)
        wait_s = max((each.rebalance_s for each in self._members.values()), default=0.0)
        self._waits_initially = was_empty and self._initial_delay_s > 0
        if self._waits_initially:
            wait_s = self._initial_delay_s
        number = self._round
        self._timers.at(self._timers.time_s + wait_s, lambda: self._time_is_up(number))

    def _time_is_up(self, number: int) -> None:
        if self.state is not GroupState.PREPARING or number != self._round:
            return
        self._waits_initially = False
        # static members stay, with what they held, until their sessions end (KIP-345)
        for member in [each for each in self._members.values() if each.joining is None]:
            if member.instance is None:
                self._forget(member)
        self._complete(is_late=True)

    def _complete(self, *, is_late: bool = False) -> None:
        """Begin the next generation if all members have joined; if ``is_late``, with those that
        have.
        """
        if self.state is not GroupState.PREPARING or self._waits_initially:
            return
        members = list(self._members.values())
        joined = [each for each in members if each.joining is not None]
        if not members:
            self.state, self._leader = GroupState.EMPTY, None
        if not joined or (len(joined) < len(members) and not is_late):
            return
        self.generation += 1
        self.state = GroupState.COMPLETING
        if self._leader not in {each.id for each in joined}:
            self._leader = joined[0].id
        for member in members:
            member.assignment = ()
        for member in joined:
            self._keep_alive(member)
            reply, member.joining = member.joining, None
            if reply is not None:
                reply(self._answer(member))

    def _answer(self, member: _Member, *, is_led: bool = True) -> JoinAnswer:
        membership = GroupMembership(self.name, member.id, member.instance, self.generation)
        if not is_led or member.id != self._leader:
            return JoinAnswer(membership, is_leader=False)
        all_of_them = tuple((each.name, each.id, each.topics) for each in self._members.values())
        return JoinAnswer(membership, is_leader=True, members=all_of_them)

    def sync(self, who: GroupMembership, assignments: Assignments | None, reply: Reply) -> None:
        """Bring the leader's assignment, or ask for the member's own part of it."""
        member = self._checked(who)
        if self.state is GroupState.PREPARING:
            raise RefusedByBroker(ErrorCode.REBALANCE_IN_PROGRESS)
        self._keep_alive(member)
        if self.state is GroupState.STABLE:
            return reply(member.assignment)
        member.syncing = reply
        if member.id == self._leader and assignments is not None:
            self.state = GroupState.STABLE
            for each in self._members.values():
                each.assignment = assignments.get(each.id, ())
                self._sync_answered(each, each.assignment)
        return None

    @staticmethod
    def _sync_answered(member: _Member, answer: object) -> None:
        reply, member.syncing = member.syncing, None
        if reply is not None:
            reply(answer)

    # ---- staying, leaving ------------------------------------------------------------------------

    def heartbeat(self, who: GroupMembership) -> None:
        """Keep the membership; raise what the member must know."""
        member = self._checked(who)
        self._keep_alive(member)
        if self.state is GroupState.PREPARING:
            raise RefusedByBroker(ErrorCode.REBALANCE_IN_PROGRESS)

    def coordinator_moved(self) -> None:
        """Note that another broker has loaded the group: requests that waited are lost, and
        sessions begin again.
        """
        for member in self._members.values():
            for reply in (member.joining, member.syncing):
                if reply is not None:
                    reply(ErrorCode.CONNECTION_BROKEN)
            member.joining = member.syncing = None
            self._keep_alive(member)

    def _watch(self, member: _Member) -> None:
        def look() -> None:
            if self._members.get(member.id) is not member:
                return
            if member.joining is not None or member.expires_s > self._timers.time_s:
                waits_s = member.session_s if member.joining is not None else 0.0
                self._timers.at(max(member.expires_s, self._timers.time_s + waits_s), look)
            else:
                self._remove(member)

        self._timers.at(member.expires_s, look)

    def _keep_alive(self, member: _Member) -> None:
        member.expires_s = self._timers.time_s + member.session_s

    def _remove(self, member: _Member) -> None:
        self._forget(member)
        if self.state is GroupState.PREPARING:
            self._complete()
        elif self._members:
            self._prepare()
        else:
            self.state, self._leader = GroupState.EMPTY, None

    def _forget(self, member: _Member) -> None:
        del self._members[member.id]
        if member.instance is not None:
            del self._instances[member.instance]
        for reply in (member.joining, member.syncing):
            if reply is not None:
                reply(ErrorCode.UNKNOWN_MEMBER_ID)
        member.joining = member.syncing = None

    # ---- who asks --------------------------------------------------------------------------------

    def _known(self, who: GroupMembership) -> _Member:
        if who.group_instance_id is not None:
            member_id = self._instances.get(who.group_instance_id)
            if member_id is None:
                raise RefusedByBroker(ErrorCode.UNKNOWN_MEMBER_ID, self.name)
            if member_id != who.member_id:
                raise RefusedByBroker(ErrorCode.FENCED_INSTANCE_ID, who.group_instance_id)
        member = self._members.get(who.member_id)
        if member is None:
            raise RefusedByBroker(ErrorCode.UNKNOWN_MEMBER_ID, self.name)
        return member

    def _checked(self, who: GroupMembership) -> _Member:
        member = self._known(who)
        if who.generation_id != self.generation:
            what = f"{who.generation_id}, it is {self.generation}"
            raise RefusedByBroker(ErrorCode.ILLEGAL_GENERATION, what)
        return member

    # ---- offsets ---------------------------------------------------------------------------------

    def commit(self, who: GroupMembership, offsets: Mapping[Partition, StoredOffset]) -> None:
        """Store these offsets, or refuse all of them."""
        if who.generation_id < 0 and not who.member_id and self.state is not GroupState.EMPTY:
            raise RefusedByBroker(ErrorCode.UNKNOWN_MEMBER_ID, self.name)
        if who.generation_id >= 0 or who.member_id:
            member = self._checked(who)
            if self.state is GroupState.COMPLETING:
                raise RefusedByBroker(ErrorCode.REBALANCE_IN_PROGRESS)
            self._keep_alive(member)
        self.offsets.update(offsets)

    def commit_in_transaction(
        self, who: GroupMembership, producer_id: int, offsets: Mapping[Partition, StoredOffset]
    ) -> None:
        """Keep these offsets until the transaction ends. If ``who`` has neither member id, name nor
        generation, it is not checked: then only the transactional id fences.
        """
        if who.generation_id >= 0 or who.member_id or who.group_instance_id is not None:
            member = self._checked(who)
            if self.state is GroupState.COMPLETING:
                raise RefusedByBroker(ErrorCode.REBALANCE_IN_PROGRESS)
            self._keep_alive(member)
        self.pending.setdefault(producer_id, {}).update(offsets)

    def end_transaction(self, producer_id: int, *, is_committed: bool) -> None:
        offsets = self.pending.pop(producer_id, {})
        if is_committed:
            self.offsets.update(offsets)

    def fetch(
        self, partitions: Iterable[Partition], *, is_stable: bool = True
    ) -> dict[Partition, StoredOffset]:
        """The stored offsets of these partitions, if they have any. Raises UNSTABLE_OFFSET_COMMIT
        if an open transaction would commit one of them.
        """
        wanted = tuple(partitions)
        if is_stable and self.pending:
            for where in wanted:
                if any(where in offsets for offsets in self.pending.values()):
                    raise RefusedByBroker(ErrorCode.UNSTABLE_OFFSET_COMMIT, where)
        return {where: self.offsets[where] for where in wanted if where in self.offsets}

    def forget_topic(self, topic: str) -> None:
        """Forget the offsets of a topic that was deleted."""
        for offsets in (self.offsets, *self.pending.values()):
            for where in [each for each in offsets if each.topic == topic]:
                del offsets[where]
