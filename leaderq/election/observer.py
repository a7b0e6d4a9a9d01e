"""What observers and operators can see of a career, and ask of it. They do not stand for election.

A view is put together from several reads. It may be a moment old, so nothing may be written because
of it.

A wish of an operator is a value in the ``control`` znode. It names the term that it is meant for,
so a late wish does nothing. The leader watches that znode, and ends its term in order. A damaged
``control`` record counts as empty, and the next wish writes it again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice
from types import MappingProxyType
from typing import Any, NamedTuple

from leaderq.base import clock
from leaderq.base.arguments import plain_function, require
from leaderq.election.layout import (
    Layout,
    TermRecord,
    Wishes,
    WishesDecoder,
    asked_with,
    decode,
    encode,
    in_line,
    next_number,
    terms_before,
    unknown_in,
)
from leaderq.election.software import ProcessNote, Software
from leaderq.errors import (
    BadVersion,
    ConfigurationError,
    CorruptRecord,
    LeaderqError,
    NoNode,
    NotEmpty,
    RequestRefused,
)
from leaderq.events import Stage
from leaderq.threads import primitives
from leaderq.zookeeper import (
    AnyClient,
    Delete,
    GetChildren,
    GetData,
    Session,
    WatchEvent,
    as_session,
)
from leaderq.zookeeper.paths import join
from leaderq.zookeeper.writing.groups import batched

_SESSION = re.compile(r"-?[0-9a-f]+")
_FORGET_TRIES = 3
_TOGETHER = 25
HIGHEST_TERM = 2**63 - 1
"""No term gets a higher number: it would not fit the columns in which resources keep it."""
FAR = 10**6
"""A floor is raised by no more than this unless it is meant: nothing lowers it again."""
REPAIRED = "unknown"
"""The ``id`` of a record that an operator has repaired: nobody's znode has that name."""


@dataclass(frozen=True, slots=True)
class Member:
    """A candidate, and where its process runs, if that is known (not of a Java latch).

    ``stands_again``: until when it cools off (seconds since the epoch), unless it was stopped.
    ``version`` is the version of the career's package; ``career_class`` is ``module:Class``.
    """

    candidate: str
    host: str | None = None
    pid: int | None = None
    stands_again: float | None = None
    version: str | None = None
    leaderq: str | None = None
    career_class: str | None = None


@dataclass(frozen=True, slots=True)
class View:
    """A career as it stood a moment ago.

    ``leader``, ``host``, ``pid`` (the worker's) and ``stage`` are ``None`` while nobody leads;
    ``term`` is the newest term's number, 0 before the first; ``began`` and ``ended`` are seconds
    since the epoch; ``reason`` is why the newest term ended, and ``error`` what its career raised;
    ``candidates`` are ids in the order of the line, the leader's first.

    ``members`` are the same candidates, with host and process; ``cooling_off`` are those that do
    not stand now and will stand again; ``history`` is the newest term and some before it.

    ``asked``: what operators who gave a name asked for, the newest first: ``at`` (seconds since the
    epoch), ``by``, ``what``, and ``why``.

    ``repaired``: the term record was unreadable and an operator has written it again. The record
    then names no leader, although the first of ``candidates`` may be in a term that began earlier.
    The next stage of that term, its end, or a new term makes the record complete.

    ``problem``: why the operators' wishes cannot be read. ``paused`` is ``False`` then, although
    the leader goes by those that it has read before.
    """

    career: str
    leader: str | None
    host: str | None
    pid: int | None
    term: int
    stage: str | None
    began: float | None
    ended: float | None
    reason: str | None
    paused: bool
    candidates: tuple[str, ...]
    error: str | None = None
    members: tuple[Member, ...] = ()
    cooling_off: tuple[Member, ...] = ()
    history: tuple[TermRecord, ...] = ()
    repaired: bool = False
    asked: tuple[Mapping[str, Any], ...] = ()
    problem: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON, without ``history``."""
        values = asdict(self)
        del values["history"]
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in values.items()
        }


@dataclass(frozen=True, slots=True)
class CandidateNode:
    """A znode in the line: its name, the id of the candidate, and the session that made it."""

    name: str
    candidate: str
    session: int = 0


Notes = Mapping[int, ProcessNote]
"""What the processes of sessions say of themselves."""


def view_of(
    career: str,
    record: TermRecord,
    wishes: Wishes,
    standing: Sequence[CandidateNode],
    *,
    notes: Notes = MappingProxyType({}),
    now: float = 0.0,
) -> View:
    """Make the view from what was read at ``now``; ``standing`` are the znodes in the line
    (pure).
    """
    leads = record.ended is None and any(one.name == record.id for one in standing)
    of_leader = _member(str(record.candidate), _said_by(record))
    return View(
        career=career,
        leader=record.candidate if leads else None,
        host=record.host if leads else None,
        pid=record.pid if leads else None,
        term=record.number,
        stage=record.stage if leads else None,
        began=record.began,
        ended=record.ended,
        reason=record.reason,
        paused=wishes.paused,
        candidates=tuple(one.candidate for one in standing),
        error=record.error,
        members=tuple(
            of_leader
            if leads and one.name == record.id
            else _member(one.candidate, notes.get(one.session, ProcessNote()))
            for one in standing
        ),
        cooling_off=_cooling_off(record, {one.candidate for one in standing}, now),
        history=()
        if record.candidate is None
        else (replace(record, past=()), *terms_before(record)),
        repaired=record.id == REPAIRED and bool(standing),
        asked=wishes.asked,
    )


def _cooling_off(record: TermRecord, standing: set[str], now: float) -> tuple[Member, ...]:
    """The candidates that ended a term lately and cool off at ``now``; the first to return comes
    first.
    """
    found: dict[str, Member] = {}
    for each in (record, *terms_before(record)):
        if each.candidate is None or each.candidate in found:
            continue  # its earlier terms do not count any more
        said = _said_by(each)
        found[each.candidate] = _member(each.candidate, said, stands_again=each.stands_again)
    waiting = [
        one
        for one in found.values()
        if one.candidate not in standing and one.stands_again and one.stands_again > now
    ]
    return tuple(sorted(waiting, key=lambda one: one.stands_again or 0.0))


def _said_by(record: TermRecord) -> ProcessNote:
    """The host, process and software of the leader of that term."""
    software = Software(record.version, record.leaderq, record.career_class)
    return ProcessNote(record.host, record.pid, software)


def _member(candidate: str, said: ProcessNote, *, stands_again: float | None = None) -> Member:
    return Member(candidate, said.host, said.pid, stands_again, **asdict(said.software))


class Observer:
    """Reads the state of one career, through a session or a started ``KazooClient``."""

    def __init__(self, client: AnyClient, career: str, *, root: str = "/leaderq") -> None:
        self._session: Session = as_session(client)
        self._career = career
        self._layout = Layout(root, career)

    def view(self) -> View:
        """The career as it is now. A career that nobody ever stood for has term 0 and no
        candidates.

        :raises CorruptRecord: the record of the newest term cannot be read.
        """
        return _viewed(self._layout, self._look(), clock.calendar_s())

    def wait_until(self, fact: Callable[[View], bool], *, timeout_s: float) -> View:
        """Return the first view for which ``fact(view)`` is true; after ``timeout_s`` seconds, the
        last view. Reads a new view whenever something below the career changes, and once a second.
        """
        require(plain_function("fact", fact))
        changed = primitives.Event()
        end_s = clock.now_s() + timeout_s
        with self.watching(lambda _event: changed.set()):
            while True:
                changed.clear()
                view = self.view()
                left_s = end_s - clock.now_s()
                if fact(view) or left_s <= 0:
                    return view
                changed.wait(min(1.0, left_s))

    def watching(self, callback: Callable[[WatchEvent], None]) -> Any:
        """Call ``callback``, on a ZooKeeper thread, at every change below the career."""
        self._session.ensure_path(self._layout.base, shared=self._layout.shared)
        return self._session.watch_tree(self._layout.base, callback)

    @staticmethod
    def careers(client: AnyClient, *, root: str = "/leaderq") -> list[str]:
        """The names, sorted, of all careers below ``root`` that anybody ever stood for."""
        try:
            return sorted(as_session(client).children(root))
        except NoNode:
            return []

    @staticmethod
    def views(
        client: AnyClient, careers: Sequence[str], *, root: str = "/leaderq"
    ) -> dict[str, View | CorruptRecord]:
        """Return the view of each of ``careers``, or the error if its record cannot be read. Sends
        two requests for every 25 careers.
        """
        session, now = as_session(client), clock.calendar_s()
        found: dict[str, View | CorruptRecord] = {}
        for some in batched(careers, _TOGETHER):
            layouts = [Layout(root, career) for career in some]
            for layout, read in zip(layouts, _looks(session, layouts), strict=True):
                try:
                    found[layout.career] = _viewed(layout, read, now)
                except CorruptRecord as error:
                    found[layout.career] = error
        return found

    def _look(self) -> _Look:
        (read,) = _looks(self._session, [self._layout])
        return read


class _Look(NamedTuple):
    """What two requests have read of one career; ``term`` and ``control`` are not decoded yet."""

    term: bytes
    control: bytes
    standing: list[CandidateNode]
    notes: Notes


def _looks(session: Session, layouts: Sequence[Layout]) -> list[_Look]:
    """Read all these careers, in two requests."""
    first: list[Any] = []
    for layout in layouts:
        first += [GetData(layout.term), GetData(layout.control)]
        first += [GetChildren(layout.candidates), GetChildren(layout.processes)]
    told = session.multi_read(first)
    lines, running = [], []
    for at in range(0, len(first), 4):
        lines.append(in_line(_there(told[at + 2]) or ()))
        running.append([name for name in _there(told[at + 3]) or () if _SESSION.fullmatch(name)])
    second: list[Any] = []
    for layout, line, names in zip(layouts, lines, running, strict=True):
        second += [GetData(layout.candidate(name)) for name in line]
        second += [GetData(layout.process(int(name, 16))) for name in names]
    # none from one that left in between
    answers = iter([_there(each) for each in session.multi_read(second)] if second else [])
    looks = []
    for at, (line, names) in enumerate(zip(lines, running, strict=True)):
        standing = [
            CandidateNode(name, each[0].decode(errors="replace"), each[1].ephemeral_owner)
            for name, each in zip(line, islice(answers, len(line)), strict=True)
            if each is not None
        ]
        notes = {
            int(name, 16): ProcessNote.decode(each[0])
            for name, each in zip(names, islice(answers, len(names)), strict=True)
            if each is not None
        }
        term, control = _data(told[4 * at]), _data(told[4 * at + 1])
        looks.append(_Look(term, control, standing, notes))
    return looks


def _viewed(layout: Layout, read: _Look, now: float) -> View:
    record = decode(TermRecord, read.term, path=layout.term)
    wishes, problem = Wishes(), None
    try:
        wishes = decode(Wishes, read.control, path=layout.control)
    except CorruptRecord as error:
        problem = str(error)
    view = view_of(layout.career, record, wishes, read.standing, notes=read.notes, now=now)
    return replace(view, problem=problem)


def _there(read: Any) -> Any:
    """Return what was read; ``None`` if the znode does not exist. Raises any other error."""
    if isinstance(read, NoNode):
        return None
    if isinstance(read, LeaderqError):
        raise read
    return read


def _data(read: Any) -> bytes:
    there = _there(read)
    data: bytes = b"" if there is None else there[0]
    return data


class Operator(Observer):
    """An :class:`Observer` that can also ask for changes; a refusal says why.

    ``by`` is the name of the person who asks, and ``why`` the reason. Both are stored with the
    request, for ``leaderq history``.
    """

    _control: tuple[Wishes, int] | None = None  # as last written here, and its version

    def __init__(
        self,
        client: AnyClient,
        career: str,
        *,
        root: str = "/leaderq",
        by: str | None = None,
        why: str = "",
    ) -> None:
        super().__init__(client, career, root=root)
        self._by, self._why = by, why

    def step_down(self, *, timeout_s: float = 60.0) -> View:
        """End the present term in order; return the view in which the next leader executes.

        :raises RequestRefused: nobody leads, nobody else stands, or no successor executes within
            ``timeout_s`` seconds.
        """
        view = self._led()
        if len(view.candidates) < 2:
            alone = f"{view.leader!r} is the only candidate of {self._career!r}"
            raise RequestRefused(f"{alone}; start another before it steps down")
        return self._succeed(view, None, timeout_s)

    def transfer(self, to: str, *, timeout_s: float = 60.0) -> View:
        """Do as :meth:`step_down`, but let candidate ``to`` lead next. If ``to`` leads, change
        nothing.

        Raises :class:`RequestRefused` also when ``to`` does not stand.
        """
        view = self._led()
        if view.leader == to:
            return view
        if to not in view.candidates:
            standing = ", ".join(view.candidates[1:]) or "nobody"
            problem = f"{to!r} does not stand for {self._career!r}"
            raise RequestRefused(f"{problem}; waiting there: {standing}")
        return self._succeed(view, to, timeout_s)

    def pause(self) -> View:
        """Let the present leader, and later ones, begin no new unit of work until
        :meth:`resume`.
        """
        self._change(lambda wishes: replace(wishes, paused=True), "pause")
        return self.view()

    def resume(self) -> View:
        """End a pause."""
        self._change(lambda wishes: replace(wishes, paused=False), "resume")
        return self.view()

    def raise_floor(self, number: int, *, far: bool = False) -> int:
        """Make the number of the next term at least ``number``; return the number that it will
        have, unless a candidate knows of a higher one. Use it if the servers have lost earlier
        terms, or if the ``term`` record is damaged: then the record is written again as if its term
        had ended uncleanly.

        :raises ConfigurationError: ``number`` is not positive, is more than ``HIGHEST_TERM``, or,
            without ``far``, more than ``FAR`` above the highest known number.
        """
        if not 1 <= number <= HIGHEST_TERM:
            remedy = f"give one above every term that was ever given out, {HIGHEST_TERM} at most"
            raise ConfigurationError(f"term number {number!r} is out of range; {remedy}")

        def raised(wishes: Wishes) -> Wishes:
            known = max(wishes.floor, self._newest_term().number)
            if number > known + FAR and not far:
                what = f"term number {number} is far above {known}, the highest known"
                raise ConfigurationError(f"{what}, and nothing lowers it again")
            return replace(wishes, floor=max(wishes.floor, number))

        self._change(raised, f"raise-floor {number}")
        while True:
            try:
                data, stat = self._session.get(self._layout.term)
                newest = decode(TermRecord, data, path=self._layout.term)
            except NoNode:
                newest = TermRecord()
            except CorruptRecord:
                newest = TermRecord(number=number - 1, id=REPAIRED, other=unknown_in(data))
                try:
                    self._session.set(self._layout.term, encode(newest), stat.version)
                except (BadVersion, NoNode):
                    continue  # somebody else has repaired it meanwhile
            assert self._control is not None  # just written
            return next_number(newest, self._control[0])

    def _newest_term(self) -> TermRecord:
        """The record of the newest term; an empty one if there is none, or it cannot be read."""
        try:
            data, _ = self._session.get(self._layout.term)
            return decode(TermRecord, data, path=self._layout.term)
        except (NoNode, CorruptRecord):
            return TermRecord()

    def forget(self) -> int:
        """Delete everything that is stored for the career, with its offsets in ZooKeeper; return
        how many znodes were deleted.

        :raises RequestRefused: a candidate stands or cools off, or a process that has stood for it
            is alive.
        """
        for _ in range(_FORGET_TRIES):
            read = self._look()
            view = _viewed(self._layout, read, clock.calendar_s())
            who = [f"candidate {one.candidate!r}" for one in (*view.members, *view.cooling_off)]
            who += [f"process {one.pid} on {one.host}" for one in read.notes.values()]
            if who:
                raise RequestRefused(
                    f"{self._career!r} is in use by {', '.join(who)}; stop them first"
                )
            living = (self._layout.candidates, self._layout.processes)
            paths = [self._layout.base]
            for path in paths:  # which grows
                children = () if path in living else self._session.children(path)
                paths += [join(path, child) for child in children]
            try:
                # At once or not at all: a candidate that enlists meanwhile keeps everything,
                # because a znode with children cannot be deleted.
                self._session.multi([Delete(path) for path in reversed(paths)])
            except (NoNode, NotEmpty):
                continue
            return len(paths)
        raise RequestRefused(f"{self._career!r} changes all the time; somebody uses it")

    def wish_for(self, *, successor: str | None, term: int) -> None:
        """Ask that term number ``term`` ends and that ``successor`` leads after it. Does not wait
        for that.
        """
        what = "step-down" if successor is None else f"transfer to {successor}"
        self._change(lambda wishes: replace(wishes, step_down=term, successor=successor), what)

    def note(self, what: str) -> None:
        """Write into the history that ``by`` asked for ``what``, which was done by other means."""
        self._change(lambda wishes: wishes, what)

    def _led(self) -> View:
        # A moment without a leader lies between any two terms.
        view = self.wait_until(lambda seen: seen.leader is not None, timeout_s=2.0)
        if view.leader is None and view.repaired:
            raise RequestRefused(
                f"the term record of {self._career!r} was repaired, so it is not known whether"
                f" {view.candidates[0]!r} leads; to end its term, stop that process"
            )
        if view.leader is None:
            problem = f"nobody leads {self._career!r} now, so there is no term to end"
            raise RequestRefused(f"{problem}; candidates that stand: {len(view.candidates)}")
        return view

    def _succeed(self, before: View, successor: str | None, timeout_s: float) -> View:
        self.wish_for(successor=successor, term=before.term)
        view = self.wait_until(partial(_inaugurated_after, before.term), timeout_s=timeout_s)
        term = f"term {before.term} of {self._career!r}"
        limit = f"within {timeout_s:.0f} s (stage: {view.stage or 'none'})"
        if view.term == before.term:
            promise = "the request stands, and is followed when its unit of work is done"
            raise RequestRefused(f"{before.leader!r} has not ended {term} {limit}; {promise}")
        if not _inaugurated_after(before.term, view):
            leader = view.leader or "nobody"
            raise RequestRefused(f"{term} has ended, but {leader} is not inaugurated {limit}")
        if successor is not None and view.leader != successor:
            now = f"{view.leader!r} leads {self._career!r} now, not {successor!r}"
            raise RequestRefused(f"{now}, which left the line meanwhile")
        return view

    def _change(self, change: Callable[[Wishes], Wishes], what: str) -> None:
        path = self._layout.control
        known = self._control
        while True:
            try:
                if known is None:
                    data, stat = self._session.get(path)
                    known = WishesDecoder(path).decoded(data) or Wishes(), stat.version
                wishes, version = self._noted(change(known[0]), what), known[1]
                self._control = wishes, self._session.set(path, encode(wishes), version).version
                return
            except BadVersion:
                known = None  # another operator wrote first; change what they left
            except NoNode:
                self._session.ensure_path(path, shared=self._layout.shared)
                known = None

    def _noted(self, wishes: Wishes, what: str) -> Wishes:
        if self._by is None:
            return wishes
        entry = {"at": round(clock.calendar_s(), 3), "by": self._by, "what": what}
        return replace(wishes, asked=asked_with(wishes.asked, {**entry, "why": self._why}))


def _inaugurated_after(term: int, view: View) -> bool:
    return view.term > term and view.leader is not None and view.stage == Stage.EXECUTION.value
