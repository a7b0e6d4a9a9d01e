"""Stores for payloads that are too large for ZooKeeper."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from leaderq.base import chance, clock
from leaderq.base.arguments import bytes_of, is_text, require, wanted
from leaderq.errors import LeaderqError

log = logging.getLogger(__name__)
_PART_S = 24 * 3600.0
_LONGEST = 200
_REFERENCE = re.compile(r"[0-9a-f]{32}", re.ASCII).fullmatch


class MissingBody(LeaderqError):
    """The payload of a message is not in its store: lost, or not reachable from this host."""


@runtime_checkable
class BodyStore(Protocol):
    """A place for large payloads that all processes of a queue can reach. Its methods may be called
    from any thread, and may raise any error.
    """

    def put(self, body: bytes) -> str:
        """Store ``body`` durably; returns a reference to it of at most 200 characters."""

    def get(self, reference: str) -> bytes:
        """Return the body with this reference; raises :class:`MissingBody` if there is none."""

    def delete(self, reference: str) -> None:
        """Delete the body with this reference; does nothing if there is none."""

    def ages(self) -> Iterable[tuple[str, float]]:
        """Return all references, each with the seconds since its body was put."""


class FileBodies:
    """Bodies as files below ``folder``, which all hosts share.

    *Guarantees:* a body that :meth:`put` has stored is on the disk, whole; nothing outside the
    folder is read or deleted, whatever a reference says.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder).absolute()  # the process may change its own

    def put(self, body: bytes) -> str:
        reference = chance.uuid4().hex
        path = self._path(reference)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".part")
        with partial.open("xb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        partial.rename(path)
        for folder in (path.parent, self._folder):  # or a power cut could take the name
            handle = os.open(folder, os.O_RDONLY)
            os.fsync(handle)
            os.close(handle)
        return reference

    def get(self, reference: str) -> bytes:
        try:
            return self._path(reference).read_bytes()
        except FileNotFoundError as exc:
            raise MissingBody(f"body {reference} is not in {self._folder}") from exc

    def delete(self, reference: str) -> None:
        self._path(reference).unlink(missing_ok=True)

    def ages(self) -> Iterator[tuple[str, float]]:
        """Yield all references, each with the seconds since its body was put. Files that were begun
        and never finished are deleted after a day.
        """
        for path in self._folder.glob("??/*"):
            with suppress(FileNotFoundError):  # deleted meanwhile
                age_s = clock.calendar_s() - path.stat().st_mtime
                if path.suffix != ".part":
                    yield path.name, age_s
                elif age_s > _PART_S:
                    path.unlink()

    def _path(self, reference: str) -> Path:
        if _REFERENCE(reference) is None:
            raise MissingBody(f"{reference!r} is not a reference of FileBodies")
        return self._folder / reference[:2] / reference


class Bodies:
    """How a queue uses its body store, if it has one. ``limit``: payloads of up to this many bytes
    stay in ZooKeeper.
    """

    def __init__(self, store: BodyStore | None, limit: int) -> None:
        self._store = store
        self._limit = limit

    def put(self, payload: bytes) -> tuple[bytes, str | None]:
        """Return the bytes for the znode, and the reference of the body if the payload was put into
        the store. Raises what the store raises.

        :raises ConfigurationError: the store returned no reference, so nobody would find the body.
        """
        if self._store is None or len(payload) <= self._limit:
            return payload, None
        reference: Any = self._store.put(payload)
        is_one = is_text(reference) and 0 < len(reference) <= _LONGEST
        require(wanted("the reference", reference, is_one, f"a text of 1 to {_LONGEST} letters"))
        return b"", reference

    def get(self, payload: bytes, reference: str | None) -> bytes:
        """Return the whole payload. Raises what the store raises, and ``MissingBody`` if the queue
        has no store, or the store returns no bytes.
        """
        if reference is None:
            return payload
        if self._store is None:
            what = "this queue was made without the store that has it"
            raise MissingBody(f"body {reference}: {what}")
        if (body := bytes_of(self._store.get(reference))) is None:
            raise MissingBody(f"body {reference}: the store returned no bytes")
        return body

    def drop(self, references: Iterable[str | None]) -> None:
        """Delete bodies whose messages are gone for good. Bodies that cannot be deleted now are
        swept later.
        """
        for reference in references:
            if reference is not None and self._store is not None:
                try:
                    self._store.delete(reference)
                except Exception as exc:  # noqa: BLE001 - whatever the store is
                    said = "body not deleted, it is swept later body=%s error=%s"
                    log.warning(said, reference, exc)

    def sweep(self, older_s: float, used: Iterable[str | None]) -> int:
        """Delete bodies older than ``older_s`` seconds that are not in ``used``; returns their
        number. ``used`` is iterated after the ages were read.
        """
        if self._store is None:
            return 0
        old = {reference for reference, age_s in self._store.ages() if age_s > older_s}
        orphans = old - set(used) if old else old
        self.drop(orphans)
        return len(orphans)
