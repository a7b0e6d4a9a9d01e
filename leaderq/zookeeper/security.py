"""The credentials of a session, and the encryption of its connection.

kazoo and ssl are loaded only when they are used, so that the guardian, which may need neither,
stays small.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leaderq.base.arguments import require
from leaderq.errors import ConfigurationError, MissingPiece

if TYPE_CHECKING:
    import ssl

    from kazoo.security import ACL

DIGEST = "digest"
_SASL = ("DIGEST-MD5", "PLAIN", "CRAM-MD5", "GSSAPI")


@dataclass(frozen=True, slots=True)
class Credentials:
    """The id and password of a session, with which :func:`~leaderq.zookeeper.end_session` ends it.
    ``password`` is a secret: pass it through a pipe, never on a command line, in a log or on disk.
    """

    session_id: int
    password: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """Credentials and encryption of a session. Passwords are not in the repr.

    ``mechanism`` is ``"digest"`` (ZooKeeper's own ``addauth``, the default) or one of SASL's:
    ``DIGEST-MD5``, ``GSSAPI``, ``PLAIN``, ``CRAM-MD5`` (extra ``leaderq[sasl]``). GSSAPI uses the
    ticket cache of the process and needs no password. TLS is on with ``tls=True``, or when ``ca``
    or ``cert`` is given (paths of PEM files); ``verify`` checks the server's certificate,
    ``check_hostname`` also checks its name.

    *Guarantees:* only the same credentials can use znodes that were created with credentials (ACL
    *creator all*), unless ``open_acl``.
    *Not guaranteed:* that a wrong ``digest`` password is refused at once: ZooKeeper accepts any
    password, and then denies access to the znodes.
    """

    user: str | None = None
    password: str | None = field(default=None, repr=False)
    mechanism: str = DIGEST
    service: str = "zookeeper"
    principal: str | None = None
    tls: bool = False
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    key_password: str | None = field(default=None, repr=False)
    verify: bool = True
    check_hostname: bool = True
    open_acl: bool = False

    @property
    def uses_tls(self) -> bool:
        return self.tls or self.ca is not None or self.cert is not None

    @property
    def uses_sasl(self) -> bool:
        return self.mechanism != DIGEST

    @property
    def has_credentials(self) -> bool:
        return self.user is not None or self.mechanism == "GSSAPI"

    def auth_data(self) -> list[tuple[str, str]]:
        """The ``addauth`` data that kazoo sends."""
        if self.uses_sasl or self.user is None:
            return []
        return [(DIGEST, f"{self.user}:{self.password or ''}")]

    def sasl_options(self) -> dict[str, Any] | None:
        """The options for pure-sasl. Each call returns a new dict, because kazoo adds to it."""
        if not self.uses_sasl:
            return None
        options: dict[str, Any] = {"mechanism": self.mechanism, "service": self.service}
        given = {"username": self.user, "password": self.password, "principal": self.principal}
        return options | {name: value for name, value in given.items() if value is not None}

    def acl(self) -> list[ACL]:
        """The ACL for znodes that are created with these credentials."""
        from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

        is_closed = self.has_credentials and not self.open_acl
        return list(CREATOR_ALL_ACL if is_closed else OPEN_ACL_UNSAFE)

    def ssl_context(self) -> ssl.SSLContext | None:
        """Read the TLS files and return the settings; ``None`` without TLS.

        :raises ConfigurationError: a file is missing or cannot be used.
        """
        if not self.uses_tls:
            return None
        import ssl

        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH)
        context.check_hostname = self.verify and self.check_hostname
        context.verify_mode = ssl.CERT_REQUIRED if self.verify else ssl.CERT_NONE
        try:
            if self.ca is not None:
                context.load_verify_locations(self.ca)
            if self.cert is not None:
                context.load_cert_chain(self.cert, self.key, self.key_password)
        except (OSError, ValueError) as exc:
            files = f"ca={self.ca!r} cert={self.cert!r} key={self.key!r}"
            raise ConfigurationError(f"TLS files {files} cannot be used: {exc}") from exc
        return context

    def validate(self) -> None:
        """Find all problems before any connection is tried.

        :raises ConfigurationError: there are some; it names all of them.
        :raises MissingPiece: SASL is asked for and pure-sasl is not installed.
        """
        require(*self._problems())
        if self.uses_sasl and importlib.util.find_spec("puresasl") is None:
            needed = f"SASL mechanism {self.mechanism} needs pure-sasl"
            raise MissingPiece(f"{needed}: pip install 'leaderq[sasl]'")

    def _problems(self) -> list[str]:
        problems = []
        mechanism = f"mechanism {self.mechanism!r}"
        if self.uses_sasl and self.mechanism not in _SASL:
            known = ", ".join(_SASL)
            problems.append(f"security {mechanism} is unknown; use 'digest' or one of {known}")
        if self.password is not None and self.user is None:
            problems.append("a ZooKeeper password is given without a user; give both")
        if self.uses_sasl and self.mechanism != "GSSAPI" and None in (self.user, self.password):
            problems.append(f"SASL {mechanism} needs a user and a password")
        if self.mechanism == DIGEST and ":" in (self.user or ""):
            problem = "contains ':', which separates it from the password"
            problems.append(f"ZooKeeper user {self.user!r} {problem}")
        if self.key is not None and self.cert is None:
            problems.append("a TLS key is given without its certificate; give cert too")
        for name, path in (("ca", self.ca), ("cert", self.cert), ("key", self.key)):
            if path is not None and not Path(path).is_file():
                problems.append(f"TLS file {name}={path!r} does not exist or is not a file")
        return problems


NO_SECURITY = Security()
