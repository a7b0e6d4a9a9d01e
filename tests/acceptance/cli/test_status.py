"""``leaderq status`` for careers that drain Kafka: fresh reports, old ones, those of an earlier
term, and what is none.
"""

from __future__ import annotations

import re
import time

from leaderq.election.layout import Layout
from leaderq.kafka.consuming.report import DrainReport, PartitionLag, encode


def test_lag_rate_and_catch_up_are_shown_until_nobody_leads_and_what_is_no_report_hides_nothing(
    session, znode_root, ask, lead
):
    leader = lead("a")
    path = Layout(znode_root, "ad-billing").progress
    session.ensure_path(path)
    session.set(path, b"not a report")
    done = ask("status")
    assert done.lines[1].split()[:2] == ["ad-billing", "a"]
    assert "ad-billing/progress holds b'not a report'" in done.err
    assert "Traceback" not in done.err
    rows = {"t-10": PartitionLag(10, 10, 0), "t-9": PartitionLag(5, 125, 120)}
    still_fresh = time.time() + 300.0  # however long the command takes to begin
    report = DrainReport(1, still_fresh, partitions=rows, rate_per_s=40.0, catch_up_s=6.0)
    session.set(path, encode(report))
    heading, row = ask("status").lines
    assert heading.split()[-4:] == ["CANDIDATES", "LAG", "RATE", "CATCH-UP"]
    assert row.split()[-4:] == ["120", "40/s", "6", "s"]
    parts = [line.split() for line in ask("status", "--partitions").lines[1:]]
    assert [(part[1], part[3]) for part in parts] == [("t-9", "125"), ("t-10", "10")]
    (view,) = ask("status", "--json").rows
    assert (view["drain"]["fresh"], view["drain"]["lag"]) == (True, 120)
    leader.terminate()
    assert leader.wait() == 0
    (view,) = ask("status", "--json").objects(code=5)
    assert (view["leader"], view["drain"]["fresh"]) == (None, False)


# -- a career whose work fails: why nobody leads it; and its end by forget

COOL_OFF = ("--cool-off-s", "600", "--yield-s", "600")


def test_a_career_without_a_leader_says_what_failed_who_cools_off_and_until_when(
    shell, stand, given
):
    for name in "ab":  # each fails a term and cools off
        stand(name, "billing:Poison", *COOL_OFF).wait_for("cooling_off")
    done = shell("status", "--career", "poison", **given)
    assert done.code == 5
    last, *waiting = done.lines[2:]
    assert last.startswith("poison: term 2 of b on ")
    assert last.endswith(r" ago (failed): ValueError: bad record\x1b[31m")
    cool_off = r"poison: \w on \S+ cools off, and stands again at [\d:]+ \(in .*\)"
    assert [bool(re.fullmatch(cool_off, line)) for line in waiting] == [True, True]
    cooling = shell("members", "--json", **given).rows
    assert sorted((each["candidate"], each["role"], each["turn"]) for each in cooling) == [
        (name, "cooling off", None) for name in "ab"
    ]
    forget = shell("forget", "--career", "poison", "--yes", **given)
    forget.assert_refused("'poison' is in use by candidate", code=1)
    _, second, first = shell("history", "--career", "poison", **given).lines
    assert (second.split()[:2], first.split()[:2]) == (["2", "b"], ["1", "a"])
    assert "failed: ValueError: bad record" in first


def test_a_career_is_forgotten_when_nobody_stands_for_it(ask, lead, stand):
    leader = lead("a")
    assert ask("forget").code == 2
    ask("forget", "--yes").assert_refused("'ad-billing' is in use by candidate 'a'", code=1)
    leader.terminate()
    assert leader.wait() == 0
    assert ask("forget", "--yes").code == 0
    assert ask("status").code == 2
    stand("b").wait_for("stage_began", stage="execution", term=1)


def test_one_damaged_record_hides_neither_itself_nor_the_other_careers(
    session, znode_root, shell, ask, lead, given
):
    lead("a")
    session.set(Layout(znode_root, "ad-billing").control, b"{")
    done = ask("status", "--json")
    (view,) = done.rows
    assert view["leader"] == "a"
    assert "the operators' wishes are lost" in done.err
    assert "the operators' wishes are lost" in view["why"]
    session.ensure_path(Layout(znode_root, "spoilt").term)
    session.set(Layout(znode_root, "spoilt").term, b"{")
    for verb in ("status", "members"):
        done = shell(verb, "--json", **given)
        assert [one["career"] for one in done.objects(code=1)] == ["ad-billing"]
        assert "leaderq raise-floor" in done.err
