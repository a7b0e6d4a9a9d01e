"""kazoo's own ``Election`` in a process: ``kazoo_leader.py ADDRESS PATH MARKS TIMEOUT_S``."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from kazoo.client import KazooClient

sys.path.insert(0, str(Path(__file__).parents[1]))
from marks import Marks


def main(address: str, path: str, file: str, timeout_s: str) -> None:
    marks = Marks(Path(file))

    def lead() -> None:
        marks.inaugurate(1)
        while True:
            marks.begin_unit(1)
            time.sleep(0.001)

    client = KazooClient(address, timeout=float(timeout_s))
    client.start()
    client.Election(path, "process").run(lead)


if __name__ == "__main__":
    main(*sys.argv[1:])
