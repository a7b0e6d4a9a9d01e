"""The znodes of a key: any text or bytes as part of a znode's name (pure).

::

    <root>/<key>~0, <root>/<key>~1     the two slots; data = the name of the token that took the slot
    <root>/<key>~<32 hex digits>       a token, one to each slot that is taken; data = who, for operators

All are ephemeral and side by side: ephemeral znodes have no children, and so nothing of a key is left when nobody works
on it.

``<key>`` is ``s-`` (text) or ``b-`` (bytes) and the key, with every byte but letters, digits, ``.``, ``_`` and ``-`` as
``%XX``: two keys never share a name, and operators can read most of them. A longer one than 160 characters becomes ``S-``
or ``B-``, the SHA-256 of the whole key, and its beginning.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from hashlib import sha256
from urllib.parse import quote_from_bytes

from leaderq.errors import ConfigurationError
from leaderq.zookeeper.paths import join, validated_path

LONGEST = 160
"""Characters of the longest key that stands in a name as it is, encoded."""
_SHOWN = 60
_SAFE = "-._"
_TOKEN = re.compile(r".+~[0-9a-f]{32}")
_SLOT = re.compile(r"(.+)~[01]")


def encoded(key: str | bytes) -> str:
    """A name for ``key``: different keys have different names.

    :raises ConfigurationError: it is neither text nor bytes.
    """
    if isinstance(key, str):
        kind, raw = "s", key.encode("utf-8", "surrogatepass")
    elif isinstance(key, (bytes, bytearray, memoryview)):
        kind, raw = "b", bytes(key)
    else:
        raise ConfigurationError(
            f"key {key!r} is of type {type(key).__name__}; give text or bytes, which mean the same to every process"
        )
    name = quote_from_bytes(raw, safe=_SAFE).replace("~", "%7E")
    if len(name) <= LONGEST:
        return f"{kind}-{name}"
    return f"{kind.upper()}-{sha256(raw).hexdigest()}-{name[:_SHOWN]}"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a key's znodes are."""

    root: str
    name: str

    @classmethod
    def of(cls, root: str, key: str | bytes) -> Place:
        """The place of ``key`` below ``root``."""
        return cls(root, encoded(key))

    def slot(self, number: int) -> str:
        """The path of slot 0 or 1."""
        return join(self.root, f"{self.name}~{number}")

    def token(self, name: str) -> str:
        """The path of a token, by the name that stands in its slot."""
        return join(self.root, name)

    def new_token(self) -> str:
        """A name that no token ever had, or will have: what is checked by it is never checked by mistake."""
        return f"{self.name}~{uuid.uuid4().hex}"

    def owns(self, token: str) -> bool:
        """Whether ``token`` is a token's name of this key."""
        return token.startswith(f"{self.name}~") and _TOKEN.fullmatch(token) is not None


def key_of_slot(name: str) -> str | None:
    """The encoded key of a slot's name; ``None`` if it is no slot."""
    found = _SLOT.fullmatch(name)
    return None if found is None else found[1]


def validated_root(root: str) -> str:
    """``root`` itself.

    :raises ConfigurationError: it is no path, or the root of all znodes.
    """
    if not isinstance(root, str):
        raise ConfigurationError(f"root {root!r} is no text; give the path of a znode, such as '/coalescing'")
    if validated_path(root) == "/":
        raise ConfigurationError("root '/' would fill the top of ZooKeeper with slots; give a znode, such as '/coalescing'")
    return root
