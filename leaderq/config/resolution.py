"""Layers into values: the last layer that sets a key wins, and each value remembers its source.

Pure: a secret that is named by a file is read through the function given. Nothing is raised; all
problems are collected.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from leaderq.config.kinds import InvalidValue
from leaderq.config.relations import broken_relations
from leaderq.config.settings import BY_NAME, PREFIX, SECRET_FILE, TABLE, Row

DEFAULT = "default"
ReadText = Callable[[Path], str]

_OTHERS = [
    "CACHE",
    "CONFIG",
    "DEBUG",
    "INPUT",
    "JAVA",
    "JSON",
    "QUICK",
    "SERVERS",
    "TIMEOUT_S",
    "TO",
]
_FAMILIES = ["ANALYZE", "BENCH", "DEAD", "DEMO", "GUARDIAN", "JOURNAL", "QUEUE", "SERVERS", "TEST"]
FOREIGN_VARIABLES = frozenset(PREFIX + name for name in _OTHERS)
"""Variables of other parts of leaderq, or of one verb; none of them is a setting."""
_FOREIGN_FAMILIES = tuple(f"{PREFIX}{name}_" for name in _FAMILIES)
# Kubernetes sets variables named after each service of the namespace, also after one "leaderq".
_KUBERNETES = re.compile(
    r"LEADERQ_(.*_)?"
    r"(SERVICE_HOST|SERVICE_PORT(_.*)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)


@dataclass(frozen=True)
class Layer:
    """The settings of one source.

    ``source`` names where the value of a key comes from, ``place`` where the user changes it.
    ``as_text``: values are text still to be read, not typed ones. Paths are relative to ``folder``.
    """

    values: Mapping[str, Any]
    source: Callable[[str], str]
    place: Callable[[str], str]
    as_text: bool
    folder: Path


def known_keys() -> list[str]:
    """Every key of a layer: the settings, and for each secret the file that holds it."""
    return [row.name for row in TABLE] + [row.name + SECRET_FILE for row in TABLE if row.secret]


def from_environment(environ: Mapping[str, str], folder: Path) -> Layer:
    """The ``LEADERQ_*`` variables that are settings; an empty one counts as absent."""
    values = {
        name[len(PREFIX) :].lower(): text
        for name, text in environ.items()
        if name.startswith(PREFIX) and text and not _is_foreign(name)
    }
    return Layer(values, _variable, _variable, True, folder)


def from_flags(flags: Mapping[str, Any], folder: Path) -> Layer:
    """The options of the command line, by setting name; ``None`` counts as absent."""
    values = {name: value for name, value in flags.items() if value is not None}
    return Layer(values, _flag, _flag, True, folder)


def from_file(values: Mapping[str, Any], path: Path, table: str = "") -> Layer:
    """One table of a configuration file."""
    within = f" in [{table}]" if table else ""
    place = f"{within} of {path}"
    return Layer(values, lambda _: f"{path}{within}", lambda key: key + place, False, path.parent)


def _is_foreign(variable: str) -> bool:
    if variable[len(PREFIX) :].lower() in known_keys():
        return False
    if variable in FOREIGN_VARIABLES or variable.startswith(_FOREIGN_FAMILIES):
        return True
    return _KUBERNETES.fullmatch(variable) is not None


def _variable(key: str) -> str:
    return PREFIX + key.upper()


def _flag(key: str) -> str:
    row = BY_NAME.get(key)
    return (row and row.flag) or "--" + key.replace("_", "-")


@dataclass
class Resolution:
    """``values`` holds what some layer set, and nothing else; ``invalid`` names the wrong ones."""

    values: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    invalid: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)

    def place(self, name: str) -> str:
        """Where the user changes ``name``."""
        return self.places.get(name, name)


def resolve(layers: Sequence[Layer], read_secret: ReadText) -> Resolution:
    """Return the settings of ``layers``, the last one winning, and their problems."""
    found = Resolution()
    for layer in layers:
        found.problems += _unknown_keys(layer)
    for row in TABLE:
        _resolve_row(row, layers, found, read_secret)
    _check_relations(found)
    return found


def problems_within(layer: Layer) -> list[str]:
    """What is wrong in ``layer`` by itself: reads no file, checks no relation between settings."""
    alone = Resolution(problems=_unknown_keys(layer))
    for row in TABLE:
        _resolve_row(row, [layer], alone, lambda _: "unread")
    return alone.problems


@dataclass(frozen=True)
class _Raw:
    value: Any
    layer: Layer
    key: str


def _resolve_row(
    row: Row,
    layers: Sequence[Layer],
    found: Resolution,
    read_secret: ReadText,
) -> None:
    chosen: _Raw | None = None
    for layer in layers:
        chosen = _raw(row, layer, found) or chosen
    if chosen is None:
        return
    place = found.places[row.name] = chosen.layer.place(chosen.key)
    found.sources[row.name] = chosen.layer.source(chosen.key)
    try:
        found.values[row.name] = _value(row, chosen, read_secret)
    except InvalidValue as error:
        found.invalid.add(row.name)
        shown = row.shown(chosen.value) if chosen.key == row.name else chosen.value
        found.problems.append(f"{place}: {_quoted(shown)} {error.why}; {error.remedy}")


def _raw(row: Row, layer: Layer, found: Resolution) -> _Raw | None:
    names = (row.name, row.name + SECRET_FILE) if row.secret else (row.name,)
    keys = [key for key in names if key in layer.values]
    if len(keys) > 1:
        both = " and ".join(layer.place(key) for key in keys)
        found.problems.append(f"{both} are both set; keep one of them")
        found.invalid.add(row.name)
    return _Raw(layer.values[keys[0]], layer, keys[0]) if keys else None


def _value(row: Row, raw: _Raw, read_secret: ReadText) -> Any:
    folder = raw.layer.folder
    if raw.key != row.name:
        if not isinstance(raw.value, str):
            raise InvalidValue("is not the path of a file", "write it in quotes")
        return row.kind.check(read_secret(folder / Path(raw.value).expanduser()))
    is_text = raw.layer.as_text and isinstance(raw.value, str)
    value = row.kind.check(row.kind.from_text(raw.value) if is_text else raw.value)
    return folder / value.expanduser() if isinstance(value, Path) else value


def _check_relations(found: Resolution) -> None:
    values = {row.name: found.values.get(row.name, row.default) for row in TABLE}
    for name, sentence in broken_relations(values, found.invalid):
        shown = _quoted(BY_NAME[name].shown(values[name]))
        found.problems.append(f"{found.place(name)}: {shown} {sentence}")


def _unknown_keys(layer: Layer) -> list[str]:
    known = known_keys()
    problems = []
    for key in layer.values:
        if key in known:
            continue
        hint = "remove it"
        for near in difflib.get_close_matches(key, known, n=1):
            hint = f"did you mean {layer.source(near) if layer.as_text else near}?"
        problems.append(f"{layer.place(key)} is not a setting of leaderq; {hint}")
    return problems


def _quoted(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)
