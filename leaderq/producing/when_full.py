"""What a full buffer does with a new request."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias


@dataclass(frozen=True)
class Block:
    """The caller waits until there is room, ``timeout_s`` at most (``None``: for as long as it takes), then
    ``BufferFull`` is raised."""

    timeout_s: float | None = None


class WhenFull(Enum):
    """Without waiting: refuse the new one with ``BufferFull``, drop the new one, or drop the oldest ones."""

    RAISE = "raise"
    DROP_NEWEST = "drop_newest"
    DROP_OLDEST = "drop_oldest"


FullPolicy: TypeAlias = Block | WhenFull
"""``Block(timeout_s)``, ``WhenFull.RAISE``, ``WhenFull.DROP_NEWEST`` or ``WhenFull.DROP_OLDEST``."""
