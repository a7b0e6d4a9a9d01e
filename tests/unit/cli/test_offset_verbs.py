"""``leaderq offsets``, over a career that is not there."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from leaderq.base.exits import ExitCode
from leaderq.cli import main, offsets
from leaderq.errors import RequestRefused
from leaderq.kafka.record import Partition

WHERE = Partition("clicks", 0)


@pytest.fixture
def career(monkeypatch) -> Any:
    """One whose offset was 3. ``put``: what was set."""
    put: list[Any] = []
    made = SimpleNamespace(
        admin=SimpleNamespace(topics=("clicks",)),
        put=put,
        require_settable=lambda: None,
        store=SimpleNamespace(
            word="own",
            look_up=lambda _admin: {WHERE: 3},
            put=lambda _admin, wanted: put.append(wanted),
        ),
    )

    @contextmanager
    def opened(_given):
        yield made

    monkeypatch.setattr(offsets, "_opened", opened)
    monkeypatch.setattr(offsets, "_bounds", lambda _career: {WHERE: (0, 9)})
    monkeypatch.setattr(offsets, "_bounds_at", lambda _career, _at_ms: {WHERE: 5})
    return made


@pytest.mark.parametrize("really", [(), ("--yes",)])
@pytest.mark.parametrize("words", ["set a:A --at clicks-0=4", "to-time a:A 2026-11-23T08:00"])
def test_a_refusal_comes_before_anything_is_shown(career, capsys, words, really):
    def refuse() -> None:
        raise RequestRefused("somebody leads")

    career.require_settable = refuse
    assert main(["offsets", *words.split(), *really]) == ExitCode.FAILED
    assert capsys.readouterr() == ("", "leaderq: error: somebody leads\n")
    assert not career.put


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], "holds no offsets, so there is nothing to set"),
        ([4, 5], "clicks-0 is given two offsets, 4 and 5; give one"),
        (None, "standard input is closed; name a FILE"),
    ],
)
def test_an_import_that_cannot_be_meant_sets_nothing(
    career, capsys, monkeypatch, tmp_path, rows, said
):
    if rows is None:
        monkeypatch.setattr(sys, "stdin", None)
    place = tmp_path / "offsets.jsonl"
    lines = [json.dumps({"topic": "clicks", "partition": 0, "offset": at}) for at in rows or ()]
    place.write_text("\n".join(lines))
    named = "-" if rows is None else str(place)
    assert main(["offsets", "import", "a:A", named, "--yes"]) == ExitCode.USAGE
    assert said in capsys.readouterr().err
    assert not career.put


def test_an_export_to_a_closed_output_is_refused(career, capsys, monkeypatch):
    monkeypatch.setattr(sys, "__stdout__", None)
    assert main(["offsets", "export", "a:A"]) == ExitCode.USAGE
    assert "standard output is closed" in capsys.readouterr().err


def test_what_was_set_is_shown_when_it_is_set(career, capsys):
    assert main(["offsets", "set", "a:A", "--at", "clicks-0=4", "--yes", "--json"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["before"] == 3
    assert career.put == [{WHERE: 4}]


def test_what_is_exported_can_be_imported(career, capsys, tmp_path):
    """Also what a store of the user's keeps by plain tuples, and where the group has offsets of
    topics that the career does not read.
    """
    career.store.look_up = lambda _admin: {("clicks", 0): 3, ("views", 1): 7}
    assert main(["offsets", "export", "a:A"]) == ExitCode.OK
    place = tmp_path / "offsets.jsonl"
    place.write_text(capsys.readouterr().out)
    assert main(["offsets", "import", "a:A", str(place), "--yes"]) == ExitCode.OK
    assert career.put == [{WHERE: 3}]


@pytest.mark.parametrize("verb", ["show a:A", "export a:A", "set a:A --at clicks-0=4 --yes"])
@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (OSError("no route"), "the offset store 'own' failed while"),
        ({"clicks": 3}, "look_up() of the offset store 'own' returned the key 'clicks'"),
    ],
)
def test_what_a_store_of_the_users_does_is_not_called_a_fault_of_leaderq(
    career, capsys, verb, answer, told
):
    def look_up(_admin: object) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    career.store.look_up = look_up
    main(["offsets", *verb.split()])
    said = capsys.readouterr().err
    assert told in said
    assert "fault in leaderq" not in said
    assert not career.put


@pytest.mark.parametrize("words", ["set a:A --to latest --yes", "to-time a:A 2026-11-23 --yes"])
def test_where_there_are_no_partitions_nothing_is_said_to_be_set(
    career, capsys, monkeypatch, words
):
    career.declared = SimpleNamespace(where="A")
    monkeypatch.setattr(offsets, "_bounds", lambda _career: {})
    monkeypatch.setattr(offsets, "_bounds_at", lambda _career, _at_ms: {})
    assert main(["offsets", *words.split()]) == ExitCode.FAILED
    assert "the topics of A have no partitions, so there is" in capsys.readouterr().err
    assert not career.put
