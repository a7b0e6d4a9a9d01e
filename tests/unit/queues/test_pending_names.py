"""The names that may be claimed, in which order, how they are shared out; and against a model."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

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
    assert names.take(1, 0, skip=1) == plain(5)
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


def test_names_of_other_shares_are_taken_in_order_once_the_own_are_used_up() -> None:
    names = waiting(plain(*range(1, 10)))
    names.share_out(Share(0, 3), 0)
    assert names.has_own(0)
    assert names.upcoming(4, 0) == plain(3, 6, 9, 1)
    assert names.take(2, 0) == plain(3, 6)
    names.returns(plain(3)[0])
    assert names.take(2, 0) == [], "no name after one that is returning"
    names.release(plain(3))
    names.is_settled(plain(3)[0])
    assert names.take(9, 0) == plain(3, 9), "others only after a look"
    assert not names.has_own(0)
    assert names.take(9, 0, of_others=False) == []
    names.rest(plain(9)[0], 10)
    names.add(plain(12)[0])
    assert (names.has_own(0), names.first_key(0)) == (True, plain(12)[0])
    assert names.take(9, 0) == plain(12)
    assert names.first_key(0) is None
    assert names.take(2, 0) == plain(1, 2)
    names.share_out(Share(1, 3), 0)
    assert names.take(9, 0) == plain(4, 7)
    names.share_out(None, 0)
    assert names.take(9, 10) == plain(5, 8, 9)


@pytest.mark.parametrize("kind", [QueueKind.PLAIN, QueueKind.ID])
@pytest.mark.parametrize("later_ms", [GRACE_MS, -3600_000])
def test_what_has_waited_since_an_earlier_listing_is_anybodys_whatever_came_since(kind, later_ms):
    def named(*numbers: int) -> list[str]:
        id = "" if kind is QueueKind.PLAIN else "|{}|"
        return [f"queue-{id.format(9 - at)}{at:010d}" for at in numbers]

    names = PendingNames(kind)
    assert GRACE_MS == 50
    names.share_out(Share(1, 2), 0)
    names.replace(named(0, 2), now_ms=10**9)
    names.replace(named(0, 2, 3, 4, 6), now_ms=10**9 + GRACE_MS - 1)
    assert names.take(9, 0) == named(3), "the others are too new"
    names.replace(named(0, 2, 4, 5, 6, 7), now_ms=10**9 + later_ms)
    assert names.take(9, 0) == named(0, 2, 5, 7)
    assert names.take(9, 0) == named(4, 6)
    names.drop(named(0, 2, 3, 4, 5, 6, 7))
    names.restart()
    for number, now_ms in ((1, 1), (3, GRACE_MS)):
        names.replace(named(0, number), now_ms=now_ms)
        assert names.take(9, 0) == named(number)


@given(
    st.lists(st.integers(0, 200), unique=True),
    st.integers(1, 4),
    st.lists(st.integers(1, 7), min_size=1),
)
def test_every_name_is_taken_exactly_once_whatever_the_steps(numbers, members, steps):
    taken: list[str] = []
    names = waiting(plain(*numbers))
    names.share_out(Share(0, members), 0)
    while found := names.take(steps[len(taken) % len(steps)], 0):
        taken += found
    assert taken == sorted(taken, key=lambda name: (int(name[6:]) % members != 0, name))
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
    names.take(1, 99)
    assert (len(names._names), len(names._later), len(names._due)) == (1, 1, 0)


def delayed(due_ms: int, number: int) -> str:
    return f"queue-|{due_ms:08X}|{number:010d}"


def test_what_is_not_due_yet_is_known_and_not_its_turn() -> None:
    names = waiting([delayed(5, 0), delayed(20, 1)], QueueKind.DELAY)
    names.add(delayed(30, 2))
    assert (names.first(4), names.first(5)) == (None, delayed(5, 0))
    assert names.due_ms_of(delayed(20, 1)) == 20
    assert [names.late(now_ms) for now_ms in (4, 5, 20, 30)] == [3, 2, 1, 0]
    assert names.first_key(4) is None
    names.rest(*names.take(9, 5), until_ms=40)
    assert (names.late(10), names.late(30)) == (3, 1)
    assert (waiting(plain(1)).late(0), waiting(plain(1)).due_ms_of(plain(1)[0])) == (0, 0)


@pytest.mark.parametrize("kind", QueueKind)
def test_before_the_first_listing_there_is_nothing(kind: QueueKind) -> None:
    names = PendingNames(kind)
    assert (names.take(9, 0), names.take(9, 0, skip=1), names.upcoming(9, 0)) == ([], [], [])
    assert (names.first_key(0), names.first(0), names.later_ms()) == (None, None, None)
    assert not names.has_own(10**9)
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
            over_ms = [until for until in rests.values() if until > now_ms]
            assert names.later_ms() == min(over_ms, default=None)
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
            assert names.later_ms() == min(rests.values(), default=None)
        assert names.in_hand == hand
    assert names.take(99, now_ms + 20) == sorted(free | rests.keys())


def test_the_first_that_must_wait_is_the_earlier_of_a_rest_and_a_due_time() -> None:
    names = waiting([delayed(500, 1), delayed(900, 2), delayed(5, 0)], QueueKind.DELAY)
    assert names.take(9, 10) == [delayed(5, 0)]
    assert names.later_ms() == 500
    names.rest(delayed(5, 0), 400)
    assert names.later_ms() == 400
    names.rest(delayed(5, 0), 600)
    assert names.take(9, 400) == []
    assert names.later_ms() == 500


def test_only_a_delay_queue_reads_times_in_names() -> None:
    names = waiting([delayed(500, 1)], QueueKind.ID)
    assert names.later_ms() is None
    assert names.first_key(0) is not None
    assert names.take(1, 0) == [delayed(500, 1)]


def test_who_skips_some_leaves_them_where_they_are() -> None:
    names = waiting(plain(*range(8)))
    assert names.take(1, 0) == plain(0)
    names.in_hand.add(plain(3)[0])
    assert names.take(2, 0, skip=2) == plain(4, 5)
    assert names.in_hand == set(plain(0, 3, 4, 5))
    assert names.take(2, 0) == plain(1, 2)
    assert names.take(9, 0, skip=9) == plain(7), "one is left to take at least"
    assert names.take(9, 0) == plain(6)


def test_what_comes_next_is_said_and_stays() -> None:
    names = waiting(plain(*range(8)))
    assert names.take(2, 0) == plain(0, 1)
    names.in_hand.add(plain(3)[0])
    assert names.upcoming(2, 0) == plain(2, 4)
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
    names.share_out(Share(1, 2), 0)
    assert names.guesses(3) == named(9, 11, 13)
    names.share_out(Share(3, 5), 0)
    assert names.guesses(1) == named(8)
    names.share_out(None, 0)
    names.restart()
    assert names.guesses(1) == named(0)
    for other in (QueueKind.ID, QueueKind.PRIORITY, QueueKind.DELAY):
        assert PendingNames(other).guesses(3) == []
