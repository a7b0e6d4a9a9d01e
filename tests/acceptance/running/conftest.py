"""Candidates as processes, and the history that their careers write."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from leaderq import Session, connect

CAREERS = Path(__file__).parents[1] / "careers"


class History:
    """The lines that recorder careers wrote, of all processes, in the order of their clock."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def lines(self, what: str | None = None, **fields: Any) -> list[dict[str, Any]]:
        if not self.path.exists():
            return []
        found = [
            json.loads(line) for line in self.path.read_text().splitlines() if line.endswith("}")
        ]
        wanted = {**fields, **({"what": what} if what else {})}
        matching = [
            line for line in found if all(line.get(name) == value for name, value in wanted.items())
        ]
        return sorted(matching, key=lambda line: line["at"])

    def overlap_s(self) -> float:
        """The longest time for which one term was believed in after a later one had begun; 0 or
        less is what must be.
        """
        worst = float("-inf")
        for begun in self.lines("inaugurate"):
            believed = [
                line["at"] for line in self.lines("believed") if line["term"] < begun["term"]
            ]
            worst = max([worst, *(at - begun["at"] for at in believed)])
        return worst


@pytest.fixture
def zookeeper(zookeeper_server: Any) -> Iterator[Session]:
    """A session of the test's own."""
    with connect(zookeeper_server.address) as session:
        yield session


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path / "history.jsonl")


@pytest.fixture
def start(start, history):
    """Start a candidate of a career in ``careers/``."""

    def begin(target, *, arguments=(), environment=None, **more):
        told = {"HISTORY": str(history.path), **(environment or {})}
        arguments = ["--cool-off-s", "0.2", *arguments]
        options = {"cwd": CAREERS, "environment": told, **more}
        return start(target, arguments=arguments, **options)

    return begin
