"""What leaderq keeps about an item, behind the frame where Curator does not look (pure)."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

_MARK = b"leaderq:"
MAX_TEXT = 2000
"""Characters kept of an error's text."""


@dataclass(frozen=True, slots=True)
class Note:
    """All of it optional; times are milliseconds since the epoch.

    ``attempt``: how often the item was given to a consumer and failed. ``enqueued_ms``: when it was first put, if the znode is
    not the first. ``not_before_ms``: a consumer of leaderq leaves it alone until then (Java does not know of it).

    On dead letters also: ``reason`` (``attempts``, ``corrupt``, ``refused``), ``error`` (type and text), ``origin`` (the name it
    had), ``died_ms``, and ``raw``: the one item is the znode's whole former data, which could not be read.
    """

    attempt: int = 0
    enqueued_ms: int | None = None
    not_before_ms: int | None = None
    reason: str | None = None
    error: str | None = None
    origin: str | None = None
    died_ms: int | None = None
    raw: bool = False

    def packed(self) -> bytes:
        """The bytes that follow the frame."""
        said = {name: value for name, value in asdict(self).items() if value != _DEFAULTS[name]}
        if self.error is not None:
            said["error"] = self.error[:MAX_TEXT]
        # The text of an error may hold what is no text (the bytes of a file's name, as surrogates): then a "?" stands there.
        return _MARK + json.dumps(said, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")

    @classmethod
    def read(cls, data: bytes) -> Note | None:
        """The note in what follows a frame; ``None`` if there is none, or somebody else's."""
        if not data.startswith(_MARK):
            return None
        try:
            said = json.loads(data[len(_MARK) :])
        except (ValueError, RecursionError):
            return None
        if not isinstance(said, dict):
            return None
        return cls(**{name: said[name] for name in _TYPES if _fits(name, said.get(name))})


def _fits(name: str, value: Any) -> bool:
    return isinstance(value, _TYPES[name]) and (name == "raw" or not isinstance(value, bool))


_TYPES: dict[str, Any] = {
    "attempt": int,
    "enqueued_ms": int,
    "not_before_ms": int,
    "reason": str,
    "error": str,
    "origin": str,
    "died_ms": int,
    "raw": bool,
}
_DEFAULTS = asdict(Note())
