"""What settings demand of each other: a table of the settings, when they conflict, what to do.

A relation is checked only if each of its settings is valid by itself, so that one mistake is
reported once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

TOKENS = "OAUTHBEARER"
Values = Mapping[str, Any]
Uses = Callable[[Any], bool]


@dataclass(frozen=True)
class Relation:
    """``broken`` tells whether the values of ``names`` conflict. The user is sent to the first."""

    names: tuple[str, ...]
    broken: Callable[..., bool]
    sentence: str


def _logs_in(protocol: str) -> bool:
    return protocol.startswith("SASL")


def _unused(names: str, other: str, uses: Uses, sentence: str) -> Iterator[Relation]:
    """Each of ``names`` may be set only if ``uses`` says so of the value of ``other``."""
    for name in names.split():
        yield Relation((name, other), lambda own, use: own is not None and not uses(use), sentence)


def _key_pair(server: str) -> Iterator[Relation]:
    cert, key, password = f"{server}_cert", f"{server}_key", f"{server}_key_password"
    sentence = f"goes together with {key}; set both or neither"
    yield Relation((cert, key), lambda *both: both.count(None) == 1, sentence)
    sentence = f"is the password of {key}, which is not set; set it too"
    yield from _unused(password, key, lambda path: path is not None, sentence)


RELATIONS = (
    Relation(
        ("zookeeper_auth", "zookeeper_user", "zookeeper_password"),
        lambda auth, *login: auth != "none" and None in login,
        "needs zookeeper_user and zookeeper_password; set both",
    ),
    *_unused(
        "zookeeper_user zookeeper_password",
        "zookeeper_auth",
        lambda auth: auth != "none",
        "is not used while zookeeper_auth is 'none'; set zookeeper_auth to digest or sasl",
    ),
    *_unused(
        "zookeeper_ca zookeeper_cert zookeeper_key zookeeper_key_password",
        "zookeeper_tls",
        bool,
        "is not used while zookeeper_tls is off; turn zookeeper_tls on",
    ),
    *_key_pair("zookeeper"),
    *_key_pair("kafka"),
    Relation(
        ("zookeeper_verify", "zookeeper_ca"),
        lambda verify, ca: not verify and ca is not None,
        "is off, so zookeeper_ca is not used; leave one of them out",
    ),
    Relation(
        ("kafka_protocol", "kafka_mechanism", "kafka_user", "kafka_password"),
        lambda protocol, *login: _logs_in(protocol) and None in login and login[0] != TOKENS,
        "needs kafka_mechanism, kafka_user and kafka_password; set all three",
    ),
    *_unused(
        "kafka_mechanism kafka_user kafka_password",
        "kafka_protocol",
        _logs_in,
        "is used with SASL only; set kafka_protocol to SASL_SSL (or SASL_PLAINTEXT)",
    ),
    *_unused(
        "kafka_user kafka_password",
        "kafka_mechanism",
        lambda mechanism: mechanism != TOKENS,
        f"is not used with kafka_mechanism {TOKENS!r}; leave it out",
    ),
    *_unused(
        "kafka_ca kafka_cert kafka_key kafka_key_password",
        "kafka_protocol",
        lambda protocol: str(protocol).endswith("SSL"),
        "is used with encryption only; set kafka_protocol to SSL or SASL_SSL",
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
        mine = [values[name] for name in relation.names if name not in invalid]
        if len(mine) == len(relation.names) and relation.broken(*mine):
            yield relation.names[0], relation.sentence
