"""``leaderq servers up`` and ``down``: a ZooKeeper and a Kafka to try things on.

Servers in the background belong to a process that holds a lock on a file in the cache while it
lives. The file says which process that is, and where the servers are.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from shlex import quote
from typing import IO

import click

from leaderq.base import clock
from leaderq.cli.options import JSON, Given, switch, verb
from leaderq.cli.output import say, write_json
from leaderq.cli.signals import stop_early
from leaderq.errors import ConfigurationError, ServerFailed
from leaderq.threads import primitives

_STOPPED_WITHIN_S = 60.0


@verb(
    switch("--detach", help="return when they are up; leaderq servers down stops them"),
    JSON,
)
def up(given: Given) -> None:
    """Start one ZooKeeper and one Kafka, print their addresses, and stop them at Ctrl-C or SIGTERM.
    With --detach, they stay in the background until leaderq servers down.

    Needs only Python with leaderq[servers]: the servers are fetched once and kept. Their data is
    thrown away at the end. They listen on 2181 and 9092, which are leaderq's defaults, if these
    ports are free. A server that LEADERQ_ZOOKEEPER or LEADERQ_KAFKA names is used as it is, and is
    not started.

    \b
    Examples:
      leaderq servers up
      eval "$(leaderq servers up --detach)"
    """
    if given.detach:
        _print(_detached(), given)
        return
    from leaderq.testing.provision import ServerPair

    signal.signal(signal.SIGTERM, stop_early)
    with ServerPair(usual_ports=True) as pair:
        told = primitives.Event()
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, lambda *_: told.set())
        zookeeper, kafka = pair.zookeeper_address, pair.kafka_address
        _print({"zookeeper": zookeeper, "kafka": kafka}, given)
        sys.stdout.flush()
        say("running; Ctrl-C stops them")
        # In slices: on some platforms a wait without end lets no signal handler of Python's run.
        while not told.wait(0.5):
            pass
        say("stopping...")


@verb()
def down(given: Given) -> None:
    """Stop the servers that leaderq servers up --detach has started; return when they have
    ended.

    \b
    Example:
      leaderq servers down
    """
    with _state() as state:
        if _is_ours(state):
            say("no servers run in the background")
            return
        try:
            os.kill(json.load(state)["pid"], signal.SIGTERM)
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigurationError("the servers are still starting; try again") from error
        except ProcessLookupError:
            pass  # it has just ended
        end_s = clock.now_s() + _STOPPED_WITHIN_S
        while not _is_ours(state):
            if clock.now_s() > end_s:
                raise ServerFailed(f"the servers did not stop within {_STOPPED_WITHIN_S:.0f} s")
            clock.sleep(0.05)
        state.truncate(0)
    say("stopped")


def _print(addresses: dict[str, str], given: Given) -> None:
    if given.as_json:
        write_json(addresses)
    else:
        words = (f"LEADERQ_{key.upper()}={quote(each)}" for key, each in addresses.items())
        click.echo(" ".join(["export", *words]))


def _state() -> IO[str]:
    """Open the file that describes the servers in the background."""
    from leaderq.testing.jars import cache_folder

    return (cache_folder() / "servers.json").open("a+")


def _is_ours(state: IO[str]) -> bool:
    """Try to lock the file; return whether that succeeded. It fails while the servers run."""
    state.seek(0)
    try:
        fcntl.flock(state, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _detached() -> dict[str, str]:
    """Start servers in the background, unless they run already; return their addresses."""
    with ExitStack() as stack:
        state = stack.enter_context(_state())
        if not _is_ours(state):
            try:
                found: dict[str, str] = json.load(state)
                return {name: found[name] for name in ("zookeeper", "kafka")}
            except (ValueError, KeyError, TypeError) as error:
                raise ConfigurationError("the servers are still starting; try again") from error
        state.truncate(0)
        log = Path(state.name).with_suffix(".log")
        say(f"starting; the first time the servers are fetched; what they say stands in {log}")
        process = subprocess.Popen(
            [sys.executable, "-m", "leaderq", "servers", "up", "--json"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stack.enter_context(log.open("w")),
            start_new_session=True,
            pass_fds=[state.fileno()],  # so the lock is that process's, as long as it lives
        )
        stack.callback(process.stdout.close)  # type: ignore[union-attr]
        try:
            said = process.stdout.readline()  # type: ignore[union-attr]
            addresses: dict[str, str] = json.loads(said)
        except ValueError as error:
            process.wait()
            why = log.read_text().strip().rpartition("\n")[2].removeprefix("leaderq: error: ")
            raise ServerFailed(f"the servers did not start: {why}") from error
        except BaseException:
            process.terminate()
            raise
        state.write(json.dumps({"pid": process.pid, **addresses}))
        process.returncode = 0  # it is not ours to wait for
        return addresses
