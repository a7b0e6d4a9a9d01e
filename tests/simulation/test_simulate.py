"""What users simulate: the page about it, and careers that look right and are not."""

from __future__ import annotations

import asyncio
import pickle
import re
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from leaderq import AsyncLeaderCareer, AsyncTerm
from leaderq.base import clock
from leaderq.career import LeaderCareer
from leaderq.errors import ConfigurationError, WouldDeadlock
from leaderq.kafka import KafkaLeaderCareer
from leaderq.term import Term
from leaderq.testing.nemesis.history import What
from leaderq.testing.simulation import LifeFailed, acted, simulate
from leaderq.threads import primitives
from simulation.elections import ElectionLife, lead


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    text = (Path(__file__).parents[2] / "docs/simulation.rst").read_text()
    names: dict[str, Any] = {"__name__": "page"}
    for block in re.findall(r"code-block:: python\n\n((?:   .*\n|\n)+)", text):
        exec(re.sub("(?m)^   ", "", block), names)
    return names


@pytest.mark.parametrize(
    ("career", "seed", "said"),
    [("Invoices", 0, "done 2 times: invoice 1"), ("Mails", 23, "done 2 times: mail orders-0@0")],
)
def test_the_page_finds_what_is_done_twice(page, career, seed, said):
    with pytest.raises(LifeFailed, match=said) as failed:
        simulate(page[career], seeds=100)
    assert failed.value.seed == seed


def test_what_the_page_mends_is_right(page):
    assert simulate(page["MendedInvoices"], seeds=20).acts > 20
    assert simulate(page["MendedMails"], seeds=range(20, 26)).terms >= 6


def test_a_kafka_career_that_begins_at_the_end_is_said_to_skip(page):
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


def test_a_career_that_acts_beside_the_next_leader_is_found():
    with pytest.raises(LifeFailed, match=r"effects after term 2 of c\d .* was inaugurated"):
        simulate(LeavesAThread, seeds=20)


class Matching(KafkaLeaderCareer):
    topics = re.compile("orders.*")

    def handle(self, batch: Any, term: Term) -> None: ...


class Nesting(LeaderCareer):
    def execute(self, term: Term) -> None:
        with pytest.raises(WouldDeadlock):
            simulate(Nesting, seeds=1)
        acted({"not": "a text"})  # type: ignore[arg-type]
        term.wait(1.0)


def test_what_was_done_twice_is_told_whatever_it_is_and_to_other_processes_too():
    with pytest.raises(LifeFailed, match=r"times: \{'not': 'a text'\}") as failed:
        simulate(Nesting, seeds=1, faults=0, seconds=2.0)
    copy = pickle.loads(pickle.dumps(failed.value))
    assert (str(copy), copy.seed, copy.problems) == (str(failed.value), 0, failed.value.problems)


@pytest.mark.parametrize(
    ("career", "given", "said"),
    [
        (LeavesAThread, {"seeds": 0}, "seeds=0: give 1 or more"),
        (LeavesAThread, {"seeds": "one"}, "seeds='one': give 1 or more"),
        (LeavesAThread, {"seeds": []}, "seeds=[]: give 1 or more"),
        (Matching, {}, "Matching.topics=re.compile('orders.*'): give names"),
        (LeavesAThread, {"candidates": 0}, "candidates=0: give 1 or more"),
        (LeavesAThread, {"timeout_s": 0}, "timeout_s=0: give 0.2 to 600.0"),
        (LeavesAThread(), {}, "which cannot be called; give a function"),
        (lambda: "a career", {}, "what career() returns='a career': give a LeaderCareer"),
    ],
)
def test_what_cannot_be_simulated_is_refused(career, given, said):
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        simulate(career, **given)


def test_a_blocked_loop_is_named_and_the_same_seed_gives_the_same_history():
    for seed in range(50):
        history = lead(ElectionLife(seed, in_coroutines=True)).history
        if any("event loop is blocked" in line for line in history):
            break
    assert any("in blocks_thread" in line for line in history)
    assert sum(What.INAUGURATED.value in line for line in history) > 1
    assert history == lead(ElectionLife(seed, in_coroutines=True)).history


class AsyncInvoices(AsyncLeaderCareer):
    async def execute(self, term: AsyncTerm) -> None:
        await term.wait(0.5)
        async with term.unit():
            term.check()
            acted(f"{term.id}: {asyncio.get_running_loop().time()}")


def test_the_career_of_a_user_is_simulated():
    report = simulate(AsyncInvoices, seeds=5)
    assert report.terms >= 5
    assert report.acts > 50
