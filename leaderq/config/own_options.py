"""Fills a career's own options from text and TOML into the dataclass that the career declares.

Each value is checked against the type of its field before the election, and every problem names the
place where the user changes the value. The text of a variable is converted; a value from a file
must have the type of its field.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from difflib import get_close_matches
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from leaderq.config.kinds import SWITCH, InvalidValue, expanded
from leaderq.errors import ConfigurationError, told

log = logging.getLogger(__name__)
VARIABLES = "LEADERQ_OPTIONS_"
"""Variables with this prefix set options of every career of the process."""


_LISTS = (list, tuple, set, frozenset, Sequence)
_SCHEMAS: Mapping[Any, Mapping[str, Any]] = {
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    Path: {"type": "string"},
    dict: {"type": "object"},
}


class VariableText(str):
    """The text of a variable. If it is a list, commas separate its elements."""


def from_variables(environ: Mapping[str, str]) -> dict[str, VariableText]:
    """The options that variables set, by name in lower case; an empty variable counts as absent."""
    return {
        name[len(VARIABLES) :].lower(): VariableText(text)
        for name, text in environ.items()
        if name.startswith(VARIABLES) and text
    }


def made_options(kind: Any, values: Mapping[str, Any], career: str) -> Any:
    """Return an instance of the dataclass ``kind``, filled with ``values``.

    :raises ConfigurationError: values are unknown, missing, or of another type; it tells all of
        them.
    """
    table = f"[careers.{career}.options]"
    known, hints = _declared(kind, career)
    problems, given, asked = [], {}, set()
    for key, value in values.items():
        is_text = isinstance(value, VariableText)
        place = f"{VARIABLES}{key.upper()}" if is_text else f"{key} of {table}"
        name = next((one for one in known if one.lower() == key), key) if is_text else key
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
            if is_text:  # it may be meant for another career of the process
                log.warning("variable ignored variable=%s career=%s why=%r", place, career, hint)
            else:
                problems.append(f"{place} is not an option of {kind.__qualname__}; {hint}")
            continue
        asked.add(name)
        try:
            given[name] = _converted(hints[name], value)
        except InvalidValue as error:
            problems.append(f"{place}: {value!r} {error}")
    for name, one in known.items():
        has_default = one.default is not MISSING or one.default_factory is not MISSING
        if name not in asked and not has_default:
            remedy = f"write it in {table}, or set {VARIABLES}{name.upper()}"
            problems.append(f"option {name} of career {career!r} is not set; {remedy}")
    if problems:
        raise ConfigurationError(*problems)
    try:
        return kind(**given)
    except Exception as error:  # of its __post_init__
        raise ConfigurationError(f"{table}: {told(error)}; correct it there") from error


def _declared(kind: Any, career: str) -> tuple[dict[str, Field[Any]], dict[str, Any]]:
    """Return the fields of ``kind`` that can be given, and the types of all.

    :raises ConfigurationError: it is not a dataclass, or a type is not known.
    """
    if not (isinstance(kind, type) and is_dataclass(kind)):
        what = f"Options of career {career!r} is {kind!r:.100}"
        raise ConfigurationError(f"{what}, not a dataclass; put @dataclass above it")
    try:
        hints = get_type_hints(kind)
    except Exception as error:  # such as a name that is imported for type checkers only
        what = f"the types of Options of career {career!r} are not known: {told(error)}"
        remedy = "import what they name at the top of its module"
        raise ConfigurationError(f"{what}; {remedy}") from error
    return {one.name: one for one in fields(kind) if one.init}, hints


def _converted(kind: Any, value: Any) -> Any:
    """Return ``value``, converted to the type ``kind``; raises :class:`InvalidValue`."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if origin in (Union, UnionType):
        return _one_of(inner, value)
    if origin is Literal or (isinstance(kind, type) and issubclass(kind, Enum)):
        return _choice({str(getattr(one, "value", one)): one for one in inner or kind}, value)
    if (origin or kind) in _LISTS:
        return _several(origin or kind, inner, value)
    return _single(origin or kind, value)


def options_schema(kind: type, career: str) -> dict[str, Any]:
    """The JSON Schema of the values that ``made_options`` accepts from a file; raises
    ``ConfigurationError`` where that does for any values.
    """
    known, hints = _declared(kind, career)
    required = [
        name
        for name, one in known.items()
        if one.default is MISSING and one.default_factory is MISSING
    ]
    return {
        "type": "object",
        "properties": {name: _schema(hints[name]) for name in known},
        "additionalProperties": False,
        "required": required,
    }


def _schema(kind: Any) -> dict[str, Any]:
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return {"anyOf": [_schema(each) for each in inner if each is not NoneType]}
    if origin is Literal or (isinstance(kind, type) and issubclass(kind, Enum)):
        values = [getattr(one, "value", one) for one in inner or kind]
        numbers = [one for one in values if isinstance(one, int | float)]
        return {"enum": [*map(str, values), *numbers]}
    if _is_fixed(origin, inner):
        items = [_schema(each) for each in inner]
        return {"type": "array", "items": items, "minItems": len(items), "maxItems": len(items)}
    if (origin or kind) in _LISTS:
        return {"type": "array", "items": _schema(inner[0] if inner else Any)}
    return dict(_SCHEMAS.get(origin or kind, {}))


def _one_of(kinds: Sequence[Any], value: Any) -> Any:
    problem = InvalidValue("is nothing", "give a value")
    for kind in sorted(kinds, key=lambda one: one is str):  # text fits always
        try:
            if kind is not NoneType:
                return _converted(kind, value)
        except InvalidValue as error:
            problem = error
    raise problem


def _choice(choices: Mapping[str, Any], value: Any) -> Any:
    if str(value) in choices:
        return choices[str(value)]
    raise InvalidValue("is not a choice", f"write one of {', '.join(choices)}")


def _several(kind: Any, inner: Sequence[Any], value: Any) -> Any:
    if isinstance(value, VariableText):
        value = [VariableText(part.strip()) for part in value.split(",")]
    if not isinstance(value, list):
        raise InvalidValue("is not a list", "write [ ] around it")
    kinds = inner if _is_fixed(kind, inner) else [inner[0] if inner else Any] * len(value)
    if len(kinds) != len(value):
        raise InvalidValue(f"has {len(value)} elements", f"write {len(kinds)}")
    found = [_converted(*each) for each in zip(kinds, value, strict=True)]
    return found if kind in (list, Sequence) else kind(found)


def _is_fixed(kind: Any, inner: Sequence[Any]) -> bool:
    """Whether the type is a tuple with a type for each element, not ``tuple[kind, ...]``."""
    return kind is tuple and bool(inner) and inner[-1] is not Ellipsis


def _single(kind: Any, value: Any) -> Any:
    is_text, name = isinstance(value, VariableText), getattr(kind, "__name__", str(kind))
    if kind is bool:
        return SWITCH.check(SWITCH.from_text(value) if is_text else value)
    if is_text and kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            raise InvalidValue("is not a number", f"write one for {name}") from None
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise InvalidValue("is too large", "write a smaller number") from None
    if kind is Path and isinstance(value, str):
        return expanded(value)
    if kind is str and is_text:
        return str(value)
    if not isinstance(kind, type):
        return value
    if isinstance(value, kind) and not (kind is int and isinstance(value, bool)):
        return value
    raise InvalidValue(f"is not of type {name}", f"write a value of type {name}")
