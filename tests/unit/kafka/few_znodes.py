"""A few znodes, in place of a session and of what carries out a term's writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from terms import open_term

from leaderq.errors import BadVersion, NodeExists, NoNode
from leaderq.term import OpenTerm
from leaderq.zookeeper import Check, Create, Delete, SetData


class FewZnodes:
    """``get_errors`` are raised by the next reads, ``errors`` by the next writes, which are carried
    out (``True``) or not; ``during``: what happens while the next write is under way. With
    ``lags``, reads do not show a write whose answer was lost before the next one is asked for.
    """

    lags = False

    def __init__(self, data: Mapping[str, bytes] | None = None) -> None:
        self.data, self.versions = dict(data or {}), Counter[str]()
        self.get_errors: list[Exception] = []
        self.errors: list[tuple[Exception, bool]] = []
        self.during: list[Callable[[], object]] = []
        self.writes: list[tuple[Any, ...]] = []
        self.gets = 0
        self._shown = self.data

    def get(self, path: str) -> tuple[bytes, Any]:
        self.gets += 1
        if self.get_errors:
            raise self.get_errors.pop(0)
        if path not in self._shown:
            raise NoNode("gone", path=path)
        return self._shown[path], SimpleNamespace(version=self.versions[path])

    def ensure_path(self, path: str) -> None: ...

    def create(self, path: str, data: bytes) -> None:
        self.write([Create(path, data)])

    def set(self, path: str, data: bytes, *, version: int) -> None:
        self.write([SetData(path, data, version)])

    def multi(self, operations: Sequence[Any]) -> list[Any]:
        return self.write(operations)

    def write(self, operations: Sequence[Any]) -> list[Any]:
        self.writes.append(tuple(operations))
        while self.during:
            self.during.pop()()
        error, is_done = self.errors.pop(0) if self.errors else (None, True)
        self._shown = dict(self.data) if error is not None and self.lags else self.data
        for index, one in enumerate(operations if error is None else ()):
            if isinstance(one, Create) and one.path in self.data:
                raise NodeExists("there", path=one.path, index=index)
            if isinstance(one, SetData | Check) and one.path not in self.data:
                raise NoNode("gone", path=one.path, index=index)
            versions = -1, self.versions[one.path]
            if isinstance(one, SetData | Check) and one.version not in versions:
                raise BadVersion("another", path=one.path, index=index)
        results: list[Any] = []
        for one in operations if is_done else ():
            if isinstance(one, Check | Delete):
                if isinstance(one, Delete):
                    del self.data[one.path]
                results.append(None)
                continue
            self.versions[one.path] = self.versions[one.path] + 1 if one.path in self.data else 0
            self.data[one.path] = one.data
            stat = SimpleNamespace(version=self.versions[one.path])
            results.append(stat if isinstance(one, SetData) else one.path)
        if error is not None:
            raise error
        return results

    def term(self, number: int = 7, **fields: Any) -> OpenTerm:
        return open_term(number, write=lambda _term, operations: self.write(operations), **fields)
