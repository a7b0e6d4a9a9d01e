"""The journal as the buffer sees it: requests in and out.

A record that cannot be read as a request is never acknowledged: it stays where it is, is counted
separately, and keeps no other from being sent. If all records that are read first are of this kind,
the producer was given the wrong codec or key, and does not start.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import NamedTuple

from leaderq.base import clock
from leaderq.base.arguments import require_finished
from leaderq.base.timeouts import Seldom
from leaderq.errors import (
    ConfigurationError,
    JournalClosed,
    JournalFailed,
    JournalFull,
    JournalRecordTooLarge,
    LeaderqError,
    RequestTooLarge,
    WouldDeadlock,
    told,
)
from leaderq.producing.codec import Codec, codec_name, serialized
from leaderq.producing.journal import Every, Interval, Journal, JournalRecord, Policy
from leaderq.producing.journal.journal import WAIT_S
from leaderq.producing.listeners import OnDurable
from leaderq.producing.options import KeyOf
from leaderq.producing.request import BufferedRequest, require_hash

log = logging.getLogger(__name__)

_SYNC_S = 1.0
_TRIED = 100
_FEWEST = 10
_TRIED_BYTES = 1 << 20
_EXTRA_BYTES = 256  # the journal's overhead for a record, or for a segment


class Piece(NamedTuple):
    """The result of a read: requests in order, the ids of records that are not requests, and the id
    up to which nothing is left to read.
    """

    requests: list[BufferedRequest]
    undecodable: list[int]
    up_to: int


class Spill:
    """A producer's journal; see the module. A journal given as a path is closed with the producer.
    ``key`` returns the key of a request.

    :raises ConfigurationError: the journal has another policy than ``persistence``, is another
        producer's, or was not written with this codec.
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
        self.is_write_ahead = persistence is not None
        self.every = persistence.items if isinstance(persistence, Every) else None
        """With a write-ahead of ``Every(n)``, fewer than ``n`` of the requests sent may be on their
        way to the file. ``EVERY_ITEM`` is ``Every(1)``."""
        self.last_error: BaseException | None = None
        self.unforced: BaseException | None = None
        """Why records that are stored are perhaps not on the disk."""
        self._seldom = Seldom()
        journal.claim()
        self.recovered, self._corrupt_before = journal.depth, journal.counters.corrupt
        """How many requests of former producers are there."""
        try:
            self._refuse_other_codec()
        except BaseException:
            self.release()
            raise

    def _refuse_other_codec(self) -> None:
        name = codec_name(self._codec)
        is_other = self.journal.name_codec(name)
        records = self.journal.read(0, max_items=_TRIED, max_bytes=_TRIED_BYTES)
        error: Exception | None = None
        for record in records:
            try:
                self._decoded(record)
            except Exception as exc:  # noqa: BLE001 - the user's codec or key
                error = exc
            else:
                return
        if error is not None and (is_other or len(records) >= _FEWEST):
            said = ", and its segments say that another codec wrote it" if is_other else ""
            raise ConfigurationError(
                f"none of the first {len(records)} records of journal "
                f"{str(self.journal.directory)!r} is a request for codec {name!r} and this "
                f"key{said}; nothing was acknowledged. Give the codec and the key that they were "
                f"written for, or another directory. The last error: {told(error)}"
            ) from error

    @property
    def corrupt(self) -> int:
        """How many of the journal's records were found damaged since this producer opened it."""
        return self.journal.counters.corrupt - self._corrupt_before

    def release(self) -> None:
        self.journal.release()
        if self._is_owned:
            self.journal.close()

    def append(self, one: BufferedRequest, on_durable: OnDurable | None) -> int | None:
        """Append a request to the journal; return its id, or ``None`` if the journal takes nothing
        at present. Does not wait, because the buffer is locked meanwhile.

        :raises RequestTooLarge: the request does not fit into a segment.
        :raises JournalSlow: too much is on its way to the disk at this moment.
        """
        callback = None if on_durable is None else lambda _, error: on_durable(error)
        ttl_s = None if one.deadline is None else one.deadline - clock.now_s()
        data = serialized(self._codec, one.request) if one.data is None else one.data
        try:
            return self.journal.accept(data, callback, ttl_s=ttl_s, timeout_s=0.0)
        except JournalRecordTooLarge as exc:
            raise RequestTooLarge(size=exc.size, limit=exc.limit) from exc
        except (JournalFull, JournalFailed, JournalClosed, WouldDeadlock) as exc:
            self.last_error = exc
            return None

    def serialized(self, one: BufferedRequest) -> bytes | None:
        """Serialise a request in memory; return ``None`` if the codec refuses it, because it was
        changed after it was sent.
        """
        try:
            return serialized(self._codec, one.request)
        except Exception as exc:  # noqa: BLE001 - the user's codec: it costs this request its place in the journal, and no other
            self.last_error = exc
            return None

    def awaited_id(self, one: BufferedRequest) -> int | None:
        """All records before this id must be stored, and are not, before the call that has sent
        ``one`` may return; ``None`` if it may return now.
        """
        if self.every is None or one.journal_id is None or self.journal.is_writer:
            return None
        end_id = one.journal_id + 2 - self.every
        return None if end_id <= self.journal.stored_id + 1 else end_id

    def read(self, after_id: int, last_id: int, max_items: int, max_bytes: int) -> Piece:
        """Return the requests after ``after_id`` and up to ``last_id``, in order, including expired
        ones.
        """
        stored_id = self.journal.stored_id
        records = self.journal.read(after_id, max_items=max_items, max_bytes=max_bytes)
        records = [record for record in records if record.id <= last_id]
        up_to = records[-1].id if records else max(after_id, min(stored_id, last_id))
        return self._piece(records, up_to)

    def unwritten(self, after_id: int) -> list[BufferedRequest]:
        """Return the requests after ``after_id`` that wait for the disk."""
        journal = self.journal
        records = journal.unwritten(after_id, journal.stored_id)
        return self._piece(records, after_id).requests

    def _piece(self, records: Iterable[JournalRecord], up_to: int) -> Piece:
        requests: list[BufferedRequest] = []
        undecodable: list[int] = []
        for record in records:
            try:
                requests.append(self._decoded(record))
            except (Exception, SystemExit) as exc:  # noqa: BLE001 - the user's codec or key: the record is kept, and no other waits
                undecodable.append(record.id)
                if self._seldom.is_time():
                    text = "journal record is not a request, and is kept there id=%d error=%s"
                    log.error(text, record.id, told(exc))  # noqa: TRY400 - the error says all
        return Piece(requests, undecodable, up_to)

    def _decoded(self, record: JournalRecord) -> BufferedRequest:
        request = self._codec.deserialize(record.payload)
        require_finished(request, "the codec's deserialize")
        key: Hashable = None
        if self._key is not None:
            require_hash(key := self._key(request))
        now, wall = clock.now_s(), clock.calendar_s()
        deadline = None if record.expires_at is None else now + record.expires_at - wall
        since_s = now - max(0.0, wall - record.appended_at)
        one = BufferedRequest(request, len(record.payload), since_s)
        one.key, one.deadline = key, deadline
        one.journal_id = record.id
        return one

    def ack(self, ids: list[int]) -> None:
        """Acknowledge these records. If the journal cannot note that, they are sent again after a
        restart.
        """
        try:
            if ids:
                self.journal.ack_many(ids)
        except (LeaderqError, ValueError) as exc:
            self.last_error = exc
            log.warning(
                "acknowledgements lost, records may be sent again after a restart error=%s", exc
            )

    @property
    def has_room(self) -> bool:
        room = self.journal.room_bytes
        return room is None or room > _EXTRA_BYTES

    def flush(self, timeout_s: float | None = WAIT_S) -> None:
        """Write and force out everything that was appended, and save the acknowledgements.
        ``unforced`` tells of a failure.
        """
        try:
            self.journal.flush(timeout_s)
        except LeaderqError as exc:
            self._not_forced(exc)
        else:
            # A sync that succeeds does not bring back what a failed one has lost.
            if not isinstance(self.unforced, JournalFailed):
                self.unforced = None

    def close(self) -> None:
        """Close the journal if this producer opened it; otherwise let others use it."""
        try:
            self.release()
        except LeaderqError as exc:
            self._not_forced(exc)

    def _not_forced(self, exc: LeaderqError) -> None:
        self.last_error = exc
        if not isinstance(exc, JournalClosed):  # whoever closed it was told
            self.unforced = exc
        log.error("journal not forced out error=%s", exc)
