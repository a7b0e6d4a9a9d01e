"""Ninety seconds of the nemesis, with bad manners; ``make soak`` does as many as you like.

And what it says to those whose career cannot run.

The schedule of faults is chosen by ``LEADERQ_TEST_SEED``, which is shown when the test fails.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from leaderq.errors import ServerFailed
from leaderq.testing.nemesis import NemesisOptions, run

CAREERS = Path(__file__).parents[1] / "careers"
SEED = int(os.environ.get("LEADERQ_TEST_SEED", random.randrange(10**6)))


@pytest.mark.timeout(900)
def test_nothing_acts_after_its_term_and_somebody_leads_again_whatever_happens(
    znode_root, tmp_path
):
    options = NemesisOptions(
        SEED,
        "bad_manners:Rude",
        minutes=1.5,
        cwd=CAREERS,
        root=znode_root,
        folder=tmp_path / "nemesis",
    )
    report = run(options, say=print)
    assert not report.violations, f"repeat it with LEADERQ_TEST_SEED={SEED}\n{report}"
    assert len(report.faults) > 8  # a run that does nothing finds nothing
    for event in ("inaugurated", "handed over", "accepted", "effect by a child"):
        assert report.counts[event] > 3, str(report)


KAFKA_CAREER = """
from leaderq import KafkaLeaderCareer

class Drain(KafkaLeaderCareer):
    topics = "words"

    def handle(self, records, term):
        pass
"""
CANNOT_RUN = {
    "draining:Drian": "'draining:Drian' cannot be imported in .*has no attribute 'Drian'",
    "draining:Drain": "Kafka at '127.0.0.1:1' did not answer",
}


@pytest.mark.timeout(50)  # and not only when it has waited for all to stand
@pytest.mark.parametrize("career", CANNOT_RUN)
def test_it_says_why_a_career_cannot_run(zookeeper_ensemble, znode_root, tmp_path, career):
    (tmp_path / "draining.py").write_text(KAFKA_CAREER)
    options = NemesisOptions(
        SEED,
        career=career,
        cwd=tmp_path,
        root=znode_root,
        folder=tmp_path / "nemesis",
        arguments=("--kafka", "127.0.0.1:1", "--connect-timeout-s", "1"),
    )
    with pytest.raises(ServerFailed, match=CANNOT_RUN[career]):
        run(options, ensemble=zookeeper_ensemble)
