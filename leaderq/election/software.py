"""The software that a candidate runs, its host and process, and which of two candidates has the
newer software (pure).

A candidate tells this in ``processes/<session>`` (:class:`ProcessNote`, read and written only
here), a leader in the ``term`` record. Others have written what stands there: if it is not a short
line of text it counts as unknown, and so does a version that PEP 440 does not allow. Unknown
software is neither newer nor older than any other. So *newer* is a strict partial order, and
candidates cannot give way to each other in a circle.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from leaderq.election.layout import Layout, TermRecord
from leaderq.errors import Reason
from leaderq.zookeeper import GetData, Read

LONGEST_VERSION = 64
"""Longer versions count as unknown: they would stand in eleven terms of the record."""
_LONGEST_CLASS = 120
_PEP_440 = re.compile(
    r"v?(?:(\d+)!)?(\d+(?:\.\d+)*)"
    r"(?:[-_.]?(a|b|c|rc|alpha|beta|pre|preview)[-_.]?(\d*))?"
    r"(?:-(\d+)|[-_.]?(post|rev|r)[-_.]?(\d*))?"
    r"(?:[-_.]?(dev)[-_.]?(\d*))?"
    r"(?:\+[a-z0-9]+(?:[-_.][a-z0-9]+)*)?",
    re.IGNORECASE | re.ASCII,
)
_PHASES = {"a": 0, "alpha": 0, "b": 1, "beta": 1, "c": 2, "rc": 2, "pre": 2, "preview": 2}
_FAILING = frozenset({Reason.FAILED.value, Reason.BUDGET.value, Reason.HEALTH.value})

VersionOrder = tuple[int, tuple[int, ...], tuple[int, int], int, float]
"""What versions are compared by: epoch, release, phase, post-release, development release."""


@dataclass(frozen=True, slots=True)
class Software:
    """The software that a candidate runs; ``None``: not known, as for a Java latch.

    ``version`` is that of the user's package, ``leaderq`` that of leaderq; ``career_class`` is
    ``module:Class``.
    """

    version: str | None = None
    leaderq: str | None = None
    career_class: str | None = None

    @property
    def release(self) -> tuple[str | None, str | None]:
        """The two versions, which all candidates of one deployment have in common."""
        return self.version, self.leaderq


@dataclass(frozen=True, slots=True)
class ProcessNote:
    """What a process tells of itself, for all its candidates; ``None``: not known. A new field
    needs a field here, a line of :meth:`decode`, and a field of ``observer.Member``.
    """

    host: str | None = None
    pid: int | None = None
    software: Software = Software()

    def encode(self) -> bytes:
        """The data of its znode."""
        said = {"host": self.host, "pid": self.pid, **asdict(self.software)}
        return json.dumps({name: one for name, one in said.items() if one is not None}).encode()

    @classmethod
    def decode(cls, data: bytes) -> ProcessNote:
        """Read the note in ``data``; what cannot be used is ``None``. Raises nothing."""
        try:
            said = json.loads(data)
        except (ValueError, RecursionError):
            return cls()
        if not isinstance(said, Mapping):
            return cls()
        host, pid, kind = said.get("host"), said.get("pid"), said.get("career_class")
        return cls(
            host if isinstance(host, str) else None,
            pid if isinstance(pid, int) else None,
            Software(
                usable_version(said.get("version")),
                usable_version(said.get("leaderq")),
                class_shown(kind) if isinstance(kind, str) else None,
            ),
        )


def usable_version(value: object) -> str | None:
    """``value`` if it is a short line of text, else ``None``."""
    is_usable = isinstance(value, str) and 0 < len(value) <= LONGEST_VERSION
    return str(value) if is_usable and str(value).isprintable() else None


def class_shown(name: str) -> str:
    """Return ``name``; of a very long name, only the end."""
    return name if len(name) <= _LONGEST_CLASS else "…" + name[1 - _LONGEST_CLASS :]


def order_of(version: str | None) -> VersionOrder | None:
    """Return the values by which ``version`` is compared; ``None`` if it cannot be compared. This
    is PEP 440, except that what follows a ``+`` is ignored: it is mostly a hash, which has no
    order.
    """
    match = _PEP_440.fullmatch(version) if version and len(version) <= LONGEST_VERSION else None
    if match is None:
        return None
    epoch, release, phase, phased, dashed, post, posted, dev, developed = match.groups()
    numbers = [int(each) for each in release.split(".")]
    while numbers and not numbers[-1]:
        numbers.pop()
    is_post = dashed is not None or post is not None
    if phase is not None:
        stage = (_PHASES[phase.lower()], int(phased or 0))
    else:
        stage = (3, 0) if is_post or dev is None else (-1, 0)
    return (
        int(epoch or 0),
        tuple(numbers),
        stage,
        int(dashed or posted or 0) if is_post else -1,
        int(developed or 0) if dev is not None else math.inf,
    )


def is_newer(one: Software, other: Software) -> bool:
    """Whether ``one`` is newer than ``other``. The versions of the user's package decide; if they
    are equal or both unknown, the versions of leaderq decide.
    """
    ours, theirs = order_of(one.version), order_of(other.version)
    if ours != theirs:
        return ours is not None and theirs is not None and ours > theirs
    ours, theirs = order_of(one.leaderq), order_of(other.leaderq)
    return ours is not None and theirs is not None and ours > theirs


def has_failed(software: Software, terms: Iterable[TermRecord]) -> bool:
    """Whether this software is not preferred because of its terms: the last one failed, or each of
    the last two failed or ended uncleanly. ``terms`` are those that have ended, the newest first.
    """
    own = [each for each in terms if (each.version, each.leaderq) == software.release][:2]
    failed = [each.reason in _FAILING for each in own]
    bad = [each.ended is None or is_failed for each, is_failed in zip(own, failed, strict=True)]
    return failed[:1] == [True] or bad == [True, True]


def newer_in(
    line: Iterable[Software], own: Software, terms: Sequence[TermRecord]
) -> Software | None:
    """The first software in ``line`` that should lead instead of a candidate that runs ``own``."""
    return next((one for one in line if is_newer(one, own) and not has_failed(one, terms)), None)


Reading = Generator[list[Read], list[Any], dict[str, Software]]


def reading(layout: Layout, names: Sequence[str]) -> Reading:
    """Find out what the candidates ``names`` run. A generator: it yields the reads to be made, must
    be sent their results, and returns the software by name. Candidates that have left are missing.
    """
    nodes = yield [GetData(layout.candidate(name)) for name in names]
    owners = {
        name: int(node[1].ephemeral_owner)
        for name, node in zip(names, nodes, strict=True)
        if isinstance(node, tuple)
    }
    sessions = sorted(set(owners.values()))
    said = yield [GetData(layout.process(session)) for session in sessions]
    told = {
        session: ProcessNote.decode(each[0]).software
        for session, each in zip(sessions, said, strict=True)
        if isinstance(each, tuple)
    }
    return {name: told.get(owner, Software()) for name, owner in owners.items()}
