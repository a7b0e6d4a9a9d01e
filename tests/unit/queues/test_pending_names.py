"""The names that may be claimed, in which order, how they are shared out; and against a model."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from leaderq.base import chance
from leaderq.queues.consuming import pending
from leaderq.queues.consuming.pending import GRACE_MS, PendingNames, Share
from leaderq.queues.wire.names import QueueKind


def plain(*numbers: int) -> list[str]:
    return [f"queue-{number:010d}" for number in numbers]


def by_priority(*numbers: int) -> list[str]:
    return [f"queue-10000000{number % 3}0{number:010d}" for number in numbers]


def waiting(names: Iterable[str], kind: QueueKind = QueueKind.PLAIN) -> PendingNames:
    made = PendingNames(kind)
    made.replace(names)
    return made


def test_behind_a_name_that_is_being_released_none_is_taken_until_that_is_over() -> None:
    names = waiting(plain(1, 2, 3, 5))
    names.take(2, 0)
    names.take_behind(1, 1)
    for name in plain(5, 2):
        names.returns(name)
    assert names.first_key(0) == waiting(plain(2)).first_key(0)
    names.drop(plain(2))  # without locks it is created again, and may be heard of before
    for name in plain(0, 2):
        names.add(name)
    assert names.has_returning
    assert names.take(9, 0) == plain(0)
    first = names.first_key(0)
    for name in plain(2, 5):
        names.is_settled(name)
    assert not names.has_returning
    assert names.first_key(0) == first
    assert names.take(9, 0) == plain(2, 3)


def test_what_has_waited_since_an_earlier_listing_is_anybodys_whatever_came_since() -> None:
    names = waiting(plain(*range(10)))
    assert names.take(99, 0, Share(0, 2)) == plain(0, 2, 4, 6, 8)
    names.replace(plain(1, 3, 10, 11), now_ms=40)
    assert names.take(99, 40, Share(0, 2)) == plain(10)
    assert sorted(names.take_overdue(99, 60)) == plain(1, 3)
    assert names.overdue_ms(60) == 40 + GRACE_MS
    assert names.take_overdue(99, 90) == plain(11)
    assert names.overdue_ms(90) is None


def test_of_what_is_overdue_the_oldest_goes_first_also_when_it_was_left_last() -> None:
    names = waiting(plain(*range(1, 100)))
    assert names.take(3, 0) == plain(1, 2, 3)
    names.release(plain(1, 2))
    names.rest(plain(3)[0], 10)
    names.take(99, 0, Share(0, 2))
    names.take(99, 10, Share(0, 2))
    assert names.take_overdue(50, GRACE_MS) == plain(*range(1, 100, 2))


@given(
    st.lists(st.integers(0, 200), unique=True),
    st.integers(1, 4),
    st.lists(st.integers(1, 7), min_size=1),
)
def test_every_name_is_taken_exactly_once_whatever_the_steps(numbers, members, steps):
    taken: list[str] = []
    names = waiting(plain(*numbers))
    share = Share(0, members)
    while found := names.take(steps[len(taken) % len(steps)], 0, share):
        taken += found
    while names.overdue_ms(GRACE_MS) is not None:
        taken += names.take_overdue(steps[0], GRACE_MS)
    assert sorted(taken) == sorted(plain(*numbers))


def test_names_that_others_deleted_are_forgotten_once_they_are_passed() -> None:
    names = waiting(["queue-|7FFFFFFF|0000000000"], QueueKind.DELAY)
    for number in range(1000):
        name = f"queue-|{number % 10 + 1:08X}|{number:010d}"
        names.add(name)
        if number % 2:
            assert names.take(1, 99) == [name]
            names.discard(name)  # our own, told by the watch
            names.drop([name])
        else:
            names.discard(name)  # somebody else's
            names.discard(name)
            assert names.take(1, 99) == []
            names.discard(name)
    assert not names._gone
    assert not names._added_names


def delayed(due_ms: int, number: int) -> str:
    return f"queue-|{due_ms:08X}|{number:010d}"


def test_the_measures_are_as_documented() -> None:
    assert (GRACE_MS, pending._WEIGHT, pending._LEAST_WON) == (50, 0.1, 0.5)
    assert (pending._SPREAD, pending._LOOKED_AT) == (3, 500)


def test_what_is_not_due_yet_is_known_and_not_its_turn() -> None:
    names = waiting([delayed(5, 0), delayed(20, 1)], QueueKind.DELAY)
    names.add(delayed(30, 2))
    assert (names.first, names.due_ms(delayed(20, 1))) == (delayed(5, 0), 20)
    assert [names.late(now_ms) for now_ms in (4, 5, 20, 30)] == [3, 2, 1, 0]
    assert names.first_key(4) is None
    names.rest(*names.take(9, 5), until_ms=40)
    assert (names.late(10), names.late(30)) == (3, 1)
    assert (waiting(plain(1)).late(0), waiting(plain(1)).due_ms(plain(1)[0])) == (0, None)


@pytest.mark.parametrize("kind", QueueKind)
def test_before_the_first_listing_there_is_nothing(kind: QueueKind) -> None:
    names = PendingNames(kind)
    assert (names.take(9, 0), names.take_behind(0, 9), names.upcoming(9)) == ([], [], [])
    assert (names.take_overdue(9, 99), names.take_instead(9, Share(0, 2))) == ([], [])
    assert (names.first_key(0), names.next_ms(), names.overdue_ms(0)) == (None, None, None)
    assert not names.has_overdue(10**9)
    assert names.in_hand == set()
    names.discard("queue-0000000001")
    names.add("queue-0000000001")
    assert names.take(9, 0) == ["queue-0000000001"]


STEP_KINDS = ["list", "add", "discard", "rest", "release", "drop", "take", "clock", "restart"]
STEP = st.tuples(st.sampled_from(STEP_KINDS), st.integers(0, 12), st.integers(0, 4))
STEPS = st.lists(STEP, max_size=40)


@example([("add", 0, 0), ("add", 0, 0), ("discard", 0, 0)])
@example([("list", 0, 2), ("add", 2, 0), ("discard", 2, 0)])
@given(STEPS)
def test_what_is_taken_is_what_a_look_at_everything_would_take(steps):
    follow(steps)


@pytest.mark.parametrize("seed", range(30))
def test_what_is_taken_is_so_over_long_times_too(seed: int) -> None:
    draw = random.Random(seed)
    kinds = [*STEP_KINDS[:-1] * 4, *STEP_KINDS]
    steps = [(draw.choice(kinds), draw.randrange(13), draw.randrange(5)) for _ in range(150)]
    follow(steps, QueueKind.PRIORITY if seed % 2 else QueueKind.PLAIN)


def follow(  # noqa: C901 - a table of events
    steps: list[tuple[str, int, int]], kind: QueueKind = QueueKind.PLAIN
) -> None:
    names, now_ms = PendingNames(kind), 0
    named = plain if kind is QueueKind.PLAIN else by_priority
    free: set[str] = set()
    hand: set[str] = set()
    rests: dict[str, int] = {}
    for what, at, amount in steps:
        name = named(at)[0]
        held = sorted(hand)
        if what == "list":
            listed = named(*range(at % 3, at + 2 * amount, 1 + at % 2))
            names.replace(listed, locked=[name], now_ms=now_ms)
            rests = {one: until for one, until in rests.items() if one in set(listed) - {name}}
            assert names.next_ms() == min(rests.values(), default=None)
            free = set(listed) - hand - {name} - rests.keys()
        elif what == "add":
            names.add(name)
            free |= {name} - hand - rests.keys()
        elif what == "discard":
            names.discard(name)
            free.discard(name)
            rests.pop(name, None)
        elif what == "rest" and held:
            one = held[at % len(held)]
            rests[one] = now_ms + 5 * amount
            names.rest(one, rests[one])
            hand.discard(one)
        elif what == "release" and held:
            names.release(held[:amount])
            free |= set(held[:amount])
            hand -= set(held[:amount])
        elif what == "drop" and held:
            names.drop(held[:amount])
            hand -= set(held[:amount])
        elif what == "clock":
            now_ms += amount
        elif what == "restart":
            names.restart()
            free, rests = set(), {}
        elif what == "take":
            over = {one for one, until in rests.items() if until <= now_ms}
            free |= over
            rests = {one: until for one, until in rests.items() if one not in over}
            expected = sorted(free)[:amount]
            assert names.first_key(now_ms) == (min(free) if free else None)
            assert names.take(amount, now_ms) == expected
            hand |= set(expected)
            free -= set(expected)
            next_ms = names.next_ms()  # of a name that was discarded it may come too early
            assert not rests or (next_ms is not None and next_ms <= min(rests.values()))
        assert names.in_hand == hand
    assert names.take(99, now_ms + 20) == sorted(free | rests.keys())


def test_the_first_that_must_wait_is_the_earlier_of_a_rest_and_a_due_time() -> None:
    names = waiting([delayed(500, 1), delayed(900, 2), delayed(5, 0)], QueueKind.DELAY)
    assert names.take(9, 10) == [delayed(5, 0)]
    assert names.next_ms() == 500
    names.rest(delayed(5, 0), 400)
    assert names.next_ms() == 400
    names.rest(delayed(5, 0), 600)
    assert names.take(9, 400) == []
    assert names.next_ms() == 500


def test_only_a_delay_queue_reads_times_in_names() -> None:
    names = waiting([delayed(500, 1)], QueueKind.ID)
    assert names.next_ms() is None
    assert names.first_key(0) is not None
    assert names.take(1, 0) == [delayed(500, 1)]


def test_what_is_taken_from_behind_is_not_met_again() -> None:
    names = waiting(plain(*range(8)))
    assert names.take(1, 0) == plain(0)
    names.in_hand.add(plain(3)[0])
    assert names.take_behind(1, 3) == plain(2, 4)
    assert names.in_hand == set(plain(0, 2, 3, 4))
    names.drop(plain(2, 4))
    assert names.take(2, 0) == plain(1, 5)
    assert not names._gone, "what was passed costs memory"
    names.discard(plain(7)[0])
    names.add(plain(7)[0])
    assert names.take_behind(0, 9) == plain(6, 7)


def test_listings_leave_no_trace_but_the_last_ones() -> None:
    names = PendingNames(QueueKind.PLAIN)
    for now_ms in range(0, 1000, GRACE_MS):
        names.replace((), now_ms=now_ms)
    assert len(names._marks) == 1


def test_what_comes_next_is_said_and_stays() -> None:
    names = waiting(plain(*range(8)))
    assert names.take(2, 0) == plain(0, 1)
    names.in_hand.add(plain(3)[0])
    assert names.upcoming(3) == plain(2, 4)
    assert names.upcoming(4, Share(1, 2)) == plain(5)
    assert names.take(1, 0) == plain(2)


@pytest.mark.parametrize(
    ("kind", "prefix"), [(QueueKind.PLAIN, "queue-"), (QueueKind.SIMPLE, "qn-")]
)
def test_the_next_names_are_guessed_where_only_their_number_is_open(kind, prefix):
    def named(*numbers: int) -> list[str]:
        return [f"{prefix}{number:010d}" for number in numbers]

    names = PendingNames(kind)
    assert names.guesses(2) == named(0, 1)
    names.replace(named(7, 5))
    assert names.guesses(3) == named(8, 9, 10)
    names.replace(named(6))
    assert names.guesses(3, Share(1, 2)) == named(9, 11, 13)
    assert names.guesses(1, Share(3, 5)) == named(8)
    names.restart()
    assert names.guesses(1) == named(0)
    for other in (QueueKind.ID, QueueKind.PRIORITY, QueueKind.DELAY):
        assert PendingNames(other).guesses(3) == []


def test_after_a_restart_nothing_has_waited_yet() -> None:
    names = waiting(plain(5))
    names.take(9, 0, Share(0, 2))
    names.replace((), now_ms=GRACE_MS)
    names.restart()
    names.add(plain(0)[0])
    names.add(plain(1)[0])
    assert names.take(9, 0, Share(0, 2)) == plain(0)
    assert not names.has_overdue(0)
    assert names.take_overdue(9, 0) == []
    assert names.overdue_ms(0) == GRACE_MS


def test_without_names_of_others_nothing_will_be_overdue() -> None:
    names = waiting(plain(0, 2))
    assert names.overdue_ms(0) is None
    names.take(9, 0, Share(0, 2))
    assert names.overdue_ms(0) is None
    names.add(plain(1)[0])
    names.add(plain(5)[0])  # it came after the listing, and is not overdue before the next
    names.take(9, 0, Share(0, 2))
    assert names.overdue_ms(0) == GRACE_MS
    assert not names.has_overdue(GRACE_MS - 1)
    assert (names.has_overdue(GRACE_MS), names.overdue_ms(GRACE_MS)) == (True, GRACE_MS)
    assert names.take_overdue(9, GRACE_MS) == plain(1)
    assert names.overdue_ms(GRACE_MS) is None


def others_of(count: int, kind: QueueKind = QueueKind.PLAIN) -> PendingNames:
    names = waiting(plain(*range(count)), kind)
    names.take(0, 0)
    names.take(9, 0, Share(0, 10**6))
    return names


@pytest.mark.parametrize("kind", [QueueKind.PLAIN, QueueKind.ID])
@pytest.mark.parametrize(
    ("most", "drawn", "taken"),
    [
        (2, 0, [1, 2]),
        (2, 1, [3, 4]),
        (2, 2, [5, 6]),
        (4, 1, [1, 2, 3, 4]),
        (3, 1, [4, 5, 6]),
        (9, 0, [1, 2, 3, 4, 5, 6, 7]),
        (0, 0, []),
    ],
)
def test_helpers_take_what_is_overdue_at_three_places(monkeypatch, most, drawn, taken, kind):
    names, asked = others_of(8, kind), []
    monkeypatch.setattr(pending, "_LOOKED_AT", 1)  # only where numbers are in no order

    def draw(stop: int) -> int:
        asked.append(stop)
        return min(drawn, stop - 1)

    monkeypatch.setattr(chance, "randrange", draw)
    assert names.take_overdue(most, GRACE_MS) == plain(*taken)
    assert asked == ([] if not most else [min(3, max(1, 7 // most))])
    left = [number for number in range(1, 8) if number not in taken]
    monkeypatch.setattr(chance, "randrange", lambda stop: 0)
    assert names.take_overdue(9, GRACE_MS) == plain(*left)


def test_an_overdue_name_that_was_freed_twice_or_is_held_or_gone_is_taken_once_or_not() -> None:
    names = others_of(5)
    names.add(plain(1)[0])
    names.take(9, 0, Share(0, 10**6))
    names.in_hand.add(plain(2)[0])
    names._gone.add(plain(3)[0])
    assert names.take_overdue(9, GRACE_MS) == plain(1, 4)
    assert names.in_hand == set(plain(0, 1, 2, 4))


def test_names_of_members_not_at_work_are_taken_at_once_and_the_others_left() -> None:
    share = Share(0, 3)
    share.note(won=plain(1), lost=[])
    names = waiting(plain(*range(1, 9)))
    assert names.take(9, 0, share) == plain(3, 6)
    mine = [name for name in plain(1, 4, 7) if share.stands_in_for(name)]
    theirs = [name for name in plain(1, 4, 7) if name not in mine]
    assert names.take_instead(1, share) == mine[:1]
    assert names.take_instead(9, share) == mine[1:]
    assert names.take_instead(9, share) == []
    assert names.in_hand == {*plain(3, 6), *mine}
    names.drop(mine)  # they are done, and come only once
    left = names.take_overdue(99, GRACE_MS)
    assert left == sorted([*theirs, *plain(2, 5, 8)])


def test_of_many_names_of_others_only_the_first_are_looked_at(monkeypatch):
    monkeypatch.setattr(pending, "_LOOKED_AT", 2)
    share = Share(0, 2)
    share.note(won=plain(1), lost=[])
    names = waiting([*plain(1, 3, 5, 7, 9)])
    names.take(9, 0, share)
    assert names.take_instead(1, share) == plain(1)
    share.note(won=(), lost=plain(1) * 9)
    assert names.take_instead(1, share) == []
    share.note(won=plain(1), lost=[])
    assert names.take_instead(9, share) == plain(3, 5, 7, 9)


def test_a_member_is_not_at_work_while_half_of_its_names_can_be_claimed(monkeypatch):
    share = Share(0, 3)
    assert not any(share.stands_in_for(name) for name in plain(*range(9)))
    share.note(won=plain(0, 1), lost=plain(2))
    assert share.won == {1: 1.0}
    for expected in (0.9, 0.81, 0.729, 0.6561, 0.59049, 0.531441):
        share.note(won=(), lost=plain(1))
        assert share.won[1] == pytest.approx(expected)
    share.note(won=(), lost=plain(1))
    assert share.won == {}
    monkeypatch.setattr(pending, "_WEIGHT", 0.5)
    share.note(won=plain(1), lost=plain(1))
    assert share.won == {1: 0.5}, "exactly half is enough"


@given(st.integers(2, 5), st.sets(st.integers(0, 4)), st.integers(0, 200))
def test_one_member_at_work_takes_each_name_of_one_that_is_not(members, absent, number):
    absent = {one for one in absent if one < members}
    present = [one for one in range(members) if one not in absent]
    name = plain(number)[0]
    takers = []
    for position in present:
        share = Share(position, members)
        share.note(won=plain(*absent), lost=())
        takers += [position] if share.stands_in_for(name) else []
        assert (name in share) == (number % members == position)
    expected = bool(present) and number % members in absent
    assert len(takers) == expected
    if expected:
        assert takers == [present[number // members % len(present)]]
