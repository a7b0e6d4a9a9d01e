"""Does your store refuse an older term? :func:`check_fencing` writes to it in two terms, in the
orders that matter, and says what the store let through.

You give it two functions. ``write`` is a context manager that writes a value under a term. Before
its ``yield`` it does everything except the last step; after its ``yield`` it does the last step,
the commit or the put. It raises :class:`~leaderq.errors.Deposed` if the store refuses. ``read``
returns the value that was written last:

.. code-block:: python

    @contextmanager
    def write(resource, term, value):
        with psycopg.connect(ADDRESS) as connection:
            SqlFence(resource).hold(connection, term)
            connection.execute("UPDATE reports SET text = %s WHERE name = %s", (value, resource))
            yield

    def test_an_older_term_is_refused():
        report = check_fencing(write, read)
        assert report.holds, report

Each order has a resource of its own, whose name is new: a row, a key, a path. The terms are 9 and
10, so that a store that compares them as text is found out. Errors other than ``Deposed`` count as
"not written", because a database may refuse one of two transactions for reasons of its own; the
newer term then tries again, and must get in.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from itertools import count
from uuid import uuid4

from leaderq.base.arguments import above_0, at_least, plain_function, require, wanted
from leaderq.errors import Deposed, told
from leaderq.fencing import FencingToken

Write = Callable[[str, FencingToken, str], AbstractContextManager[object]]
Read = Callable[[str], object]

OLDER = FencingToken("fencing-check", 9)
NEWER = FencingToken("fencing-check", 10)
_TRIES = 10


class WriteOrder(Enum):
    """The orders in which two terms write."""

    AFTER = "an older term writes after a newer one"
    FIRST_OLDER = "both write first; the newer one comes while the older one is about to finish"
    FIRST_NEWER = "both write first; the older one comes while the newer one is about to finish"
    OLDER_OPEN = "the newer one comes while the older one is about to finish"
    NEWER_OPEN = "the older one comes while the newer one is about to finish"
    SAME_VALUE = "the newer one writes what the older one has read, while that is about to finish"
    EQUAL = "one term writes again, and twice at once"
    THREADS = "threads of both terms write at once, again and again"


@dataclass(frozen=True)
class OrderTried:
    """The result of one order; ``problem`` is ``None`` if the store did the right thing."""

    order: WriteOrder
    problem: str | None


@dataclass(frozen=True)
class FencingReport:
    """The result of :func:`check_fencing`; as text, a line for each order."""

    tried: tuple[OrderTried, ...]

    @property
    def holds(self) -> bool:
        """Whether the store let nothing through, and did not refuse the newer term."""
        return not self.problems

    @property
    def problems(self) -> dict[WriteOrder, str]:
        return {one.order: one.problem for one in self.tried if one.problem is not None}

    def __str__(self) -> str:
        lines = (f"{one.order.value}: {one.problem or 'as it must be'}" for one in self.tried)
        return "\n".join(lines)


def check_fencing(
    write: Write,
    read: Read,
    *,
    blocked_after_s: float = 0.5,
    timeout_s: float = 60.0,
    threads: int = 3,
    writes: int = 10,
) -> FencingReport:
    """Write to a store in two terms and in all orders, and report what it let through.

    ``write(resource, term, value)`` and ``read(resource)`` are called on several threads at once.
    If a write has not come through after ``blocked_after_s`` seconds, it is taken to wait for the
    other one; after ``timeout_s``, it is taken to hang. ``threads`` threads of each term write
    ``writes`` times.

    Takes a few seconds. Guarantees: a store that does not compare, compares in one step and writes
    in another, or compares numbers as text does not pass. Not guaranteed: that a store which passes
    is right; it is not tried for hours, with restarts, or with replicas.

    :raises ConfigurationError: an argument cannot be used.
    """
    require(
        wanted("write", write, callable(write), "a function made with @contextmanager"),
        plain_function("read", read),
        above_0("blocked_after_s", blocked_after_s, "seconds"),
        above_0("timeout_s", timeout_s, "seconds"),
        at_least("threads", threads, 1),
        at_least("writes", writes, 1),
    )
    run = uuid4().hex[:8]
    tried = []
    for number, order in enumerate(WriteOrder):
        trial = _Trial(write, read, f"check-{run}-{number}", blocked_after_s, timeout_s)
        problem = None
        try:
            _try(trial, order, threads, writes)
        except _Found as found:
            problem = str(found)
        tried.append(OrderTried(order, problem))
    return FencingReport(tuple(tried))


def _try(trial: _Trial, order: WriteOrder, threads: int, writes: int) -> None:
    if order is WriteOrder.AFTER:
        trial.let_in(OLDER, "older")
        trial.let_in(NEWER, "newer")
        trial.keep_out()
    elif order is WriteOrder.EQUAL:
        _equal(trial)
    elif order is WriteOrder.THREADS:
        _Crowd(trial, threads, writes).run()
    else:
        if order not in (WriteOrder.FIRST_OLDER, WriteOrder.FIRST_NEWER):
            trial.let_in(OLDER, "first")
        newer = "first" if order is WriteOrder.SAME_VALUE else "newer"
        is_newer_open = order in (WriteOrder.FIRST_NEWER, WriteOrder.NEWER_OPEN)
        _one_amid_the_other(trial, is_newer_open, newer)


def _one_amid_the_other(trial: _Trial, is_newer_open: bool, value: str) -> None:
    """Let one term write completely while the other one is about to finish."""
    older, newer = (OLDER, "older"), (NEWER, value)
    opened = trial.begin(*(newer if is_newer_open else older))
    whole = trial.begin(*(older if is_newer_open else newer), go_on=True)
    whole.is_done.wait(trial.blocked_after_s)
    opened.go_on.set()
    ended = [trial.ended(opened), trial.ended(whole)]
    by_newer = ended[0] if is_newer_open else ended[1]
    if by_newer is _End.REFUSED:
        raise _Found("the newer term was refused")
    if by_newer is _End.WRITTEN:
        trial.check_stands(value)
    trial.let_in(NEWER, "newer again")
    trial.keep_out()


def _equal(trial: _Trial) -> None:
    trial.let_in(NEWER, "one")
    trial.let_in(NEWER, "two")
    opened = trial.begin(NEWER, "three")
    whole = trial.begin(NEWER, "four", go_on=True)
    whole.is_done.wait(trial.blocked_after_s)
    opened.go_on.set()
    if _End.REFUSED in [trial.ended(opened), trial.ended(whole)]:
        raise _Found("a term was refused that is equal to the stored one")
    trial.let_in(NEWER, "five")


# -- one write, on a thread of its own -------------------------------------------------------------


class _Found(Exception):
    """What is wrong with the store."""


class _End(Enum):
    WRITTEN = "written"
    REFUSED = "refused"
    FAILED = "failed"


class _Attempt:
    """One write; it waits before its last step until ``go_on`` is set."""

    def __init__(self, write: Write, resource: str, term: FencingToken, value: str) -> None:
        self.go_on, self.is_open, self.is_done = (threading.Event() for _ in range(3))
        self.end: _End | None = None
        self.error: BaseException | None = None
        self._write, self._what = write, (resource, term, value)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            with self._write(*self._what):
                self.is_open.set()
                self.go_on.wait()
            self.end = _End.WRITTEN
        except Deposed as exc:
            self.end, self.error = _End.REFUSED, exc
        except BaseException as exc:  # noqa: BLE001 - it was not written, and the report says why
            self.end, self.error = _End.FAILED, exc
        finally:
            self.is_open.set()
            self.is_done.set()


@dataclass(frozen=True)
class _Trial:
    """One resource of the store."""

    write: Write
    read: Read
    resource: str
    blocked_after_s: float
    timeout_s: float

    def begin(self, term: FencingToken, value: str, *, go_on: bool = False) -> _Attempt:
        """Begin a write; return when everything except the last step is done. With ``go_on``, the
        write goes on to its end, and this returns at once.
        """
        attempt = _Attempt(self.write, self.resource, term, value)
        if go_on:
            attempt.go_on.set()
        attempt.start()
        if not go_on and not attempt.is_open.wait(self.timeout_s):
            raise _Found(f"term {term.number} hangs: nothing for {self.timeout_s:g} s")
        return attempt

    def ended(self, attempt: _Attempt) -> _End:
        attempt.join(self.timeout_s)
        if attempt.end is None:
            raise _Found(f"a write hangs: nothing for {self.timeout_s:g} s")
        return attempt.end

    def let_in(self, term: FencingToken, value: str) -> None:
        """Write completely, again if that fails, and check that the value stands in the store."""
        for _ in range(_TRIES):
            attempt = self.begin(term, value, go_on=True)
            end = self.ended(attempt)
            if end is not _End.FAILED:
                break
        if end is not _End.WRITTEN:
            why = told(attempt.error) if attempt.error else ""
            raise _Found(f"term {term.number}, which nobody follows, is not let in: {why}")
        self.check_stands(value)

    def keep_out(self) -> None:
        """Let the older term write after the newer one; check that the store refuses."""
        before = self.read(self.resource)
        if self.ended(self.begin(OLDER, "too late", go_on=True)) is _End.WRITTEN:
            stands = self.read(self.resource)
            raise _Found(
                f"LET THROUGH: term {OLDER.number} was told that it has written, after term"
                f" {NEWER.number} had; {stands!r} stands in the store"
            )
        self.check_stands(str(before))

    def check_stands(self, value: str) -> None:
        found = self.read(self.resource)
        if found != value:
            raise _Found(f"LET THROUGH: {found!r} stands in the store, and must be {value!r}")


# -- many at once ----------------------------------------------------------------------------------


class _Crowd:
    """Threads of both terms write at once. The newer term begins when the older one has tried to
    write, and the store is read all the time. After the newer term has written, the store must not
    accept a write of the older term that begins later, and must not show a value of the older term.
    """

    def __init__(self, trial: _Trial, threads: int, writes: int) -> None:
        self._trial, self._threads, self._writes = trial, threads, writes
        self._newer_has_written = threading.Event()
        self._older_has_tried = threading.Event()
        self._numbers = count()
        self._problems: list[str] = []

    def run(self) -> None:
        workers = [
            threading.Thread(target=self._contained, args=(role,), daemon=True)
            for role in (self._be_older, self._be_newer)
            for _ in range(self._threads)
        ]
        for worker in workers:
            worker.start()
        for _ in self._looks(workers):
            pass
        if any(worker.is_alive() for worker in workers):
            raise _Found(f"a write hangs: nothing for {self._trial.timeout_s:g} s")
        if self._problems:
            raise _Found(self._problems[0])
        self._trial.let_in(NEWER, "newer again")
        self._trial.keep_out()

    def _looks(self, workers: list[threading.Thread]) -> Iterator[None]:
        give_up = time.monotonic() + self._trial.timeout_s
        while any(worker.is_alive() for worker in workers) and time.monotonic() < give_up:
            is_over = self._newer_has_written.is_set()
            try:
                found = str(self._trial.read(self._trial.resource))
            except Exception:  # noqa: BLE001 - busy now; what stands is looked at again
                found = ""
            if is_over and found.startswith("older"):
                self._problems.append(f"LET THROUGH: {found!r} replaced what the newer term wrote")
            workers[-1].join(0.01)
            yield

    def _contained(self, role: Callable[[], None]) -> None:
        try:
            role()
        except _Found as found:
            self._problems.append(str(found))
            self._newer_has_written.set()

    def _be_older(self) -> None:
        left = self._writes
        while left:  # as many after the newer term has written as before
            is_over = self._newer_has_written.is_set()
            end = self._write(OLDER, f"older {next(self._numbers)}")
            self._older_has_tried.set()
            if is_over and end is _End.WRITTEN:
                self._problems.append(
                    f"LET THROUGH: term {OLDER.number} began to write after term {NEWER.number}"
                    " had written, and was told that it has"
                )
            left -= is_over or end is _End.REFUSED

    def _be_newer(self) -> None:
        self._older_has_tried.wait(self._trial.timeout_s)
        left = self._writes
        give_up = time.monotonic() + self._trial.timeout_s
        while left and time.monotonic() < give_up:
            end = self._write(NEWER, f"newer {next(self._numbers)}")
            if end is _End.WRITTEN:
                self._newer_has_written.set()
                left -= 1
            elif end is _End.REFUSED:
                self._problems.append("the newer term was refused")
                self._newer_has_written.set()
                return
        self._newer_has_written.set()

    def _write(self, term: FencingToken, value: str) -> _End:
        attempt = self._trial.begin(term, value, go_on=True)
        return self._trial.ended(attempt)
