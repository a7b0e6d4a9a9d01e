"""What settings demand of each other: a table of the settings, when they conflict, what to do.

A relation is checked only if each of its settings is valid by itself, so that one mistake is
reported once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Values = Mapping[str, Any]


@dataclass(frozen=True)
class Relation:
    """``broken`` tells whether the values of ``names`` conflict. The user is sent to the first."""

    names: tuple[str, ...]
    broken: Callable[..., bool]
    sentence: str


def _logs_in(protocol: str) -> bool:
    return protocol.startswith("SASL")


def _encrypts(protocol: str) -> bool:
    return protocol.endswith("SSL")


def _one_of_two(first: Any, second: Any) -> bool:
    return (first is None) != (second is None)


RELATIONS = (
    Relation(
        ("zookeeper_auth", "zookeeper_user", "zookeeper_password"),
        lambda auth, user, password: auth != "none" and (user is None or password is None),
        "needs zookeeper_user and zookeeper_password; set both",
    ),
    *(
        Relation(
            (name, "zookeeper_auth"),
            lambda value, auth: value is not None and auth == "none",
            "is not used while zookeeper_auth is 'none'; set zookeeper_auth to digest or sasl",
        )
        for name in ("zookeeper_user", "zookeeper_password")
    ),
    *(
        Relation(
            (name, "zookeeper_tls"),
            lambda value, tls: value is not None and not tls,
            "is not used while zookeeper_tls is off; turn zookeeper_tls on",
        )
        for name in ("zookeeper_ca", "zookeeper_cert", "zookeeper_key", "zookeeper_key_password")
    ),
    *(
        Relation(
            (f"{server}_cert", f"{server}_key"),
            _one_of_two,
            f"goes together with {server}_key; set both or neither",
        )
        for server in ("zookeeper", "kafka")
    ),
    *(
        Relation(
            (f"{server}_key_password", f"{server}_key"),
            lambda password, key: password is not None and key is None,
            f"is the password of {server}_key, which is not set; set it too",
        )
        for server in ("zookeeper", "kafka")
    ),
    Relation(
        ("zookeeper_verify", "zookeeper_ca"),
        lambda verify, ca: not verify and ca is not None,
        "is off, so zookeeper_ca is not used; leave one of them out",
    ),
    Relation(
        ("kafka_protocol", "kafka_mechanism", "kafka_user", "kafka_password"),
        lambda protocol, *login: _logs_in(protocol) and None in login,
        "needs kafka_mechanism, kafka_user and kafka_password; set all three",
    ),
    *(
        Relation(
            (name, "kafka_protocol"),
            lambda value, protocol: value is not None and not _logs_in(protocol),
            "is used with SASL only; set kafka_protocol to SASL_SSL (or SASL_PLAINTEXT)",
        )
        for name in ("kafka_mechanism", "kafka_user", "kafka_password")
    ),
    *(
        Relation(
            (name, "kafka_protocol"),
            lambda value, protocol: value is not None and not _encrypts(protocol),
            "is used with encryption only; set kafka_protocol to SSL or SASL_SSL",
        )
        for name in ("kafka_ca", "kafka_cert", "kafka_key", "kafka_key_password")
    ),
    Relation(
        ("yield_s", "cool_off_s"),
        lambda yielding, cooling: yielding < cooling,
        "is shorter than cool_off_s, the pause after one failure; make it at least as long",
    ),
)


def broken_relations(values: Values, invalid: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield the setting to name and the sentence, for each relation that ``values`` break."""
    for relation in RELATIONS:
        if any(name in invalid for name in relation.names):
            continue
        if relation.broken(*(values[name] for name in relation.names)):
            yield relation.names[0], relation.sentence
