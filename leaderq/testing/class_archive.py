"""A ready-made archive of a server's loaded classes: halves the time and the processor a start of Kafka takes.

The JVM writes it (``-XX:ArchiveClassesAtExit``) when the first server of a Java version and set of jars stops gracefully, and maps
it from then on. It checks by itself that the archive belongs to the very same Java and jars, and starts without it if not.
"""

from __future__ import annotations

import hashlib
import os

from leaderq.testing.cache import cache_folder
from leaderq.testing.java import Java


class ClassArchive:
    """The archive of one class path on one Java."""

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
        """What to start the JVM with: use the archive, or make it."""
        if not (self._is_ready or self.is_drafting):
            return []
        chosen = f"ArchiveClassesAtExit={self._draft}" if self.is_drafting else f"SharedArchiveFile={self._ready}"
        return [f"-XX:{chosen}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]

    def settle(self, *, is_whole: bool) -> None:
        """The JVM has ended: put the archive that it made in its place, or away if the JVM was killed while it wrote."""
        if self.is_drafting and self._draft.exists():
            if is_whole:
                self._draft.replace(self._ready)
            else:
                self._draft.unlink()
