"""The command line in a clean environment, in a folder with a career."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from leaderq.cli import main
from leaderq.testing.candidate_process import CandidateProcess
from leaderq.testing.waiting import patience
from leaderq.zookeeper import Session, connect

BILLING = """
import sys
import time

from leaderq.career import LeaderCareer

class AdBilling(LeaderCareer):
    def execute(self, term):
        term.wait(0.05)

class Poison(AdBilling):
    def execute(self, term):
        raise ValueError("bad record\\x1b[31m")

class Slow(AdBilling):
    def execute(self, term):
        print("work is in hand", file=sys.stderr, flush=True)
        time.sleep(600)
"""

Shell = Callable[..., "Done"]


def with_settings(**settings: str) -> dict[str, str]:
    """The variables of a process with these settings; no other is in this process's own."""
    return os.environ | {f"LEADERQ_{name.upper()}": value for name, value in settings.items()}


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "billing.py").write_text(BILLING)
    return tmp_path


@pytest.fixture
def session(zookeeper_server, znode_root) -> Iterator[Session]:
    with connect(zookeeper_server.address) as opened:
        opened.ensure_path(znode_root)
        yield opened


class Done(NamedTuple):
    """What a command left behind; bytes that are no text stand there as in ``sys.argv``."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def rows(self) -> list[dict[str, Any]]:
        return self.objects(code=0)

    def objects(self, *, code: int) -> list[dict[str, Any]]:
        assert self.code == code, self.err
        return [json.loads(line) for line in self.out.split("\n") if line]

    def assert_refused(self, *said: str, code: int = 2, lines: int = 1) -> None:
        """It is all that was said, a sentence a line."""
        assert (self.code, self.out) == (code, ""), self
        for each in said:
            assert each in self.err
        assert [line[:16] for line in self.err.splitlines()] == ["leaderq: error: "] * lines, self


@pytest.fixture
def shell(folder, monkeypatch, capfdbinary) -> Shell:
    """Run one command to its end; keyword arguments are settings, given as variables; ``stdin`` is
    what it reads.

    Verbs that own their process run as one; the others here, which is quicker.
    """

    def run(*arguments: str, stdin: bytes = b"", **settings: str) -> Done:
        if {"run", "lead"}.isdisjoint(arguments):
            return run_here(arguments, stdin, settings)
        done = subprocess.run(
            [sys.executable, "-m", "leaderq", *arguments],
            cwd=folder,
            env=with_settings(**settings),
            capture_output=True,
            text=True,
            timeout=120 * patience(),
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def run_here(arguments: tuple[str, ...], stdin: bytes, settings: dict[str, str]) -> Done:
        with monkeypatch.context() as patch:
            patch.chdir(folder)
            patch.setattr(sys, "path", [*sys.path])
            buffer = io.BytesIO(stdin)
            pipe = SimpleNamespace(buffer=buffer, isatty=lambda: False, fileno=lambda: 2**20)
            patch.setattr(sys, "stdin", pipe)
            for name, value in settings.items():
                patch.setenv(f"LEADERQ_{name.upper()}", value)
            capfdbinary.readouterr()
            code = main(arguments)
        for name, module in [*sys.modules.items()]:  # of the careers of this test
            if str(folder) in str(getattr(module, "__file__", "")):
                del sys.modules[name]
        out, err = (said.decode(errors="surrogateescape") for said in capfdbinary.readouterr())
        return Done(code, out, err)

    return run


@pytest.fixture
def begin(folder) -> Iterator[Callable[..., subprocess.Popen[Any]]]:
    with ExitStack() as stack:

        def start(*arguments: str, settings: dict[str, str], **more: Any) -> Any:
            command = [sys.executable, "-m", "leaderq", *arguments]
            process = subprocess.Popen(command, cwd=folder, env=with_settings(**settings), **more)
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        yield start


@pytest.fixture
def stand(folder, start) -> Callable[..., CandidateProcess]:
    def begin(name: str, target: str = "billing:AdBilling", *arguments: str) -> CandidateProcess:
        process: CandidateProcess = start(target, id=name, cwd=folder, arguments=arguments)
        process.wait_for("standing")
        return process

    return begin


@pytest.fixture
def lead(stand) -> Callable[..., CandidateProcess]:
    def begin(name: str, *more: str) -> CandidateProcess:
        process: CandidateProcess = stand(name, *more)
        process.wait_for("stage_began", stage="execution")
        return process

    return begin


@pytest.fixture
def given(zookeeper_server, znode_root) -> dict[str, str]:
    return {"zookeeper": zookeeper_server.address, "root": znode_root}


@pytest.fixture
def ask(shell, given) -> Shell:
    return lambda *words, **more: shell(*words, **{**given, "career": "ad-billing", **more})


@pytest.fixture
def queue(shell, session, zookeeper_server) -> Shell:
    return lambda *words, **more: shell("queue", *words, zookeeper=zookeeper_server.address, **more)
