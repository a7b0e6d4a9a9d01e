"""Three minutes of the nemesis, with rude careers; ``make soak`` does as many as you like.

The schedule of faults is chosen by ``LEADERQ_TEST_SEED``, which is shown when the test fails.
"""

from __future__ import annotations

import os
import random

import pytest

from leaderq.testing.nemesis import NemesisOptions, run

SEED = int(os.environ.get("LEADERQ_TEST_SEED", random.randrange(10**6)))


@pytest.mark.timeout(900)
def test_nothing_acts_after_its_term_and_somebody_leads_again_whatever_happens(
    zookeeper_ensemble, znode_root, tmp_path
) -> None:
    options = NemesisOptions(SEED, minutes=3, root=znode_root, folder=tmp_path / "nemesis")
    report = run(options, ensemble=zookeeper_ensemble, say=print)
    assert not report.violations, f"repeat it with LEADERQ_TEST_SEED={SEED}\n{report}"
    assert len(report.faults) > 15  # a run that does nothing finds nothing
    for event in ("inaugurated", "handed over", "accepted", "effect by a child"):
        assert report.counts[event] > 3, str(report)
