"""Where the messages of a Dyno queue lie in ZooKeeper, and how they are named (pure).

A name is ``<priority:2>-<due ms:13>-<group:8>-<sequence:10>``: all that the order needs.
``docs/design/dyno.md`` lists all znodes, with the reasons.
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple
from urllib.parse import quote, unquote

from leaderq.errors import ConfigurationError
from leaderq.zookeeper.paths import join

NO_GROUP = "00000000"
MAX_DUE_MS = 10**13 - 1
MAX_PRIORITY = 99
MAX_ID_BYTES = 200
IDS, RESTS, MESSAGES = "ids", "rests", "messages"
PARTS = frozenset({"shards", IDS, "windows", "members", "pushes"})
"""What lies below the root of a queue."""
SHARD_PARTS = (MESSAGES, "claims", RESTS, "dead")
"""What must exist below a shard before it is used."""
_NAME = re.compile(r"(\d\d)-(\d{13})-([0-9a-f]{8})-(\d{10})", re.ASCII).fullmatch
_REST = re.compile(r"(\d{13})-(\d{1,10})-(\d\d-\d{13}-[0-9a-f]{8}-\d{10})", re.ASCII).fullmatch


class MessageName(NamedTuple):
    """The parts of a message's name."""

    priority: int
    due_ms: int
    group: str
    sequence: int


class RestName(NamedTuple):
    """The parts of a resting message's marker; ``version`` is that of its claim."""

    until_ms: int
    version: int
    name: str


def name_prefix(priority: int, due_ms: int, group: str = NO_GROUP) -> str:
    """The beginning of a new message's name; the server appends the sequence."""
    return f"{priority:02}-{min(due_ms, MAX_DUE_MS):013}-{group}-"


def parsed_name(text: str) -> MessageName | None:
    """Parse the name of a message; ``None`` if ``text`` is not one."""
    said = _NAME(text)
    return None if said is None else MessageName(int(said[1]), int(said[2]), said[3], int(said[4]))


def rest_name(until_ms: int, version: int, name: str) -> str:
    """The name of the marker of a message that rests until ``until_ms``."""
    return f"{min(max(until_ms, 0), MAX_DUE_MS):013}-{version}-{name}"


def parsed_rest(text: str) -> RestName | None:
    """Parse the name of a marker; ``None`` if ``text`` is not one."""
    found = _REST(text)
    return None if found is None else RestName(int(found[1]), int(found[2]), found[3])


def kept_until_ms(data: bytes) -> int | None:
    """Until when the id of a done message stays reserved, in ms; ``None`` if its message is not
    done.
    """
    return int(data[1:]) if data[:1] == b"=" and data[1:].isdigit() and len(data) < 20 else None


def group_of(group: str | None) -> str:
    """The group as it stands in a name: a hash. Two groups with the same hash wait for
    each other.
    """
    if group is None:
        return NO_GROUP
    digest = hashlib.blake2s(group.encode(), digest_size=4).hexdigest()
    return digest if digest != NO_GROUP else "00000001"


def escaped(text: str) -> str:
    """Escape an id or a shard's name, so that it can be one part of a path.

    :raises ConfigurationError: the text is empty, or longer than 200 bytes.
    """
    raw = quote(text, safe=" ,;:=@+!$&'()*", errors="surrogatepass")
    if not text or len(raw) > MAX_ID_BYTES:
        raise ConfigurationError(
            f"{text!r:.300} cannot name a message or shard; give 1 to {MAX_ID_BYTES} bytes, where a"
            " letter outside ASCII counts 6 to 12"
        )
    return raw.replace(".", "%2E") if text.strip(".") == "" else raw


def unescaped(part: str) -> str | None:
    """The text for which :func:`escaped` returns ``part``; ``None`` if there is no such text: the
    znode is not one of leaderq's.
    """
    try:
        text = unquote(part, errors="surrogatepass")
        return text if escaped(text) == part else None
    except (UnicodeDecodeError, ConfigurationError):
        return None


class ShardPaths:
    """The znodes of one shard. ``parents``: the znodes that must exist before the shard is used."""

    def __init__(self, root: str, shard: str) -> None:
        self.shard = shard
        self.base = base = join(root, f"shards/{escaped(shard)}")
        self.messages = f"{base}/{MESSAGES}"
        self.claims = f"{base}/claims"
        self.rests = f"{base}/{RESTS}"
        self.dead = f"{base}/dead"
        self.parents = tuple(f"{base}/{part}" for part in SHARD_PARTS)

    def message(self, name: str) -> str:
        return f"{self.messages}/{name}"

    def claim(self, name: str) -> str:
        return f"{self.claims}/{name}"

    def rest(self, marker: str) -> str:
        return f"{self.rests}/{marker}"

    def dead_letter(self, name: str) -> str:
        return f"{self.dead}/{name}"


class DynoPaths:
    """The znodes of one queue."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.shards = join(root, "shards")
        self.ids = join(root, IDS)
        self.windows = join(root, "windows")
        self.members = join(root, "members")
        self.pushes = join(root, "pushes")
        self._of_shard: dict[str, ShardPaths] = {}

    def window(self, until_ms: int, id: str) -> str:
        """The path of the znode that says that ``id`` is reserved until ``until_ms``."""
        return f"{self.windows}/{until_ms:013}-{escaped(id)}"

    def id(self, id: str) -> str:
        return f"{self.ids}/{escaped(id)}"

    def shard(self, shard: str) -> ShardPaths:
        known = self._of_shard.get(shard)
        if known is None:
            known = self._of_shard[shard] = ShardPaths(self.root, shard)
        return known
