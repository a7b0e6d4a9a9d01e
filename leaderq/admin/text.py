"""Values in words (pure): durations, times, texts of others, made short and harmless; and rows."""

from __future__ import annotations

from datetime import datetime, timezone
from fnmatch import fnmatchcase
from typing import Any, Literal

_WIDEST = 60
Row = dict[str, Any]
"""What is shown of one thing: headings, and what stands below them; ``None``: nothing."""
Tone = Literal["good", "warn", "bad", "faint", ""]


class Toned(str):
    """A text and how good or bad that is, for whatever has colours."""

    __slots__ = ("tone",)
    tone: Tone

    def __new__(cls, text: object, tone: Tone) -> Toned:
        made = super().__new__(cls, text)
        made.tone = tone
        return made


def is_like(wanted: str, *texts: str) -> bool:
    """Whether ``wanted`` is a part of one of these texts, or a pattern (``team-*``) of it."""
    wanted = wanted.strip().lower()
    pattern = wanted if set(wanted) & set("*?[") else f"*{wanted}*"
    return any(fnmatchcase(one.lower(), pattern) for one in texts)


def duration(seconds: float) -> str:
    """The two largest units: ``4 s``, ``3 m 20 s``, ``2 h 5 m``, ``6 d 1 h``; never negative."""
    whole = max(0, int(seconds))
    units = [
        (whole // 86400, "d"),
        (whole // 3600 % 24, "h"),
        (whole // 60 % 60, "m"),
        (whole % 60, "s"),
    ]
    first = next((at for at, (amount, _) in enumerate(units) if amount), len(units) - 1)
    return " ".join(f"{amount} {unit}" for amount, unit in units[first : first + 2])


def briefly(seconds: float) -> str:
    """A duration; less than a second in milliseconds."""
    return duration(seconds) if seconds >= 1 else f"{seconds * 1000:.0f} ms"


def iso(at_ms: int | None) -> str | None:
    """ISO 8601 in UTC; ``None`` if unknown, or beyond what a calendar holds."""
    moment = _moment(at_ms)
    return moment.isoformat(timespec="milliseconds") if moment else None


def local(at_ms: int | None) -> str | None:
    """As a person's clock shows it; ms since the epoch where no calendar reaches."""
    if moment := _moment(at_ms):
        return f"{moment.astimezone():%Y-%m-%d %H:%M:%S}"
    return None if at_ms is None else f"{at_ms} ms"


def _moment(at_ms: int | None) -> datetime | None:
    if at_ms is None or at_ms < 0:
        return None
    try:
        return datetime.fromtimestamp(at_ms / 1000, timezone.utc)
    except (OverflowError, ValueError, OSError):
        return None


def harmless(text: str) -> str:
    """``text`` made safe for a terminal, whoever it comes from."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def cut(text: str, width: int, *, is_longer: bool = False) -> str:
    """``text``, with an ellipsis if it does not fit or ``is_longer``."""
    return text if len(text) <= width and not is_longer else text[: width - 1] + "…"


def brief(data: bytes) -> str:
    """At most some sixty characters on one line that are safe for a terminal."""
    is_long = len(data) > 4 * _WIDEST
    try:
        text = data[: 4 * _WIDEST].decode(errors="ignore" if is_long else "strict")
    except UnicodeDecodeError:
        text = ""
    if data and not text:
        return cut(f"(hexadecimal) {data[:_WIDEST].hex(' ')}", _WIDEST)
    return cut(harmless(text), _WIDEST, is_longer=len(text) < len(data) // 4)
