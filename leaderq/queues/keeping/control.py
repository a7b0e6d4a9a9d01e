"""An operator's wish that the consumers of a queue pause: ``{"paused": true}`` at ``<path>-meta/control``.

Persistent, so it also holds for consumers that come later. Consumers of leaderq heed it; Java's do not know of it.
"""

from __future__ import annotations

import json
from typing import Any

from leaderq.errors import BadVersion, NodeExists, NoNode, RequestRefused
from leaderq.queues.keeping.perseverance import PATIENCE_S, answered
from leaderq.queues.places import Places
from leaderq.zookeeper import Session
from leaderq.zookeeper.paths import parent_of

_TRIES = 10


def wants_pause(data: bytes) -> bool:
    """Whether the control znode's data asks consumers to pause (pure); what cannot be read asks for nothing."""
    return _wishes(data).get("paused") is True


def is_paused(session: Session, places: Places, *, patience_s: float = PATIENCE_S) -> bool:
    """Whether an operator wants the consumers to pause."""
    try:
        return wants_pause(answered(session, lambda: session.get(places.control), patience_s)[0])
    except NoNode:
        return False


def set_paused(session: Session, places: Places, paused: bool, *, patience_s: float = PATIENCE_S) -> bool:
    """Write the wish; gives whether that changed anything. Other wishes stay as they are.

    :raises RequestRefused: others write there all the time.
    """
    for _ in range(_TRIES):
        changed = answered(session, lambda: _try(session, places.control, paused), patience_s)
        if changed is not None:
            return changed
    raise RequestRefused(f"{places.control} is written by others all the time; try again")


def _try(session: Session, path: str, paused: bool) -> bool | None:
    """One attempt; ``None`` if somebody wrote first."""
    try:
        data, stat = session.get(path)
        if wants_pause(data) is paused:
            return False
        session.set(path, _encoded({**_wishes(data), "paused": paused}), stat.version)
    except BadVersion:
        return None
    except NoNode:
        if not paused:
            return False
        return _made(session, path)
    return True


def _made(session: Session, path: str) -> bool | None:
    try:
        session.ensure_path(parent_of(path))
        session.create(path, _encoded({"paused": True}))
    except (NodeExists, NoNode):
        return None
    return True


def _encoded(wishes: dict[str, Any]) -> bytes:
    return json.dumps(wishes).encode()


def _wishes(data: bytes) -> dict[str, Any]:
    try:
        said = json.loads(data)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}
