"""The cache of jars; nothing is fetched from the network here."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from leaderq.errors import ServerFailed
from leaderq.testing import jars
from leaderq.testing.jars import LockedJar, locked_jars

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


def test_a_truncated_jar_in_the_cache_is_fetched_again(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched = deliver(CONTENT, monkeypatch)
    path = Path(jars.class_path("thing", progress=lambda line: None))
    path.write_bytes(CONTENT[:5])
    jars.class_path("thing", progress=lambda line: None)
    assert path.read_bytes() == CONTENT
    assert len(fetched) == 2


def test_an_interrupted_fetch_leaves_a_cache_that_the_next_one_completes(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched = deliver(CONTENT, monkeypatch)
    path = Path(jars.class_path("thing", progress=lambda line: None))
    (path.parent / "complete").unlink()  # as if it was killed after the last jar
    (path.parent / "fetching").mkdir()
    (path.parent / "fetching" / "half.jar").write_bytes(b"half")
    jars.class_path("thing", progress=lambda line: None)
    assert len(fetched) == 1  # what is there and right is kept
    assert not (path.parent / "fetching").exists()
