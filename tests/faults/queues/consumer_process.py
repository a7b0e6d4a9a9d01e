"""A consumer in a process of its own: ``python consumer_process.py NAME ADDRESS HISTORY``.

Takes one item after the other from ``/q`` with the lock path ``/q-locks``; acknowledges each together with a znode ``/done/VALUE``, which
can be created once only. Appends to HISTORY, one JSON object a line in one write: ``begun``, and then ``done`` or ``refused``.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

from leaderq.errors import ClaimLost, LeaderqError, NodeExists
from leaderq.queues.consumers import ConsumeOptions
from leaderq.queues.consuming import Consumption, Item
from leaderq.queues.wire.names import QueueKind
from leaderq.queues.wire.znodes import QueuePaths
from leaderq.zookeeper import Create, connect

WORK_S = 0.01


def main(name: str, address: str, history: str) -> None:
    out = os.open(history, os.O_APPEND | os.O_CREAT | os.O_WRONLY)

    def tell(what: str, item: Item[bytes], **more: Any) -> None:
        said = {"at": time.monotonic(), "who": name, "pid": os.getpid(), "what": what, "value": item.value.decode(), **more}
        os.write(out, json.dumps(said).encode() + b"\n")

    session = connect(address, timeout_s=2.0)
    queue: Consumption[bytes] = Consumption(
        session, QueuePaths("/q", "/q-locks"), QueueKind.PLAIN, ConsumeOptions(), name=name
    )
    queue.start()
    while True:
        item = queue.take(1.0)
        if item is None:
            continue
        tell("begun", item)
        time.sleep(WORK_S)
        try:
            item.ack([Create(f"/done/{item.value.decode()}", name.encode())])
            tell("done", item)
        except NodeExists as exc:
            tell("twice", item, error=str(exc))
        except (ClaimLost, LeaderqError) as exc:
            tell("refused", item, error=f"{type(exc).__name__}: {exc}")


if __name__ == "__main__":
    main(*sys.argv[1:])
