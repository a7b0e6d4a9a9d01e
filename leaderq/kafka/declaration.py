"""What a career class declares, checked as a whole: every problem is reported at once, naming the
value, the class and the remedy.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from functools import partial
from inspect import getattr_static, signature
from types import FunctionType
from typing import TYPE_CHECKING, Any, cast

from leaderq.errors import ConfigurationError
from leaderq.kafka.consuming.positions import POLICIES
from leaderq.kafka.handling.delivery import delivery_of
from leaderq.kafka.handling.desk import BY_PARTITION, MERGED
from leaderq.kafka.handling.on_error import policy
from leaderq.kafka.handling.rates import pace_of
from leaderq.kafka.record import Deserializer

if TYPE_CHECKING:
    from leaderq.kafka.career import KafkaLeaderCareer

CLIENTS = ("kafka-python", "confluent")

_MEMBER_NAME = re.compile(r"^[A-Za-z0-9._-]{1,249}$")


def topics_of(career: KafkaLeaderCareer) -> tuple[str, ...]:
    """The topics that the career reads."""
    declared = career.topics
    return (declared,) if isinstance(declared, str) else tuple(declared)


def deserializer_of(career: KafkaLeaderCareer, name: str) -> Deserializer | None:
    """What the class declares, also where it is a plain function: that would otherwise become a
    method of the object.
    """
    declared = vars(career).get(name, getattr_static(type(career), name))
    if isinstance(declared, staticmethod | classmethod):
        return declared.__get__(career, type(career))
    if isinstance(declared, FunctionType) and next(iter(signature(declared).parameters), "") == "self":
        return partial(declared, career)
    return cast("Deserializer | None", declared)


def check(career: KafkaLeaderCareer, name: str) -> None:
    """Return if ``career``, standing under ``name``, can be run; raises
    :class:`~leaderq.errors.ConfigurationError`.
    """
    problems = [
        *_problems_of_reading(career, name),
        *_problems_of_shape(career),
        *_problems_elsewhere(career),
        *career._problems(),
    ]
    if problems:
        raise ConfigurationError(*problems)


def _problems_of_reading(career: KafkaLeaderCareer, name: str) -> Iterator[str]:
    where = type(career).__qualname__
    topics = topics_of(career)
    if not topics or not all(topics):
        yield f"'topics' of {where} is empty; name the topics to read"
    if not _MEMBER_NAME.match(name):
        yield f"the career name {name!r} cannot be a Kafka member name; use up to 249 letters, digits, '.', '_' and '-'"
    if career.auto_offset_reset not in POLICIES:
        yield (
            f"auto_offset_reset={career.auto_offset_reset!r} of {where} is not known; use 'earliest', 'latest' or 'none', or "
            "leave it out: then a new group begins at the earliest record, and what is gone is an error"
        )
    if career.client not in CLIENTS:
        yield f"client={career.client!r} of {where} is not known; use 'kafka-python' or 'confluent'"


def _problems_of_shape(career: KafkaLeaderCareer) -> Iterator[str]:
    where = type(career).__qualname__
    for attribute in ("max_records", "workers"):
        if not _is_count(value := getattr(career, attribute)):
            yield f"{attribute}={value!r} of {where} must be a whole number, at least 1"
    if career.max_bytes is not None and not _is_count(career.max_bytes):
        yield f"max_bytes={career.max_bytes!r} of {where} must be a whole number of bytes, or None for no limit"
    if career.gc_threshold is not None and not _is_count(career.gc_threshold):
        yield f"gc_threshold={career.gc_threshold!r} of {where} must be a whole number of objects, or None to leave the collector as it is"
    if not _is_duration(career.max_wait_s):
        yield f"max_wait_s={career.max_wait_s!r} of {where} must be a number of seconds, at least 0"
    if career.batches not in (MERGED, BY_PARTITION):
        yield f"batches={career.batches!r} of {where} is not known; use {MERGED!r} or {BY_PARTITION!r}"
    if career.atomic and _is_count(career.workers) and career.workers > 1:
        yield f"{where} is atomic and has workers={career.workers}; a unit on several threads cannot be abandoned: choose one"


def _problems_elsewhere(career: KafkaLeaderCareer) -> Iterable[str]:
    where = type(career).__qualname__
    checks: tuple[Any, ...] = (
        lambda: delivery_of(career.delivery, career.offsets, where),
        lambda: policy(career.on_error, where),
        lambda: pace_of(career.max_records_per_s, career.max_bytes_per_s, career.key_interval_s, where),
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
