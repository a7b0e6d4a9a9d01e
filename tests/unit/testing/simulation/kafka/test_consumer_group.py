"""A simulated group: who is let in, and whose commits are refused with what."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

import pytest

from leaderq.kafka import Partition
from leaderq.testing.simulation.kafka.consumer_group import (
    ConsumerGroup,
    GroupMembership,
    GroupState,
    JoinAnswer,
    StoredOffset,
)
from leaderq.testing.simulation.kafka.error_codes import ErrorCode, RefusedByBroker

WHERE = Partition("t", 0)
SEVEN = {WHERE: StoredOffset(7, 3, "a note")}
SESSION_S, REBALANCE_S = 10.0, 60.0


class ManualTimers:
    """What is due is done when time passes."""

    def __init__(self) -> None:
        self.time_s = 0.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def at(self, due_s: float, work: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._due, (due_s, self._count, work))

    def pass_(self, seconds: float) -> None:
        until_s = self.time_s + seconds
        while self._due and self._due[0][0] <= until_s:
            self.time_s, _, work = heapq.heappop(self._due)
            work()
        self.time_s = until_s


@pytest.fixture
def timers() -> ManualTimers:
    return ManualTimers()


@pytest.fixture
def group(timers: ManualTimers) -> ConsumerGroup:
    return ConsumerGroup("g", timers, 0.0)


def asked(group: ConsumerGroup, name: str | None, member_id: str = "") -> list[Any]:
    """Ask to join; the list has the answer, once it is there."""
    answers: list[Any] = []
    who = GroupMembership("g", member_id, name)
    group.join(who, ("t",), SESSION_S, REBALANCE_S, answers.append)
    return answers


def led_in(group: ConsumerGroup, name: str | None = "leader") -> GroupMembership:
    """Join a group whose members all wait for this, as its leader, and bring the assignment."""
    (answer,) = asked(group, name)
    assert isinstance(answer, JoinAnswer)
    group.sync(answer.membership, {answer.membership.member_id: (WHERE,)}, lambda _: None)
    return answer.membership


def refusal(act: Callable[[], object]) -> ErrorCode:
    with pytest.raises(RefusedByBroker) as refused:
        act()
    return refused.value.code


def test_an_empty_group_waits_for_more_members_if_it_is_told_to(timers: ManualTimers) -> None:
    group = ConsumerGroup("g", timers, 3.0)
    first = asked(group, "one")
    timers.pass_(2.9)
    second = asked(group, "two")
    assert not first
    timers.pass_(0.2)
    assert first[0].membership.generation_id == second[0].membership.generation_id == 1
    assert [answer.is_leader for (answer,) in (first, second)] == [True, False]


def test_a_newer_member_of_the_name_fences_the_older_without_a_rebalance(
    group: ConsumerGroup,
) -> None:
    former = led_in(group)
    (answer,) = asked(group, "leader")
    assert answer.membership.generation_id == former.generation_id
    assert answer.membership.member_id != former.member_id
    given: list[Any] = []
    group.sync(answer.membership, None, given.append)
    assert given == [(WHERE,)]
    for act in (
        lambda: group.commit(former, SEVEN),
        lambda: group.heartbeat(former),
        lambda: group.sync(former, None, given.append),
        lambda: asked(group, "leader", former.member_id),
        lambda: group.commit_in_transaction(former, 1, SEVEN),
    ):
        assert refusal(act) is ErrorCode.FENCED_INSTANCE_ID
    assert group.offsets == {}
    group.commit(answer.membership, SEVEN)
    assert group.fetch([WHERE]) == SEVEN


def test_a_former_generation_is_refused(group: ConsumerGroup) -> None:
    me = led_in(group)
    again: list[Any] = asked(group, "leader", me.member_id)  # the leader's wish is a rebalance
    assert again[0].membership.generation_id == 2
    assert refusal(lambda: group.commit(me, SEVEN)) is ErrorCode.ILLEGAL_GENERATION
    assert refusal(lambda: group.heartbeat(me)) is ErrorCode.ILLEGAL_GENERATION
    assert group.offsets == {}


def test_a_member_whose_session_ended_is_unknown(
    group: ConsumerGroup, timers: ManualTimers
) -> None:
    me = led_in(group)
    timers.pass_(SESSION_S - 1)
    group.heartbeat(me)
    timers.pass_(SESSION_S - 1)
    assert group.instances == ("leader",)
    timers.pass_(2)
    assert (group.instances, group.state) == ((), GroupState.EMPTY)
    assert refusal(lambda: group.commit(me, SEVEN)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_waits_for_every_member_and_its_heartbeat_tells(
    group: ConsumerGroup,
) -> None:
    me = led_in(group)
    newcomer = asked(group, "other")
    assert (newcomer, group.state) == ([], GroupState.PREPARING)
    assert refusal(lambda: group.heartbeat(me)) is ErrorCode.REBALANCE_IN_PROGRESS
    group.commit(me, SEVEN)  # what was handled before may still be committed
    mine = asked(group, "leader", me.member_id)
    assert mine[0].is_leader
    assert [name for name, _, _ in mine[0].members] == ["leader", "other"]
    assert newcomer[0].membership.generation_id == 2


def test_no_commit_is_accepted_while_a_rebalance_completes(group: ConsumerGroup) -> None:
    me = led_in(group)
    newcomer = asked(group, "other")
    (mine,) = asked(group, "leader", me.member_id)
    code = refusal(lambda: group.commit(mine.membership, SEVEN))
    assert code is ErrorCode.REBALANCE_IN_PROGRESS
    given: list[Any] = []
    group.sync(newcomer[0].membership, None, given.append)
    assert given == []  # until the leader has said who gets what
    group.sync(mine.membership, {newcomer[0].membership.member_id: (WHERE,)}, lambda _: None)
    assert given == [(WHERE,)]


def test_a_rebalance_does_not_wait_for_a_member_whose_session_ends(
    group: ConsumerGroup, timers: ManualTimers
) -> None:
    led_in(group)
    newcomer = asked(group, "other")
    timers.pass_(SESSION_S)
    assert newcomer[0].is_leader
    assert group.instances == ("other",)


def test_a_leader_that_dies_before_its_assignment_is_not_waited_for(
    group: ConsumerGroup, timers: ManualTimers
) -> None:
    me = led_in(group)
    newcomer = asked(group, "other")
    asked(group, "leader", me.member_id)
    waiting: list[Any] = []
    group.sync(newcomer[0].membership, None, waiting.append)
    timers.pass_(SESSION_S - 1)
    group.heartbeat(newcomer[0].membership)
    timers.pass_(2)
    assert waiting == [ErrorCode.REBALANCE_IN_PROGRESS]
    assert asked(group, "other", newcomer[0].membership.member_id)[0].is_leader


def test_removing_a_name_makes_the_group_stop_waiting_for_it(group: ConsumerGroup) -> None:
    me = led_in(group)
    newcomer = asked(group, "other")
    group.remove(["leader", "nobody"])
    assert newcomer[0].membership.generation_id == 2
    assert refusal(lambda: group.commit(me, SEVEN)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_dynamic_member_that_does_not_join_in_time_is_left_behind(
    group: ConsumerGroup, timers: ManualTimers
) -> None:
    me = led_in(group, name=None)
    newcomer = asked(group, "other")
    for _ in range(int(REBALANCE_S / 5)):
        assert not newcomer
        with pytest.raises(RefusedByBroker):
            group.heartbeat(me)
        timers.pass_(5)
    assert newcomer[0].is_leader
    assert refusal(lambda: group.commit(me, SEVEN)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_offsets_in_a_transaction_are_accepted_from_whoever_says_nothing_of_membership(
    group: ConsumerGroup,
) -> None:
    me = led_in(group)
    group.commit_in_transaction(GroupMembership("g"), 1, SEVEN)
    stale = me._replace(generation_id=0)
    code = refusal(lambda: group.commit_in_transaction(stale, 1, SEVEN))
    assert code is ErrorCode.ILLEGAL_GENERATION
