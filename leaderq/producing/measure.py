"""How many bytes a request takes, roughly, when nobody has to turn it into bytes."""

from __future__ import annotations

import sys
from typing import Any


def measured(request: Any) -> int:
    """Bytes of a ``bytes`` or ``str``, of the parts of a container; of other objects what Python says of the object
    alone."""
    if isinstance(request, bytes | bytearray | str):
        return len(request)
    if isinstance(request, tuple | list):
        return sum(map(measured, request)) + 8 * len(request)
    if isinstance(request, dict):
        return sum(measured(key) + measured(value) for key, value in request.items())
    return sys.getsizeof(request)
