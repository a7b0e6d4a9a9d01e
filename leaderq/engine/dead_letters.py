"""Dead letters of queues of either kind: sent back, and dropped."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from leaderq.base.arguments import instance, require, several
from leaderq.errors import BadVersion, LeaderqError, NodeExists, NoNode, NotEmpty
from leaderq.zookeeper.writing.groups import Operations

log = logging.getLogger(__name__)
L = TypeVar("L")
OnProgress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Moved:
    """``moved`` by us; ``gone``: somebody else moved, changed or dropped them meanwhile; ``left``:
    they have children, or their ids are those of other messages by now.
    """

    moved: int
    gone: int = 0
    left: int = 0

    def __add__(self, other: Moved) -> Moved:
        return Moved(self.moved + other.moved, self.gone + other.gone, self.left + other.left)


class DeadLetters(ABC, Generic[L]):
    """The letters of one queue.

    *Guarantees:* a letter is sent back exactly once, or not at all: it is deleted and what it was
    is created in one transaction, whoever tries, however often, and whatever happens to the
    answers.
    """

    KIND: ClassVar[type[Any]]
    """The class of a letter."""

    @abstractmethod
    def count(self) -> int:
        """How many there are."""

    @abstractmethod
    def browse(self) -> Iterator[L]:
        """All of them, read some at a time."""

    def requeue(
        self, letters: Iterable[L] | None = None, *, on_progress: OnProgress | None = None
    ) -> Moved:
        """Send these back to the queue, all if ``None``. No failures are counted any more; the time
        of the first put is kept. A message whose id is that of another by now stays a letter, and
        is logged.
        """
        return self._moved(letters, self._back, on_progress)

    def drop(
        self, letters: Iterable[L] | None = None, *, on_progress: OnProgress | None = None
    ) -> Moved:
        """Delete these, all if ``None``."""
        return self._moved(letters, self._gone, on_progress, self._dropped)

    @abstractmethod
    def _path(self, letter: L) -> str: ...

    @abstractmethod
    def _back(self, letter: L) -> Operations: ...

    @abstractmethod
    def _gone(self, letter: L) -> Operations: ...

    @abstractmethod
    def _written(self, groups: Iterable[Operations]) -> Iterator[LeaderqError | None]:
        """Write these, and yield the error of each, in their order."""

    def _dropped(self, letter: L) -> None:
        """After it was dropped."""

    def _moved(
        self,
        letters: Iterable[L] | None,
        operations: Callable[[L], Operations],
        on_progress: OnProgress | None,
        on_moved: Callable[[L], object] = lambda _: None,
    ) -> Moved:
        moved = gone = left = 0
        begun: deque[L] = deque()
        chosen = self.browse() if letters is None else several("letters", letters, "dead letters")

        def groups() -> Iterator[Operations]:
            for letter in chosen:
                require(instance("letter", letter, self.KIND))
                begun.append(letter)
                yield operations(letter)

        for error in self._written(groups()):
            letter = begun.popleft()
            if error is None:
                moved += 1
                on_moved(letter)
            elif isinstance(error, BadVersion | NoNode):
                gone += 1
            elif isinstance(error, NodeExists | NotEmpty):
                left += 1
                why = "letter left, it has children, or its id is another message's"
                log.warning(f"{why} letter=%s error=%s", self._path(letter), error)
            else:
                raise error
            if on_progress is not None:
                on_progress(1)
        return Moved(moved, gone, left)
