"""Whether a Kafka career could do its work as this user, found out without reading or writing a
record: for ``leaderq doctor --career``.

:func:`judge_topic` and :func:`judge_dead_letters` are pure; :func:`look_at_topics` asks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from leaderq.config import Settings
from leaderq.errors import AccessRefused, LeaderqError
from leaderq.kafka.assembly import access_for
from leaderq.kafka.clients.consumer import TopicPattern
from leaderq.kafka.declaration import StoreKind, check, dead_letters_of, declaration_of
from leaderq.kafka.topics import Access, TopicView, committed, describe_topics, existing_topics


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
    address, topics, access = settings.kafka, declared.topics, access_for(declared, settings)
    if isinstance(topics, TopicPattern):
        topics = topics.among(existing_topics(address, **access))
    views = describe_topics(address, [*topics, *([letters] if letters else [])], **access)
    reads = f"reads {', '.join(topics) or 'no topic yet'} as group {declared.group!r}"
    yield CareerFinding(
        "career", Severity.FINE, f"{name} {reads}, offsets in {declared.offsets.value!r}"
    )
    for topic in topics:
        yield judge_topic(topic, views[topic])
    if letters:
        yield judge_dead_letters(letters, views[letters])
    if topics and declared.offsets is StoreKind.KAFKA and views[topics[0]].partitions:
        yield _group(address, declared.group, topics[0], access)


def judge_topic(topic: str, view: TopicView) -> CareerFinding:
    refused = None
    if not view.may("DESCRIBE"):
        refused = "this user may not see it, or it is not there; it needs READ and DESCRIBE"
    elif not view.partitions:
        refused = f"is not there; create it: leaderq topics create {topic}"
    elif not view.may("READ"):
        refused = "this user may not read it; it needs the operation READ"
    return _health(topic, view, refused)


def judge_dead_letters(topic: str, view: TopicView) -> CareerFinding:
    refused = None
    if not view.may("WRITE"):
        refused = ": this user may not write there; it needs WRITE, and CREATE if it is missing"
    elif not view.partitions and view.may("CREATE"):
        what = "for dead letters; it is made when the career is run"
        return CareerFinding(f"topic {topic}", Severity.FINE, what)
    elif not view.partitions:
        refused = ", is not there, and this user may not create it: leaderq topics create " + topic
    elif view.min_in_sync is not None and view.in_sync < view.min_in_sync:
        refused = (
            f", takes no record: {view.in_sync} replicas are in sync, and min.insync.replicas is"
            f" {view.min_in_sync}"
        )
    return _health(topic, view, refused and f"for dead letters{refused}")


def _health(topic: str, view: TopicView, refused: str | None) -> CareerFinding:
    severity, said = Severity.ADVICE, refused or ""
    copies = f"{view.partitions} partitions, {view.in_sync} of {view.replicas} replicas in sync"
    if refused is not None:
        severity = Severity.FATAL
    elif view.leaderless:
        severity = Severity.FATAL
        said = (
            f"{view.leaderless} of {view.partitions} partitions have no leader; is a broker down?"
        )
    elif view.replicas == 1:
        said = f"{copies}: its records are lost with the disk of one broker"
    elif view.in_sync < view.replicas:
        said = f"{copies}; is a broker down?"
    else:
        severity, said = Severity.FINE, copies
    return CareerFinding(f"topic {topic}", severity, said)


def _group(address: str, group: str, topic: str, access: Access) -> CareerFinding:
    try:
        found = committed(address, group, topic, **access)
    except AccessRefused as error:
        needed = f"{error}; it needs READ on group {group!r}"
        return CareerFinding("group", Severity.FATAL, needed, error)
    begun = f"committed {len(found)} partitions of {topic}" if found else "committed nothing yet"
    return CareerFinding("group", Severity.FINE, f"{group!r} may be used; it has {begun}")
