"""The tables of the mutation tool fit the program: whoever changes a line it hangs on is told."""

from __future__ import annotations

import ast

import pytest
from mutation.controls import CONTROLS
from mutation.equivalents import EQUIVALENT
from mutation.modules import MODULES
from mutation.operators import edits_of
from mutation.trying import ROOT, tree_of


@pytest.mark.parametrize("one", CONTROLS, ids=lambda one: one.title)
def test_a_control_changes_what_stands_there_once_and_its_tests_exist(one):
    for edit in one.edits:
        ast.parse(edit.texts()[1])
    assert all((ROOT / test).exists() for test in one.tests)


@pytest.mark.parametrize("module", MODULES)
def test_a_module_and_its_tests_exist_and_its_equal_edits_are_still_made(module):
    assert all((ROOT / test).exists() for test in MODULES[module])
    made = {edit.id for edit in edits_of(tree_of(module)[1], module)}
    assert {id for id in EQUIVALENT if id.startswith(f"{module}:")} <= made
