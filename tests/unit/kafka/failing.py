"""A handler that fails at one record as a test wants it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fake_career import A, RecordPlace, where

from leaderq.kafka import PoisonRecord, Record


def failing_at(
    errors: Iterable[BaseException], place: RecordPlace = (A, 1), *, names: bool = False
) -> Callable[[Sequence[Record]], Any]:
    """Raise one of the errors after the other, while there are some, naming the record or not."""
    left = iter(errors)

    def fail(handed: Sequence[Record]) -> None:
        for record in handed:
            if where(record) == place and (error := next(left, None)) is not None:
                if names:
                    raise PoisonRecord(record) from error
                raise error

    return fail
