"""What a candidate does in the line while it does not lead: enlist, survey, claim, leave, release.
Each call sends a few bounded requests and returns the signal that results.

ZooKeeper is authoritative. A znode belongs to this candidate only if it has the candidate's mark
*and* was made in the present session; both are checked again after every wait, because the znode of
an ended session stands for a while beside the new one (CURATOR-696). A request that is repeated
finds the first znode by the mark, so a lost reply never leaves a second znode in the line.

On each failure: without a connection or a reply the call returns ``FAILED``, and the candidate
tries again. If the folder has vanished (container parents do), it is made again (CURATOR-724). If
the ``term`` record is unreadable, that is logged as an error, nothing is claimed, and the candidate
tries again. If the record is gone, or older than one seen before (the servers were emptied, or
restored), numbers go on from the highest one that this process knows.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from leaderq.base import clock, host
from leaderq.election.decision import Input
from leaderq.election.layout import (
    EndDetails,
    Layout,
    Position,
    TermRecord,
    Wishes,
    WishesDecoder,
    closed,
    decode,
    encode,
    in_line,
    name_prefix,
    new_guid,
    next_number,
    past_with,
    position_of,
    terms_before,
)
from leaderq.election.software import ProcessNote, Software, newer_in, reading
from leaderq.errors import (
    BadVersion,
    ConnectionLost,
    LeaderqError,
    NodeExists,
    NoNode,
    SessionClosed,
    SessionExpired,
)
from leaderq.events import Stage
from leaderq.term import Reason
from leaderq.threads import primitives
from leaderq.zookeeper import (
    Check,
    Delete,
    GetChildren,
    GetData,
    Operation,
    Read,
    Session,
    SetData,
    WatchEvent,
    WatchKind,
)
from leaderq.zookeeper.proof import Proof
from leaderq.zookeeper.seat import Seat

log = logging.getLogger(__name__)

_MOST_GIVING_WAY = 3


@dataclass(frozen=True, slots=True)
class WonClaim:
    """A claim that the servers acknowledged. The lease starts with ``proof``.

    ``wishes`` are those of the operators at the instant of the claim. ``is_chosen``: an operator
    has transferred the leadership to this candidate.
    """

    record: TermRecord
    seat: Seat
    proof: Proof
    unclean: bool
    wishes: Wishes
    is_chosen: bool = False


class Enlistment:
    """One candidate's place in the line. Only the candidate's thread may use it."""

    def __init__(
        self,
        session: Session,
        layout: Layout,
        candidate: str,
        decoder: WishesDecoder,
        *,
        changed: Callable[[], None],
        software: Software,
        prefers_newest: bool,
    ) -> None:
        self._session = session
        self._decoder = decoder
        self._layout = layout
        self._candidate = candidate
        self._changed = changed  # called on a ZooKeeper thread
        self._software = software
        self._prefers_newest = prefers_newest
        self._known: dict[str, Software] = {}  # of the names in the line that were looked at
        self._gave_way = (0, 0)  # after which term, and how often
        self._other_classes: set[str] = set()  # that were warned of
        self._guid = new_guid()
        # Marks of earlier candidacies: a server that lags behind may show their znodes only later.
        self._left: deque[str] = deque(maxlen=8)
        self._owner: int | None = None
        self._watched: tuple[int | None, str] | None = None
        self._newest = TermRecord()
        self._newest_version = -1
        self._highest = 0  # of the terms that were ever seen here
        self._unclean = False
        self._mine = False
        self._wishes = Wishes()
        self._wishes_version = -1
        self._last_failure = ""
        # of each name in the line: how often it was seen with our id; None: it has another
        self._looks: dict[str, int | None] = {}
        self._look_due_s = 0.0
        self._introduced: int | None = None  # the session whose whereabouts are known to be written
        self.position: Position | None = None
        self.won: WonClaim | None = None

    @property
    def _patience_s(self) -> float:
        return max(1.0, self._session.shares.answer_s)

    def enlist(self) -> Input:
        """Join the end of the line; if an earlier try has made the znode, keep that."""
        try:
            if self._owner is not None and self._owner != self._session.id:
                self.take_new_mark()
            line = self._layout.candidates
            try:
                names = self._session.children(line, timeout_s=self._patience_s)
            except NoNode:
                self._session.ensure_path(line, shared=self._layout.shared)
                names = []
            self._sweep(names)
            if position_of(self._guid, names) is None:
                if self._prefers_newest:
                    # Sent first, and so carried out first: whoever sees us knows what we run.
                    self._say_what_runs(self._session.id)
                prefix = self._layout.candidate(name_prefix(self._guid))
                self._session.create(
                    prefix,
                    self._candidate.encode(),
                    ephemeral=True,
                    sequential=True,
                    timeout_s=self._patience_s,
                )
        except LeaderqError as exc:
            return self._failed("enlisting", exc)
        return self._succeeded(Input.ENLISTED)

    def requeue(self) -> Input:
        """Give up the place, and join the end of the line."""
        self.take_new_mark()
        return self.enlist()

    def survey(self) -> Input:
        """Find out who stands in front of this candidate, and watch it, if there is anybody."""
        try:
            if self._watched is None and self.position is not None and self.position.rank <= 1:
                # Something has changed: a claim may follow, and is of use only with a proof. It is
                # sent ahead of the survey, and so answered before.
                self._session.pulse.prove()
            names = self._look()
            if self.position is None or not self._mine:
                self.take_new_mark()
                return Input.ABSENT
            for surplus in self.position.surplus:
                self._delete(surplus)
            if self.position.ahead is not None:
                watched = self._watch(self.position.ahead)
                # Behind the watch, where nobody waits for them:
                self._say_what_runs(self._owner)
                self._look_for_doubles(names)
                self._compare_classes()
                if self._prefers_newest:
                    self._learn(names, again=True)
                return self._succeeded(watched)
            passed_over = self._is_passed_over(names)
            return self._succeeded(Input.PASSED_OVER if passed_over else Input.FIRST)
        except NoNode:
            return Input.ABSENT
        except LeaderqError as exc:
            return self._failed("surveying", exc)

    def claim(self) -> Input:
        """Claim the term in one multi. It succeeds if our znode stands, and since the survey nobody
        has won and no operator has written.

        If an earlier claim was carried out and only its reply was lost, our znode's name stands in
        the record, and this confirms that claim. A claim is won only when there is also a proof
        that the session lives.
        """
        assert self.position is not None  # FIRST follows a survey
        path = self._layout.candidate(self.position.name)
        confirm = self._newest.id == self.position.name
        record = self._newest if confirm else self._next_record(self.position.name)
        claim: list[Operation] = []
        if not confirm:
            claim.append(Check(self._layout.control, self._wishes_version))
            claim.append(SetData(self._layout.term, encode(record), self._newest_version))
            is_lost = self._newest.number < self._highest  # or the server lags: then BEATEN follows
            self._unclean = is_lost or (self._newest.id is not None and self._newest.ended is None)
        try:
            if clock.now_s() >= self._session.pulse.proof.late_s:
                self._session.pulse.prove()  # joins that of the survey, if that is under way
            self._session.multi([Check(path), *claim], timeout_s=self._patience_s)
            self._session.pulse.ensure(self._owner, self._patience_s)
        except (NoNode, BadVersion):
            return Input.BEATEN
        except LeaderqError as exc:
            return self._failed("claiming", exc)
        if self._owner is None or self._session.id != self._owner:
            # Replaced since the survey: the znode is the old session's, and says nothing about the
            # new one. LOST follows.
            return Input.BEATEN
        if self._newest.number < self._highest:
            log.warning(
                "term record was lost, numbers go on from the highest known here"
                " career=%s id=%s term=%d",
                self._layout.career,
                self._candidate,
                record.number,
            )
        self._highest = record.number
        wished = self._wishes.successor == self._candidate
        former = record.past[0].get("number") if record.past else None
        is_chosen = wished and former is not None and self._wishes.step_down == former
        proof = self._session.pulse.proof
        if clock.now_s() >= proof.late_s:
            return Input.FAILED  # looked for again: the claim is found in the record
        seat = Seat(self._session, path, self._owner)
        self.won = WonClaim(record, seat, proof, self._unclean, self._wishes, is_chosen)
        return self._succeeded(Input.WON)

    def leave(self) -> Input:
        try:
            names = self._session.children(self._layout.candidates, timeout_s=self._patience_s)
            # Not before: each repetition without a connection would push an older mark out.
            self.take_new_mark()
            self._sweep(names)
        except NoNode:
            pass  # the whole line is gone
        except SessionClosed:
            return Input.LOST  # its owner has closed it: nothing can be released, or need be
        except LeaderqError as exc:
            return self._failed("leaving", exc)
        return Input.RELEASED

    def release(self, tenure: TermRecord, reason: Reason, details: EndDetails) -> Input:
        """Leave the line after our term ``tenure``, and record its end in the same multi."""
        name = str(tenure.id)
        end = closed(tenure, ended=clock.calendar_s(), reason=reason.value, details=details)
        # Fenced like every write of a leader, so the record may be written whatever its version.
        ops: list[Operation] = [
            Check(self._layout.candidate(name)),
            SetData(self._layout.term, encode(end)),
            Delete(self._layout.candidate(name)),
        ]
        try:
            try:
                self._session.multi(ops, timeout_s=self._patience_s)
            except NoNode:
                # it is gone already, or the record is, which must not keep us in the line
                self._delete(name)
        except SessionClosed:
            return Input.LOST
        except LeaderqError as exc:
            return self._failed("releasing the term", exc)
        return Input.RELEASED

    def take_new_mark(self) -> None:
        """Choose a new mark, so that nothing can be won or resumed under the old one."""
        self._left.append(self._guid)
        self._guid = new_guid()
        self.position = None
        self._watched = None

    def forget_watch(self) -> None:
        """Forget the watch, which was lost with its connection."""
        self._watched = None

    def _look(self) -> list[str]:
        """Read, in one request, everything that a survey needs; return the names in the line."""
        own = self._layout.candidate(self.position.name) if self.position is not None else None
        reads: list[Read] = [
            GetChildren(self._layout.candidates),
            GetData(self._layout.term),
            GetData(self._layout.control),
            *([GetData(own)] if own else []),
        ]
        # before the reading: what is read in a newer session is not ours
        self._owner = self._session.id
        found: list[Any] = self._session.multi_read(reads, timeout_s=self._patience_s)
        if isinstance(found[0], LeaderqError):
            raise found[0]
        names: list[str] = found[0]
        data, self._newest_version = self._read(found[1], self._layout.term)
        self._newest = decode(TermRecord, data, path=self._layout.term)
        self._highest = max(self._highest, self._newest.number)
        data, self._wishes_version = self._read(found[2], self._layout.control)
        self._wishes = self._decoder.decoded(data) or Wishes()  # damaged records must stop nobody
        self.position = position_of(self._guid, names)
        self._mine = self.position is not None and self._is_mine(
            self._layout.candidate(self.position.name), own, found[3:]
        )
        return names

    def _is_mine(self, path: str, known: str | None, read: list[Any]) -> bool:
        is_read = path == known and isinstance(read[0], tuple)
        stat = read[0][1] if is_read else self._session.exists(path)
        return stat is not None and bool(stat.ephemeral_owner == self._owner)

    def _read(self, read: Any, path: str) -> tuple[bytes, int]:
        if isinstance(read, NoNode):
            self._session.ensure_path(path, shared=self._layout.shared, timeout_s=self._patience_s)
            read = self._session.get(path, timeout_s=self._patience_s)
        if isinstance(read, LeaderqError):
            raise read
        data, stat = read
        return data, stat.version

    def _is_passed_over(self, names: list[str]) -> bool:
        """Whether a candidate after us in the line should lead next: an operator wants it to, or
        its software is newer. An operator's choice counts more.
        """
        wanted = self._wishes.successor
        if wanted and self._wishes.step_down == self._newest.number:
            if wanted == self._candidate:
                return False
            behind = [GetData(self._layout.candidate(name)) for name in in_line(names)[1:]]
            found = self._session.multi_read(behind, timeout_s=self._patience_s)
            if any(isinstance(read, tuple) and read[0] == wanted.encode() for read in found):
                return True
        return self._prefers_newest and self._gives_way(names)

    def _gives_way(self, names: list[str]) -> bool:
        """Whether a candidate after us in the line has newer software. What we learned while we
        waited is not read again.

        We give way only a few times between two terms, so that somebody leads whatever the others
        do.
        """
        assert self.position is not None
        after, times = self._gave_way
        times = times if after == self._newest.number else 0
        if self._newest.id == self.position.name or times >= _MOST_GIVING_WAY:
            return False  # our claim was carried out already, or it has been enough
        self._learn(names, again=False)
        line = [self._known.get(name, Software()) for name in in_line(names)[1:]]
        terms = (self._newest, *terms_before(self._newest))
        if newer_in(line, self._software, terms) is None:
            return False
        self._gave_way = (self._newest.number, times + 1)
        return True

    def _learn(self, names: list[str], *, again: bool) -> None:
        """Read what software the candidates in the line run, where we do not know it. With
        ``again``, also read it for those that had not told it when we looked before.
        """
        assert self.position is not None
        self._known = {name: self._known[name] for name in names if name in self._known}
        said = {name for name, each in self._known.items() if not again or each != Software()}
        unknown = [name for name in in_line(names) if name not in {*said, self.position.name}]
        if not unknown:
            return
        steps = reading(self._layout, unknown)
        reads = next(steps)
        try:
            while True:
                reads = steps.send(self._session.multi_read(reads, timeout_s=self._patience_s))
        except StopIteration as end:
            self._known.update(end.value)

    def _next_record(self, name: str) -> TermRecord:
        return TermRecord(
            number=max(self._highest + 1, next_number(self._newest, self._wishes)),
            candidate=self._candidate,
            id=name,
            host=host.name(),
            pid=host.pid(),
            stage=Stage.INAUGURATION.value,
            began=clock.calendar_s(),
            past=past_with(self._newest),
            version=self._software.version,
            leaderq=self._software.leaderq,
            career_class=self._software.career_class,
        )

    def _watch(self, ahead: str) -> Input:
        """Watch the children of the znode in front of ours. That znode never has children, so the
        watch fires only when it is deleted.
        """
        wanted = (self._owner, ahead)
        if self._watched == wanted:
            return Input.BEHIND
        path = self._layout.candidate(ahead)
        try:
            self._session.children(path, watch=self._on_watch, timeout_s=self._patience_s)
        except NoNode:
            return Input.CHANGED
        self._watched = wanted
        return Input.BEHIND

    def _on_watch(self, event: WatchEvent) -> None:
        if event.kind in (WatchKind.DELETED, WatchKind.SESSION):
            self._watched = None
        self._changed()

    def _sweep(self, names: list[str]) -> None:
        """Delete the znodes that earlier candidacies left."""
        for name in names:
            if any(mark in name for mark in self._left):
                self._delete(name)

    def _delete(self, name: str) -> None:
        try:
            self._session.delete(self._layout.candidate(name), timeout_s=self._patience_s)
        except NoNode:
            pass  # its session ended in between

    def _say_what_runs(self, owner: int | None) -> None:
        """Write where this process runs, and which software, once for the session ``owner``. A
        leader has this in the ``term`` record.
        """
        if owner is None or self._introduced == owner:
            return

        def said(reply: primitives.Future[Any]) -> None:
            if reply.exception() is None or isinstance(reply.exception(), NodeExists):
                self._introduced = owner  # another candidate of this process may have written it

        note = ProcessNote(host.name(), host.pid(), self._software).encode()
        # sent first, and so carried out first
        self._session.create_async(self._layout.processes, b"")
        reply = self._session.create_async(self._layout.process(owner), note, ephemeral=True)
        reply.add_done_callback(said)

    def _compare_classes(self) -> None:
        """Warn once if the leader's career is another class than ours under the same name."""
        own, other = self._software.career_class, self._newest.career_class
        is_led = self._newest.id is not None and self._newest.ended is None
        if not (is_led and own and other and own != other) or other in self._other_classes:
            return
        self._other_classes.add(other)
        career = self._layout.career
        log.warning(
            "two classes stand under one name of a career, give each its own career=%s id=%s"
            " class=%s leader=%s leader_class=%s",
            *(career, self._candidate, own, self._newest.candidate, other),
            extra={"event": "different_classes", "career": career, "candidate": self._candidate},
        )

    def _look_for_doubles(self, names: list[str]) -> None:
        """Warn once of another candidate with our id, when three looks have found it. A candidate
        that has just died stands for one more session time-out, and that is the time between two
        looks.
        """
        if clock.now_s() < self._look_due_s:
            return
        self._look_due_s = clock.now_s() + self._session.timeout_s
        assert self.position is not None
        career = self._layout.career
        looks = {name: self._looks[name] for name in names if name in self._looks}
        # The data of a candidate's znode never changes, so that of each is read once.
        unknown = [name for name in names if name not in looks and name != self.position.name]
        reads = [GetData(self._layout.candidate(name)) for name in unknown]
        found = self._session.multi_read(reads, timeout_s=self._patience_s)
        for name, read in zip(unknown, found, strict=True):
            if isinstance(read, tuple):
                looks[name] = 0 if read[0] == self._candidate.encode() else None
        self._looks = {
            name: None if before is None else before + 1 for name, before in looks.items()
        }
        for double in [name for name, seen in self._looks.items() if seen == 3]:
            log.warning(
                "two candidates have one id, give each its own --id career=%s id=%s znodes=%s,%s",
                career,
                self._candidate,
                self.position.name,
                double,
                extra={"event": "duplicate_id", "career": career, "candidate": self._candidate},
            )

    def _succeeded(self, signal: Input) -> Input:
        self._last_failure = ""
        return signal

    def _failed(self, what: str, exc: LeaderqError) -> Input:
        # Without a connection this repeats until there is one, and the session says so itself, as
        # the candidate does when it was closed; other errors are logged whenever they change.
        failure = f"{what}: {exc}"
        told = (ConnectionLost, SessionExpired, SessionClosed)
        known = failure == self._last_failure or isinstance(exc, told)
        self._last_failure = failure
        log.log(
            logging.DEBUG if known else logging.ERROR,
            "candidate kept from the election career=%s id=%s while=%s error=%s",
            self._layout.career,
            self._candidate,
            what,
            exc,
        )
        return Input.FAILED
