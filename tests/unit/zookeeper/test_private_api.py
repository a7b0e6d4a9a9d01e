"""kazoo's private parts: all in one file, and unchanged since they were read."""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import kazoo.client
import kazoo.handlers.threading
import kazoo.protocol.connection
from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler
from kazoo.retry import KazooRetry

import leaderq
from leaderq.zookeeper import client, connection

OWNERS = (KazooClient, ConnectionHandler, SequentialThreadingHandler, KazooRetry)
PRODUCT = Path(leaderq.__file__).parent
KAZOOS_FILES = (kazoo.client, kazoo.protocol.connection, kazoo.handlers.threading)
OVERRIDING = {
    "Client": client.Client,
    "ServerConnection": connection.ServerConnection,
    "Transport": connection.Transport,
}
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
# The functions of kazoo that leaderq calls, overrides or reasons about, and hashes of their source.
RELIED_ON = {
    "KazooClient": (
        "__init__ start_async _safe_close _call _session_callback _make_state_change "
        "_notify_pending _reset _reset_watchers"
    ),
    "ConnectionHandler": (
        "start close zk_loop _expand_client_hosts _connect_loop _connect_attempt _connect "
        "_authenticate_with_sasl _invoke _submit _write _read _read_header _read_socket "
        "_read_response _read_watch_event _send_request _send_ping"
    ),
    "SequentialThreadingHandler": "dispatch_callback",
    "KazooRetry": "__call__",
}
SEEN = {
    "KazooClient": "9e82407864155a3b",
    "ConnectionHandler": "5430ead69806e238",
    "SequentialThreadingHandler": "c89f4c71f68b6641",
    "KazooRetry": "14e5acbf09da68dc",
}


def test_the_functions_of_kazoo_that_are_relied_on_are_the_ones_that_were_read():
    found = {}
    for owner in OWNERS:
        names = RELIED_ON[owner.__name__].split()
        source = "".join(inspect.getsource(getattr(owner, name)) for name in names)
        found[owner.__name__] = hashlib.sha256(source.encode()).hexdigest()[:16]
    assert found == SEEN, (
        "kazoo has changed: read these again, with what uses them, then note the new hashes here"
    )


@functools.cache
def private_names_of_kazoo() -> set[str]:
    names: set[str] = set()
    for module in KAZOOS_FILES:
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            if isinstance(node, ast.Attribute):
                names.add(node.attr)
            elif isinstance(node, ast.FunctionDef):
                names.add(node.name)
    return {name for name in names if name.startswith("_") and not name.startswith("__")}


def uses_of_private_parts(path: Path) -> Iterator[str]:
    """Where a file reads, sets or defines what is private in kazoo."""
    text, private = path.read_text(), private_names_of_kazoo()
    if not re.search(
        rf"(?<!self)\.({'|'.join(private)})\b|attr\(", text
    ) and not OVERRIDING.keys() & set(re.findall(r"\w+", text)):
        return  # most files; the tree is only made of the others
    tree = ast.parse(text)
    own = {
        node
        for one in ast.walk(tree)
        if isinstance(one, ast.ClassDef) and one.name not in OVERRIDING
        for node in ast.walk(one)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }  # a class of ours that has nothing to do with kazoo may use the same word for its own
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in private and node not in own:
            yield f"{path.name}:{node.lineno} {ast.unparse(node)}"
        elif isinstance(node, ast.ClassDef) and node.name in OVERRIDING:
            for method in node.body:
                if isinstance(method, ast.FunctionDef) and method.name in private:
                    yield f"{path.name}:{method.lineno} def {method.name}"
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in (
            "getattr",
            "setattr",
            "delattr",
        ):
            names = [one.value for one in node.args if isinstance(one, ast.Constant)]
            if private.intersection(names):
                yield f"{path.name}:{node.lineno} {ast.unparse(node)}"


def is_listed(use: str) -> bool:
    _, _, what = use.partition(" ")
    return any(what in (f"super().{name}", f"self.{name}", f"def {name}") for name in HOOKS)


def test_no_other_file_touches_a_private_part_of_kazoo_but_for_the_listed_hooks():
    files = [path for path in PRODUCT.rglob("*.py") if path.name != "private_api.py"]
    assert [
        use for path in files for use in uses_of_private_parts(path) if not is_listed(use)
    ] == []


def test_every_hook_is_one_of_kazoos_and_is_overridden():
    kazoos = {*vars(kazoo.client.KazooClient), *vars(ConnectionHandler)}
    ours = {name for owner in OVERRIDING.values() for name in vars(owner)}
    assert set(HOOKS) == kazoos & ours & private_names_of_kazoo()
