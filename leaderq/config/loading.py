"""Settings as this process sees them: file, environment and flags; checked, or refused."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leaderq.config import resolution
from leaderq.config.kinds import InvalidValue
from leaderq.config.resolution import Layer, from_file
from leaderq.config.settings import DEFAULT, TABLE, Row, Settings
from leaderq.errors import ConfigurationError

CONFIG_VARIABLE = "LEADERQ_CONFIG"
FILE_NAME = "leaderq.toml"
_CAREERS = "careers"
_OPTIONS = "options"
_CLASS = "class"


@dataclass(frozen=True)
class Configuration:
    """``settings``, the source of each, and the file that was read, if any. ``careers``: the tables
    of careers in it, with the class that each names.
    """

    settings: Settings
    sources: Mapping[str, str]
    file: Path | None
    careers: Mapping[str, str | None]

    def source(self, name: str) -> str:
        """Where the value of ``name`` comes from: *default*, a file, a variable or a flag."""
        return self.sources.get(name, DEFAULT)

    def rows(self) -> Iterator[tuple[Row, Any, str]]:
        """Each setting with its value and its source; secrets are masked."""
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
    """Return the settings, and where each comes from.

    The last one wins: defaults, the file, its table ``[careers.NAME]``, ``LEADERQ_*`` variables,
    ``flags`` by setting name. The file is ``config``, else the one that ``LEADERQ_CONFIG`` names,
    else ``leaderq.toml`` in ``folder`` (default: the current one). ``career`` is the name of the
    career unless a setting names another; it chooses the table. ``[careers.NAME.options]`` holds
    values of the career's own, of any kind (``Settings.options``), ``class`` in ``[careers.NAME]``
    what ``leaderq run --all`` runs.

    :raises ConfigurationError: with every problem found.
    """
    environ = os.environ if environ is None else environ
    folder = folder or Path.cwd()
    chosen = config or environ.get(CONFIG_VARIABLE)
    file = folder / Path(chosen or FILE_NAME).expanduser()
    path = file if chosen or file.exists() else None
    variables = resolution.from_environment(environ, folder)
    own = [variables, resolution.from_flags(flags or {}, folder)]
    document, problems = _read_toml(path)
    names = [one.get("career") for one in (own[1].values, own[0].values, document)]
    name = next((name for name in names if isinstance(name, str)), career)
    careers = _careers(document, path, problems)
    layers = [*_file_layers(path, document, careers, name, problems), *own]
    found = resolution.resolve(layers, _read_secret)
    problems += found.problems
    for key, value in found.values.items():
        if isinstance(value, Path) and (reason := _why_unreadable(value)):
            what = f"{found.places[key]}: {str(value)!r} cannot be read: {reason}"
            problems.append(f"{what}; name a file this user may read")
    if problems:
        raise ConfigurationError(*problems)
    if career is not None and "career" not in found.values:
        found.values["career"], found.sources["career"] = career, "the class"
    settings = Settings(**found.values, options=careers.get(str(name), {}).get(_OPTIONS, {}))
    return Configuration(
        settings, found.sources, path, {each: table.get(_CLASS) for each, table in careers.items()}
    )


def _careers(document: dict[str, Any], path: Path | None, problems: list[str]) -> dict[str, Any]:
    """The tables of careers, taken out of ``document``."""
    careers = document.pop(_CAREERS, {})
    tables = careers.values() if isinstance(careers, dict) else [careers]
    if not all(isinstance(table, dict) for table in tables):
        remedy = f"write a table for each career, like [{_CAREERS}.ad-billing]"
        problems.append(f"{_CAREERS} of {path} is not a set of tables; {remedy}")
        return {}
    for name, table in careers.items():
        place = f"in [{_CAREERS}.{name}] of {path}"
        if not isinstance(table.get(_OPTIONS, {}), dict):
            remedy = f"write a table of your own values, like [{_CAREERS}.{name}.{_OPTIONS}]"
            problems.append(f"{_OPTIONS} {place} is not a table; {remedy}")
        if not isinstance(table.get(_CLASS, ""), str):
            problems.append(
                f"{_CLASS} {place} is not text; write it in quotes, like 'billing:AdBilling'"
            )
        if "career" in table:
            problems.append(f"career {place} would rename what the table is chosen by; remove it")
    return dict(careers)


def _file_layers(
    path: Path | None,
    document: dict[str, Any],
    careers: Mapping[str, Any],
    career: str | None,
    problems: list[str],
) -> Iterator[Layer]:
    if path is None:
        return
    for table in [key for key, value in document.items() if isinstance(value, dict)]:
        remedy = f"write settings at the top of the file, or in [{_CAREERS}.NAME] for one career"
        if difflib.get_close_matches(table, [_CAREERS], n=1) or table == "career":
            remedy = f"did you mean [{_CAREERS}.NAME]?"
        problems.append(f"[{table}] of {path} is not a table of leaderq; {remedy}")
        del document[table]
    yield from_file(document, path)
    for name, table in careers.items():
        if name != career:
            layer = from_file(table, path, f"{_CAREERS}.{name}", (_CLASS, _OPTIONS))
            problems += resolution.problems_within(layer)
    yield from_file(careers.get(str(career), {}), path, f"{_CAREERS}.{career}", (_CLASS, _OPTIONS))


def _read_toml(path: Path | None) -> tuple[dict[str, Any], list[str]]:
    """Return the tables of the file; the problem has its line and column, or why it is unread."""
    if path is None:
        return {}, []
    if sys.version_info >= (3, 11):
        import tomllib  # here: loading a parser costs every start, and most have no file
    else:
        import tomli as tomllib
    try:
        return tomllib.loads(path.read_bytes().decode()), []
    except OSError as exc:
        why = f"cannot be read: {_reason(exc)}; name another with --config"
    except UnicodeDecodeError as exc:
        why = f"is not UTF-8 text (byte {exc.start}); save it as UTF-8"
    except tomllib.TOMLDecodeError as exc:
        why = f"is not TOML: {exc}; correct that line"
    return {}, [f"configuration file {str(path)!r} {why}"]


def _read_secret(path: Path) -> str:
    """The one line of ``path``; a newline at its end does not count."""
    try:
        text = path.read_bytes().decode().rstrip("\r\n")
    except OSError as exc:
        remedy = "name a file this user may read"
        raise InvalidValue(f"cannot be read: {_reason(exc)}", remedy) from exc
    except UnicodeDecodeError as exc:
        raise InvalidValue("is not UTF-8 text", "save the secret as one line of UTF-8") from exc
    if not text or "\n" in text:
        raise InvalidValue("does not hold exactly one line", "save the secret as one line")
    return text


def _why_unreadable(path: Path) -> str:
    try:
        if path.is_dir():
            return "Is a directory"
        path.stat()
    except OSError as exc:  # such as a name that is too long
        return _reason(exc)
    return "" if os.access(path, os.R_OK) else "Permission denied"


def _reason(exc: OSError) -> str:
    return exc.strerror or type(exc).__name__
