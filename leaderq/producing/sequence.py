"""One sequence of requests, and positions in it; guarded by the buffer's lock.

Memory holds the front part of the sequence, the journal the rest: whatever the journal was given
and memory was not, which is what lies behind the position ``_read_to``. Reading the journal moves
that position, and so does writing memory into it. So the account is arithmetic: nothing is counted
twice, and nothing can disagree.

A request is accepted by one statement: memory's dictionary gets it, or the journal's line does. It
is settled when that dictionary loses it. What takes more than one statement (a batch confirmed, a
request given up) is noted first, so that whoever comes after an interrupt can finish it; everything
else is worked out again from the dictionary and the journal (:meth:`RequestSequence.rebuild`).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from leaderq.errors import RequestGivenUp, with_cause
from leaderq.producing.account import Balance, LossReason, Lost, Settlement
from leaderq.producing.listeners import LossLog, news_of, resolve
from leaderq.producing.memory import BufferedRequest, RequestMemory, RequestStep
from leaderq.producing.options import ProducerOptions
from leaderq.producing.spill import Spill
from leaderq.threads import primitives

_LOSSES = 20


class LineEnd(NamedTuple):
    """A place in the sequence of requests: the last that came to memory, and the last id."""

    seq: int
    id: int


class RequestSequence:
    """See the module."""

    def __init__(self, options: ProducerOptions, spill: Spill | None) -> None:
        self._options, self.spill = options, spill
        self.news = news_of(options.name)
        """Calls of listeners, to be made without the lock."""
        self._resolved: deque[tuple[primitives.Future[Any], Any, BaseException | None]] = deque()
        self.loss_log = LossLog(options.name, self.news)
        self._losses: deque[Lost] = deque(maxlen=_LOSSES)
        self.memory = RequestMemory(options.lanes)
        self._gone: Counter[LossReason] = Counter()  # requests that were in memory
        self._passed: Counter[LossReason] = Counter()  # requests that never came there
        self.refused: Counter[str] = Counter()
        # What is under way, so that it can be finished by whoever comes after an interrupt.
        self._settling: Sequence[BufferedRequest] = ()
        self._leaving: tuple[BufferedRequest, LossReason, BaseException | None, int] | None = None
        self._waiters: dict[int, primitives.Future[Any]] = {}
        self._undecodable: set[int] = set()
        self._recovered = self._read_to = self._last_id = self._written = 0
        self._corrupt_told = 0
        self._final: tuple[int, int] | None = None
        if spill is not None:
            self._recovered = spill.recovered
            self._last_id = spill.journal.next_id - 1
            self._read_to = 0 if self._recovered else self._last_id

    @property
    def is_read_up(self) -> bool:
        """Whether nothing is in the journal only."""
        return self._last_id <= self._read_to

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
        return len(self.memory) + self.unread

    def _passed_over(self) -> Counter[LossReason]:
        """How many requests were lost that never came to memory."""
        undecodable = sum(one <= self._read_to for one in self._undecodable)
        passed = Counter({LossReason.CORRUPT: self.corrupt, LossReason.UNDECODABLE: undecodable})
        return passed + self._passed

    def balance(self) -> Balance:
        passed, unread, pushed = self._passed_over(), self.unread, self.memory.pushed
        gone = passed + self._gone
        return Balance(
            accepted=pushed + unread + passed.total() - self._recovered,
            recovered=self._recovered,
            confirmed=pushed - len(self.memory) - self._gone.total(),
            pending=len(self.memory) + unread,
            dropped={one.value: count for one, count in gone.items() if not one.is_failure},
            failed={one.value: count for one, count in gone.items() if one.is_failure},
            refused=dict(self.refused),
        )

    def _is_passed(self, end: LineEnd) -> bool:
        """Whether everything up to there is settled."""
        if self.spill is not None and self._read_to < end.id:
            return not self.pending
        oldest = self.memory.oldest
        return oldest is None or not is_within(oldest, end)

    def settled(self, end: LineEnd | None) -> Settlement:
        """What became of the requests up to ``end`` (``None``: all) and of lost ones."""
        spill, stored, coming, stored_id = self.spill, self.unread, 0, -1
        if spill is not None and self._final is None:
            stored, coming = spill.journal.depth_behind(self._read_to)
            stored_id = spill.journal.stored_id
        elif spill is not None:
            stored_id = spill.journal.next_id
        some = [one for one in self.memory if end is None or is_within(one, end)]
        journaled = sum(is_stored(one, stored_id) for one in some)
        if end is not None:
            coming = min(coming, max(0, end.id - max(stored_id, self._read_to)))
            stored = min(stored, max(0, end.id - self._read_to))
        balance, error = self.balance(), None
        if spill is not None:
            if not balance.pending:
                spill.unforced = None
            error = spill.unforced if journaled + stored else None
        skipped = LossReason.SKIPPED.value
        lost = {**balance.dropped, **balance.failed}
        return Settlement(
            balance.confirmed,
            journaled + stored,
            len(some) - journaled + coming,
            {reason: count for reason, count in lost.items() if reason != skipped},
            tuple(self._losses),
            error,
        )

    def rebuild(self, step: RequestStep | None = None, lane: int | None = None) -> None:
        """Finish what is under way, and work out everything else again."""
        if self._leaving is not None:
            self._leave()
        if self._settling:
            self._finish()
        memory = self.memory
        memory.rebuild(step, lane)
        self._written = memory.pushed
        if self.spill is not None:
            self._last_id = self.spill.journal.next_id - 1
            for one in memory:
                if one.journal_id is not None and one.journal_id > self._last_id:
                    one.journal_id = None  # its writer was interrupted before
                if one.journal_id is not None:
                    self._read_to = max(self._read_to, one.journal_id)
                elif not one.is_unwritable:
                    self._written = min(self._written, one.seq - 1)

    def _finish(self) -> None:
        """These are confirmed; done twice, it is as if once."""
        done = self._settling
        self.memory.settle(done)
        if self.spill is not None:
            self.spill.ack([one.journal_id for one in done if one.journal_id is not None])
        self._resolved += [(one.waiter, one.stored_at, None) for one in done if one.waiter]
        self._settling = ()

    def give_up(
        self, one: BufferedRequest, reason: LossReason, error: BaseException | None
    ) -> None:
        """It is lost, and not pending any more if it was; its listeners and future will be told."""
        gone = self._gone if one.seq else self._passed
        self._leaving = one, reason, error, gone[reason] + 1
        self._leave()

    def _leave(self) -> None:
        """Finish what :meth:`give_up` has noted; done twice, it is as if once."""
        if self._leaving is None:
            return
        one, reason, error, count = self._leaving
        (self._gone if one.seq else self._passed)[reason] = count
        self.memory.settle((one,))
        if one.journal_id is not None and self.spill is not None:
            self.spill.ack([one.journal_id])
        lost = Lost(one.request, one.key, reason, error)
        self.loss_log.note(lost)
        if reason is not LossReason.SKIPPED:
            self._losses.append(lost)
        if (listener := self._options.dropped_listener) is not None:
            self.news.put(lambda: listener(lost))
        if (waiter := one.waiter) is not None:
            self._resolved.append((waiter, None, with_cause(RequestGivenUp(reason.value), error)))
        self._leaving = None

    def _note_passed(self, reason: LossReason, count: int) -> None:
        """So many that cannot be read were passed over."""
        lost, listener = Lost(None, None, reason), self._options.dropped_listener
        if count:
            self.loss_log.note(lost, count)
        for _ in range(count):
            self._losses.append(lost)
            if listener is not None:
                self.news.put(partial(listener, lost))

    def _tell(self) -> None:
        """Without the lock: resolve futures. Interrupted, the next call goes on."""
        while self._resolved:
            with suppress(IndexError, ValueError):  # another thread does the same
                one = self._resolved[0]
                resolve(*one)
                self._resolved.remove(one)


def is_stored(one: BufferedRequest, stored_id: int) -> bool:
    """Whether the journal has it on disk."""
    return one.journal_id is not None and one.journal_id <= stored_id


def is_within(one: BufferedRequest, end: LineEnd) -> bool:
    """Whether it was accepted before ``end``."""
    return one.seq <= end.seq or (one.journal_id is not None and one.journal_id <= end.id)
