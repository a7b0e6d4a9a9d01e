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
SEEN = {
    "KazooClient.__init__": "a3d01e3ae4982f8d",
    "KazooClient.start_async": "f91bcca6891cdef3",
    "KazooClient._safe_close": "e5b8a440f068b115",
    "KazooClient._call": "ccdf4c17003b301e",
    "KazooClient._session_callback": "cebb62a546c4d455",
    "KazooClient._make_state_change": "4b5e2e0f740b6966",
    "KazooClient._notify_pending": "529ce77a57655de5",
    "KazooClient._reset": "8e4614a6ce5cd864",
    "KazooClient._reset_watchers": "a12d04713e15591f",
    "ConnectionHandler.start": "008752066a0f4698",
    "ConnectionHandler.close": "883cda904eb319ec",
    "ConnectionHandler.zk_loop": "df35a1dd8643ac12",
    "ConnectionHandler._expand_client_hosts": "93236073c679c511",
    "ConnectionHandler._connect_loop": "4d40785ef14a38bd",
    "ConnectionHandler._connect_attempt": "85fed4df97e02981",
    "ConnectionHandler._connect": "c67473628f3e06d2",
    "ConnectionHandler._authenticate_with_sasl": "6c596432a4e7a227",
    "ConnectionHandler._invoke": "4566a25fb80377b0",
    "ConnectionHandler._submit": "03ff0b1b16ef6bf6",
    "ConnectionHandler._write": "4a75e1cd9d637b6f",
    "ConnectionHandler._read": "3dee3dc17d268141",
    "ConnectionHandler._read_header": "0b4a8174004ca5e4",
    "ConnectionHandler._read_socket": "ead9cff6c0a8e749",
    "ConnectionHandler._read_response": "a0725364d26d1b5d",
    "ConnectionHandler._read_watch_event": "32623f9b94060ebb",
    "ConnectionHandler._send_request": "fb268341cf598ce8",
    "ConnectionHandler._send_ping": "a633bb022ac8b14d",
    "SequentialThreadingHandler.dispatch_callback": "c89f4c71f68b6641",
    "KazooRetry.__call__": "14e5acbf09da68dc",
}


def test_the_functions_of_kazoo_that_are_relied_on_are_the_ones_that_were_read() -> None:
    owners = {owner.__name__: owner for owner in OWNERS}
    found = {}
    for name in SEEN:
        owner, _, function = name.partition(".")
        source = inspect.getsource(getattr(owners[owner], function))
        found[name] = hashlib.sha256(source.encode()).hexdigest()[:16]
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


def test_no_other_file_touches_a_private_part_of_kazoo_but_for_the_listed_hooks() -> None:
    files = [path for path in PRODUCT.rglob("*.py") if path.name != "private_api.py"]
    assert [
        use for path in files for use in uses_of_private_parts(path) if not is_listed(use)
    ] == []


def test_every_hook_is_one_of_kazoos_and_is_overridden() -> None:
    kazoos = {*vars(kazoo.client.KazooClient), *vars(ConnectionHandler)}
    ours = {name for owner in OVERRIDING.values() for name in vars(owner)}
    assert set(HOOKS) == kazoos & ours & private_names_of_kazoo()
