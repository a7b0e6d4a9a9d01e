"""The mutants still fit the program: those who change a line it hangs on are told at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from mutants.listed import MUTANTS
from mutants.mutant import Edit, Outdated, edited, mutant, stands

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("one", MUTANTS, ids=lambda one: one.name)
def test_it_changes_what_stands_there_once_and_its_test_exists(one):
    assert all(path.read_text() != text for path, text in edited(ROOT, one).items())
    assert stands(ROOT, one.killed_by)


def test_names_tell_them_apart():
    assert len({one.name for one in MUTANTS}) == len(MUTANTS)
    assert len({one.edits for one in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize("edit", [("gone", ""), ("x", ""), ("x = 1", "x = (")])
def test_a_text_that_is_gone_stands_twice_or_is_not_python_is_outdated(tmp_path, edit):
    (tmp_path / "a.py").write_text("x = 1\nxx = 2\n")
    with pytest.raises(Outdated, match=r"^it breaks: a\.py "):
        edited(tmp_path, mutant("it breaks", "tests/test_a.py::test_a", Edit("a.py", *edit)))


def test_edits_of_one_file_add_up(tmp_path):
    (tmp_path / "a.py").write_text("a = 1\nb = 2\n")
    both = [Edit("a.py", "a = 1", "a = 3"), Edit("a.py", "b = 2", "b = 4")]
    one = mutant("it breaks", "tests/test_a.py::test_a", *both)
    assert list(edited(tmp_path, one).values()) == ["a = 3\nb = 4\n"]
    assert not stands(tmp_path, one.killed_by)
