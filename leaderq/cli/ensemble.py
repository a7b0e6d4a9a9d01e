"""Checks, for ``leaderq doctor``, whether ZooKeeper's servers are such that leases hold.

:mod:`leaderq.zookeeper.proof` says what a lease depends on, and why the servers' tick counts. A
server tells everybody its mode (``srvr``), unless that is forbidden. It tells its tick only where
the word ``conf`` or the AdminServer is allowed. Nothing is changed, and no secret is sent.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import ssl
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Any

from leaderq.base.timeouts import Deadline
from leaderq.cli.finding import Finding, Verdict
from leaderq.errors import ConfigurationError, LeaderqError
from leaderq.threads import Service
from leaderq.zookeeper.proof import Shares

if TYPE_CHECKING:
    from leaderq.zookeeper import Session

ADMIN_PORT = 8080
_WITHIN_S = 1.0
_ALL_S = 5.0
"""For all servers together: three questions each, of which every read may take a second."""
_LONGEST = 1 << 20
_FAILED, _ADVICE, _OK = Verdict.FAILED, Verdict.ADVICE, Verdict.OK
_MODES = {
    "leader": "leads",
    "follower": "follows",
    "observer": "observes",
    "standalone": "is alone",
}
_HOW_TO_TELL = (
    "allow the word conf (4lw.commands.whitelist=srvr,conf) or its AdminServer"
    f" (port {ADMIN_PORT}), or look for tickTime in zoo.cfg"
)


@dataclass(frozen=True)
class ServerView:
    """The facts that one server tells about itself. ``mode``: ``""`` if it does not say; ``None``
    if it does not answer. ``tick_s``, ``least_s``: its ``tickTime`` and ``minSessionTimeout``, in
    seconds; ``None`` if it does not say. ``ours``: the doctor's session is connected to this
    server.
    """

    address: str
    mode: str | None = ""
    tick_s: float | None = None
    least_s: float | None = None
    ours: bool = False


# ---- asking -------------------------------------------------------------------------------------


def ensemble_of(session: Session, tls: ssl.SSLContext | None) -> list[ServerView]:
    """Ask each server that ``session`` may connect to; return what they have said within some
    seconds.
    """
    ours = _connected_to(session)
    servers = list(dict.fromkeys(session.resolved_servers))
    views = {at: ServerView(_address(*at), mode=None) for at in servers}

    def ask_one(at: tuple[str, int], _: Service) -> None:
        views[at] = view_of(*at, tls)

    # Each on a thread: a server that answers byte by byte, as a stopped one may, is left behind.
    asking = [Service("leaderq-doctor", partial(ask_one, at)) for at in servers]
    for one in asking:
        one.start()
    deadline = Deadline(_ALL_S)
    for one in asking:
        one.stop(deadline.remaining_s)
    return [replace(views[at], ours=at == ours) for at in servers]


def _address(ip: str, port: int) -> str:
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"


def view_of(ip: str, port: int, tls: ssl.SSLContext | None = None) -> ServerView:
    """Ask the server at this address about itself."""
    address = _address(ip, port)
    stated, told = ask(ip, port, "srvr", tls), ask(ip, port, "conf", tls)
    if stated is None:
        return ServerView(address, mode=None)
    mode = stated.partition("Mode:")[2].partition("\n")[0].strip()
    values = dict(line.partition("=")[::2] for line in (told or "").splitlines())
    tick, least = values.get("tickTime"), values.get("minSessionTimeout")
    if tick is None:
        admin = _ask_admin(ip)
        tick, least = admin.get("tick_time"), admin.get("min_session_timeout")
    return ServerView(address, mode, _seconds(tick), _seconds(least))


def roles_of(session: Session) -> list[str]:
    """``participant`` or ``observer`` for each server of the ensemble; empty if this session may
    not read it.
    """
    if "/" in session.address:
        return []  # what is above a chroot cannot be read
    try:
        configured = session.get("/zookeeper/config")[0].decode(errors="replace")
    except LeaderqError:
        return []
    return re.findall(r"^server\.\d+=.*?:(participant|observer)\b", configured, re.MULTILINE)


def ask(ip: str, port: int, word: str, tls: ssl.SSLContext | None = None) -> str | None:
    """The answer to a four-letter word; ``None`` if there is none."""
    answer = b""
    with suppress(OSError, ValueError), ExitStack() as stack:
        plain = stack.enter_context(socket.create_connection((ip, port), timeout=_WITHIN_S))
        connection = plain if tls is None else stack.enter_context(tls.wrap_socket(plain))
        connection.sendall(word.encode())
        while (piece := connection.recv(65536)) and len(answer) < _LONGEST:
            answer += piece
    return answer.decode(errors="replace") or None


def _ask_admin(ip: str) -> dict[str, Any]:
    asked = http.client.HTTPConnection(ip, ADMIN_PORT, timeout=_WITHIN_S)
    try:
        asked.request("GET", "/commands/configuration")
        found = json.loads(asked.getresponse().read(_LONGEST))
    except (OSError, ValueError, http.client.HTTPException):
        return {}
    finally:
        asked.close()
    return found if isinstance(found, dict) else {}


def _seconds(milliseconds: object) -> float | None:
    try:
        seconds = int(str(milliseconds)) / 1000
    except (ValueError, OverflowError):
        return None
    return seconds if seconds > 0 else None


def _connected_to(session: Session) -> tuple[str, int] | None:
    """The address of the server that ``session`` is connected to: the one of its servers to which a
    socket of this process leads. ``None`` if there is none, or if the system lists no sockets.
    """
    servers = session.resolved_servers
    with suppress(OSError):
        for descriptor in os.listdir("/proc/self/fd"):  # noqa: PTH208  (numbers, not paths)
            with suppress(OSError), socket.socket(fileno=os.dup(int(descriptor))) as ours:
                peer = ours.getpeername()[:2]
                if peer in servers:
                    return servers[servers.index(peer)]
    return None


# ---- judging (pure) -----------------------------------------------------------------------------


def judge_servers(views: Sequence[ServerView], roles: Sequence[str] = ()) -> Iterator[Finding]:
    """Yield who leads the servers, who follows, and who does not answer. ``roles``: those of the
    whole ensemble.
    """
    shown = [f"{one.address} {_MODES.get(one.mode or '', one.mode)}" for one in views if one.mode]
    if mute := [one.address for one in views if one.mode == ""]:
        shown.append(f"{', '.join(mute)}: not said (srvr is not in 4lw.commands.whitelist)")
    if ours := [one for one in views if one.ours and len(views) > 1]:
        shown.append(f"this session is with {ours[0].address}")
    voting, observing = roles.count("participant"), roles.count("observer")
    if voting:
        observers = f" and {observing} observe" if observing else ""
        shown.append(f"{voting} servers vote{observers}, {len(views)} are in our address")
    if shown:
        yield Finding("ensemble", _OK, "; ".join(shown))
    if silent := [one.address for one in views if one.mode is None]:
        detail = f"no answer from {', '.join(silent)}; is a server down?"
        yield Finding("ensemble", _ADVICE, detail)
    if voting and voting % 2 == 0:
        detail = f"of {voting} voting servers no more may fail than of {voting - 1}"
        yield Finding("ensemble", _ADVICE, detail)


def judge_tick(
    views: Sequence[ServerView], timeout_s: float, configured_s: float | None
) -> Iterator[Finding]:
    """Yield whether T (``timeout_s``, which was granted) and the servers' tick satisfy what the
    proof of a lease needs. ``configured_s`` is the setting ``tick_s``.
    """
    ticks = [one.tick_s for one in views if one.tick_s is not None]
    answering = [one for one in views if one.mode is not None]
    if not ticks:
        yield _of_unknown_tick(timeout_s, configured_s)
        return
    tick_s = max(ticks)  # any of them may come to lead, and its tick counts then
    least = [one.least_s for one in views if one.least_s is not None]
    told = f"{tick_s:g} s" if len({*ticks}) == 1 else f"{min(ticks):g} to {tick_s:g} s"
    if len(ticks) < len(answering):
        told += f" (of {len(ticks)} of {len(answering)} servers)"
    facts = f"{told}; T is {timeout_s:g} s, {timeout_s / tick_s:.3g} ticks"
    if least:
        facts += f"; minSessionTimeout is {max(least):g} s"
    if timeout_s < 2 * tick_s:
        yield _wrong(
            f"{facts}: a lease could outlive its session; session_timeout_s must be at least"
            f" {2 * tick_s:g}"
        )
    elif configured_s is not None and configured_s < tick_s - 0.0005:
        yield _wrong(
            f"{facts}: with tick_s = {configured_s:g} a lease could outlive its session; set"
            f" tick_s = {tick_s:g}"
        )
    else:
        yield _of_margin(facts, Shares(timeout_s, configured_s), Shares(timeout_s, tick_s))


def spare_s(shares: Shares) -> float:
    """How many seconds the servers may stall before a term is lost.

    Beats come at even intervals, and each beat proves what was sent ``beats`` intervals earlier.
    When a stall begins, the last proof is up to one interval old; after the stall, the next proof
    comes within one interval.
    """
    beats = ceil(shares.known_s / shares.beat_s)
    return shares.trusted_s - (beats + 1) * shares.beat_s


def _of_unknown_tick(timeout_s: float, configured_s: float | None) -> Finding:
    facts = f"no server tells its tick: {_HOW_TO_TELL}"
    if configured_s is None:
        spare = f"taken to be {timeout_s / 2:g} s at most, half of T"
        return Finding("tick", _OK, f"{spare}; {facts}, and set tick_s to last longer stalls")
    detail = f"tick_s = {configured_s:g} cannot be checked: {facts}. If it is longer, two may lead"
    return Finding("tick", _ADVICE, detail)


def _of_margin(facts: str, taken: Shares, possible: Shares) -> Finding:
    spare = f"a stall of {max(0.0, spare_s(taken)):.1f} s between servers costs no term"
    if taken.tick_s is None or spare_s(taken) < spare_s(possible) - 0.05:
        spare += f"; with tick_s = {possible.tick_s:g} it would be {spare_s(possible):.1f} s"
    if spare_s(taken) < taken.timeout_s / 12:
        how = "a longer session_timeout_s, or a shorter tick, leaves more"
        return Finding("tick", _ADVICE, f"{facts}; {spare}: {how}")
    return Finding("tick", _OK, f"{facts}; {spare}")


def _wrong(detail: str) -> Finding:
    error: LeaderqError = ConfigurationError(detail)
    return Finding("tick", _FAILED, detail, error)
