"""What is written of an item that failed: when other consumers may try it again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from leaderq import clock
from leaderq.queues.consuming import settling
from leaderq.queues.wire.payload import decode, encode
from leaderq.queues.wire.znodes import QueuePaths
from leaderq.zookeeper import Create, Delete


def claim(*, is_locking: bool = True) -> Any:
    paths = QueuePaths("/q", "/locks")
    membership = SimpleNamespace(
        paths=paths,
        is_locking=is_locking,
        writer=SimpleNamespace(limit=10_000, chroot_bytes=0),
    )
    return SimpleNamespace(
        membership=membership,
        name="queue-0000000007",
        data=encode([b"x"]),
        items=[b"x"],
        is_raw=False,
        failures=2,
        enqueued_ms=5,
        error=None,
    )


@pytest.mark.parametrize(("wait_s", "rests_until_ms"), [(2.5, 3_500), (0.0, None)])
def test_a_failed_item_rests_for_all_consumers_and_not_for_its_own_only(
    monkeypatch: pytest.MonkeyPatch, wait_s: float, rests_until_ms: int | None
) -> None:
    monkeypatch.setattr(clock, "now_ms", lambda: 1_000)
    settled = settling.requeued(claim(), [b"x"], wait_s)
    *removal, again = settled.operations
    assert removal == [Delete("/q/queue-0000000007"), Delete("/locks/queue-0000000007")]
    assert isinstance(again, Create)
    assert (again.path, again.sequential) == ("/q/queue-", True)
    found = decode(again.data)
    assert found.items == [b"x"]
    assert found.note is not None
    assert (found.note.attempt, found.note.not_before_ms) == (3, rests_until_ms)
    assert found.note.enqueued_ms == 5
