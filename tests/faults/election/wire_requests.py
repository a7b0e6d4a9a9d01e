"""Predicates on ZooKeeper's requests and replies, for the rules of a fault proxy."""

from __future__ import annotations

from collections.abc import Callable

_CLOSE = (-11).to_bytes(4, "big", signed=True)
_CREATES, _LISTINGS, _MULTI = (1, 15), (8, 12), 14
_DELETE_HEADER = bytes.fromhex("00000002 00 ffffffff")  # of one operation inside a multi
_SET_HEADER = bytes.fromhex("00000005 00 ffffffff")


def opcode(request: bytes) -> int:
    """The operation asked for; 0 for the first frame of a connection, which has none."""
    return int.from_bytes(request[4:8], "big") if request[:4] != bytes(4) else 0


def is_create(request: bytes) -> bool:
    """A candidate's znode is created, ours (also that of a Java latch) or kazoo's; no folder."""
    return opcode(request) in _CREATES and (b"-latch-" in request or b"__lock__" in request)


def is_delete(request: bytes) -> bool:
    """A znode is deleted, by itself."""
    return opcode(request) == 2


def is_listing(request: bytes) -> bool:
    """The names of children are read, by themselves."""
    return opcode(request) in _LISTINGS


def is_survey(request: bytes) -> bool:
    """A candidate looks at the line and the newest term in one request."""
    return opcode(request) == 22


def is_multi(request: bytes) -> bool:
    """Any transaction: a claim, a renewal, a fenced write, a release."""
    return opcode(request) == _MULTI


def is_claim(request: bytes) -> bool:
    """A candidate claims a term by writing its record."""
    return is_multi(request) and _SET_HEADER in request and b'"stage":"inauguration"' in request


def is_release(request: bytes) -> bool:
    """A candidate gives its term back: one transaction deletes its znode and records the end."""
    return is_multi(request) and _DELETE_HEADER in request


def is_renewal(request: bytes) -> bool:
    """A leader renews its lease: a transaction that changes nothing."""
    return is_multi(request) and _DELETE_HEADER not in request and _SET_HEADER not in request


def ends(session: int) -> Callable[[bytes], bool]:
    """Whether a request takes ``session`` up or ends any session.

    Whoever drops these lets the server keep ``session`` until it expires, whatever its owner does.
    """

    def does(request: bytes) -> bool:
        if request[:4] == bytes(4):  # the first frame of a connection
            return request[16:24] == session.to_bytes(8, "big", signed=True)
        return request[4:8] == _CLOSE

    return does


def is_watch_event(reply: bytes) -> bool:
    """A watch fired."""
    return reply[:4] == b"\xff\xff\xff\xff"
