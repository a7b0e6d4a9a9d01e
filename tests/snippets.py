"""What README and the pages of ``docs/`` show: their Python, and the commands to type; and what
pyright says of what users write.
"""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.rst", *sorted((ROOT / "docs").glob("*.rst"))]
# The second is the first with its own Node.js; make test installs it.
PYRIGHT = next((name for name in ("pyright", "basedpyright") if find_spec(name)), None)
_PAGE = {path.stem: path for path in PAGES}

# What the snippets of a page take for granted. Each is run, and checked by type checkers, behind
# it.
_REPORTING = (
    "class Written(Exception): ...\n\n\ndef write_report(number: int) -> None:\n    raise Written"
)
GIVEN = {
    "asyncio": _REPORTING,
    "coming-from": _REPORTING,
    "dyno": "allocated: list[bytes] = []\nallocate = allocated.append",
    "helpers": textwrap.dedent("""
        cache: dict[str, str] = {}
        charge = 7

        def render(page: str) -> str:
            return page.upper()

        class Ledger:
            total = 0

            def apply(self, amount: int) -> int:
                self.total += amount
                return self.total

        ledger = Ledger()
    """),
    "quickstart": _REPORTING,
    "web-application": "refreshed: list[int] = []\nrefresh_front_page = refreshed.append",
}


def pyright(folder: Path, **options: Any) -> dict[str, Any]:
    """Return what it reports of the files in ``folder``; ``options`` are those of its file."""
    (folder / "pyrightconfig.json").write_text(json.dumps(options))
    command = [sys.executable, "-m", str(PYRIGHT), "--outputjson", "--project", str(folder)]
    command += ["--pythonpath", sys.executable]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def blocks(page: Path, language: str) -> list[str]:
    """The code blocks of ``page`` in ``language``, in order."""
    found: list[list[str]] = []
    inside = False
    for line in page.read_text().splitlines():
        if line.strip().startswith(".. code-block:: "):
            inside = line.split()[-1] == language
            if inside:
                found.append([])
        elif inside and line and not line.startswith(" "):
            inside = False
        elif inside:
            found[-1].append(line)
    return [textwrap.dedent("\n".join(lines)).strip() + "\n" for lines in found]


def python(page: str) -> list[str]:
    """The Python of a page, by its name without ``.rst``."""
    return blocks(_PAGE[page], "python")


def commands(page: str) -> list[str]:
    """What a page tells to type, in order, without the remarks."""
    shown = blocks(_PAGE[page], "console")
    lines = "".join(shown).splitlines()
    return [line[2:].partition("  #")[0].strip() for line in lines if line.startswith("$ ")]
