"""``leaderq dashboard``: serves a page about careers, queues and schedules."""

from __future__ import annotations

import ipaddress
import re
import signal
from functools import partial
from pathlib import Path

import click

from leaderq.cli.connecting import SHOWN_QUEUES, connected
from leaderq.cli.options import CONNECTION, Given, number, switch, verb
from leaderq.cli.output import say
from leaderq.config import Section
from leaderq.errors import ConfigurationError, MissingPiece
from leaderq.observability.logging import configure

_IS_HOST = re.compile(r"[a-z0-9._-]+|\[[0-9a-f:.]+\]", re.IGNORECASE).fullmatch


def _as_address(ctx: click.Context, param: click.Parameter, value: str) -> tuple[str, int]:
    host, _, port = value.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise click.BadParameter(f"{value!r} is not HOST:PORT", ctx, param)
    return host.strip("[]"), int(port)


@verb(
    click.Option(
        ["--bind"],
        default="127.0.0.1:8090",
        show_default=True,
        metavar="HOST:PORT",
        callback=_as_address,
        help="where to listen; port 0: any that is free",
    ),
    SHOWN_QUEUES,
    switch("--allow-actions", help="also pause, transfer, send back and the like; needs --tokens"),
    click.Option(
        ["--tokens"],
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="who may sign in: a line NAME TOKEN for each; tokens have 16 letters or more",
    ),
    click.Option(
        ["--host-name", "host_names"],
        multiple=True,
        metavar="NAME",
        help="a name by which browsers ask for the page, if not localhost",
    ),
    switch("--show-payloads", help="show what items hold, their first sixty letters"),
    number("--every", "SECONDS between two readings", least=0.5, most=60.0, default=2.0),
    Section.CAREER,
    *CONNECTION,
    hidden=("career",),
)
def dashboard(given: Given) -> None:
    """Serve a page that shows careers (those in trouble first, with the reasons), the terms of one
    career on a time axis, queues with their dead letters, and schedules.

    By default the page is read-only, and only this host can reach it. If it listens on another
    address, users must sign in even to look. Needs the extra leaderq[dashboard].

    ZooKeeper is read only while somebody looks, once for all viewers.

    \b
    Examples:
      leaderq dashboard
      leaderq dashboard --queue /orders --queue /jobs/ --show-payloads
      leaderq dashboard --allow-actions --tokens tokens.txt
    """
    host, port = given.bind
    is_local = host == "localhost" or _is_loopback(host)
    for name in given.host_names:
        if not _IS_HOST(name):
            remedy = "give it as browsers send it, in ASCII, without scheme, port and path"
            raise ConfigurationError(f"--host-name: {name!r} is not the name of a host; {remedy}")
    if given.allow_actions and given.tokens is None:
        raise ConfigurationError("--allow-actions needs --tokens FILE: whoever acts signs in")
    if not is_local and not (given.tokens and given.host_names):
        raise ConfigurationError(
            f"others can reach {host}; give --tokens FILE, for signing in, and --host-name NAME, by"
            " which browsers ask for the page"
        )
    try:
        from leaderq.dashboard.serving import Dashboard, PageServer
    except ImportError as exc:
        needed = str(exc.name).partition(".")[0]
        raise MissingPiece(f"the page needs {needed}: pip install 'leaderq[dashboard]'") from exc
    from leaderq.admin.actions import carry_out
    from leaderq.admin.snapshot import reading
    from leaderq.dashboard.access import PageAccess, read_tokens
    from leaderq.dashboard.refresher import Refresher
    from leaderq.dashboard.screens import ScreenOptions
    from leaderq.observability.http import listening_on

    tokens = read_tokens(given.tokens) if given.tokens else {}
    access = PageAccess(frozenset(map(str.lower, given.host_names)), tokens, is_local)
    options = ScreenOptions(given.allow_actions, given.show_payloads, given.every)
    listener = listening_on(host, port, "--bind")
    with listener, connected(given) as session:
        configure("text", "warning")  # what was done, by whom; and that nothing can be read
        shown = f"[{host}]" if ":" in host else host
        say(f"http://{shown}:{listener.getsockname()[1]}/")
        root = given.settings.root
        refresher = Refresher(reading(session, root, given.queues), given.every)
        page = Dashboard(refresher, partial(carry_out, session, root), access, options)
        for one in (signal.SIGINT, signal.SIGTERM):  # uvicorn raises them again when it has ended
            signal.signal(one, lambda *_: None)
        refresher.start()
        PageServer(page, refresher).run(sockets=[listener])


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
