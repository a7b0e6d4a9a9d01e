"""Decides who may look and who may act, and prevents pages of other sites from acting for a user.

By default only this host can reach the port, and everybody who reaches it may look. On any other
address, a user signs in first. To act, a user needs ``--allow-actions`` and a token of his or her
own, so that the history has a name. A cookie, which scripts and other sites cannot read, tells
whose visit it is; each form also carries the visit's secret, and is refused if another origin sent
it. A request for an unexpected host name is refused, because anybody can make a name point here.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from leaderq.admin.actions import Action
from leaderq.base import chance, clock
from leaderq.errors import ConfigurationError

COOKIE = "leaderq_visit"
LASTS_S = 8 * 3600
_ASKED_AGAIN_S = 300.0
_LEAST_TOKEN = 16
_NAME = re.compile(r"[\w.@+-]{1,64}").fullmatch
_OWN_HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]"})
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src"
        " 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # with none at all, forms of our own have no origin
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def read_tokens(path: Path) -> dict[str, str]:
    """Read the users and their tokens from a file: each line is ``NAME TOKEN``; ``#`` begins a
    comment.

    :raises ConfigurationError: a line cannot be read; it names the line, and never a token.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigurationError(f"tokens cannot be read from {path}: {exc}") from exc
    tokens: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, token = [*line.strip().split(maxsplit=1), ""][:2]
        is_new = name not in tokens and token not in tokens.values()
        if not (_NAME(name) and is_new and len(token) >= _LEAST_TOKEN):
            remedy = f"write NAME TOKEN, each once, the token of {_LEAST_TOKEN} letters or more"
            raise ConfigurationError(f"line {number} of {path} is not a user's; {remedy}")
        tokens[name] = token
    if not tokens:
        raise ConfigurationError(f"{path} names no user; write a line NAME TOKEN for each")
    return tokens


@dataclass
class Visit:
    """A user who has signed in. ``secret`` is part of each form. ``asked``: the action that waits
    to be confirmed, its reason and its time, by the word that confirms it. The next page shows
    ``notice``.
    """

    user: str
    secret: str
    until_s: float
    asked: dict[str, tuple[Action, str, float]] = field(default_factory=dict)
    notice: str | None = None

    def ask(self, action: Action, why: str) -> str:
        """Keep ``action`` until it is confirmed; return the word that confirms it once."""
        word = chance.token_bytes(24).hex()
        self.asked = {word: (action, why, clock.now_s())}
        return word

    def confirmed(self, word: str) -> tuple[Action, str] | None:
        """The action that ``word`` confirms, and its reason; ``None`` if there is no such action,
        or if it was asked for more than five minutes ago.
        """
        action, why, at_s = self.asked.pop(word, (None, "", 0.0))
        is_late = clock.now_s() - at_s > _ASKED_AGAIN_S
        return None if action is None or is_late else (action, why)


@dataclass
class PageAccess:
    """Decides who may request the page. ``hosts``: the names, without port, by which it may be
    requested. ``tokens``: each user's token. ``is_local``: only this host can reach the port, so
    its own names are expected, too. If other hosts can reach it, users must sign in even to look.
    """

    hosts: frozenset[str] = frozenset()
    tokens: Mapping[str, str] = field(default_factory=dict)
    is_local: bool = True
    _visits: dict[str, Visit] = field(default_factory=dict)

    def is_expected(self, host: str) -> bool:
        """Whether the page may be requested by ``host``, the value of the header ``Host``."""
        name = re.sub(r":\d+$", "", host.lower())
        return name in (self.hosts | _OWN_HOSTS if self.is_local else self.hosts)

    def is_own(self, origin: str | None, fetched_from: str | None, host: str) -> bool:
        """Whether a form was sent by a page of ours, judged by ``Origin`` and
        ``Sec-Fetch-Site``.
        """
        if fetched_from is not None and fetched_from not in ("same-origin", "none"):
            return False
        try:
            return origin is None or urlsplit(origin).netloc.lower() == host.lower()
        except ValueError:  # no browser has sent it
            return False

    def sign_in(self, token: str) -> str | None:
        """Begin a visit, and return its cookie; ``None`` if no user has this token."""
        users = [
            user
            for user, own in self.tokens.items()
            if hmac.compare_digest(own.encode(), token.encode(errors="replace"))
        ]
        if not users:
            return None
        now_s = clock.now_s()
        self._visits = {key: one for key, one in self._visits.items() if one.until_s > now_s}
        cookie, secret = (chance.token_bytes(32).hex() for _ in range(2))
        self._visits[cookie] = Visit(users[0], secret, now_s + LASTS_S)
        return cookie

    def visit(self, cookie: str | None) -> Visit | None:
        """The visit with this cookie; ``None`` if there is none, or if it has expired."""
        found = self._visits.get(cookie or "")
        return found if found is not None and found.until_s > clock.now_s() else None

    def sign_out(self, cookie: str | None) -> None:
        self._visits.pop(cookie or "", None)
