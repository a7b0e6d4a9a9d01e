"""Any callable as a sink."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from leaderq.errors import SinkAway, SinkBroken
from leaderq.producing.sinks.sink import ALL_CONFIRMED, Outcome

AWAY: tuple[type[BaseException], ...] = (OSError, TimeoutError, SinkAway)
"""What counts as "not at the moment" unless told otherwise; ``OSError`` includes all that sockets raise."""


class CallableSink:
    """Gives batches to ``call``; that it returns is the acknowledgement.

    ``each=True``: it is called with one record at a time, else with a list of them. Errors: those of class ``away`` mean
    that the batch is to be given again; any other means that a record in it will never be taken: the batch is given in
    halves, again and again, until that record is alone, and only that one is refused. So records of a batch that raised
    may be given more than once.

    ``call`` has to bound its own time; ``close`` is called once, if given.
    """

    def __init__(
        self,
        call: Callable[[Any], object],
        *,
        each: bool = False,
        away: tuple[type[BaseException], ...] = AWAY,
        close: Callable[[], object] | None = None,
    ) -> None:
        self._call = call
        self._each = each
        self._away: tuple[type[BaseException], ...] = (*away, SinkBroken)
        self._close = close

    def send(self, batch: Sequence[Any], timeout_s: float) -> Outcome:
        """See :class:`~leaderq.producing.sinks.sink.Sink`; ``timeout_s`` is not passed on."""
        refused: dict[int, BaseException] = {}
        if self._each:
            return self._one_by_one(batch, refused)
        done, error = self._in_halves(batch, 0, refused)
        if error is not None:
            return Outcome(refused, range(done, len(batch)), error)
        return Outcome(refused) if refused else ALL_CONFIRMED

    def _one_by_one(self, batch: Sequence[Any], refused: dict[int, BaseException]) -> Outcome:
        for number, record in enumerate(batch):
            try:
                self._call(record)
            except self._away as exc:
                return Outcome(refused, range(number, len(batch)), exc)
            except Exception as exc:  # noqa: BLE001 - the user's callable: it fails this record, which is told
                refused[number] = exc
        return Outcome(refused) if refused else ALL_CONFIRMED

    def _in_halves(
        self, records: Sequence[Any], first: int, refused: dict[int, BaseException]
    ) -> tuple[int, BaseException | None]:
        """Up to where the records are settled, and what came in between, if anything did."""
        try:
            self._call(list(records))
        except self._away as exc:
            return first, exc
        except Exception as exc:  # noqa: BLE001 - the user's callable: found out whose fault it is
            if len(records) == 1:
                refused[first] = exc
                return first + 1, None
            middle = len(records) // 2
            done, error = self._in_halves(records[:middle], first, refused)
            if error is not None:
                return done, error
            return self._in_halves(records[middle:], first + middle, refused)
        return first + len(records), None

    def close(self, timeout_s: float) -> None:
        """Call ``close``, if it was given."""
        if self._close is not None:
            self._close()
