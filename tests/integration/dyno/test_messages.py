"""Pushing, popping and settling on a real server; ids of one's own; the same on asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from leaderq.base import clock
from leaderq.dyno import (
    AsyncDynoQueue,
    Duplicate,
    DynoQueue,
    Message,
    OnConflict,
    Unique,
)
from leaderq.testing import eventually
from leaderq.zookeeper import Session

Open = Callable[..., Session]


def texts(deliveries: list) -> list[str]:
    return [one.payload.decode() for one in deliveries]


def test_what_a_dead_consumer_had_passes_to_another_before_its_deadline(opened: Open) -> None:
    with DynoQueue(opened(), "/d", lease_s=600) as first, DynoQueue(opened(), "/d") as second:
        first.push(Message(payload=b"one"))
        assert first.pop(1, 5)
        assert second.pop(1) == []
        first._session.close()
        assert texts(second.pop(1, 30)) == ["one"]


D = "/d"
DROP, RAISE, REPLACE = OnConflict.DROP, OnConflict.RAISE, OnConflict.REPLACE
EMPTY = {"0": {"messages": 0, "resting": 0, "leased": 0, "dead": 0}}


def one_of(payload: bytes, **options: object) -> Message:
    return Message(id="a", payload=payload, **options)  # type: ignore[arg-type]


def test_a_conflict_drops_raises_or_replaces_and_names_the_survivor(session: Session) -> None:
    with DynoQueue(session, D) as queue:
        first = queue.push_unique(one_of(b"1"))
        assert first.is_new
        dropped = queue.push_unique(one_of(b"2"), DROP)
        assert (dropped.is_new, dropped.surviving) == (False, first.surviving)
        with pytest.raises(Duplicate) as raised:
            queue.push_unique(one_of(b"3"), RAISE)
        assert raised.value.surviving == first.surviving
        replaced = queue.push_unique(one_of(b"4", priority=7), REPLACE)
        assert (replaced.is_new, replaced.replaced) == (True, first.surviving)
        assert [(one.payload, one.priority) for one in queue.all_messages()] == [(b"4", 7)]
        (one,) = queue.pop(2, 1)
        assert one.payload == b"4"
        with pytest.raises(Duplicate):  # it is in flight
            queue.push_unique(one_of(b"5"), REPLACE)
        one.postpone(3600)
        queue.push_unique(one_of(b"6"), REPLACE)  # it only rests
        (one,) = queue.pop(1, 30)
        assert one.payload == b"6"
        one.ack()
        assert queue.shard_sizes() == EMPTY
        assert session.children(f"{D}/ids") == []


@pytest.mark.parametrize("end", ["ack", "kill", "remove", "release"])
def test_an_id_that_is_its_own_until_started_is_free_from_the_first_delivery_on(
    session: Session, end: str
) -> None:
    with DynoQueue(session, D) as queue:
        queue.push(one_of(b"1", unique=Unique.STARTED))
        assert not queue.ensure(one_of(b"2"))
        (one,) = queue.pop(1, 30)
        assert queue.ensure(one_of(b"3"))
        if end == "remove":
            queue.remove(f"0/{one.name}")
        else:
            getattr(one, end)()
        assert not queue.ensure(one_of(b"4")), "the end of the first took the id from the second"
        found = queue.get("a")
        assert found is not None
        assert found.payload == b"3"


def test_messages_are_pushed_popped_and_settled_on_asyncio(session: Session) -> None:
    async def main() -> None:
        async with AsyncDynoQueue(DynoQueue(session, "/d")) as queue:
            await queue.push([Message(payload=b"1"), Message(payload=b"2")])
            seen = []
            async for one in queue:
                async with one:
                    seen.append(await one.payload())
                if len(seen) == 2:
                    break
            assert seen == [b"1", b"2"]
            assert await queue.pop(1) == []
            assert await queue.run(DynoQueue.size) == 0

    asyncio.run(main())


def test_what_is_cleared_by_age_goes_by_when_it_was_first_pushed(session: Session) -> None:
    hours_ago = 2 * 3600 * 1000
    with (
        DynoQueue(session, D) as queue,
        DynoQueue(session, D, now_ms=lambda: clock.now_ms() - hours_ago) as former,
    ):
        former.push(one_of(b"old"))
        queue.push(Message(payload=b"new"))
        unreadable = queue._paths.shard("0").message("50-1700000000000-00000000-")
        session.create(unreadable, b"odd", sequential=True)
        assert queue.clear(older_s=3600) == 1
        assert queue.get("a") is None
        assert queue.ensure(one_of(b"again"))
        assert {one.payload for one in queue.all_messages()} == {b"again", b"new"}
        assert queue.clear() == 3


@pytest.mark.parametrize("is_closed", [False, True])
def test_what_was_taken_out_and_not_used_goes_back_as_it_was(opened: Open, is_closed: bool) -> None:
    with DynoQueue(opened(), D) as queue, DynoQueue(opened(), D) as drain:
        queue.push([Message(payload=b"now"), Message(id="later", timeout_s=3600)])
        (failed,) = queue.pop(1, 30)
        failed.nack("no", delay_s=3600)
        places = [one.place for one in queue.all_messages()]
        taken = drain.take_out([*places, "0/50-1700000000000-00000000-0000000099"])
        assert {one.place for one in taken} == set(places)
        assert queue.shard_sizes()["0"]["leased"] == 2
        assert queue.take_out(places) == []
        if is_closed:
            drain.close()
        else:
            drain.put_back(taken)
        eventually(lambda: queue.shard_sizes()["0"]["leased"] == 0)
        assert queue.pop(2) == []
        assert queue.set_timeout("later", 0)
        assert queue.set_timeout(failed.place, 0)
        again = sorted(queue.pop(2, 30, least=2), key=lambda one: one.failures)
        assert [(one.deliveries, one.failures) for one in again] == [(1, 0), (2, 1)]
