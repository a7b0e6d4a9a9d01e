"""Several careers in one process: each with a candidate and failures of its own."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from leaderq.exits import ExitCode
from leaderq.testing import eventually
from leaderq.testing.candidate_process import CandidateProcess

CAREERS = """
import logging
from leaderq import LeaderCareer

class Steady(LeaderCareer):
    def prepare(self):
        logging.getLogger("mine").warning("greeting %s", self.options.get("greeting"))

    def execute(self, term):
        term.wait(0.1)

class Other(Steady):
    pass

class Failing(Steady):
    def execute(self, term):
        raise ValueError("x")

class Unprepared(Steady):
    def prepare(self):
        raise OSError("no database")
"""
OPTIONS = """
[careers.steady.options]
greeting = "good morning"

[careers.other.options]
greeting = "good night"
"""


@pytest.fixture
def start(tmp_path: Path, zookeeper_server, znode_root):
    (tmp_path / "several.py").write_text(CAREERS)
    (tmp_path / "leaderq.toml").write_text(OPTIONS)
    started = []

    def begin(*names: str, id: str = "a", arguments=()) -> CandidateProcess:
        first, *more = [f"several:{name}" for name in names]
        arguments = [*more, "--root", znode_root, *arguments]
        made = CandidateProcess(first, id=id, zookeeper=zookeeper_server.address, cwd=tmp_path, arguments=arguments)
        started.append(made)
        return made.start()

    yield begin
    for each in started:
        each.stop()


def test_each_leads_fails_and_has_options_for_itself_and_one_signal_ends_all(start):
    process = start("Steady", "Failing", "Unprepared", "Other")
    for career in ("steady", "other"):
        process.wait_for("stage_began", stage="execution", career=career)
    process.wait_for("cooling_off", career="failing")
    process.wait_for("career_failed", career="unprepared")
    said = {line["message"] for line in process.lines if line.get("logger") == "mine"}
    assert {"greeting good morning", "greeting good night"} <= said
    assert process.said("term_ending", career="steady") == []
    process.process.send_signal(signal.SIGTERM)
    for career in ("steady", "other"):
        process.wait_for("term_ended", career=career, clean=True)
    assert process.process.wait(60) == ExitCode.FAILED  # of the one that was not prepared


def test_a_killed_process_leaves_all_of_its_leaderships_at_once(start):
    first = start("Steady", "Other")
    for career in ("steady", "other"):
        first.wait_for("stage_began", stage="execution", career=career)
    second = start("Steady", "Other", id="b", arguments=["--session-timeout-s", "30"])
    for career in ("steady", "other"):
        second.wait_for("standing", career=career)
    first.signal_worker(signal.SIGKILL)
    for career in ("steady", "other"):
        second.wait_for("stage_began", stage="execution", career=career)
    second.process.send_signal(signal.SIGTERM)
    assert second.process.wait(60) == ExitCode.OK


def test_careers_that_cannot_share_a_process_are_refused_with_all_reasons(start, tmp_path):
    (tmp_path / "leaderq.toml").write_text("career = 'one'\n[careers.one]\nlog_level = 'error'\n")
    process = start("Steady", "Other", arguments=["--http", "0"])
    assert process.process.wait(60) == ExitCode.USAGE
    said = "\n".join(str(line.get("message")) for line in eventually(lambda: process.lines[1:] and process.lines))
    assert "several of these careers stand as 'one'" in said
    assert "http answers for one career" in said


def test_a_file_sets_up_the_log_of_the_worker_and_a_module_keeps_its_handlers(start, tmp_path):
    told, kept = tmp_path / "told.log", tmp_path / "kept.log"
    (tmp_path / "log.toml").write_text(
        f'[handlers.h]\nclass = "logging.FileHandler"\nfilename = "{told}"\n[root]\nlevel = "INFO"\nhandlers = ["h"]\n'
    )
    (tmp_path / "several.py").write_text(
        f"import logging\nlogging.getLogger().addHandler(logging.FileHandler({str(kept)!r}))\n{CAREERS}"
    )
    by_file = start("Steady", arguments=["--log-config", "log.toml"])
    eventually(lambda: "won a term career=steady id=a" in told.read_text())
    by_module = start("Other", id="b")
    by_module.wait_for("term_began", career="other")
    eventually(lambda: "won a term career=other id=b" in kept.read_text())
    assert by_file.said("term_began") == []
