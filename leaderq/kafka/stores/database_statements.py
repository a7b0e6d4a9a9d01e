"""The SQL of :class:`~leaderq.kafka.stores.database_offsets.DatabaseOffsets`, in whatever parameter
style a driver has. Pure.

One table holds both kinds of row of a career: its *offices* row (topic ``''``, partition -1), whose
``term`` is the newest that has taken office, and a row for each partition. Only what every SQL
database understands is used: no upsert, no ``FOR UPDATE``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from leaderq.errors import ConfigurationError

Parameters = Sequence[Any] | Mapping[str, Any]

PARAMSTYLES = ("qmark", "format", "numeric", "named", "pyformat")
_TABLE_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?$")
_MARK = re.compile(r":([a-z_]+)")

CREATE = (
    "CREATE TABLE IF NOT EXISTS {table} (career VARCHAR(255) NOT NULL, topic VARCHAR(249) NOT NULL, partition INTEGER NOT NULL, "
    "next_offset BIGINT NOT NULL, term BIGINT NOT NULL, PRIMARY KEY (career, topic, partition))"
)
TAKE_OFFICE = "UPDATE {table} SET term = :term WHERE career = :career AND topic = '' AND partition = -1 AND term <= :term"
HOLDER = "SELECT term FROM {table} WHERE career = :career AND topic = '' AND partition = -1"
FOUND_OFFICE = "INSERT INTO {table} (career, topic, partition, next_offset, term) VALUES (:career, '', -1, 0, :term)"
OFFSETS = "SELECT topic, partition, next_offset FROM {table} WHERE career = :career AND partition >= 0"
OFFSET = "SELECT next_offset FROM {table} WHERE career = :career AND topic = :topic AND partition = :partition"
ADVANCE = (
    "UPDATE {table} SET next_offset = :next_offset, term = :term "
    "WHERE career = :career AND topic = :topic AND partition = :partition AND term <= :term"
)
BEGIN_AT = "INSERT INTO {table} (career, topic, partition, next_offset, term) VALUES (:career, :topic, :partition, :next_offset, :term)"


def in_style(paramstyle: str, statement: str, values: Mapping[str, Any]) -> tuple[str, Parameters]:
    """``statement``, whose parameters are written ``:name``, and its parameters, as a driver of
    this PEP 249 style wants them.
    """
    names = _MARK.findall(statement)
    if paramstyle == "named":
        return statement, {name: values[name] for name in names}
    if paramstyle == "pyformat":
        return _MARK.sub(r"%(\1)s", statement), {name: values[name] for name in names}
    if paramstyle == "numeric":
        count = iter(range(1, len(names) + 1))
        text = _MARK.sub(lambda _: f":{next(count)}", statement)
    else:
        text = _MARK.sub("?" if paramstyle == "qmark" else "%s", statement)
    return text, tuple(values[name] for name in names)


def checked_table(name: str) -> str:
    """``name``; raises :class:`~leaderq.errors.ConfigurationError` unless it is a plain SQL name,
    with a schema or without.
    """
    if not _TABLE_NAME.match(name):
        raise ConfigurationError(
            f"{name!r} cannot be the table of offsets; use letters, digits and '_', such as 'leaderq_offsets' or 'billing.offsets'"
        )
    return name


def checked_paramstyle(name: str) -> str:
    """``name``; raises :class:`~leaderq.errors.ConfigurationError` unless it is one of PEP 249."""
    if name not in PARAMSTYLES:
        raise ConfigurationError(
            f"paramstyle={name!r} is not known; the driver's module says which of {', '.join(PARAMSTYLES)} it is"
        )
    return name
