"""A negative control: the program with one safety line taken out, which some life must show."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from leaderq.testing.simulation.chronicle import LifeVerdict

Edit = Callable[[], Any]
"""Returns a context manager, within which the line is out."""
_MISFITS = ("AttributeError", "TypeError", "NameError")


@dataclass(frozen=True)
class NegativeControl:
    """``name`` says what is taken out; ``seed``: the first life that shows it, as far as is known
    (docs/design/simulation.md has the tables); ``lead`` leads what ``make(seed, **life)`` makes."""

    name: str
    edit: Edit
    seed: int
    lead: Callable[[Any], LifeVerdict]
    make: Callable[..., Any]
    life: dict[str, Any] = field(default_factory=dict)

    def problems(self, seed: int) -> list[str]:
        """All that is wrong with the life of this seed, as the program is."""
        return self.lead(self.make(seed, **self.life)).problems

    def search(self, first: int, lives: int) -> tuple[int, str] | None:
        """The first seed from ``first`` on that shows it, and how; ``None``: none of ``lives``.

        :raises AssertionError: the edit does not fit the program any more.
        """
        for seed in range(first, first + lives):
            with self.edit():
                found = self.problems(seed)
            assert not any(one in "".join(found) for one in _MISFITS), f"{self.name}: {found}"
            if found:
                return seed, found[0]
        return None


def patched(owner: Any, name: str, value: Any) -> Edit:
    return lambda: mock.patch.object(owner, name, value)


def around(owner: Any, name: str) -> Callable[[Callable[..., Any]], Edit]:
    """The decorated function is called in place of ``owner.name``, with the real one first."""

    def decorated(edited: Callable[..., Any]) -> Edit:
        real = getattr(owner, name)

        def call(*given: Any, **more: Any) -> Any:
            return edited(real, *given, **more)

        return patched(owner, name, call)

    return decorated


def together(*edits: Edit) -> Edit:
    """Several lines of which each alone would do."""

    @contextmanager
    def taken_out() -> Iterator[None]:
        with ExitStack() as stack:
            for edit in edits:
                stack.enter_context(edit())
            yield

    return taken_out
