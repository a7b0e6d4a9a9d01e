"""What a buffered producer asks of the place that it sends to."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from operator import index
from typing import Any, NamedTuple, Protocol

from leaderq.errors import ConfigurationError, SinkBroken
from leaderq.plain import require_plain_function


class BatchOutcome(NamedTuple):
    """What became of the records of one batch, by their positions in it; all that are not named are
    confirmed.

    ``refused``: the sink will never take this record, though it takes others. ``again``: not
    confirmed, to be given again, in order (unless it is refused as well); ``error`` says why. If a
    record is to be given again, so are all later ones whose order to it matters. With ``SinkBusy``
    as the error the sink keeps those records, and knows them when they come again.
    ``place_of`` returns of a confirmed position where the sink has stored it: what the request's
    future returns. It is asked only if somebody waits.
    """

    refused: Mapping[int, BaseException] = {}
    again: Sequence[int] = ()
    error: BaseException | None = None
    place_of: Callable[[int], object] | None = None


ALL_CONFIRMED = BatchOutcome()


def checked(outcome: object, count: int) -> BatchOutcome:
    """The outcome of a batch of ``count`` records, once it is known to be one.

    :raises SinkBroken: it cannot be: an error in the sink. Not a word of it is to be believed then.
    """
    if outcome is ALL_CONFIRMED:  # the usual one costs nothing
        return ALL_CONFIRMED
    try:
        return _fitting(outcome, count)
    except Exception as exc:
        raise SinkBroken(
            f"an error in the sink: it answered to a batch of {count} with what cannot be its "
            f"outcome, and is given all of it again: {exc}"
        ) from exc


def _fitting(outcome: Any, count: int) -> BatchOutcome:
    if not isinstance(outcome, BatchOutcome):
        raise TypeError(
            f"it returned a {type(outcome).__name__}, not a BatchOutcome (for all confirmed: "
            "ALL_CONFIRMED)"
        )
    if not isinstance(outcome.refused, Mapping):
        raise TypeError(
            f"refused is a {type(outcome.refused).__name__}, not a mapping of positions to errors"
        )
    refused = {_position(at, count): error for at, error in outcome.refused.items()}
    again = [
        number for number in (_position(at, count) for at in outcome.again) if number not in refused
    ]
    for error in (*refused.values(), *(() if outcome.error is None else (outcome.error,))):
        if not isinstance(error, BaseException):
            raise TypeError(f"{error!r} is a {type(error).__name__}, not an exception")
    return outcome._replace(refused=refused, again=again)


def _position(at: Any, count: int) -> int:
    try:
        number = index(at)
    except TypeError:
        raise TypeError(f"{at!r} is no position") from None
    if not 0 <= number < count:
        raise ValueError(f"there is no position {number}")
    return number


class Sink(Protocol):
    """A place that takes batches. Called from one thread of the producer, never twice at a time.

    *Confirmed* is what the sink itself has acknowledged, nothing less.
    """

    def send(self, batch: Sequence[Any], timeout_s: float) -> BatchOutcome:
        """Send all records of ``batch``, in order, and wait up to about ``timeout_s`` seconds for
        the acknowledgements.

        An empty batch is never given. The first call connects.

        :raises SinkAway: none of the batch is confirmed; it will be given again, without what has
            expired meanwhile.
        :raises SinkBusy: the sink keeps the batch and goes on with it; the same one will be given
            again.
        :raises SinkBroken: as ``SinkAway``, and trying again soon will not help.

        Any other exception counts as ``SinkBroken``: the sink does not know its own errors, so
        nothing is given up for it. So does an outcome that names a position which the batch does
        not have, or is none at all.
        """

    def close(self, timeout_s: float) -> None:
        """Let go of everything, in about ``timeout_s`` seconds at most. Never raises. What is not
        confirmed by then is not sent later."""


def require_sink(sink: object) -> None:
    """Return if ``sink`` has what the producer calls.

    :raises ConfigurationError: it has not; says what to give instead.
    """
    if inspect.isclass(sink):
        raise ConfigurationError(f"sink={sink!r} is a class; give an instance of it")
    if not hasattr(sink, "send") or not hasattr(sink, "close"):
        remedy = "; a callable becomes a sink as CallableSink(...)" if callable(sink) else ""
        raise ConfigurationError(f"sink={sink!r} has no send and close{remedy}")
    require_plain_function(sink.send, "the sink's send")
    require_plain_function(sink.close, "the sink's close")


class CallableSink:
    """Gives batches to ``call``; that it returns is the acknowledgement.

    ``each=True``: it is called with one record at a time, else with a list of them. ``call`` has to
    bound its own time; ``close`` is called once, if given.

    ``refuses``: the errors that are a verdict on a record, which will never be taken. The batch is
    then given in halves, again and again, until that record is alone, and only that one is refused;
    so records of a batch that raised may be given more than once. Every other error is the sink's,
    not a record's: nothing is given up for it, and what was not confirmed is given again, in order.

    :raises ConfigurationError: ``call`` or ``close`` is not a plain function, or ``refuses`` has
        something that is not a class of exceptions.
    """

    def __init__(
        self,
        call: Callable[[Any], object],
        *,
        each: bool = False,
        refuses: tuple[type[Exception], ...] = (),
        close: Callable[[], object] | None = None,
    ) -> None:
        require_plain_function(call, "call")
        if close is not None:
            require_plain_function(close, "close")
        self._call = call
        self._each = each
        self._refuses = checked_refuses(refuses)
        self._close = close

    def send(self, batch: Sequence[Any], timeout_s: float) -> BatchOutcome:
        """See :class:`~leaderq.producing.sinks.sink.Sink`; ``timeout_s`` is not passed on."""
        refused: dict[int, BaseException] = {}
        if self._each:
            return self._one_by_one(batch, refused)
        done, error = self._in_halves(batch, 0, refused)
        if error is not None:
            return BatchOutcome(refused, range(done, len(batch)), error)
        return BatchOutcome(refused) if refused else ALL_CONFIRMED

    def _one_by_one(self, batch: Sequence[Any], refused: dict[int, BaseException]) -> BatchOutcome:
        for number, record in enumerate(batch):
            try:
                self._called(record)
            except self._refuses as exc:
                refused[number] = exc
            except Exception as exc:  # noqa: BLE001 - the user's callable: told, and tried again
                return BatchOutcome(refused, range(number, len(batch)), exc)
        return BatchOutcome(refused) if refused else ALL_CONFIRMED

    def _in_halves(
        self, records: Sequence[Any], first: int, refused: dict[int, BaseException]
    ) -> tuple[int, BaseException | None]:
        """Return up to where the records are settled, and what came in between, if anything did."""
        try:
            self._called(list(records))
        except self._refuses as exc:
            if len(records) == 1:
                refused[first] = exc
                return first + 1, None
            middle = len(records) // 2
            done, error = self._in_halves(records[:middle], first, refused)
            if error is not None:
                return done, error
            return self._in_halves(records[middle:], first + middle, refused)
        except Exception as exc:  # noqa: BLE001 - the user's callable: told, and tried again
            return first, exc
        return first + len(records), None

    def _called(self, what: Any) -> None:
        returned = self._call(what)
        if inspect.iscoroutine(returned):
            returned.close()
            raise SinkBroken("call returned a coroutine, which nobody runs: nothing was stored")

    def close(self, timeout_s: float) -> None:
        if self._close is not None:
            self._close()


def checked_refuses(refuses: Any) -> tuple[type[Exception], ...]:
    """Return ``refuses``, if it is a tuple of classes of exceptions.

    :raises ConfigurationError: it is not.
    """
    if not isinstance(refuses, tuple) or not all(
        inspect.isclass(one) and issubclass(one, Exception) for one in refuses
    ):
        raise ConfigurationError(f"refuses={refuses!r}: give a tuple of classes of exceptions")
    return refuses
