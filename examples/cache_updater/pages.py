"""A web site whose pages change, and the cache in front of it."""

from __future__ import annotations

import asyncio
from collections import Counter


class Origin:
    """Where the pages are kept: slow to read, as a database with a large query is."""

    def __init__(self, read_s: float) -> None:
        self._read_s = read_s
        self.versions: Counter[str] = Counter()
        self.reads = 0

    def change(self, page: str) -> None:
        """A page has changed."""
        self.versions[page] += 1

    async def read(self, page: str) -> int:
        """The version of a page as of now, after a while."""
        self.reads += 1
        version = self.versions[page]
        await asyncio.sleep(self._read_s)
        return version


class Cache:
    """What visitors see."""

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        self._versions: dict[str, int] = {}

    async def refresh(self, page: str) -> None:
        """Take the page's *current* state from the origin. Coalescing is safe because this reads
        when it begins.
        """
        self._versions[page] = await self._origin.read(page)

    @property
    def stale(self) -> list[str]:
        """The pages of which visitors see an old version."""
        return [
            page
            for page, version in self._origin.versions.items()
            if self._versions.get(page) != version
        ]
