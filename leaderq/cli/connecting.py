"""From settings to a ZooKeeper session, and to the careers that a verb is about."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leaderq.cli.options import Given
from leaderq.cli.output import quiet
from leaderq.config import Settings
from leaderq.errors import ConfigurationError

if TYPE_CHECKING:
    from leaderq.election import Operator, View
    from leaderq.zookeeper import Security, Session

_MECHANISMS = {"none": "digest", "digest": "digest", "sasl": "DIGEST-MD5"}


def open_session(settings: Settings) -> Session:
    """A started session; closed at the end of the ``with`` block.

    Raises :class:`~leaderq.errors.ServersUnreachable` after ``connect_timeout_s``.
    """
    from leaderq.zookeeper import connect  # importing kazoo costs what --help should not

    return connect(
        settings.zookeeper,
        timeout_s=settings.session_timeout_s,
        connect_timeout_s=settings.connect_timeout_s,
        security=zookeeper_security(settings),
    )


def zookeeper_security(settings: Settings) -> Security | None:
    """What ZooKeeper must be told and shown; ``None`` for a server that takes everybody."""
    from leaderq.zookeeper import Security

    if settings.zookeeper_auth == "none" and not settings.zookeeper_tls:
        return None
    names = (
        "user",
        "password",
        "tls",
        "ca",
        "cert",
        "key",
        "key_password",
        "verify",
        "check_hostname",
    )
    values: dict[str, Any] = {name: getattr(settings, f"zookeeper_{name}") for name in names}
    paths = {name: str(value) for name, value in values.items() if isinstance(value, Path)}
    return Security(mechanism=_MECHANISMS[settings.zookeeper_auth], **values | paths)


def named_career(settings: Settings) -> str:
    """The career of a verb that must be told one; raises
    :class:`~leaderq.errors.ConfigurationError`.
    """
    if settings.career is None:
        raise ConfigurationError(
            "no career is named; give --career NAME, or set LEADERQ_CAREER (leaderq status lists"
            " careers)"
        )
    return settings.career


def known_career(session: Session, settings: Settings) -> str:
    """As :func:`named_career`, and somebody must have stood for it, so that a slip of the pen
    changes nothing.
    """
    from leaderq.election import Observer

    career = named_career(settings)
    careers = Observer.careers(session, root=settings.root)
    if career not in careers:
        near = difflib.get_close_matches(career, careers, n=1)
        known = (
            f"known: {', '.join(careers)}" if careers else "nobody has stood for any career there"
        )
        raise ConfigurationError(
            f"nobody has ever stood for career {career!r} below {settings.root} at"
            f" {settings.zookeeper}; " + (f"did you mean {near[0]!r}?" if near else known)
        )
    return career


def views(session: Session, settings: Settings) -> list[View]:
    """The view of the career that is set, which must be known, else of every career there is."""
    from leaderq.election import Observer

    named = [known_career(session, settings)] if settings.career else None
    careers = named or Observer.careers(session, root=settings.root)
    return [Observer(session, career, root=settings.root).view() for career in careers]


@contextmanager
def connected(given: Given, *, one_career: bool = False) -> Iterator[tuple[Session, Settings]]:
    """A session and the settings; with ``one_career`` it refuses before connecting if none is
    named.
    """
    settings = given.load().settings
    if one_career:
        named_career(settings)
    quiet()
    with open_session(settings) as session:
        yield session, settings


@contextmanager
def operator(given: Given, *, must_be_known: bool = True) -> Iterator[Operator]:
    """An operator of the career that is named, and that somebody must have stood for."""
    with connected(given, one_career=True) as (session, settings):
        from leaderq.election import Operator

        career = known_career(session, settings) if must_be_known else named_career(settings)
        yield Operator(session, career, root=settings.root)
