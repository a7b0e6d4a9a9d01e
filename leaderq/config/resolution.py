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
from leaderq.config.settings import BY_NAME, PREFIX, TABLE, Row

ReadText = Callable[[Path], str]

_OTHERS = "CACHE CONFIG DEBUG JAVA JSON ON_EXIT SERVERS"
_FAMILIES = "BENCH DEMO GUARDIAN SERVERS TERM TEST"
FOREIGN_VARIABLES = frozenset(PREFIX + name for name in _OTHERS.split())
"""Variables of other parts of leaderq, or of one verb; none of them is a setting."""
_FOREIGN_FAMILIES = tuple(f"{PREFIX}{name}_" for name in _FAMILIES.split())
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
    ``others``: keys of it that are no settings.
    """

    values: Mapping[str, Any]
    source: Callable[[str], str]
    place: Callable[[str], str]
    as_text: bool
    folder: Path
    others: tuple[str, ...] = ()


def known_keys() -> list[str]:
    """Every key of a layer: the settings, and for each secret the file that holds it."""
    return list(dict.fromkeys(key for row in TABLE for key in (row.name, row.key)))


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


def from_file(
    values: Mapping[str, Any], path: Path, table: str = "", others: tuple[str, ...] = ()
) -> Layer:
    """One table of a configuration file."""
    within = f" in [{table}]" if table else ""
    place = f"{within} of {path}"
    return Layer(
        values, lambda _: f"{path}{within}", lambda key: key + place, False, path.parent, others
    )


def _is_foreign(variable: str) -> bool:
    if variable[len(PREFIX) :].lower() in known_keys():
        return False
    foreign = variable in FOREIGN_VARIABLES or variable.startswith(_FOREIGN_FAMILIES)
    return foreign or _KUBERNETES.fullmatch(variable) is not None


def _variable(key: str) -> str:
    return PREFIX + key.upper()


def _flag(key: str) -> str:
    return "--" + key.replace("_", "-")


@dataclass
class Resolution:
    """``values`` holds what some layer set, and nothing else; ``places``: where the user changes
    each; ``invalid`` names the wrong ones.
    """

    values: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    invalid: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)


def resolve(layers: Sequence[Layer], read_secret: ReadText) -> Resolution:
    """Return the settings of ``layers``, the last one winning, and their problems."""
    found = Resolution()
    for layer in layers:
        found.problems += _unknown_keys(layer)
    for row in TABLE:
        _resolve_row(row, layers, found, read_secret)
    values = {row.name: found.values.get(row.name, row.default) for row in TABLE}
    for name, sentence in broken_relations(values, found.invalid):
        shown = _quoted(BY_NAME[name].shown(values[name]))
        found.problems.append(f"{found.places.get(name, name)}: {shown} {sentence}")
    return found


def problems_within(layer: Layer) -> list[str]:
    """What is wrong in ``layer`` by itself: reads no file, checks no relation between settings."""
    alone = Resolution(problems=_unknown_keys(layer))
    for row in TABLE:
        _resolve_row(row, [layer], alone, lambda _: "unread")
    return alone.problems


def _resolve_row(row: Row, layers: Sequence[Layer], found: Resolution, read: ReadText) -> None:
    chosen: tuple[Layer, str] | None = None
    for layer in layers:
        keys = [key for key in dict.fromkeys((row.name, row.key)) if key in layer.values]
        if len(keys) > 1:
            both = " and ".join(layer.place(key) for key in keys)
            found.problems.append(f"{both} are both set; keep one of them")
            found.invalid.add(row.name)
        chosen = (layer, keys[0]) if keys else chosen
    if chosen is None:
        return
    layer, key = chosen
    place = found.places[row.name] = layer.place(key)
    found.sources[row.name] = layer.source(key)
    try:
        found.values[row.name] = _value(row, layer, key, read)
    except InvalidValue as error:
        found.invalid.add(row.name)
        raw = layer.values[key]
        shown = _quoted(row.shown(raw) if key == row.name else raw)
        found.problems.append(f"{place}: {shown} {error.why}; {error.remedy}")


def _value(row: Row, layer: Layer, key: str, read_secret: ReadText) -> Any:
    raw = layer.values[key]
    if key != row.name:
        if not isinstance(raw, str):
            raise InvalidValue("is not the path of a file", "write it in quotes")
        return row.kind.check(read_secret(layer.folder / Path(raw).expanduser()))
    is_text = layer.as_text and isinstance(raw, str)
    value = row.kind.check(row.kind.from_text(raw) if is_text else raw)
    return layer.folder / value.expanduser() if isinstance(value, Path) else value


def _unknown_keys(layer: Layer) -> list[str]:
    known = [*known_keys(), *layer.others]
    problems = []
    for key in (key for key in layer.values if key not in known):
        hint = "remove it"
        for near in difflib.get_close_matches(key, known, n=1):
            hint = f"did you mean {layer.source(near) if layer.as_text else near}?"
        problems.append(f"{layer.place(key)} is not a setting of leaderq; {hint}")
    return problems


def _quoted(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)
