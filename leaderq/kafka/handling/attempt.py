"""One attempt at some records: decode, handle, and whom a failure is blamed on. May run on a worker
thread.
"""

from __future__ import annotations

from collections.abc import Sequence

from leaderq.kafka.handling.desk import Desk
from leaderq.kafka.handling.on_error import PoisonRecord, is_about_records
from leaderq.kafka.handling.part import Failure, place_in
from leaderq.kafka.record import Record
from leaderq.term import Term


def attempt(desk: Desk, records: Sequence[Record], term: Term) -> Failure | None:
    """Decode and handle; gives ``None`` when that went well, else what is to be judged.

    All are decoded before any is handled, so where one cannot be, none was touched. Errors that are
    not about records (:func:`~leaderq.kafka.handling.on_error.is_about_records`) are raised, also
    when they are only the cause of a :class:`~leaderq.kafka.handling.on_error.PoisonRecord`.
    """
    # A copy where it is a list: the user may empty what was handed over, and then raise.
    handed: Sequence[Record] = list(records) if isinstance(records, list) else records
    if desk.decodes:
        decoded: list[Record] = []
        undecodable = _decode(desk, records, decoded)
        if undecodable is not None:
            return Failure(_judgeable(undecodable), len(decoded), touched=False)
        handed = decoded
    error = _handle(desk, handed, term)
    if error is None:
        return None
    index = place_in(records, error.record) if isinstance(error, PoisonRecord) else None
    return Failure(_judgeable(error), index, touched=True)


def _decode(desk: Desk, records: Sequence[Record], decoded: list[Record]) -> Exception | None:
    """Append to ``decoded`` as far as it goes; gives what stopped it."""
    try:
        for record in records:
            decoded.append(desk.decode(record))
    except Exception as exc:  # noqa: BLE001  (the user's code; judged by the caller)
        return exc
    return None


def _handle(desk: Desk, records: Sequence[Record], term: Term) -> Exception | None:
    try:
        desk.handle(records, term)
    except Exception as exc:  # noqa: BLE001  (the user's code; judged by the caller)
        return exc
    return None


def _judgeable(error: Exception) -> Exception:
    """The user's own error, raised if it says nothing about the records.

    Raised here, outside the ``except`` that caught it: so it comes out as it went in, with no
    context added.
    """
    own: BaseException = error
    if isinstance(error, PoisonRecord) and error.__cause__ is not None:
        own = error.__cause__
    if not isinstance(own, Exception) or not is_about_records(own):
        raise own
    return own
