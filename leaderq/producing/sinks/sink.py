"""What a buffered producer asks of the place that it sends to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol


class Outcome(NamedTuple):
    """What became of the records of one batch, by their positions in it; all that are not named are confirmed.

    ``refused``: the sink will never take this record, though it takes others. ``again``: not confirmed, to be given
    again, in order; ``error`` says why. If a record is to be given again, so are all later ones whose order to it
    matters.
    """

    refused: Mapping[int, BaseException] = {}
    again: Sequence[int] = ()
    error: BaseException | None = None


ALL_CONFIRMED = Outcome()


class Sink(Protocol):
    """A place that takes batches. Called from one thread of the producer, never twice at a time.

    *Confirmed* is what the sink itself has acknowledged, nothing less.
    """

    def send(self, batch: Sequence[Any], timeout_s: float) -> Outcome:
        """Send all records of ``batch``, in order, and wait up to about ``timeout_s`` seconds for the acknowledgements.

        An empty batch is never given. The first call connects.

        :raises SinkAway: none of the batch is confirmed; it will be given again, without what has expired meanwhile.
        :raises SinkBusy: the sink keeps the batch and goes on with it; the same one will be given again.
        :raises SinkBroken: as ``SinkAway``, and trying again soon will not help.

        Any other exception counts as ``SinkBroken``: the sink does not know its own errors, so nothing is given up for
        it.
        """

    def close(self, timeout_s: float) -> None:
        """Let go of everything, in about ``timeout_s`` seconds at most. Never raises. What is not confirmed by then is
        not sent later."""
