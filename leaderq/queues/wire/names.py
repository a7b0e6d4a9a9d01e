r"""How Curator 5.x names the items of its queues, byte for byte (pure).

===========  ===============================  ====================================================
kind         name (n: ten digits)             order
===========  ===============================  ====================================================
plain        ``queue-``\ n                    by number
id           ``queue-|id|``\ n                by number; the id takes no part
priority     ``queue-``\ P\ n, P 9 characters  by priority, lower first, then by number
delay        ``queue-|``\ hex ms\ ``|``\ n     by due time, then by number (in Curator: any)
simple       ``qn-``\ n                       by number
===========  ===============================  ====================================================

The server appends n, a signed 32-bit counter of the znodes ever created there, as ``%010d``: ten
digits or, once it has run over, a minus sign and nine or ten. When Java requeues an item of a
priority or delay queue, it names it plain ``queue-``\ n, without its priority or due time; like
Curator we let it go before all others.

Names that begin otherwise are *foreign*: nobody consumes or deletes them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any

from leaderq.errors import ConfigurationError


class QueueKind(Enum):
    """A recipe, by the names of its items; the value is the word that the command line uses."""

    PLAIN = "plain"
    ID = "id"
    PRIORITY = "priority"
    DELAY = "delay"
    SIMPLE = "simple"


ITEM_PREFIX = "queue-"
SIMPLE_PREFIX = "qn-"
MIN_PRIORITY, MAX_PRIORITY = -(2**31), 2**31 - 1
LAST_SEQUENCE = 2**31 - 1
_SEPARATOR = "|"
# The dash that ends "queue-" or "qn-" is not a minus sign.
_SEQUENCE = re.compile(r"(?:(?<!^queue)(?<!^qn)-[0-9]{9,10}|[0-9]{10})$")
_TAIL = r"(?:[0-9]{10}|-[0-9]{9,10})"
_PRIORITY = re.compile(rf"{ITEM_PREFIX}(?:1[0-7]|0[89A-F])[0-9A-F]{{7}}{_TAIL}").fullmatch
_DUE = re.compile(rf"{ITEM_PREFIX}\|([0-9A-F]{{8,15}})\|({_TAIL})").fullmatch
_REFUSED = re.compile("[\0-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]").findall
_JAVA_HEX = re.compile(r"[+-]?[0-9A-Fa-f]+").fullmatch
_MAX_DUE_MS = 2**63 - 1
_LAST = 2**63


def prefix_for(
    kind: QueueKind,
    *,
    id: str | None = None,
    priority: int | None = None,
    due_ms: int | None = None,
) -> str:
    """What a new item's name begins with; the server appends the number.

    :raises ConfigurationError: an id, priority or time that Curator's format cannot carry.
    """
    if kind is QueueKind.ID:
        return f"{ITEM_PREFIX}{_SEPARATOR}{fixed_id(id)}{_SEPARATOR}"
    if kind is QueueKind.PRIORITY:
        return ITEM_PREFIX + _priority_text(priority)
    if kind is QueueKind.DELAY:
        return f"{ITEM_PREFIX}{_SEPARATOR}{_due_text(due_ms)}{_SEPARATOR}"
    return SIMPLE_PREFIX if kind is QueueKind.SIMPLE else ITEM_PREFIX


def fixed_id(id: str | None) -> str:
    """The id as it is in a name: ``/`` and ``|`` become ``_``.

    :raises ConfigurationError: it is empty, no text, or holds characters that ZooKeeper refuses in
        a name.
    """
    if not (id and isinstance(id, str)):
        raise ConfigurationError(f"id={id!r:.100}: an item of an id queue needs an id, a text")
    fixed = id.replace("/", "_").replace(_SEPARATOR, "_")
    if bad := ", ".join(map(ascii, sorted(set(_REFUSED(fixed))))):
        raise ConfigurationError(f"id {id!r} holds {bad}, which ZooKeeper refuses in a name")
    return fixed


def is_item(kind: QueueKind, name: str) -> bool:
    """Whether a child of the queue's path is an item; any other is foreign, and left alone."""
    return name.startswith(SIMPLE_PREFIX if kind is QueueKind.SIMPLE else ITEM_PREFIX)


def sequence_of(name: str) -> int:
    """The number that the server appended to a name; 0 for a name without one."""
    found = _SEQUENCE.search(name, max(0, len(name) - 11))
    return int(found[0]) if found else 0


def prefix_of(name: str) -> str:
    """The name without the server's number. A requeued item keeps it: id, priority, due time."""
    found = _SEQUENCE.search(name, max(0, len(name) - 11))
    return name[: found.start()] if found else name


def id_of(name: str) -> str:
    """The fixed id in a name: the text between the first two ``|``, else the whole name."""
    parts = name.split(_SEPARATOR, 2)
    return parts[1] if len(parts) == 3 else name


def priority_of(name: str) -> int | None:
    """The priority in a name; ``None`` for one without (requeued by Java)."""
    if not _PRIORITY(name):
        return None
    value = int(name[7:15], 16)
    return value - 2**32 if name[6] == "0" else value


def due_ms_of(name: str) -> int:
    """The due time in a name, in ms since the epoch; 0 (due at once) for a name without one."""
    parts = name.rsplit(_SEPARATOR, 2)
    # Python's int() would take more: "0x10", "1_0", " 1"
    if len(parts) < 3 or not _JAVA_HEX(parts[1]):
        return 0
    due_ms = int(parts[1], 16)
    return due_ms if -_MAX_DUE_MS - 1 <= due_ms <= _MAX_DUE_MS else 0


def sort_key(kind: QueueKind) -> Callable[[str], Any]:
    """The key for sorting the items of a queue in the order in which they go."""
    return _SORT_KEYS[kind]


def kind_of(names: Iterable[str]) -> QueueKind | None:
    """Which recipe put these items, as far as names tell; ``None`` if there is no item among
    them.

    An id queue whose ids all look like hexadecimal times cannot be told from a delay queue, and is
    taken for one.
    """
    found = {_kind_of_one(name) for name in names} - {None}
    if not found:
        return None
    if QueueKind.SIMPLE in found and len(found) > 1:
        raise ConfigurationError(
            "items of a simple queue and of another recipe lie under one path; say which kind is"
            " meant"
        )
    # Java's requeued items of any kind look plain.
    for kind in (QueueKind.ID, QueueKind.DELAY, QueueKind.PRIORITY, QueueKind.SIMPLE):
        if kind in found:
            return kind
    return QueueKind.PLAIN


def _kind_of_one(name: str) -> QueueKind | None:
    if name.startswith(SIMPLE_PREFIX):
        return QueueKind.SIMPLE
    if not name.startswith(ITEM_PREFIX):
        return None
    if _DUE(name):
        return QueueKind.DELAY
    if name.count(_SEPARATOR) >= 2:
        return QueueKind.ID
    return QueueKind.PRIORITY if _PRIORITY(name) else QueueKind.PLAIN


def _priority_text(priority: int | None) -> str:
    if (
        isinstance(priority, bool)
        or not isinstance(priority, int)
        or not MIN_PRIORITY <= priority <= MAX_PRIORITY
    ):
        wanted = f"give a whole number from {MIN_PRIORITY} to {MAX_PRIORITY}"
        raise ConfigurationError(f"priority={priority!r}: {wanted}")
    return f"{'1' if priority >= 0 else '0'}{priority & 0xFFFFFFFF:08X}"


def _due_text(due_ms: int | None) -> str:
    if isinstance(due_ms, bool) or not isinstance(due_ms, int) or not 0 < due_ms <= _MAX_DUE_MS:
        raise ConfigurationError(f"due time {due_ms!r} is not milliseconds since 1970, above 0")
    return f"{due_ms:08X}"


def _simple_key(name: str) -> int:
    try:
        return int(name[len(SIMPLE_PREFIX) :])
    except ValueError:
        return _LAST  # as in Curator, where letters come after digits


def _id_key(name: str) -> str:
    """The sort key of an id queue's item: as in Curator, its name with the id cut out."""
    parts = name.split(_SEPARATOR, 2)
    return parts[0] + parts[2] if len(parts) == 3 else name


def _delay_key(name: str) -> int:
    """The sort key of a delay queue's item: due time and number as one whole number, because tuples
    would take three times as long.
    """
    # Ten digits of a malformed name may be more than the server's counter holds.
    number = max(-LAST_SEQUENCE - 1, min(sequence_of(name), LAST_SEQUENCE))
    return (due_ms_of(name) << 32) + number


_SORT_KEYS: dict[QueueKind, Callable[[str], Any]] = {
    QueueKind.PLAIN: str,
    QueueKind.ID: _id_key,
    QueueKind.PRIORITY: str,
    QueueKind.DELAY: _delay_key,
    QueueKind.SIMPLE: _simple_key,
}


def next_number(cversion: int, num_children: int) -> int:
    """The number that the server will give to the next child, which is how many it ever created.

    ZooKeeper reports ``cversion`` as twice that, less the present children, in 32 bits that run
    over after 2^30 creates; the sum undoes both.
    """
    return (cversion + num_children) % 2**32 // 2
