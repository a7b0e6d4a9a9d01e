"""``leaderq run`` owns its process, and so the threshold of the process's garbage collector."""

from __future__ import annotations

import gc

import pytest

SELDOM = """
import gc
from leaderq import LeaderCareer
class Job(LeaderCareer):
    def __init__(self):
        raise RuntimeError(f"looks after {gc.get_threshold()[0]} objects")
    def execute(self, term):
        pass
"""


@pytest.mark.parametrize(
    ("asked", "found"), [([], 50_000), (["--gc-threshold", "0"], gc.get_threshold()[0])]
)
def test_the_collector_looks_seldom_before_the_career_is_made_unless_told_otherwise(
    shell, folder, asked, found
):
    (folder / "seldom.py").write_text(SELDOM)
    done = shell("run", "seldom:Job", *asked, zookeeper="127.0.0.1:1")
    assert f"looks after {found} objects" in done.stderr
