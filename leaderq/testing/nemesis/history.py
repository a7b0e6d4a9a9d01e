"""The history of a run, to which all its processes write: one JSON object a line. Also defines the
words that stand in it.

Each line is one write to a file opened with ``O_APPEND``, so its place in the file is its place in
time. ``at`` is :func:`leaderq.base.clock.now_s`, the same clock for all processes of the host.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Final

from leaderq.base import clock
from leaderq.errors import LeaderqError
from leaderq.term import Term
from leaderq.zookeeper import Create

FOLDER: Final = "NEMESIS_FOLDER"
WORKER: Final = "NEMESIS_WORKER"
REGISTER: Final = "NEMESIS_REGISTER"


class What(str, Enum):
    """The event that a line of the history is about."""

    CONNECTED = "connected"  # a worker's session, for the first time or again
    INAUGURATED = "inaugurated"  # by the career: its term begins to act
    UNIT = "unit"  # a unit of work begins
    EFFECT = "effect"  # the career, or a child of it, acts on the world without a fence
    BELIEVED = "believed"  # check() passed after ``at``
    HANDED_OVER = "handed over"
    ACCEPTED = "accepted"  # a fenced write stands in ZooKeeper, as number ``number``
    LEADER = "leader"  # an observer sees another one than before
    FAULT = "fault"  # a fault begins: written before
    OVER = "over"  # it is healed: written after
    PAUSED = "paused"  # an operator's pause stands
    RESUMED = "resumed"  # it is about to be taken back
    HEALED = "healed"  # every fault is over, everything runs
    SAMPLE = "sample"  # what a process uses
    STRAY = "stray"  # something is left over, or missing; ``why`` is a sentence


class Part(Enum):
    """The part that a fault strikes. At most one fault at a time strikes the same part of a
    candidate.
    """

    PROCESS = "process"
    NETWORK = "network"
    SESSION = "session"
    SERVERS = "servers"
    PAUSE = "pause"
    WISH = "wish"


class Kind(str, Enum):
    """The kinds of fault. A worker's *tree* is the worker and all that it has started.

    ``part`` is the part that is struck; ``lasts`` says whether the fault lasts until it is healed.
    """

    KILL_WORKER = "kill worker", Part.PROCESS, False
    KILL_GUARDIAN = "kill guardian", Part.PROCESS, False
    KILL_BOTH = "kill guardian and worker", Part.PROCESS, True
    FREEZE_WORKER = "freeze worker alone", Part.PROCESS, True
    FREEZE_TREE = "freeze worker's tree", Part.PROCESS, True
    FREEZE_GUARDIAN = "freeze guardian", Part.PROCESS, True
    FREEZE_BOTH = "freeze guardian and worker's tree", Part.PROCESS, True
    DELETE_ZNODE = "freeze worker and delete its znode", Part.PROCESS, True
    HOLD_GIL = "hold GIL", Part.PROCESS, True
    END_SESSION = "end session", Part.SESSION, False
    BLACK_HOLE = "black hole", Part.NETWORK, True
    BLACK_HOLE_TO_SERVER = "black hole to servers", Part.NETWORK, True
    BLACK_HOLE_TO_CLIENT = "black hole to client", Part.NETWORK, True
    RESET = "reset connections", Part.NETWORK, False
    LOSE_CREATE = "lose reply to create", Part.NETWORK, True
    LOSE_CLAIM = "lose reply to claim", Part.NETWORK, True
    LOSE_RELEASE = "lose reply to release", Part.NETWORK, True
    LOSE_RENEWAL = "lose reply to renewal", Part.NETWORK, True
    LOSE_READ = "lose reply to read", Part.NETWORK, True
    KILL_SERVER = "kill server", Part.SERVERS, True
    FREEZE_SERVER = "freeze server", Part.SERVERS, True
    RESTART_SERVER = "restart server", Part.SERVERS, False
    ROLLING_RESTART = "rolling restart", Part.SERVERS, False
    FREEZE_HEAD = "freeze the servers' leader", Part.SERVERS, True
    CUT_SERVERS = "cut a server off from the servers' leader", Part.SERVERS, True
    STALL_AND_CUT = "stall a server, then cut it off", Part.SERVERS, True
    LOSE_QUORUM = "lose quorum", Part.SERVERS, True
    PAUSE = "pause", Part.PAUSE, True
    STEP_DOWN = "step down", Part.WISH, False
    TRANSFER = "transfer", Part.WISH, False

    part: Part
    lasts: bool

    def __new__(cls, value: str, part: Part, lasts: bool) -> Kind:
        kind = str.__new__(cls, value)
        kind._value_, kind.part, kind.lasts = value, part, lasts
        return kind


@dataclass(frozen=True, slots=True)
class Line:
    """One event. ``pid`` is that of the worker, also if the event is about its child or its
    guardian.
    """

    at: float
    what: What
    who: str = ""
    pid: int = 0
    term: int = 0
    child: bool = False
    number: int = 0  # of a fault, of a fenced write
    kind: Kind | None = None
    why: str = ""
    sizes: Mapping[str, int] = field(default_factory=dict)


class History:
    """The file at ``path``, for appending. Threads and processes may share it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def append(self, what: What, *, at: float | None = None, **values: Any) -> None:
        """Add a line; ``values`` are fields of :class:`Line`."""
        line = {"at": round(clock.now_s() if at is None else at, 6), "what": what, **values}
        os.write(self._file, json.dumps(line, separators=(",", ":")).encode() + b"\n")

    @property
    def size(self) -> int:
        return os.fstat(self._file).st_size

    def close(self) -> None:
        os.close(self._file)


def read(path: Path, *, since: int = 0) -> Iterator[Line]:
    """Yield the lines of a history in order, beginning at byte ``since``; a line that was cut off
    is left out.
    """
    with path.open("rb") as text:
        text.seek(since)
        for raw in text:
            if raw.endswith(b"\n"):
                values = json.loads(raw)
                values["what"] = What(values["what"])
                if "kind" in values:
                    values["kind"] = Kind(values["kind"])  # type: ignore[call-arg]
                yield Line(**values)


def effect(term: Term | int) -> None:
    """Record that ``term`` acts on the world now, in a worker or a child of a worker. Does nothing
    outside of a nemesis.
    """
    worker = int(os.environ.get(WORKER, "0"))
    child = {"child": True} if worker != os.getpid() else {}
    number = term if isinstance(term, int) else term.number
    note(What.EFFECT, pid=worker, term=number, **child)


def fenced_write(term: Term) -> None:
    """Write the number of ``term`` to the register of the nemesis, fenced.

    This leaves out the look at the clock that ``term.write`` takes, so ZooKeeper itself must
    refuse. Does nothing outside of a nemesis; never raises a ``LeaderqError``.
    """
    register = os.environ.get(REGISTER)
    if register:
        with suppress(LeaderqError):
            # Sequential: all that was accepted can be read, also where its reply was lost.
            write = Create(f"{register}/w-", b"%d" % term.number, sequential=True)
            term._fenced_write(term, [write])


def note(what: What, **values: Any) -> None:
    """Add a line to the history of the nemesis, if this process is part of one."""
    if (history := own_history()) is not None:
        history.append(what, **values)


@functools.cache
def own_history() -> History | None:
    folder = os.environ.get(FOLDER)
    return History(Path(folder) / "history.jsonl") if folder else None
