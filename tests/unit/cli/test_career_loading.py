from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from mute import TOLD

from leaderq.career import ILeaderCareer
from leaderq.cli import run
from leaderq.cli.career_loading import find_career, make_career
from leaderq.cli.options import Given
from leaderq.errors import ConfigurationError

BILLING = """
from leaderq.career import LeaderCareer

class AdBilling(LeaderCareer):
    def execute(self, term): ...
    class Nested(LeaderCareer):
        def execute(self, term): ...

class Greedy(AdBilling):
    def __init__(self, url, *, table, size=1, **rest): ...

class Broken(AdBilling):
    def __init__(self):
        raise RuntimeError("no such table")

class Plain: ...

def function(): ...

made = AdBilling()

class Misspelt(LeaderCareer):
    def exectue(self, term): ...

class Gone(AdBilling):
    def __init__(self):
        raise BaseException("gone")

class Mixed(dict, AdBilling): ...
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "adbills.py").write_text(BILLING)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def refusal(target: str, folder: Path) -> str:
    with pytest.raises(ConfigurationError) as caught:
        find_career(target, folder)
    (problem,) = caught.value.problems
    assert repr(target) in problem
    return problem


def test_a_career_is_found_in_the_folder_and_can_be_made(folder):
    found = find_career("adbills:AdBilling", folder)
    assert issubclass(found, ILeaderCareer)
    assert isinstance(make_career(found, "adbills:AdBilling"), found)
    assert find_career("adbills:AdBilling.Nested", folder).__name__ == "Nested"
    assert find_career("adbills:Mixed", folder).__name__ == "Mixed"


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("billing", "names no class; write package.module:Class"),
        ("adbills.py:AdBilling", "begins with a file, not a module; write adbills:AdBilling"),
        ("bil-ling:A", "not made of Python names"),
        ("adbils:AdBilling", "module 'adbils' was not found in {folder} nor where Python looks"),
        ("xyzzy.plugh:A", "module 'xyzzy' was not found in {folder} nor where Python looks; run"),
        ("adbills:AdBiling", "({folder}/adbills.py) has no 'AdBiling'; did you mean 'AdBilling'?"),
        ("adbills:Xyzzy", "its careers: AdBilling, Greedy, Broken, Misspelt, Gone, Mixed"),
        ("adbills:function", "is a function, not a class"),
        ("adbills:made", "is an instance of AdBilling, not a class"),
        ("adbills:Plain", "({folder}/adbills.py:16) is not a career; make it a subclass of"),
        ("adbills:Misspelt", "still needs execute; is exectue meant to be execute?"),
        ("adbills:Greedy", "its constructor needs url, table; give them defaults"),
    ],
)
def test_a_wrong_target_is_refused(folder, target, said):
    assert said.format(folder=folder) in refusal(target, folder)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import xyzzy", "needs module 'xyzzy', which is not installed ({file}:1); install it"),
        ("x = (", "{file}:1 is not valid Python: '(' was never closed; correct that line"),
        ("\n\nx = {}['key']", "raised KeyError: 'key' ({file}:3)"),
        ("raise SystemExit(3)", "raised SystemExit: 3 ({file}:1)"),
        ("raise BaseException(3)", "raised BaseException: 3 ({file}:1)"),
        ("raise ModuleNotFoundError('no db')", "raised ModuleNotFoundError: no db ({file}:1)"),
        ("from mute import Mute\nraise Mute", f"raised {TOLD} ({{file}}:2)"),
    ],
)
def test_a_module_that_cannot_be_imported_is_refused_with_the_place_in_the_users_code(
    folder, source, said
):
    (folder / "faulty_module.py").write_text(source)
    assert said.format(file=folder / "faulty_module.py") in refusal("faulty_module:A", folder)


def test_a_constructor_that_raises_is_named_with_its_place(folder):
    career = find_career("adbills:Broken", folder)
    with pytest.raises(ConfigurationError) as caught:
        make_career(career, "adbills:Broken")
    said = f"its constructor raised RuntimeError: no such table ({folder}/adbills.py:14)"
    assert said in str(caught.value)
    assert isinstance(caught.value.__cause__, RuntimeError)
    with pytest.raises(ConfigurationError, match="its constructor raised BaseException: gone"):
        make_career(find_career("adbills:Gone", folder), "adbills:Gone")


def test_careers_of_one_process_have_one_id_unless_they_are_given_others(tmp_path, monkeypatch):
    body = "    def execute(self, term): ...\n"
    classes = "".join(f"class {name}(LeaderCareer):\n{body}" for name in "AB")
    (tmp_path / "couple.py").write_text(f"from leaderq import LeaderCareer\n{classes}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    wanted = [(None, "couple:A"), (None, "couple:B")]
    ids = [settings.id for _, settings, _ in run._all_checked(Given({}, None), wanted)]
    assert ids[0] == ids[1]
    (tmp_path / "leaderq.toml").write_text('[careers.b]\nid = "x"\n')
    ids[1:] = [settings.id for _, settings, _ in run._all_checked(Given({}, None), wanted)]
    assert ids == [ids[0], ids[0], "x"]
