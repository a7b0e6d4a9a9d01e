from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from snippets import GIVEN, PAGES, PYRIGHT, ROOT, blocks, pyright

RIGHT = """
from leaderq import connect
from leaderq.queues import JSON, TEXT, DistributedPriorityQueue, DistributedQueue
with connect("a") as session, DistributedQueue(session, "/mail", serializer=TEXT) as queue:
    name: str | bool = queue.put("hello")
    with queue.take() as item:
        print(item.value.upper())
    data: bytes = DistributedQueue(session, "/raw").take().value
    DistributedPriorityQueue(session, "/j", consumer=lambda value: print(value), serializer=JSON)

from leaderq.kafka import KafkaLeaderCareer
class Invoices(KafkaLeaderCareer):
    topics, produces, workers = ("orders",), "invoices", 4
"""
WRONG = """
from leaderq import connect
from leaderq.queues import TEXT, DistributedQueue
with connect(3) as session, session.leadership("reports") as term:
    term.wait("long")
    queue = DistributedQueue(session, "/mail", serializer=TEXT)
    queue.put(3)
    queue.take(1.0).ack()

from leaderq.kafka import KafkaLeaderCareer, Record
class Sums(KafkaLeaderCareer):
    value_deserializer = "json"
    def handle_record(self, record: Record[bytes, int], term: object) -> None:
        record.value.upper()
"""
# It does not see the __init__ that the classes of confluent-kafka's schema registry assign.
CONFLUENTS = "Expected 0 positional arguments"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for page in PAGES:
        for number, snippet in enumerate(blocks(page, "python"), 1):
            name = page.stem.replace("-", "_").lower()
            (tmp_path / f"{name}_{number}.py").write_text(
                f"{GIVEN.get(page.stem, '')}\n\n{snippet}"
            )
    # What the page about tests calls billing.py is the career that the quickstart shows.
    (tmp_path / "billing.py").write_text("from quickstart_4 import Billing as Billing\n")
    (tmp_path / "prices.py").write_text("from asyncio_1 import Prices as Prices\n")
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports" / "__init__.py").write_text("")
    models = "from typing import Any\n\nReport: Any = None\n"
    (tmp_path / "reports" / "models.py").write_text(models)
    (tmp_path / "right.py").write_text(RIGHT)
    (tmp_path / "wrong.py").write_text(WRONG)
    assert len(list(tmp_path.glob("*.py"))) > 20
    return tmp_path


def test_mypy_finds_no_mistake_but_those_made_on_purpose(folder):
    pytest.importorskip("mypy", reason="the types are checked where mypy is installed")
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent"]
    examples = sorted(str(each) for each in ROOT.glob("examples/*/*.py"))
    assert len(examples) > 20
    files = [*sorted(str(each) for each in folder.glob("*.py")), *examples]
    cache = ["--cache-dir", str(ROOT / ".mypy_cache" / "users")]
    paths = {"MYPYPATH": f"{folder}:{ROOT / 'tests' / 'typings'}"}
    command += ["--config-file=", *cache, *files]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, env={**os.environ, **paths}
    )
    told = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert [Path(line.split(":")[0]).name for line in told] == ["wrong.py"] * 5, (
        done.stdout + done.stderr
    )


@pytest.mark.skipif(PYRIGHT is None, reason="pip install '.[dev]'")
def test_pyright_finds_no_mistake_but_those_made_on_purpose(folder):
    shutil.copytree(ROOT / "examples", folder / "examples")
    paths = [str(ROOT), str(folder), str(folder / "examples"), str(ROOT / "tests" / "typings")]
    found = pyright(
        folder, extraPaths=paths, include=["*.py", "examples"], typeCheckingMode="standard"
    )
    assert found["summary"]["filesAnalyzed"] > 50
    told = [one for one in found["generalDiagnostics"] if one["severity"] == "error"]
    errors = [one for one in told if one["message"] != CONFLUENTS]
    assert [Path(one["file"]).name for one in errors] == ["wrong.py"] * 5, found
