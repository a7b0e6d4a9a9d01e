"""From settings to a ZooKeeper session: the one place where the command line opens one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaderq.config import Settings

if TYPE_CHECKING:
    from pathlib import Path

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
    return Security(
        user=settings.zookeeper_user,
        password=settings.zookeeper_password,
        mechanism=_MECHANISMS[settings.zookeeper_auth],
        tls=settings.zookeeper_tls,
        ca=_text(settings.zookeeper_ca),
        cert=_text(settings.zookeeper_cert),
        key=_text(settings.zookeeper_key),
        key_password=settings.zookeeper_key_password,
        verify=settings.zookeeper_verify,
        check_hostname=settings.zookeeper_check_hostname,
    )


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)
