"""Checks what must not be in a history. Pure: a checker reads lines and returns sentences, or none.

A line is *dead* if, earlier in the file, a later term than its own was inaugurated. Some dead lines
are excused, because nobody promised to prevent them: see :class:`_Excuses`.
"""

from __future__ import annotations

from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final

from leaderq.testing.nemesis.history import Kind, Line, What, read

FREEZES: Final = frozenset({Kind.FREEZE_WORKER, Kind.FREEZE_TREE, Kind.FREEZE_BOTH})
"""The faults that stop a worker."""
# Looked up once: a checker compares every line with most of these.
_INAUGURATED: Final = What.INAUGURATED
_ACCEPTED: Final = What.ACCEPTED
_BELIEVED: Final = What.BELIEVED
_HEALED: Final = What.HEALED
_FAULT: Final = What.FAULT
_OVER: Final = What.OVER
_ALONE: Final = frozenset({Kind.KILL_GUARDIAN, Kind.KILL_BOTH, Kind.FREEZE_GUARDIAN})
_BEGINNINGS: Final = frozenset({What.INAUGURATED, What.UNIT})
_ACTS: Final = _BEGINNINGS | {What.EFFECT, What.BELIEVED}
_COUNTED: Final = _ACTS | {What.HANDED_OVER, What.ACCEPTED, What.HEALED}
_ENOUGH_SAMPLES: Final = 24
_GROWTH: Final = 1.25
_SLACK: Final = {"threads": 4, "descriptors": 8, "memory_kb": 12_288}


@dataclass(frozen=True, slots=True)
class Bounds:
    """The times in the promises. ``patience`` stretches those that a slow host cannot keep."""

    timeout_s: float
    patience: float = 1.0

    @property
    def thaw_s(self) -> float:
        """How long a process may continue after it was thawed."""
        return 0.1 * self.patience

    @property
    def guardian_s(self) -> float:
        """How long a guardian that was frozen may take to end an overdue worker: a quarter of T is
        for ``handOver``, and a tenth of a second for the unit that was about to end.
        """
        return (self.timeout_s / 4 + 0.1) * self.patience

    @property
    def leader_s(self) -> float:
        """How soon somebody must lead after everything was healed."""
        return (self.timeout_s + 2) * self.patience

    @property
    def newcomer_s(self) -> float:
        """How long after the beginning of a pause a new leader may be inaugurated without knowing
        of it.
        """
        return 1.0 * self.patience


def register_never_falls_back(lines: Iterable[Line], bounds: Bounds) -> list[str]:
    """Sentences about fenced writes that ZooKeeper accepted after a write of a newer term."""
    problems = []
    newest = Line(0, _ACCEPTED, number=-1)
    for line in lines:
        if line.what is _ACCEPTED:
            if line.number <= newest.number or line.term < newest.term:
                problems.append(
                    f"fenced write {line.number} of term {line.term} was accepted after "
                    f"write {newest.number} of term {newest.term}"
                )
            newest = max(newest, line, key=lambda each: (each.term, each.number))
    return problems


def nothing_after_its_term(lines: Iterable[Line], bounds: Bounds) -> list[str]:
    """Sentences about effects, units and beliefs of a term after a later term was inaugurated."""
    inaugurated: list[Line] = []  # in the order of their numbers
    excuses = _Excuses(bounds)
    dead: dict[tuple[int, int, str], list[Line]] = defaultdict(list)
    problems = []

    def successor(term: int) -> Line:
        return inaugurated[bisect([each.term for each in inaugurated], term)]

    for line in lines:
        excuses.hear(line)
        newest = inaugurated[-1] if inaugurated else Line(0, _INAUGURATED)
        if line.what is _INAUGURATED and line.term > newest.term:
            inaugurated.append(line)
        elif line.what is _INAUGURATED and line.term == newest.term:
            problems.append(f"{_named(line)} was inaugurated, although {_named(newest)} had been")
        elif line.what in _ACTS and line.term < newest.term:
            # The time of the look at the clock counts, not the time of writing.
            in_time = line.what is _BELIEVED and line.at <= successor(line.term).at
            if not in_time and not excuses.excuse(line):
                dead[line.term, line.pid, _what(line)].append(line)
    for (term, _, what), found in dead.items():
        later = successor(term)
        problems.append(
            f"{_named(found[0])}: {len(found)} {what} after {_named(later)} was inaugurated at "
            f"{later.at:.3f}, the first {found[0].at - later.at:.3f} s after it, "
            f"the last {found[-1].at - later.at:.3f} s after it"
        )
    return problems


def led_again(lines: Iterable[Line], bounds: Bounds) -> list[str]:
    """Sentences about healings after which nobody led within T + 2 s."""
    problems = []
    healed: Line | None = None
    newest, line = 0, Line(0, _HEALED)
    for line in lines:
        newest = max(newest, line.term if line.what is _INAUGURATED else 0)
        if healed is not None:
            is_led = leads(line, healed, newest, bounds)
            if is_led or line.what in (_HEALED, _FAULT):
                problems += _unled(healed, line.at, bounds)
                healed = None
        healed = line if line.what is _HEALED else healed
    return problems + (_unled(healed, line.at, bounds) if healed is not None else [])


def leads(line: Line, healed: Line, newest: int, bounds: Bounds) -> bool:
    """Whether ``line`` proves a leader after ``healed``; ``newest`` is the newest term's number.

    A unit that begins proves it. Effects prove it only later: at first they may come from a leader
    whose guardian is about to end it. An observer proves nothing: it may see the znode of a dead
    process.
    """
    if line.term < newest or line.child:
        return False
    is_late = line.what is What.EFFECT and line.at > healed.at + bounds.timeout_s / 3
    return is_late or line.what in _BEGINNINGS


def paused_is_paused(lines: Iterable[Line], bounds: Bounds) -> list[str]:
    """Sentences about units that began while an operator's pause was in force.

    The present leader knows of the pause within T: by then it has either heard from ZooKeeper, or
    has lost its lease.
    """
    problems = []
    began: dict[int, float] = {}
    excuses = _Excuses(bounds)
    paused: Line | None = None
    for line in lines:
        excuses.hear(line)
        if line.what is _INAUGURATED:
            began[line.term] = line.at
        elif line.what in (What.PAUSED, What.RESUMED):
            paused = line if line.what is What.PAUSED else None
        elif line.what is What.UNIT and paused is not None:
            is_new = began.get(line.term, 0.0) > paused.at + bounds.newcomer_s
            is_late = is_new or line.at > paused.at + bounds.timeout_s
            if is_late and not excuses.excuse(line):
                leader = "inaugurated under it" if is_new else "which was there before it"
                when = f"at {line.at:.3f}, {line.at - paused.at:.3f} s into a pause"
                problems.append(f"{_named(line)}, {leader}, began a unit {when}")
    return problems


def nobody_left_behind(lines: Iterable[Line], bounds: Bounds) -> list[str]:
    """Sentences about processes that were left over, and candidates that did not come back."""
    return [line.why for line in lines if line.what is What.STRAY]


def flat(lines: Iterable[Line], bounds: Bounds) -> list[str]:
    """Sentences about processes whose threads, descriptors or memory grew between an early quarter
    of their lives and the last one. The life of a worker begins when it is connected, because it
    may wait long before.
    """
    connected: set[int] = set()
    samples: dict[tuple[str, int, str], list[Mapping[str, int]]] = defaultdict(list)
    for line in lines:
        if line.what is What.CONNECTED:
            connected.add(line.pid)
        elif line.what is What.SAMPLE and (line.why != "worker" or line.pid in connected):
            samples[line.who, line.pid, line.why].append(line.sizes)
    problems = []
    for (who, pid, role), found in samples.items():
        quarter = len(found) // 4
        for what, slack in _SLACK.items() if len(found) >= _ENOUGH_SAMPLES else ():
            # Not the very first: libraries are loaded, and buffers filled, when first used.
            early = median(sizes[what] for sizes in found[quarter // 2 : quarter // 2 + quarter])
            late = median(sizes[what] for sizes in found[-quarter:])
            if late > early * _GROWTH + slack:
                grew = f"grew from {early:.0f} to {late:.0f}"
                problems.append(f"{what} of the {role} of {who} (process {pid}) {grew}")
    return problems


CHECKERS: Final[Sequence[Callable[[Iterable[Line], Bounds], list[str]]]] = (
    register_never_falls_back,
    nothing_after_its_term,
    led_again,
    paused_is_paused,
    nobody_left_behind,
    flat,
)


@dataclass(frozen=True)
class NemesisReport:
    """The results of a run; as text, a table of them.

    ``violations`` are sentences; there must be none. ``counts`` says how often each event was
    recorded, ``faults`` how often each fault was done.
    """

    history: Path
    seed: int
    violations: list[str]
    counts: Mapping[str, int] = field(default_factory=dict)
    faults: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        counts = {**self.faults, "": "", **self.counts, "violations": len(self.violations)}
        table = [f"{name:<34}{count:>10}".rstrip() for name, count in counts.items()]
        closing = f"seed={self.seed} history={self.history}"
        return "\n".join([*table, *self.violations, closing])


def check(path: Path, *, seed: int, bounds: Bounds) -> NemesisReport:
    violations = [each for checker in CHECKERS for each in checker(read(path), bounds)]
    counts: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    for line in read(path):
        if line.what is _FAULT and line.kind is not None:
            faults[line.kind.value] += 1
        elif line.what is _OVER:
            counts["faults that failed"] += bool(line.why)
        elif line.what in _COUNTED:
            counts[f"{line.what.value} by a child" if line.child else line.what.value] += 1
    counts["faults"] = faults.total()
    ordered = [dict(sorted(each.items())) for each in (counts, faults)]
    return NemesisReport(path, seed, violations, *ordered)


@dataclass
class _Harm:
    """The harm done to one worker. ``used`` counts how many beginnings of units it has excused."""

    kind: Kind
    over_s: float = float("inf")
    used: int = 0


class _Excuses:
    """Excuses dead lines that nobody promised to prevent. Which ones depends on the faults that the
    worker has suffered (see ``docs/design/nemesis.md``):

    * The worker was frozen: its effects, and the beginning of one unit, are excused until 100 ms
      after it was thawed. If it was frozen alone, its children were not frozen, and have no excuse.
    * Its guardian was killed or frozen: effects of the worker and its children are excused; the
      beginning of a unit is not. If the guardian was thawed, the excuse ends T/4 and 100 ms later.
    * Its session or its znode was ended from outside: everything is excused until T later, when the
      worker must know.
    """

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._harms: dict[int, dict[int, _Harm]] = defaultdict(dict)

    def hear(self, line: Line) -> None:
        if line.what is _FAULT and line.kind is not None and line.pid:
            self._harms[line.pid][line.number] = _Harm(line.kind)
        elif line.what is _OVER and (harm := self._harms[line.pid].get(line.number)):
            harm.over_s = line.at

    def excuse(self, line: Line) -> bool:
        harms = self._harms.get(line.pid, {})
        return any(self._excuses(harm, line) for harm in reversed(harms.values()))

    def _excuses(self, harm: _Harm, line: Line) -> bool:
        kind, begins = harm.kind, line.what in _BEGINNINGS
        if kind in (Kind.END_SESSION, Kind.DELETE_ZNODE):
            return line.at <= harm.over_s + self._bounds.timeout_s
        if line.what is _BELIEVED:
            return False
        if kind in _ALONE:
            is_back = kind is Kind.FREEZE_GUARDIAN
            return not begins and not (is_back and line.at > harm.over_s + self._bounds.guardian_s)
        if kind not in FREEZES or (line.child and kind is Kind.FREEZE_WORKER):
            return False
        harm.used += begins
        return line.at <= harm.over_s + self._bounds.thaw_s and not (begins and harm.used > 1)


def _named(line: Line) -> str:
    whose = f" of {line.who}" if line.who else ""
    return f"term {line.term}{whose} (process {line.pid})"


def _what(line: Line) -> str:
    words = {What.EFFECT: "effects", What.UNIT: "units begun", _BELIEVED: "times believed in"}
    return f"{words.get(line.what, 'inaugurations')}{' of a child' if line.child else ''}"


def _unled(healed: Line, at: float, bounds: Bounds) -> list[str]:
    if at <= healed.at + bounds.leader_s:
        return []
    return [
        f"all was healed at {healed.at:.3f}, and nobody led for {at - healed.at:.1f} s; "
        f"promised is a leader within {bounds.leader_s:.1f} s"
    ]
