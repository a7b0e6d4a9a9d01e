"""What a career class declares, as one value, and checked as a whole: every problem is reported at
once, naming the value, the class and the remedy. Pure.

``delivery`` is how often a record may be handled, fitted to where the career's offsets are kept. It
names the least that is needed; a store that gives more is accepted. Per store, the default marked
with ``*``, and the order of committing and work:

=================  =================  ============================================================
store              delivery           order, and what a crash in between costs
=================  =================  ============================================================
``"kafka"``        at_most_once       commit, then handle: what was in hand is never handled
``"kafka"``        at_least_once *    handle, then commit: what was in hand is handled again
``"zookeeper"``    at_most_once       commit, then handle: what was in hand is never handled
``"zookeeper"``    at_least_once      as exactly_once
``"zookeeper"``    exactly_once *     handle, then commit together with the operations that
                                      ``handle`` gave along: for these, nothing; any other effect
                                      of ``handle`` happens again
``"transaction"``  at_least_once      as exactly_once
``"transaction"``  exactly_once *     handle and produce, then commit offsets and what was
                                      produced in one transaction: for readers with
                                      ``read_committed``, nothing
``"external"``     at_least_once      as exactly_once
``"external"``     exactly_once *     ``handle`` stores result and offset in one transaction of
                                      its own: nothing
=================  =================  ============================================================

Refused: *exactly once* with ``"kafka"``, where committing and work are two steps with a crash
possible between them; *at most once* with ``"transaction"`` and ``"external"``, where offset and
result are stored together, so nothing can be committed first.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from functools import partial
from inspect import getattr_static, signature
from types import FunctionType
from typing import Any, cast

from leaderq.errors import ConfigurationError
from leaderq.kafka.consuming.positions import POLICIES
from leaderq.kafka.handling.context import BY_PARTITION, MERGED
from leaderq.kafka.handling.on_error import policy
from leaderq.kafka.handling.rate_limit import rate_limiter_of
from leaderq.kafka.record import Deserializer
from leaderq.plain import require_plain_function

CLIENTS = ("kafka-python", "confluent")

_MEMBER_NAME = re.compile(r"^[A-Za-z0-9._-]{1,249}$")
AT_MOST_ONCE = "at_most_once"
AT_LEAST_ONCE = "at_least_once"
EXACTLY_ONCE = "exactly_once"
DELIVERIES = (AT_MOST_ONCE, AT_LEAST_ONCE, EXACTLY_ONCE)
_ACCEPTED = {
    "kafka": (AT_LEAST_ONCE, AT_MOST_ONCE),
    "zookeeper": (EXACTLY_ONCE, AT_LEAST_ONCE, AT_MOST_ONCE),
    "transaction": (EXACTLY_ONCE, AT_LEAST_ONCE),
    "external": (EXACTLY_ONCE, AT_LEAST_ONCE),
}
"""What each store can do; the default first."""
_REMEDIES = {
    ("kafka", EXACTLY_ONCE): (
        "offsets='kafka' commits and handles in two steps, and a crash may fall between; use offsets='transaction', "
        "'zookeeper' or 'external', or delivery='at_least_once' with a handle that may be repeated"
    ),
    ("transaction", AT_MOST_ONCE): (
        "offsets='transaction' stores offsets and results together, never offsets first; use offsets='kafka', "
        "or leave delivery out"
    ),
    ("external", AT_MOST_ONCE): (
        "offsets='external' leaves it to handle() to store offsets and results together, never offsets first; use "
        "offsets='kafka', or leave delivery out"
    ),
}


@dataclass(frozen=True)
class Declaration:
    """The attributes of a career, standing under ``name``; what each means is said at
    :class:`~leaderq.kafka.KafkaLeaderCareer`. ``where`` names the class in messages.
    """

    where: str
    name: str
    topics: tuple[str, ...]
    group: str
    offsets: str
    delivery: str | None
    auto_offset_reset: str | None
    client: str
    max_message_bytes: int
    max_records: int
    max_bytes: int | None
    max_wait_s: float
    batches: str
    workers: int
    key_deserializer: Deserializer | None
    value_deserializer: Deserializer | None
    max_records_per_s: float | None
    max_bytes_per_s: float | None
    key_interval_s: float | None
    gc_threshold: int | None
    on_error: Any
    handle_budget_s: float | None
    atomic: bool


def declaration_of(career: Any, name: str) -> Declaration:
    """What the class of ``career`` declares; not checked yet."""
    found = {each.name: getattr(career, each.name) for each in fields(Declaration) if each.name != "where"}
    found |= {each: deserializer_of(career, each) for each in ("key_deserializer", "value_deserializer")}
    topics = (career.topics,) if isinstance(career.topics, str) else tuple(career.topics)
    named = {"where": type(career).__qualname__, "name": name, "topics": topics, "group": career.group or name}
    return Declaration(**{**found, **named})


def deserializer_of(career: object, name: str) -> Deserializer | None:
    """What the class declares, also where it is a plain function: that would otherwise become a
    method of the object.
    """
    declared = vars(career).get(name, getattr_static(type(career), name))
    if isinstance(declared, staticmethod | classmethod):
        return declared.__get__(career, type(career))
    if isinstance(declared, FunctionType) and next(iter(signature(declared).parameters), "") == "self":
        return partial(declared, career)
    return cast("Deserializer | None", declared)


def check(declared: Declaration, others: Iterable[str] = ()) -> None:
    """Return if a career can be run as declared; raises :class:`~leaderq.errors.ConfigurationError`
    with all its problems, and ``others``.
    """
    problems = [*_problems_of_reading(declared), *_problems_of_batches(declared), *_problems_elsewhere(declared), *others]
    if problems:
        raise ConfigurationError(*problems)


def _problems_of_reading(declared: Declaration) -> Iterator[str]:
    where = declared.where
    if not declared.topics or not all(declared.topics):
        yield f"'topics' of {where} is empty; name the topics to read"
    if not _MEMBER_NAME.match(declared.name):
        yield f"the career name {declared.name!r} cannot be a Kafka member name; use up to 249 letters, digits, '.', '_' and '-'"
    if declared.auto_offset_reset not in POLICIES:
        yield (
            f"auto_offset_reset={declared.auto_offset_reset!r} of {where} is not known; use 'earliest', 'latest' or 'none', or "
            "leave it out: then a new group begins at the earliest record, and what is gone is an error"
        )
    if declared.client not in CLIENTS:
        yield f"client={declared.client!r} of {where} is not known; use 'kafka-python' or 'confluent'"


def _problems_of_batches(declared: Declaration) -> Iterator[str]:
    where = declared.where
    for attribute in ("max_records", "workers", "max_message_bytes"):
        if not _is_count(value := getattr(declared, attribute)):
            yield f"{attribute}={value!r} of {where} must be a whole number, at least 1"
    if declared.max_bytes is not None and not _is_count(declared.max_bytes):
        yield f"max_bytes={declared.max_bytes!r} of {where} must be a whole number of bytes, or None for no limit"
    if declared.gc_threshold is not None and not _is_count(declared.gc_threshold):
        yield (
            f"gc_threshold={declared.gc_threshold!r} of {where} must be a whole number of objects, "
            "or None to leave the collector as it is"
        )
    if not _is_duration(declared.max_wait_s):
        yield f"max_wait_s={declared.max_wait_s!r} of {where} must be a number of seconds, at least 0"
    if declared.handle_budget_s is not None and not (
        _is_duration(declared.handle_budget_s) and declared.handle_budget_s > 0
    ):
        yield f"handle_budget_s={declared.handle_budget_s!r} of {where} must be a number of seconds, or None for no limit"
    if declared.batches not in (MERGED, BY_PARTITION):
        yield f"batches={declared.batches!r} of {where} is not known; use {MERGED!r} or {BY_PARTITION!r}"
    if declared.atomic and _is_count(declared.workers) and declared.workers > 1:
        yield f"{where} is atomic and has workers={declared.workers}; a unit on several threads cannot be abandoned: choose one"


def _problems_elsewhere(declared: Declaration) -> Iterable[str]:
    where = declared.where
    deserializers = {
        f"{name} of {where}": found
        for name in ("key_deserializer", "value_deserializer")
        if (found := getattr(declared, name)) is not None
    }
    checks: tuple[Any, ...] = (
        *(partial(require_plain_function, found, what) for what, found in deserializers.items()),
        lambda: delivery_of(declared.delivery, declared.offsets, where),
        lambda: policy(declared.on_error, where),
        lambda: rate_limiter_of(declared.max_records_per_s, declared.max_bytes_per_s, declared.key_interval_s, where),
    )
    for one in checks:
        try:
            one()
        except ConfigurationError as exc:
            yield from exc.problems


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _is_duration(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf


@dataclass(frozen=True)
class Delivery:
    """A delivery that its store can keep. ``commits_first``: offsets are committed before the work
    begins, not after.
    """

    name: str
    store: str
    commits_first: bool


def delivery_of(delivery: str | None, store: str, where: str) -> Delivery:
    """How the class ``where`` delivers: what it declares (``None``: the default of its store).

    Raises :class:`~leaderq.errors.ConfigurationError` if the store cannot do that, or a name is
    unknown.
    """
    problems = [
        None if store in tuple(_ACCEPTED) else f"offsets={store!r} of {where} is not known; use {_listed(tuple(_ACCEPTED))}",
        None
        if delivery in (None, *DELIVERIES)
        else f"delivery={delivery!r} of {where} is not known; use {_listed(DELIVERIES)}, or leave it out",
    ]
    if found := [problem for problem in problems if problem]:
        raise ConfigurationError(*found)
    name = _ACCEPTED[store][0] if delivery is None else delivery
    if name not in _ACCEPTED[store]:
        raise ConfigurationError(f"delivery={name!r} of {where} contradicts its offsets: {_REMEDIES[store, name]}")
    return Delivery(name, store, commits_first=name == AT_MOST_ONCE)


def _listed(names: tuple[str, ...]) -> str:
    return f"{', '.join(map(repr, names[:-1]))} or {names[-1]!r}"
