"""A rude command for ``leaderq lead``: it ignores SIGTERM, and so does all that it starts.

It starts a child, a child with a session of its own, a daemon that has forked twice, and a chain:
processes of which each starts the next one and ends.
"""

from __future__ import annotations

import os
import signal
import subprocess

import rude

TERM = int(os.environ["LEADERQ_TERM_NUMBER"])
FOR_EVER_S = 3600.0
CHAIN = f"""
import os, time
{rude.FORK_TWICE}
while not rude.OVER.exists():
    rude.work("chain", {TERM}, 4 * rude.STEP_S)
    if os.fork():
        os._exit(0)
"""


def start(by: str, *, first: str = "", own_session: bool = False) -> None:
    program = rude.program(by, TERM, first=first, seconds=FOR_EVER_S)
    subprocess.Popen(program, start_new_session=own_session)


signal.signal(signal.SIGTERM, signal.SIG_IGN)
rude.note("inaugurate", TERM)
start("subprocess")
start("setsid", own_session=True)
start("daemon", first=rude.FORK_TWICE)
start("chain", first=CHAIN)
while not rude.OVER.exists():
    rude.note("begin", TERM)
    rude.work("unit", TERM)
