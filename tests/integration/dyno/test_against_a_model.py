"""A Dyno queue on a real server beside a model in memory, with a clock that the test moves."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from leaderq.dyno import Delivery, DynoQueue, Message, StaleLease
from leaderq.queues import Retry
from leaderq.zookeeper import Session

LEASE_S = 10.0
ATTEMPTS = 3


@dataclass
class Kept:
    """A message of the model."""

    payload: bytes
    priority: int
    due_ms: int
    number: int
    delivery: Delivery | None = None
    lease_ms: int = 0
    deliveries: int = 0
    failures: int = 0


@dataclass
class Model:
    """All messages that are neither done nor dead, by their ids."""

    now_ms: int = 1_700_000_000_000
    number: int = 0
    messages: dict[str, Kept] = field(default_factory=dict)
    dead: int = 0
    stale: list[Delivery] = field(default_factory=list)

    def due(self) -> list[str]:
        """What may be delivered, in its order; leases that are over included."""
        free = [
            (one.priority, one.number, id)
            for id, one in self.messages.items()
            if one.due_ms <= self.now_ms and (one.delivery is None or one.lease_ms <= self.now_ms)
        ]
        return [id for _, _, id in sorted(free)]


class DynoMachine(RuleBasedStateMachine):
    """One consumer; whoever comes late is played by deliveries whose lease is over."""

    session: Session

    @initialize()
    def open(self) -> None:
        self.model = Model()
        self.queue = DynoQueue(
            self.session,
            f"/{uuid.uuid4().hex}",
            lease_s=LEASE_S,
            retry=Retry(attempts=ATTEMPTS, first_s=1.0, jitter=0.0),
            now_ms=lambda: self.model.now_ms,
        )
        self.queue.push([])

    def teardown(self) -> None:
        if hasattr(self, "queue"):
            self.queue.close()

    @rule(priority=st.integers(0, 3), delay_s=st.sampled_from([0, 0, 5, 20]), has_id=st.booleans())
    def push(self, priority: int, delay_s: int, has_id: bool) -> None:
        model = self.model
        model.number += 1
        payload = b"%d" % model.number
        message = Message(f"id {model.number}" if has_id else "", payload, delay_s, priority)
        (id,) = self.queue.push(message)
        model.messages[id] = Kept(payload, priority, model.now_ms + 1000 * delay_s, model.number)

    @rule(most=st.integers(1, 4))
    def pop(self, most: int) -> None:
        model = self.model
        self.queue.process_unacks()
        self.see_all()
        expected: list[str] = []
        if any(one.delivery and one.lease_ms <= model.now_ms for one in model.messages.values()):
            most = len(model.messages)  # who comes late is a failure once another one pops it
        for id in model.due():
            one = model.messages[id]
            if one.delivery is not None:
                model.stale.append(one.delivery)
                one.delivery, one.due_ms = None, 0
                one.failures += 1
                if one.failures >= ATTEMPTS:
                    del model.messages[id]
                    model.dead += 1
                    continue
            expected.append(id)
        expected = expected[:most]
        popped = self.queue.pop(most, 0.0)
        while len(popped) < len(expected):  # some that were chosen turned out to be dead
            popped += self.queue.pop(len(expected) - len(popped), 5.0)
        assert [one.id for one in popped] == expected
        for one in popped:
            kept = model.messages[one.id]
            kept.delivery, kept.lease_ms = one, model.now_ms + int(LEASE_S * 1000)
            kept.deliveries += 1
            assert (one.payload, one.deliveries, one.failures) == (
                kept.payload,
                kept.deliveries,
                kept.failures,
            )

    def see_all(self) -> None:
        """Wait until the watches have told what this process itself has written."""
        self.session.sync("/")

    def held(self) -> list[tuple[str, Kept]]:
        """What is leased, in a fixed order."""
        return [
            (id, one) for id, one in sorted(self.model.messages.items()) if one.delivery is not None
        ]

    @precondition(lambda self: self.held())
    @rule(
        at=st.integers(0, 9),
        how=st.sampled_from(["ack", "nack", "release", "postpone", "extend", "kill"]),
    )
    def settle(self, at: int, how: str) -> None:
        model, held = self.model, self.held()
        id, one = held[at % len(held)]
        delivery = one.delivery
        assert delivery is not None
        if how == "ack":
            delivery.ack()
            del model.messages[id]
        elif how == "kill":
            delivery.kill()
            del model.messages[id]
            model.dead += 1
        elif how == "nack":
            delivery.nack("no")
            one.failures += 1
            one.delivery, one.due_ms = None, model.now_ms + 1000 * 2 ** (one.failures - 1)
            if one.failures >= ATTEMPTS:
                del model.messages[id]
                model.dead += 1
        elif how == "extend":
            delivery.extend(30)
            one.lease_ms = model.now_ms + 30_000
        else:
            delay_s = 7 if how == "postpone" else 0
            delivery.postpone(delay_s) if delay_s else delivery.release()
            one.delivery, one.due_ms = None, model.now_ms + 1000 * delay_s
        if how != "extend":
            model.stale.append(delivery)

    @precondition(lambda self: self.model.stale)
    @rule(at=st.integers(0, 9), how=st.sampled_from(["ack", "nack", "release", "extend", "kill"]))
    def settle_too_late(self, at: int, how: str) -> None:
        stale = self.model.stale
        with pytest.raises(StaleLease):
            getattr(stale[at % len(stale)], how)()

    @precondition(lambda self: self.model.messages)
    @rule(at=st.integers(0, 9))
    def remove(self, at: int) -> None:
        ids = sorted(self.model.messages)
        one = self.model.messages.pop(ids[at % len(ids)])
        assert self.queue.remove(ids[at % len(ids)])
        if one.delivery is not None:
            self.model.stale.append(one.delivery)

    @precondition(lambda self: self.model.messages)
    @rule(at=st.integers(0, 9), delay_s=st.sampled_from([0, 3, 30]))
    def reschedule(self, at: int, delay_s: int) -> None:
        ids = sorted(self.model.messages)
        one = self.model.messages[ids[at % len(ids)]]
        assert self.queue.set_timeout(ids[at % len(ids)], delay_s) == (one.delivery is None)
        if one.delivery is None:
            one.due_ms = self.model.now_ms + 1000 * delay_s

    @rule(seconds=st.sampled_from([1, 5, 11, 40]))
    def wait(self, seconds: int) -> None:
        self.model.now_ms += 1000 * seconds

    @invariant()
    def all_are_there(self) -> None:
        if not hasattr(self, "queue"):
            return
        sizes = self.queue.shard_sizes()["0"]
        assert (sizes["messages"], sizes["dead"]) == (len(self.model.messages), self.model.dead)
        assert sizes["leased"] == len(self.held())


def test_a_queue_does_what_its_model_does(session: Session) -> None:
    DynoMachine.session = session
    run_state_machine_as_test(
        DynoMachine,
        settings=settings(
            max_examples=20,
            stateful_step_count=20,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
