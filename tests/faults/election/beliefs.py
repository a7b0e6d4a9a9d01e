"""Whether two terms are ever believed in at once, on the one clock of this process."""

from __future__ import annotations

import threading
from itertools import combinations

from leaderq import Deposed, Term


def is_believed(term: Term) -> bool:
    """Whether ``term`` passes its check now."""
    try:
        term.check()
    except Deposed:
        return False
    return True


class Beliefs:
    """Asks all terms won, about a thousand times a second, within a ``with`` block."""

    def __init__(self) -> None:
        self.overlaps: set[tuple[int, int]] = set()
        """The numbers of terms believed in at once."""
        self._terms: list[Term] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="beliefs")

    def add(self, term: Term) -> None:
        """Watch ``term`` too; terms come in the order in which they were won."""
        self._terms.append(term)
        self._look()

    def __enter__(self) -> Beliefs:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.001):
            self._look()

    def _look(self) -> None:
        for older, newer in combinations(list(self._terms), 2):
            # The newer one first: a belief never comes back, so an older one seen later stood then.
            if is_believed(newer) and is_believed(older):
                self.overlaps.add((older.number, newer.number))
