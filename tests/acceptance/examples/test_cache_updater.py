"""The cache updater, executed as its README says: what it saves is counted, and no page is left
stale.
"""

from __future__ import annotations

import re

import pytest
from following_readmes import EXAMPLES, commands

FOLDER = EXAMPLES / "cache_updater"


def saved(printed: str) -> tuple[int, int]:
    """Changes, and refreshes that ran for them."""
    changed = re.search(r"^pages changed +(\d+) times", printed, re.MULTILINE)
    ran = re.search(r"^refreshes that ran +(\d+):", printed, re.MULTILINE)
    assert changed, printed
    assert ran, printed
    return int(changed[1]), int(ran[1])


@pytest.mark.timeout(240)
def test_the_cache_updater_does_what_its_readme_says(reader, servers):
    install, refresh, _up, anna, bob = commands(FOLDER / "README.rst")
    assert install == "pip install 'leaderq[servers]'"
    user = reader(FOLDER)
    printed = user.types(refresh)
    changed, ran = saved(printed)
    assert changed == 8000
    assert ran < changed
    assert re.search(r"^stale pages +0$", printed, re.MULTILINE)

    user.environment |= servers
    terminals = [user.opens(command) for command in (anna, bob)]
    for name, terminal in zip(("anna", "bob"), terminals, strict=True):
        said = terminal.wait_for(
            rf"^{name}: 400 changes, (\d+) refreshes, (\d+) saved$", timeout_s=90
        )
        assert int(said[1]) + int(said[2]) == 400
        assert terminal.ended() == 0
