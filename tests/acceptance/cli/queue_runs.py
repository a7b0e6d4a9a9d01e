"""``leaderq queue``, run in the process of the test."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from leaderq.cli import main


class Done(NamedTuple):
    """``out``: text, or bytes where bytes are captured."""

    code: int
    out: Any
    err: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        assert self.code == 0, self.err
        return [json.loads(line) for line in self.out.splitlines()]


Queue = Callable[..., Done]


def runs_of(address: str, monkeypatch: pytest.MonkeyPatch, captured: Any) -> Queue:
    """What runs ``leaderq queue`` on the server at ``address``; ``stdin`` is what it reads."""
    monkeypatch.setenv("LEADERQ_ZOOKEEPER", address)

    def run(*arguments: str, stdin: bytes = b"") -> Done:
        stream = SimpleNamespace(
            buffer=io.BytesIO(stdin), isatty=lambda: False, fileno=lambda: 2**20
        )
        monkeypatch.setattr(sys, "stdin", stream)
        captured.readouterr()
        code = main(["queue", *arguments])
        out, err = captured.readouterr()
        return Done(code, out, err.decode() if isinstance(err, bytes) else err)

    return run
