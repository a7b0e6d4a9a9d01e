"""Which pages change, in order: the pages of an access log, or made up with the skew of a real
one.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import accumulate, islice
from pathlib import Path

from saving import requests

PAGES = 1365
EXPONENT = 0.855
"""Of Zipf's law; with this one the hottest of 1,365 pages has 7.8 % of the requests, as in a real
log.
"""


def changes(log: str | None, count: int) -> Iterator[str]:
    """The first ``count`` pages of the log at ``log``, or so many made up."""
    return _made_up(count) if log is None else _read(Path(log), count)


def _read(path: Path, count: int) -> Iterator[str]:
    with path.open(encoding="utf-8") as lines:
        yield from (page for _, page in islice(requests(lines), count))


def _made_up(count: int) -> Iterator[str]:
    chance = random.Random(1)
    weights = list(accumulate((rank + 1) ** -EXPONENT for rank in range(PAGES)))
    yield from chance.choices(
        [f"/articles/{rank}/" for rank in range(PAGES)], cum_weights=weights, k=count
    )
