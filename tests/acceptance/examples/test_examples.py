"""Every example, executed as its README says, and what the README promises looked for."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from following_readmes import EXAMPLES, commands
from snippets import python

from leaderq.dyno import DynoQueue, Message
from leaderq.kafka.topics import end_offsets
from leaderq.testing import eventually
from leaderq.testing.ports import lease_port
from leaderq.testing.waiting import patience
from leaderq.zookeeper import Session, connect


@pytest.fixture
def place(zookeeper_server, znode_root) -> str:
    return f"{zookeeper_server.address}{znode_root}"


def test_the_quickstart_does_what_its_readme_says(reader):
    install, servers, run_a, run_b, kill, step_down, status, feed, drain_a, drain_b = commands(
        EXAMPLES / "quickstart" / "README.rst"
    )
    assert install == "pip install 'leaderq[servers]'"
    user = reader(EXAMPLES / "quickstart")
    user.starts_servers(servers)

    a = user.opens(run_a, r"term 1: a leads and goes on from 0$")
    a.wait_for(r"term 1: 2$")
    b = user.opens(run_b, "stands for election")
    user.types(kill)
    begins = b.wait_for(r"term 2: b leads and goes on from (\d+)$")
    reached = max(int(number) for number in re.findall(r"^term 1: (\d+)$", a.printed, re.MULTILINE))
    # Killed between the write and its print, the number stands in ZooKeeper and not in the
    # terminal.
    assert int(begins[1]) - reached in (0, 1)
    b.wait_for(rf"term 2: {int(begins[1]) + 1}$")
    assert a.ended() != 0

    a = user.opens(run_a, "stands for election")
    user.types(step_down)
    b.wait_for(r"handing over at \d+, because an operator asked it to step down")
    a.wait_for(r"term 3: a leads and goes on from \d+$")
    assert re.search(r"^counter +a +3 +execution", user.types(status), re.MULTILINE)
    assert a.interrupt() == 0
    assert b.interrupt() == 0

    assert user.types(feed) == "fed 20 words\n"
    a = user.opens(drain_a, "a leads")  # what is logged meanwhile may follow it
    b = user.opens(drain_b)
    eventually(lambda: len(words(a.printed)) == 20)
    b.wait_for("stands for election")
    assert a.interrupt() == 0
    b.wait_for("b leads")
    user.types(feed)
    eventually(lambda: len(words(b.printed)) == 20)  # it reads on, and nothing again


def words(printed: str) -> list[str]:
    return re.findall(r"^term \d+: \d+@\d+ (word-\d+)$", printed, re.MULTILINE)


def test_ad_billing_does_what_its_readme_says(reader, servers, tmp_path):
    demo, up, feed, run_a, run_b, kill, feed_more, audit = commands(
        EXAMPLES / "ad_billing" / "README.rst"
    )
    assert demo == "leaderq demo"  # has a test of its own
    assert up == "leaderq servers up"
    user = reader(EXAMPLES, **servers, AD_BILLING_LEDGER=str(tmp_path / "ledger.sqlite3"))
    assert user.types(feed) == "fed 8000 records; clicks holds 8000\n"
    a = user.opens(run_a, "stage=execution")
    b = user.opens(run_b, "stands for election")
    user.types(kill)
    b.wait_for("term=2 stage=execution")
    assert a.ended() != 0
    user.types(feed_more)
    printed = eventually(lambda: user.types(audit), message="the audit finds everything billed")
    assert "fed 16000, billed 16000, billed twice 0, skipped 0" in printed
    assert re.search(r"^CLIENT +CLICKS +CHARGE\n10\.", printed, re.MULTILINE)
    assert b.interrupt() == 0


def test_the_queues_example_does_what_its_readme_says(reader, place):
    _install, _up, mailer, put, ls, put_bad, dead = commands(EXAMPLES / "queues" / "README.rst")
    user = reader(EXAMPLES / "queues", LEADERQ_ZOOKEEPER=place)
    anna = user.opens(mailer, "anna waits for mails")
    user.types(put)
    anna.wait_for("anna sends 'hello carol'")
    assert "/mail" in user.types(ls)
    user.types(put_bad)
    eventually(lambda: "nobody lives at 'bad address'" in user.types(dead))
    assert anna.interrupt() == 0


def test_the_demo_runs_the_files_of_the_example():
    from leaderq.cli.demo import ad_billing

    assert Path(str(ad_billing.__file__)).parent.samefile(EXAMPLES / "ad_billing")


def test_a_career_fits_into_25_lines():
    assert len((EXAMPLES / "quickstart" / "counter.py").read_text().splitlines()) <= 25


def test_the_cache_updater_does_what_its_readme_says(reader, servers):
    folder = EXAMPLES / "cache_updater"
    install, refresh, _up, anna, bob = commands(folder / "README.rst")
    assert install == "pip install 'leaderq[servers]'"
    user = reader(folder)
    printed = user.types(refresh)
    (ran,) = re.findall(r"^refreshes that ran +(\d+):", printed, re.MULTILINE)
    assert int(ran) < 8000
    assert re.search(r"^stale pages +0$", printed, re.MULTILINE)

    user.environment |= servers
    terminals = [user.opens(command) for command in (anna, bob)]
    for terminal in terminals:
        said = terminal.wait_for(r": 400 changes, (\d+) refreshes, (\d+) saved$", timeout_s=90)
        assert int(said[1]) + int(said[2]) == 400
        assert terminal.ended() == 0


def test_the_collector_does_what_its_readme_says(reader, servers, tmp_path):
    # out of reach of all that is given any port, also while the collector is down
    leased = lease_port()
    port = leased.number
    _up, feed, collect, visit, look = commands(EXAMPLES / "collector" / "README.rst")
    user = reader(EXAMPLES, **servers)
    assert user.types(feed) == "fed 8000 records; clicks holds 8000\n"
    # A port and a folder of the test's own; a reader has those of the text.
    collector = user.opens(
        f"{collect} --port {port} --journal {tmp_path / 'journal'}",
        rf"collecting on port {port}; 0 clicks found",
    )
    assert user.types(f"{visit} --port {port}") == "1000 clicks of 1000 were taken\n"
    eventually(lambda: '"confirmed": 1000' in user.types(look.replace("8080", str(port))))
    assert sum(end_offsets(user.environment["LEADERQ_KAFKA"], "clicks").values()) == 9000
    assert collector.interrupt() == 0
    assert "stopped; 0 clicks are left" in collector.printed
    leased.release()


README = EXAMPLES / "work_orders" / "README.rst"


@pytest.fixture
def session(place) -> Iterator[Session]:
    with connect(place) as opened:
        opened.ensure_path("/")
        yield opened


def orders(session: Session) -> list[dict[str, Any]]:
    where = "/work-orders/orders"
    return [json.loads(session.get(f"{where}/{name}")[0]) for name in session.children(where)]


EMPTY = {"0": {"messages": 0, "resting": 0, "leased": 0, "dead": 0}}
DEAD = {"0": {**EMPTY["0"], "dead": 4}}


def test_a_day_with_a_transfer_and_a_kill_loses_nothing_and_doubles_nothing(reader, session, place):
    user = reader(EXAMPLES, LEADERQ_ZOOKEEPER=place)
    printed = user.types(commands(README)[1] + " 120")
    assert "every rule has one order, and no constraint is broken" in printed
    assert printed.count("transferred from") == printed.count(" killed") == 1
    # How many terms had orders depends on who is slow; the day has told of both changes above.
    found = {order["rule"] for order in orders(session)}
    assert found == {f"rule-{number:05}" for number in range(120)}
    with DynoQueue(session, "/work-orders/rules") as queue:
        assert queue.shard_sizes() == EMPTY


def test_the_commands_of_the_readme_do_what_it_says(reader, session, place):
    _servers, _day, run_a, _run_b, feed, stats, _step_down, audit = commands(README)
    user = reader(EXAMPLES, LEADERQ_ZOOKEEPER=place)
    assert user.types(feed.replace("600", "20")) == "20 rules fed\n"
    assert user.types(feed.replace("600", "20")) == "0 rules fed\n"
    assert user.types(stats).splitlines()[1].split()[0] == "0"
    with DynoQueue(session, "/work-orders/rules") as queue:
        magic = b'{"machine": "m", "skill": "magic", "hours": 1, "concern": "safety"}'
        wrong = (b"", b"[]", b'{"machine": "m"}', magic)
        queue.push([Message(payload=payload) for payload in wrong])
        allocator = user.opens(run_a, "stage=execution")
        eventually(lambda: len(orders(session)) == 20 and queue.shard_sizes() == DEAD)
        user.types(f"{audit.replace('600', '20')} | grep 'dead.: 4'")
        reasons = [letter.reason for letter in queue.dead_letters.browse()]
        kinds = sorted(reason.partition(":")[0] for reason in reasons)
        assert kinds == ["JSONDecodeError", "KeyError", "ValueError", "ValueError"]
    assert allocator.interrupt() == 0


def test_the_worker_of_the_page_about_messages_runs(place, tmp_path, session):
    program = tmp_path / "program.py"
    program.write_text(python("dyno")[1].replace("127.0.0.1:2181", place))
    command = [sys.executable, "-u", str(program)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as process:
        said = [process.stdout.readline().split(maxsplit=1) for _ in range(3)]
        assert said[0] == ["Enter", "ends it\n"] or said[1] == ["Enter", "ends it\n"], said
        assert said[2] == ["order-17", "b'later, urgent' 1\n"]
        process.stdin.write("\n")
        process.stdin.close()
        assert process.wait(60 * patience()) == 0
    with DynoQueue(session, "/jobs") as queue:
        assert queue.shard_sizes() == EMPTY
