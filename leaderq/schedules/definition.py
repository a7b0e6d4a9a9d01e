"""The definition of a schedule: when its ticks are, and what happens to ticks that cannot run in
time (pure).

Times are milliseconds since the epoch. ``cronsim`` reads cron expressions; it is imported when the
first one is used. On the night when clocks go forward, a time that does not exist means the end of
the gap; when they go back, a time that exists twice means the first. Expressions whose minute or
hour begins with ``*`` run by the elapsed clock. Intervals are counted from the epoch, so each host
computes the same ticks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone, tzinfo
from enum import Enum
from functools import lru_cache
from itertools import islice
from typing import Any, Literal, TypeVar

from leaderq.base.arguments import MAX_S, Problem, above_0, between, require, wanted
from leaderq.errors import ConfigurationError

MOST_COUNTED = 1000
"""At most so many due ticks are looked at; older ticks are passed over and not counted."""
_FIELDS = 5
_SECOND_MS, _DAY_MS = 1000, 86_400_000
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MARK, _WAITS = "_leaderq_schedule", "_leaderq_only_waits"
F = TypeVar("F", bound=Callable[..., Any])


class CatchUp(str, Enum):
    """Which of the missed ticks are run."""

    LAST = "last"
    ALL = "all"
    NONE = "none"


class Overlap(str, Enum):
    """What happens to ticks that come due while the tick before them still runs."""

    SKIP = "skip"
    QUEUE = "queue"


class OnCrash(str, Enum):
    """Whether a tick is run again if it was begun and its end is not recorded."""

    AGAIN = "again"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class When:
    """The times of the ticks: a cron expression in a zone, or an interval. Each field is text or a
    number, because records keep the times as JSON: a tuple would come back as a list.
    """

    cron: str | None = None
    tz: str = "UTC"
    every_ms: int = 0

    def after(self, at: int) -> int | None:
        """The first tick after ``at``; ``None`` if there is none within fifty years."""
        return next(self._from(at), None)

    def between(self, after: int, until: int) -> list[int]:
        """The ticks after ``after`` and not after ``until``; at most the newest ``MOST_COUNTED``.

        If a cron expression has more ticks than that, fewer may be returned, but at least half as
        many.
        """
        if self.cron is None:
            first, last = after // self.every_ms + 1, until // self.every_ms
            return [n * self.every_ms for n in range(max(first, last - MOST_COUNTED + 1), last + 1)]
        too_many: int | None = None  # after this time there are too many ticks
        too_few = until
        while True:
            found = list(islice(self._until(after, until), MOST_COUNTED + 1))
            if len(found) > MOST_COUNTED:
                too_many = after
            elif too_many is None or len(found) >= MOST_COUNTED // 2:
                return found
            else:
                too_few = after
            after = (too_many + too_few) // 2

    def shown(self) -> str:
        """The times as a text for people: ``30 2 * * * Europe/Berlin``, ``every 30 s``."""
        return (
            f"every {self.every_ms / 1000:g} s" if self.cron is None else f"{self.cron} {self.tz}"
        )

    def moment(self, at: int) -> datetime:
        """Convert ``at`` to a time in the zone of the schedule."""
        return (_EPOCH + timedelta(milliseconds=at)).astimezone(zone(self.tz))

    def _until(self, after: int, until: int) -> Iterator[int]:
        for at in self._from(after):
            if at > until:
                return
            yield at

    def _from(self, after: int) -> Iterator[int]:
        if self.cron is None:
            at = after
            while True:
                at = (at // self.every_ms + 1) * self.every_ms
                yield at
        minute, hour, *_ = self.cron.split()
        times = self._elapsed if "*" in (minute[0], hour[0]) else self._fixed
        for at in times(after):
            # Several times within a gap are its end, once; the second of two equal hours is past.
            if at > after:
                after = at
                yield at

    def _fixed(self, after: int) -> Iterator[int]:
        return map(_ms, self._times(self.moment(after)))

    def _times(self, after: datetime) -> Iterator[datetime]:
        from cronsim import CronSim, CronSimError

        try:
            return CronSim(str(self.cron), after)
        except CronSimError as exc:
            what = f"cron expression {self.cron!r} cannot be read"
            raise ConfigurationError(f"{what}: {exc}") from exc

    def _elapsed(self, after: int) -> Iterator[int]:
        """Yields the ticks of an expression that runs by the elapsed clock. Each period between two
        changes of the clocks is treated as a time zone of its own: cronsim goes from hour to hour,
        and would miss the beginning of a period if the clocks change by half an hour.
        """
        while True:
            offset = self._offset(after + 1)
            for moment in self._times(self.moment(after).astimezone(timezone(offset))):
                at = _ms(moment)
                if self._offset(at) != offset:
                    after = self._change(after + 1, at) - 1
                    break
                yield at
                after = at
            else:
                return

    def _offset(self, at: int) -> timedelta:
        return self.moment(at).utcoffset() or timedelta()

    def _change(self, before: int, after: int) -> int:
        """The first second after ``before`` that has another offset from UTC. There is one, because
        ``after`` has another offset.
        """
        offset = self._offset(before)
        while before + _DAY_MS < after and self._offset(before + _DAY_MS) == offset:
            before += _DAY_MS
        after = min(after, before + _DAY_MS)
        while after - before > _SECOND_MS:
            middle = (before + after) // 2
            before, after = (middle, after) if self._offset(middle) == offset else (before, middle)
        return after // _SECOND_MS * _SECOND_MS


def _ms(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(milliseconds=1)


@lru_cache(maxsize=64)
def zone(name: str) -> tzinfo:
    """The time zone called ``name``; raises :class:`ConfigurationError` if there is none."""
    if name == "UTC":
        return timezone.utc
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except (OSError, ValueError) as exc:  # ZoneInfoNotFoundError is a KeyError
        raise ConfigurationError(f"tz={name!r} cannot be used: {exc}") from exc
    except KeyError as exc:
        remedy = "write one like 'Europe/Berlin'; a system without zones needs: pip install tzdata"
        raise ConfigurationError(f"tz={name!r} is not a time zone known here; {remedy}") from exc


@dataclass(frozen=True, slots=True)
class Definition:
    """A schedule as the user's class declares it."""

    name: str
    when: When
    catch_up: CatchUp = CatchUp.LAST
    grace_ms: int | None = None
    overlap: Overlap = Overlap.SKIP
    on_crash: OnCrash = OnCrash.AGAIN


def schedule(
    cron: str | None = None,
    *,
    every_s: float | None = None,
    tz: str = "UTC",
    catch_up: Literal["last", "all", "none"] = "last",
    grace_s: float | None = None,
    overlap: Literal["skip", "queue"] = "skip",
    on_crash: Literal["again", "skip"] = "again",
) -> Callable[[F], F]:
    """Run a method ``def name(self, tick)`` of a career at these times, while the career leads.

    ``cron``: five fields, as Debian's cron reads them, in the zone ``tz``. Or ``every_s``: an
    interval, at least 0.1 s, counted from the epoch (then ``tz`` is only the zone of ``tick.at``).
    ``catch_up``: of the ticks that nobody could run in time, the next leader runs the ``"last"``,
    ``"all"`` (oldest first, the newest 100 of them) or ``"none"`` (only one that is at most a
    minute late). ``grace_s``: ticks that are older are not run. ``overlap``: a tick that comes due
    while the one before still runs is left out (``"skip"``), or the last such tick runs after it
    (``"queue"``); with ``catch_up="all"`` all run. ``on_crash``: a tick that was begun, and whose
    end is not recorded, is run ``"again"`` by the next leader, or is not (``"skip"``).

    *Guarantees:* each tick has one record, written by the leader's fenced write before the work and
    completed after it; the history shows the ticks that were not run, with the reason. The work of
    a tick is done at least once; with ``on_crash="skip"`` at most once. Its result is stored
    exactly once if ``tick.write`` writes it, or a database that refuses lower term numbers.
    *Not guaranteed:* that a tick begins on time: ticks are units of work of the career's one
    thread, and take turns with ``execute`` and with other schedules of the class.

    If the method raises, the tick has failed, and the term goes on. If it raises while the term is
    ending, the tick counts as interrupted, and ``on_crash`` decides. Raises
    :class:`ConfigurationError`.
    """
    require(
        _one_of("catch_up", catch_up, CatchUp),
        _one_of("overlap", overlap, Overlap),
        _one_of("on_crash", on_crash, OnCrash),
        None if grace_s is None else above_0("grace_s", grace_s, "seconds, or None"),
    )
    made = Definition(
        "",
        when_of(cron, every_s, tz),
        CatchUp(catch_up),
        None if grace_s is None else round(grace_s * 1000),
        Overlap(overlap),
        OnCrash(on_crash),
    )

    def marked(method: F) -> F:
        setattr(method, _MARK, made)
        return method

    return marked


def only_waiting(method: F) -> F:
    """Mark an ``execute`` that only waits. The runner does not call it; the runner waits for ticks
    instead.
    """
    setattr(method, _WAITS, True)
    return method


def only_waits(method: object) -> bool:
    return getattr(method, _WAITS, False)


def when_of(cron: str | None, every_s: float | None, tz: str) -> When:
    """The times that these arguments describe; raises :class:`ConfigurationError`."""
    if (cron is None) == (every_s is None):
        raise ConfigurationError("a schedule needs either a cron expression, or every_s=SECONDS")
    require(wanted("tz", tz, isinstance(tz, str), "its name, like 'Europe/Berlin'"))
    zone(tz)
    if every_s is not None:
        require(between("every_s", every_s, 0.1, MAX_S))
        return When(None, tz, round(every_s * 1000))
    made = When(" ".join(str(cron).split()), tz)
    if len(str(made.cron).split()) != _FIELDS:
        what = f"cron expression {cron!r} does not have five fields"
        raise ConfigurationError(f"{what}: minute, hour, day of month, month, day of week")
    if made.after(0) is None:
        raise ConfigurationError(f"cron expression {cron!r} has no tick in fifty years")
    return made


def _one_of(name: str, value: object, kind: type[Enum]) -> Problem:
    words = [one.value for one in kind]
    return wanted(name, value, value in words, " or ".join(map(repr, words)))


def definitions_of(kind: type) -> dict[str, Definition]:
    """The schedules of a class, by the names of their methods."""
    found: dict[str, Definition] = {}
    for one in reversed(kind.__mro__):
        for name, value in vars(one).items():
            # A class method, a static method and a property (which is refused) hold a function.
            method = getattr(value, "__func__", None) or getattr(value, "fget", None) or value
            if isinstance(made := getattr(method, _MARK, None), Definition):
                found[name] = replace(made, name=name)
            else:
                found.pop(name, None)  # overridden by a method without a schedule
    return found
