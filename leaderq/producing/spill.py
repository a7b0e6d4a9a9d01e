"""The journal as the buffer sees it: requests in, requests out, and news of what was written.

The journal gives a record its id when it writes it, a moment after it was taken. So each request is
at first *being written*; that it is stored, under which id, or that the disk refused it, is noted
here by the journal's thread, which takes no lock of ours, and collected by whoever holds the
buffer's lock next. The journal stores in the order of :meth:`Spill.append`, so once a request is
stored all before it are.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from pathlib import Path
from typing import NamedTuple

from leaderq.clock import now_s
from leaderq.errors import (
    ConfigurationError,
    JournalClosed,
    JournalFull,
    JournalRecordTooLarge,
    LeaderqError,
    RequestTooLarge,
    WouldDeadlock,
)
from leaderq.producing.codec import Codec
from leaderq.producing.journal import (
    EVERY_ITEM,
    Every,
    Interval,
    Journal,
    Policy,
)
from leaderq.producing.memory import BufferedRequest, JournalCopy, RequestPlace, require_hash
from leaderq.producing.options import KeyOf
from leaderq.threads import Waker

log = logging.getLogger(__name__)

_SYNC_S = 1.0
_WRITTEN_S = 10.0
_EXTRA_BYTES = 256  # what the journal adds to a record, or to a segment

OnDurable = Callable[["BaseException | None"], object]
"""Called once, on the journal's thread: with ``None`` when the request is as durable as the policy
says, else with the error."""


class Written(NamedTuple):
    """What became of an append; ``is_told``: the caller waits for that, and is told."""

    request: BufferedRequest
    id: int | None
    error: BaseException | None
    is_told: bool


class Piece(NamedTuple):
    """What was read: requests in order, the ids of records that cannot be decoded, and the id up to
    which was read."""

    requests: list[BufferedRequest]
    undecodable: list[int]
    up_to: int


class Spill:
    """See the module. ``key`` returns the key of a request."""

    def __init__(
        self,
        journal: Journal,
        persistence: Policy | None,
        codec: Codec,
        key: KeyOf | None,
        *,
        is_owned: bool,
    ) -> None:
        self.journal = journal
        self._codec, self._key, self._is_owned = codec, key, is_owned
        self.is_write_ahead = persistence is not None
        self.waits_for_disk = persistence == EVERY_ITEM
        self.news: deque[Written] = deque()
        self.last_error: BaseException | None = None
        self._most_unwritten = persistence.items if isinstance(persistence, Every) else None
        self._appended = self._told = 0
        self._waiting: deque[Waker] = deque()

    @classmethod
    def of(
        cls,
        journal: Journal | Path | str | None,
        persistence: Policy | None,
        codec: Codec,
        key: KeyOf | None,
    ) -> Spill | None:
        """Return the journal as configured; one given as a path is opened, and closed again with
        the producer.

        :raises ConfigurationError: ``persistence`` without a journal, or another than it has.
        """
        if journal is None:
            if persistence is not None:
                raise ConfigurationError(
                    f"persistence={persistence!r} needs a journal; give its directory as "
                    "journal=..."
                )
            return None
        is_owned = not isinstance(journal, Journal)
        if not isinstance(journal, Journal):
            sync = Interval(_SYNC_S) if persistence is None else persistence
            journal = Journal(journal, sync=sync)
        elif persistence is not None and journal.sync != persistence:
            raise ConfigurationError(
                f"persistence={persistence!r}, and the journal syncs by {journal.sync!r}; give "
                "both the same, or the journal as a path"
            )
        return cls(journal, persistence, codec, key, is_owned=is_owned)

    # -- in ----------------------------------------------------------------------------------------

    def append(self, one: BufferedRequest, on_durable: OnDurable | None) -> bool:
        """Have it written behind all before it; return ``False`` if the journal takes nothing at
        present. Waits for nothing, because the buffer is locked meanwhile.

        :raises RequestTooLarge: it does not fit into a segment.
        :raises JournalSlow: too much is on its way to the disk at this moment.
        """

        def written(number: int | None, error: BaseException | None) -> None:
            self.news.append(Written(one, number, error, on_durable is not None))
            self._told += 1
            self._wake()
            if on_durable is not None:
                on_durable(error)

        payload = self._codec.serialize(one.request) if one.data is None else one.data
        ttl_s = None if one.deadline is None else one.deadline - now_s()
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
        """Serialise a request from memory once more, for :meth:`append`; return what the codec says
        against one that was changed since it was sent."""
        try:
            one.data = b"".join((self._codec.serialize(one.request),))
        except Exception as exc:  # noqa: BLE001 - the user's codec: it costs this request its place in the journal, and no other
            self.last_error = exc
            return exc
        return None

    @property
    def is_halted(self) -> bool:
        """Whether the journal refuses all behind one that it could not store."""
        return self.journal.halt.error is not None

    @property
    def is_under_way(self) -> bool:
        """Whether something was appended of which there are no news yet."""
        return self._appended > self._told

    def await_written(self) -> None:
        """Written ahead every n items: wait until fewer than n are on their way to the file, so
        that a crash costs no more than that."""
        if not self.is_behind():
            return
        give_up_s = now_s() + _WRITTEN_S
        while self.is_behind():
            written = Waker()
            self._waiting.append(written)
            # Looked at once more: what is told before this is there does not wake it.
            if self.is_behind() and not written.wait(give_up_s - now_s()):
                return

    def is_behind(self) -> bool:
        most = self._most_unwritten
        return most is not None and self._appended - self._told >= most

    def _wake(self) -> None:
        """On the journal's thread, after the news."""
        if not self.is_behind():
            while self._waiting:
                self._waiting.popleft().wake()

    # -- out ---------------------------------------------------------------------------------------

    def read(self, after_id: int, last_id: int, max_items: int, max_bytes: int) -> Piece:
        """Return the stored requests behind ``after_id`` and up to ``last_id``, in order; those
        that expired too."""
        requests: list[BufferedRequest] = []
        undecodable: list[int] = []
        key: Hashable = None
        now, wall = now_s(), time.time()
        for record in self.journal.read(after_id, max_items=max_items, max_bytes=max_bytes):
            if record.id > last_id:
                break
            after_id = record.id
            try:
                request = self._codec.deserialize(record.payload)
                if self._key is not None:
                    require_hash(key := self._key(request))
            except Exception as exc:  # noqa: BLE001 - the user's codec or key: it costs this request, which is told, and no other
                told = f"{type(exc).__name__}: {exc}"
                log.error("journal record is not a request id=%d error=%s", record.id, told)  # noqa: TRY400
                undecodable.append(record.id)
                continue
            deadline = None if record.expires_at is None else now + record.expires_at - wall
            since_s = now - max(0.0, wall - record.appended_at)
            one = BufferedRequest(request, key, len(record.payload), since_s, deadline)
            one.journal_id, one.copy = record.id, JournalCopy.STORED
            one.place = RequestPlace.JOURNAL
            requests.append(one)
        return Piece(requests, undecodable, after_id)

    def ack(self, ids: Iterable[int]) -> None:
        """Acknowledge these. If the journal cannot note it they come again after a restart."""
        try:
            self.journal.ack_many(ids)
        except (LeaderqError, ValueError) as exc:
            self.last_error = exc
            log.warning(
                "acknowledgements lost, records may be sent again after a restart error=%s", exc
            )

    def has_room(self, size: int) -> bool:
        """Whether its cap leaves room for so many bytes more."""
        room = self.journal.room_bytes
        return room is None or room > size + _EXTRA_BYTES

    # -- the end -----------------------------------------------------------------------------------

    def flush(self) -> None:
        """Have all written and forced out that was appended, and what is done with noted; the news
        of it are there then."""
        self._ended(self.journal.flush)

    def close(self) -> None:
        """Let go of the journal if it is ours; else see that it has all on disk."""
        self.journal.halt.is_wanted = False
        self.journal.halt.error = None
        self._ended(self.journal.close if self._is_owned else self.journal.flush)

    def _ended(self, end: Callable[[], None]) -> None:
        try:
            end()
        except LeaderqError as exc:
            self.last_error = exc
            log.error("journal not closed error=%s", exc)  # noqa: TRY400 - its message says all
