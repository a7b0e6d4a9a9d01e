"""What a click costs, in millionths of the currency: whole numbers, so that totals are exact."""

from __future__ import annotations

from .clicks import Click

PAGE = 200
FEED = 100
ASSET = 20
PER_KILOBYTE = 1

_ASSETS = (".css", ".js", ".png", ".jpg", ".gif", ".ico", ".txt")


def charge(click: Click) -> int:
    """A price for the kind of resource and one for each kilobyte begun; what failed is free."""
    if click.status >= 400:
        return 0
    path, _, query = click.resource.partition("?")
    kind = FEED if query.startswith("flav=") else ASSET if path.endswith(_ASSETS) else PAGE
    return kind + PER_KILOBYTE * -(-click.size // 1024)
