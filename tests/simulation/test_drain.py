"""Lives of a drain: nothing is skipped, and nothing is done twice that must not be."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from leaderq.kafka.record import Partition
from leaderq.testing.simulation import LifeFailed, simulate
from leaderq.testing.simulation.chronicle import LifeVerdict
from simulation import drain as lives
from simulation.conftest import SHARE

_CHUNK = int(56 * SHARE)
P = Partition("t", 0)


def handled(*offsets: int) -> list[lives.Handled]:
    return [lives.Handled(float(at), 1, P, offset) for at, offset in enumerate(offsets)]


@pytest.mark.parametrize("chunk", range(6))
@pytest.mark.parametrize("store", lives.STORES)
def test_no_life_of_a_drain_skips_or_doubles(
    store: str, chunk: int, lived: Callable[..., None]
) -> None:
    def one(seed: int) -> LifeVerdict:
        return lives.drain(lives.DrainLife(seed, store))

    lived(one, range(chunk * _CHUNK, (chunk + 1) * _CHUNK))


def test_a_batch_that_nobody_asks_for_yet_keeps_no_thread_busy() -> None:
    """The consumer's thread went round 230,000 times in 0.1 s, while the career was slow to ask."""
    assert lives.drain(lives.DrainLife(3)).steps < 5_000


def test_the_same_seed_gives_the_same_life_in_any_process() -> None:
    code = (
        "from simulation import drain; print('\\n'.join(drain.drain(drain.DrainLife(7)).history))"
    )
    found = [
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=Path(__file__).parents[1],
            env={
                **os.environ,
                "PYTHONHASHSEED": seed,
                "PYTHONPATH": str(Path(lives.__file__).parents[2]),
            },
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert found[0] == found[1]
    assert found[0].count(b"handled") >= 30


def test_the_judges_see_bad_histories() -> None:
    assert lives.skipped(handled(0, 2), {P: 3})
    assert not lives.skipped(handled(0, 1, 2), {P: 3})
    assert lives.out_of_order(handled(0, 2))
    assert not lives.out_of_order(handled(0, 1, 0, 1, 2))
    assert lives.repeated_without_cause(handled(0, 0), [])
    assert not lives.repeated_without_cause(handled(0, 0), [(0.5, 0.6)])
    assert lives.not_exactly_once(["t@0", "t@0"], ["t@0"])
    assert lives.not_exactly_once(["t@1", "t@0"], ["t@0", "t@1"])
    assert not lives.not_exactly_once(["t@0", "t@1"], ["t@0", "t@1"])
    assert lives.not_committed({P: 2}, {P: 3})


def test_the_page_finds_a_counter_over_terms_and_mends_it() -> None:
    page = (Path(lives.__file__).parents[2] / "docs/simulation.rst").read_text()
    blocks = re.findall(r"code-block:: python\n\n((?:   .*\n|\n)+)", page)
    names: dict[str, Any] = {"__name__": "page"}
    for block in blocks:
        exec(re.sub("(?m)^   ", "", block), names)
    with pytest.raises(LifeFailed, match="done 2 times: invoice 1") as failed:
        simulate(names["Invoices"], seeds=100)
    assert failed.value.seed == 1
    assert simulate(names["MendedInvoices"], seeds=20).acts > 20
