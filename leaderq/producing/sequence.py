"""One sequence of requests, and positions in it. Pure but for the journal that it asks: whoever
uses it holds the buffer's lock.

Memory holds the front part of the sequence, the journal the rest: whatever the journal was given
and memory was not, which is what lies behind the position ``read_to``. Reading the journal moves
that position, and so does writing memory into it, which ``written`` tells: up to which number
memory is in the journal too. So the account is arithmetic: nothing is counted twice, and nothing
can disagree.

Requests of which nothing need be known but their order (no key, no time to live, no future) are
kept as *runs*: up to 256 in a row are one, with one number, until the sink says something of one of
them, or the journal is to have them. What they cost is then the list that they stand in.

A request is accepted by one statement: ``unsettled`` gets it, or the last run there, or the
journal's line does. It is settled when ``unsettled`` loses it. What takes more than one statement
(a batch confirmed, a request given up) is noted first, so that whoever comes after an interrupt can
finish it; everything else is worked out again from ``unsettled`` and the journal
(:meth:`RequestSequence.rebuild`).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from leaderq.errors import RequestGivenUp, with_cause
from leaderq.producing.account import Balance, LossReason, Lost, Settlement
from leaderq.producing.listeners import LossLog, news_of, resolve
from leaderq.producing.options import ProducerOptions
from leaderq.producing.request import BufferedRequest, measured
from leaderq.producing.spill import Piece, Spill
from leaderq.threads import primitives

_LOSSES = 20
_RUN = 256


UnderWay = tuple[Sequence[BufferedRequest], LossReason | None, BaseException | None, int]
"""Requests that are confirmed or, for a reason, given up, and how many then are for that reason.
Noted first, so that it can be finished by whoever comes after an interrupt."""


class LineEnd(NamedTuple):
    """A place in the sequence: the number of the last request that came to memory, and the
    last id.
    """

    seq: int
    id: int

    def covers(self, one: BufferedRequest) -> bool:
        """Whether it was accepted before."""
        return one.seq <= self.seq or (one.journal_id is not None and one.journal_id <= self.id)


class RequestSequence:
    """The requests of one producer, in order; see the module. Requests are numbered (``seq``) as
    they come to memory, from 1.
    """

    def __init__(self, options: ProducerOptions, spill: Spill | None) -> None:
        self._options, self.spill = options, spill
        self.news = news_of(options.name)
        """Calls of listeners, to be made without the lock."""
        self.loss_log = LossLog(options.name, self.news)
        self.refused: Counter[str] = Counter()
        self.unsettled: dict[int, BufferedRequest] = {}
        """The requests in memory, in the order of their numbers."""
        self.pushed = self.bytes = self.ready_items = self.ready_bytes = 0
        self._departed = 0  # how many of those that came to memory are not there any more
        self._first = 1  # all before it have left memory
        self.taken = 0
        """Up to which number the sender has requests in hand; the later ones are ready for it."""
        self._run: BufferedRequest | None = None  # the last in memory, if it takes more
        counts = -(-options.batch_items // _RUN)
        self._run_items = options.batch_items // counts
        self._run_bytes = options.batch_bytes // 4
        self._resolved: deque[tuple[primitives.Future[Any], Any, BaseException | None]] = deque()
        self._losses: deque[Lost] = deque(maxlen=_LOSSES)
        self._gone: Counter[LossReason] = Counter()  # requests that were in memory
        self._passed: Counter[LossReason] = Counter()  # requests that never came there
        self._under_way: UnderWay | None = None
        self._waiters: dict[int, primitives.Future[Any]] = {}
        self._undecodable: set[int] = set()
        self._recovered = self._read_to = self._written = 0
        self._corrupt_told = 0
        self._final: tuple[int, int] | None = None
        if spill is not None:
            self._recovered = spill.recovered
            self._read_to = 0 if self._recovered else self.last_id

    # -- memory ------------------------------------------------------------------------------------

    @property
    def items(self) -> int:
        return self.pushed - self._departed

    def push(self, one: BufferedRequest) -> None:
        """Take a request into memory, at the end."""
        self._run = None
        one.data = None  # memory would hold everything twice
        one.seq = seq = self.pushed + 1
        self.unsettled[seq] = one  # it is here, by this statement
        self.pushed = seq
        self.bytes += one.size
        self.ready_items += one.count
        self.ready_bytes += one.size

    def take_ready(self, most: int, most_bytes: int) -> list[BufferedRequest]:
        """Take the requests that have waited longest for the sink; they are in hand from now on."""
        self._run = None
        taken, seq, items, size = list[BufferedRequest](), self.taken, 0, 0
        while items < most and (one := self._next(seq + 1)) is not None:
            count = 1 if one.run is None else len(one.run)
            if taken and (items + count > most or size + one.size > most_bytes):
                break
            items += count
            size += one.size
            seq = one.seq + count - 1
            taken.append(one)
        self.taken = seq
        self.ready_items -= items
        self.ready_bytes -= size
        return taken

    def _settle(self, some: Iterable[BufferedRequest]) -> None:
        """Remove these requests from the pending ones; ignore those that are not pending."""
        pop, items, size = self.unsettled.pop, 0, 0
        for one in some:
            if pop(one.seq, None) is not None:
                items += 1 if one.run is None else len(one.run)
                size += one.size
        self._departed += items
        self.bytes -= size

    def split(self, some: Iterable[BufferedRequest]) -> list[BufferedRequest]:
        """Return these requests with each run split into its requests, because something becomes
        known of one of them.
        """
        runs = {one.seq: one for one in some if one.run is not None and one.parts is None}
        if runs:
            self._run, here = None, dict[int, BufferedRequest]()
            for one in self.unsettled.values():
                here.update(
                    (each.seq, each) for each in (one.split() if one.seq in runs else (one,))
                )
            self.unsettled = here  # done, by this statement
        return [part for one in some for part in one.split()]

    def _next(self, seq: int) -> BufferedRequest | None:
        """The first in memory from this number on."""
        while seq <= self.pushed:
            if (one := self.unsettled.get(seq)) is not None:
                return one
            seq += 1
        return None

    @property
    def oldest(self) -> BufferedRequest | None:
        """The oldest in memory."""
        # A dictionary looks for its first behind all that were deleted, again each time.
        one = self._next(self._first)
        self._first = self.pushed + 1 if one is None else one.seq
        return one

    @property
    def first_ready(self) -> BufferedRequest | None:
        """The oldest that waits for the sender."""
        return self._next(self.taken + 1) if self.ready_items else None

    def drop_oldest(self) -> bool:
        """Give up the oldest that nobody has in hand; return whether there is one."""
        if (first := self.first_ready) is None:
            return False
        one = self.split([first])[0]
        self.give_up(one, LossReason.OLDEST, None)
        self.taken = one.seq  # not before: interrupted in between, it would be in nobody's hand
        self.ready_items -= 1
        self.ready_bytes -= one.size
        return True

    def take_in(self, piece: Piece) -> None:
        """Take what was read into memory, and move the position behind it."""
        before = len(self._undecodable)
        self._undecodable.update(piece.undecodable)
        self._note_passed(LossReason.UNDECODABLE, len(self._undecodable) - before)
        self._note_passed(LossReason.CORRUPT, self.corrupt - self._corrupt_told)
        self._corrupt_told = self.corrupt
        # Somebody may have been interrupted who had read some of it before.
        for one in piece.requests:
            if (number := one.journal_id or 0) <= self._read_to:
                continue
            one.waiter = self._waiters.get(number)
            self.push(one)
            self._waiters.pop(number, None)
        self._read_to = max(self._read_to, piece.up_to)

    # -- the account -------------------------------------------------------------------------------

    @property
    def last_id(self) -> int:
        """The id of the last request that the journal has accepted; 0 without a journal."""
        return 0 if self.spill is None else self.spill.journal.next_id - 1

    @property
    def is_read_up(self) -> bool:
        """Whether no request is in the journal only."""
        return self.last_id <= self._read_to

    @property
    def unread(self) -> int:
        """How many requests are in the journal only."""
        if self._final is not None:
            return self._final[0]
        if self.spill is None or self.is_read_up:
            return 0
        return sum(self.spill.journal.depth_behind(self._read_to))

    @property
    def corrupt(self) -> int:
        """How many records of the journal were found damaged."""
        if self._final is not None:
            return self._final[1]
        return 0 if self.spill is None else self.spill.corrupt

    @property
    def pending(self) -> int:
        return self.items + self.unread

    def balance(self) -> Balance:
        undecodable = sum(one <= self._read_to for one in self._undecodable)
        passed = self._passed + Counter(
            {LossReason.CORRUPT: self.corrupt, LossReason.UNDECODABLE: undecodable}
        )
        unread, here, gone = self.unread, self.items, passed + self._gone
        return Balance(
            accepted=self.pushed + unread + passed.total() - self._recovered,
            recovered=self._recovered,
            confirmed=self.pushed - here - self._gone.total(),
            pending=here + unread,
            dropped={one.value: count for one, count in gone.items() if not one.is_failure},
            failed={one.value: count for one, count in gone.items() if one.is_failure},
            refused=dict(self.refused),
        )

    def _is_passed(self, end: LineEnd | None) -> bool:
        """Whether every request up to ``end`` (``None``: all) is settled."""
        if end is None or (self.spill is not None and self._read_to < end.id):
            return not self.pending
        oldest = self.oldest
        return oldest is None or not end.covers(oldest)

    def is_stored(self, one: BufferedRequest) -> bool:
        """Whether the journal has this request on disk."""
        if self.spill is None or one.journal_id is None:
            return False
        return self._final is not None or one.journal_id <= self.spill.journal.stored_id

    def settled(self, end: LineEnd | None = None) -> Settlement:
        """Return what became of the requests up to ``end`` (``None``: all), and of all lost
        requests.
        """
        spill, stored, coming = self.spill, self.unread, 0
        if spill is not None and self._final is None:
            stored, coming = spill.journal.depth_behind(self._read_to)
        some = [one for one in self.unsettled.values() if end is None or end.covers(one)]
        journaled = sum(map(self.is_stored, some))
        if end is not None and spill is not None:
            begin = max(spill.journal.stored_id, self._read_to)
            coming = min(coming, max(0, end.id - begin))
            stored = min(stored, max(0, end.id - self._read_to))
        balance, error = self.balance(), None
        if spill is not None:
            if not balance.pending:
                spill.unforced = None
            error = spill.unforced if journaled + stored else None
        lost = {**balance.dropped, **balance.failed}
        unstored = sum(one.count for one in some) - journaled + coming
        losses = tuple(self._losses)
        return Settlement(balance.confirmed, journaled + stored, unstored, lost, losses, error)

    # -- what becomes of them ----------------------------------------------------------------------

    def rebuild(self) -> None:
        """Finish what is under way, and work out everything else again from who is here."""
        self._finish()
        here, self._run = self.unsettled.values(), None
        for one in here:
            if one.run is not None:
                one.size, one.parts = sum(map(measured, one.run)), None
            self.pushed = max(self.pushed, one.seq + one.count - 1)
        self._written, self._departed = self.pushed, self.pushed - sum(one.count for one in here)
        self.bytes, self.ready_items, self.ready_bytes = sum(one.size for one in here), 0, 0
        last_id = self.last_id
        for one in here:
            if one.seq > self.taken:
                self.ready_items += one.count
                self.ready_bytes += one.size
            if one.journal_id is not None and one.journal_id > last_id:
                one.journal_id = None  # its writer was interrupted before
            if one.journal_id is not None:
                self._read_to = max(self._read_to, one.journal_id)
            elif not one.is_unwritable:
                self._written = min(self._written, one.seq - 1)

    def _finish(self) -> None:
        """Finish what is under way; doing it twice changes nothing."""
        if (under_way := self._under_way) is None:
            return
        some, reason, error, count = under_way
        failure = None
        if reason is not None:
            (self._gone if some[0].seq else self._passed)[reason] = count
            failure = with_cause(RequestGivenUp(reason.value), error)
        self._settle(some)
        if self.spill is not None:
            self.spill.ack([one.journal_id for one in some if one.journal_id is not None])
        if reason is not None:
            for one in some:
                self._tell_lost(Lost(one.request, one.key, reason, error))
        self._resolved += [(one.waiter, one.stored_at, failure) for one in some if one.waiter]
        self._under_way = None

    def confirm(self, some: Sequence[BufferedRequest]) -> None:
        """Note that the sink has acknowledged these."""
        self._under_way = some, None, None, 0
        self._finish()

    def give_up(
        self, one: BufferedRequest, reason: LossReason, error: BaseException | None
    ) -> None:
        """Note that a request is lost. It is not pending any more, and its listeners and future
        will be told.
        """
        gone = self._gone if one.seq else self._passed
        self._under_way = (one,), reason, error, gone[reason] + 1
        self._finish()

    def _note_passed(self, reason: LossReason, count: int) -> None:
        """So many that cannot be read were passed over."""
        for _ in range(count):
            self._tell_lost(Lost(None, None, reason))

    def _tell_lost(self, lost: Lost) -> None:
        self.loss_log.note(lost)
        self._losses.append(lost)
        if (listener := self._options.dropped_listener) is not None:
            self.news.put(partial(listener, lost))

    def _tell(self) -> None:
        """Resolve futures, without the lock. After an interrupt the next call continues."""
        while self._resolved:
            with suppress(IndexError, ValueError):  # another thread does the same
                one = self._resolved[0]
                resolve(*one)
                self._resolved.remove(one)
