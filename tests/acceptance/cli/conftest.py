"""The command line as its user has it: a process with a clean environment, in a folder with a
career.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from leaderq.cli import main
from leaderq.testing.candidate_process import CandidateProcess
from leaderq.testing.waiting import patience
from leaderq.zookeeper import Session, connect

BILLING = """
from leaderq.career import LeaderCareer

class AdBilling(LeaderCareer):
    def execute(self, term):
        term.wait(0.05)

class Unprepared(AdBilling):
    def prepare(self):
        raise RuntimeError("no such database")

class Unmade(AdBilling):
    def __init__(self):
        raise RuntimeError("no such table")

import sys
import time

class Poison(AdBilling):
    def execute(self, term):
        raise ValueError("bad record\\x1b[31m")

class Slow(AdBilling):
    def execute(self, term):
        print("work is in hand", file=sys.stderr, flush=True)
        time.sleep(600)
"""

Shell = Callable[..., "subprocess.CompletedProcess[str]"]


# How servers are had is the business of whoever runs the tests.
RIG = {"LEADERQ_CACHE", "LEADERQ_JAVA", "LEADERQ_SERVERS"}


def clean_environment(**settings: str) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("LEADERQ_") or name in RIG
    }
    return kept | {f"LEADERQ_{name.upper()}": value for name, value in settings.items()}


@pytest.fixture
def environment() -> Callable[..., dict[str, str]]:
    """Variables for a process: this one's, without settings of leaderq but those given."""
    return clean_environment


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "billing.py").write_text(BILLING)
    return tmp_path


@pytest.fixture
def session(zookeeper_server, znode_root) -> Iterator[Session]:
    with connect(zookeeper_server.address) as opened:
        opened.ensure_path(znode_root)
        yield opened


@pytest.fixture
def shell(folder, monkeypatch, capfd) -> Shell:
    """Run one command to its end; keyword arguments are settings, given as variables.

    Verbs that import a career or own their process run as one; the others here, which is quicker.
    """

    def run(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
        if {"run", "lead", "doctor"}.isdisjoint(arguments):
            return run_here(arguments, settings)
        return subprocess.run(
            [sys.executable, "-m", "leaderq", *arguments],
            cwd=folder,
            env=clean_environment(**settings),
            capture_output=True,
            text=True,
            timeout=120 * patience(),
        )

    def run_here(
        arguments: tuple[str, ...], settings: dict[str, str]
    ) -> subprocess.CompletedProcess[str]:
        with monkeypatch.context() as patch:
            patch.chdir(folder)
            for name, value in settings.items():
                patch.setenv(f"LEADERQ_{name.upper()}", value)
            capfd.readouterr()
            code = main(arguments)
        return subprocess.CompletedProcess(arguments, code, *capfd.readouterr())

    return run


@pytest.fixture
def stand(folder, start) -> Callable[..., CandidateProcess]:
    """Start a candidate of *ad-billing*, and wait until it stands."""

    def begin(name: str, target: str = "billing:AdBilling", *arguments: str) -> CandidateProcess:
        process: CandidateProcess = start(target, id=name, cwd=folder, arguments=arguments)
        process.wait_for("standing")
        return process

    return begin


@pytest.fixture
def lead(stand) -> Callable[..., CandidateProcess]:
    """Start a candidate that leads when this returns."""

    def begin(name: str, *more: str) -> CandidateProcess:
        process: CandidateProcess = stand(name, *more)
        process.wait_for("stage_began", stage="execution")
        return process

    return begin


@pytest.fixture
def given(zookeeper_server, znode_root) -> dict[str, str]:
    """The settings with which a verb finds what this test has started."""
    return {"zookeeper": zookeeper_server.address, "root": znode_root}


@pytest.fixture
def ask(shell, given) -> Shell:
    """Run a verb about *ad-billing*."""
    return lambda *words, **more: shell(*words, **{**given, "career": "ad-billing", **more})


# -- ``leaderq queue``, run in the process of the test


class Done(NamedTuple):
    """What a command left behind."""

    code: int
    out: bytes
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.decode().splitlines()

    @property
    def rows(self) -> list[dict[str, Any]]:
        assert self.code == 0, self.err
        return [json.loads(line) for line in self.out.splitlines()]


@pytest.fixture
def queue(zookeeper_server, monkeypatch, folder, capfdbinary, session) -> Callable[..., Done]:
    """Run ``leaderq queue``; ``stdin`` is what it reads."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("LEADERQ_ZOOKEEPER", zookeeper_server.address)

    def run(*arguments: str, stdin: bytes = b"") -> Done:
        stream = SimpleNamespace(
            buffer=io.BytesIO(stdin), isatty=lambda: False, fileno=lambda: 2**20
        )
        monkeypatch.setattr(sys, "stdin", stream)
        capfdbinary.readouterr()
        code = main(["queue", *arguments])
        out, err = capfdbinary.readouterr()
        return Done(code, out, err.decode())

    return run
