"""Negative controls of messages: edits of the program that their lives must notice."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from leaderq.base import clock
from leaderq.dyno import transitions
from leaderq.dyno.consumer import DynoConsumer
from leaderq.dyno.index import ShardIndex
from leaderq.dyno.message import DeliveryState
from leaderq.dyno.shard_view import ClaimRead
from leaderq.dyno.transitions import completion, delivery, first_rest
from leaderq.testing.nemesis.history import Kind
from leaderq.zookeeper import Delete
from simulation.control import NegativeControl, around, patched
from simulation.messages import MessageLife, lead

_FROZEN = {"kinds": (Kind.FREEZE_WORKER,), "faults": 8, "lease_s": 1.0}
_of = partial(NegativeControl, lead=lead, make=MessageLife)


@around(ShardIndex, "observed")
def _late(
    real: Any, self: ShardIndex, name: str, version: int, lease_s: float, now_s: float
) -> Any:
    return real(self, name, version, lease_s + 10, now_s)


def _by_the_calendar(one: ClaimRead) -> float:
    """As it was once: the end of a lease was compared with this host's calendar."""
    return 1e9 if one.state.until_ms > clock.now_ms() else 0.0


@around(ShardIndex, "observed")
def _from_the_first(
    real: Any, self: ShardIndex, name: str, version: int, lease_s: float, now_s: float
) -> Any:
    if (known := self._leased.get(name)) is not None:
        known.version = version
    return real(self, name, version, lease_s, now_s)


def _by_age(self: ShardIndex, name: str) -> tuple[int, int]:
    return 0, self._names[name].sequence


def _is_free(self: ShardIndex, name: str, now_ms: int) -> bool:
    if name not in self._names or name in self._ours or self.due_ms_of(name) > now_ms:
        return False
    return not self._is_leased(name)


def _any_claim(paths: Any, name: str, version: int) -> Any:
    return Delete(paths.claim(name)), completion(paths, name, version)[1]


def _claim_of_any_version(paths: Any, choice: Any, state: Any) -> Any:
    first, *rest = delivery(paths, choice, state)
    return (first if choice.version is None else replace(first, version=-1), *rest)


def _claim_of_nothing(paths: Any, choice: Any, state: Any) -> Any:
    operations = delivery(paths, choice, state)
    return operations[1:] if choice.version is None else operations


def _rest_of_nothing(paths: Any, name: str, state: Any) -> Any:
    return first_rest(paths, name, state)[1:]


@around(DeliveryState, "_replace")
def _member_stays(real: Any, self: DeliveryState, **more: Any) -> Any:
    if more.get("member"):
        del more["member"]
    return real(self, **more)


MESSAGE_CONTROLS = (
    _of(
        "pop returns leases that are over",
        patched(DynoConsumer, "_standing", lambda _, given: given),
        2,
        life=_FROZEN,
    ),
    _of("leases are looked at 10 s late", _late, 9),
    _of(
        "calendars are compared",
        patched(ClaimRead, "lease_s", property(_by_the_calendar)),
        3,
        life={"off_s": 8.0},
    ),
    _of("a lease lasts from the first that was seen", _from_the_first, 50),
    _of(
        "priorities of messages do not matter",
        patched(ShardIndex, "order_of", _by_age),
        3,
        life={"consumers": 1, "shards": 1, "faults": 0, "rude": 0.0},
    ),
    _of("a group does not wait for its first", patched(ShardIndex, "_is_free", _is_free), 1),
    _of("a message does not wait for its time", patched(ShardIndex, "due_ms_of", lambda *_: 0), 0),
    _of("an acknowledgement ends any delivery", patched(transitions, "completion", _any_claim), 16),
    _of(
        "a lease of any version is taken over",
        patched(transitions, "delivery", _claim_of_any_version),
        7,
    ),
    _of(
        "what is delivered may be gone",
        patched(transitions, "delivery", _claim_of_nothing),
        0,
        life=_FROZEN,
    ),
    _of("an id outlives its message", patched(transitions, "id_over", lambda *_, **__: ()), 0),
    _of("an extension by the redeemer keeps the former member", _member_stays, 0),
    _of(
        "a message is put off that may be gone",
        patched(transitions, "first_rest", _rest_of_nothing),
        28,
    ),
)
