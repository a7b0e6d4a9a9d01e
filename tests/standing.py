"""Whether a test that is named somewhere is there, and is run by ``make test``."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).parent
LONG = {line for line in (TESTS / "long.txt").read_text().splitlines() if not line.startswith("#")}


def stands(test: str) -> bool:
    """The test of this id is in its file or, as part of a contract, beside it; its parameters are
    not looked at.
    """
    path = TESTS.parent / test.partition("::")[0]
    wanted = f"def {test.rpartition('::')[2].partition('[')[0]}("
    return path.exists() and any(
        wanted in file.read_text() for file in (path, *path.parent.glob("*_contract.py"))
    )


def is_long(test: str) -> bool:
    """Only ``make test-long`` runs it, or the whole of its file."""
    return not LONG.isdisjoint({test, test.partition("[")[0], test.partition("::")[0]})
