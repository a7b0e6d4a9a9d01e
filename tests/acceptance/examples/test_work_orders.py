"""Work orders: a day with a transfer and a kill, by its README; and an allocator that is not the
only one any more.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from following_readmes import EXAMPLES, commands
from snippets import python

from leaderq.dyno import DynoQueue, Message
from leaderq.testing.waiting import patience
from leaderq.zookeeper import Session, connect

README = EXAMPLES / "work_orders" / "README.rst"


@pytest.fixture
def session(zookeeper_server: Any, znode_root: str) -> Iterator[Session]:
    with connect(f"{zookeeper_server.address}{znode_root}") as opened:
        opened.ensure_path("/")
        yield opened


def orders(session: Session) -> list[dict[str, Any]]:
    found = [
        session.get(f"/work-orders/orders/{name}")[0]
        for name in session.children("/work-orders/orders")
    ]
    return [json.loads(data) for data in found]


@pytest.mark.timeout(240)
def test_a_day_with_a_transfer_and_a_kill_loses_nothing_and_doubles_nothing(
    reader, session, zookeeper_server, znode_root
):
    user = reader(EXAMPLES)
    user.environment["LEADERQ_ZOOKEEPER"] = f"{zookeeper_server.address}{znode_root}"
    printed = user.types(commands(README)[1] + " 120")
    assert "every rule has one order, and no constraint is broken" in printed
    assert printed.count("transferred from") == printed.count(" killed") == 1
    found = orders(session)
    assert {order["rule"] for order in found} == {f"rule-{number:05}" for number in range(120)}
    assert len({order["term"] for order in found}) >= 3
    hours: Counter[tuple[str, int]] = Counter()
    for order in found:
        hours[order["engineer"], order["day"]] += order["hours"]
    assert max(hours.values()) <= 8
    assert max(Counter((order["machine"], order["day"]) for order in found).values()) == 1
    with DynoQueue(session, "/work-orders/rules") as queue:
        assert queue.shard_sizes() == {"0": {"messages": 0, "resting": 0, "leased": 0, "dead": 0}}


@pytest.mark.timeout(240)
def test_the_commands_of_the_readme_do_what_it_says(reader, session, zookeeper_server, znode_root):
    _servers, _day, run_a, _run_b, feed, stats, _step_down, audit = commands(README)
    user = reader(EXAMPLES)
    user.environment["LEADERQ_ZOOKEEPER"] = f"{zookeeper_server.address}{znode_root}"
    assert user.types(feed.replace("600", "20")) == "20 rules fed\n"
    assert user.types(feed.replace("600", "20")) == "0 rules fed\n"
    assert user.types(stats).splitlines()[1].split()[0] == "0"
    with DynoQueue(session, "/work-orders/rules") as queue:
        wrong = [
            b"",
            b"[]",
            b'{"machine": "m"}',
            b'{"machine": "m", "skill": "magic", "hours": 1, "concern": "safety"}',
        ]
        queue.push([Message(payload=payload) for payload in wrong])
        allocator = user.opens(run_a)
        allocator.wait_for("stage=execution")
        user.types(f"until {audit.replace('600', '20')} | grep -q 'dead.: 4' "
                   "&& leaderq queue stats /work-orders/rules --json "
                   "| grep -q '\"due\": 0, \"delayed\": 0'; do sleep 0.2; done")  # fmt: skip
        assert len(orders(session)) == 20
        reasons = [letter.reason for letter in queue.dead_letters.browse()]
        assert sorted(reason.partition(":")[0] for reason in reasons) == [
            "JSONDecodeError", "KeyError", "ValueError", "ValueError",
        ]  # fmt: skip
    assert allocator.interrupt() == 0


def test_the_worker_of_the_page_about_messages_runs(
    zookeeper_server, znode_root, tmp_path, session
):
    program = tmp_path / "program.py"
    program.write_text(
        python("dyno")[1].replace("127.0.0.1:2181", f"{zookeeper_server.address}{znode_root}")
    )
    with subprocess.Popen(
        [sys.executable, "-u", str(program)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        said = [process.stdout.readline().split(maxsplit=1) for _ in range(3)]
        assert said[0] == ["Enter", "ends it\n"] or said[1] == ["Enter", "ends it\n"], said
        assert said[2] == ["order-17", "b'later, urgent' 1\n"]
        process.stdin.write("\n")
        process.stdin.close()
        assert process.wait(60 * patience()) == 0
    with DynoQueue(session, "/jobs") as queue:
        assert queue.shard_sizes() == {"0": {"messages": 0, "resting": 0, "leased": 0, "dead": 0}}
