"""Whether a Kafka career could do its work as this user, found out without reading or writing a
record: for ``leaderq doctor --career``.

:func:`judge_topic` and :func:`judge_dead_letters` are pure; :func:`look_at_topics` asks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from leaderq.config import KafkaSecurity, Settings
from leaderq.errors import AccessRefused, LeaderqError
from leaderq.kafka.assembly import security_for
from leaderq.kafka.clients.consumer import TopicPattern
from leaderq.kafka.declaration import StoreKind, check, dead_letters_of, declaration_of
from leaderq.kafka.topics import TopicView, committed, describe_topics, existing_topics


class Severity(Enum):
    """How bad something is."""

    FINE = "fine"
    ADVICE = "advice"
    FATAL = "fatal"


@dataclass(frozen=True)
class CareerFinding:
    """One thing that was looked at; ``error`` where a request was refused."""

    what: str
    severity: Severity
    sentence: str
    error: LeaderqError | None = None


def check_career(career: Any, name: str, settings: Settings) -> Iterator[CareerFinding]:
    """What stands in the way of ``career``, an instance that nobody runs. Raises what asking Kafka
    raises, and ConfigurationError for a career that cannot be run as declared.
    """
    declared = declaration_of(career, name, settings)
    check(declared, career._problems())
    letters = dead_letters_of(declared.on_error, name)
    security = security_for(declared, settings)
    topics = _topics(declared.topics, settings, security)
    wanted = [*topics, *([letters] if letters else [])]
    views = describe_topics(
        settings.kafka, wanted, security=security, timeout_s=settings.connect_timeout_s
    )
    reads = f"reads {', '.join(topics) or 'no topic yet'} as group {declared.group!r}"
    yield CareerFinding(
        "career", Severity.FINE, f"{name} {reads}, offsets in {declared.offsets.value!r}"
    )
    for topic in topics:
        yield judge_topic(topic, views[topic])
    if letters:
        yield judge_dead_letters(letters, views[letters])
    if topics and declared.offsets is StoreKind.KAFKA and views[topics[0]].partitions:
        yield _group(declared.group, topics[0], settings, security)


def _topics(
    declared: Sequence[str] | TopicPattern, settings: Settings, security: KafkaSecurity
) -> tuple[str, ...]:
    if isinstance(declared, TopicPattern):
        timeout_s = settings.connect_timeout_s
        return declared.among(
            existing_topics(settings.kafka, security=security, timeout_s=timeout_s)
        )
    return tuple(declared)


def judge_topic(topic: str, view: TopicView) -> CareerFinding:
    """Whether a career can read ``topic``."""
    if not view.may("DESCRIBE"):
        return _fatal(
            f"topic {topic}",
            "this user may not see it, or it is not there; it needs READ and DESCRIBE",
        )
    if not view.partitions:
        return _fatal(f"topic {topic}", f"is not there; create it: leaderq topics create {topic}")
    if not view.may("READ"):
        return _fatal(f"topic {topic}", "this user may not read it; it needs the operation READ")
    return _health(topic, view)


def judge_dead_letters(topic: str, view: TopicView) -> CareerFinding:
    """Whether a career can set records aside on ``topic``."""
    what = f"topic {topic}"
    if not view.may("WRITE"):
        return _fatal(
            what,
            "for dead letters: this user may not write there; it needs WRITE, and CREATE if it is"
            " missing",
        )
    if not view.partitions:
        if view.may("CREATE"):
            return CareerFinding(
                what, Severity.FINE, "for dead letters; it is made when the career is run"
            )
        return _fatal(
            what,
            "for dead letters, is not there, and this user may not create it: leaderq topics"
            f" create {topic}",
        )
    if view.min_in_sync is not None and view.in_sync < view.min_in_sync:
        return _fatal(
            what,
            f"for dead letters, takes no record: {view.in_sync} replicas are in sync, "
            f"and min.insync.replicas is {view.min_in_sync}",
        )
    return _health(topic, view)


def _health(topic: str, view: TopicView) -> CareerFinding:
    what = f"topic {topic}"
    if view.leaderless:
        return _fatal(
            what,
            f"{view.leaderless} of {view.partitions} partitions have no leader; is a broker down?",
        )
    copies = f"{view.partitions} partitions, {view.in_sync} of {view.replicas} replicas in sync"
    if view.replicas == 1:
        return CareerFinding(
            what, Severity.ADVICE, f"{copies}: its records are lost with the disk of one broker"
        )
    if view.in_sync < view.replicas:
        return CareerFinding(what, Severity.ADVICE, f"{copies}; is a broker down?")
    return CareerFinding(what, Severity.FINE, copies)


def _group(group: str, topic: str, settings: Settings, security: KafkaSecurity) -> CareerFinding:
    try:
        found = committed(
            settings.kafka, group, topic, security=security, timeout_s=settings.connect_timeout_s
        )
    except AccessRefused as error:
        return CareerFinding(
            "group", Severity.FATAL, f"{error}; it needs READ on group {group!r}", error
        )
    begun = (
        f"has committed {len(found)} partitions of {topic}"
        if found
        else "has committed nothing yet"
    )
    return CareerFinding("group", Severity.FINE, f"{group!r} may be used; it {begun}")


def _fatal(what: str, sentence: str) -> CareerFinding:
    return CareerFinding(what, Severity.FATAL, sentence)
