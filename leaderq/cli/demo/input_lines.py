"""Which access log the demo feeds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from leaderq.cli.demo.ad_billing.traffic import generated, read
from leaderq.errors import ConfigurationError

SHARED = Path("../shared/data/access.log")  # beside a developer's checkout


@dataclass(frozen=True)
class Input:
    """Where the lines come from, as a phrase, and the lines."""

    origin: str
    lines: Iterator[str]


def choose(given: Path | None, records: int) -> Input:
    """``records`` lines of ``given``, else of the shared log if it is there, else made up.

    Raises :class:`~leaderq.errors.ConfigurationError` if the file cannot be read or is empty.
    """
    path = given or (SHARED if SHARED.is_file() else None)
    if path is None:
        return Input("lines made up with the skew of a real access log", generated(records))
    try:
        return Input(f"the lines of {path}", read(path, records))
    except (OSError, ValueError) as exc:
        raise ConfigurationError(
            f"--input {str(path)!r} cannot be used: {exc}; name a file with lines of an access log"
        ) from exc
