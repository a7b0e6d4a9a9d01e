"""The runner inside somebody's own program, on a real ZooKeeper."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from leaderq import LeaderCareer, Runner, connect
from leaderq.base.exits import ExitCode
from leaderq.config import Settings
from leaderq.errors import CareerFailed, SessionClosed
from leaderq.events import CoolingOff, Event, EventBus, StageBegan, TermEnding
from leaderq.running.runner import supervise
from leaderq.term import Reason
from leaderq.testing import eventually


class Counting(LeaderCareer):
    """Counts what is called, and does what a test lays over it."""

    name = "counting"

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.reasons: list[Reason | None] = []
        self.threads: set[int] = set()

    def prepare(self) -> None:
        self._note("prepare")

    def inaugurate(self, term) -> None:
        self._note("inaugurate")

    def execute(self, term) -> None:
        self._note("execute")
        term.wait(0.01)

    def handOver(self, term) -> None:  # noqa: N802
        self._note("handOver")
        self.reasons.append(term.reason)

    def retire(self) -> None:
        self._note("retire")

    def _note(self, what: str) -> None:
        if not self.calls or self.calls[-1] != what:
            self.calls.append(what)
        self.threads.add(threading.get_ident())


class Running:
    """A runner on a thread of its own."""

    def __init__(
        self, career, session, /, *, root: str, leave=None, id: str = "a", **settings
    ) -> None:
        self.events: list[Event] = []
        bus = EventBus()
        bus.subscribe(Event, self.events.append)
        chosen = Settings(root=root, id=id, cool_off_s=0.1, **settings)
        self.runner = Runner(career, session, settings=chosen, events=bus, leave=leave)
        self.outcome: list[object] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.outcome.append(self.runner.run())
        except Exception as exc:
            self.outcome.append(exc)

    def seen(self, kind: type[Event], **fields) -> list[Event]:
        return [
            e
            for e in list(self.events)
            if isinstance(e, kind) and all(getattr(e, n) == v for n, v in fields.items())
        ]

    def stop(self) -> object:
        self.runner.stop()
        self._thread.join(60)
        assert not self._thread.is_alive()
        return self.outcome[0]


@pytest.fixture
def session(zookeeper_server) -> Iterator:
    """Of a time-out that is longer than anything here may be without a processor."""
    with connect(zookeeper_server.address, timeout_s=30) as made:
        yield made


@pytest.fixture
def run(session, znode_root) -> Iterator:
    started: list[Running] = []

    def begin(career, /, **options) -> Running:
        running = Running(career, options.pop("session", session), root=znode_root, **options)
        started.append(running)
        return running

    yield begin
    for running in started:
        running.stop()


def executing(running: Running, count: int = 1) -> None:
    eventually(lambda: len(running.seen(StageBegan, stage="execution")) >= count, timeout_s=30)


def test_a_career_lives_through_its_stages_on_one_thread(run):
    career = Counting()
    running = run(career)
    executing(running)
    eventually(lambda: "execute" in career.calls)
    assert running.stop() is ExitCode.OK
    assert career.calls == ["prepare", "inaugurate", "execute", "handOver", "retire"]
    assert career.reasons == [Reason.WITHDRAWN]
    assert len(career.threads) == 1


class Ending(Counting):
    """Ends its own terms; ``handOver`` may fail."""

    def __init__(self, *ends, at_hand_over=None) -> None:
        super().__init__()
        self.ends = [*ends]
        self.at_hand_over = at_hand_over
        self.returned = 0

    def execute(self, term) -> None:
        if self.ends:
            self.ends.pop(0)(term)
        else:
            term.finish()
        time.sleep(0.05)  # for whoever might abandon this unit
        self.returned += 1

    def handOver(self, term) -> None:  # noqa: N802
        super().handOver(term)
        if self.at_hand_over is not None and term.reason is Reason.FINISHED:
            raise self.at_hand_over


class Atomic(Ending):
    atomic = True


@pytest.mark.parametrize("kind", [Ending, Atomic])
def test_a_career_ends_its_own_terms_and_its_own_process(run, kind):
    career = kind(lambda term: term.resign(stand_again_after_s=0.0), lambda term: term.resign())
    running = run(career)
    running._thread.join(60)
    assert running.outcome == [ExitCode.OK]
    assert career.reasons == [Reason.RESIGNED, Reason.RESIGNED, Reason.FINISHED]
    assert career.returned == 3, "a unit that resigned was not finished"
    assert career.calls[-1] == "retire"
    assert [one.reason for one in running.seen(TermEnding)] == career.reasons
    assert running.seen(CoolingOff) == []


def test_one_thread_looks_after_all_careers_of_a_process(session, znode_root):
    careers = [Counting() for _ in range(6)]
    careers[0].inaugurate = lambda term: term.wait(60)  # overruns its budget, beside the others
    careers[1].retire = lambda: 1 / 0
    before = threading.active_count()
    runners = [
        Runner(
            career,
            session,
            settings=Settings(
                root=znode_root, id="a", career=f"c{n}", inaugurate_budget_s=0.2, cool_off_s=0.1
            ),
        )
        for n, career in enumerate(careers)
    ]
    ended: list[Runner] = []
    together = threading.Thread(target=lambda: ended.extend(supervise(runners)))
    together.start()
    eventually(lambda: all("execute" in career.calls for career in careers[1:]), timeout_s=30)
    eventually(lambda: Reason.BUDGET in careers[0].reasons, timeout_s=30)
    assert threading.active_count() - before <= 2 * len(careers) + 2  # this one, and the pulse
    runners[1].stop()
    eventually(lambda: ended == [runners[1]], timeout_s=30)
    assert isinstance(ended[0].failure, CareerFailed)
    for runner in runners:
        runner.stop()
    together.join(60)
    assert not together.is_alive()
    assert set(ended) == set(runners)
    assert [runner.failure for runner in ended[1:]] == [None] * 5


def test_a_runner_that_cannot_begin_ends_those_that_have_begun(
    session, zookeeper_server, znode_root
):
    well, settings = Counting(), Settings(root=znode_root, id="a")
    with connect(zookeeper_server.address) as closed:
        ill = Runner(Counting(), closed, settings=settings)
    begun = Runner(well, session, settings=settings)
    with pytest.raises(SessionClosed):
        list(supervise([begun, ill]))
    eventually(lambda: begun.look().ended and "retire" in well.calls)
