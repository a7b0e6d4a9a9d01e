"""The same statement in every parameter style of PEP 249."""

from __future__ import annotations

import pytest

from leaderq.errors import ConfigurationError
from leaderq.kafka.stores.database_offsets import checked_paramstyle, checked_table, in_style

STATEMENT = "UPDATE t SET term = :term WHERE career = :career AND term <= :term"
VALUES = {"career": "c", "term": 7, "unused": 0}


@pytest.mark.parametrize(
    ("paramstyle", "text", "parameters"),
    [
        ("qmark", "UPDATE t SET term = ? WHERE career = ? AND term <= ?", (7, "c", 7)),
        ("format", "UPDATE t SET term = %s WHERE career = %s AND term <= %s", (7, "c", 7)),
        ("numeric", "UPDATE t SET term = :1 WHERE career = :2 AND term <= :3", (7, "c", 7)),
        ("named", STATEMENT, {"career": "c", "term": 7}),
        (
            "pyformat",
            "UPDATE t SET term = %(term)s WHERE career = %(career)s AND term <= %(term)s",
            {"career": "c", "term": 7},
        ),
    ],
)
def test_a_statement_is_written_in_the_drivers_style(paramstyle: str, text: str, parameters: object) -> None:
    assert in_style(paramstyle, STATEMENT, VALUES) == (text, parameters)


@pytest.mark.parametrize("name", ["offsets", "leaderq_offsets", "billing.offsets", "_t1"])
def test_a_plain_table_name_is_taken(name: str) -> None:
    assert checked_table(name) == name


@pytest.mark.parametrize("name", ["", "1t", "a b", "a;drop", "a.b.c", "a'", 'a"b"', "tä"])
def test_a_table_name_that_would_need_quoting_is_refused_with_its_value(name: str) -> None:
    with pytest.raises(ConfigurationError, match="table of offsets") as refused:
        checked_table(name)
    assert repr(name) in str(refused.value)


def test_an_unknown_paramstyle_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigurationError, match="qmark, format, numeric, named, pyformat"):
        checked_paramstyle("dollar")
