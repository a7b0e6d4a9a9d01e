"""Opens the session of a verb, and finds the careers, candidates and queues that the verb is about;
also while a shell completes their names.

Completion must never disturb the person who types: it leaves out what it cannot find within two
seconds, and says nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from fnmatch import fnmatchcase
from getpass import getuser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from leaderq.base import host
from leaderq.cli.options import Given, meant
from leaderq.cli.output import quiet
from leaderq.config import Settings
from leaderq.config.settings import BY_NAME
from leaderq.errors import ConfigurationError

if TYPE_CHECKING:
    from leaderq.election import Operator
    from leaderq.zookeeper import Security, Session

    Completer = Callable[[click.Context, click.Parameter, str], list[str]]

_MECHANISMS = {"none": "digest", "digest": "digest", "sasl": "DIGEST-MD5"}
_FILES = ("ca", "cert", "key", "key_password")
_SECURITY = ("user", "password", "tls", *_FILES, "verify", "check_hostname")
_COMPLETED_WITHIN_S = 2.0
_LISTED = 20


def open_session(settings: Settings) -> Session:
    """Return a started session, for a ``with`` block that closes it.

    :raises ServersUnreachable: no server answered within ``connect_timeout_s``.
    """
    from leaderq.zookeeper import connect  # importing kazoo costs what --help should not

    return connect(
        settings.zookeeper,
        timeout_s=settings.session_timeout_s,
        connect_timeout_s=settings.connect_timeout_s,
        security=zookeeper_security(settings),
        tick_s=settings.tick_s,
    )


def zookeeper_security(settings: Settings) -> Security | None:
    """The credentials and TLS settings for ZooKeeper; ``None`` if the settings have neither."""
    from leaderq.zookeeper import Security

    if settings.zookeeper_auth == "none" and not settings.zookeeper_tls:
        return None
    values: dict[str, Any] = {}
    for name in _SECURITY:
        value = getattr(settings, f"zookeeper_{name}")
        values[name] = str(value) if isinstance(value, Path) else value
    return Security(mechanism=_MECHANISMS[settings.zookeeper_auth], **values)


@contextmanager
def connected(given: Given) -> Iterator[Session]:
    settings = given.settings
    quiet()
    with open_session(settings) as session:
        yield session


@contextmanager
def operator(given: Given, *, must_be_known: bool = True) -> Iterator[Operator]:
    """An operator of the career that is named. With ``must_be_known``, a candidate must have stood
    for the career before. If the verb has ``--reason``, the history keeps who asks, and why.
    """
    settings = given.settings
    career = named_career(settings)
    with connected(given) as session:
        from leaderq.election import Operator

        if must_be_known:
            known_career(session, settings)
        why = vars(given).get("reason")
        by = None if why is None else user_here()
        yield Operator(session, career, root=settings.root, by=by, why=why or "")


def user_here() -> str:
    """The user of this process, as the history names operators: ``user@host``."""
    try:
        return f"{getuser()}@{host.name()}"
    except (KeyError, OSError):  # a user without a name, in a container
        return f"uid-{os.getuid()}@{host.name()}"


def named_career(settings: Settings) -> str:
    """Return the name of the career, for a verb that needs one.

    :raises ConfigurationError: no career is named.
    """
    if settings.career is None:
        raise ConfigurationError(
            "no career is named; give --career NAME, or set LEADERQ_CAREER (leaderq status lists"
            " careers)"
        )
    return settings.career


def known_career(session: Session, settings: Settings) -> str:
    """Return the name of the career that the settings name. Raises ``ConfigurationError`` if they
    name none, or if nobody has ever stood for it: then the name may be mistyped.
    """
    career, careers = named_career(settings), _careers(session, settings)
    if career not in careers:
        known = f"known: {', '.join(careers[:_LISTED])}" if careers else "no career is known there"
        if len(careers) > _LISTED:
            known += f" and {len(careers) - _LISTED} more, which leaderq status lists"
        raise ConfigurationError(
            f"nobody has ever stood for career {career!r} below {settings.root} at"
            f" {settings.zookeeper}; {meant(career, careers, known)}"
        )
    return career


def known_careers(session: Session, settings: Settings) -> list[str]:
    """Return every known career; if the setting ``career`` is set, only that one, or those that
    match it as a pattern.

    :raises ConfigurationError: the career is not known, or no career matches.
    """
    pattern = settings.career
    careers = _careers(session, settings)
    if pattern is None:
        return careers
    if pattern in careers or not set(pattern) & set("*?["):
        return [known_career(session, settings)]
    if found := [one for one in careers if fnmatchcase(one, pattern)]:
        return found
    what = f"no career below {settings.root} matches {pattern!r}"
    raise ConfigurationError(f"{what}; leaderq status lists careers")


def _careers(session: Session, settings: Settings) -> list[str]:
    from leaderq.election import Observer

    return Observer.careers(session, root=settings.root)


def _candidates(session: Session, settings: Settings) -> list[str]:
    from leaderq.election import Observer

    return list(Observer(session, str(settings.career), root=settings.root).view().candidates)


def _completer(ask: Callable[[Session, Settings], list[str]]) -> Completer:
    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
        flags = {
            name: value
            for name, value in ctx.params.items()
            if name.removesuffix("_file") in BY_NAME
        }
        quiet()
        try:
            settings = Given(flags, ctx.params.get("config")).settings
            within_s = min(_COMPLETED_WITHIN_S, settings.connect_timeout_s)
            with open_session(replace(settings, connect_timeout_s=within_s)) as session:
                return [one for one in ask(session, settings) if one.startswith(incomplete)]
        except Exception:  # noqa: BLE001  (the person who types is told nothing)
            return []

    return complete


def queues(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete a queue's path: return the znodes below the path typed so far, except side data of
    queues.
    """
    parent = incomplete.rpartition("/")[0]

    def below(session: Session, _: Settings) -> list[str]:
        names = sorted(session.children(parent or "/"))
        return [f"{parent}/{name}" for name in names if not name.endswith("-meta")]

    return _completer(below)(ctx, param, incomplete)


def _career_option(help: str) -> click.Option:
    return click.Option(
        ["--career"],
        metavar="NAME",
        help=f"{help}  [env var: LEADERQ_CAREER]",
        shell_complete=_completer(_careers),
    )


ONE_CAREER = _career_option("the career; required")
SOME_CAREER = _career_option("only this career, or those that match, like 'team-*'; else all")
candidates: Completer = _completer(_candidates)
"""Completes the id of a candidate of the career typed so far."""


def _as_patterns(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    from leaderq.zookeeper.paths import validated_path

    for value in values:
        validated_path(value.removesuffix("/") or "/")
    return values or ("/",)


SHOWN_QUEUES = click.Option(
    ["--queue", "queues"],
    multiple=True,
    metavar="PATH",
    callback=_as_patterns,
    help="a queue to show; one that ends in a slash stands for the queues directly below it"
    " that leaderq has used; may be repeated  [default: /]",
)
