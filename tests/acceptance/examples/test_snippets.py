"""What README and the docs show does what they say, on real servers."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from following_readmes import Reader
from snippets import GIVEN, PAGES, commands, python

from leaderq.errors import Deposed
from leaderq.kafka.topics import create_topics, produce
from leaderq.testing import drive, eventually, records, term

SERVERS = "127.0.0.1:2181"


@pytest.fixture
def run(zookeeper_server, znode_root) -> Callable[..., dict[str, Any]]:
    """Execute a snippet behind what its page takes for granted, with the test's own server and
    paths.
    """

    def executed(page: str, snippet: str, **replaced: str) -> dict[str, Any]:
        for old, new in {
            SERVERS: zookeeper_server.address,
            '"/': f'"{znode_root}/',
            "wait(60)": "wait(0.01)",
            **replaced,
        }.items():
            snippet = snippet.replace(old, new)
        names: dict[str, Any] = {"__name__": f"a snippet of {page}"}
        exec(GIVEN.get(page, ""), names)
        exec(snippet, names)
        return names

    return executed


@pytest.mark.parametrize(
    ("page", "number"), [("quickstart", -1), ("coming-from", 0), ("asyncio", 2)]
)
def test_leadership_inside_a_program(run, page, number):
    with pytest.raises(Exception, match=r"^$") as written:
        run(page, python(page)[number])
    assert type(written.value).__name__ == "Written"  # a report was written while the term lasted


def test_a_queue_and_messages(run, capsys):
    run("queues", *python("queues"))
    assert capsys.readouterr().out == "hello\n"
    sooner = {"timeout_s=30": "timeout_s=0", "pop(10,": "pop(1,"}
    assert run("dyno", python("dyno")[0], **sooner)["allocated"] == [b"seat 12"]


class ClientError(Exception):
    def __init__(self, status: int) -> None:
        self.response = {"ResponseMetadata": {"HTTPStatusCode": status}}


class Bucket:
    """One object of S3, as far as conditional puts go, behind the calls of boto3."""

    exceptions = SimpleNamespace(ClientError=ClientError)
    held: dict[str, Any] | None = None

    def head_object(self, **_where: str) -> dict[str, Any]:
        if self.held is None:
            raise ClientError(404)
        return self.held

    def put_object(self, **given: Any) -> None:
        if given.get("IfMatch") != (self.held and self.held["ETag"]):
            raise ClientError(412)
        self.held = {"ETag": given["Body"].hex(), "Metadata": given["Metadata"]}


def test_the_page_about_fencing(tmp_path, monkeypatch):
    names: list[dict[str, Any]] = [{} for _ in python("fencing")]
    for snippet, found in zip(python("fencing"), names, strict=True):
        exec(snippet, found)
    database, column, client, service, s3, check = names
    bucket = Bucket()
    monkeypatch.chdir(tmp_path)
    with closing(sqlite3.connect("reports.sqlite3")) as connection, connection:
        database["fence"].create_table(connection)
        connection.execute("CREATE TABLE invoices (amount)")
        connection.execute("CREATE TABLE reports (day PRIMARY KEY, text, term)")
        answers: list[Any] = []

        class Service:
            def request(self, _method: str, path: str, what: bytes, headers: Any) -> None:
                answers.append(service["receive"](path, headers["Leaderq-Term"], what))

            def getresponse(self) -> Any:
                status, headers = answers[-1]
                return nullcontext(SimpleNamespace(status=status, headers=headers))

        acts: list[Callable[[Any], None]] = [
            lambda term: database["bill"](connection, term, 7),
            lambda term: column["save"](connection, term, "today", "all is well"),
            lambda term: client["order"](Service(), term, b"one"),
            lambda term: s3["publish"](bucket, term, "all is well"),
        ]
        for act in acts:
            act(term(1))
            act(term(2))
            with pytest.raises(Deposed, match="has seen term 2"):
                act(term(1))
    assert [status for status, _ in answers] == [200, 200, 412]
    with closing(sqlite3.connect("reports.sqlite3")) as connection, connection:
        connection.execute("DROP TABLE reports")
        connection.execute("CREATE TABLE reports (name, value)")
    check["test_an_older_term_is_refused"]()


def test_the_helpers(run, kafka_broker, topic_name, tmp_path):
    coalescing, single_writer, producer = python("helpers")
    create_topics(kafka_broker.address, {topic_name: 1})
    names = run("helpers", coalescing)
    names["refresh"]("page")
    assert names["cache"] == {"page": "PAGE"}
    assert run("helpers", single_writer)["balance"] == 14
    here = {
        "127.0.0.1:9092": kafka_broker.address,
        '"clicks"': f'"{topic_name}"',
        '"clicks-journal"': f'"{tmp_path / "journal"}"',
    }
    sent = run("helpers", producer, **here)["producer"]
    assert sent.snapshot().balance.confirmed == 1


@pytest.fixture
def here(zookeeper_server, znode_root) -> dict[str, str]:
    return {"LEADERQ_ZOOKEEPER": zookeeper_server.address, "LEADERQ_ROOT": znode_root}


def test_the_page_about_schedules(reader, here, tmp_path):
    run_a, run_b, ls, run_now, past, cron, once = commands("schedules")
    (tmp_path / "reports.py").write_text(python("schedules")[0])
    (tmp_path / "nightly.sh").write_text("#!/bin/sh\necho $LEADERQ_TERM_TICK_KEY\n")
    (tmp_path / "nightly.sh").chmod(0o755)
    user = reader(tmp_path, **here)
    a = user.opens(run_a, r"tidy at \d\d:\d\d:\d\d, missed before: 0")
    b = user.opens(run_b, "stands for election")
    user.types(run_now)
    a.wait_for(r"the report of \d{4}-\d\d-\d\d, begun by a")
    assert re.search(r"reports +nightly +30 2 \* \* \* Europe/Berlin ", user.types(ls))
    assert "run-now 1" in user.types(past)
    assert a.interrupt() == 0
    b.wait_for(r"tidy at")
    assert b.interrupt() == 0
    assert re.search(r"^\d{4}-\d\d-\d\d$", user.types(once), re.MULTILINE)
    timed = user.opens(cron, "stage=execution")
    assert timed.interrupt() == 0


def test_the_page_about_asyncio(reader, here, tmp_path, monkeypatch):
    (tmp_path / "prices.py").write_text(python("asyncio")[0])
    monkeypatch.syspath_prepend(tmp_path)
    names: dict[str, Any] = {}
    exec(python("asyncio")[3], names)
    names["test_what_only_waits_ends_with_its_term"]()
    exec(python("asyncio")[1], names)
    driven = drive(names["Mailing"](), records("clicks", [(b"k", b"1"), (b"k", b"2")]))
    assert len(driven.committed) == 2
    user = reader(tmp_path, **here)
    run_a, run_b = commands("asyncio")
    a = user.opens(run_a, "term 1 works on 1")
    b = user.opens(run_b, "stands for election")
    assert a.interrupt() == 0
    assert "handing over: the candidate withdrew" in a.printed
    b.wait_for("term 2 works on 2")
    assert b.interrupt() == 0


def test_the_page_about_web_applications(run, znode_root):
    starlette = pytest.importorskip("starlette.testclient", reason="pip install '.[dashboard]'")
    names = run("web-application", python("web-application")[0])
    led = names["refreshed"]
    with starlette.TestClient(names["app"]) as client:
        eventually(lambda: led)
        answer = client.get(f"{znode_root}/leader").json()
        assert answer["term"] == led[0]
        assert answer["leader"]
    with starlette.TestClient(names["app"]):  # the former one has left
        eventually(lambda: led[-1] == led[0] + 1)


def test_the_page_about_django(reader, here, tmp_path):
    pytest.importorskip("django", reason="pip install '.[dev]'")
    settings, doctor, run_reports, run_now = commands("django")
    assert settings == "export DJANGO_SETTINGS_MODULE=site_settings"
    for path, text in DJANGO.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    (tmp_path / "reports" / "careers.py").write_text(python("django")[0])
    own = {"DJANGO_SETTINGS_MODULE": "site_settings", "PYTHONPATH": str(tmp_path)}
    user = reader(tmp_path, **here, **own)
    user.types(f"{sys.executable} -m django migrate --run-syncdb")
    user.types(doctor)
    reports = user.opens(run_reports, "stage=execution")
    user.types(run_now)

    site = tmp_path / "site.sqlite3"
    assert len(eventually(lambda: selected(site, "SELECT day FROM reports_report"))) == 1
    assert reports.interrupt() == 0
    assert selected(site, "SELECT career, term FROM leaderq_fences") == [("reports", 1)]


def selected(database: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute(query).fetchall()


DJANGO = {
    "site_settings.py": """
from pathlib import Path

DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3",
                         "NAME": Path(__file__).parent / "site.sqlite3"}}
INSTALLED_APPS = ["reports"]
USE_TZ = True
SECRET_KEY = "of a test"
""",
    "reports/__init__.py": "",
    "reports/models.py": """
from django.db import models


class Report(models.Model):
    id = models.BigAutoField(primary_key=True)
    day = models.DateField(unique=True)
""",
}


def test_the_page_about_tests(reader, tmp_path):
    without_servers, plain, plugin, with_servers = python("testing")
    files = {"billing": SETTING_ASIDE, "test_billing": without_servers, "test_beacon": plain}
    for name, text in (files | {"conftest": plugin, "test_mail": with_servers}).items():
        (tmp_path / f"{name}.py").write_text(text)
    without = [f"-pno:{plugin}" for plugin in ("cacheprovider", "xdist", "leaderq")]
    command = [sys.executable, "-m", "pytest", "-q", *without, f"--rootdir={tmp_path}", tmp_path]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout


SETTING_ASIDE = """
from leaderq import KafkaLeaderCareer
from leaderq.kafka import dead_letter


class Billing(KafkaLeaderCareer):
    topics = ("clicks",)
    on_error = dead_letter("clicks-dead")

    def handle_record(self, record, term):
        int(record.value)
"""


@pytest.mark.timeout(400)
def test_the_quickstart_and_the_readme(reader, tmp_path):
    install, servers, run_a, run_b, status, step_down, *others = commands("quickstart")
    reports, run_now, cron, once, create, put, doctor, run_billing, dead, replay, lead = others
    assert install == "pip install 'leaderq[servers]'"
    counter, marking, scheduled, billing, settling, _ = python("quickstart")
    modules = {"counter": counter, "marking": marking, "reports": scheduled, "billing": billing}
    modules |= {"settling": settling, "bills": python("offset-stores")[0]}
    for name, snippet in modules.items():
        (tmp_path / f"{name}.py").write_text(snippet)
    for script in ("nightly.sh", "poll.sh"):
        (tmp_path / script).write_text("#!/bin/sh\necho term $LEADERQ_TERM_NUMBER\n")
        (tmp_path / script).chmod(0o755)
    user = reader(tmp_path)
    user.starts_servers(servers)

    a = user.opens(run_a, r"term 1: I lead")
    b = user.opens(run_b, "stands for election")
    assert re.search(r"^counter +a +1 ", user.types(status), re.MULTILINE)
    user.types(step_down)
    a.wait_for(r"term 1: handing over at \d+, ")
    b.wait_for(r"term 2: I lead")
    operate(user)
    assert a.interrupt() == 0
    assert b.interrupt() == 0
    # that page's test runs them
    assert {run_now, cron, once} <= {*commands("schedules")}
    assert reports in commands("schedules")[0]

    for topic in ("clicks", "orders", "orders-dead", "invoices"):
        user.types(create.replace("clicks", topic))
    user.types(doctor)
    user.types(put)
    draining = user.opens(run_billing, r"\d 0 b'anna' b'GET /'\n\d 1 b'anna' b'GET /cart'")
    assert draining.interrupt() == 0
    produce(user.environment["LEADERQ_KAFKA"], "orders", [(None, b"order")])
    settles = user.opens("leaderq run settling:Settling", "stage=execution")
    lag = "leaderq status --career settling --json"
    eventually(lambda: json.loads(user.types(lag))["drain"]["lag"] == 0)
    user.types(dead)
    user.types(replay)
    assert settles.interrupt() == 0
    bills = user.opens("leaderq run bills:Billing --career bills", "stage=execution")
    clicks = [(b"GET /",), (b"GET /cart",)]
    billed = "SELECT click FROM bills"
    eventually(lambda: selected(tmp_path / "billing.sqlite3", billed) == clicks)
    assert bills.interrupt() == 0
    assert "term 1" in user.types(lead)
    queues(user)

    settle = {f"leaderq {verb} settling:Settling" for verb in ("run", "doctor --career")}
    known = settle.union(commands("quickstart"))
    assert {line for line in commands("README") if line.startswith("leaderq")} <= known
    user.types("leaderq doctor --career settling:Settling")


def operate(user: Reader) -> None:
    status, members, history, step_down, transfer, pause, resume, doctor = [
        line.replace("billing", "counter").replace("host-b", "b") for line in commands("operating")
    ]
    assert "counter" in user.types(status)
    assert re.search(r"^counter +\d+ +a ", user.types(members), re.MULTILINE)
    assert "step-down" in user.types(history)
    user.types(step_down)
    user.types(transfer)
    user.types(pause)
    user.types(resume)
    assert "ensemble" in user.types(doctor)


def queues(user: Reader) -> None:
    listing, put, dead, requeue, drain = commands("queues")
    (Path(user.cwd) / "orders.txt").write_text("one\ntwo\n")
    user.types(put)
    assert "/orders" in user.types(listing)
    user.types(dead)
    user.types(requeue)
    user.types(drain)
    assert len((Path(user.cwd) / "orders.jsonl").read_text().splitlines()) == 2


def test_the_python_of_the_readme_is_that_of_the_quickstart():
    counter, *_, settling, _ = [lines(snippet) for snippet in python("quickstart")]
    assert [lines(snippet) for snippet in python("README")] == [
        counter,
        [line for line in settling if "max_records_per_s" not in line],
    ]


def lines(snippet: str) -> list[str]:
    return [code for line in snippet.splitlines() if (code := line.partition("  #")[0].rstrip())]


def test_every_command_of_the_pages_is_run_by_a_test():
    """What is neither run above nor below is run by the target or the test that is named."""
    elsewhere = (
        *("pip install", "make ", "docker", "uvicorn", "cat tokens.txt"),  # by hand
        "leaderq dashboard",  # tests/integration/dashboard/test_serving.py
        "python -m leaderq.testing.nemesis",  # tests/faults/election/test_nemesis.py, make soak
    )
    followed = "README quickstart asyncio django metrics operating queues schedules"
    for page in PAGES:
        rest = [line for line in commands(page.stem) if not line.startswith(elsewhere)]
        assert page.stem in followed.split() or not rest, f"{page.name}: {rest}"
