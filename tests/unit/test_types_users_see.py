"""README's Python and the programs of tests/acceptance pass type checkers, as they stand."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = ("payments.py", "report.py", "service.py")
BLOCK = re.compile(r"^\.\. code-block:: python\n\n((?: {3}.*\n|\n)+)", re.MULTILINE)
AROUND = """
from typing import Any

ledger: Any = None
charge: Any = None
cache: dict[str, str] = {}
def render(page: str) -> str: return page
def write_report(number: int) -> None: ...
"""
BILLING = """
from leaderq import KafkaLeaderCareer

class Billing(KafkaLeaderCareer):
    topics = ("clicks",)

"""
WRONG = """
from leaderq import Candidate, connect
with connect(3) as session, session.leadership("reports") as term:
    term.wait("long")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """All that users read, a file each, and a mistake."""
    blocks = [textwrap.dedent(found) for found in BLOCK.findall((ROOT / "README.rst").read_text())]
    assert len(blocks) > 8
    for number, block in enumerate(blocks):
        used = BILLING if "Billing()" in block else ""  # from a block before
        (tmp_path / f"readme_{number}.py").write_text(AROUND + used + block)
    for name in PROGRAMS:
        (tmp_path / name).write_text((ROOT / "tests" / "acceptance" / "programs" / name).read_text())
    (tmp_path / "wrong.py").write_text(WRONG)
    return tmp_path


def test_mypy_finds_no_mistake_but_the_one_made_on_purpose(folder: Path) -> None:
    pytest.importorskip("mypy", reason="the types are checked where mypy is installed")
    command = [sys.executable, "-m", "mypy", "--check-untyped-defs", "--follow-imports=silent", "--config-file="]
    files = sorted(str(each) for each in folder.glob("*.py"))
    cache = ["--cache-dir", str(ROOT / ".mypy_cache" / "users")]
    done = subprocess.run([*command, *cache, *files], cwd=ROOT, capture_output=True, text=True, check=False)
    told = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert [Path(line.split(":")[0]).name for line in told] == ["wrong.py"] * 2, done.stdout + done.stderr


@pytest.mark.skipif(find_spec("pyright") is None, reason="needs pip install 'pyright[nodejs]'")
def test_pyright_finds_no_mistake_but_the_one_made_on_purpose(folder: Path) -> None:
    options = {"extraPaths": [str(ROOT)], "include": ["*.py"]}
    (folder / "pyrightconfig.json").write_text(json.dumps(options))
    command = [sys.executable, "-m", "pyright", "--outputjson", "--project", str(folder)]
    told = subprocess.run([*command, "--pythonpath", sys.executable], capture_output=True, text=True, check=False).stdout
    errors = [one for one in json.loads(told)["generalDiagnostics"] if one["severity"] == "error"]
    assert [Path(one["file"]).name for one in errors] == ["wrong.py"] * 2, told
