"""Lives of a drain: nothing is skipped, and nothing is done twice that must not be."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from leaderq import clock
from leaderq.career import LeaderCareer
from leaderq.errors import ConfigurationError
from leaderq.kafka.record import Partition
from leaderq.term import Term
from leaderq.testing.simulation import LifeFailed, acted, simulate
from leaderq.threads import primitives
from simulation import drain as lives
from simulation.conftest import SHARE
from simulation.control import NegativeControl
from simulation.drain_controls import DRAIN_CONTROLS
from simulation.kinds import KINDS

_CHUNK = int(42 * SHARE)
P = Partition("t", 0)


def handled(*offsets: int) -> list[lives.Handled]:
    return [lives.Handled(float(at), 1, P, offset) for at, offset in enumerate(offsets)]


_OF_A_STORE = ("drains with", "drains in transactions", "drains into")


def _chunks() -> Iterator[Any]:
    """Of the stores all lives are led at once; of the ways to drain a sixth, the rest later."""
    for kind in KINDS:
        is_of_store = kind == "drains" or kind.startswith(_OF_A_STORE)
        for chunk in range(6 if kind.startswith("drains") else 0):
            is_later = chunk > 0 and not is_of_store
            yield pytest.param(kind, chunk, marks=pytest.mark.long if is_later else ())


@pytest.mark.parametrize(("kind", "chunk"), [*_chunks()])
def test_no_life_of_a_drain_skips_or_doubles(
    kind: str, chunk: int, lived: Callable[..., None]
) -> None:
    lived(KINDS[kind], range(chunk * _CHUNK, (chunk + 1) * _CHUNK))


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
    assert lives.keys_out_of_order(handled(1, 0))
    by_key = [one._replace(key=one.offset % 2) for one in handled(1, 0, 3, 1, 2)]
    assert not lives.keys_out_of_order(by_key)
    assert lives.repeated_without_cause(handled(0, 0), [])
    assert not lives.repeated_without_cause(handled(0, 0), [(0.5, 0.6)])
    assert lives.not_exactly_once(["t@0", "t@0"], ["t@0"])
    assert lives.not_exactly_once(["t@1", "t@0"], ["t@0", "t@1"])
    assert not lives.not_exactly_once(["t@0", "t@1"], ["t@0", "t@1"])
    assert lives.not_committed({P: 2}, {P: 3})


@pytest.mark.parametrize("control", DRAIN_CONTROLS, ids=lambda control: control.name)
def test_a_line_of_drains_that_is_taken_out_is_missed(control: NegativeControl) -> None:
    assert not control.problems(control.seed)
    found = control.search(control.seed, 1) or control.search(0, 60)
    assert found is not None, f"{control.name}: no life shows it"


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    """What the programs of the page define."""
    text = (Path(lives.__file__).parents[2] / "docs/simulation.rst").read_text()
    names: dict[str, Any] = {"__name__": "page"}
    for block in re.findall(r"code-block:: python\n\n((?:   .*\n|\n)+)", text):
        exec(re.sub("(?m)^   ", "", block), names)
    return names


@pytest.mark.parametrize(
    ("career", "seed", "said"),
    [("Invoices", 1, "done 2 times: invoice 1"), ("Mails", 23, "done 2 times: mail orders-0@0")],
)
def test_the_page_finds_what_is_done_twice(
    page: dict[str, Any], career: str, seed: int, said: str
) -> None:
    with pytest.raises(LifeFailed, match=said) as failed:
        simulate(page[career], seeds=100)
    assert failed.value.seed == seed


def test_what_the_page_mends_is_right(page: dict[str, Any]) -> None:
    assert simulate(page["MendedInvoices"], seeds=20).acts > 20
    assert simulate(page["MendedMails"], seeds=range(20, 26)).terms >= 6


def test_a_kafka_career_that_begins_at_the_end_is_said_to_skip(page: dict[str, Any]) -> None:
    latest = type("Latest", (page["Mails"],), {"auto_offset_reset": "latest"})
    with pytest.raises(LifeFailed, match="seed 0: skipped: orders-0@0"):
        simulate(latest, seeds=1)


class LeavesAThread(LeaderCareer):
    """Looks right, as long as no term ends before its process."""

    def inaugurate(self, term: Term) -> None:
        primitives.Thread(target=self.act, args=(term,), daemon=True).start()

    def act(self, term: Term) -> None:
        for number in count():
            acted(f"{term.number}-{number}")
            clock.sleep(0.2)

    def execute(self, term: Term) -> None:
        term.wait(1.0)


def test_a_career_that_acts_beside_the_next_leader_is_found() -> None:
    with pytest.raises(LifeFailed, match=r"effects after term 2 of c\d .* was inaugurated"):
        simulate(LeavesAThread, seeds=20)


@pytest.mark.parametrize(
    ("career", "given", "said"),
    [
        (LeavesAThread, {"seeds": 0}, "seeds=0: give 1 or more"),
        (LeavesAThread, {"seeds": "one"}, "seeds='one': give 1 or more"),
        (LeavesAThread, {"candidates": 0}, "candidates=0: give 1 or more"),
        (LeavesAThread, {"timeout_s": 0}, "timeout_s=0: give 0.2 to 600.0"),
        (LeavesAThread(), {}, "which cannot be called; give a function"),
        (lambda: "a career", {}, "what career() returns='a career': give a LeaderCareer"),
    ],
)
def test_what_cannot_be_simulated_is_refused(career: Any, given: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        simulate(career, **given)
