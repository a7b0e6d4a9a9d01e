"""What configuration reads from disk: the TOML file, the files of secrets, and whether named files can be read at all."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from leaderq.config.settings import TABLE
from leaderq.config.unfit import Unfit
from leaderq.errors import ConfigurationError

FILE_NAME = "leaderq.toml"


def find_file(folder: Path) -> Path | None:
    """The ``leaderq.toml`` of ``folder``, if there is one."""
    path = folder / FILE_NAME
    return path if path.exists() else None


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a configuration file.

    Raises :class:`~leaderq.errors.ConfigurationError` naming file, line and column, or why it cannot be read.
    """
    if sys.version_info >= (3, 11):
        import tomllib  # loading a parser costs every start; most have no file
    else:
        import tomli as tomllib
    try:
        return tomllib.loads(path.read_bytes().decode())
    except OSError as exc:
        raise ConfigurationError(
            f"configuration file {str(path)!r} cannot be read: {_reason(exc)}; name another with --config"
        ) from exc
    except UnicodeDecodeError as exc:
        raise ConfigurationError(
            f"configuration file {str(path)!r} is not UTF-8 text (byte {exc.start}); save it as UTF-8"
        ) from exc
    except tomllib.TOMLDecodeError as exc:
        raise ConfigurationError(f"configuration file {str(path)!r} is not TOML: {exc}; correct that line") from exc


def read_secret(path: Path) -> str:
    """The first line of ``path``, which must be its only one; a newline at its end does not count."""
    try:
        text = path.read_bytes().decode().rstrip("\r\n")
    except OSError as exc:
        raise Unfit(f"cannot be read: {_reason(exc)}", "name a file this user may read") from exc
    except UnicodeDecodeError as exc:
        raise Unfit("is not UTF-8 text", "save the secret as one line of UTF-8") from exc
    if not text or "\n" in text:
        raise Unfit("does not hold exactly one line", "save the secret as one line")
    return text


def unreadable_files(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The settings whose value is a file that cannot be read, and why."""
    return [
        (row.name, reason)
        for row in TABLE
        if isinstance(values.get(row.name), Path) and (reason := _why_unreadable(values[row.name]))
    ]


def _why_unreadable(path: Path) -> str:
    if path.is_dir():
        return "Is a directory"
    if not path.exists():
        return "No such file or directory"
    return "" if os.access(path, os.R_OK) else "Permission denied"


def _reason(exc: OSError) -> str:
    return exc.strerror or type(exc).__name__
