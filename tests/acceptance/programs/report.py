"""Writes a report while it leads, and says in whose name."""

from __future__ import annotations

import sys

from leaderq import connect
from leaderq.zookeeper import Create


def main(address: str, name: str) -> None:
    with connect(address) as session:
        with session.leadership("reports", id=name, timeout_s=60) as term:
            term.write([Create(f"/report-{term.number}", name.encode())])
            print(f"{name} wrote report {term.number}")
        for term in session.terms("reports", id=name, cool_off_s=0):
            print(f"{name} leads term {term.number}")
            term.finish()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
