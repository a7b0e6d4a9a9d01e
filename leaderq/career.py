"""What a leader does: the class that the user writes.

A career lives through any number of terms in one process. For each: ``inaugurate`` once,
``execute`` again and again (one call is one unit of work), ``handOver`` once, always in that order
and always on the same thread, so that a career may keep a database connection from one stage to the
next. ``handOver`` runs however the term ended, also after ``inaugurate`` or ``execute`` raised and
also when the leader was deposed; ``term.reason`` tells why. A career is made with no arguments.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from leaderq.config import Settings
    from leaderq.events import EventBus
    from leaderq.term import Term
    from leaderq.zookeeper import Session


class ILeaderCareer(ABC):
    """The three stages of a term."""

    @abstractmethod
    def inaugurate(self, term: Term) -> None:
        """Take office: load what the work needs. No unit of work begins before this returns."""

    @abstractmethod
    def execute(self, term: Term) -> None:
        """Do one unit of work, again and again; ``term.wait(s)`` where there is nothing to do."""

    @abstractmethod
    def handOver(self, term: Term) -> None:  # noqa: N802  (the user's name)
        """Give back what ``inaugurate`` took. The next leader waits ``handover_budget_s``."""


class LeaderCareer(ILeaderCareer):
    """A career with safe defaults: subclass it and write ``execute``.

    Class attributes: ``name``: under which candidates compete; default the class name in kebab-case
    (``AdBilling`` stands as ``ad-billing``). ``atomic``: ``False`` (default): when the term ends,
    the unit in hand is finished within ``handover_budget_s`` and the next leader waits for it.
    ``True``: a unit is all or nothing by itself (a database transaction, say), so it may be
    abandoned: :class:`~leaderq.running.UnitAbandoned` is raised inside it at once.

    Set before :meth:`prepare`: ``session``, ``settings``, ``events`` and ``candidate_id``.
    """

    name: ClassVar[str | None] = None
    atomic: ClassVar[bool] = False

    session: Session
    settings: Settings
    events: EventBus
    candidate_id: str

    _stands_again: bool = True  # set to False: the runner ends after this term
    _resign: Callable[[Term], None]  # ends a term as planned, a moment later

    def prepare(self) -> None:
        """Open, before standing for election, what would be slow to open after winning.

        Called once in the life of the process. What it raises ends the process with an error.
        """

    def inaugurate(self, term: Term) -> None:
        """Do nothing; override it to load what the work needs."""

    def handOver(self, term: Term) -> None:  # noqa: N802  (the user's name)
        """Do nothing; override it to give back what :meth:`inaugurate` took."""

    def healthy(self) -> bool:
        """Return whether to go on leading. Asked on a thread of its own, every third of the session
        time-out; ``False``, an exception, or no answer in that time ends the term (*health*).
        """
        return True

    def _begin(self, term: Term) -> None:
        """For leaderq's own careers: runs before ``inaugurate``, even an overridden one."""

    def _finish(self, term: Term) -> None:
        """For leaderq's own careers: runs after ``handOver``, likewise."""

    def retire(self) -> None:
        """Close what :meth:`prepare` opened; called once, when the process stops standing."""


def career_name(career: ILeaderCareer | type[ILeaderCareer]) -> str:
    """The name under which a career stands: its ``name``, else its class name in kebab-case."""
    kind = career if isinstance(career, type) else type(career)
    return str(getattr(career, "name", None) or kebab_case(kind.__name__))


def kebab_case(class_name: str) -> str:
    """``ad-billing`` for ``AdBilling``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", class_name).lower()
