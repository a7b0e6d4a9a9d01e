"""The Python of README and of the docs passes strict type checkers."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from snippets import GIVEN, PAGES, ROOT, blocks


@pytest.fixture
def written(tmp_path: Path) -> list[Path]:
    """Every snippet as a file of its own, behind what its page takes for granted."""
    for page in PAGES:
        for number, snippet in enumerate(blocks(page, "python"), 1):
            name = f"{page.stem.replace('-', '_').lower()}_{number}.py"
            (tmp_path / name).write_text(f"{GIVEN.get(page.stem, '')}\n\n{snippet}")
    # What the page about tests calls billing.py is the career that the quickstart shows.
    (tmp_path / "billing.py").write_text("from quickstart_3 import Billing as Billing\n")
    return sorted(tmp_path.glob("*.py"))


def test_all_snippets_pass_mypy_strict(written: list[Path], tmp_path: Path) -> None:
    assert len(written) > 15
    options = ["--strict", "--follow-imports=silent", "--config-file", "", "--cache-dir", str(ROOT / ".mypy_cache" / "users")]
    command = [sys.executable, "-m", "mypy", *options, *map(str, written)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=paths(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(find_spec("pyright") is None, reason="pyright is not installed: pip install 'pyright[nodejs]'")
def test_all_snippets_pass_pyright_strict(written: list[Path], tmp_path: Path) -> None:
    options = {"typeCheckingMode": "strict", "extraPaths": [str(ROOT)], "include": [path.name for path in written]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(options))
    command = [sys.executable, "-m", "pyright", "--outputjson", "--project", str(tmp_path), "--pythonpath", sys.executable]
    told = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    errors = [f"{Path(one['file']).name}: {one['message']}" for one in json.loads(told)["generalDiagnostics"]]
    assert errors == []


def paths(folder: Path) -> dict[str, str]:
    import os

    return {**os.environ, "MYPYPATH": f"{folder}:{ROOT / 'tests' / 'typings'}"}
