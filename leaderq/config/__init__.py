"""Settings: one table, one resolver, one value that everything else is given.

The last one wins: defaults, ``leaderq.toml``, its table ``[careers.NAME]``, ``LEADERQ_*``
variables, flags. What is absent never overrides; an empty variable counts as absent. Each value
remembers its source. All problems are reported at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leaderq.config.settings import TABLE, KafkaSecurity, Row, Section, Settings, new_candidate_id

if TYPE_CHECKING:
    from leaderq.config.loading import Configuration, load
    from leaderq.config.resolution import DEFAULT

__all__ = [
    "DEFAULT",
    "TABLE",
    "Configuration",
    "KafkaSecurity",
    "Row",
    "Section",
    "Settings",
    "load",
    "new_candidate_id",
]


def __getattr__(name: str) -> Any:
    """Load the resolver when it is first used: --help and library users do without it."""
    if name in {"Configuration", "load"}:
        from leaderq.config import loading

        return getattr(loading, name)
    if name == "DEFAULT":
        from leaderq.config.resolution import DEFAULT

        return DEFAULT
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
