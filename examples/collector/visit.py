"""Sends clicks to the collector, as visitors of a web site would: ``python -m collector.visit``."""

from __future__ import annotations

import argparse
import http.client
import sys

from ad_billing.traffic import generated

AT_A_TIME = 20


def main() -> int:
    """Send clicks; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m collector.visit", description="Send made-up clicks to the collector."
    )
    parser.add_argument("clicks", nargs="?", type=int, default=1000)
    parser.add_argument("--port", type=int, default=8080)
    given = parser.parse_args()
    lines = list(generated(given.clicks))
    taken = 0
    connection = http.client.HTTPConnection("127.0.0.1", given.port, timeout=30)
    try:
        for at in range(0, len(lines), AT_A_TIME):
            piece = lines[at : at + AT_A_TIME]
            connection.request("POST", "/clicks", "\n".join(piece).encode())
            answer = connection.getresponse()
            text = answer.read().decode()
            if answer.status != 202:
                print(f"visit: {answer.status} {text.strip()}", file=sys.stderr)
                break
            taken += len(piece)
    except OSError as exc:
        remedy = "start one with python -m collector.collect"
        print(f"visit: error: no collector on port {given.port}: {exc}; {remedy}", file=sys.stderr)
        return 2
    finally:
        connection.close()
    print(f"{taken} clicks of {given.clicks} were taken")
    return 0 if taken == given.clicks else 1


if __name__ == "__main__":
    sys.exit(main())
