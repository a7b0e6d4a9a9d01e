"""What a shell completes: verbs, options, careers, candidates and queues; and how it is switched
on.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from leaderq import connect


@pytest.fixture
def complete(folder, environment, zookeeper_server, root):
    """What bash is offered for the last of these words, which stand behind ``leaderq``."""

    def ask(*words: str, **settings: str) -> list[str]:
        given = {"zookeeper": zookeeper_server.address, "root": root, **settings}
        variables = {
            "_LEADERQ_COMPLETE": "bash_complete",
            "COMP_WORDS": " ".join(["leaderq", *words]),
            "COMP_CWORD": str(len(words)),
        }
        done = subprocess.run(
            [sys.executable, "-m", "leaderq"],
            cwd=folder,
            env=environment(**given) | variables,
            capture_output=True,
            text=True,
        )
        assert done.stderr == ""
        return [line.partition(",")[2] for line in done.stdout.splitlines() if line]

    return ask


def test_verbs_and_their_options_are_completed_without_any_server(complete):
    nowhere = {"zookeeper": "127.0.0.1:1"}
    assert complete("st", **nowhere) == ["status", "step-down"]
    assert complete("queue", "pu", **nowhere) == ["put", "purge"]
    assert complete("status", "--wa", **nowhere) == ["--watch"]
    assert complete("status", "--career", "", **nowhere) == []  # and nothing is said


def test_careers_candidates_and_queues_are_asked_of_zookeeper(
    complete, stand, root, zookeeper_server
):
    stand("abel")
    stand("bert")
    with connect(zookeeper_server.address) as session:
        for path in (f"{root}/orders", f"{root}/orders-meta", f"{root}/other"):
            session.ensure_path(path)
    assert complete("status", "--career", "ad") == ["ad-billing"]
    assert complete("transfer", "--career", "ad-billing", "--to", "b") == ["bert"]
    assert complete("queue", "drain", f"{root}/o") == [f"{root}/orders", f"{root}/other"]
