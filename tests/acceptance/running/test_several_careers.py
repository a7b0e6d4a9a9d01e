"""Several careers in one process: each with a candidate and failures of its own."""

from __future__ import annotations

import json
import re
import signal
from urllib.error import HTTPError
from urllib.request import urlopen

from leaderq.base.exits import ExitCode
from leaderq.testing import eventually

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
[careers.first.options]
greeting = "good morning"

[careers.second.options]
greeting = "good night"
"""


def asked(address: str, path: str) -> tuple[int, str]:
    try:
        with urlopen(f"http://{address}{path}", timeout=60) as reply:
            return reply.status, reply.read().decode()
    except HTTPError as reply:
        with reply:
            return reply.code, reply.read().decode()


def test_those_of_the_file_run_and_answer_for_themselves_and_one_signal_ends_all(start, tmp_path):
    (tmp_path / "several.py").write_text(CAREERS)
    careers = {"first": "Steady", "second": "Other", "third": "Unprepared", "fourth": "Failing"}
    tables = [f'[careers.{name}]\nclass = "several:{made}"\n' for name, made in careers.items()]
    (tmp_path / "leaderq.toml").write_text("".join(tables) + OPTIONS)
    process = start("--all", cwd=tmp_path, arguments=["--http", "0"])
    for career in ("first", "second"):
        process.wait_for("stage_began", stage="execution", career=career)
    process.wait_for("career_failed", career="third")
    process.wait_for("cooling_off", career="fourth")
    listening = re.compile(r"http endpoint listening address=([\d.:]+)")
    (address,) = eventually(lambda: listening.findall(str(list(process.lines))))
    assert asked(address, "/livez") == (200, "live\n")
    eventually(lambda: asked(address, "/leader/first") == (200, "leader\n"))
    eventually(lambda: "third: it does not lead" in asked(address, "/leader")[1])
    assert asked(address, "/readyz")[0] == 503
    told = json.loads(asked(address, "/status")[1])
    assert [name for name, found in told["careers"].items() if found["ended"]] == ["third"]
    first = told["careers"]["first"]
    assert (first["role"], first["term"]["number"]) == ("leading", 1)
    assert first["term"]["stage"] == "execution"
    status, metrics = asked(address, "/metrics")
    if status != 501:  # without the extra
        for career, leads in (("first", 1), ("second", 1), ("third", 0)):
            assert f'leaderq_leader{{career="{career}"}} {leads}.0' in metrics
    said = {line["message"] for line in process.lines if line.get("logger") == "mine"}
    assert {"greeting good morning", "greeting good night"} <= said
    assert process.said("term_ending", career="first") == []
    process.process.send_signal(signal.SIGTERM)
    for career in ("first", "second"):
        process.wait_for("term_ended", career=career, clean=True)
    assert process.process.wait(60) == ExitCode.FAILED  # of the third
