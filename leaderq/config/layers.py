"""Where settings come from: each place as a layer of values that can say, for any key, how a person would find it again."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leaderq.config.settings import BY_NAME, PREFIX, SECRET_FILE, TABLE

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
