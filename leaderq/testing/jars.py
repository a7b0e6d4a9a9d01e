"""The servers' jars: fetched once into the cache, and checked against ``jars.lock``.

A set of jars lives in ``<cache>/jars/<set>-<digest of its lock lines>/``. A jar is checked first,
and then gets there by a rename. A folder counts only if it has a file ``complete``. So a fetch that
is interrupted leaves nothing broken, and the next one continues where it stopped. One process
fetches while the others wait. ``jgo`` is imported only for fetching.

The cache folder is ``$LEADERQ_CACHE``, else ``$XDG_CACHE_HOME/leaderq``, else ``~/.cache/leaderq``.
It may be deleted while no server is starting.

``make lock`` resolves the versions and writes ``jars.lock``; a user's machine only reads the file.
Each of its lines holds ``<set> <sha256> <bytes> <group:artifact:version>``.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Final

from leaderq.errors import ConfigurationError, MissingPiece, ServerFailed


@dataclass(frozen=True)
class LockedJar:
    """One jar of a set, with the checksum and size that it must have."""

    coordinate: str
    sha256: str
    size: int

    @property
    def file_name(self) -> str:
        """``artifact-version.jar``."""
        _, artifact, version = self.coordinate.split(":")
        return f"{artifact}-{version}.jar"


def locked_jars(set_name: str) -> tuple[LockedJar, ...]:
    """The jars of ``set_name`` ("zookeeper" or "kafka"), in the order of the class path."""
    return read_lock(files("leaderq.testing").joinpath("jars.lock").read_text(), set_name)


def read_lock(text: str, set_name: str) -> tuple[LockedJar, ...]:
    """The jars of ``set_name`` in the text of a lock file; none if the file does not have this
    set.
    """
    jars = []
    for line in text.splitlines():
        if line and not line.startswith("#"):
            owner, sha256, size, coordinate = line.split()
            if owner == set_name:
                jars.append(LockedJar(coordinate, sha256, int(size)))
    return tuple(jars)


def cache_folder() -> Path:
    """The cache folder; it is made if it does not exist.

    :raises ConfigurationError: it cannot be made or written.
    """
    named = os.environ.get("LEADERQ_CACHE")
    shared = os.environ.get("XDG_CACHE_HOME")
    try:
        folder = (
            Path(named).expanduser()
            if named
            else (Path(shared) if shared else Path.home() / ".cache") / "leaderq"
        )
    except RuntimeError as exc:
        raise ConfigurationError(
            "the home folder of this user is not known; set LEADERQ_CACHE to a folder that can be"
            " written"
        ) from exc
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise ConfigurationError(
            f"the cache folder {str(folder)!r} cannot be made ({exc.strerror});"
            " set LEADERQ_CACHE to a folder that can be written"
        ) from exc
    if not os.access(folder, os.W_OK):
        raise ConfigurationError(
            f"the cache folder {str(folder)!r} cannot be written; set LEADERQ_CACHE to one that can"
        )
    return folder.resolve()


@contextmanager
def alone(name: str) -> Iterator[None]:
    """Hold the cache's lock ``name``, so that no other process or thread holds it."""
    with (cache_folder() / f".{name}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


Progress = Callable[[str], None]

_AT_ONCE: Final = 6
_TOLD_AFTER = 20  # jars
_TRIES: Final = 3
_SOCKET_TIMEOUT_S: Final = 30


def to_stderr(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def class_path(set_name: str, *, progress: Progress = to_stderr) -> str:
    """The Java class path of "zookeeper" or "kafka"; jars that are not in the cache are fetched.

    ``progress`` gets a line from time to time, and no line if nothing is fetched.

    :raises MissingPiece: a jar cannot be fetched, or ``jgo`` is not installed.
    :raises ServerFailed: a fetched jar does not have the locked checksum; it is refused.
    """
    jars = locked_jars(set_name)
    folder = _folder(set_name, jars)
    if not _is_complete(folder, jars):
        with alone(f"jars-{set_name}"):
            if not _is_complete(folder, jars):
                _complete(folder, set_name, jars, progress)
    return os.pathsep.join(str(folder / jar.file_name) for jar in jars)


def _folder(set_name: str, jars: tuple[LockedJar, ...]) -> Path:
    digest = hashlib.sha256(
        "\n".join(f"{jar.sha256} {jar.file_name}" for jar in jars).encode()
    ).hexdigest()
    return cache_folder() / "jars" / f"{set_name}-{digest[:12]}"


def _is_complete(folder: Path, jars: tuple[LockedJar, ...]) -> bool:
    try:
        sizes = [(folder / jar.file_name).stat().st_size for jar in jars]
    except OSError:
        return False
    return (folder / "complete").exists() and sizes == [jar.size for jar in jars]


def _complete(folder: Path, set_name: str, jars: tuple[LockedJar, ...], progress: Progress) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "complete").unlink(missing_ok=True)
    wanted = [jar for jar in jars if not _is_right(folder / jar.file_name, jar)]
    staging = folder / "fetching"
    shutil.rmtree(staging, ignore_errors=True)
    if wanted:
        _fetch_all(wanted, folder, staging, set_name, progress)
    shutil.rmtree(staging, ignore_errors=True)
    (folder / "complete").touch()


def _is_right(path: Path, jar: LockedJar) -> bool:
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == jar.sha256


def _fetch_all(
    wanted: list[LockedJar], folder: Path, staging: Path, set_name: str, progress: Progress
) -> None:
    fetch = _fetcher(staging)
    megabytes = sum(jar.size for jar in wanted) / 1e6
    progress(
        f"fetching {len(wanted)} jars of {set_name} ({megabytes:.0f} MB), this once, into {folder}"
    )
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="leaderq-jars") as pool:
        fetched = pool.map(lambda jar: _fetch_checked(fetch, jar, folder), wanted)
        for count, _ in enumerate(fetched, start=1):
            if count % _TOLD_AFTER == 0 or count == len(wanted):
                progress(f"  {set_name} {count}/{len(wanted)}")


def _fetch_checked(fetch: Callable[[LockedJar], Path], jar: LockedJar, folder: Path) -> None:
    fetched = fetch(jar)
    if not _is_right(fetched, jar):
        found = hashlib.sha256(fetched.read_bytes()).hexdigest()
        fetched.unlink()
        raise ServerFailed(
            f"{jar.coordinate} was fetched with SHA-256 {found}, but {jar.sha256} is locked: it is"
            " refused; a proxy or mirror may have changed it"
        )
    fetched.replace(folder / jar.file_name)


def _fetcher(staging: Path) -> Callable[[LockedJar], Path]:
    try:
        from jgo.maven import MavenContext, PythonResolver
    except ImportError as exc:
        raise MissingPiece(
            "the servers' jars are not in the cache; to fetch them: pip install 'leaderq[servers]'"
        ) from exc
    context = MavenContext(resolver=PythonResolver(), repo_cache=staging, timeout=_SOCKET_TIMEOUT_S)

    def fetch(jar: LockedJar) -> Path:
        last: Exception | None = None
        for _ in range(_TRIES):
            artifact = context.create_dependency(jar.coordinate).artifact
            try:
                return Path(artifact.resolve())
            except Exception as exc:  # noqa: BLE001 - requests' errors and jgo's bare RuntimeError alike: it was not fetched
                last = exc
                if artifact.cached_path is not None:
                    # jgo would take the partial file for the whole
                    artifact.cached_path.unlink(missing_ok=True)
        raise MissingPiece(
            f"{jar.coordinate} could not be fetched ({type(last).__name__}: {last}); "
            "the servers' jars are fetched once: is this host online?"
        ) from last

    return fetch
