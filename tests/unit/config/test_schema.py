from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from test_own_options import Job, Options

from leaderq.cli import main
from leaderq.config import TABLE, Row
from leaderq.config.kinds import InvalidValue
from leaderq.config.loading import parsed_toml
from leaderq.config.own_options import made_options
from leaderq.config.schema import schema
from leaderq.errors import ConfigurationError

validators = pytest.importorskip("jsonschema", reason="pip install '.[dev]'")

VALUES = (
    True, 0, 1, -1, 3, 10**12, 0.2, 1.5, "", "x", "a", "any", "NEWEST", "json", "plain", "Info",
    "SCRAM-SHA-256", "127.0.0.1:2181", "/leaderq", "8080", [], ["a:1", "b"], [1], {"a": 1},
)  # fmt: skip


def accepts(document: dict[str, Any], made: dict[str, Any] | None = None) -> bool:
    found: bool = validators.Draft7Validator(made or schema({})).is_valid(document)
    return found


def passes(row: Row, value: Any) -> bool:
    try:
        row.kind.check(value)
    except InvalidValue:
        return False
    return True


def test_it_is_a_schema() -> None:
    made = schema({"job": Options})
    validators.Draft7Validator.check_schema(made)
    patterns = re.findall(r'"pattern": "([^"]+)"', json.dumps(made, default=str))
    assert len(patterns) > 5
    # editors read them as JavaScript's, where an escape that is not needed is an error
    assert [each for each in patterns if not re.fullmatch(r"[\^$()|\[\]\w-]+", each)] == []


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_it_accepts_what_a_setting_accepts(row: Row) -> None:
    good = [value for value in VALUES if passes(row, value)]
    assert [value for value in good if not accepts({row.name: value})] == []
    is_exact = row.is_switch or ("type" in row.kind.schema and row.kind.schema["type"] != "string")
    if is_exact or "|" in row.kind.metavar:
        bad = [value for value in VALUES if not passes(row, value)]
        assert [value for value in bad if accepts({row.name: value})] == []


def test_the_sample_is_accepted_and_can_be_used_with_all_its_defaults(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["config", "sample"]) == 0
    sample = capsys.readouterr().out
    assert all(f"[{row.variable}]" in sample for row in TABLE)
    text, count = re.subn(r"^#([a-z_]+ = .+)$", r"\1", sample, flags=re.MULTILINE)
    assert accepts(parsed_toml(text))
    (tmp_path / "leaderq.toml").write_text(text)
    assert main(["config", "show", "--json"]) == 0
    shown = map(json.loads, capsys.readouterr().out.splitlines())
    assert sum(row["source"].endswith("leaderq.toml") for row in shown) == count > 20


@pytest.mark.parametrize(
    "wrong",
    [
        {"zokeeper": "a"},
        {"careers": {"x": {"career": "y"}}},
        {"careers": {"x": {"class": 1}}},
        {"careers": 3},
        *({"kafka": one} for one in ({"x": 1}, "", [], [1])),
        {"id": ""},
    ],
    ids=str,
)
def test_it_refuses_what_is_no_setting_or_stands_elsewhere(wrong: dict[str, Any]) -> None:
    assert not accepts(wrong)


@pytest.mark.parametrize(
    "options",
    [
        {"folder": "/x"},
        {"folder": "/x", "every_s": 3, "limit": 2, "names": ["de"], "mode": "safe"},
        {"folder": "/x", "color": "red", "dry": True, "sums": {"a": 1}},
        {"folder": "/x", "pair": ["a", 1], "level": 2},
        {"folder": "/x", "level": "2"},
        {},
        {"folder": 3},
        *({"folder": "/x", **one} for one in ({"pair": ["a", "b"]}, {"pair": ["a"]}, {"level": 3})),
        *({"folder": "/x", **one} for one in ({"every_s": "3"}, {"limit": 1.5}, {"names": "de"})),
        *({"folder": "/x", **one} for one in ({"mode": "slower"}, {"color": "green"})),
        *({"folder": "/x", one: 1} for one in ("dry", "unknown")),
    ],
    ids=str,
)
def test_options_of_a_career_are_accepted_as_the_career_accepts_them(
    options: dict[str, Any],
) -> None:
    try:
        made_options(Options, options, "job")
        is_good = True
    except ConfigurationError:
        is_good = False
    document = {"careers": {"job": {"options": options}}}
    assert accepts(document, schema({"job": Options})) is is_good


def test_the_verb_knows_the_options_of_a_career(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["config", "schema", f"{Job.__module__}:Job"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert not accepts({"careers": {"job": {"options": {"folder": 3}}}}, made)
    assert accepts({"careers": {"job": {"options": {"folder": "/x"}}}}, made)
    assert accepts({"careers": {"another": {"options": {"folder": 3}}}}, made)
