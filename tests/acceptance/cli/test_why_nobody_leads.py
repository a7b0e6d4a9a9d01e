"""A career whose work fails: status, members and history tell why nobody leads it, and forget ends
it.
"""

from __future__ import annotations

import json
import re

import pytest

COOL_OFF = ("--cool-off-s", "600", "--yield-s", "600")


@pytest.fixture
def poisoned(stand, root, zookeeper_server):
    """Two candidates that have failed a term each and cool off; the settings that show them."""
    first = stand("a", "billing:Poison", *COOL_OFF)
    first.wait_for("cooling_off")
    second = stand("b", "billing:Poison", *COOL_OFF)
    second.wait_for("cooling_off")
    return {"zookeeper": zookeeper_server.address, "root": root}, (first, second)


def test_a_career_without_a_leader_says_what_failed_who_cools_off_and_until_when(shell, poisoned):
    given, processes = poisoned
    done = shell("status", "--career", "poison", **given)
    assert done.returncode == 5
    last, *waiting = done.stdout.splitlines()[2:]
    assert re.fullmatch(
        r"poison: term 2 of b on \S+ ended \d+ \w( \d+ s)? ago \(failed\): ValueError: bad"
        r" record\\x1b\[31m",
        last,
    )
    cool_off = re.compile(r"poison: ([ab]) on \S+ cools off, and stands again at [\d:]+ \(in .*\)")
    assert sorted(found[1] for line in waiting if (found := cool_off.fullmatch(line))) == ["a", "b"]
    done = shell("status", "--json", **given)
    assert done.returncode == 0  # which career should have a leader was not said
    (view,) = map(json.loads, done.stdout.splitlines())
    assert (view["leader"], view["error"]) == (None, "ValueError: bad record\x1b[31m")
    assert {each["candidate"]: each["pid"] for each in view["cooling_off"]} == {
        name: each.worker_pid for name, each in zip("ab", processes, strict=True)
    }
    cooling = [json.loads(line) for line in shell("members", "--json", **given).stdout.splitlines()]
    assert sorted((each["candidate"], each["role"], each["turn"]) for each in cooling) == [
        ("a", "cooling off", None),
        ("b", "cooling off", None),
    ]
    refused = shell("forget", "--career", "poison", "--yes", **given)
    assert refused.returncode == 1
    assert "'poison' is in use by candidate" in refused.stderr
    table = shell("history", "--career", "poison", **given).stdout.splitlines()
    assert [line.split()[:2] for line in table] == [["TERM", "LEADER"], ["2", "b"], ["1", "a"]]
    assert "failed: ValueError: bad record" in table[2]


def test_a_career_is_forgotten_when_nobody_stands_for_it(shell, stand, root, zookeeper_server):
    given = {"zookeeper": zookeeper_server.address, "root": root, "career": "ad-billing"}
    leader = stand("a")
    leader.wait_for("stage_began", stage="execution")
    assert shell("forget", **given).returncode == 2
    refused = shell("forget", "--yes", **given)
    assert refused.returncode == 1
    assert "'ad-billing' is in use by candidate 'a'" in refused.stderr
    leader.terminate()
    assert leader.wait() == 0
    assert shell("forget", "--yes", **given).returncode == 0
    assert shell("status", **given).returncode == 2
    stand("b").wait_for("stage_began", stage="execution", term=1)
