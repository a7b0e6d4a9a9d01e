"""The kinds of queue that Curator has; what differs between them is how items are named and in which order they go."""

from __future__ import annotations

from enum import Enum


class Kind(Enum):
    """A recipe, by the names of its items; the value is the word that the command line uses."""

    PLAIN = "plain"
    ID = "id"
    PRIORITY = "priority"
    DELAY = "delay"
    SIMPLE = "simple"

    @property
    def is_framed(self) -> bool:
        """Whether a znode holds Curator's item frame; a simple queue holds the bytes as they are."""
        return self is not Kind.SIMPLE
