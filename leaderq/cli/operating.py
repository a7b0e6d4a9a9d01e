"""What the verbs that change something share: a session, a career somebody has stood for, and an operator of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from leaderq.cli.career_lookup import known_career, named_career
from leaderq.cli.connecting import open_session
from leaderq.cli.options import Given
from leaderq.cli.quiet import quiet

if TYPE_CHECKING:
    from leaderq.election import Operator


@contextmanager
def operator(given: Given) -> Iterator[Operator]:
    """An operator of the career that is named; refuses before connecting if none is."""
    settings = given.load().settings
    named_career(settings)
    quiet()
    from leaderq.election import Operator

    with open_session(settings) as session:
        yield Operator(session, known_career(session, settings), root=settings.root)
