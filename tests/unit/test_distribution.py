"""What a user installs: a source distribution that can be tested, on a system that is supported."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OF_THE_REPOSITORY = {".ci/run", ".dockerignore", ".gitignore"}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("pretence", "told"),
    [
        ("sys.version_info = (3, 9, 1)", f"this is Python 3.9 on {sys.platform}"),
        ("os.name, sys.platform = 'nt', 'win32'", "on win32"),
    ],
)
def test_a_system_that_is_not_supported_is_told_in_one_sentence(pretence: str, told: str) -> None:
    done = run("-c", f"import os, sys; {pretence}; import leaderq")
    assert done.returncode == 1
    line = done.stderr.splitlines()[-1]
    assert line.startswith("ImportError: leaderq needs Python 3.10 or newer, on Linux; this is ")
    assert line.endswith(told)


def test_a_source_distribution_has_all_that_the_repository_has(tmp_path: Path) -> None:
    pytest.importorskip("setuptools", reason="pip install '.[dev]'")
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("this is not a checkout")
    # Beside the tree, which must stay as it is.
    build = ["egg_info", "--egg-base", str(tmp_path), "sdist", "--dist-dir", str(tmp_path)]
    done = run("-W", "ignore", "-c", "from setuptools import setup; setup()", "--quiet", *build)
    assert done.returncode == 0, done.stderr
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        packed = {name.partition("/")[2] for name in tar.getnames()}
    wanted = {name for name in listed.stdout.splitlines() if (ROOT / name).exists()}
    assert wanted - packed == OF_THE_REPOSITORY
