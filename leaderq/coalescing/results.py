"""What a run gave, for all who share it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Result:
    """A value, or the error raised instead."""

    value: Any = None
    error: Exception | None = None

    @classmethod
    def of(cls, function: Callable[[], Any]) -> Result:
        """What this call gives. An interrupt, an exit or a cancellation is of the one who runs alone, and is raised."""
        try:
            return cls(value=function())
        except Exception as exc:  # noqa: BLE001 - it is raised to everybody who shares the run
            return cls(error=exc)

    @classmethod
    async def of_awaited(cls, function: Callable[[], Awaitable[Any]]) -> Result:
        """What awaiting this call gives."""
        try:
            return cls(value=await function())
        except Exception as exc:  # noqa: BLE001 - it is raised to everybody who shares the run
            return cls(error=exc)

    def give(self) -> Any:
        """The value, or raise the error: the same object to all, each with the traceback of the run and no other's."""
        if self.error is None:
            return self.value
        raise self.error.with_traceback(self.error.__traceback__)
