"""Terms without an election."""

from __future__ import annotations

from typing import Any

from leaderq.base.clock import now_s
from leaderq.errors import Deposed
from leaderq.term import OpenTerm


def open_term(number: int = 1, *, lasts_s: float = 60.0, **fields: Any) -> OpenTerm:
    """A term of candidate ``a`` of the career ``c``, whose writes come back as they are."""
    made: dict[str, Any] = {
        "id": f"t{number}",
        "career": "c",
        "candidate": "a",
        "deadline": now_s() + lasts_s,
    }
    return OpenTerm(number=number, **{**made, "write": lambda _, ops: [*ops], **fields})


def is_on(term: OpenTerm) -> bool:
    try:
        term.check()
    except Deposed:
        return False
    return True
