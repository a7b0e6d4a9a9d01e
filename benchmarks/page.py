"""What the page costs beside a deep queue: requests and processor time of a refresh, and the time
to first paint in headless Chromium.

    python benchmarks/page.py [--careers 200] [--items 1000000] [--rounds 9]

Careers as leaders leave them, and a queue of that many items, on a real ZooKeeper; the page is
``leaderq dashboard``, a process of its own. Chromium is Debian's package, and needs ``playwright``
(``make page``); without it only refreshes are measured. Each visit is by a browser that was never
there before. A queue of more than 250,000 items is counted, and not listed.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from figures import print_table, save, summary

from leaderq import connect
from leaderq.admin.snapshot import PageSnapshot, reading
from leaderq.election import TermRecord
from leaderq.election.layout import Layout, encode
from leaderq.kafka.consuming.report import DrainReport, PartitionLag
from leaderq.kafka.consuming.report import encode as encoded_report
from leaderq.testing import ZooKeeperServer
from leaderq.zookeeper import Create, Session

ROOT, QUEUE = "/leaderq", "/deep"
SCREENS = {"careers": "/", "queues": "/queues", "the deep queue": f"/queue?of={QUEUE}"}
PAINTED = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
_TOGETHER = 1000


def fill(session: Session, careers: int, items: int) -> None:
    """Careers that drain, and a plain queue."""
    for number in range(careers):
        layout = Layout(ROOT, f"career-{number:04}")
        session.ensure_path(layout.candidates)
        record = TermRecord(number=7, candidate="a", id="x", began=time.time(), stage="execution")
        report = DrainReport(7, time.time(), "g", {"t-0": PartitionLag(1, 9, 8)}, 1.0, 1.0, 4.0)
        session.create(layout.term, encode(record))
        session.create(layout.progress, encoded_report(report))
    for path in (QUEUE, f"{QUEUE}-dead", f"{QUEUE}-meta"):
        session.ensure_path(path)
    for done in range(0, items, _TOGETHER):
        numbers = range(done, min(items, done + _TOGETHER))
        session.multi([Create(f"{QUEUE}/queue-{number:010}", b"an item") for number in numbers])
        if done % 100_000 == 0:
            print(f"{done:,} items", file=sys.stderr, flush=True)


def refreshes(session: Session, rounds: int) -> dict[str, dict[str, Any]]:
    """Requests, and ms of this process's time and of the clock, each time."""
    sent: list[Any] = []
    send_all = session._send_all

    def counting(requests: Any, *more: Any) -> Any:
        sent.extend(requests)
        return send_all(requests, *more)

    session._send_all = counting  # type: ignore[method-assign]
    read, snapshot = reading(session, ROOT, ("/",)), PageSnapshot()
    found: dict[str, list[float]] = {"requests": [], "CPU, ms": [], "clock, ms": []}
    for _ in range(rounds):
        sent.clear()
        cpu_s, clock_s = time.process_time(), time.perf_counter()
        snapshot = read(snapshot, frozenset([QUEUE]))
        found["requests"].append(len(sent))
        found["CPU, ms"].append(1000 * (time.process_time() - cpu_s))
        found["clock, ms"].append(1000 * (time.perf_counter() - clock_s))
    return {name: summary(values) for name, values in found.items()}


@contextmanager
def page(address: str) -> Iterator[str]:
    command = [sys.executable, "-m", "leaderq", "dashboard", "--zookeeper", address]
    with subprocess.Popen(
        [*command, "--bind", "127.0.0.1:0"], stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stderr is not None
        try:
            yield running.stderr.readline().strip()
        finally:
            running.terminate()


def paints(url: str, rounds: int) -> dict[str, dict[str, Any]]:
    """Milliseconds from the request to the first paint with content."""
    from playwright.sync_api import sync_playwright

    found: dict[str, list[float]] = {name: [] for name in SCREENS}
    with sync_playwright() as started:
        browser = started.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        for _ in range(rounds):
            for name, path in SCREENS.items():
                context = browser.new_context()
                tab = context.new_page()
                tab.goto(f"{url.rstrip('/')}{path}", wait_until="commit")
                # Not by wait_for_function: what the page may run forbids it to evaluate text.
                while not (painted := tab.evaluate(PAINTED)):
                    tab.wait_for_timeout(5)
                found[name].append(float(painted))
                context.close()
    return {name: summary(values) for name, values in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--careers", type=int, default=200)
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    figures: dict[str, Any] = {}
    with ExitStack() as stack:
        address = stack.enter_context(ZooKeeperServer(heap_mb=2000)).address
        session = stack.enter_context(connect(address))
        fill(session, arguments.careers, arguments.items)
        figures["a refresh"] = refreshes(session, arguments.rounds)
        print_table("a refresh", figures["a refresh"])
        if shutil.which("chromium") is not None:
            figures["first paint, ms"] = paints(
                stack.enter_context(page(address)), arguments.rounds
            )
            print_table("first paint, ms", figures["first paint, ms"])
    print("saved:", save("page", {"parameters": vars(arguments), "figures": figures}))


if __name__ == "__main__":
    main()
