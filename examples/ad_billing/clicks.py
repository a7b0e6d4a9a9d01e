"""One line of an access log, in Apache's combined format, as a click."""

from __future__ import annotations

import re
from typing import NamedTuple

_LINE = re.compile(
    r'^(?P<client>\S+) \S+ \S+ \[[^]]*\] "(?P<request>[^"]*)" (?P<status>\d{3})'
    r" (?P<size>\d{1,15}|-)(?!\d)"
)


class Click(NamedTuple):
    """Who asked for what, and what was sent: ``size`` in bytes."""

    client: str
    resource: str
    status: int
    size: int


def parse(line: str) -> Click | None:
    """The click in ``line``; ``None`` if it is not a line of an access log."""
    found = _LINE.match(line)
    if found is None:
        return None
    method_and_resource = found["request"].split(" ")
    resource = method_and_resource[1] if len(method_and_resource) > 1 else "-"
    size = 0 if found["size"] == "-" else int(found["size"])
    return Click(found["client"], resource, int(found["status"]), size)
