"""Terms that are open, for tests that need one and no election."""

from __future__ import annotations

from typing import Any

from leaderq.clock import now_s
from leaderq.term import OpenTerm


def a_term(number: int = 7, *, lasts_s: float = 60.0, **more: Any) -> OpenTerm:
    """Its writes are carried out by nobody, unless ``write`` is given."""
    return OpenTerm(
        **{
            "number": number,
            "id": f"t{number}",
            "career": "c",
            "candidate": "a",
            "deadline": now_s() + lasts_s,
            "write": lambda _term, operations: list(operations),
            **more,
        }
    )
