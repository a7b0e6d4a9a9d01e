"""Events: typed values for what happens. Logs, metrics, traces and tests subscribe to them.

A listener runs on the thread that publishes, and must be quick. If it raises, that is logged. Every
event has ``career`` and ``candidate`` (the id of ``--id``), so that one bus can serve several.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from logging import DEBUG, ERROR, INFO, WARNING
from typing import ClassVar, TypeVar

from leaderq.errors import Reason
from leaderq.threads import Listeners


class Stage(str, Enum):
    """The stage of a term; the value is the word in the ``term`` znode."""

    INAUGURATION = "inauguration"
    EXECUTION = "execution"
    HANDOVER = "hand-over"


@dataclass(frozen=True)
class Event:
    """Something that happened to one candidate of one career.

    Its line in the log begins with ``phrase``, and has the ``level`` (of :mod:`logging`). Each
    class of events declares both.
    """

    phrase: ClassVar[str] = "something happened"
    level: ClassVar[int] = INFO

    career: str
    candidate: str

    def __init_subclass__(cls, *, phrase: str = "", level: int = INFO) -> None:
        cls.phrase, cls.level = phrase or cls.phrase, level

    @property
    def name(self) -> str:
        """The word for the event in logs: its class name in snake_case."""
        return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(self).__name__).lower()


@dataclass(frozen=True)
class Standing(Event, phrase="stands for election"):
    """The candidate has joined the line of candidates; its znode is ``node``."""

    node: str


@dataclass(frozen=True)
class TermBegan(Event, phrase="won a term"):
    """The candidate has won a term; ``unclean``: the previous term ended without a hand-over."""

    term: int
    unclean: bool


@dataclass(frozen=True)
class StageBegan(Event, phrase="stage began"):
    """``stage`` of a term has begun."""

    term: int
    stage: Stage


@dataclass(frozen=True)
class WorkPaused(Event, phrase="work is paused", level=WARNING):
    """No new unit of work starts until :class:`WorkResumed`; ``why`` is a sentence."""

    term: int
    why: str


@dataclass(frozen=True)
class WorkResumed(Event, phrase="work is resumed"):
    """Units of work start again, in the same term."""

    term: int


@dataclass(frozen=True)
class TermEnding(Event, phrase="term is ending"):
    """The term must wind up because of ``reason``."""

    term: int
    reason: Reason


@dataclass(frozen=True)
class TermEnded(Event, phrase="term ended"):
    """The career's code has returned. ``clean``: the end was recorded, so the next leader need not
    wait.
    """

    term: int
    reason: Reason
    clean: bool


@dataclass(frozen=True)
class CareerError(Event, phrase="career raised an error", level=ERROR):
    """The user's code raised ``error`` in ``stage``; other events tell what follows."""

    term: int
    stage: str
    error: BaseException


@dataclass(frozen=True)
class WorkRefused(Event, phrase="work was refused, its term was over"):
    """The career's code ended in ``stage`` with :class:`~leaderq.errors.Deposed`: a write, commit
    or check was refused, because the term was over for ``reason``.
    """

    term: int
    stage: Stage
    reason: Reason


@dataclass(frozen=True)
class CoolingOff(Event, phrase="cools off before it stands again", level=WARNING):
    """The candidate stands again after ``seconds``; ``failures`` terms in a row have failed."""

    seconds: float
    failures: int
    why: str


@dataclass(frozen=True)
class BudgetMissed(Event, phrase="stage takes longer than its budget", level=ERROR):
    """``stage`` has taken longer than its budget of ``budget_s`` seconds."""

    term: int
    stage: str
    budget_s: float


@dataclass(frozen=True)
class Withdrawn(Event, phrase="no longer stands for election"):
    """The candidate no longer stands: published last, after the hand-over. That a stop was asked
    for is no event, but ``RunnerState.stopping`` (:mod:`leaderq.observability.health`).
    """


@dataclass(frozen=True)
class SessionChanged(Event, phrase="ZooKeeper session changed"):
    """The ZooKeeper session is now in ``state`` (*connected*, *suspended*, *lost*, *closed*)."""

    state: str


@dataclass(frozen=True)
class GuardianLost(Event, phrase="guardian is gone, its worker hands over", level=WARNING):
    """The guardian process is gone: the worker hands over and leaves, and until then a crash costs
    the session time-out."""

    pid: int


@dataclass(frozen=True)
class DrainStalled(Event, phrase="consumer stood still and was rebuilt", level=WARNING):
    """The Kafka consumer stood still although records waited, and was rebuilt; ``rebuilt`` counts
    how often.
    """

    partition: str
    position: int
    end: int
    rebuilt: int


# The log has every few seconds of it only at debug.
@dataclass(frozen=True)
class DrainProgress(Event, phrase="progress of the consumer", level=DEBUG):
    """How much is left to read from Kafka, and how fast that changes; published every few seconds
    of a term.

    ``lag`` is the number of offsets between the committed ones and the ends of all partitions;
    ``partitions`` has the lag of each partition, by names such as ``clicks-0``. ``rate_per_s`` and
    ``arriving_per_s`` are offsets a second, smoothed (``None`` at first).
    """

    term: int
    lag: int
    rate_per_s: float | None
    arriving_per_s: float | None
    partitions: Mapping[str, int]


# The drain warns of this one and the next itself, with the error.
@dataclass(frozen=True)
class RecordSkipped(Event, phrase="record skipped", level=DEBUG):
    """A record that could not be handled in ``attempts`` attempts was skipped, because ``on_error``
    says so or an operator let it pass (``leaderq dead bury``).
    """

    action: ClassVar[str] = "skip"

    partition: str
    offset: int
    error: BaseException
    attempts: int


@dataclass(frozen=True)
class RecordDeadLettered(Event, phrase="record set aside as a dead letter", level=DEBUG):
    """A record failed in all its ``attempts`` attempts, and was moved to ``topic``; after a crash
    it may be there twice.
    """

    action: ClassVar[str] = "dead-letter"

    partition: str
    offset: int
    error: BaseException
    attempts: int
    topic: str


@dataclass(frozen=True)
class TickBegan(Event, phrase="tick began"):
    """A tick of ``schedule`` was begun, ``late_s`` seconds after its time ``at`` (ISO 8601).
    ``missed``: how many missed ticks it replaces.
    """

    term: int
    schedule: str
    at: str
    attempt: int
    missed: int
    late_s: float


@dataclass(frozen=True)
class TickEnded(Event, phrase="tick ended"):
    """The work on a tick is over: *done*, *failed*, *interrupted* (``on_crash`` says whether it is
    run again), or *lost* (an earlier leader began it, and it is not run again).
    """

    term: int
    schedule: str
    at: str
    outcome: str
    duration_s: float
    error: BaseException | None


@dataclass(frozen=True)
class TicksPassedOver(Event, phrase="ticks were passed over", level=WARNING):
    """``count`` ticks from ``first`` to ``last`` were not run; ``why`` is the word that the history
    has.
    """

    term: int
    schedule: str
    first: str
    last: str
    count: int
    why: str


E = TypeVar("E", bound=Event)


class EventBus:
    """Calls the listeners of an event's class and of its base classes. Thread-safe."""

    def __init__(self) -> None:
        self._listeners: Listeners[Event] = Listeners("events")

    def subscribe(self, kind: type[E], listener: Callable[[E], None]) -> Callable[[], None]:
        """Call ``listener`` for every event of class ``kind``; return a function that ends that.

        A listener that was subscribed to ``kind`` before is not called twice. It must be a plain
        function, because nobody would run the coroutine that a coroutine function returns.
        """
        self._listeners.add(listener, kind)
        return lambda: self._listeners.remove(listener, kind)

    def publish(self, event: Event) -> None:
        """Call every listener. What a listener raises is only logged. An interrupt, or the
        abandonment of a unit, that strikes a listener from outside is raised after the last
        listener.
        """
        self._listeners.call(event)
