"""TLS towards Kafka, for kafka-python, with three of its omissions mended (3.0.12; each was met,
and has a test).

* It forgets the socket of each failed handshake, which stays open until the garbage collector comes
  by.
* It throws away what it has read from a connection that was closed right behind: a broker's "wrong
  password", usually.
* It reads the files of certificates at each attempt to connect, and takes a file that is missing or
  a wrong password of a key for a broker that does not answer. Here they are read once, and a fault
  is the user's. (Without a password, Python would ask for one on the terminal.)

A program may give kafka-python an SSL context of its own, and Python lets a context make sockets of
a class of its own.
"""

from __future__ import annotations

import ssl
from typing import Any

from leaderq.config import KafkaSecurity
from leaderq.errors import ConfigurationError


def tls_context(security: KafkaSecurity) -> ssl.SSLContext:
    """What kafka-python is to be given as ``ssl_context``: TLS 1.2 or newer, with the server's
    certificate checked.

    Raises :class:`~leaderq.errors.ConfigurationError` if a file cannot be read, or a key's password
    is wrong.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.sslsocket_class = _Socket
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = security.check_hostname
    try:
        if security.ca:
            context.load_verify_locations(security.ca)
        else:
            context.load_default_certs()
    except OSError as exc:
        raise ConfigurationError(f"kafka_ca={security.ca!r} cannot be used: {exc}; name a PEM file of certificates") from exc
    try:
        if security.cert:
            context.load_cert_chain(security.cert, security.key, password=security.key_password or "")
    except OSError as exc:
        raise ConfigurationError(
            f"kafka_cert={security.cert!r} with kafka_key={security.key!r} cannot be used: {exc}; "
            "name PEM files that belong together, and give the key's password if it has one"
        ) from exc
    return context


_AGAIN = (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError, InterruptedError)


class _Socket(ssl.SSLSocket):
    _has_given = False

    def do_handshake(self, block: bool = False) -> None:
        try:
            super().do_handshake(block)
        except _AGAIN:
            raise
        except BaseException:
            self.close()
            raise

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        """As ever, but the end of the stream, or an error, comes only once what was before it has
        been worked off.
        """
        given_before, self._has_given = self._has_given, False
        try:
            data = super().recv(buflen, flags)
        except _AGAIN:
            raise
        except OSError as exc:
            if given_before:
                raise ssl.SSLWantReadError("the error comes after the data") from exc
            raise
        if not data and given_before:
            raise ssl.SSLWantReadError("the end comes after the data")
        self._has_given = bool(data)
        return data


def tls_options(security: KafkaSecurity) -> dict[str, Any]:
    """The options of kafka-python's clients for TLS; empty where none is asked for."""
    return {"ssl_context": tls_context(security)} if security.protocol.endswith("SSL") else {}
