"""What may be claimed, in which order, and how it is shared out; pure."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from leaderq.queues.consuming.pending import GRACE_MS, PendingNames, Share
from leaderq.queues.wire.names import QueueKind


def plain(*numbers: int) -> list[str]:
    return [f"queue-{number:010d}" for number in numbers]


def waiting(names: list[str], kind: QueueKind = QueueKind.PLAIN) -> PendingNames:
    made = PendingNames(kind)
    made.replace(names)
    return made


def test_names_come_in_order_and_once() -> None:
    names = waiting(plain(3, 1, 2))
    assert names.take(2, 0) == plain(1, 2)
    assert names.take(2, 0) == plain(3)
    assert names.take(2, 0) == []


def test_what_is_in_hand_or_locked_is_left_out_of_a_new_listing() -> None:
    names = waiting(plain(1, 2))
    assert names.take(1, 0) == plain(1)
    names.replace(plain(1, 2, 3, 4), locked=plain(3))
    assert names.take(9, 0) == plain(2, 4)
    names.drop(plain(1))
    names.replace(plain(1))
    assert names.take(9, 0) == plain(1)


def test_what_is_released_goes_before_what_comes_after_it() -> None:
    names = waiting(plain(1, 2, 3, 4))
    names.take(2, 0)
    names.release(plain(2))
    assert names.take(9, 0) == plain(2, 3, 4)


def test_behind_a_name_that_is_being_released_none_is_taken_until_that_is_over() -> None:
    names = waiting(plain(1, 2, 3))
    names.take(2, 0)
    names.returns(plain(2)[0])
    names.add(plain(0)[0])
    assert names.has_returning
    assert names.take(9, 0) == plain(0)
    first = names.first_key(0)
    names.is_settled(plain(2)[0])
    names.release(plain(2))
    assert not names.has_returning
    assert names.first_key(0) == first
    assert names.take(9, 0) == plain(2, 3)


def test_what_rests_comes_again_at_its_time_and_at_its_place() -> None:
    names = waiting(plain(1, 2, 3))
    names.take(1, 0)
    names.rest(plain(1)[0], 100)
    assert names.next_ms() == 100
    assert names.take(1, 99) == plain(2)
    assert names.take(9, 100) == plain(1, 3)
    assert names.next_ms() is None


def test_new_and_deleted_names_are_heeded() -> None:
    names = waiting(["queue-1000000050000000001"], QueueKind.PRIORITY)
    names.add("queue-1000000010000000002")
    names.add("queue-1000000000000000003")
    names.discard("queue-1000000000000000003")
    assert names.first_key(0) == "queue-1000000010000000002"
    assert names.take(9, 0) == ["queue-1000000010000000002", "queue-1000000050000000001"]


def test_delayed_names_wait_for_their_time_and_equal_times_keep_the_order_of_the_puts() -> None:
    due_later, second, first = (
        "queue-|000003E8|0000000000",
        "queue-|000001F4|0000000002",
        "queue-|000001F4|0000000001",
    )
    names = waiting([due_later, second, first], QueueKind.DELAY)
    assert names.next_ms() == 500
    assert names.take(9, 499) == []
    assert names.first_key(499) is None
    assert names.take(9, 500) == [first, second]
    assert names.next_ms() == 1000
    assert names.take(9, 2000) == [due_later]


def test_each_consumer_takes_its_share_and_leaves_the_rest_to_others_for_50_ms() -> None:
    shares = [Share(position, 3) for position in range(3)]
    taken = []
    for share in shares:
        names = waiting(plain(*range(10)))
        taken.append(names.take(99, 0, share))
        assert names.take_overdue(99, GRACE_MS - 1) == []
        assert names.overdue_ms(GRACE_MS - 1) == GRACE_MS
    assert sorted(name for share in taken for name in share) == plain(*range(10))


def test_what_has_waited_since_an_earlier_listing_is_anybodys_whatever_came_since() -> None:
    names = waiting(plain(*range(10)))
    assert names.take(99, 0, Share(0, 2)) == plain(0, 2, 4, 6, 8)
    names.replace(plain(1, 3, 10, 11), now_ms=40)
    assert names.take(99, 40, Share(0, 2)) == plain(10)
    assert sorted(names.take_overdue(99, 60)) == plain(1, 3)
    assert names.overdue_ms(60) == 40 + GRACE_MS
    assert names.take_overdue(99, 90) == plain(11)
    assert names.overdue_ms(90) is None


def test_an_item_put_right_after_a_listing_is_anybodys_after_50_ms_though_nothing_follows() -> None:
    names = waiting(plain(0, 1))
    names.take(99, 0, Share(0, 2))
    names.replace(plain(1, 3), now_ms=2)
    assert names.take(99, 2, Share(0, 2)) == []
    assert names.overdue_ms(GRACE_MS) is not None
    assert sorted(names.take_overdue(99, GRACE_MS) + names.take_overdue(99, 2 + GRACE_MS)) == plain(
        1, 3
    )


def test_of_what_is_overdue_the_oldest_goes_first_also_when_it_was_left_last() -> None:
    names = waiting(plain(*range(1, 100)))
    assert names.take(1, 0) == plain(1)
    names.rest(plain(1)[0], 10)
    names.take(99, 0, Share(0, 2))
    names.take(99, 10, Share(0, 2))
    assert names.take_overdue(50, GRACE_MS) == plain(*range(1, 100, 2))


def test_the_share_of_a_member_that_is_not_at_work_goes_to_the_others_at_once() -> None:
    shares = [Share(position, 3) for position in range(3)]
    names = waiting(plain(*range(12)))
    assert names.take(99, 0, shares[1]) == plain(1, 4, 7, 10)
    assert names.take_instead(99, shares[1]) == []
    for share in shares[1:]:
        share.note(plain(0), [])
    assert names.take_instead(1, shares[1]) == plain(0)
    assert names.take_instead(99, shares[1]) == plain(6)
    assert names.take_instead(99, shares[2]) == plain(3, 9)


def test_a_member_that_takes_most_of_its_share_itself_is_at_work() -> None:
    share = Share(0, 2)
    share.note(plain(1), [])
    for number in range(1, 999, 2):  # every fifth of them it takes itself
        name = plain(number)
        share.note(*(([], name) if number % 5 == 0 else (name, [])))
    assert share.stands_in_for(plain(1)[0])
    share.note([], plain(*range(1, 20, 2)))
    assert not share.stands_in_for(plain(1)[0])


@given(
    st.lists(st.integers(0, 200), unique=True),
    st.integers(1, 4),
    st.lists(st.integers(1, 7), min_size=1),
)
def test_every_name_is_taken_exactly_once_whatever_the_steps(
    numbers: list[int], members: int, steps: list[int]
) -> None:
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
