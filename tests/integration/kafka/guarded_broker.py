"""One broker with a listener for each way to be guarded, and who may come in by which."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from certificates import SELF_SIGNED, run_openssl
from kafka.admin import KafkaAdminClient, ScramMechanism, UserScramCredentialUpsertion
from kafka.net.sasl.oauth import AbstractTokenProvider

from leaderq.config import KafkaSecurity
from leaderq.kafka.topics import check_reachable
from leaderq.testing import KafkaBroker, eventually

USER, PASSWORD, KEY_PASSWORD = "biller", "right-secret", "key-secret"
LISTENERS = {
    "TLS": "SSL",
    "MUTUAL": "SSL",  # clients show a certificate
    "ELSEWHERE": "SSL",  # its certificate names another host
    "PLAIN": "SASL_PLAINTEXT",
    "SCRAM": "SASL_SSL",
    "OAUTH": "SASL_PLAINTEXT",
}
PLAIN_USERS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'username="admin" password="admin-secret" user_admin="admin-secret" user_{USER}="{PASSWORD}";'
)


class Certificates:
    """An authority, what it has signed, and an authority that nobody knows; all are PEM files in
    ``folder``.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("ca", "unknown-ca", "stranger"):
            pair = ("-keyout", self.key(name), "-out", self.certificate(name))
            run_openssl(*SELF_SIGNED, "-subj", f"/CN={name}", *pair)
        self._sign("server", "subjectAltName=DNS:localhost,IP:127.0.0.1")
        self._sign("elsewhere", "subjectAltName=DNS:elsewhere.example")
        self._sign("client", "extendedKeyUsage=clientAuth")
        pair = ("-in", self.key("client"), "-out", self.key("client-locked"))
        run_openssl("pkcs8", "-topk8", *pair, "-passout", f"pass:{KEY_PASSWORD}")

    def key(self, name: str) -> Path:
        return self.folder / f"{name}.key"

    def certificate(self, name: str) -> Path:
        return self.folder / f"{name}.crt"

    def both(self, name: str) -> Path:
        """Key and certificate in one file, as a broker wants them."""
        path = self.folder / f"{name}.pem"
        path.write_text(self.key(name).read_text() + self.certificate(name).read_text())
        return path

    def _sign(self, name: str, extension: str) -> None:
        request, extensions = self.folder / f"{name}.csr", self.folder / f"{name}.ext"
        extensions.write_text(extension + "\n")
        run_openssl(
            *("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}"),
            *("-keyout", self.key(name), "-out", request),
        )
        run_openssl(
            *("x509", "-req", "-in", request, "-days", "2", "-CA", self.certificate("ca")),
            *("-CAkey", self.key("ca"), "-CAcreateserial", "-extfile", extensions),
            *("-out", self.certificate(name)),
        )


def unsigned_token() -> tuple[str, float]:
    """A token that a broker without a token endpoint takes, and when it expires."""
    until_s = time.time() + 3600
    # a broker refuses what seems to come from the future, by a fraction of a millisecond too
    issued_s = time.time() - 60
    claims = {"sub": USER, "iat": issued_s, "exp": until_s}
    parts = [json.dumps(part).encode() for part in ({"alg": "none"}, claims)]
    coded = [base64.urlsafe_b64encode(part).decode().rstrip("=") + "." for part in parts]
    return "".join(coded), until_s


class Tokens(AbstractTokenProvider):
    def token(self) -> str:
        return unsigned_token()[0]


TOKENS: Mapping[str, Mapping[str, Any]] = {
    "kafka-python": {"sasl_oauth_token_provider": Tokens()},
    "confluent": {"oauth_cb": lambda _config: unsigned_token()},
}
"""``client_options`` that let a career in by tokens."""


class Guarded:
    """The running broker; ``way_in(listener)`` is what its clients need."""

    def __init__(self, folder: Path) -> None:
        self.certificates = Certificates(folder)
        self.broker = KafkaBroker(listeners=LISTENERS, properties=self._properties())

    def start(self) -> Guarded:
        self.broker.start()
        credential = UserScramCredentialUpsertion(USER, ScramMechanism.SCRAM_SHA_512, PASSWORD)
        with closing(KafkaAdminClient(bootstrap_servers=self.broker.address)) as admin:
            assert admin.alter_user_scram_credentials([credential]) == {USER: None}
        way_in = self.address_of("SCRAM"), self.way_in("SCRAM"), 10.0
        eventually(lambda: check_reachable(*way_in) is None)
        return self

    def address_of(self, listener: str) -> str:
        return self.broker.address_of(listener)

    def way_in(self, listener: str) -> KafkaSecurity:
        protocol, ca = LISTENERS[listener], str(self.certificates.certificate("ca"))
        security = KafkaSecurity(protocol=protocol)
        if protocol.startswith("SASL"):
            mechanism = {"PLAIN": "PLAIN", "OAUTH": "OAUTHBEARER"}.get(listener, "SCRAM-SHA-512")
            security = replace(security, mechanism=mechanism)
            if listener != "OAUTH":
                security = replace(security, user=USER, password=PASSWORD)
        if protocol.endswith("SSL"):
            security = replace(security, ca=ca)
        if listener == "MUTUAL":
            key = str(self.certificates.key("client-locked"))
            cert = str(self.certificates.certificate("client"))
            security = replace(security, cert=cert, key=key, key_password=KEY_PASSWORD)
        return security

    def _properties(self) -> Mapping[str, str]:
        properties = {
            "listener.name.mutual.ssl.client.auth": "required",
            "listener.name.plain.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.plain.plain.sasl.jaas.config": PLAIN_USERS,
            "listener.name.oauth.sasl.enabled.mechanisms": "OAUTHBEARER",
            "listener.name.oauth.oauthbearer.sasl.jaas.config": (
                "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
                'unsecuredLoginStringClaim_sub="admin";'
            ),
            "listener.name.scram.sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.scram.scram-sha-512.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
        }
        for listener, protocol in LISTENERS.items():
            if protocol.endswith("SSL"):
                shown = "elsewhere" if listener == "ELSEWHERE" else "server"
                stores = {
                    "keystore": self.certificates.both(shown),
                    "truststore": self.certificates.certificate("ca"),
                }
                for store, path in stores.items():
                    name = f"listener.name.{listener.lower()}.ssl.{store}"
                    properties |= {f"{name}.type": "PEM", f"{name}.location": str(path)}
        return properties
