"""Layers into values: the last one that sets a key wins, each value remembers its source, all problems come out together.

Pure: a secret named by a file is read through the function given.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from leaderq.config.kinds import Unfit
from leaderq.config.relations import broken_relations
from leaderq.config.settings import BY_NAME, PREFIX, SECRET_FILE, TABLE, Row

DEFAULT = "default"
ReadText = Callable[[Path], str]
# Variables that belong to other parts of leaderq, or to one verb; none of them is a setting.
FOREIGN_VARIABLES = frozenset(
    PREFIX + name for name in ("CACHE", "CONFIG", "DEBUG", "INPUT", "JAVA", "JSON", "QUICK", "SERVERS", "TIMEOUT_S", "TO")
)
_FOREIGN_FAMILIES = ("ANALYZE_", "BENCH_", "DEAD_", "DEMO_", "GUARDIAN_", "JOURNAL_", "QUEUE_", "SERVERS_", "TEST_")
# Kubernetes gives every pod variables named after the services of its namespace, also of one called "leaderq".
_KUBERNETES = re.compile(r"LEADERQ_(.*_)?(SERVICE_HOST|SERVICE_PORT(_.*)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)")


@dataclass(frozen=True)
class Layer:
    """The settings one place gives.

    ``source`` names the place of a key where a value is shown, ``place`` where it is complained about. ``as_text`` says
    that values are text to be read, as opposed to typed ones. Paths are relative to ``folder``.
    """

    values: Mapping[str, Any]
    source: Callable[[str], str]
    place: Callable[[str], str]
    as_text: bool
    folder: Path


def known_keys() -> list[str]:
    """Every key a layer may hold: the settings, and for each secret the file that holds it."""
    return [row.name for row in TABLE] + [row.name + SECRET_FILE for row in TABLE if row.secret]


def from_environment(environ: Mapping[str, str], folder: Path) -> Layer:
    """The ``LEADERQ_*`` variables that are settings; an empty one counts as absent."""
    values = {
        name[len(PREFIX) :].lower(): text
        for name, text in environ.items()
        if name.startswith(PREFIX) and text and not _foreign(name)
    }
    return Layer(values, _variable, _variable, True, folder)


def from_flags(flags: Mapping[str, Any], folder: Path) -> Layer:
    """What the command line gave, by setting name; ``None`` counts as absent."""
    return Layer({name: value for name, value in flags.items() if value is not None}, _flag, _flag, True, folder)


def from_file(values: Mapping[str, Any], path: Path, table: str = "") -> Layer:
    """One table of a configuration file."""
    within = f" in [{table}]" if table else ""
    return Layer(values, lambda _: f"{path}{within}", lambda key: f"{key}{within} of {path}", False, path.parent)


def _foreign(variable: str) -> bool:
    if variable[len(PREFIX) :].lower() in known_keys():
        return False
    family = variable[len(PREFIX) :].startswith(_FOREIGN_FAMILIES)
    return variable in FOREIGN_VARIABLES or family or _KUBERNETES.fullmatch(variable) is not None


def _variable(key: str) -> str:
    return PREFIX + key.upper()


def _flag(key: str) -> str:
    row = BY_NAME.get(key)
    return (row and row.flag) or "--" + key.replace("_", "-")


@dataclass
class Resolution:
    """``values`` holds only what some layer set; ``sources`` and ``places`` tell where; ``unfit`` has the wrong ones."""

    values: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    unfit: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)

    def place(self, name: str) -> str:
        """Where to send the user who must change ``name``."""
        return self.places.get(name, name)


def resolve(layers: Sequence[Layer], read_secret: ReadText) -> Resolution:
    """The settings that ``layers`` give, the last one winning; reports instead of raising."""
    found = Resolution()
    for layer in layers:
        found.problems += _unknown_keys(layer)
    for row in TABLE:
        for layer in layers:
            _take(row, layer, found)
        if row.name in found.places:
            _finish(row, found, read_secret)
    _relate(found)
    return found


def faults(layer: Layer) -> list[str]:
    """What is wrong in ``layer`` by itself; no file is read, and relations to other settings are not looked at."""
    alone = Resolution(problems=_unknown_keys(layer))
    for row in TABLE:
        _take(row, layer, alone)
        if row.name in alone.places:
            _finish(row, alone, lambda _: "unread")
    return alone.problems


@dataclass(frozen=True)
class _Raw:
    value: Any
    layer: Layer
    key: str


def _take(row: Row, layer: Layer, found: Resolution) -> None:
    keys = [key for key in (row.name, row.name + SECRET_FILE) if key in layer.values and (key == row.name or row.secret)]
    if not keys:
        return
    if len(keys) > 1:
        both = " and ".join(layer.place(key) for key in keys)
        found.problems.append(f"{both} are both set; keep one of them")
        found.unfit.add(row.name)
    key = keys[0]
    found.values[row.name] = _Raw(layer.values[key], layer, key)
    found.sources[row.name] = layer.source(key)
    found.places[row.name] = layer.place(key)


def _finish(row: Row, found: Resolution, read_secret: ReadText) -> None:
    raw: _Raw = found.values.pop(row.name)
    shown = raw.value if raw.key != row.name else row.shown(raw.value)
    try:
        found.values[row.name] = _from_file(row, raw, read_secret) if raw.key != row.name else _fit(row, raw)
    except Unfit as unfit:
        found.unfit.add(row.name)
        found.problems.append(f"{raw.layer.place(raw.key)}: {_quoted(shown)} {unfit.why}; {unfit.remedy}")


def _fit(row: Row, raw: _Raw) -> Any:
    value = row.kind.from_text(raw.value) if raw.layer.as_text and isinstance(raw.value, str) else raw.value
    value = row.kind.check(value)
    return raw.layer.folder / value.expanduser() if isinstance(value, Path) else value


def _from_file(row: Row, raw: _Raw, read_secret: ReadText) -> Any:
    if not isinstance(raw.value, str):
        raise Unfit("is not the path of a file", "write it in quotes")
    return row.kind.check(read_secret(raw.layer.folder / Path(raw.value).expanduser()))


def _relate(found: Resolution) -> None:
    values = {row.name: found.values.get(row.name, row.default) for row in TABLE}
    for name, sentence in broken_relations(values, found.unfit):
        shown = next(row for row in TABLE if row.name == name).shown(values[name])
        found.problems.append(f"{found.place(name)}: {_quoted(shown)} {sentence}")


def _unknown_keys(layer: Layer) -> list[str]:
    known = known_keys()
    problems = []
    for key in layer.values:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {layer.source(near[0]) if layer.as_text else near[0]}?" if near else "remove it"
            problems.append(f"{layer.place(key)} is no setting of leaderq; {hint}")
    return problems


def _quoted(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)
