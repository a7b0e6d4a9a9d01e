"""The journal as the buffer sees it: requests in and out, news of what was written, and what is in
the journal and not in memory.

The journal assigns a record its id when it writes it, a moment after it was taken. So each request
is at first *being written*; that it is stored, under which id, or that the disk refused it, is
noted by the journal's thread, which takes no lock of ours, and collected by whoever holds the
buffer's lock next. The journal stores in the order of :meth:`Spill.append`, so once a
request is stored all before it are.

A request that the journal took and could then not write (a full disk) is *retained*, unless its
caller was told: it is still pending. The journal then refuses all behind it too, so nothing is ever
stored before what was accepted before it; once it has told of each, all go there again, in order.
Meanwhile the state is *blocked*.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from enum import Enum
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from leaderq import clock
from leaderq.arguments import require_finished
from leaderq.errors import (
    ConfigurationError,
    JournalClosed,
    JournalFailed,
    JournalFull,
    JournalRecordTooLarge,
    JournalSlow,
    LeaderqError,
    RequestTooLarge,
    WouldDeadlock,
    told,
)
from leaderq.producing.codec import Codec
from leaderq.producing.journal import EVERY_ITEM, Every, Interval, Journal, Policy
from leaderq.producing.journal.journal import WAIT_S
from leaderq.producing.journal.records import JournalRecord
from leaderq.producing.memory import BufferedRequest, JournalCopy, RequestPlace, require_hash
from leaderq.producing.options import KeyOf
from leaderq.threads import Waker, primitives

log = logging.getLogger(__name__)

_SYNC_S = 1.0
_WRITTEN_S = 10.0
_AGAIN_S = 0.25
_PIECE = 500
_IN_A_ROW = 10
_EXTRA_BYTES = 256  # the journal's overhead for a record, or for a segment

OnDurable = Callable[["BaseException | None"], object]
"""Called once, on the journal's thread: with ``None`` when the request is as durable as the policy
says, else with the error."""


class Written(NamedTuple):
    """The result of an append; ``is_told``: the caller waits for it, and is told."""

    request: BufferedRequest
    id: int | None
    error: BaseException | None
    is_told: bool


class Piece(NamedTuple):
    """The result of a read: requests in order, undecodable ids, and the last id read."""

    requests: list[BufferedRequest]
    undecodable: list[int]
    up_to: int


class Spill:
    """See the module. A journal given as a path is closed with the producer. ``key`` returns the
    key of a request.

    :raises ConfigurationError: the journal has another policy than ``persistence``.
    """

    def __init__(
        self,
        journal: Journal | Path | str,
        persistence: Policy | None,
        codec: Codec,
        key: KeyOf | None,
    ) -> None:
        self._is_owned = not isinstance(journal, Journal)
        if not isinstance(journal, Journal):
            journal = Journal(journal, sync=persistence or Interval(_SYNC_S))
        elif persistence is not None and journal.sync != persistence:
            raise ConfigurationError(
                f"persistence={persistence!r}, and the journal syncs by {journal.sync!r}; give "
                "both the same, or the journal as a path"
            )
        self.journal, self._codec, self._key = journal, codec, key
        self._check_codec()
        self.is_write_ahead = persistence is not None
        self.waits_for_disk = persistence == EVERY_ITEM
        self.news: deque[Written] = deque()
        self.last_error: BaseException | None = None
        self.unforced: BaseException | None = None
        """Why records that are stored are perhaps not on the disk."""
        self._most_unwritten = persistence.items if isinstance(persistence, Every) else None
        self._appended = self._told = 0
        self._waiting: deque[Waker] = deque()

    def append(self, one: BufferedRequest, on_durable: OnDurable | None) -> bool:
        """Have it written behind all before it; return ``False`` if the journal takes nothing at
        present. Does not wait, because the buffer is locked meanwhile.

        :raises RequestTooLarge: it does not fit into a segment.
        :raises JournalSlow: too much is on its way to the disk at this moment.
        """

        def written(number: int | None, error: BaseException | None) -> None:
            self.news.append(Written(one, number, error, on_durable is not None))
            self._told += 1
            while self._waiting and not self.is_behind():
                self._waiting.popleft().wake()
            if on_durable is not None:
                require_finished(on_durable(error), "on_durable")

        payload = self._codec.serialize(one.request) if one.data is None else one.data
        ttl_s = None if one.deadline is None else one.deadline - clock.now_s()
        try:
            self.journal.append_soon(payload, written, ttl_s=ttl_s, timeout_s=0.0)
        except JournalRecordTooLarge as exc:
            raise RequestTooLarge(size=exc.size, limit=exc.limit) from exc
        except (JournalFull, JournalClosed, WouldDeadlock) as exc:
            self.last_error = exc
            return False
        one.copy = JournalCopy.WRITING
        self._appended += 1
        return True

    def prepare(self, one: BufferedRequest) -> BaseException | None:
        """Serialise a request from memory once more, for :meth:`append`; return the codec's error
        if it was changed since it was sent.
        """
        try:
            one.data = b"".join((self._codec.serialize(one.request),))
        except Exception as exc:  # noqa: BLE001 - the user's codec: it costs this request its place in the journal, and no other
            self.last_error = exc
            return exc
        return None

    @property
    def is_halted(self) -> bool:
        """Whether the journal refuses everything behind a record that it could not store."""
        return self.journal.halt.error is not None

    @property
    def is_under_way(self) -> bool:
        """Whether something was appended whose outcome is not known yet."""
        return self._appended > self._told

    def await_written(self) -> None:
        """Written ahead every n items: wait until fewer than n are on their way to the file, so
        that a crash costs no more than that."""
        if not self.is_behind():
            return
        give_up_s = clock.now_s() + _WRITTEN_S
        while self.is_behind():
            written = Waker()
            self._waiting.append(written)
            # Looked at once more: news that came before this was there does not wake it.
            if self.is_behind() and not written.wait(give_up_s - clock.now_s()):
                return

    def is_behind(self) -> bool:
        most = self._most_unwritten
        return most is not None and self._appended - self._told >= most

    def read(self, after_id: int, last_id: int, max_items: int, max_bytes: int) -> Piece:
        """Return the stored requests behind ``after_id`` and up to ``last_id``, in order; those
        that expired too."""
        requests: list[BufferedRequest] = []
        undecodable: list[int] = []
        why: Exception | None = None
        now, wall = clock.now_s(), clock.calendar_s()
        for record in self.journal.read(after_id, max_items=max_items, max_bytes=max_bytes):
            if record.id > last_id:
                break
            after_id = record.id
            request, key, error = self._decoded(record)
            if error is not None:
                undecodable.append(record.id)
                why = error
                continue
            deadline = None if record.expires_at is None else now + record.expires_at - wall
            since_s = now - max(0.0, wall - record.appended_at)
            one = BufferedRequest(request, key, len(record.payload), since_s, deadline)
            one.journal_id, one.copy = record.id, JournalCopy.STORED
            one.place = RequestPlace.JOURNAL
            requests.append(one)
        if why is not None:
            what = "journal records are not requests, they are kept first=%d count=%d error=%s"
            log.error(what, undecodable[0], len(undecodable), told(why))
        return Piece(requests, undecodable, after_id)

    def _decoded(self, record: JournalRecord) -> tuple[Any, Hashable, Exception | None]:
        """The request and its key, or what the user's codec or ``key`` raised."""
        try:
            request = self._codec.deserialize(record.payload)
            key = None if self._key is None else self._key(request)
            require_hash(key)
        except Exception as exc:  # noqa: BLE001 - it costs this request, which is told, and no other
            return None, None, exc
        return request, key, None

    def _check_codec(self) -> None:
        """Refuse a journal of which nothing can be decoded that is to be sent first: it was written
        with another codec, or for another ``key``."""
        errors: list[Exception] = []
        for record in self.journal.read(max_items=_IN_A_ROW):
            error = self._decoded(record)[2]
            if error is None:
                return
            errors.append(error)
        if len(errors) == _IN_A_ROW:
            if self._is_owned:
                self.journal.close()
            codec = getattr(self._codec, "name", type(self._codec).__qualname__)
            raise ConfigurationError(
                f"none of the first {_IN_A_ROW} requests in journal {str(self.journal.directory)!r}"
                f" can be decoded with the codec {codec} and this 'key': {told(errors[0])}; give"
                " the codec and key that they were written with, or see leaderq journal inspect"
            ) from errors[0]

    def ack(self, ids: Iterable[int]) -> None:
        """Acknowledge these. If that cannot be noted, they are sent again after a restart."""
        try:
            self.journal.ack_many(ids)
        except (LeaderqError, ValueError) as exc:
            self.last_error = exc
            log.warning(
                "acknowledgements lost, records may be sent again after a restart error=%s", exc
            )

    def has_room(self, size: int) -> bool:
        room = self.journal.room_bytes
        return room is None or room > size + _EXTRA_BYTES

    def flush(self, timeout_s: float | None = WAIT_S) -> None:
        """Write and force out all that was appended (see ``unforced``), save acknowledgements."""
        self._ended(partial(self.journal.flush, timeout_s))

    def close(self) -> None:
        """Close the journal if it is ours; else see that it has all on disk."""
        self.journal.halt.is_wanted = False
        self.journal.halt.error = None
        self._ended(self.journal.close if self._is_owned else self.journal.flush)

    def _ended(self, end: Callable[[], None]) -> None:
        try:
            end()
        except LeaderqError as exc:
            self.last_error = exc
            if not isinstance(exc, JournalClosed):  # whoever closed it was told
                self.unforced = exc
            log.error("journal not forced out error=%s", exc)  # noqa: TRY400 - its message says all
        else:
            # A sync that succeeds does not bring back what a failed one has lost.
            if not isinstance(self.unforced, JournalFailed):
                self.unforced = None


class DiskState(Enum):
    """What is known of the journal's disk."""

    TAKES = "it has refused nothing"
    REFUSED = "it refused what came last"
    TAKES_AGAIN = "it refused something, and may take more; the state is still blocked"


class JournalBacklog:
    """The requests that are in the journal and not in memory: counted, waited for, and kept while
    they are unwritten.

    Not synchronised: guarded by the lock of the :class:`~leaderq.producing.buffer.RequestBuffer`.
    ``count`` requests of an earlier producer are there at first.
    """

    def __init__(self, count: int, last_id: int) -> None:
        self.count = count
        """Requests that are not in memory: stored, being written, or retained."""
        self.waiting = 0
        """How many of these have a future."""
        self.up_to = 0
        """The last id of a request that is, or was, in memory."""
        self.noted = last_id
        """The last id that is known to be stored; nothing behind it may be read yet."""
        self.is_read = False
        """Whether the journal is being read at this moment, without the lock."""
        self.acks: list[int] = []
        """Ids to acknowledge to the journal after releasing the lock."""
        self.disk = DiskState.TAKES
        self.again_at_s = 0.0
        """When refused requests may go to the journal again."""
        self._waiters: dict[int, primitives.Future[Any]] = {}
        # Those not stored, in order: refused ones, those being written, those that are to be
        # written again.
        self._unstored: deque[BufferedRequest] = deque()
        self._refused = self._being_written = 0

    @property
    def stored(self) -> int:
        return self.count - len(self._unstored)

    @property
    def is_written(self) -> bool:
        """Whether some are on their way to the disk, and it takes them."""
        return self._being_written > 0 and not self.waits_for_disk

    @property
    def waits_for_disk(self) -> bool:
        """Whether the disk refused some: nothing may follow them before it has taken one."""
        return self.disk is DiskState.REFUSED or len(self._unstored) > self._being_written

    def add(self, one: BufferedRequest) -> None:
        """The journal has taken it, and it is nowhere else."""
        one.place = RequestPlace.JOURNAL
        self.count += 1
        self._unstored.append(one)
        self._being_written += 1
        self.waiting += one.waiter is not None

    def take_out(self, one: BufferedRequest) -> BufferedRequest:
        """It is read, or lost; return it, with its future, if it has one."""
        self.count -= 1
        if one.waiter is None and one.journal_id is not None:
            one.waiter = self._waiters.pop(one.journal_id, None)
        self.waiting -= one.waiter is not None
        return one

    def take_acks(self) -> list[int]:
        ids, self.acks = self.acks, []
        return ids

    def note(self, news: Written) -> bool:
        """Note the result of an append; return whether that request is lost, because its caller
        knows that it was not written.
        """
        one = news.request
        is_unread = one.place is RequestPlace.JOURNAL
        self._being_written -= is_unread
        if news.id is None:
            one.copy = JournalCopy.NONE
            if not news.is_told:
                self.disk, self.again_at_s = DiskState.REFUSED, clock.now_s() + _AGAIN_S
            elif self.disk is DiskState.TAKES:
                self.disk = DiskState.TAKES_AGAIN  # its caller may try at once
            if is_unread and news.is_told:
                del self._unstored[self._refused]
                return True
            self._refused += is_unread
            return False
        self.note_room()
        self.noted = max(self.noted, news.id)
        one.journal_id, one.copy = news.id, JournalCopy.STORED
        if is_unread:
            self._unstored.popleft()
            if one.waiter is not None:
                self._waiters[news.id] = one.waiter
        else:
            self.up_to = max(self.up_to, news.id)
            if one.place is RequestPlace.SETTLED:
                self.acks.append(news.id)
        return False

    def note_room(self) -> None:
        """The disk has taken something since, or nothing is left to find that out with."""
        if self.disk is DiskState.REFUSED:
            self.disk = DiskState.TAKES_AGAIN

    def begin_again(self) -> None:
        """The journal has reported all that it refused, and takes more."""
        self._refused = 0

    def write_retained(self, spill: Spill) -> bool:
        """Append all of them to the journal again, in order; return ``False`` if it is full.

        :raises JournalSlow: this must continue later.
        """
        begin = self._refused + self._being_written
        for one in islice(self._unstored, begin, begin + _PIECE):
            if not spill.append(one, None):
                return False
            self._being_written += 1
        if len(self._unstored) > self._being_written:
            raise JournalSlow("what was refused is on its way to the journal; the rest follows")
        return True

    def leave(
        self,
    ) -> tuple[list[BufferedRequest], list[tuple[int | None, primitives.Future[Any]]]]:
        """At the end: return requests that were never written, and the others' ids and futures."""
        left = [one for one in self._unstored if not one.is_journaled]
        waiters: list[tuple[int | None, primitives.Future[Any]]] = [*self._waiters.items()]
        waiters += [
            (None, one.waiter)
            for one in self._unstored
            if one.is_journaled and one.waiter is not None
        ]
        self._unstored.clear()
        self._waiters.clear()
        return left, waiters
