"""Candidates as processes, and the history that their careers write."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from recorded import History

from leaderq import Session, connect

CAREERS = Path(__file__).parents[1] / "careers"


@pytest.fixture
def zookeeper(zookeeper_server) -> Iterator[Session]:
    with connect(zookeeper_server.address) as session:
        yield session


@pytest.fixture
def history(tmp_path) -> History:
    return History(tmp_path / "history.jsonl")


@pytest.fixture
def start(start, history):
    def begin(target, *, arguments=(), environment=None, **more):
        told = {"HISTORY": str(history.path), **(environment or {})}
        arguments = ["--cool-off-s", "0.2", *arguments]
        options = {"cwd": CAREERS, "environment": told, **more}
        return start(target, arguments=arguments, **options)

    return begin
