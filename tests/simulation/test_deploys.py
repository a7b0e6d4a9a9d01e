from __future__ import annotations

import json
import random
from functools import partial
from typing import Any
from unittest import mock

import pytest

from leaderq.base import clock
from leaderq.election import Operator, enlistment
from leaderq.term import Term
from leaderq.testing.simulation.cluster import SimulatedWorker
from simulation.scenarios import Scene, is_asking, scene
from simulation.test_election_promises import Watched, seen

NAMES = "abcde"


class Fleet:
    """Workers of one career, each with a version of its own when it is started."""

    def __init__(
        self,
        s: Scene,
        names: str = NAMES,
        version: Any = "1.0",
        prefer: str = "newest",
        career: type[Watched] = Watched,
    ) -> None:
        self.scene = s
        self.versions: dict[str, Any] = {}
        self.career = career
        self.workers: dict[str, SimulatedWorker] = {}
        for name in names:
            self.versions[name] = version
            made = partial(self._made, name)
            self.workers[name] = s.cluster.worker(name, made, career="c", prefer=prefer)
            self.start(name)
        s.until(lambda: seen(s, "unit"))

    def _made(self, name: str) -> Watched:
        career = self.career(self.scene, name)
        career.version = self.versions[name]
        return career

    @property
    def terms(self) -> list[dict[str, Any]]:
        record = self.scene.record()
        return [record, *record.get("past", ())]

    @property
    def leader(self) -> str:
        return str(self.terms[0]["candidate"])

    def start(self, name: str, version: Any = None) -> None:
        worker, s = self.workers[name], self.scene
        if version is not None:
            self.versions[name] = version
        s.until(lambda: worker.is_gone)
        worker.start()
        self.settle()

    def settle(self) -> None:
        def is_ready() -> bool:
            led = [each for each in self.workers.values() if each.is_leading]
            return (
                not any(each.is_gone for each in self.workers.values())
                and len(self.scene.line()) == len(self.workers)
                and len(led) == 1
                and self.scene.record()["stage"] == "execution"
            )

        self.scene.until(is_ready)
        self.scene.run(self.scene.world.faults() * 2.0 + 0.3)
        self.scene.until(is_ready)

    def restart(self, name: str, version: Any) -> None:
        self.workers[name].terminate()
        self.start(name, version)

    def crash(self, name: str) -> None:
        """Kill its process; a supervisor starts it again after half a second."""
        worker = self.workers[name]
        worker.process.kill()

        def start_again() -> None:
            if worker.is_gone:
                worker.start()
            elif not worker.process.alive:
                self.scene.world.at(0.5, start_again)

        self.scene.world.at(0.5, start_again)

    def crash_leader(self) -> None:
        """Kill whoever leads now; if nobody does, whoever led last."""
        leads = [name for name, each in self.workers.items() if each.is_leading]
        name = (*leads, self.leader)[0]
        if self.workers[name].process.alive:
            self.crash(name)

    def changes(self) -> tuple[int, int]:
        """How many terms ended as planned, and how many uncleanly."""
        assert self.terms[0]["number"] == len(self.terms)
        over = self.terms[1:]
        unclean = sum(1 for each in over if "ended" not in each)
        return len(over) - unclean, unclean


@pytest.mark.parametrize("crash", [False, True], ids=["", "with-a-crash"])
def test_a_rolling_deploy_costs_one_planned_change_or_two(crash):
    """One if the leader is not the first to be restarted, else two; with a crash one more."""
    counted: set[bool] = set()

    def deploy(s: Scene) -> None:
        fleet = Fleet(s)
        order = random.Random(s.world.faults()).sample(NAMES, 5)
        if s.world.faults() < 0.5:  # as often as not the leader is the first
            order.sort(key=lambda name: name != fleet.leader)
        leader_first = order[0] == fleet.leader
        crash_at = int(s.world.faults() * 5) if crash else None
        for at, name in enumerate(order):
            if at == crash_at:
                s.world.at(s.world.faults() * 3.0, fleet.crash_leader)
            fleet.restart(name, "1.1")
        s.run(3.0)
        fleet.settle()
        planned, unclean = fleet.changes()
        assert planned <= (2 if leader_first else 1) + crash, (order, fleet.terms)
        assert unclean <= crash
        assert crash or planned == (2 if leader_first else 1)
        assert fleet.terms[0]["version"] == "1.1"
        counted.add(leader_first)

    scene(12)(deploy)()
    assert counted == {True, False}


@scene(5)
def test_who_does_not_ask_for_it_gives_way_to_nobody(s):
    fleet = Fleet(s, "abc", prefer="any")
    for name in "cb":
        fleet.restart(name, "2.0")
    assert fleet.changes() == (0, 0)
    said = [data for path, data in s.cluster.znodes().items() if "/processes/" in path]
    assert sorted(json.loads(each)["version"] for each in said) == ["2.0", "2.0"]


@scene(5)
def test_those_in_front_of_the_newer_one_give_up_their_places(s):
    fleet = Fleet(s, "abcd")
    fleet.restart("d", "2.0")
    assert [each["candidate"] for each in fleet.terms] == ["d", "a"]
    assert fleet.terms[1]["reason"] == "superseded"
    names = s.line()
    fleet.crash("d")
    s.until(lambda: fleet.leader in "bc")
    fleet.settle()
    assert [each["candidate"] for each in fleet.terms[::2]] == ["d", "d"]
    assert set(s.line()).isdisjoint(names)


class Slow(Watched):
    def inaugurate(self, term: Term) -> None:
        clock.sleep(5.0)
        super().inaugurate(term)


@scene(5)
def test_nobody_gives_way_before_it_is_inaugurated(s):
    fleet = Fleet(s, "abc", career=Slow)
    fleet.workers["a"].terminate()
    s.until(lambda: fleet.leader == "b")
    fleet.start("a", "2.0")
    newest, second, _ = fleet.terms
    assert (newest["candidate"], second["reason"]) == ("a", "superseded")
    assert len(seen(s, "inaugurated", "b")) == 1
    assert seen(s, "unit", "b")


class Deadly(Watched):
    """Version 2 never gets into office."""

    def inaugurate(self, term: Term) -> None:
        super().inaugurate(term)
        if self.version == "2.0":
            self._scene.world.current.process.kill()


@scene(3)
def test_a_newest_version_that_cannot_lead_is_tried_twice_and_then_left_alone(s):
    fleet = Fleet(s, "abc")
    fleet.career = Deadly
    fleet.workers["c"].terminate()
    s.until(lambda: fleet.workers["c"].is_gone)
    fleet.versions["c"] = "2.0"

    def keep_running() -> None:
        fleet.workers["c"].start()
        s.world.at(0.5, keep_running)

    keep_running()
    s.run(120.0)
    led = [each for each in fleet.terms if each["version"] == "2.0"]
    assert len(led) == 2
    assert fleet.terms[0]["version"] == "1.0"
    assert len(s.line()) == 3
    before = len(fleet.terms)
    s.run(120.0)
    assert len(fleet.terms) == before


@scene(5)
def test_an_operators_choice_of_an_older_one_stands(s):
    fleet = Fleet(s, "abcd")
    fleet.restart("d", "2.0")
    assert fleet.leader == "d"
    s.beside.do(lambda: Operator(s.beside.session, "c").transfer("b"))
    s.run(20.0)
    assert fleet.leader == "b"
    fleet.restart("b", "1.0")
    assert fleet.leader == "d"


class Another(Watched):
    """Of the same name and version, and of another class."""


@scene(3)
def test_two_classes_under_one_name_are_warned_of_once(s):
    fleet = Fleet(s, "ab", prefer="any")
    fleet.career = Another
    with mock.patch.object(enlistment.log, "warning") as warned:
        fleet.restart("b", "1.0")
        s.run(30.0)
    (call,) = warned.mock_calls
    assert ":Another leader=a leader_class=" in call.args[0] % call.args[1:]


@scene(5)
def test_a_planned_change_has_three_requests_on_its_path_also_with_newest(s):
    """Release, survey, claim: nobody is asked what it runs if that was read while waiting."""
    fleet = Fleet(s, "abc")
    s.run(10.0)
    asked: list[Any] = []
    s.rules.append(("host-b", lambda one: asked.append(one) if is_asking(one) else None))
    fleet.workers["a"].terminate()
    s.until(lambda: fleet.leader == "b")
    packed = [each for each in asked if each.type in (14, 22)]  # multi, multiRead
    reads = [each for each in packed if each.type == 22]
    assert len(reads) == 1, [type(each) for each in asked]
