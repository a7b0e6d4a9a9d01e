"""What becomes of a request to work on a key: the words that every form of coordinator answers with."""

from __future__ import annotations

from enum import Enum


class Outcome(Enum):
    """The answer to an enqueue."""

    ACCEPT = "accept"
    """Nobody works on the key: run now."""
    BLOCK = "block"
    """Somebody works on the key: wait, then run. The run begins after the request, so it sees all that the request wanted
    seen."""
    DECLINE = "decline"
    """Do not run. See :class:`Refusal` for what makes that safe."""


class Refusal(Enum):
    """Why a request was declined, and by whom it is covered."""

    FULL = "full"
    """All waiting places are taken. Whoever waits begins after this request came, and does its work. With no waiting places
    at all, somebody ran when this request came, and began before it."""
    REPLACED = "replaced"
    """It waited, and a newer request took its place: that one begins later still."""
    MERGED = "merged"
    """Its value was merged into that of the newest request that waits."""
    BUSY = "busy"
    """It asked not to wait, and would have had to. Nobody covers it unless somebody waits."""
