"""Configuration as a process sees it: file, environment and flags of here and now, checked, or refused as a whole."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leaderq.config.kinds import Unfit
from leaderq.config.resolution import DEFAULT, Layer, faults, from_environment, from_file, from_flags, resolve
from leaderq.config.settings import TABLE, Row, Settings
from leaderq.errors import ConfigurationError

CONFIG_VARIABLE = "LEADERQ_CONFIG"
FILE_NAME = "leaderq.toml"
_CAREERS = "careers"


@dataclass(frozen=True)
class Configuration:
    """``settings`` with the source of each, and the file that was read, if any."""

    settings: Settings
    sources: Mapping[str, str]
    file: Path | None

    def source(self, name: str) -> str:
        """Where the value of ``name`` comes from: *default*, a file, a variable or a flag."""
        return self.sources.get(name, DEFAULT)

    def rows(self) -> Iterator[tuple[Row, Any, str]]:
        """Each setting with its value, secrets masked, and its source."""
        for row in TABLE:
            yield row, row.shown(getattr(self.settings, row.name)), self.source(row.name)


def load(
    flags: Mapping[str, Any] | None = None,
    *,
    config: str | Path | None = None,
    career: str | None = None,
    environ: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Configuration:
    """Settings from (last wins) defaults, the file, its table ``[careers.NAME]``, ``LEADERQ_*``, ``flags`` by setting name.

    The file is ``config``, else the one ``LEADERQ_CONFIG`` names, else ``leaderq.toml`` in ``folder`` (default: the current
    one). ``career`` is the name of the career unless a setting gives another; it chooses the table.
    Raises :class:`~leaderq.errors.ConfigurationError` with every problem there is.
    """
    environ = os.environ if environ is None else environ
    folder = folder or Path.cwd()
    chosen = config or environ.get(CONFIG_VARIABLE)
    path = folder / Path(chosen).expanduser() if chosen else find_file(folder)
    own = [from_environment(environ, folder), from_flags(flags or {}, folder)]
    document, problems = _document(path)
    layers = [*_file_layers(path, document, _career(document, own, career), problems), *own]
    found = resolve(layers, read_secret)
    problems += found.problems
    for name, reason in unreadable_files(found.values):
        problems.append(
            f"{found.place(name)}: {str(found.values[name])!r} cannot be read: {reason}; name a file this user may read"
        )
    if problems:
        raise ConfigurationError(*problems)
    if career is not None and "career" not in found.values:
        found.values["career"], found.sources["career"] = career, "the class"
    return Configuration(Settings(**found.values), found.sources, path)


def _document(path: Path | None) -> tuple[dict[str, Any], list[str]]:
    if path is None:
        return {}, []
    try:
        return read_toml(path), []
    except ConfigurationError as error:
        return {}, list(error.problems)


def _career(document: Mapping[str, Any], own: list[Layer], fallback: str | None) -> str | None:
    for values in (own[1].values, own[0].values, document):
        if isinstance(values.get("career"), str):
            return str(values["career"])
    return fallback


def _file_layers(path: Path | None, document: dict[str, Any], career: str | None, problems: list[str]) -> Iterator[Layer]:
    if path is None:
        return
    careers = document.pop(_CAREERS, {})
    for table in [key for key, value in document.items() if isinstance(value, dict)]:
        problems.append(f"[{table}] of {path} is no table of leaderq; {_table_remedy(table)}")
        del document[table]
    yield from_file(document, path)
    if not isinstance(careers, dict) or not all(isinstance(table, dict) for table in careers.values()):
        problems.append(
            f"{_CAREERS} of {path} is not a set of tables; write a table for each career, like [{_CAREERS}.ad-billing]"
        )
        return
    for name, table in careers.items():
        if "career" in table:
            problems.append(f"career in [{_CAREERS}.{name}] of {path} would rename what the table is chosen by; remove it")
        if name != career:
            problems += faults(from_file(table, path, f"{_CAREERS}.{name}"))
    yield from_file(careers.get(career, {}), path, f"{_CAREERS}.{career}")


def _table_remedy(table: str) -> str:
    if difflib.get_close_matches(table, [_CAREERS], n=1) or table == "career":
        return f"did you mean [{_CAREERS}.NAME]?"
    return f"write settings at the top of the file, or in [{_CAREERS}.NAME] for one career"


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
