"""What settings demand of each other, as a table: which ones, when that is broken, and what to do.

A relation is looked at only when all its settings are fit by themselves, so that one mistake is reported once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Values = Mapping[str, Any]


@dataclass(frozen=True)
class Relation:
    """``broken`` says whether the values of ``names`` contradict each other; the first name is where the user is sent."""

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
    Relation(
        ("zookeeper_user", "zookeeper_auth"),
        lambda user, auth: user is not None and auth == "none",
        "is not used while zookeeper_auth is 'none'; set zookeeper_auth to digest or sasl",
    ),
    Relation(
        ("zookeeper_password", "zookeeper_auth"),
        lambda password, auth: password is not None and auth == "none",
        "is not used while zookeeper_auth is 'none'; set zookeeper_auth to digest or sasl",
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
        Relation((f"{server}_cert", f"{server}_key"), _one_of_two, f"goes together with {server}_key; set both or neither")
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
        "is off, and zookeeper_ca is of no use then; leave one of them out",
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
        "is shorter than cool_off_s, the pause after a single failure; make it at least as long",
    ),
)


def broken_relations(values: Values, unfit: Collection[str]) -> Iterator[tuple[str, str]]:
    """The setting to mention and the sentence, for each relation that does not hold among ``values``."""
    for relation in RELATIONS:
        if not any(name in unfit for name in relation.names) and relation.broken(*(values[name] for name in relation.names)):
            yield relation.names[0], relation.sentence
