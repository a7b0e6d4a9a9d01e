"""Lines for an access log: read from a file, or made up with the skew of a real one.

Measured on 8,000 lines of a real web server's log: 1,423 clients, the busiest with 381 requests
(4.8 %); 1,365 resources, the hottest with 623 hits (7.8 %); about 280 kB a request. Zipf's law with
the exponents below gives the same shares.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from itertools import accumulate, cycle, islice
from pathlib import Path

CLIENTS, CLIENT_EXPONENT = 1423, 0.745
RESOURCES, RESOURCE_EXPONENT = 1365, 0.855

_STATUSES = (200, 304, 301, 404)
_STATUS_WEIGHTS = (90, 5, 2, 3)
_KINDS = (
    "/images/banner-{}.png",
    "/articles/{}/",
    "/style-{}.css",
    "/blog/tags/{}?flav=rss20",
    "/projects/{}/",
)
_BEGAN = datetime(2015, 5, 17, 10, 5, tzinfo=timezone.utc)


def generated(count: int, *, seed: int = 1) -> Iterator[str]:
    """``count`` lines; the same for the same ``seed``, on every machine."""
    rng = random.Random(seed)
    clients, client_weights = _ranked([_address(rank) for rank in range(CLIENTS)], CLIENT_EXPONENT)
    resources, resource_weights = _ranked(
        [_KINDS[rank % 5].format(rank) for rank in range(RESOURCES)], RESOURCE_EXPONENT
    )
    for index in range(count):
        client = rng.choices(clients, cum_weights=client_weights)[0]
        resource = rng.choices(resources, cum_weights=resource_weights)[0]
        status = rng.choices(_STATUSES, _STATUS_WEIGHTS)[0]
        size = int(rng.expovariate(1 / 280_000)) if status == 200 else 0
        moment = _BEGAN + timedelta(seconds=index // 3)
        yield (
            f'{client} - - [{moment:%d/%b/%Y:%H:%M:%S %z}] "GET {resource} HTTP/1.1" {status}'
            f' {size} "-" "Mozilla/5.0"'
        )


def read(path: Path, count: int | None = None) -> Iterator[str]:
    """The lines of ``path``; repeated until there are ``count``, if that is given."""
    lines = [line for line in path.read_text(errors="replace").splitlines() if line.strip()]
    if not lines:
        raise ValueError(f"{path} has no lines")
    return iter(lines) if count is None else islice(cycle(lines), count)


def client_of(line: str) -> str:
    """Who asked: the first field."""
    return line.split(" ", 1)[0]


def _ranked(names: list[str], exponent: float) -> tuple[list[str], list[float]]:
    return names, list(accumulate((rank + 1) ** -exponent for rank in range(len(names))))


def _address(rank: int) -> str:
    # Scattered, so that neighbours in rank are not neighbours in the ledger; never the same twice
    # (odd factor).
    mixed = (rank * 40_503 + 12_345) % 65_536
    return f"10.{rank % 7}.{mixed // 256}.{mixed % 256}"
