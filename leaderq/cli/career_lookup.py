"""Which careers there are in ZooKeeper, and the one that a verb is about."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from leaderq.config import Settings
from leaderq.errors import ConfigurationError

if TYPE_CHECKING:
    from leaderq.election import View
    from leaderq.zookeeper import Session


def named_career(settings: Settings) -> str:
    """The career of a verb that must be told one; raises :class:`~leaderq.errors.ConfigurationError`."""
    if settings.career is None:
        raise ConfigurationError(
            "no career is named; give --career NAME, or set LEADERQ_CAREER (leaderq status lists careers)"
        )
    return settings.career


def known_career(session: Session, settings: Settings) -> str:
    """As :func:`named_career`, and somebody must have stood for it, so that a slip of the pen changes nothing."""
    from leaderq.election import Observer

    career = named_career(settings)
    careers = Observer.careers(session, root=settings.root)
    if career not in careers:
        near = difflib.get_close_matches(career, careers, n=1)
        known = f"known: {', '.join(careers)}" if careers else "nobody has stood for any career there"
        raise ConfigurationError(
            f"nobody has ever stood for career {career!r} below {settings.root} at {settings.zookeeper}; "
            + (f"did you mean {near[0]!r}?" if near else known)
        )
    return career


def views(session: Session, settings: Settings) -> list[View]:
    """The view of the career that is set, else of every career there is."""
    from leaderq.election import Observer

    careers = [settings.career] if settings.career else Observer.careers(session, root=settings.root)
    return [Observer(session, career, root=settings.root).view() for career in careers]
