"""Bugs 22 and 23 of ``docs/design/facts.md``, and events of ``docs/guarantees.rst``."""

from __future__ import annotations

from itertools import pairwise
from typing import Any
from unittest import mock

import pytest

from leaderq.base import clock
from leaderq.kafka import dead_letter, retry, skip
from leaderq.kafka.clients.producer import Message, ProducerSettings
from leaderq.kafka.consuming.report import decode
from leaderq.kafka.handling.on_error import Ending
from leaderq.kafka.record import Record
from leaderq.term import Reason
from leaderq.testing.simulation.kafka.cluster import BrokerCluster
from leaderq.testing.simulation.kafka.error_codes import ErrorCode, RefusedByBroker
from leaderq.testing.simulation.kafka.producer import SimulatedProducer
from leaderq.zookeeper import Create
from simulation.draining import SOURCE, Drain
from simulation.scenarios import FOLDER, scene

STORES = ("kafka", "zookeeper", "transaction")
EACH_STORE = pytest.mark.parametrize("store", STORES)


@EACH_STORE
@scene(8)
def test_bug_22_a_zombies_commit_after_its_successors_first_read_is_refused(s, store):
    """A host that was paused with its clock, and is cut off from ZooKeeper: only a server can stop
    it.
    """

    frozen: list[Any] = []

    def rule(_career: Any, record: Record) -> None:
        if record.offset == 12 and not frozen:
            frozen.append(process := s.world.current.process)
            s.world.at(0.0, lambda: (process.freeze_with_clock(), s.network.cut(process.host)))
            clock.sleep(0.01)

    with Drain(s, store, rule=rule) as drain:
        a, _ = drain.workers("ab", has_guardian=False)
        s.until(lambda: len(drain.by(2)) > 4)
        committed = drain.committed
        a.process.thaw()
        s.run(1.0)
        assert drain.committed >= committed
        if store != "zookeeper":
            assert [term.reason for term in drain.terms("handed over", "a")] == [Reason.FENCED]
        s.network.heal("host-a")
        drain.await_all()
        assert drain.problems() == []


@pytest.mark.parametrize("zombie", ["frozen", "far away"])
@scene(8)
def test_bug_23_a_new_leader_reads_no_offsets_while_a_zombies_transaction_is_open(s, zombie):
    """The zombie's offsets are in its transaction; then it is paused with its clock, before it asks
    for the end of that; or its requests take longer than its term.
    """

    real = BrokerCluster.add_offsets
    struck: list[Any] = []

    def add_offsets(self: BrokerCluster, *given: Any) -> Any:
        added = real(self, *given)
        if not struck and drain.committed >= 10:
            struck.append(s.now_s)
            s.network.cut("host-a")
            if zombie == "frozen":
                first[0].process.freeze_with_clock()
            else:
                drain.lines.slow["host-a"] = 12.0
        return added

    with (
        Drain(s, "transaction") as drain,
        mock.patch.object(BrokerCluster, "add_offsets", add_offsets),
    ):
        first = drain.workers("ab", has_guardian=False)
        s.until(lambda: struck)
        s.until(lambda: len(drain.by(2)) > 4)
        first[0].process.thaw()
        s.run(15.0)
        s.network.heal("host-a")
        drain.await_all()
        assert drain.problems() == []


@EACH_STORE
@scene(5)
def test_kafka_unreachable_and_the_term_goes_on_and_skips_nothing(s, store):
    with Drain(s, store, records=15) as drain:
        drain.workers("ab")
        s.until(lambda: len(drain.handled) > 7)
        drain.kafka.acts(lambda all_: all_.stop(0))
        drain.feed(15)
        s.run(8.0)
        assert max(one.offset for one in drain.handled) < 15
        drain.kafka.acts(lambda all_: all_.start(0))
        drain.await_all()
        assert drain.problems() == []
        assert len(drain.terms()) == 1


@scene(5)
def test_records_are_handed_over_no_faster_than_the_limits_of_a_career_say(s):
    with Drain(s, records=12, key_interval_s=0.5) as drain:  # all have one key
        drain.workers("a")
        drain.await_all()
        assert drain.handled[-1].at_s - drain.handled[0].at_s >= 5.4
        assert drain.problems() == []


@scene(5)
def test_your_handler_raises_and_by_default_the_offset_stays_and_it_stands_again(s):
    left = [2]

    def rule(_career: Any, record: Any) -> None:
        if record.offset == 12 and left[0]:
            left[0] -= 1
            raise ValueError("a scenario wants it")

    with Drain(s, rule=rule) as drain:
        drain.workers("a", cool_off_s=1.0)
        s.until(lambda: len(drain.terms()) == 2)
        assert drain.committed <= 12
        drain.await_all()
        assert (drain.problems(), len(drain.terms())) == ([], 3)
        times = [at_s for at_s, what, _, _ in drain.told if what == "inaugurated"]
        assert all(later - former > 0.5 for former, later in pairwise(times))


@pytest.mark.parametrize(
    "on_error",
    [skip(), dead_letter(), retry(2, 0.1, then=dead_letter())],
    ids=lambda one: one.terminal.value,
)
@scene(5)
def test_your_database_is_unreachable_and_no_record_is_blamed(s, on_error):
    def rule(_career: Any, record: Any) -> None:
        if 5.0 < s.now_s < 20.0:
            raise ConnectionRefusedError("a scenario wants it")
        if record.offset == 7:
            s.world.park(5.0)

    with Drain(s, rule=rule, on_error=on_error) as drain:
        drain.workers("a")
        s.run(12.0)
        assert len(drain.handled) < 15
        (path,) = [one for one in s.cluster.znodes() if one.endswith("/progress")]
        report = decode(s.cluster.znodes()[path], path=path)
        assert "ConnectionRefusedError" in (report.held_up or "")
        drain.await_all()
        assert (drain.problems(), len(drain.terms())) == ([], 1)
        assert drain.letters() == []


@pytest.mark.parametrize("on_error", [skip(), dead_letter()], ids=lambda one: one.terminal.value)
@scene(5)
def test_a_record_that_kills_the_process_again_and_again_is_passed_over(s, on_error):
    def rule(_career: Any, record: Any) -> None:
        if record.offset == 12:
            s.world.current.process.exit(-9)

    with Drain(s, rule=rule, on_error=on_error) as drain:
        drain.workers("ab")
        s.until(lambda: {one.offset for one in drain.handled} == {*range(30)} - {12}, 120.0)
        deaths = [one for one in s.world.history if one[2] == "died" and "guard" not in one[1]]
        assert len(deaths) == 5  # two before anybody is careful, then three over this record
        assert drain.problems()[0] == "skipped: orders-0@12"
        assert drain.letters() == ([] if on_error.terminal is Ending.SKIP else ["12"])


@pytest.mark.parametrize("on_error", [skip(), dead_letter()], ids=lambda one: one.terminal.value)
@pytest.mark.parametrize("store", ["zookeeper", "transaction"])
@scene(5)
def test_a_record_whose_effect_is_refused_at_the_commit_is_found_and_judged(s, store, on_error):
    def rule(career: Any, record: Any) -> None:
        if record.offset == 12:
            if store == "zookeeper":
                career.write_with_offsets(Create("/effects"))  # which is there
            else:
                career.produce("no-such-topic", b"x", partition=0)

    with Drain(s, store, rule=rule, on_error=on_error) as drain:
        drain.workers("a")
        s.until(lambda: any(one.offset == 29 for one in drain.handled))
        s.run(5.0)
        assert len(drain.terms()) == 1
        assert len(drain.letters()) == (on_error.terminal is Ending.DEAD_LETTER)
        assert sorted(drain.effects()) == sorted(f"orders-0@{at}" for at in range(30) if at != 12)


@scene(5)
def test_lag_counts_to_the_end_of_the_log_and_tells_what_an_open_transaction_holds_back(s):
    with Drain(s, records=5) as drain:
        drain.workers("b")
        (a,) = s.guests("a")

        def hang() -> None:
            settings = ProducerSettings(drain.kafka.address, transactional_id="other")
            other = SimulatedProducer(drain.kafka, settings)
            other.open()
            other.fence(10.0)
            other.begin()
            other.produce(Message(SOURCE, b"open", partition=0))
            s.world.park(1.0)

        a.do(hang)
        drain.feed(20)
        s.run(20.0)
        assert len(drain.handled) == 5
        progress = decode(s.cluster.znodes()[f"{FOLDER}/progress"], path="")
        assert (progress.lag, progress.blocked_by_transaction) == (21, 21)


@scene(5)
def test_a_leader_that_begins_at_the_end_has_stored_where_that_is(s):
    real, refused = BrokerCluster.commit, list[int]()

    def commit(self: BrokerCluster, *given: Any) -> Any:
        refused.append(1)
        if len(refused) < 3:
            raise RefusedByBroker(ErrorCode.COORDINATOR_NOT_AVAILABLE, "c")
        return real(self, *given)

    with (
        Drain(s, records=3, auto_offset_reset="latest") as drain,
        mock.patch.object(BrokerCluster, "commit", commit),
    ):
        a, _ = drain.workers("ab")
        s.until(drain.terms)
        drain.feed(5)
        a.process.kill()
        s.until(lambda: {one.offset for one in drain.handled} >= {3, 4, 5, 6, 7})


@pytest.mark.parametrize("what", ["rule", "value_deserializer"])
@scene(5)
def test_a_handler_over_its_budget_is_named_and_ends_its_term(s, what):
    done: list[Any] = []

    def hang(*given: Any) -> Any:
        done.append(given)
        if len(done) == 8 and len(drain.terms()) == 1:
            s.world.park(600.0)
        return given[-1]

    with Drain(s, handle_budget_s=3.0, **{what: hang}) as drain:
        drain.workers("ab")
        s.until(lambda: len(drain.terms()) == 2, 30.0)
        said = "handle_budget_s=3 running=handle has been called for"
        assert [line for line in s.world.lines() if said in line and f"from {SOURCE}-0" in line]
        drain.await_all()
        assert drain.problems() == []


@EACH_STORE
@pytest.mark.parametrize("more", [{}, {"order": "key", "workers": 3, "max_records": 10}], ids=str)
@scene(5)
def test_a_planned_change_repeats_nothing(s, store, more):
    with Drain(s, store, rule=lambda *_: clock.sleep(0.05), **more) as drain:
        a, _ = drain.workers("ab")
        s.until(lambda: len(drain.handled) > 7)
        a.terminate()
        drain.await_all()
        assert drain.problems() == []
        assert sorted(one.offset for one in drain.handled) == [*range(30)]
        assert len(drain.terms()) == 2


@scene(5)
def test_with_commit_behind_one_batch_is_handled_while_the_one_before_is_committed_and_no_more(s):
    seen: list[tuple[int, int]] = []
    with Drain(s, commit_behind=True, rule=lambda _, record: note(record)) as drain:

        def note(record: Record) -> None:
            seen.append((record.offset // 5, drain.committed // 5))

        drain.workers("ab")
        drain.lines.slow["host-a"] = 0.2
        drain.await_all()
        assert (drain.problems(), drain.committed) == ([], 30)
    assert any(committed < batch for batch, committed in seen), "each commit was waited for"
    assert all(committed >= batch - 1 for batch, committed in seen), "more than two batches"
