"""The servers' jars: fetched once into the cache, checked against ``jars.lock``, found again in a millisecond.

A set of jars lives in ``<cache>/jars/<set>-<digest of its lock lines>/``. A jar gets there by a rename after its checksum was
found right, and a folder counts only once its ``complete`` file is there; so a fetch that is interrupted leaves nothing broken
and the next one goes on where it stopped. One process fetches while the others wait for it. ``jgo`` is imported only to fetch.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Final

from leaderq.errors import MissingPiece, ServerFailed
from leaderq.testing.cache import alone, cache_folder
from leaderq.testing.jar_lock import LockedJar, locked_jars

Progress = Callable[[str], None]

_AT_ONCE: Final = 6
_TOLD_AFTER = 20  # jars
_TRIES: Final = 3
_SOCKET_TIMEOUT_S: Final = 30


def to_stderr(line: str) -> None:
    """Report progress as one line on stderr."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def class_path(set_name: str, *, progress: Progress = to_stderr) -> str:
    """The Java class path of "zookeeper" or "kafka"; its jars are fetched if they are not in the cache.

    ``progress`` gets one line for each jar, and is not called when nothing is fetched.

    :raises MissingPiece: a jar is not in the cache and cannot be fetched, or ``jgo`` is not installed.
    :raises ServerFailed: a fetched jar has not the locked checksum; it is refused.
    """
    jars = locked_jars(set_name)
    folder = _folder(set_name, jars)
    if not _is_complete(folder, jars):
        with alone(f"jars-{set_name}"):
            if not _is_complete(folder, jars):
                _complete(folder, set_name, jars, progress)
    return os.pathsep.join(str(folder / jar.file_name) for jar in jars)


def _folder(set_name: str, jars: tuple[LockedJar, ...]) -> Path:
    digest = hashlib.sha256("\n".join(f"{jar.sha256} {jar.file_name}" for jar in jars).encode()).hexdigest()
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


def _fetch_all(wanted: list[LockedJar], folder: Path, staging: Path, set_name: str, progress: Progress) -> None:
    fetch = _fetcher(staging)
    megabytes = sum(jar.size for jar in wanted) / 1e6
    progress(f"fetching {len(wanted)} jars of {set_name} ({megabytes:.0f} MB), this once, into {folder}")
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="leaderq-jars") as pool:
        pending = {pool.submit(_fetch_checked, fetch, jar, folder): jar for jar in wanted}
        try:
            for count, done in enumerate(as_completed(pending), start=1):
                done.result()
                if count % _TOLD_AFTER == 0 or count == len(wanted):
                    progress(f"  {set_name} {count}/{len(wanted)}")
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _fetch_checked(fetch: Callable[[LockedJar], Path], jar: LockedJar, folder: Path) -> None:
    fetched = fetch(jar)
    if not _is_right(fetched, jar):
        found = hashlib.sha256(fetched.read_bytes()).hexdigest()
        fetched.unlink()
        raise ServerFailed(
            f"{jar.coordinate} was fetched with SHA-256 {found}, but {jar.sha256} is locked: it is refused; "
            "a proxy or mirror may have changed it"
        )
    fetched.replace(folder / jar.file_name)


def _fetcher(staging: Path) -> Callable[[LockedJar], Path]:
    try:
        from jgo.maven import MavenContext, PythonResolver
    except ImportError as exc:
        raise MissingPiece("the servers' jars are not in the cache; to fetch them: pip install 'leaderq[servers]'") from exc
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
                    artifact.cached_path.unlink(missing_ok=True)  # jgo would take the partial file for the whole
        raise MissingPiece(
            f"{jar.coordinate} could not be fetched ({type(last).__name__}: {last}); "
            "the servers' jars are fetched once: is this host online?"
        ) from last

    return fetch
