"""What becomes of a record that cannot be handled: the career's ``on_error``, ``"raise"`` (the
default: the term fails, the record is handed out again in the next one), :func:`retry`,
:func:`skip` or :func:`dead_letter`; as written, and as decided upon. Pure values.

``deaths`` of the last two: a record over which the process has died so often is treated as one that
cannot be handled; with ``"raise"`` it kills the next process too. If ``handle`` raises something
that is not an ``Exception`` (``SystemExit``, ``KeyboardInterrupt``, a panic of Rust), that counts
as a death too, but ends nothing: the record is tried again at once.

Errors about leadership, servers and settings say nothing about the record in hand, and pass through
(:func:`is_about_records`). In an outage of what the record needs (:meth:`OnError.is_outage`) the
work is held up within the same term, unless the policy is plain ``"raise"`` (:class:`ErrorJudge`).
The first of these that has an answer decides about an error; of a group of errors
(``asyncio.TaskGroup``) all must be outages:

1. ``is_outage`` of ``retry``, ``skip`` or ``dead_letter``: a function of the error that returns
   ``True`` (an outage), ``False`` (the record's fault) or ``None`` (it does not know);
2. :class:`DependencyUnavailable`, for the user to raise, and what ``except_`` names: outages;
3. ``only``: what it does not name is an outage;
4. the error itself (:mod:`leaderq.kafka.handling.outages`): its HTTP status, SQLSTATE or gRPC code,
   its class, its causes. HTTP's 408, 425, 429 and 5xx are outages, other 4xx the record's fault.

A disk that is not mounted looks like missing files: name ``FileNotFoundError`` in ``except_``.

The work is also held up before more than 100 records of different keys are passed over with the
same class of error and none is handled between them, because so many records are hardly all wrong.

With *at most once* and no ``retry`` nothing is tried again, so nothing is held up.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Literal

from leaderq.base.arguments import (
    Problem,
    at_least,
    is_number,
    is_time,
    plain_function,
    require,
    require_finished,
    unless,
    wanted,
)
from leaderq.errors import (
    ConfigurationError,
    Deposed,
    FromOutside,
    LeaderqError,
    leaves,
    told,
)
from leaderq.kafka.handling import outages
from leaderq.kafka.record import TOPIC_RULE, Record, is_topic_name
from leaderq.threads.retry import Retry

log = logging.getLogger(__name__)

BACKOFF_S = 0.5
MAX_BACKOFF_S = 30.0
DEATHS = 3
MOST_IN_A_ROW = 100
_LEAST_PAUSE_S = 0.1
_CHOICES = "use 'raise', skip(), retry(n) or dead_letter(), from leaderq.kafka"

ErrorClasses = tuple[type[Exception], ...]
Errors = type[Exception] | ErrorClasses
AskUser = Callable[[Exception], bool | None]
"""Whether an error is an outage (``True``) or the record's fault (``False``), if it is known."""


class PoisonRecord(LeaderqError):
    """Raised in ``handle`` to name the culprit. It says that all records in front of ``record`` are
    done, and none after it.

    ``raise PoisonRecord(record) from exc`` keeps the error itself: it is what is logged, put into
    the dead letter, or raised where the policy is ``"raise"``. ``record`` must be of the list that
    was handed over (found by topic, partition and offset).
    """

    def __init__(self, record: Record, why: str = "") -> None:
        require(wanted("PoisonRecord: record", record, isinstance(record, Record), "the record"))
        self.record = record
        self.why = why
        because = f": {why}" if why else ""
        super().__init__(f"the record at {record.place} cannot be handled{because}")


class DependencyUnavailable(LeaderqError):
    """Raised by the user's code: the record needs something unreachable. Holds the work up."""


class ProcessDied(LeaderqError):
    """The process ended ``times`` times while it handled one record: a crash in C code, a kill."""

    def __init__(self, times: int) -> None:
        self.times = times
        super().__init__(f"the process died {times} times while handling this record")


def is_about_records(error: BaseException) -> bool:
    """Whether an error that ``handle`` or a deserialiser raised may be the fault of the records."""
    return not_about_records(error) is None


def not_about_records(error: BaseException) -> BaseException | None:
    """Return the error, or the first in a group of errors, that says nothing about records;
    ``None`` if there is none.
    """
    for each in leaves(error):
        if isinstance(each, _NOT_ABOUT_RECORDS):
            return each
    return None


_NOT_ABOUT_RECORDS = (FromOutside, Deposed, ConfigurationError, *outages.ABOUT_SERVERS)


@dataclass(frozen=True)
class RetryAfter:
    """Try again, ``after_s`` seconds from now. ``one_by_one``: what has failed together is tried
    record by record. ``held_up_s``: the work has been held up for so many seconds, and nothing is
    counted; ``None``: it is not held up.
    """

    after_s: float
    one_by_one: bool = False
    held_up_s: float | None = None


class Ending(Enum):
    """What becomes of a record that is not tried again."""

    RAISE = "raise"
    SKIP = "skip"
    DEAD_LETTER = "dead_letter"

    @property
    def passes_over(self) -> bool:
        """Whether the offset moves past the record."""
        return self is not Ending.RAISE


Decision = RetryAfter | Ending


@dataclass(frozen=True)
class OnError:
    """A policy, as :func:`retry`, :func:`skip` and :func:`dead_letter` make it: a record is tried
    again ``retries`` times, then ``terminal`` applies. It applies to a record over which the
    process has died ``deaths`` times, too. Errors of a class in ``except_``, those of which
    ``ask_user`` says so, and those of no class in ``only`` are outages.
    """

    terminal: Ending = Ending.RAISE
    topic: str | None = None
    retries: int = 0
    backoff_s: float = BACKOFF_S
    deaths: int | None = None
    except_: ErrorClasses = ()
    ask_user: AskUser | None = None
    only: ErrorClasses | None = None

    def letters_topic(self, career: str) -> str | None:
        """Return the topic on which ``career`` sets records aside; ``None`` if it does not."""
        if self.terminal is not Ending.DEAD_LETTER:
            return None
        return self.topic or dead_letter_topic(career)

    def is_outage(self, error: BaseException) -> bool:
        return isinstance(error, Exception) and all(map(self._is_outage, leaves(error)))

    def _is_outage(self, error: BaseException) -> bool:
        if isinstance(error, PoisonRecord):  # in a group
            error = error.__cause__ or error
        if self.ask_user is not None and (answer := _answer(self.ask_user, error)) is not None:
            return answer
        if isinstance(error, (DependencyUnavailable, *self.except_)):
            return True
        if self.only is not None:
            return not isinstance(error, self.only)
        return outages.is_outage(error)

    def decision(self, attempts: int, error: BaseException | None = None) -> Decision:
        """Return what to do after ``attempts`` failed attempts, the last of them with ``error``."""
        if error is None or isinstance(error, Exception):
            most = self.retries
        elif self.deaths is None:
            return Ending.RAISE
        else:
            most = self.deaths - 1
        if attempts > most:
            return self.terminal
        return RetryAfter(self._backoff_s(self.backoff_s, attempts))

    def pause_s(self, times: int) -> float:
        """Return the seconds to wait when the work is held up the ``times``-th time in a row."""
        return self._backoff_s(max(self.backoff_s, _LEAST_PAUSE_S), times)

    def _backoff_s(self, first_s: float, attempts: int) -> float:
        most_s = max(MAX_BACKOFF_S, first_s)
        return Retry(first_s=first_s, most_s=most_s, jitter=0.0).delay_s(attempts)


def _answer(ask_user: AskUser, error: Any) -> bool | None:
    try:
        answer = ask_user(error)
        require_finished(answer, "is_outage")  # a coroutine is true
        return answer
    except Exception as exc:  # noqa: BLE001  (the error itself must be judged all the same)
        log.warning("is_outage failed about=%s error=%s", told(error), told(exc))
        return None


def dead_letter_topic(career: str) -> str:
    return f"{career}-dead"


def skip(
    deaths: int = DEATHS,
    *,
    only: Errors | None = None,
    except_: Errors = (),
    is_outage: AskUser | None = None,
) -> OnError:
    """Pass over a record that cannot be handled, with a warning in the log; nothing else keeps it.

    Errors that are not about the record hold the work up. ``only``: the classes of errors that are
    about the record; ``except_``: classes that are not; ``is_outage``: a function of the error that
    returns ``True`` for an outage, ``False`` for the record's fault, ``None`` for the built-in
    judgement.
    """
    require(at_least("skip: deaths", deaths, 1), *_problems("skip", only, except_, is_outage))
    kinds = None if only is None else _classes(only)
    return OnError(
        Ending.SKIP, deaths=deaths, except_=_classes(except_), ask_user=is_outage, only=kinds
    )


def retry(
    n: int,
    backoff_s: float = BACKOFF_S,
    then: Literal["raise"] | OnError = "raise",
    *,
    only: Errors | None = None,
    except_: Errors = (),
    is_outage: AskUser | None = None,
) -> OnError:
    """Up to ``n`` further attempts, after ``backoff_s`` seconds and then twice as long each time,
    up to 30 s. Records after the one that fails wait, so their order is kept.

    Other partitions go on while it waits for 0.5 s or longer, with every store, if it is known
    which record or partition failed (``handle_record``, :class:`PoisonRecord`,
    ``batches="partition"``, ``workers``). All wait with ``delivery="at_most_once"``.

    ``then`` follows when all attempts have failed. ``only``, ``except_``, ``is_outage``: as for
    :func:`skip`; here or in ``then``, not in both.
    """
    last = _policy(then, "'then' of retry")
    has_backoff = is_number(backoff_s) and is_time(backoff_s)
    is_twice = any((only and last.only, except_ and last.except_, is_outage and last.ask_user))
    require(
        at_least("retry: n", n, 1),
        wanted("retry: backoff_s", backoff_s, has_backoff, "a number of seconds"),
        unless(
            last.retries == 0,
            "retry(then=retry(...)) cannot be; give one retry more attempts, and end with 'raise',"
            " skip() or dead_letter()",
        ),
        unless(
            not is_twice, "retry: only, except_ or is_outage is in its 'then', too; write it once"
        ),
        *_problems("retry", only, except_, is_outage),
    )
    return replace(
        last,
        retries=n,
        backoff_s=float(backoff_s),
        except_=_classes(except_) or last.except_,
        ask_user=is_outage or last.ask_user,
        only=last.only if only is None else _classes(only),
    )


def dead_letter(
    topic: str | None = None,
    deaths: int = DEATHS,
    *,
    only: Errors | None = None,
    except_: Errors = (),
    is_outage: AskUser | None = None,
) -> OnError:
    """Set a record that cannot be handled aside on ``topic`` (default: the career's name and
    ``-dead``), with headers that say why; then the offset passes over it. Everything else is as
    with :func:`skip`.
    """
    name = f"the name of a topic: {TOPIC_RULE}; or leave it out"
    require(
        wanted("dead_letter: topic", topic, topic is None or is_topic_name(topic), name),
        at_least("dead_letter: deaths", deaths, 1),
        *_problems("dead_letter", only, except_, is_outage),
    )
    found = skip(deaths, only=only, except_=except_, is_outage=is_outage)
    return replace(found, terminal=Ending.DEAD_LETTER, topic=topic)


def policy(value: object, where: str) -> OnError:
    """Return the policy that ``value``, the ``on_error`` of the class ``where``, asks for. Raises
    ConfigurationError if it asks for none.
    """
    return _policy(value, f"on_error of {where}")


def _policy(value: object, place: str) -> OnError:
    if isinstance(value, OnError):
        return value
    if value in ("raise", "skip"):
        return skip() if value == "skip" else OnError()
    plain = getattr(value, "__func__", value)  # got from an object instead of its class
    for function in (skip, retry, dead_letter):
        if plain is function:
            call = f"{function.__name__}({'3' if function is retry else ''})"
            raise ConfigurationError(f"{place} is a function itself; call it: {call}")
    raise ConfigurationError(f"{place} is {value!r}, which is not a policy; {_CHOICES}")


def _classes(errors: Errors) -> ErrorClasses:
    return (errors,) if isinstance(errors, type) else tuple(errors)


def _are_errors(value: object) -> bool:
    kinds = value if isinstance(value, tuple | list) else (value,)
    return all(isinstance(one, type) and issubclass(one, Exception) for one in kinds)


def _problems(
    function: str, only: object, except_: object, is_outage: object
) -> tuple[Problem, ...]:
    what = "a class of errors, or a tuple of such"
    return (
        wanted(f"{function}: only", only, only is None or _are_errors(only), what),
        wanted(f"{function}: except_", except_, _are_errors(except_), what),
        plain_function(f"{function}: is_outage", is_outage, or_none=True),
    )


LONGEST_S = 300.0


class ErrorJudge:
    """Decides about failures for one career, through all its terms: by the policy, how long the
    work has been held up, and which records in a row failed alike. Not thread-safe.

    A hold-up stays within the term: the record is tried again after a back-off, as often as it
    takes, and no attempt counts against it. The hold-up ends when a record was handled; when the
    term ends or pauses (the record is handed out again); and after :data:`LONGEST_S` seconds
    without success. Then the error is raised and nothing is passed over: the next term may make its
    connections again in ``inaugurate``, or be led by a host that can reach what this one cannot.
    """

    def __init__(self, policy: OnError, *, commits_first: bool = False) -> None:
        self._policy = policy
        self._commits_first = commits_first
        passes_over = policy.terminal.passes_over and not commits_first
        self._may_hold_up = policy.retries > 0 or passes_over
        self._since_s: float | None = None
        self._times = 0
        self._error: type[BaseException] | None = None
        self._keys: set[object] = set()

    def is_outage(self, error: BaseException) -> bool:
        """Whether the work is to be held up because of ``error``."""
        return self._may_hold_up and self._policy.is_outage(error)

    def decide(
        self,
        error: BaseException,
        record: Record,
        now_s: float,
        *,
        attempts: int,
        records: int,
        is_outage: bool,
    ) -> Decision:
        """Decide about ``records`` records, ``record`` the first of them, that have failed together
        in ``attempts`` attempts. The first row that fits decides:

        ==========================================  ============================================
        an outage                                   the work is held up
        attempts are left                           ``RetryAfter``
        the policy ends in ``"raise"``              ``RAISE``
        several records, and not *at most once*     ``one_by_one``
        too many in a row have failed alike         as an outage
        else                                        ``SKIP``, ``DEAD_LETTER``
        ==========================================  ============================================
        """
        if is_outage:
            return self._held_up(now_s)
        # At most once: nothing that is committed is tried again, unless ``retry`` says so.
        found = self._policy.decision(attempts, None if self._commits_first else error)
        if isinstance(found, RetryAfter) or not found.passes_over:
            return found
        if records > 1:
            return found if self._commits_first else RetryAfter(0.0, one_by_one=True)
        is_alike = type(leaves(error)[0]) is self._error
        if self._may_hold_up and is_alike and len(self._keys | {_key(record)}) > MOST_IN_A_ROW:
            return self._held_up(now_s)
        return found

    def _held_up(self, now_s: float) -> Decision:
        if self._since_s is None:
            self._since_s, self._times = now_s, 0
        self._times += 1
        since_s = now_s - self._since_s
        if since_s >= LONGEST_S:
            self._since_s = None
            return Ending.RAISE
        return RetryAfter(self._policy.pause_s(self._times), held_up_s=since_s)

    def end_hold_up(self) -> bool:
        """End a hold-up; returns whether there was one."""
        was_held_up, self._since_s = self._since_s is not None, None
        return was_held_up

    def note_passed_over(self, record: Record, error: BaseException) -> None:
        kind = type(leaves(error)[0])
        if kind is not self._error:
            self._error, self._keys = kind, set()
        self._keys.add(_key(record))

    def note_handled(self) -> bool:
        """Note that a record was handled; returns whether that has ended a hold-up."""
        self._error, self._keys = None, set()
        return self.end_hold_up()


def _key(record: Record) -> object:
    """Return what a record counts as: records with the same key count once, those without a key
    each for itself.
    """
    key = record.key
    return key if isinstance(key, bytes) else (record.topic, record.partition, record.offset)
