from __future__ import annotations

import hashlib
import inspect
import re
from pathlib import Path

from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler
from kazoo.retry import KazooRetry

import leaderq
from leaderq.zookeeper import client, connection

OVERRIDING = (client.Client, connection.ServerConnection, connection.Transport)
# The private methods of kazoo that leaderq overrides, each with the reason.
HOOKS = {
    "_call": "queues a request, connected or not, and may block; ours refuses or returns",
    "_session_callback": "the only place where kazoo says a state before it acts on it",
    "_expand_client_hosts": "resolves names; says that an attempt begins",
    "_connect": "one attempt; says when connecting begins and has succeeded",
    "_invoke": "the handshake's answer holds the granted time-out, which kazoo does not keep",
    "_write": "the only way to bound a write",
    "_read": "the only way to bound a read, and to read all that has arrived",
    "_read_socket": "one reply; where an answer counts as a sign of life",
    "_send_request": "sends one request a call; ours sends all that is queued",
    "_send_ping": "where a ping counts as something that must be answered",
    "_read_watch_event": "kazoo drops the events of persistent watches",
}
RELIED_ON = {
    KazooClient: (
        "9e82407864155a3b",
        "__init__ start_async _safe_close _call _session_callback _make_state_change"
        " _notify_pending _reset _reset_watchers",
    ),
    ConnectionHandler: (
        "5430ead69806e238",
        "start close zk_loop _expand_client_hosts _connect_loop _connect_attempt _connect"
        " _authenticate_with_sasl _invoke _submit _write _read _read_header _read_socket"
        " _read_response _read_watch_event _send_request _send_ping",
    ),
    SequentialThreadingHandler: ("c89f4c71f68b6641", "dispatch_callback"),
    KazooRetry: ("14e5acbf09da68dc", "__call__"),
}
"""The functions that we call, override or reason about, and the hash of their source as read."""


def test_the_functions_of_kazoo_that_are_relied_on_are_the_ones_that_were_read():
    changed = {}
    for owner, (seen, names) in RELIED_ON.items():
        text = "".join(inspect.getsource(getattr(owner, name)) for name in names.split())
        if (found := hashlib.sha256(text.encode()).hexdigest()[:16]) != seen:
            changed[owner.__name__] = found
    assert changed == {}, (
        "kazoo has changed: read these again, with what uses them, then note the new hashes here"
    )


PRIVATE = re.compile(r"(?:\.|def )(_[a-z]\w*)")
PARTS = map(inspect.getmodule, (KazooClient, ConnectionHandler, SequentialThreadingHandler))
THEIRS = {name for part in PARTS for name in PRIVATE.findall(inspect.getsource(part))}
USED = re.compile(r"""(?<!\bself)(?<!super\(\))\.(_[a-z]\w*)|attr\([^)]*["'](_[a-z]\w*)""")
INHERITED = re.compile(r"(?:\bself\.|super\(\)\.|def )(_[a-z]\w*)")


def test_no_other_file_touches_a_private_part_of_kazoo():
    uses = {
        (path.name, name)
        for path in Path(leaderq.__file__).parent.rglob("*.py")
        for names in USED.findall(path.read_text())
        for name in THEIRS.intersection(names)
    }
    assert {name for name, _ in uses} == {"private_api.py"}, uses


def test_every_hook_is_one_of_kazoos_and_overridden_and_no_other_is_used():
    kazoos = {*vars(KazooClient), *vars(ConnectionHandler)}
    assert set(HOOKS) == kazoos & THEIRS & {name for owner in OVERRIDING for name in vars(owner)}
    for owner in OVERRIDING:
        assert THEIRS.intersection(INHERITED.findall(inspect.getsource(owner))) <= set(HOOKS)
