"""Histories drawn at random: what clients of real and of simulated servers do, step by step.

``LEADERQ_CONFORMANCE_STEPS`` says how many operations, ``LEADERQ_CONFORMANCE_SEED`` which,
``LEADERQ_CONFORMANCE_VERSION`` on servers of which versions only.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from enum import Enum, auto
from typing import Any, NamedTuple

from both_kinds import AUTH, SET_ACL, Client, Comparison, Connection, Servers
from drawn_requests import MAX_BYTES, Draw, drawn_request, shown
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from kazoo.protocol import serialization as kazoo_wire
from kazoo.security import OPEN_ACL_UNSAFE

from leaderq.zookeeper.wire import HEADER_BYTES

STEPS = int(os.environ.get("LEADERQ_CONFORMANCE_STEPS") or 0)
SEED = int(os.environ.get("LEADERQ_CONFORMANCE_SEED") or 27)
VERSION = os.environ.get("LEADERQ_CONFORMANCE_VERSION", "")
CLIENTS = 3
IN_ONE_HISTORY = 200
STEP_BYTES = 16
# Integers would be drawn small, and often the same.
NUMBERS = st.binary(min_size=IN_ONE_HISTORY * STEP_BYTES, max_size=IN_ONE_HISTORY * STEP_BYTES)
BARRIER = kazoo_wire.Exists("/zookeeper", None)
"""What was sent to a client before the answer to this has come when the answer has."""


def settings_for(steps: int) -> settings:
    """Of a test of so many steps; it makes a failing history smaller where it may take its time."""
    return settings(
        max_examples=max(1, steps // IN_ONE_HISTORY),
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink) if STEPS else (Phase.generate,),
    )


class Doing(Enum):
    BEGIN_AGAIN = auto()
    COME_BACK = auto()
    TAKE_OVER = auto()  # through another connection, while the former is open
    COME_WITH_A_WRONG_PASSWORD = auto()
    COME_FROM_THE_FUTURE = auto()
    COME_AFTER_THE_END = auto()


DOINGS = list(Doing)


class Step(NamedTuple):
    """What the client of this number does: something besides requests, or these requests, one sent
    right behind the other; at which server, if it opens a connection.
    """

    client: int
    what: Enum | Sequence[Any]
    server: int = 0

    def __str__(self) -> str:
        what = self.what if isinstance(self.what, Enum) else "; ".join(map(shown, self.what))
        return f"{self.client}: {what} ({self.server})"


def is_too_large(request: Any) -> bool:
    return len(request.serialize()) + HEADER_BYTES > MAX_BYTES


def drawn(numbers: bytes, root: str, servers: int = 1) -> list[Step]:
    """The steps of one history, each of so many bytes."""
    steps = []
    for begin in range(0, len(numbers), STEP_BYTES):
        draw = Draw(int.from_bytes(numbers[begin : begin + STEP_BYTES], "little"), root)
        if draw.is_done:  # so that a failure is shown with what it needs
            continue
        at, server, what = draw.below(CLIENTS), draw.below(servers), draw.below(100)
        action: Enum | list[Any]
        if what < len(DOINGS):
            action = DOINGS[what]
        else:
            action = [drawn_request(draw)]
            if what < 20:
                action = _in_a_row([*action, *(drawn_request(draw) for _ in range(what % 4))])
        steps.append(Step(at, action, server))
    return steps


def _in_a_row(requests: Sequence[Any]) -> list[Any]:
    """Those whose answers are determined: real servers take credentials at once, and judge what
    comes right behind a new ACL by the former one.
    """
    kept = [one for one in requests if one.type not in (AUTH, SET_ACL) and not is_too_large(one)]
    return kept or [BARRIER]


class Histories:
    """The same clients on both kinds of servers; nothing is left of one history for the next."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._count = 0
        self._clients: list[Client] = []
        self._begin()

    def _begin(self) -> None:
        for client in filter(lambda one: one.has_session, self._clients):
            client.take_up()
            client.end()
        self.close()
        self._comparison = Comparison()
        self._clients = self._new_clients()

    def _new_clients(self) -> list[Client]:
        size = len(self._servers.addresses)
        return [Client(self._servers, number % size) for number in range(CLIENTS)]

    def close(self) -> None:
        self._servers.close()

    def new_root(self) -> str:
        self._count += 1
        return f"/history-{self._count}"

    def check(self, root: str, steps: Sequence[Step]) -> None:
        try:
            self._check(root, steps)
        except BaseException:
            self._begin()
            raise

    def _check(self, root: str, steps: Sequence[Step]) -> None:
        for path in ("", "/a", "/b"):
            begun = kazoo_wire.Create(root + path, b"", OPEN_ACL_UNSAFE, 0)
            self._clients[0].newest.do(begun)
        for step in steps:
            self.take(step)
        for client in self._clients:
            self._open(client)  # a session that is left would end in the middle of another history
            self.catch_up(client.newest)
        self.settle()
        for client in self._clients:
            self.catch_up(client.newest)
            client.end()
        for client in self._clients:
            for connection in client.connections:
                connection.compare(self._comparison, steps)
        self._comparison.keep_order()
        self._clients = self._new_clients()

    def settle(self) -> None:
        """Each client with a connection has heard of all that has happened."""
        for client in self._clients:
            if client.newest.is_open:
                self.catch_up(client.newest)
                client.newest.do(BARRIER)

    def _open(self, client: Client, server: int = 0) -> None:
        if not client.has_session:
            client.begin(server)
        elif not client.newest.is_open:
            client.take_up(server)

    def catch_up(self, connection: Connection) -> None:
        """Its server has all that was written by now: the only one always has."""

    def take(self, step: Step) -> None:
        client, what = self._clients[step.client], step.what
        self._open(client, step.server)
        self.catch_up(client.newest)
        if isinstance(what, Enum):
            self._act(client, step)
            return
        if any(map(is_too_large, what)):
            client.newest.do(BARRIER)
        client.newest.do(*what)

    def _act(self, client: Client, step: Step) -> None:
        former, doing = client.newest, step.what
        former.do(BARRIER)  # nothing is under way that a closed connection would lose
        if doing is Doing.TAKE_OVER:
            client.take_up(step.server)
            self.taken_over(former, client.newest)
            return
        if doing in (Doing.BEGIN_AGAIN, Doing.COME_AFTER_THE_END):
            client.end()
        former.close()
        if doing is Doing.BEGIN_AGAIN:
            client.begin(step.server)
        elif doing is Doing.COME_WITH_A_WRONG_PASSWORD:
            client.take_up(step.server, password=b"\1" * 16)
        elif doing is Doing.COME_FROM_THE_FUTURE:
            client.take_up(step.server, last_zxid=1 << 60)
        elif doing is Doing.COME_AFTER_THE_END:
            client.take_up(former.server)  # others may not know of it yet
        else:
            client.take_up(step.server)

    def taken_over(self, former: Connection, newest: Connection) -> None:
        """The session of the one connection has another one."""
        former.real.hear_the_end()
