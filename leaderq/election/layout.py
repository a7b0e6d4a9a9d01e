"""The znodes of a career: their paths and contents, and the order of the line (pure).

Candidates are named as Curator's ``LeaderLatch`` names them, ``_c_<uuid4>-latch-<sequence>``, so
that a Java latch can stand in the same line. The sequence is ZooKeeper's signed 32-bit counter:
after 2147483647 it goes on at -2147483648, so names are compared as numbers modulo 2^32, never as
text.

The ``term`` and ``control`` znodes hold JSON objects, readable and repairable by hand. Fields that
this version does not know are ignored, and kept when a record is written again. The object in
``processes/<session>`` (host, pid, versions) is written by ``enlistment.py``; ``software.py`` reads
the versions, and ``observer.py`` the host and pid.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

from leaderq.base import chance
from leaderq.base.arguments import is_text
from leaderq.errors import CorruptRecord

log = logging.getLogger(__name__)

# The server writes "%010d" of an int: past 2^31 creations that is a minus and nine or ten digits.
_NAME = re.compile(r".*latch-(\d{10}|-\d{9,10})$")
_COUNTER = 1 << 32
# The record is read at each survey and written at each claim: it stays well below 4 KB.
_KEPT_TERMS = 10
_LONGEST_ERROR = 240
_LONGEST_ID = 200
_LARGEST = 1e12  # no calendar goes as far
_SHOWN_COOL_OFF_S = 0.5


class Layout:
    """The paths of one career below ``root``."""

    def __init__(self, root: str, career: str) -> None:
        self.root = root
        self.career = career
        # The parent of several users' careers: whoever makes it lets others create there.
        self.shared = root.rstrip("/") or "/"
        self.base = f"{root.rstrip('/')}/{career}"
        self.candidates = f"{self.base}/candidates"  # the folder of the line
        self.processes = f"{self.base}/processes"  # that wait in it: where each session runs
        self.term = f"{self.base}/term"  # the record of the newest term
        self.control = f"{self.base}/control"  # the operators' wishes
        self.progress = f"{self.base}/progress"  # of a leader that drains something
        self.offsets = f"{self.base}/offsets"  # kept in ZooKeeper, one znode per topic
        self.burials = f"{self.base}/burials"  # records that operators want to pass
        self.schedules = f"{self.base}/schedules"  # the records of ticks; as data, wishes
        self.once = f"{self.base}/once"  # what was done for keys, by lead --once
        self.attempts = f"{self.base}/attempts"  # at records over which processes have died

    def candidate(self, name: str) -> str:
        return f"{self.candidates}/{name}"

    def process(self, session: int) -> str:
        """The path of the znode that tells where the process of ``session`` runs."""
        return f"{self.processes}/{session:x}"


def new_guid() -> str:
    """A new mark, by which a candidate finds its znode even if the reply to its creation
    was lost.
    """
    return str(chance.uuid4())


def name_prefix(guid: str) -> str:
    """The name that a candidate asks ZooKeeper to create; the server appends the sequence."""
    return f"_c_{guid}-latch-"


def sequence(name: str) -> int | None:
    """The counter in a candidate's name, unsigned; ``None`` if the name is not a candidate's."""
    match = _NAME.match(name)
    return int(match.group(1)) % _COUNTER if match else None


def in_line(names: Iterable[str]) -> list[str]:
    """The candidates among ``names`` in the order of the line; the first one leads or may claim."""
    numbered = [(number, name) for name in names if (number := sequence(name)) is not None]
    # Candidates live at most 2^31 apart; a wider spread means that the counter wrapped between
    # them.
    wrapped = max(numbered, default=(0, ""))[0] - _COUNTER // 2
    numbered.sort(key=lambda one: one[0] + (_COUNTER if one[0] < wrapped else 0))
    return [name for _, name in numbered]


@dataclass(frozen=True, slots=True)
class Position:
    """A candidate's place in the line: its own znode ``name``, and the one directly in front,
    ``ahead`` (``None``: nobody). ``surplus``: further znodes of its own, from a creation that was
    repeated because its reply was lost. ``rank``: how many stand in front.
    """

    name: str
    ahead: str | None
    surplus: tuple[str, ...]
    rank: int


def position_of(guid: str, names: Sequence[str]) -> Position | None:
    """The place of the candidate with the mark ``guid``; ``None`` if it is not in the line."""
    line = in_line(names)
    own = [name for name in line if guid in name]
    if not own:
        return None
    position = line.index(own[0])
    ahead = line[position - 1] if position else None
    return Position(own[0], ahead, tuple(own[1:]), position)


R = TypeVar("R", "TermRecord", "Wishes")


@dataclass(frozen=True, slots=True)
class TermRecord:
    """The record of the newest term: who leads, or led last.

    ``candidate`` is the id given by ``--id``; ``id`` the name of its znode, unique for ever.
    ``began`` and ``ended`` are seconds since the epoch, for people. If ``ended`` is ``None``
    although the znode is gone, the end was unclean. ``error`` is the career's error;
    ``stands_again`` is the time at which the candidate, which cools off, joins the line again.
    ``past`` are the earlier terms, the newest first. They stay as they are in the JSON, because
    they are written again at every claim and release, and nobody leads in that time. ``version``
    (of the career's package), ``leaderq`` and ``career_class`` are what the candidate runs;
    ``other``: fields that only newer versions know.
    """

    number: int = 0
    candidate: str | None = None
    id: str | None = None
    host: str | None = None
    pid: int | None = None
    stage: str | None = None
    began: float | None = None
    ended: float | None = None
    reason: str | None = None
    error: str | None = None
    stands_again: float | None = None
    past: tuple[Mapping[str, Any], ...] = ()
    version: str | None = None
    leaderq: str | None = None
    career_class: str | None = None
    other: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Wishes:
    """The wishes of operators for a career.

    ``paused``: the leader begins no new unit of work. ``step_down``: the number of the term that
    should end; ``successor``: who should follow it. ``floor``: the least number of the next term.
    ``asked``: the wishes whose operators are known by name, the newest first. ``other``: fields
    that only newer versions know.
    """

    paused: bool = False
    step_down: int | None = None
    successor: str | None = None
    floor: int = 0
    asked: tuple[Mapping[str, Any], ...] = field(default=(), hash=False)
    other: Mapping[str, Any] = field(default_factory=dict, hash=False)


_NAMES = {
    kind: tuple(each.name for each in fields(kind) if each.name != "other")
    for kind in (TermRecord, Wishes)
}
_RARE = ("error", "stands_again", "past", "version", "leaderq", "career_class", "asked")


def _is_label(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= _LONGEST_ID


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < _LARGEST  # no NaN either


_USABLE: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("candidate", "id", "host", "stage", "reason", "error", "successor"), is_text),
    **dict.fromkeys(("version", "leaderq", "career_class"), _is_label),
    **dict.fromkeys(("began", "ended", "stands_again", "pid", "step_down"), _is_number),
}
"""What the value of a field must be; any other counts as not there, and spoils no record."""
_REMEDIES = {
    "TermRecord": "nobody can lead until it is repaired: leaderq raise-floor NUMBER "
    "--career CAREER, with a number above every term that was ever given out",
    "Wishes": "the operators' wishes are lost; the next leaderq pause or resume writes it again",
}


def encode(record: TermRecord | Wishes) -> bytes:
    """The bytes that :func:`decode` reads."""
    values = _values(record)
    values = {name: value for name, value in values.items() if value or name not in _RARE}
    return json.dumps({**values, **record.other}, separators=(",", ":")).encode()


def _values(record: TermRecord | Wishes) -> dict[str, Any]:
    return {name: getattr(record, name) for name in _NAMES[type(record)]}


def decode(kind: type[R], data: bytes, *, path: str) -> R:
    """The record in ``data``; an empty record if there is no data. Raises :class:`CorruptRecord` if
    it is damaged.
    """
    if not data:
        return kind()
    name = kind.__name__
    with CorruptRecord.unless(f"a {name}", path, data, _REMEDIES[name]):
        return _made(kind, json.loads(data))


def _made(kind: type[R], found: object) -> R:
    if not isinstance(found, Mapping):
        raise TypeError("it is not a JSON object")
    known: dict[str, Any] = {name: found[name] for name in _NAMES[kind] if name in found}
    number = known.get("number", known.get("floor", 0))
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise ValueError(f"{number!r} is not a term number")
    for name, value in [*known.items()]:
        if name in ("past", "asked"):
            listed = value if isinstance(value, list) else ()
            known[name] = tuple(one for one in listed if isinstance(one, Mapping))
        elif name in _USABLE and not _USABLE[name](value):
            del known[name]
    return kind(**known, other=_unknown(kind, found))


def _unknown(kind: type[TermRecord | Wishes], found: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name not in _NAMES[kind]}


def unknown_in(data: bytes) -> Mapping[str, Any]:
    """The fields of a damaged ``term`` record that only newer versions know; empty if it
    has none.
    """
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return _unknown(TermRecord, found) if isinstance(found, Mapping) else {}


def terms_before(record: TermRecord) -> tuple[TermRecord, ...]:
    """The terms before that of ``record``, the newest first, without damaged ones."""
    terms = []
    for each in record.past:
        try:
            terms.append(replace(_made(TermRecord, each), past=()))
        except ValueError:
            continue
    return tuple(terms)


def asked_with(
    asked: Sequence[Mapping[str, Any]], entry: Mapping[str, Any]
) -> tuple[Mapping[str, Any], ...]:
    """Return ``asked`` with ``entry`` in front, its texts shortened; only the newest entries are
    kept.
    """
    short = {name: _shortened(each) for name, each in entry.items()}
    return (short, *asked)[:_KEPT_TERMS]


def _shortened(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    text = " ".join(value.split())
    return text if len(text) <= _LONGEST_ERROR else text[: _LONGEST_ERROR - 1] + "…"


class WishesDecoder:
    """Decodes the ``control`` record at ``path``. The same damaged record is logged only once."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._spoilt: bytes | None = None

    def decoded(self, data: bytes) -> Wishes | None:
        """The wishes in ``data``; ``None`` if the record is damaged."""
        try:
            return decode(Wishes, data, path=self._path)
        except CorruptRecord as exc:
            if data != self._spoilt:
                self._spoilt = data
                log.error("%s", exc)  # noqa: TRY400  (a sentence for operators)
            return None


def next_number(newest: TermRecord, wishes: Wishes) -> int:
    """The number of the term after ``newest``: one more, or the operators' floor if that is
    higher.
    """
    return max(newest.number + 1, wishes.floor)


def past_with(newest: TermRecord) -> tuple[Mapping[str, Any], ...]:
    if newest.candidate is None:
        return newest.past
    values = {
        name: value
        for name, value in _values(newest).items()
        if value is not None and name not in ("past", "career_class")
    }
    return ({**values, **newest.other}, *newest.past)[:_KEPT_TERMS]


@dataclass(frozen=True, slots=True)
class EndDetails:
    """What operators are shown of a term's end: the error, and the seconds of the cool-off."""

    error: str | None = None
    cool_off_s: float = 0.0


def closed(
    record: TermRecord, *, ended: float, reason: str, details: EndDetails | None = None
) -> TermRecord:
    error = stands_again = None
    if details is not None and details.error:
        error = _shortened(details.error)
    if details is not None and details.cool_off_s >= _SHOWN_COOL_OFF_S:
        stands_again = round(ended + details.cool_off_s, 3)
    return replace(record, ended=ended, reason=reason, error=error, stands_again=stands_again)
