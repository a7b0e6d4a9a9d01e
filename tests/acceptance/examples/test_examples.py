"""Every example, executed as its README says, and what the README promises looked for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from following_readmes import EXAMPLES, commands

from leaderq.testing import eventually


@pytest.mark.timeout(300)
def test_the_quickstart_does_what_its_readme_says(reader):
    install, servers, run_a, run_b, kill, step_down, status, feed, drain_a, drain_b = commands(
        EXAMPLES / "quickstart" / "README.rst"
    )
    assert install == "pip install 'leaderq[servers]'"
    user = reader(EXAMPLES / "quickstart")
    user.starts_servers(servers)

    a = user.opens(run_a)
    a.wait_for(r"term 1: a leads and goes on from 0$")
    a.wait_for(r"term 1: 2$")
    b = user.opens(run_b)
    b.wait_for("stands for election")
    user.types(kill)
    begins = b.wait_for(r"term 2: b leads and goes on from (\d+)$")
    reached = max(int(number) for number in re.findall(r"^term 1: (\d+)$", a.printed, re.MULTILINE))
    # Killed between the write and its print, the number stands in ZooKeeper and not in the
    # terminal.
    assert int(begins[1]) - reached in (0, 1)
    b.wait_for(rf"term 2: {int(begins[1]) + 1}$")
    assert a.ended() != 0

    a = user.opens(run_a)
    a.wait_for("stands for election")
    user.types(step_down)
    b.wait_for(r"handing over at \d+, because an operator asked it to step down")
    a.wait_for(r"term 3: a leads and goes on from \d+$")
    assert re.search(r"^counter +a +3 +execution", user.types(status), re.MULTILINE)
    assert a.interrupt() == 0
    assert b.interrupt() == 0

    assert user.types(feed) == "fed 20 words\n"
    a = user.opens(drain_a)
    a.wait_for("leads$")
    b = user.opens(drain_b)
    eventually(lambda: len(words(a.printed)) == 20, message="all words are printed")
    for partition in {partition for partition, _, _ in words(a.printed)}:
        numbers = [int(word) for where, _, word in words(a.printed) if where == partition]
        assert numbers == sorted(numbers)
    b.wait_for("stands for election")
    assert a.interrupt() == 0
    b.wait_for("b leads$")
    user.types(feed)
    eventually(
        lambda: len(words(b.printed)) == 20, message="the next leader reads on, and nothing again"
    )


def words(printed: str) -> list[tuple[str, str, str]]:
    return re.findall(r"^term \d+: (\d+)@(\d+) word-(\d+)$", printed, re.MULTILINE)


@pytest.mark.timeout(300)
def test_ad_billing_does_what_its_readme_says(reader, servers, tmp_path):
    demo, up, feed, run_a, run_b, kill, feed_more, audit = commands(
        EXAMPLES / "ad_billing" / "README.rst"
    )
    assert demo == "leaderq demo"  # has a test of its own
    user = reader(EXAMPLES)
    assert up == "leaderq servers up"
    user.environment |= {**servers, "AD_BILLING_LEDGER": str(tmp_path / "ledger.sqlite3")}

    assert user.types(feed) == "fed 8000 records; clicks holds 8000\n"
    a = user.opens(run_a)
    a.wait_for("stage=execution")
    b = user.opens(run_b)
    b.wait_for("stands for election")
    user.types(kill)
    b.wait_for("term=2 stage=execution")
    assert a.ended() != 0
    user.types(feed_more)
    printed = eventually(
        lambda: user.types(audit), timeout_s=60, message="the audit finds everything billed"
    )
    assert "fed 16000, billed 16000, billed twice 0, skipped 0" in printed
    assert re.search(r"^CLIENT +CLICKS +CHARGE\n10\.", printed, re.MULTILINE)
    assert b.interrupt() == 0


@pytest.mark.timeout(200)
def test_the_queues_example_does_what_its_readme_says(reader, zookeeper_server, znode_root):
    _install, _up, mailer, put, ls, put_bad, dead = commands(EXAMPLES / "queues" / "README.rst")
    user = reader(EXAMPLES / "queues")
    user.environment["LEADERQ_ZOOKEEPER"] = zookeeper_server.address + znode_root
    anna = user.opens(mailer)
    anna.wait_for("anna waits for mails")
    user.types(put)
    anna.wait_for("anna sends 'hello carol'")
    assert "/mail" in user.types(ls)
    user.types(put_bad)
    eventually(lambda: "nobody lives at 'bad address'" in user.types(dead), timeout_s=30)
    assert anna.interrupt() == 0


def test_the_demo_runs_the_files_of_the_example():
    from leaderq.cli.demo import ad_billing

    assert Path(str(ad_billing.__file__)).parent.samefile(EXAMPLES / "ad_billing")


def test_a_career_fits_into_25_lines():
    assert len((EXAMPLES / "quickstart" / "counter.py").read_text().splitlines()) <= 25
