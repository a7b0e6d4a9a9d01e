"""Groups and multis of a writer: sizes, outcomes, blame, and the line at its limits."""

from __future__ import annotations

from collections import deque
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leaderq import errors
from leaderq.errors import BadVersion, ConnectionLost, LeaderqError, NodeExists, NoNode
from leaderq.zookeeper import Check, Create, Delete, SetData
from leaderq.zookeeper.writing import groups as module
from leaderq.zookeeper.writing.groups import MultiStatus, OperationGroup, PackedMulti, SendQueue
from leaderq.zookeeper.writing.in_flight import InFlightLimit


def group(count: int = 1, size: int = 10) -> OperationGroup:
    return OperationGroup([Create(f"/{number}") for number in range(count)], size)


PATHS = st.sampled_from(["/a", "/abc", "/\u00e4", "/\U0001f600/x"])


@given(st.lists(st.tuples(PATHS, st.binary(max_size=20), st.integers(0, 3)), max_size=5))
def test_the_estimate_of_a_group_is_what_it_is_made_of(parts: list[tuple[str, bytes, int]]) -> None:
    made: list[Any] = []
    expected = 0
    for path, data, kind in parts:
        made.append([Create(path, data), SetData(path, data), Delete(path), Check(path)][kind])
        text = len(path) if path.isascii() else 4 * len(path)
        expected += 96 + text + (len(data) if kind < 2 else 0) + 7
    assert module.estimated_bytes(made, 7) == expected


def test_only_what_is_created_with_a_number_may_end_in_a_slash() -> None:
    fit = [Create("/a/", sequential=True), Delete("/b")]
    assert module.validated(fit) is fit
    for wrong in (Create("/a/"), SetData("/a/", b""), Delete("a")):
        with pytest.raises(errors.ConfigurationError):
            module.validated([wrong])


def answered(batch: PackedMulti, outcome: Any) -> PackedMulti:
    future: Future[list[Any]] = Future()
    if isinstance(outcome, BaseException):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
    batch.note_answer(future)
    return batch


def test_a_multi_that_was_given_up_is_in_doubt_and_stays_so() -> None:
    batch = answered(PackedMulti(0, [group()]), CancelledError())
    assert isinstance(batch.error, ConnectionLost)
    assert (batch.status, batch.is_doubtful) == (MultiStatus.UNKNOWN, True)
    answered(batch, BadVersion("behind", index=0))
    assert (batch.status, batch.is_doubtful) == (MultiStatus.NOT_NOW, True)
    closed = answered(PackedMulti(0, [group()]), errors.SessionClosed("x"))
    assert (closed.status, closed.is_doubtful) == (MultiStatus.OVER, False)


@pytest.mark.parametrize("error", [NodeExists("there"), errors.AccessRefused("x")])
def test_without_an_index_the_only_group_is_the_culprit(error: LeaderqError) -> None:
    alone, both = group(2), [group(), group()]
    assert answered(PackedMulti(0, [alone]), error).culprit() == (alone, alone.operations[0])
    assert answered(PackedMulti(0, both), error).culprit() is None
    assert answered(PackedMulti(0, []), error).culprit() is None


def fit(*waiting: OperationGroup, max_ops: int = 99, max_bytes: int = 999) -> int:
    line = deque(waiting)
    taken = module.packed(line, max_ops, max_bytes)
    assert [*taken, *line] == list(waiting)
    return len(taken)


def test_groups_fit_until_operations_or_bytes_are_full_the_guard_included() -> None:
    assert (module.MULTI_BYTES, module.MULTI_OPS, module.MARGIN_BYTES) == (65_536, 256, 4096)
    assert fit(group(2), group(2), max_ops=5) == 2
    assert fit(group(2), group(2), max_ops=4) == 1
    assert fit(group(size=10), group(size=10), max_bytes=20) == 2
    assert fit(group(size=10), group(size=10), max_bytes=19) == 1
    assert fit(group(9, size=99), group(), max_ops=2, max_bytes=5) == 1


def test_lists_are_full_but_for_the_last() -> None:
    assert list(module.batched(iter("abcde"), 2)) == [["a", "b"], ["c", "d"], ["e"]]


def line(
    *waiting: OperationGroup, max_ops: int = 2, max_bytes: int = 1000, limit: float = 1e6
) -> SendQueue:
    made = SendQueue(max_ops=max_ops, max_bytes=max_bytes)
    assert made.limit == InFlightLimit()
    made.limit = InFlightLimit(limit)
    assert (made.number, made.is_halted) == (0, True)
    assert (made.may_send, made.needs_renewal) == (False, False)
    made.is_halted = False
    made.waiting.extend(waiting)
    return made


def test_no_number_is_given_from_which_a_version_would_run_over() -> None:
    assert module.RENEW_AT == 2**30
    one = line(group())
    one.number = module.RENEW_AT - 1
    assert (one.may_send, one.needs_renewal) == (True, False)
    assert one.next_batch() is not None
    one.waiting.append(group())
    assert (one.number, one.may_send, one.needs_renewal) == (module.RENEW_AT, False, False)
    one.flight.clear()
    assert one.needs_renewal
    one.again.append(PackedMulti(0, []))
    assert not one.needs_renewal
    one.again.clear()
    one.is_halted = True
    assert not one.needs_renewal


def test_small_groups_gather_while_two_are_under_way() -> None:
    one = line(group(), group())
    assert one.next_batch() is not None
    assert one.next_batch() is not None
    one.waiting.extend([group() for _ in range(31)])
    assert not one.may_send
    one.waiting.append(group())
    assert one.may_send
    assert one.next_batch() is not None
    assert not one.may_send
    one.waiting.append(group(size=4095))
    assert not one.may_send
    one.waiting.append(group(size=4096))
    assert one.may_send


def test_exactly_as_many_bytes_as_allowed_fill_the_line() -> None:
    one = line(group(size=100), group(size=5), limit=100)
    assert one.next_batch() is not None
    assert not one.may_send


@pytest.mark.parametrize(("waiting", "taken"), [(4, 4), (5, 2)])
def test_what_fits_goes_in_one_multi_and_more_in_multis_of_half_the_limit(waiting, taken):
    one = line(*(group(size=10) for _ in range(waiting)), max_ops=99, max_bytes=40, limit=42)
    assert len(one.next_batch().groups) == taken


def test_what_is_applied_gives_its_bytes_back_and_tells_how_much_may_be_under_way() -> None:
    one = line(*(group(size=60_000) for _ in range(3)), max_bytes=100_000)
    known = one.limit = InFlightLimit(100_000, (0.5,) * 5)
    first, second = one.next_batch(), one.next_batch()
    assert None not in (first, second)
    assert not one.may_send
    first.sent_s = 3.0
    answered(first, ["guard", 1])
    assert one.take_applied(5.0) == [first]
    assert one.limit == known.after(3.0, 5.0, 60_000) != known
    assert one.may_send


def test_all_is_given_up_in_its_order() -> None:
    one, flight = failed_line(ConnectionLost("x"), None)
    one.is_halted = True
    again, waiting = PackedMulti(2, [group()]), group()
    one.again.append(again)
    one.waiting.append(waiting)
    one.is_halted = False
    assert one.empty() == ([*flight, again], [waiting])
    assert (one.empty(), one.is_halted, one.withdraw(bool)) == (([], []), True, [])


def test_a_large_multi_is_pushed_out_by_as_many_small_ones_as_it_holds_times_the_limit() -> None:
    one = line(group(size=2500))
    batches = [one.next_batch() for _ in range(4)]
    sizes = [None if batch is None else len(batch.groups) for batch in batches]
    assert sizes == [1, 0, 0, None]


def test_what_has_to_be_sent_again_waits_for_room_and_goes_first() -> None:
    one = line(group(), limit=10)
    assert one.next_batch() is not None
    again = PackedMulti(5, [group()])
    again.status, again.error = MultiStatus.UNKNOWN, ConnectionLost("x")
    one.again.append(again)
    assert not one.may_send
    one.flight.clear()
    one._under_way = one._bytes = 0
    one.number = module.RENEW_AT
    one._small_due = 1
    assert one.next_batch() is again
    assert (again.status, again.error, one.number) == (None, None, module.RENEW_AT)
    assert one._small_due == 1


def failed_line(*errors: LeaderqError | None) -> tuple[SendQueue, list[PackedMulti]]:
    """Batches under way with these answers; nothing else waits."""
    one = line(*(group(2) for _ in errors))
    batches = []
    for error in errors:
        one._under_way = 0
        batch = one.next_batch()
        assert batch is not None
        batches.append(batch)
        if error is not None:
            answered(batch, error)
    return one, batches


def test_nothing_has_failed_until_all_is_answered_and_the_line_halted() -> None:
    one, batches = failed_line(NodeExists("x", index=1), None)
    one.is_halted = True
    assert one.take_failed() == []
    answered(batches[1], BadVersion("x", index=0))
    one.is_halted = False
    assert one.take_failed() == []
    one.is_halted = True
    assert one.take_failed() == batches
    assert not one.flight
    one.is_halted = False
    one.waiting.append(group())
    assert one.may_send


def test_a_refused_batch_is_blamed_if_all_is_answered_and_all_behind_it_wait_again() -> None:
    one, failed = failed_line(NodeExists("x", index=1), ConnectionLost("x"))
    one.again.append(later := PackedMulti(2, [group()]))
    assert one.blame(failed) is None
    assert not one.waiting
    failed[1].status = MultiStatus.NOT_NOW
    assert one.blame(failed) is failed[0]
    assert [each for batch in (*failed, later) for each in batch.groups] == list(one.waiting)
    assert (one.number, list(one.again)) == (0, [])


@pytest.mark.parametrize(
    ("error", "is_doubtful", "is_blamed"),
    [
        (NodeExists("x", index=1), False, True),
        (NodeExists("x", index=1), True, True),
        (NodeExists("x"), False, True),
        (NodeExists("x"), True, False),
        (BadVersion("x", index=0), False, False),
        (ConnectionLost("x"), False, False),
        (errors.AccessRefused("x"), True, False),
    ],
)
def test_a_batch_is_blamed_only_if_no_former_try_can_have_been_applied(
    error: LeaderqError, is_doubtful: bool, is_blamed: bool
) -> None:
    one, batches = failed_line(error)
    batches[0].is_doubtful = is_doubtful
    one.is_halted = True
    blamed = one.blame(one.take_failed())
    assert (blamed is batches[0]) == is_blamed
    assert bool(one.waiting) == is_blamed


def aside(*marks: tuple[int, bool]) -> tuple[SendQueue, list[PackedMulti]]:
    one, batches = line(), []
    for number, is_doubtful in marks:
        batches.append(PackedMulti(number, [group()]))
        batches[-1].is_doubtful = is_doubtful
    one.again.extend(batches)
    one.number = 99
    return one, batches


@pytest.mark.parametrize(("doubtful", "kept"), [((), 0), ((1,), 2), ((0, 2), 3), ((3,), 4)])
def test_all_up_to_the_last_doubtful_batch_is_set_aside(doubtful, kept):
    one, everything = aside(*((number, number in doubtful) for number in range(4)))
    one.again = deque(everything[3:])
    one.set_aside(everything[:3])
    assert list(one.again) == everything[:kept]
    assert list(one.waiting) == [each for batch in everything[kept:] for each in batch.groups]
    assert one.number == (kept if kept < 4 else 99)


@pytest.mark.parametrize(
    ("version", "is_new"),
    [
        (4, True),
        (2, False),  # below the first that is left: the count went back
        (6, False),  # above one that cannot have been applied: somebody else wrote on the guard
        (5, False),
    ],
)
def test_where_somebody_else_wrote_on_the_guard_nothing_is_taken_for_applied(version, is_new):
    one, batches = aside((3, True), (4, False), (5, True))
    applied, lost = one.reconcile(version, is_new=is_new)
    assert (applied, lost) == ([], [batches[0], batches[2]])
    assert list(one.waiting) == batches[1].groups
    assert (list(one.again), one.number) == ([], version)


class Heard(OperationGroup):
    def __init__(self, name: str, count: int = 1) -> None:
        creates = [Create(f"/{name}{number}", b"x") for number in range(count)]
        super().__init__(creates, 100 * count, self.hear)
        self.name = name
        self.news: list[Any] = []

    def hear(self, groups: list[OperationGroup], error: LeaderqError | None) -> None:
        assert groups == [self]
        self.news.append(error or self.results)


def answer(batch: PackedMulti, error: LeaderqError | None = None) -> None:
    paths = [op.path for group in batch.groups for op in group.operations]
    answered(batch, error or ["guard", *paths])


@pytest.mark.parametrize(
    "error, fate",
    [
        (errors.SessionExpired("x"), MultiStatus.UNKNOWN),
        (BadVersion("x", index=0), MultiStatus.NOT_NOW),
        (NoNode("x", index=0), MultiStatus.NOT_NOW),
        (NoNode("x", index=1), MultiStatus.REFUSED),
        (NodeExists("x", index=0), MultiStatus.REFUSED),
    ],
)
def test_an_error_says_what_became_of_the_multi(error, fate):
    assert module.status_of(error) is fate


def test_who_waits_for_several_groups_of_a_multi_hears_of_them_in_one_call():
    calls: list[Any] = []

    def hear(groups: list[OperationGroup], error: LeaderqError | None) -> None:
        calls.append(([(one, one.results) for one in groups], error))

    first, second = (OperationGroup([Create(path)], 10, hear) for path in ("/a", "/b"))
    other = Heard("c", 2)
    batch = PackedMulti(0, [first, second, other])
    answer(batch)
    batch.settle()
    assert calls == [([(first, ["/a"]), (second, ["/b"])], None)]
    assert other.news == [["/c0", "/c1"]]


def test_what_hears_may_fail_and_others_hear_all_the_same(caplog):
    class Bad(Heard):
        def hear(self, *_: Any) -> None:
            raise ValueError("boom")

    good = Heard("b", 2)
    batch = PackedMulti(7, [Bad("a"), good])
    creates = [Create(path, b"x") for path in ("/a0", "/b0", "/b1")]
    assert batch.operations("/guard") == [SetData("/guard", b"", 7), *creates]
    answer(batch)
    batch.settle()
    assert good.news == [["/b0", "/b1"]]
    assert (batch.size, "boom" in caplog.text) == (300, True)


class Server:
    """Applies multis as ZooKeeper does; after a fault out of reach until the round is over."""

    def __init__(self, bad: set[str]) -> None:
        self.bad = bad
        self.version = 0
        self.applied: list[str] = []
        self.is_cut = self.is_reached = False

    def serve(self, batch: PackedMulti, fault: str) -> LeaderqError | None:
        if not self.is_cut:
            self.is_cut = bool(fault)
            self.is_reached = fault in ("", "reply")
        elif fault != "reply":  # whatever is sent behind is not read, once something was not
            self.is_reached = False
        answer = self._apply(batch) if self.is_reached else None
        if self.is_cut:
            return errors.NotConnected("gone") if fault == "unsent" else ConnectionLost("cut")
        return answer

    def _apply(self, batch: PackedMulti) -> LeaderqError | None:
        if batch.number != self.version:
            return BadVersion("behind", index=0)
        for at, group in enumerate(batch.groups, 1):
            if group.name in self.bad:
                return NodeExists("there", index=at)
        self.version += 1
        self.applied += [group.name for group in batch.groups]
        return None


def after_trouble(one: SendQueue, server: Server, failed: list[PackedMulti]) -> list[PackedMulti]:
    """What a tally does once all is answered; gives the batches that turned out to be applied."""
    blamed = one.blame(failed)
    if blamed is not None:
        culprit, _ = blamed.culprit()
        assert culprit.name in server.bad
        assert one.withdraw(lambda group: group is culprit) == [culprit]
        return []
    one.set_aside(failed)
    return one.reconcile(server.version, is_new=False)[0]


def one_round(one: SendQueue, server: Server, fault: Any) -> list[PackedMulti]:
    batches = []
    while (batch := one.next_batch()) is not None:
        batches.append(batch)
    for batch in batches:
        batch.sent_s = 0.0
        outcome = server.serve(batch, fault())
        answer(batch, outcome)
        one.is_halted = one.is_halted or outcome is not None
    done = one.take_applied(0.0)
    failed = one.take_failed()
    if failed:
        done += after_trouble(one, server, failed)
    one.is_halted = server.is_cut = False
    return done


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_whatever_answers_are_lost_each_group_is_applied_once_and_in_order(data):
    names = [f"{number}" for number in range(data.draw(st.integers(1, 12)))]
    one = line(
        *map(Heard, names),
        max_ops=data.draw(st.integers(2, 5)),
        limit=data.draw(st.sampled_from([1, 200, 500, 1e6])),
        max_bytes=data.draw(st.sampled_from([40, 100_000])),  # 40: small multis behind each
    )
    server = Server(set(data.draw(st.lists(st.sampled_from(names), max_size=2))))
    told: list[str] = []
    for turn in range(100):
        faults = ["", "", "reply", "request", "unsent"] if turn < 40 else [""]
        done = one_round(one, server, partial(data.draw, st.sampled_from(faults)))
        told += [group.name for batch in done for group in batch.groups]
    assert server.applied == told == [name for name in names if name not in server.bad]


def test_the_version_of_the_guard_tells_which_were_applied() -> None:
    one, batches = aside((3, True), (4, True), (5, True))
    assert one.reconcile(4, is_new=False) == (batches[:1], [])
    assert batches[0].groups[0].results is None  # the answer was lost
    assert (list(one.again), one.number) == (batches[1:], 6)
    one, batches = aside((3, True), (4, True))
    assert one.reconcile(5, is_new=False) == (batches, [])
    assert (list(one.again), one.number) == ([], 5)
    one, batches = aside((3, True), (4, False))
    assert one.reconcile(3, is_new=False) == ([], [])
    assert (list(one.again), one.number) == (batches, 5)
    one, _ = aside()
    assert one.reconcile(7, is_new=False) == ([], [])
    assert one.number == 7


def test_what_whoever_is_told_raises_reaches_nobody_else_unless_it_is_ctrl_c(caplog) -> None:
    class Rude(BaseException): ...

    heard: list[Any] = []

    def raising(_groups: list[OperationGroup], error: Any) -> None:
        raise error

    def telling(error: BaseException) -> None:
        groups = [OperationGroup([Delete("/a")], 1, told) for told in (raising, heard.append)]
        groups[1].told = lambda some, _error: heard.extend(some)
        module.tell(groups, error)  # type: ignore[arg-type]

    for error in (ValueError(), Rude()):
        telling(error)
    assert (len(heard), caplog.text.count("callback of writes failed")) == (2, 2)
    with pytest.raises(KeyboardInterrupt):
        telling(KeyboardInterrupt())
    assert len(heard) == 2
