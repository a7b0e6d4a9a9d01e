from __future__ import annotations

import logging
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from leaderq.career import LeaderCareer
from leaderq.election.software import Software
from leaderq.running.installed import installed_version, software_of

OURS = version("leaderq")


def distribution(folder: Path, name: str, said: str, **files: str) -> None:
    info = folder / f"{name.replace('-', '_')}-{said}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {said}\n")
    for file, text in files.items():
        (info / file.replace("_txt", ".txt")).write_text(text)


def career(folder: Path, module: str, monkeypatch: pytest.MonkeyPatch) -> LeaderCareer:
    """One of a package that has just been installed in ``folder``."""
    (folder / module).mkdir()
    (folder / module / "__init__.py").touch()
    (folder / module / "work.py").write_text(
        "from leaderq import LeaderCareer\nclass Work(LeaderCareer):\n"
        "    def execute(self, term): pass\n"
    )
    monkeypatch.syspath_prepend(folder)
    installed_version.cache_clear()
    __import__(f"{module}.work")
    made: LeaderCareer = sys.modules[f"{module}.work"].Work()
    return made


@pytest.mark.parametrize(
    ("name", "module", "files"),
    [
        ("installed-d", "installed_d", {}),
        ("Other", "installed_e", {"top_level_txt": "else\ninstalled_e\n"}),
        ("other", "installed_f", {"RECORD": "else.py,,\ninstalled_f/work.py,,\n"}),
    ],
)
def test_the_version_is_that_of_the_distribution(tmp_path, name, module, files, monkeypatch):
    distribution(tmp_path, name, "3.1.4", **files)
    made = career(tmp_path, module, monkeypatch)
    assert software_of(made) == Software("3.1.4", OURS, f"{module}.work:Work")
    made.version = "5"
    assert software_of(made).version == "5"


def test_a_package_of_no_distribution_or_of_several_has_no_known_version(tmp_path, monkeypatch):
    made = career(tmp_path, "installed_b", monkeypatch)
    assert software_of(made).version is None
    for name in ("one", "two"):
        distribution(tmp_path, name, f"1.{name}", top_level_txt="installed_b")
    installed_version.cache_clear()
    assert software_of(made).version is None
    assert software_of() == Software(leaderq=OURS)


def raises(_career: LeaderCareer) -> str:
    raise OSError("no")


@pytest.mark.parametrize("said", [3, ["1"], "1\n2", "9" * 10_000, property(raises)], ids=type)
def test_a_version_that_cannot_be_told_is_warned_of_and_left_out(said, caplog):
    rude = type("Rude", (LeaderCareer,), {"version": said, "execute": lambda self, term: None})
    with caplog.at_level(logging.WARNING):
        assert software_of(rude()).version is None
    assert "version of the career is not used" in caplog.text
    assert len(caplog.text) < 500
