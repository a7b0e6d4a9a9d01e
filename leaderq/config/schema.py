"""A JSON schema of ``leaderq.toml`` for editors, made from the table of settings.

The schema accepts all that leaderq accepts. It cannot express some rules: relations between
settings, the form of an address, which files must exist. leaderq checks them when it starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leaderq.config.own_options import options_schema
from leaderq.config.settings import SECRET_FILE, TABLE, Row

_DRAFT = "http://json-schema.org/draft-07/schema#"  # the one that editors of TOML know


def schema(options: Mapping[str, type | None]) -> dict[str, Any]:
    """Return the schema. ``options`` maps the name of a career to its dataclass ``Options``, or
    ``None``.

    :raises ConfigurationError: such a class cannot be used.
    """
    settings = {key: found for row in TABLE for key, found in _keys(row).items()}
    named = {
        name: _career(settings, None if kind is None else options_schema(kind, name))
        for name, kind in options.items()
    }
    careers = {
        "type": "object",
        "description": "settings of one career, by its name",
        "properties": named,
        "additionalProperties": _career(settings, None),
    }
    return {
        "$schema": _DRAFT,
        "title": "leaderq.toml",
        "type": "object",
        "properties": {**settings, "careers": careers},
        "additionalProperties": False,
    }


def _keys(row: Row) -> dict[str, Any]:
    told = {"description": row.help}
    if row.default is not None and "<" not in str(row.default):
        told["default"] = row.default
    found = {row.name: {**row.kind.schema, **told}}
    if row.secret:
        what = f"file that holds the {row.help}"
        found[row.name + SECRET_FILE] = {"type": "string", "minLength": 1, "description": what}
    return found


def _career(settings: Mapping[str, Any], options: Mapping[str, Any] | None) -> dict[str, Any]:
    own = {key: found for key, found in settings.items() if key != "career"}
    own["class"] = {"type": "string", "description": "what leaderq run --all runs: module:Class"}
    own["options"] = options or {"type": "object"}
    return {"type": "object", "properties": own, "additionalProperties": False}
