from __future__ import annotations

import signal
import threading
from collections import deque

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from leaderq.errors import QueueClosed
from leaderq.testing import eventually
from leaderq.threads import Capacity, WaitingLine, Waker

LONG_S = 60.0


class Asker:
    def __init__(
        self, capacity: Capacity, items: int, size: int = 0, timeout_s: float = LONG_S
    ) -> None:
        self.items, self.size = items, size
        self.answer: bool | BaseException | None = None
        self._ask = lambda: capacity.acquire(items, size, timeout_s)
        self.thread = threading.Thread(target=self._run, daemon=True)
        before = capacity.waiting
        self.thread.start()
        eventually(lambda: capacity.waiting > before or not self.thread.is_alive())

    def _run(self) -> None:
        try:
            self.answer = self._ask()
        except BaseException as error:
            self.answer = error

    def is_in(self) -> bool:
        self.thread.join(LONG_S)
        return self.answer is True


def closed() -> QueueClosed:
    return QueueClosed("closed")


@pytest.fixture
def full() -> Capacity:
    """One with room for one, which is taken."""
    capacity = Capacity(1)
    capacity.acquire()
    return capacity


def test_one_that_gives_up_lets_those_behind_it_in():
    capacity = Capacity(10)
    capacity.acquire(8)
    large = Asker(capacity, 5, 0, timeout_s=1.0)
    small = Asker(capacity, 1, 0)
    assert small.is_in()
    assert large.answer is False
    assert capacity.items == 9


def test_closing_refuses_each_with_an_error_of_its_own_and_room_can_still_be_given_back(full):
    askers = [Asker(full, 1) for _ in range(2)]
    full.close(closed)
    full.close(lambda: QueueClosed("closed again"))
    assert not any(asker.is_in() for asker in askers)
    assert len({id(asker.answer) for asker in askers}) == 2  # one traceback each
    for take in (full.acquire, full.take):
        with pytest.raises(QueueClosed, match=r"^closed$"):
            take()
    full.release()
    assert (full.items, full.bytes) == (0, 0)


def test_who_is_needed_to_make_room_takes_it_before_those_who_wait(full):
    asker = Asker(full, 1, 0)
    full.take()
    full.take(1, 7)
    assert (full.items, full.bytes, full.waiting) == (3, 7, 1)
    full.release(2)
    full.release(1, 7)
    assert asker.is_in()


def test_emptiness_is_told_even_if_the_next_one_gets_in_at_once(full):
    asker = Asker(full, 1, 0)
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(full.wait_empty(LONG_S)))
    thread.start()
    eventually(lambda: full._awaiting_empty)
    full.release()
    assert asker.is_in()
    thread.join()
    assert answers == [True]


def test_ctrl_c_in_a_wait_takes_no_room_and_leaves_the_line(full):
    other = threading.Timer(0.05, signal.pthread_kill, (threading.get_ident(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        other.start()
        full.acquire(timeout_s=LONG_S)
    other.join()
    assert (full.items, full.waiting) == (1, 0)
    full.release()
    assert full.acquire(timeout_s=0)


def test_who_has_any_time_waits_for_room_and_who_has_none_does_not(full, monkeypatch):
    waits = []
    monkeypatch.setattr(Waker, "wait", lambda _, left_s: waits.append(left_s))
    assert not any(full.acquire(timeout_s=left_s) for left_s in (0, 0.5))
    assert waits == [0.5]


def test_room_that_was_given_to_one_who_is_interrupted_goes_to_the_next(full, monkeypatch):
    behind: list[Asker] = []

    def interrupted(_waker: object, _timeout_s: float | None) -> bool:
        monkeypatch.undo()
        behind.append(Asker(full, 1, 0))
        full.release()  # to the one that is being interrupted, which was first
        raise KeyboardInterrupt

    monkeypatch.setattr(Waker, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        full.acquire()
    assert behind[0].is_in()
    assert full.items == 1


def test_more_than_was_taken_cannot_be_released():
    capacity = Capacity(3)
    capacity.acquire(1, 10)
    for items, size in ((2, 0), (1, 11)):
        with pytest.raises(ValueError, match="only 1 items of 10 bytes"):
            capacity.release(items, size)
    assert (capacity.items, capacity.bytes) == (1, 10)


class Interrupted(WaitingLine[str]):
    """A line with room for those in ``room``, where Ctrl-C hits whoever wakes one of them first."""

    def __init__(self, *names: str, room: str = "") -> None:
        self.room, self.entered, self.woken = room, list[str](), list[str]()
        super().__init__(lambda name: name in self.room, self.entered.append)
        self.ones = {name: self.join(name, lambda name=name: self.wake(name)) for name in names}

    def wake(self, name: str) -> None:
        self.woken.append(name)
        if self.woken.count(name) == 1:
            raise KeyboardInterrupt


@pytest.mark.parametrize("is_admitted_again", [True, False])
def test_who_was_admitted_or_refused_before_an_interrupt_is_woken_again_and_stays_so(
    is_admitted_again,
):
    line = Interrupted("a", "b", room="a")
    with pytest.raises(KeyboardInterrupt):
        line.admit()
    if is_admitted_again:
        line.admit()
    with pytest.raises(KeyboardInterrupt):
        line.close(closed)
    a, b = line.ones.values()
    first = b.refusal
    line.close(lambda: QueueClosed("closed again"))
    assert (a.is_admitted, a.refusal, b.is_admitted, b.refusal) == (True, None, False, first)
    assert (line.entered, line.woken, len(line)) == (["a"], ["a", "a", "b", "b"], 0)


@pytest.mark.parametrize("others", ["", "b"])
def test_one_that_leaves_as_it_is_woken_takes_nobody_along(others):
    line: WaitingLine[str] = WaitingLine(lambda name: name == "a")
    a = line.join("a", lambda: line.leave(a))
    for name in others:
        line.join(name, lambda: None)
    line.admit()
    assert a.is_admitted and [one.what for one in line.waiters] == list(others)
    line.leave(a)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["ask", "try"]), st.integers(0, 7), st.integers(0, 80)),
        st.tuples(st.just("release"), st.integers(0, 9), st.just(0)),
    ),
    max_size=20,
)


@settings(max_examples=60)
@example([("try", 2, 30), ("try", 3, 30), ("try", 1, 0)])  # exactly what there is room for
@given(STEPS)
def test_it_does_what_a_line_of_people_before_a_door_does(steps):
    capacity = Capacity(5, 60)
    inside: list[tuple[int, int]] = []
    line: deque[Asker] = deque()

    def fits(items: int, size: int) -> bool:
        sums = sum(one[0] for one in inside) + items, sum(one[1] for one in inside) + size
        return not any(map(any, inside)) or (sums[0] <= 5 and sums[1] <= 60)

    def admit() -> None:
        while line and fits(line[0].items, line[0].size):
            asker = line.popleft()
            assert asker.is_in()
            inside.append((asker.items, asker.size))

    for verb, number, size in steps:
        if verb == "ask":
            line.append(Asker(capacity, number, size))
        elif verb == "try":
            expected = not line and fits(number, size)
            assert capacity.acquire(number, size, 0) is expected
            if expected:
                inside.append((number, size))
        elif inside:
            capacity.release(*inside.pop(number % len(inside)))
        admit()
        assert capacity.waiting == len(line)
        assert capacity.items == sum(one[0] for one in inside)
        assert capacity.bytes == sum(one[1] for one in inside)
    capacity.close(closed)
    for asker in line:
        assert not asker.is_in()
        assert isinstance(asker.answer, QueueClosed)


@pytest.mark.parametrize(("items", "size"), [(1, 0), (0, 7), (1, 7)])
def test_it_is_empty_when_neither_items_nor_bytes_are_under_way(items, size):
    capacity = Capacity(5, 100)
    assert capacity.wait_empty(0)
    capacity.take(items, size)
    assert not capacity.wait_empty(0)
    for part in ((items, 0), (0, size)):
        threading.Timer(0.01, capacity.release, part).start()
    assert capacity.wait_empty(LONG_S)
    capacity.take(items, size)
    assert not capacity.wait_empty(0)
    assert capacity._awaiting_empty == []


@pytest.mark.parametrize(("items", "size"), [(1, 0), (0, 7)])
def test_who_waits_for_it_to_be_empty_is_not_woken_by_a_part(items, size):
    capacity = Capacity(5, 100)
    capacity.take(1, 7)
    threading.Timer(0.01, capacity.release, (1 - items, 7 - size)).start()
    assert not capacity.wait_empty(0.05)
