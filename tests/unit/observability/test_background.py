"""A log that nobody reads holds nobody up."""

from __future__ import annotations

import io
import logging
import multiprocessing
import os
import subprocess
import sys

from leaderq.observability.logging import BackgroundHandler

UNREAD = """
import logging, sys
from leaderq.observability.logging import BackgroundHandler
log = logging.getLogger("x")
log.addHandler(BackgroundHandler(sys.stderr))
for number in range(30_000):
    log.error("line %d %s", number, "x" * 100)
print("done", flush=True)
"""


def logger(handler: logging.Handler) -> logging.Logger:
    made = logging.Logger("test")
    made.addHandler(handler)
    return made


def test_lines_are_written_in_order_and_flush_waits_for_them():
    stream = io.StringIO()
    handler = BackgroundHandler(stream)
    log = logger(handler)
    for number in range(1000):
        log.info("%d", number)
    handler.close()
    assert stream.getvalue().split() == [str(number) for number in range(1000)]


def test_a_pipe_that_nobody_reads_stops_neither_the_program_nor_its_end():
    with subprocess.Popen(
        [sys.executable, "-c", UNREAD], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"done\n"
        assert process.wait(60) == 0


def test_a_forked_child_logs_too():
    reading, writing = os.pipe()
    stream = os.fdopen(writing, "w")
    handler = BackgroundHandler(stream)
    log = logger(handler)
    log.info("parent")
    handler.flush()

    def child() -> None:
        log.info("child")
        handler.flush()

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join()
    stream.close()
    with os.fdopen(reading) as reader:
        assert reader.read().split() == ["parent", "child"]
