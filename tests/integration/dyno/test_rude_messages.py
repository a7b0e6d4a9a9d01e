"""Dyno queues under rude users, operators with a shell, forks, and unreachable servers."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl

from leaderq.dyno import (
    Delivery,
    DynoQueue,
    FixedShards,
    Kill,
    Message,
    Postpone,
    StaleLease,
    Worker,
)
from leaderq.dyno import queue as dyno_queue
from leaderq.errors import (
    BadVersion,
    ConfigurationError,
    LeaderqError,
    NodeExists,
    NoNode,
    NoPermission,
    QueueClosed,
    SessionClosed,
    TooLarge,
)
from leaderq.queues import RetryPolicy
from leaderq.testing import eventually
from leaderq.zookeeper import Check, Create, Operation, Session, SetData, connect

Open = Callable[..., Session]
D = "/d"
SHARD = f"{D}/shards/0"
NOTHING = {"0": {"messages": 0, "resting": 0, "leased": 0, "dead": 0}}
QUICK = RetryPolicy(attempts=3, backoff_s=0.01)


def popped(queue: DynoQueue) -> Delivery:
    (one,) = queue.pop(1, 30)
    return one


# -- what was taken away or put there by hand -----------------------------------------------------


@pytest.mark.parametrize("how", ["ack", "kill", "remove", "clear"])
def test_a_message_whose_id_was_deleted_by_hand_can_be_settled(session: Session, how: str) -> None:
    with DynoQueue(session, D) as queue:
        queue.push([Message(id="a"), Message(id="b")])
        session.delete(f"{D}/ids/a")
        one = popped(queue)
        if how == "clear":
            assert queue.clear() == 2
        elif how == "remove":
            assert queue.remove(f"0/{one.name}")
        else:
            getattr(one, how)()
        for rest in queue.pop(1):
            assert queue.ack([rest]) == [None]
        sizes = queue.shard_sizes()["0"]
        assert (sizes["messages"], sizes["leased"], sizes["dead"]) == (0, 0, int(how == "kill"))


def test_a_message_whose_marker_was_deleted_by_hand_can_be_removed_and_comes_again(
    session: Session,
) -> None:
    with DynoQueue(session, D) as queue:
        queue.push([Message(id="a"), Message(id="b")])
        for one in queue.pop(2, 30):
            one.postpone(1)
        for marker in session.children(f"{SHARD}/rests"):
            session.delete(f"{SHARD}/rests/{marker}")
        assert queue.remove("a")
        again = popped(queue)
        assert (again.id, again.failures) == ("b", 0)


def test_a_message_whose_claim_was_deleted_by_hand_comes_again(session: Session) -> None:
    with DynoQueue(session, D) as queue:
        queue.push(Message(id="a"))
        one = popped(queue)
        session.delete(f"{SHARD}/claims/{one.name}")
        with pytest.raises(StaleLease):
            one.ack()
        popped(queue).ack()
        assert queue.shard_sizes() == NOTHING


def test_znodes_that_are_not_ours_are_not_delivered_and_stop_nobody(session: Session) -> None:
    with DynoQueue(session, D) as queue:
        queue.push(Message(payload=b"good", priority=9))
        for parent in ("messages", "claims", "rests", "dead"):
            for name in (
                "x",
                "00-1700000000000-0000000g-0000000001",
                "\u0660\u0660-1700000000000-00000000-0000000001",
            ):
                session.create(f"{SHARD}/{parent}/{name}", b"{")
        bad = [
            b"",
            b"\x00" * 9,
            b"DQ1\n\xff\xff\xff\xff",
            b"DQ1\n\0\0\0\x0c" + b'{"at":1e999}',
            b"DQ1\n\0\0\0\x0f" + b'{"headers":[1]}',
        ]
        for number, data in enumerate(bad):
            session.create(f"{SHARD}/messages/00-1700000000000-00000000-00000001{number:02}", data)
        session.create(
            f"{SHARD}/dead/00-1700000000000-00000000-0000000300", b'DQD1\n{"name":"../../x"}\n'
        )
        assert popped(queue).payload == b"good"
        eventually(lambda: queue.pop(1) == [] and queue.shard_sizes()["0"]["dead"] == 4 + len(bad))
        assert {letter.reason for letter in queue.dead_letters.browse()} == {"corrupt"}
        assert queue.dead_letters.purge() == len(bad)
        assert queue.peek(9) == [] and queue.get("nobody") is None


def test_a_pop_that_does_not_wait_returns_what_lies_behind_one_that_cannot_be_read(
    session: Session,
) -> None:
    with DynoQueue(session, D) as queue:
        queue.push(Message(payload=b"good", priority=9))
        for number in range(3):
            session.create(f"{SHARD}/messages/00-1700000000000-00000000-000000010{number}", b"bad")
        eventually(lambda: len(queue.peek(4)) == 1 and len(queue._consumer.views["0"].index) == 4)
        assert [one.payload for one in queue.pop(1, 0)] == [b"good"]


def test_a_claim_that_cannot_be_read_is_a_lease_that_is_over(session: Session) -> None:
    with DynoQueue(session, D) as queue:
        queue.push([Message(payload=b"%d" % number) for number in range(2)])
        for name, data in zip(
            session.children(f"{SHARD}/messages"), (b'{"n":1e999}', b"[]"), strict=True
        ):
            session.create(f"{SHARD}/claims/{name}", data)
        assert len(queue.pop(2, 30)) == 2


def test_a_queue_that_is_deleted_while_it_is_used_begins_again(session: Session) -> None:
    with DynoQueue(session, D, name="first") as queue:
        queue.push(Message(payload=b"1"))
        popped(queue).ack()
        for part in ("messages", "claims", "rests", "dead"):
            session.delete(f"{SHARD}/{part}")
        queue.push(Message(payload=b"2"))
        popped(queue).ack()
        popped_none = queue.pop(1)
        assert popped_none == []


def test_a_queue_that_may_not_claim_says_so_and_does_not_spin(
    zookeeper_server, znode_root: str, session: Session
) -> None:
    with DynoQueue(session, D) as queue:
        queue.push(Message(payload=b"1"))
        operator = KazooClient(zookeeper_server.address)
        operator.start()
        operator.set_acls(f"{znode_root}{SHARD}/claims", [make_acl("world", "anyone", read=True)])
        operator.stop()
        operator.close()
        with pytest.raises(NoPermission):
            queue.pop(1, 30)


# -- rude users -----------------------------------------------------------------------------------


def test_times_and_texts_that_cannot_be_are_refused_where_they_are_given(session: Session) -> None:
    for wrong in (-1, float("nan"), float("inf"), True, "1"):
        with pytest.raises(ConfigurationError):
            Message(timeout_s=wrong)
        with pytest.raises(ConfigurationError):
            DynoQueue(session, D, lease_s=wrong)
    for text in ({"id": "\ud800"}, {"headers": {"a": "\ud800"}}, {"group": "\ud800"}):
        with pytest.raises(ConfigurationError):
            Message(**text)
    options: list[dict[str, Any]] = [
        {"retry": 3},
        {"body_store": 5},
        {"ageing_s": "x"},
        {"ageing_s": -1},
        {"shards": ()},
    ]
    for option in options:
        with pytest.raises(ConfigurationError):
            DynoQueue(session, D, **option)
    for root in ("", "/", "d", "/d/", "/d/../e", "/d\0"):
        with pytest.raises(ConfigurationError, match="znode path"):
            DynoQueue(session, root)
    for field in (
        {"headers": []},
        {"headers": {"a": 1}},
        {"group": ""},
        {"shard": 1},
        {"payload": "text"},
    ):
        with pytest.raises(ConfigurationError):
            Message(**field)
    with DynoQueue(session, D, shards="one") as queue:
        assert queue.push(Message(payload=b"1"))[0].startswith("one/")
        wrong_calls: list[Callable[[], object]] = [
            lambda: queue.push("abc"),  # type: ignore[arg-type]
            lambda: queue.pop(1.5),  # type: ignore[arg-type]
            lambda: queue.pop("1"),  # type: ignore[arg-type]
            lambda: queue.pop(1, least="1"),  # type: ignore[arg-type]
            lambda: queue.ack([None]),  # type: ignore[list-item]
            lambda: queue.keep(["a"]),  # type: ignore[list-item]
            lambda: queue.let_go([5]),  # type: ignore[list-item]
        ]
        for call in wrong_calls:
            with pytest.raises(ConfigurationError):
                call()
        assert queue.get("\ud800") is None
        assert queue.size() == 1
        one = popped(queue)
        for refused in (
            lambda: one.postpone(-1),
            lambda: one.extend(float("inf")),
            lambda: one.nack(delay_s=float("nan")),
        ):
            with pytest.raises(ConfigurationError):
                refused()
        one.ack()


def test_an_iterable_that_fails_midway_pushes_nothing(session: Session) -> None:
    def lazy() -> Iterator[Message]:
        yield Message(payload=b"1")
        raise ValueError("midway")

    with DynoQueue(session, D) as queue:
        with pytest.raises(ValueError, match="midway"):
            queue.push(lazy())
        assert queue.size() == 0


def test_a_message_that_could_not_become_a_dead_letter_is_not_pushed(session: Session) -> None:
    with DynoQueue(session, D, retry=RetryPolicy(attempts=1)) as queue:
        room = session.max_request_bytes - 16 * 1024
        with pytest.raises(TooLarge):
            queue.push(Message(payload=b"x" * room))
        queue.push(Message(id="i" * 200, payload=b"x" * (room - 1000)))
        popped(queue).nack("é" * 100_000)
        assert queue.shard_sizes()["0"]["dead"] == 1


def test_acknowledging_one_delivery_twice_or_that_of_another_queue_changes_nothing(
    opened: Open,
) -> None:
    with DynoQueue(opened(), D) as queue, DynoQueue(opened(), "/other") as other:
        queue.push([Message(payload=b"1"), Message(payload=b"2")])
        one, two = queue.pop(2, 30)
        outcomes = queue.ack([one, one, two])
        assert outcomes[0] is outcomes[2] is None
        assert isinstance(outcomes[1], StaleLease)
        other.push(Message(payload=b"3"))
        with pytest.raises(ConfigurationError):
            queue.ack(other.pop(1, 30))
        assert other.shard_sizes()["0"]["leased"] == 1


def test_a_receipt_is_redeemed_once_and_by_whoever_has_it(opened: Open) -> None:
    with DynoQueue(opened(), D) as queue, DynoQueue(opened(), D) as other:
        queue.push(Message(id="a", payload=b"1"))
        mine = popped(queue)
        theirs = other.redeem(str(mine.receipt))
        assert (theirs.id, theirs.payload, theirs.deliveries, theirs.until_ms) == (
            "a",
            b"1",
            1,
            mine.until_ms,
        )
        theirs.extend(60)
        for stale in (mine.ack, lambda: queue.redeem(mine.receipt)):
            with pytest.raises(StaleLease):
                stale()
        receipt = theirs.receipt
        theirs.release()
        with pytest.raises(StaleLease):
            other.redeem(receipt)
        for wrong in ("", "0", "0/x/1", "0/00-1700000000000-00000000-0000000000/-1"):
            with pytest.raises(ConfigurationError):
                other.redeem(wrong)


def test_a_result_is_written_with_the_acknowledgement_or_neither(session: Session) -> None:
    session.ensure_path("/own/ids")
    session.create("/own/term", b"7")
    with DynoQueue(session, D) as queue:
        queue.push(Message(id="a"))
        one = popped(queue)
        refused: list[tuple[Operation, type[LeaderqError]]] = [
            (Check("/own/term", 3), BadVersion),
            (Create("/own/term"), NodeExists),
            (SetData("/own/ids/gone", b""), NoNode),
        ]
        for operation, error in refused:
            with pytest.raises(error):
                one.ack([Create("/own/result"), operation])
            assert session.exists("/own/result") is None
            assert queue.shard_sizes()["0"]["leased"] == 1
        one.ack([Create("/own/result", b"done"), Check("/own/term", 0)])
        assert session.get("/own/result")[0] == b"done"
        assert queue.shard_sizes() == NOTHING
        with pytest.raises(StaleLease):
            one.ack([Create("/own/other")])
        assert session.exists("/own/other") is None


def test_acknowledging_many_does_not_lose_to_a_heartbeat(session: Session) -> None:
    with DynoQueue(session, D) as queue:
        queue.push(Message(payload=b"1"))
        one = popped(queue)
        outcomes: list[object] = []
        with one.lock:  # as a heartbeat holds it
            acknowledging = threading.Thread(target=lambda: outcomes.extend(queue.ack([one])))
            acknowledging.start()
            time.sleep(0.2)  # time enough to go wrong
            assert queue._consumer.extend_all([(one, 60.0)]) == {one: None}
        acknowledging.join(30)
        assert outcomes == [None]
        assert queue.shard_sizes() == NOTHING


def test_a_lease_that_nobody_settles_passes_to_the_same_consumer_too(session: Session) -> None:
    with DynoQueue(session, D, lease_s=0.2) as queue:
        queue.push(Message(payload=b"1"))
        hung = popped(queue)
        again = popped(queue)
        assert (again.deliveries, again.failures) == (2, 1)
        with pytest.raises(StaleLease):
            hung.ack()
        again.ack()


def test_a_lease_that_is_shortened_ends_in_time_and_one_of_0_s_is_released(
    session: Session,
) -> None:
    with DynoQueue(session, D, lease_s=600) as queue:
        queue.push(Message(payload=b"1"))
        popped(queue).extend(0.3)
        again = popped(queue)
        assert (again.deliveries, again.failures) == (2, 1)
        again.extend(0)
        last = popped(queue)
        assert (last.deliveries, last.failures) == (3, 1)


def test_the_lease_of_one_who_has_just_come_is_not_taken_for_that_of_one_who_has_gone(
    opened: Open,
) -> None:
    with DynoQueue(opened(), D) as old, DynoQueue(opened(), D) as new:
        new.push(Message(payload=b"1"))
        held = popped(new)
        consumer = old._consumer
        eventually(lambda: old.pop(1) == [] and len(consumer.views["0"].index) == 1)
        eventually(lambda: old.process_unacks() == 0 and len(consumer._members) == 2)
        # As it is when one has gone, and the other has come since then:
        consumer._members, consumer._members_stale, consumer._has_lost_member = (
            frozenset(),
            False,
            True,
        )
        assert old.process_unacks() == 0
        assert old.pop(1) == []
        held.ack()


def test_who_meets_another_consumer_is_not_refused_message_by_message(opened: Open) -> None:
    with DynoQueue(session := opened(), D) as late, DynoQueue(opened(), D) as other:
        late.push([Message(payload=b"%d" % number) for number in range(50)])
        late.process_unacks()
        assert len(late.peek(50)) == 50
        sent: list[object] = []
        send = session.multi_async
        with late._consumer._looking:  # so that it does not learn of these claims
            assert len(other.pop(50, 30)) == 50
            session.multi_async = lambda *given, **how: (sent.append(given), send(*given, **how))[1]  # type: ignore[method-assign]
            assert late.pop(50, 0) == []
        assert len(sent) <= 10


def test_a_shard_whose_consumer_hangs_is_served_although_the_own_one_has_something(
    opened: Open,
) -> None:
    mine, others = FixedShards("a", "b", current="a"), FixedShards("a", "b", current="b")
    with (
        DynoQueue(opened(), D, shards=mine) as queue,
        DynoQueue(opened(), D, shards=others) as hanging,
    ):
        hanging.process_unacks()
        queue.push([Message(payload=b"1", shard="a"), Message(payload=b"2", shard="b")])
        eventually(lambda: len(queue.peek(2)) == 2)
        assert [one.payload for one in queue.pop(9, 30, least=1)] == [b"1", b"2"]


def test_a_consumer_that_closes_has_failed_at_nothing(opened: Open) -> None:
    with DynoQueue(opened(), D) as other:
        other.push([Message(payload=b"1"), Message(payload=b"2")])
        with DynoQueue(opened(), D) as leaving:
            assert len(leaving.pop(2, 30)) == 2
        assert [(one.deliveries, one.failures) for one in other.pop(2, 30)] == [(2, 0), (2, 0)]


def test_a_block_that_raises_is_heard_even_if_its_lease_was_lost(session: Session) -> None:
    with DynoQueue(session, D) as queue:
        queue.push(Message(id="a"))
        with pytest.raises(ValueError, match="mine"), popped(queue):
            queue.remove("a")
            raise ValueError("mine")


def test_queues_with_different_shards_on_one_root_lose_nothing(opened: Open) -> None:
    with (
        DynoQueue(opened(), D, shards=("a", "b")) as both,
        DynoQueue(opened(), D, shards=("b", "c")) as others,
    ):
        both.push([Message(id="in a", shard="a"), Message(id="in b", shard="b")])
        others.push(Message(id="in c", shard="c"))
        assert others.pop_id("in a") is None
        assert others.get("in a") is not None
        assert others.set_timeout("in a", 0)
        assert others.remove("in a")
        assert {one.id for one in others.pop(2, 30)} == {"in b", "in c"}
        assert both.pop(1) == []


def test_what_was_sent_back_is_found_by_its_id(session: Session) -> None:
    with DynoQueue(session, D) as queue:
        (id,) = queue.push(Message(payload=b"1"))
        popped(queue).kill()
        assert queue.dead_letters.redrive() == 1
        found = queue.get(id)
        assert found is not None
        assert found.id == id
        assert queue.remove(id)


def test_an_id_that_is_pushed_again_is_found_whatever_was_noted_late(session: Session) -> None:
    with DynoQueue(session, D) as queue:
        queue.push(Message(id="a", payload=b"1"))
        popped(queue).ack()
        queue.push(Message(id="a", payload=b"2"))
        # of the first, noted too late
        session.set(f"{D}/ids/a", b"0/00-1700000000000-00000000-0000000000")
        found = queue.get("a")
        assert found is not None
        assert found.payload == b"2"
        assert queue.remove("a")


@pytest.mark.parametrize("how", ["remove", "finish", "clear"])
def test_a_message_that_is_first_delivered_while_it_is_removed_leaves_no_claim_over(
    opened: Open, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    with DynoQueue(opened(), D) as queue, DynoQueue(opened(), D) as other:
        queue.push(Message(id="a"))
        read = dyno_queue.read_claims
        held: list[Delivery] = []

        def delivered_after(*args: Any) -> Any:
            found = read(*args)
            held.extend([] if held else [popped(other)])
            return found

        monkeypatch.setattr(dyno_queue, "read_claims", delivered_after)
        outcome = queue.clear() if how == "clear" else getattr(queue, how)("a")
        assert outcome == (how == "remove")  # which looks again, and takes it from its consumer
        if how == "remove":
            with pytest.raises(StaleLease):
                held[0].ack()
        else:
            held[0].ack()
        assert queue.find_stale() == []
        assert queue.shard_sizes() == NOTHING


def test_of_many_messages_those_that_cannot_be_pushed_say_so_and_the_others_are_there(
    session: Session,
) -> None:
    with DynoQueue(session, D) as queue:
        one, large, elsewhere, two = queue.push_each(
            [
                Message(id="1"),
                Message(payload=b"x" * 2_000_000),
                Message(shard="z"),
                Message(id="2"),
            ]
        )
        assert (one, two) == ("1", "2")
        assert (type(large), type(elsewhere)) == (TooLarge, ConfigurationError)
        with pytest.raises(TooLarge):
            queue.push([Message(payload=b"x" * 2_000_000), Message(id="3")])
        assert {message.id for message in queue.all_messages()} == {"1", "2", "3"}


# -- processes and connections --------------------------------------------------------------------


def test_a_queue_is_of_no_use_in_a_fork_and_does_not_hang_there(session: Session) -> None:
    with DynoQueue(session, D) as queue:
        queue.pop(1)
        pid = os.fork()
        if not pid:
            signal.alarm(20)
            try:
                queue.pop(1, None)
            except QueueClosed:
                os._exit(7)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


def test_a_pop_that_waits_ends_with_its_queue_or_its_session(opened: Open) -> None:
    for end, error in (
        (DynoQueue.close, QueueClosed),
        (lambda queue: queue._session.close(), SessionClosed),
    ):
        queue = DynoQueue(opened(), D)
        raised: list[type[BaseException]] = []

        def wait(queue: DynoQueue = queue, raised: list[type[BaseException]] = raised) -> None:
            try:
                queue.pop(1, None)
            except BaseException as exc:
                raised.append(type(exc))

        waiting = threading.Thread(target=wait)
        waiting.start()
        eventually(lambda queue=queue: bool(queue._consumer._members))
        end(queue)
        waiting.join(30)
        assert raised in ([error], [QueueClosed])
        with pytest.raises((QueueClosed, SessionClosed)):
            queue.pop(1)
        queue.close()


def test_a_pop_outlasts_an_outage_and_what_was_held_is_settled_after_it(
    zookeeper_server, znode_root: str, fault_proxy
) -> None:
    proxy = fault_proxy(zookeeper_server.address)
    with (
        connect(f"{proxy.address}{znode_root}", timeout_s=20) as session,
        connect(f"{zookeeper_server.address}{znode_root}") as other,
        DynoQueue(session, D) as queue,
        DynoQueue(other, D) as pushing,
    ):
        pushing.push([Message(payload=b"1"), Message(payload=b"2")])
        held = popped(queue)
        asked: list[int] = []
        pop_now = queue._consumer._pop_now
        queue._consumer._pop_now = lambda *given: (asked.append(1), pop_now(*given))[1]  # type: ignore[method-assign]
        proxy.refuse()
        found: list[Delivery] = []
        waiting = threading.Thread(target=lambda: found.extend(queue.pop(1, 60)))
        waiting.start()
        time.sleep(1.5)
        assert len(asked) < 50, "it asks again and again for what is due"
        proxy.heal()
        waiting.join(60)
        assert [one.payload for one in found] == [b"2"]
        held.ack()


# -- the Worker -----------------------------------------------------------------------------------


def raising(error: BaseException) -> Callable[[Delivery], None]:
    def act(_: Delivery) -> None:
        raise error

    return act


async def never(_: Delivery) -> None:
    raise AssertionError


def ack_and_raise(one: Delivery) -> None:
    one.ack()
    raise ValueError("late")


class Untold(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


ENDS: dict[str, tuple[Callable[[Delivery], object], int, str | None]] = {
    "it returns": (lambda _: None, 1, None),
    "exit": (raising(SystemExit(3)), 3, "attempts"),
    "interrupt": (raising(KeyboardInterrupt()), 3, "attempts"),
    "coroutine": (never, 3, "attempts"),
    "acknowledged": (Delivery.ack, 1, None),
    "acknowledged, then raised": (ack_and_raise, 1, None),
    "released": (Delivery.release, 2, None),
    "postponed to never": (lambda _: raising(Postpone(float("nan"))), 2, None),
    "postponed": (raising(Postpone(0.05)), 2, None),
    "killed": (raising(Kill("no good")), 1, "no good"),
    "untold": (raising(Untold()), 3, "attempts"),
    "not text": (raising(ValueError("\ud800")), 3, "attempts"),
    "never again": (raising(KeyError("bad")), 1, "KeyError: 'bad'"),
    "once more": (raising(TimeoutError()), 2, "attempts"),
}
"""What a handler does, how often it is called, and why the message is dead then."""


def test_a_worker_survives_every_way_in_which_a_handler_can_end(
    session: Session, caplog: pytest.LogCaptureFixture
) -> None:
    # pytest-xdist cannot pass on a log that is not text
    caplog.set_level(logging.CRITICAL, "leaderq.dyno.worker")
    calls: Counter[str] = Counter()

    def handle(one: Delivery) -> object:
        act, most, reason = ENDS[one.payload.decode()]
        calls[one.payload.decode()] += 1
        return None if reason is None and one.deliveries == most > 1 else act(one)

    with DynoQueue(session, D, retry=QUICK) as queue:
        queue.push([Message(payload=how.encode()) for how in ENDS])
        retry = {LookupError: None, OSError: RetryPolicy(attempts=2, backoff_s=0)}
        with Worker(queue, handle, threads=2, retry=retry):
            eventually(lambda: queue.shard_sizes()["0"]["messages"] == 0)
        dead = {
            letter.frame.payload.decode(): letter.reason for letter in queue.dead_letters.browse()
        }
        assert dead == {how: reason for how, (_, _, reason) in ENDS.items() if reason is not None}
        assert calls == {how: most for how, (_, most, _) in ENDS.items()}


def test_a_message_of_a_handler_that_hangs_passes_to_another_when_its_time_is_over(
    session: Session,
) -> None:
    hanging, done = threading.Event(), threading.Event()

    def handle(one: Delivery) -> None:
        if one.deliveries == 1:
            hanging.wait(60)
        else:
            done.set()

    with DynoQueue(session, D, lease_s=0.2) as queue:
        queue.push(Message(payload=b"1"))
        worker = Worker(queue, handle, threads=2, most_s=0.5)
        worker.start()
        assert done.wait(60)
        assert not worker.stop(0.1)  # one handler still hangs
        hanging.set()
        assert worker.stop(None)


def test_a_worker_asks_for_claims_and_members_no_more_often_when_it_works(session: Session) -> None:
    asked: list[str] = []
    children = session.children
    session.children = lambda path, *rest: (asked.append(path), children(path, *rest))[1]  # type: ignore[method-assign]
    with DynoQueue(session, D) as queue:
        queue.push([Message(payload=b"1") for _ in range(100)])
        began = time.monotonic()
        with Worker(queue, lambda _: None):
            eventually(lambda: queue.size() == 0)
        most = 4 + 2 * (time.monotonic() - began)
        assert asked.count(f"{SHARD}/claims") <= most
        assert asked.count(f"{D}/members") <= 2 * most


def test_a_worker_ends_with_its_queue_and_may_be_stopped_by_its_own_handler(
    session: Session,
) -> None:
    queue = DynoQueue(session, D)
    queue.push(Message(payload=b"1"))
    worker = Worker(queue, lambda _: worker.stop(5), threads=2)
    worker.start()
    eventually(lambda: not worker.is_running)
    assert queue.size() == 0
    another = Worker(queue, print)
    another.start()
    queue.close()
    eventually(lambda: not another.is_running)


def test_a_worker_refuses_what_it_cannot_use(session: Session) -> None:
    async def coroutine(one: Delivery) -> None: ...

    with DynoQueue(session, D) as queue:
        for wrong in (
            {"threads": 0},
            {"retry": {1: None}},
            {"retry": {OSError: 3}},
            {"most_s": -1},
            {"handler": coroutine},
            {"handler": 1},
        ):
            with pytest.raises(ConfigurationError):
                Worker(queue, **{"handler": print, **wrong})


# -- heartbeats -----------------------------------------------------------------------------------


def test_what_is_kept_stays_ours_and_its_end_is_told_before(opened: Open) -> None:
    """When exactly it is told: ``tests/unit/dyno/test_lease_keeper.py``."""
    told: list[Delivery] = []
    with DynoQueue(opened(), D, lease_s=0.4) as queue, DynoQueue(opened(), D) as other:
        queue.push(Message(payload=b"1"))
        one = popped(queue)
        queue.keep([one], most_s=2.0, ending=told.append, ending_s=0.3)
        (again,) = other.pop(1, 60)
        assert again.failures == 1
        eventually(lambda: told == [one])
        assert one.version >= 3, "it was not extended"


def test_the_end_of_a_lease_is_not_told_of_what_is_settled(session: Session) -> None:
    told: list[Delivery] = []
    with DynoQueue(session, D, lease_s=0.6) as queue:
        queue.push([Message(payload=b"1"), Message(payload=b"2")])
        one, two = queue.pop(2, 30)
        queue.keep([one, two], most_s=0, ending=told.append, ending_s=0.2)
        one.ack()
        eventually(lambda: bool(told))
        time.sleep(0.3)
        assert told == [two]
