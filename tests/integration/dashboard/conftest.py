"""A session of the test's own root, whose requests are counted."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from leaderq.zookeeper import Session


@pytest.fixture
def counted(session: Session, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How many requests the session has made since this was last called."""
    count = [0]
    send_all = session._send_all

    def counting(requests, *more):
        count[0] += len(requests)
        return send_all(requests, *more)

    monkeypatch.setattr(session, "_send_all", counting)

    def since() -> int:
        made, count[0] = count[0], 0
        return made

    return since
