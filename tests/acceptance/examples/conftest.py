"""Somebody who follows a README; what they left open is closed after the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from following_readmes import Reader


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Callable[[Path], Reader]]:
    readers: list[Reader] = []

    def opened(cwd: Path) -> Reader:
        readers.append(Reader(cwd, tmp_path))
        return readers[-1]

    yield opened
    for each in readers:
        each.leaves()
