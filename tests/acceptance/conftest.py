"""What acceptance tests start and look at: candidates as processes, and the history that their
careers write.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from leaderq import Session, connect
from leaderq.testing.candidate_process import CandidateProcess

CAREERS = Path(__file__).parent / "careers"
Start = Callable[..., CandidateProcess]


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
def start(history, znode_root, zookeeper_server, fault_proxy) -> Iterator[Start]:
    """Start a candidate of a career in ``careers/``; all are stopped after the test, and before the
    proxies they go through.
    """
    started: list[CandidateProcess] = []

    def begin(target: str, *, id: str, **options: Any) -> CandidateProcess:
        arguments = ["--root", znode_root, "--cool-off-s", "0.2", *options.pop("arguments", [])]
        environment = {"HISTORY": str(history.path), **options.pop("environment", {})}
        # leaders are to go when a test wants it, not when a machine stalls
        options.setdefault("session_timeout_s", 15)
        options.setdefault("zookeeper", zookeeper_server.address)
        candidate = CandidateProcess(
            target, id=id, cwd=CAREERS, arguments=arguments, environment=environment, **options
        )
        started.append(candidate)
        return candidate.start()

    yield begin
    for candidate in started:
        candidate.stop()
